"""`python -m tests.law.errors --cases 4000 --seed 7`: the law of injected errors, in several processes.

Whatever one system call answers, a command gives the right answer, or says that it could not look: by its exit code and
a message, or by a finding. A case is a command, the number of a call that looks at a file, and what becomes of that
call: one error, once, or a read that is cut short. The calls are those of the C library (`shim.c`, preloaded) on files
of the host, of the image and of users, and on gpubind's own data; what Python reads to import modules does not count.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import gpubind
from tests.law.__main__ import load_modules
from tests.support import amd
from tests.support.apart import apart
from tests.support.images import glibc
from tests.support.layers import archive, docker_archive, tar
from tests.support.memo import IMAGE, IS_ROOT, PROGRAMS, Bench, Outcome, bench_in
from tests.support.trees import Node, make_tree
from tests.support.trials import BrokenLawError, Engine, Kinds, Tally, main

SHIM = Path(__file__).parent / "shim.c"
ERRORS = ("EIO", "EMFILE", "ENFILE", "ENOMEM", "ESTALE", "ETIMEDOUT", "EINTR", "EAGAIN")
_ATTRIBUTE = re.compile(r"/(proc|sys)/")
CUT = {"short": -1, "end": -2}
"""A read that gives half of what there is, and one that gives nothing, as at the end."""
KINDS = ("open", "read", "list", "stat", "readlink", "mmap", "access")
SAID = (
    "warning: unreadable-file: ",
    '"not-looked-at"',
    "warning: not-looked-at: ",
    '"gpu-unreadable"',
    "warning: gpu-unreadable: ",
)
"""The findings, and the lines on standard error, that say that something could not be looked at."""
PRIVATE = re.compile(rb"[^\s:,]*/gpubind(-[0-9]+)?/(?=[0-9a-f]{64}-)")
"""The caller's private directories for generated files: where one cannot be used, the next is as right."""
WITH_MEMO = 10
"""Of so many cases, one is tried with a memo, too."""
STATUSES = (4, 5, 125)
"""The exit codes of what could not be read, what is malformed, and a container that was not started."""


class Case(NamedTuple):
    """One call of one command, and what becomes of it."""

    name: str
    call: int
    what: str


