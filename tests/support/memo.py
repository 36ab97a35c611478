"""A host, an image, an environment and a memo, in one directory; commands that run here with the memo and without."""

from __future__ import annotations

import errno
import io
import os
import posix
import pwd
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Optional

import pytest

import gpubind.__main__
import gpubind.cli.main
import gpubind.cli.output
from gpubind.host import programs
from gpubind.launch.execute import VersionProbe
from gpubind.machine.listener import report_program
from gpubind.memo import answer, files, filesystems, questions, storing
from tests.support.driver import V, kernel, rhel
from tests.support.images import glibc, sandbox
from tests.support.privileges import unmount
from tests.support.squashfs import SifObject, sif, squashfs
from tests.support.trees import File, Item, Node, Spec, make_tree

PROGRAMS = {
    "apptainer": b"\x7fELF apptainer version 1.4.5\n",
    "bwrap": b"\x7fELF bubblewrap 0.11.0\n",
    "ch-run": b"\x7fELF 0.38\n",
}
IS_ROOT = os.geteuid() == 0
IMAGE: Spec = {**glibc(), **sandbox(), "/usr/bin/true": File(b"#!/bin/sh\n", 0o755)}
COMMAND = ("true", "x")
"""What runs in the container, at first."""


def _sifs() -> list[bytes]:
    """SIF files of one size, with other contents."""
    specs: tuple[Spec, ...] = ({**IMAGE, **sandbox("A=1")}, {**IMAGE, **sandbox("A=2")}, {**IMAGE, **glibc("2.16")})
    made = [sif(SifObject(squashfs(spec, pack=bytes))) for spec in specs]
    return [one + bytes(max(map(len, made)) - len(one)) for one in made]


SIFS = _sifs()


class Outcome(NamedTuple):
    """All that a user sees of a command."""

    status: int
    stdout: bytes
    stderr: bytes
    became: Optional[tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]]


EXPECTED = f'driver = "{V}"\ncapabilities = ["compute"]\n[gpus]\n"NVIDIA A100" = 2\n'


class Became(BaseException):
    """The process is another program now."""


class Bench:
    """Everything that a command looks at, below *base*."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.host, self.image, self.home = base / "host", base / "image", base / "home"
        self.work, self.memos, self.sif = base / "work", base / "memos", base / "bin/image.sif"
        self.expected = self.home / "node.toml"
        self.command: tuple[str, ...] = COMMAND
        """What the container is to run."""
        self.environ: dict[str, str] = {}
        self.user_home = "/home/one"
        self.width = 100
        """Of the terminal."""
        self.has_terminal = False
        self.refused: set[str] = set()
        """Paths that a rule beside the mode forbids."""
        self.own_environ = base / "environ"
        """What the kernel says of the environment: whether LC_CTYPE is the caller's."""
        self.changes: list[str] = []
        """The kinds of question of which a memo was found out."""
        self.served = 0
        self.mounted: list[str] = []
        """Directories that are mounted on themselves, the last one on top."""
        spec: dict[str, Item] = {**rhel(V), **kernel(V), "/etc/cdi/README": "", "/usr/share/egl/x": ""}
        make_tree(self.host, {path: item for path, item in spec.items() if not isinstance(item, Node)})
        self.nodes = {path: item for path, item in spec.items() if isinstance(item, Node)} if IS_ROOT else {}
        make_tree(self.image, IMAGE)
        for directory in ("home/.config/gpubind", "work", "memos", "early", "bin", "standard"):
            os.makedirs(base / directory)
        self.memos.chmod(0o700)
        for name, data in PROGRAMS.items():
            (base / "bin" / name).write_bytes(data)
            (base / "bin" / name).chmod(0o755)
        self.sif.write_bytes(SIFS[0])
        self.expected.write_text(EXPECTED)
        self.start()
        for place in ("host", "image", "bin", "home"):
            shutil.copytree(base / place, base / "pristine" / place, symlinks=True)
        self.restore()

    def node(self, path: str, item: Node) -> None:
        real = f"{self.host}{path}"
        os.makedirs(os.path.dirname(real), exist_ok=True)
        os.mknod(real, 0o020000, os.makedev(item.major, item.minor))
        os.chmod(real, item.mode)

    def start(self) -> None:
        """The environment as it was at first."""
        self.environ = {
            "PATH": f"{self.base}/early:{self.base}/bin",
            "HOME": str(self.home),
            "PWD": str(self.work),
            "LC_ALL": "C.UTF-8",
            "SLURM_ARRAY_TASK_ID": "1",
        }
        self.user_home, self.width, self.command = "/home/one", 100, COMMAND
        self.own_environ.write_bytes(b"A=1\0")

    def settle(self) -> None:
        """Let the files become old enough to be believed."""
        time.sleep(filesystems.YOUNG_NS / 1e9)

    def restore(self) -> None:
        """Undo changes: everything as it was at first, and old enough to be believed."""
        self.unmount()
        for place in ("host", "image", "bin", "home", "early", "standard"):
            shutil.rmtree(self.base / place)
        os.mkdir(self.base / "early")
        os.mkdir(self.base / "standard")
        for place in ("host", "image", "bin", "home"):
            shutil.copytree(self.base / "pristine" / place, self.base / place, symlinks=True)
        for path, item in self.nodes.items():
            self.node(path, item)
        self.start()
        self.settle()

    def unmount(self) -> None:
        while self.mounted:
            unmount(self.mounted.pop())

    @property
    def root(self) -> tuple[str, ...]:
        return ("--root", str(self.host), "--dev-root", str(self.host))

    def commands(self) -> dict[str, tuple[str, ...]]:
        image, root, run = str(self.image), self.root, self.command
        return {
            "plan": ("plan", *root, "--json"),
            "columns": ("plan", "--nv", *root, "--format", "tsv"),
            "cdi": ("plan", "--nv", "--source", "cdi", *root),
            "words": ("plan", *root, "--format", "apptainer", "--image", image),
            "check": ("check", *root, "--image", image),
            "program": ("check", *root, "--image", image, "--program", "true", "--json"),
            "expect": ("check", *root, "--gpus", "all", "--expect", str(self.expected), "--format", "slurm"),
            "sif": ("check", *root, "--image", str(self.sif), "--json"),
            "apptainer": ("exec", *root, "--backend", "apptainer", image, *run),
            "auto": ("exec", "-v", *root, str(self.sif), *run),
            "bwrap": ("exec", "-q", *root, "--backend", "bwrap", image, *run),
            "table": ("plan", "--nv", *root, "--format", "table"),
            "user": ("exec", "-q", *root, "--backend", "ch-run", "--allow-writable", image, *run),
            "wrap": ("wrap", *root, "--", "apptainer", "exec", "--nv", image, *run),
        }

    @property
    def docker(self) -> tuple[str, ...]:
        """A start of an image in docker's store, where a test makes one."""
        return ("wrap", "-q", *self.root, "--", "docker", "run", "--gpus", "all", "test:1", *self.command)

    def without(self, words: tuple[str, ...]) -> Outcome:
        return self._outcome(lambda: gpubind.cli.main.main([*words]))

    def with_memo(self, words: tuple[str, ...]) -> Outcome:
        outcome = self._outcome(lambda: gpubind.__main__.main([*words]))
        lines = outcome.stderr.splitlines(keepends=True)
        return outcome._replace(stderr=b"".join(line for line in lines if not line.startswith(b"memo: ")))

    def _outcome(self, run: Callable[[], int]) -> Outcome:
        callers, here = dict(os.environ), os.getcwd()
        out, err, execve = sys.stdout, sys.stderr, os.execve
        stdout, stderr = io.BytesIO(), io.BytesIO()
        became: list[Any] = []

        def become(path: str, argv: Any, environ: Any) -> None:
            became.append((path, tuple(argv), tuple(sorted(dict(environ).items()))))
            raise Became

        status = -1
        try:
            os.environ.clear()
            os.environ.update(self.environ)
            os.chdir(self.work)
            sys.stdout = io.TextIOWrapper(stdout, encoding="utf-8", errors="surrogateescape")
            sys.stderr = io.TextIOWrapper(stderr, encoding="utf-8", errors="backslashreplace")
            os.execve = become  # type: ignore[assignment]
            with suppress(Became):
                status = run()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
                stream.detach()
        finally:
            sys.stdout, sys.stderr, os.execve = out, err, execve
            os.chdir(here)
            os.environ.clear()
            os.environ.update(callers)
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        return Outcome(status, stdout.getvalue(), stderr.getvalue(), became[0] if became else None)

    def trust(self, path: str, device: int) -> str:
        """Each kind of file system, in one tree."""
        if path.startswith((f"{self.host}/proc", f"{self.host}/sys", "/proc/", "/sys/")):
            return "none"
        return "opened" if path.startswith((str(self.home), f"{self.host}/usr/share")) else "times"


