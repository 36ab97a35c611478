"""Golden files and lists that must agree: a failure says what differs, and what to do about it.

A golden file holds what the code makes: a file of `tests/golden`, a page of `docs`, or the part of a page between
`<!-- NAME: begin -->` and `<!-- NAME: end -->`. `pytest --update-golden` rewrites it.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import jsonschema
import pytest

from gpubind.model import Plan
from gpubind.model.data import read_data

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GOLDEN = ROOT / "tests" / "golden"
LINES = 30
"""The most lines of a difference that a failure shows."""
WIDTH = 240
"""The most characters of a line of text that it shows."""
FOLDED = 400
"""The most characters of a line of folded JSON: the row of a decision or finding fits."""
NAMES = (
    ("code", "subject"),
    ("subject", "path"),
    ("target",),
    ("containerPath",),
    ("name",),
    ("path",),
    ("pci",),
    ("code",),
    ("vendor",),
)
"""The keys whose values name an element of a list: the first that it has."""
NOTHING = object()
is_updating = False
"""Whether golden files are rewritten; tests/conftest.py sets it to the option `--update-golden`."""


def generated(path: Path, part: str) -> str:
    """Return the *part* of a page."""
    return _parts(path, part)[1]


def assert_golden(path: Path, text: str, *, part: str = "") -> None:
    """Assert that the file, or its *part*, is *text*; `--update-golden` writes it. JSON is compared as values."""
    before, there, after = _parts(path, part)
    if is_updating:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(before + text + after)
    elif text != there:
        where = f"{path.relative_to(ROOT)}{f', part `{part}`,' if part else ''}"
        shown = cut([*_of_json(there, text)] or [*_of_lines(there.splitlines(), text.splitlines())])
        fail(f"{where} differs from what the code makes now (- and left: the file):", *shown, "", how_to_update())


def folded(document: str) -> str:
    """Return JSON that has a value on each line with as many values on a line as fit; any other text as it is."""
    try:
        value = json.loads(document)
    except ValueError:
        return document
    spellings = [f"{json.dumps(value, indent=1, ensure_ascii=is_ascii)}\n" for is_ascii in (True, False)]
    return "".join(f"{line}\n" for line in _folded(value)) if document in spellings else document


def how_to_update() -> str:
    """Return the command that rewrites the golden files of the test that runs."""
    file = os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]
    live = "-m live " if file.startswith("tests/live/") else ""
    return f"If the change is meant: python -m pytest {live}{file} --update-golden, then read `git diff`."


def assert_listed(there: Iterable[str], wanted: Iterable[str], *, add: str, remove: str = "", order: str = "") -> None:
    """Assert that the names *there* are those *wanted*; the failure tells for each name what to edit.

    `{}` in *add* and *remove* stands for the name. Without *remove* there may be more names. With *order*, which says
    where the names are, they are in the order of *wanted*.
    """
    there, wanted = list(there), list(wanted)
    some, due = dict.fromkeys(there), dict.fromkeys(wanted)
    told = [add.replace("{}", name) for name in due if name not in some]
    assert_none([*told, *(remove.replace("{}", name) for name in some if remove and name not in due)])
    if order and there != wanted:
        one, due_here = next(pair for pair in zip(there, [*wanted, "nothing"]) if pair[0] != pair[1])
        fail(f"{order}: `{due_here}` is to be where `{one}` is")


def assert_fits(document: Any, name: str) -> None:
    """Assert that *document* is as the shipped schema *name* says."""
    file = f"model/data/{name}.schema.json"
    found = jsonschema.Draft202012Validator(json.loads(read_data(file))).iter_errors(document)
    assert_none(f"gpubind/{file} does not have what is at {one.json_path}: {one.message[-WIDTH:]}" for one in found)


def table_of_rules() -> dict[str, set[str]]:
    """The rules of decisions in docs/plan.md, each with its verdicts."""
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", (DOCS / "plan.md").read_text().partition("## Decisions")[2], re.M)
    verdicts: dict[str, set[str]] = {}
    for rules, said in rows:
        for rule in re.findall(r"`([a-z0-9-]+)`", rules):
            verdicts.setdefault(rule, set()).update(said.split(", "))
    return verdicts


def assert_rules_are_documented(plan: Plan) -> None:
    known = table_of_rules()
    pairs = dict.fromkeys((one.rule, one.verdict) for one in plan.decisions)
    lacking = [f"the rule `{rule}`, {verdict}" for rule, verdict in pairs if verdict not in known.get(rule, ())]
    assert_none(lacking, 'docs/plan.md, "Decisions": the table of rules lacks {}')


def assert_none(found: Iterable[str], tell: str = "{}") -> None:
    """Assert that nothing was *found*; the failure tells for each what to edit: `{}` in *tell* stands for it."""
    told = [tell.replace("{}", one) for one in found]
    if told:
        fail(*cut(told))


def fail(*lines: str) -> NoReturn:
    """Fail with *lines* only: what the test computes is of no use to the reader."""
    pytest.fail("\n".join(lines), pytrace=False)


def cut(lines: list[str]) -> list[str]:
    """Return *lines*, or the first 30 of them and how many more there are."""
    return lines if len(lines) <= LINES else [*lines[:LINES], f"... and {len(lines) - LINES} lines more"]


def differences(there: Any, made: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield where two values of JSON differ: the path, what is there and what is made; NOTHING for a missing one.

    An element of a list goes by its name, so that one more element does not change the paths of the others; elements
    without a name go by their places.
    """
    if isinstance(there, dict) and isinstance(made, dict):
        one, other, joined = there, made, "{}.{}" if path else "{}{}"
    elif isinstance(there, list) and isinstance(made, list) and all(map(_name_of, (*there, *made))):
        one, other, joined = _by_name(there), _by_name(made), "{}[{}]"
        if len(lost := [*one.keys() - other]) == len(new := [*other.keys() - one]) == 1:  # another name
            other[lost[0]] = other.pop(new[0])
    elif isinstance(there, list) and isinstance(made, list) and len(there) == len(made):
        one, other, joined = dict(enumerate(there)), dict(enumerate(made)), "{}[{}]"
    else:
        if there != made or type(there) is not type(made):
            yield path, there, made
        return
    for key in {**one, **other}:
        yield from differences(one.get(key, NOTHING), other.get(key, NOTHING), joined.format(path, key))
    if isinstance(there, list) and [*one] != [*other] and sorted(map(spelled, there)) == sorted(map(spelled, made)):
        yield f"{path}, their order", [*one], [*other]


