"""Only gpubind/machine/ and gpubind/memo/ call the operating system: as the modules are written, and as commands run.

The memo hears what goes through machine/system.py. Nobody hears a query of another module: the memo would give an
answer that is no longer true.
"""

from __future__ import annotations

import ast
import builtins
import io
import os
import posix
import pwd
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import BuiltinFunctionType, FrameType
from typing import Any, Optional

import pytest

import gpubind
from gpubind.machine import system
from tests.support.golden import assert_listed, assert_none
from tests.support.layers import archive as in_one_file
from tests.support.layers import docker_archive, packed, tar
from tests.support.memo import Bench

PACKAGE = os.path.dirname(gpubind.__file__)
TESTS = os.path.dirname(os.path.dirname(__file__))
ROOMS = ("machine/", "memo/")
PURE = {"fspath", "strerror", "major", "minor", "makedev", "_exit", "get_inheritable", "set_inheritable"}
"""Functions of `os` that ask nothing of the machine."""


def caller_of(frame: Optional[FrameType]) -> Optional[str]:
    """The nearest module of gpubind above *frame*; None if a test is nearer, or the loading of a module."""
    while frame is not None and not frame.f_code.co_filename.startswith(("<frozen importlib", TESTS)):
        if frame.f_code.co_filename.startswith(PACKAGE):
            return os.path.relpath(frame.f_code.co_filename, PACKAGE)
        frame = frame.f_back
    return None


@contextmanager
def hearing(calls: set[tuple[str, str]]) -> Iterator[None]:
    """Add to *calls* each module of gpubind that calls the operating system meanwhile, and the function."""

    def hear(name: str, real: Any) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            caller = caller_of(sys._getframe(1))
            if caller is not None and not caller.startswith(ROOMS):
                calls.add((caller, name))
            return real(*arguments, **named)

        return call

    functions = {name for name, one in vars(posix).items() if isinstance(one, BuiltinFunctionType)} - PURE
    with pytest.MonkeyPatch.context() as patch:
        for name in ("supports_dir_fd", "supports_effective_ids", "supports_fd", "supports_follow_symlinks"):
            patch.setattr(os, name, set(getattr(os, name)))
        for name in sorted(name for name in functions if hasattr(os, name)):
            real = getattr(os, name)
            call = hear(name, real)
            patch.setattr(os, name, call)
            for supported in (
                os.supports_dir_fd,
                os.supports_effective_ids,
                os.supports_fd,
                os.supports_follow_symlinks,
            ):
                supported |= {call} if real in supported else set()
        for name in ("getpwuid", "getpwnam"):
            patch.setattr(pwd, name, hear(name, getattr(pwd, name)))
        for module in (builtins, io):
            patch.setattr(module, "open", hear("open", open))
        for name in ("__getitem__", "__iter__", "__len__", "__setitem__", "__delitem__"):
            patch.setattr(os._Environ, name, hear("environ", getattr(os._Environ, name)))
        patch.setattr(system, "environ", lambda: dict(os.environ))  # whoever reads it was given it
        yield


def commands(bench: Bench) -> list[tuple[str, ...]]:
    """A command for each way in which gpubind looks at a machine."""
    root, image, archive = bench.root, str(bench.image), bench.base / "image.tar"
    archive.write_bytes(in_one_file(docker_archive([packed(tar({"/etc/os-release": "ID=x\n"}))])))
    record = bench.base / "host.json"
    return [
        *bench.commands().values(),
        ("plan", "--format", "enroot", *root),
        ("plan", "--format", "cdi", "-o", str(bench.base / "nvidia.json"), *root),
        ("plan", "--like", "apptainer", *root),
        ("check", *root, "--image", str(archive)),
        ("check", *root, "--image", image, "--format", "html"),
        ("exec", "--dry-run", "--backend", "apptainer", *root, image, "true"),
        ("exec", "--dry-run", "--backend", "bwrap", *root, "--", "--setenv", "A", "1", image, "true"),
        ("needs", image),
        ("needs", str(bench.sif), "--json"),
        ("explain", "libcuda.so.1", *root),
        ("explain", "CUDA_ERROR_NO_DEVICE"),
        ("gpus", *root),
        ("cdi", "list", *root),
        ("explain", "libcuda.so.1", "--tree", *root, "--image", image),
        ("record", *root, "-o", str(record)),
        ("plan", "--host", str(record)),
        ("diff", str(record), str(bench.host)),
        ("install-shims", str(bench.base / "shims")),
        ("setup", "docker", "--undo", "--root", str(bench.image)),
    ]


