"""Changes one expression of gpubind after the other, and reports the changes that no test notices."""

from __future__ import annotations

import argparse
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, Optional

from tests.mutants.sites import Mutant, drawn, mutants_of
from tests.mutants.tree import CACHE, Choice, Chooser, Copy, Map, make_map, room_of, say, sources_in, test_files

EQUIVALENT = Path(__file__).parent / "equivalent.tsv"
FIRST_SIZES = (40, 300)
"""How many tests run together first: mostly one of them fails, and the files of all others need not load."""


class Verdict(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    noticed: Optional[str]
    """The test that failed."""
    reason: str
    """Why the mutant is equivalent, from the list."""
    covering: Sequence[str]
    """The tests that run its line."""
    ran: int
    """How many of them ran before one failed, or the time was over."""
    seconds: float


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    words.add_argument("--seed", type=int, default=[1], nargs="+")
    words.add_argument("--count", type=int, default=100, help="how many mutants are drawn by each seed")
    words.add_argument("--jobs", type=int, default=2)
    words.add_argument("--seconds", type=float, default=120, help="of tests for one mutant")
    words.add_argument("--map", action="store_true", help="make the map from lines to tests anew")
    words.add_argument("--again", type=Path, help="take the mutants of this file, as .mutants/unnoticed.tsv has them")
    given = words.parse_args()
    copies = [Copy() for _number in range(given.jobs)]
    try:
        known = _map(copies, anew=given.map)
        sources = sources_in(copies[0].root)
        mutants = (
            _listed(given.again, sources)
            if given.again
            else [each for seed in given.seed for each in drawn(sources, seed, given.count)]
        )
        chooser = Chooser(known, sources, test_files(copies[0].root))
        verdicts = list(_verdicts(mutants, copies, sources, chooser, given.seconds))
    finally:
        for copy in copies:
            copy.close()
    if verdicts:
        _report(verdicts, str(given.again or f"seed {' '.join(map(str, given.seed))}"))


def _map(copies: Sequence[Copy], anew: bool) -> Map:
    place = CACHE / "map"
    if anew or not place.exists():
        made = make_map(copies)
        CACHE.mkdir(exist_ok=True)
        place.write_bytes(pickle.dumps(tuple(made)))
    known = Map(*pickle.loads(place.read_bytes()))
    sources, files = sources_in(copies[0].root), test_files(copies[0].root)
    changed = sum(known.sources.get(name) != sources[name] for name in sources)
    changed_tests = sum(known.files.get(name) != files[name] for name in files)
    say(
        f"map of {known.commit[:12]}: {len(known.rows)} tests; {changed} files of gpubind differ, {changed_tests} tests"
    )
    return known


def _listed(path: Path, sources: Mapping[str, bytes]) -> list[Mutant]:
    keys = set(path.read_text().splitlines())
    found = {each.key: each for file in sorted(sources) for each in mutants_of(file, sources[file]) if each.key in keys}
    for key in sorted(keys - set(found)):
        say(f"no longer in the code: {key}")
    return list(found.values())


def _verdicts(
    mutants: Sequence[Mutant], copies: Sequence[Copy], sources: Mapping[str, bytes], chooser: Chooser, seconds: float
) -> Iterator[Verdict]:
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)
    reasons = equivalents()

    def verdict(mutant: Mutant) -> Verdict:
        if mutant.key in reasons:
            return Verdict(mutant, None, reasons[mutant.key], (), 0, 0)
        copy = free.get()
        copy.write(mutant.file, mutant.applied(sources[mutant.file]))
        try:
            return _tried(mutant, copy, chooser.choose(mutant), seconds)
        finally:
            copy.write(mutant.file, sources[mutant.file])
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        for each in pool.map(verdict, mutants):
            say(_line(each))
            yield each


def _tried(mutant: Mutant, copy: Copy, choice: Choice, seconds: float) -> Verdict:
    """Run the tests for a mutant that is in *copy*, until one fails."""
    began = time.monotonic()
    ran = 0
    for order in _batches({**choice.covering, **choice.others}, seconds):
        result = copy.run(order, sorted({name.partition("::")[0] for name in order}), ["-x"])
        ran += len(result.rows)
        if result.noticed:
            return Verdict(mutant, result.noticed, "", list(choice.covering), ran, time.monotonic() - began)
    return Verdict(mutant, None, "", list(choice.covering), ran, time.monotonic() - began)


def _batches(tests: Mapping[str, float], seconds: float) -> Iterator[dict[str, float]]:
    """Divide tests into the first few, some more, and the others; what is over *seconds* is left out."""
    sizes = [*FIRST_SIZES, len(tests)]
    batch: dict[str, float] = {}
    for name, cost in tests.items():
        if seconds > 0:
            seconds -= cost
            batch[name] = cost
            if len(batch) == sizes[0]:
                yield batch
                sizes, batch = sizes[1:], {}
    if batch:
        yield batch


def equivalents() -> dict[str, str]:
    """Return the reasons for mutants that change nothing that a test could see, by their keys."""
    rows = [line.rpartition("\t") for line in EQUIVALENT.read_text().splitlines() if not line.startswith("#")]
    return {key: reason for key, _tab, reason in rows}


def _line(verdict: Verdict) -> str:
    mutant = verdict.mutant
    where = f"{mutant.file}:{mutant.line} {mutant.function}: {_short(mutant.change)}"
    if verdict.noticed:
        return f"noticed    {where}\n             by {verdict.noticed} ({verdict.seconds:.0f} s)"
    if verdict.reason:
        return f"equivalent {where}\n             {verdict.reason}"
    tests = f"{len(verdict.covering)} tests run it, as {verdict.covering[0]}" if verdict.covering else "no test runs it"
    where += f"\n             in `{_short(mutant.text)}`; {verdict.ran} tests ran; "
    return f"UNNOTICED  {where}{tests} ({verdict.seconds:.0f} s)"


def _short(text: str) -> str:
    before, arrow, after = text.rpartition(" -> ")
    return f"{before[:90]}{arrow}{after[:90]}"


def _report(verdicts: Sequence[Verdict], name: str) -> None:
    rooms: dict[str, list[Verdict]] = {}
    for each in sorted(verdicts, key=lambda each: room_of(each.mutant.file)):
        rooms.setdefault(room_of(each.mutant.file), []).append(each)
    say(f"\n{name}\nroom        mutants noticed  part equivalent")
    for room, those in (*rooms.items(), ("all", verdicts)):
        noticed, listed = sum(bool(each.noticed) for each in those), sum(bool(each.reason) for each in those)
        say(f"{room:<12}{len(those):7} {noticed:7} {100 * noticed / len(those):4.0f}% {listed:10}")
    unnoticed = [f"{each.mutant.key}\n" for each in verdicts if not each.noticed and not each.reason]
    (CACHE / "unnoticed.tsv").write_text("".join(unnoticed))


if __name__ == "__main__":
    main()