def spelled(value: Any) -> str:
    return "nothing" if value is NOTHING else json.dumps(value, ensure_ascii=False)


def _of_json(there: str, made: str) -> Iterator[str]:
    try:
        found = differences(json.loads(there), json.loads(made))
    except ValueError:
        return
    yield from (f"{path}: {spelled(one)[:WIDTH]} != {spelled(other)[:WIDTH]}" for path, one, other in found)


def _of_lines(there: list[str], made: list[str]) -> Iterator[str]:
    """Yield a unified diff; of a long line, only what differs from the one that it replaces."""
    lines = [*difflib.unified_diff(there, made, n=1, lineterm="")][2:]
    for line, *others in zip(lines, [*lines[1:], ""], ["", *lines]):
        if len(line) > WIDTH:
            other = next((other for other in others if {line[0], other[:1]} == {"-", "+"}), "")
            same = next((at for at, (one, two) in enumerate(zip(line[1:], other[1:])) if one != two), 0)
            line = f"{line[0]}...{line[max(1, same - WIDTH // 4) :][:WIDTH]}..."
        yield line


def _folded(value: Any, key: str = "", indent: str = "", end: str = "") -> Iterator[str]:
    line = f"{indent}{key}{json.dumps(value, ensure_ascii=False)}{end}"
    if len(line) <= FOLDED or not isinstance(value, (dict, list)) or not value:
        yield line
        return
    if isinstance(value, dict):
        parts, (begin, stop) = [(f"{json.dumps(name)}: ", part) for name, part in value.items()], "{}"
    else:
        parts, (begin, stop) = [("", part) for part in value], "[]"
    yield f"{indent}{key}{begin}"
    for number, (name, part) in enumerate(parts, 1):
        yield from _folded(part, name, f"{indent} ", "," if number < len(parts) else "")
    yield f"{indent}{stop}{end}"


def _name_of(value: Any) -> str:
    """Return what an element of a list is called; empty where it has no name."""
    keys = next((keys for keys in NAMES if isinstance(value, dict) and value.keys() >= {*keys}), ())
    return ", ".join(dict.fromkeys(str(value[key]) for key in keys if value[key] is not None))


def _by_name(values: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the elements of a list by name; `NAME #2` for the second one of a name."""
    named: dict[str, dict[str, Any]] = {}
    for value in values:
        name = _name_of(value)
        names = (name, *(f"{name} #{number}" for number in range(2, len(values) + 1)))
        named[next(one for one in names if one not in named)] = value
    return named


def _parts(path: Path, part: str) -> tuple[str, str, str]:
    """Return the text of a file before the part, the part, and the text after it."""
    text = path.read_text() if path.exists() else ""
    if not part:
        return "", text, ""
    begin, end = f"<!-- {part}: begin -->\n", f"<!-- {part}: end -->"
    for mark in (begin, end):
        if mark not in text:
            fail(f"{path.relative_to(ROOT)}: add the line `{mark.strip()}`")
    start, stop = text.index(begin) + len(begin), text.index(end)
    return text[:start], text[start:stop], text[stop:]