class Shim:
    """The preloaded functions, as `shim.c` has them."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.law_disarm.restype = ctypes.c_char_p

    def arm(self, call: int, what: int) -> None:
        self._library.law_arm(call, what)

    def disarm(self) -> list[str]:
        """The calls since it was armed: their kinds and paths."""
        text: bytes = self._library.law_disarm()
        return text.decode("utf-8", "surrogateescape").splitlines()

    def count_all_but_modules(self) -> None:
        """Count calls on every file but those that Python imports."""
        here = Path(gpubind.__file__).parent
        outside = {sys.prefix, sys.base_prefix, str(here.parent), *filter(os.path.isabs, sys.path)}
        outside |= {os.path.dirname(os.__file__), "/proc/self/fd", "/usr/lib/ssl", "/dev/urandom"}
        inside = {f"{here}/data/hosts", f"{here}/data/findings.json", f"{here}/data/names.json", f"{here.parent}/etc"}
        lines = ("".join(f"{path}\n" for path in sorted(paths)).encode() for paths in (outside, inside))
        self._library.law_paths(*lines)


def with_shim(words: list[str], place: str) -> list[str]:
    """*words* as a command with the shim preloaded, which is built in the directory *place*."""
    library = f"{place}/shim.so"
    if not os.path.exists(library):
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, str(SHIM), "-ldl"], check=True)
    return ["env", f"LD_PRELOAD={library}", *words]


class Errors:
    """The law, tried on *bench*."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.shim = Shim()
        self.amd = bench.base / "amd"
        spec = amd.merged(amd.system(), amd.rocm("/opt/rocm-6.2.4", "6.2.4"), amd.amdgpu_libraries(), amd.kernel(2))
        make_tree(self.amd, {path: item for path, item in spec.items() if not isinstance(item, Node)})
        for path, item in spec.items() if IS_ROOT else ():
            if isinstance(item, Node):
                os.makedirs(os.path.dirname(f"{self.amd}{path}"), exist_ok=True)
                os.mknod(f"{self.amd}{path}", 0o020000 | item.mode, os.makedev(item.major, item.minor))
        self.policy = bench.base / "policy.toml"
        self.policy.write_text('driver = "525"\nglibc = "2.28"\ngpus = ["sm_80"]\ncapabilities = ["compute"]\n')
        self.archive = bench.base / "image.tar"
        self.archive.write_bytes(archive(docker_archive([tar({**IMAGE, **glibc("2.16")})])))
        (bench.home / ".config/gpubind/config.toml").write_text(
            'ignore = { "no-mount-point" = "known" }\nseverity = { "manifest-missing" = "warning" }\n'
            "require = { gpus = 2 }\n"
        )
        self.right: dict[str, tuple[Outcome, list[str]]] = {}

    def commands(self) -> dict[str, tuple[str, ...]]:
        bench, image, root = self.bench, str(self.bench.image), self.bench.root
        rocm = ("--root", str(self.amd), "--dev-root", str(self.amd))
        run = ("--dry-run", *root)
        return {
            "plan": ("plan", *root, "--json"),
            "plan-image": ("plan", *root, "--image", image, "--format", "apptainer"),
            "check": ("check", *root, "--image", image, "--json"),
            "check-program": ("check", *root, "--image", image, "--program", "true", "--json"),
            "check-sif": ("check", *root, "--image", str(bench.sif), "--json"),
            "check-archive": ("check", *root, "--image", str(self.archive), "--json"),
            "needs": ("needs", image, "--json"),
            "needs-archive": ("needs", str(self.archive), "--program", "true", "--json"),
            "require": ("check", "--image", image, "--require", str(self.policy), "--json"),
            "expect": ("check", *root, "--expect", str(bench.expected), "--json"),
            "check-backend": ("check", *root, "--image", image, "--backend", "bwrap", "--json"),
            "apptainer": ("exec", *run, "--backend", "apptainer", image, "true"),
            "auto": ("exec", *run, str(bench.sif), "true"),
            "bwrap": ("exec", *run, "--backend", "bwrap", image, "true"),
            "ch-run": ("exec", *run, "--backend", "ch-run", "--allow-writable", image, "true"),
            "wrap": ("wrap", *run, "--", "apptainer", "exec", "--nv", image, "true"),
            "record": ("record", *root, "-o", "-"),
            "amd": ("plan", "--rocm", *rocm, "--json"),
            "amd-check": ("check", "--rocm", *rocm, "--image", image, "--json"),
            "amd-record": ("record", *rocm, "-o", "-"),
            "recorded": ("plan", "--host", "debian13-nvidia550", "--json"),
        }

    def run(self, name: str, call: int = 0, what: int = 0, memo: bool = False) -> tuple[Outcome, list[str]]:
        """What the command called *name* gives where *call* fails, and the calls that it has made."""
        words = self.commands()[name]

        def work() -> tuple[Outcome, list[str]]:
            self.shim.arm(call, what)
            outcome = self.bench.with_memo(words) if memo else self.bench.without(words)
            return outcome, self.shim.disarm()

        return apart(work)

    def load_modules(self) -> None:
        """Load what commands load, and learn their right answers."""
        load_modules(self.bench, self.commands().values())
        self.right = {name: self.run(name) for name in self.commands()}

    def calls(self) -> dict[str, dict[str, list[int]]]:
        """Return the calls of each kind and command: each kind has its share of the cases, and each command in it."""
        fakes = tuple(f"{self.bench.base}/bin/{name}" for name in PROGRAMS)  # read by the bench, to answer for them
        found: dict[str, dict[str, list[int]]] = {}
        for name, (_, lines) in self.right.items():
            for at, line in enumerate(lines, 1):
                kind = line.partition(" ")[0]
                if kind in KINDS and not (kind in ("open", "read") and line.endswith(fakes)):
                    found.setdefault(kind, {}).setdefault(name, []).append(at)
        return found

    def drawn(self, rng: random.Random, kind: str, calls: dict[str, list[int]]) -> Case:
        """Return a case of *calls*."""
        name = rng.choice(list(calls))
        call = rng.choice(calls[name])
        whats = (*ERRORS, *CUT) if kind == "read" else ERRORS
        if _ATTRIBUTE.search(self.right[name][1][call - 1]):
            whats = ERRORS  # the kernel's attributes have no true size: what a read gives is what there is
        return Case(name, call, rng.choice(whats))

    def try_memo(self, case: Case) -> str:
        """What is wrong with the answer after that to *case*, where both may have a memo; empty if nothing."""
        shutil.rmtree(self.bench.memos)
        self.bench.memos.mkdir(0o700)
        try:
            self.run(case.name, case.call, CUT.get(case.what) or getattr(errno, case.what), memo=True)
        except EOFError:
            return f"it ended with an exception\n{case}"
        outcome, right = self.run(case.name, memo=True)[0], self.right[case.name][0]
        return "" if outcome == right else f"the next start with a memo\n{case}\n{told(outcome, right)}"

    def try_one(self, case: Case) -> tuple[str, str]:
        """What came of *case*: `right`, `said`, or `silent`, and the story of it."""
        number = CUT.get(case.what) or getattr(errno, case.what)
        outcome, calls = self.run(case.name, case.call, number)
        right = self.right[case.name][0]
        hit = calls[case.call - 1] if case.call <= len(calls) else "none"
        if wherever(outcome) == wherever(right):
            return "right", hit
        if says(outcome, right):
            return "said", hit
        return "silent", f"{hit}\n{case}\n{told(outcome, right)}"