@contextmanager
def bench_in(base: Path) -> Iterator[Bench]:
    """A bench below *base*, in the place of this machine."""
    bench = Bench(base)
    first_change = questions.first_change

    def telling(questions: dict[str, Any]) -> Optional[str]:
        changed = first_change(questions)
        if changed is not None:
            bench.changes += [kind for kind in questions if first_change({kind: questions[kind]}) is not None]
        return changed

    give = answer._answer

    def answering(memo: Any, rest: Any) -> Any:
        bench.served += 1
        return give(memo, rest)

    def version(_: VersionProbe, program: str) -> str:
        report_program(program)
        return Path(program).read_bytes().decode("utf-8", "replace")

    def getpwuid(uid: int) -> Any:
        return pwd.struct_passwd(("one", "x", uid, uid, "", bench.user_home, "/bin/sh"))

    def terminal_size(descriptor: int = 1) -> os.terminal_size:
        if not bench.has_terminal:
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        return os.terminal_size((bench.width, 24))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(answer.SWITCH, "on")
        patch.setattr(files, "directories", lambda: iter([str(bench.memos)]))
        patch.setattr(files, "secret_directory", lambda: str(bench.base / "state"))
        patch.setattr(files, "_above", lambda path: [os.path.dirname(path)])  # the test may lie in root's /tmp
        patch.setattr(answer, "first_change", telling)
        patch.setattr(answer, "_answer", answering)
        patch.setattr(questions, "OWN_ENVIRON", str(bench.own_environ))
        patch.setattr(filesystems, "SKEW_NS", filesystems.YOUNG_NS)
        patch.setattr(filesystems.FileSystems, "trust", lambda _, path, device: bench.trust(path, device))
        patch.setattr(storing, "note_modules", lambda recorder, **_: None)
        patch.setattr(programs, "PROGRAM_DIRECTORIES", (str(base / "standard"),))
        patch.setattr(VersionProbe, "version", version)
        patch.setattr(pwd, "getpwuid", getpwuid)
        may = posix.access

        def access(path: str, mode: int, **how: Any) -> bool:
            return path not in bench.refused and may(path, mode, **how)

        os.supports_effective_ids.add(access)
        for module in (os, posix):
            patch.setattr(module, "get_terminal_size", terminal_size)
            patch.setattr(module, "access", access)
        patch.setattr(gpubind.cli.output, "is_terminal", lambda: bench.has_terminal)
        yield bench