def test_only_the_machine_and_the_memo_call_the_operating_system(bench: Bench) -> None:
    calls: set[tuple[str, str]] = set()
    for words in commands(bench):
        with hearing(calls):
            outcome = bench.without(words)
        assert outcome.status in (0, 1) or outcome.became, (words, outcome)
    assert_none(
        (f"{module} calls {name}" for module, name in sorted(calls)),
        "gpubind/{}: nobody hears it, so call the function of gpubind/machine/system.py in its place",
    )


OF_OS = {
    *("path", "PathLike", "fspath", "strerror", "defpath", "devnull", "major", "minor", "makedev"),
    *("stat_result", "DirEntry", "_exit"),
}
"""What other modules use of `os`, besides its constants: nothing of it queries the machine."""
OF_PATH = {"basename", "dirname", "isabs", "join", "normpath", "relpath", "split"}
OF_MACHINES = {
    *("posix", "pwd", "grp", "spwd", "fcntl", "glob", "pathlib", "shutil", "socket", "tempfile", "fileinput"),
    *("ctypes", "getpass", "linecache", "locale", "mmap", "platform", "resource", "select", "sqlite3", "termios"),
    *("asyncio", "datetime", "http", "logging", "multiprocessing", "random", "secrets", "selectors", "signal", "time"),
    *("subprocess", "tarfile", "threading", "urllib", "uuid", "zipfile"),
}
"""Modules that query the machine, or change it."""
MODULES = {
    "__main__.py": {"os.path.abspath"},  # of its own file
    "api/start.py": {"logging"},  # for a program that calls the library
    "cli/output.py": {"time"},  # a page with the time of the clock is never kept
    "cli/progress.py": {"time"},  # what a terminal shows for a moment is no part of the answer
    "fleet/ask.py": {"signal", "from zipfile"},  # what other machines answer is never kept
    "fleet/clustershell.py": {"from logging"},
    "fleet/slurm.py": {"time"},
    "host/programs.py": {"time"},  # how long a program takes
    "launch/execute.py": {
        "os.path.abspath",
        "subprocess",
    },  # of the package; `run_in_foreground` says that it runs a program
}


def uses(tree: ast.AST) -> Iterator[str]:
    """What *tree* uses that queries the machine, or may."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            if node.attr not in OF_OS and not node.attr.isupper():
                yield f"os.{node.attr}"
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os.path" and node.attr not in OF_PATH:
            yield f"os.path.{node.attr}"
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in OF_MACHINES or (one.asname and one.name == "os"))
        elif isinstance(node, ast.ImportFrom) and node.module in {"os", "os.path", "io"} | OF_MACHINES:
            yield f"from {node.module}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("open", "io.open", "io.open_code"):
            yield "open"
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("getattr", "vars")
            and ast.unparse(node.args[0]) == "os"
        ):
            yield "getattr(os)"


def test_no_other_module_names_a_function_of_the_operating_system() -> None:
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(Path(PACKAGE).rglob("*.py"))}
    others = {module: path for module, path in paths.items() if not module.startswith(ROOMS)}
    assert_listed(
        [f"{module} uses {one}" for module, path in others.items() for one in uses(ast.parse(path.read_text()))],
        [f"{module} uses {one}" for module, known in MODULES.items() for one in sorted(known)],
        add="MODULES of tests/machine/test_only_machine_asks.py: remove what is no more so: {}",
        remove="gpubind/{}: call the function of gpubind/machine/system.py, which the memo hears",
    )


def test_what_nobody_hears_is_asked_before_the_memo_or_by_it_alone() -> None:
    """`machine/mounts.py` reports nothing; `machine/trust.py` reports its answers itself."""
    paths = (path for path in sorted(Path(PACKAGE).rglob("*.py")) if "machine.mounts" in path.read_text())
    modules = [path.relative_to(PACKAGE).as_posix() for path in paths]
    others = [one for one in modules if not one.startswith("memo/")]
    assert others == ["launch/oci/passing.py", "launch/wrap/passing.py", "machine/trust.py"]


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.getloadavg()",
        "from os import stat",
        "import os as system\nsystem.statvfs('/')",
        "import os\nos.path.exists('/')",
        "import os\ngetattr(os, 'stat')('/')",
        "def f():\n    import socket\n    socket.gethostname()",
        "from pathlib import Path",
        "open('/etc/passwd')",
    ],
)
def test_a_query_in_another_module_is_seen(text: str) -> None:
    assert [*uses(ast.parse(text))]