def wherever(outcome: Outcome) -> Outcome:
    """*outcome* with generated files in any of the caller's private directories."""
    became = outcome.became
    if became is not None:
        program, argv, environ = became
        became = program, tuple(os.fsdecode(PRIVATE.sub(b"", os.fsencode(word))) for word in argv), environ
    return outcome._replace(stdout=PRIVATE.sub(b"", outcome.stdout), became=became)


def says(outcome: Outcome, right: Outcome) -> bool:
    """Whether *outcome*, not the *right* one, says that something could not be looked at."""
    text = outcome.stdout + outcome.stderr
    if outcome.status in STATUSES and outcome.status != right.status:
        return b"error: " in outcome.stderr and b"error: bug" not in outcome.stderr
    before = right.stdout + right.stderr
    return any(text.count(word.encode()) > before.count(word.encode()) for word in SAID)


def told(outcome: Outcome, right: Outcome) -> str:
    """The difference, for people."""
    import difflib

    def lines(one: Outcome) -> list[str]:
        text = one.stdout + one.stderr
        return [f"status {one.status}, became {one.became}", *text.decode("utf-8", "replace").splitlines()]

    return "\n".join([*difflib.unified_diff(lines(right), lines(outcome), lineterm="", n=0)][2:40])


@contextmanager
def law_in(place: Path) -> Iterator[Errors]:
    """The law on a bench in *place*."""
    with bench_in(place / "b") as bench:
        law = Errors(bench)
        law.shim.count_all_but_modules()
        law.load_modules()
        yield law


@contextmanager
def opened(tally: Tally, options: argparse.Namespace) -> Iterator[Kinds]:
    """Count answers that were right, those that said what was not looked at, and how many calls of each kind failed."""
    with tempfile.TemporaryDirectory() as place, law_in(Path(place)) as law:
        calls = law.calls()
        law.bench.settle()

        def case(kind: str, rng: random.Random) -> None:
            drawn, with_memo = law.drawn(rng, kind, calls[kind]), rng.randrange(WITH_MEMO) == 0
            came, story = law.try_one(drawn)
            if came == "silent":
                raise BrokenLawError(story)
            if with_memo and (wrong := law.try_memo(drawn)):
                raise BrokenLawError(wrong)
            tally.counts.update([came, kind, *(["kept"] if with_memo else [])])

        yield {kind: partial(case, kind) for kind in calls}


if __name__ == "__main__":
    sys.exit(main(Engine("tests.law.errors", __doc__, "cases", 3000, opened, wrapped=with_shim)))
