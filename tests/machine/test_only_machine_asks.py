"""While commands run, only gpubind/machine/ and gpubind/memo/ call the operating system.

The memo hears what goes through machine/. Nobody hears a query of another module: the memo would give an answer that is
no longer true.
"""

from __future__ import annotations

import builtins
import io
import os
import posix
import pwd
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FrameType
from typing import Any, Optional

import pytest

import gpubind
from tests.support.golden import assert_listed
from tests.support.layers import archive as in_one_file
from tests.support.layers import docker_archive, packed, tar
from tests.support.memo import Bench

PACKAGE = os.path.dirname(gpubind.__file__)
ROOMS = ("machine/", "memo/")
PURE = {"fspath", "strerror", "major", "minor", "makedev", "_exit", "get_inheritable", "set_inheritable"}
"""Functions of `os` that ask nothing of the machine."""
EXCEPTIONS: dict[str, str] = {
    "cli/commands/check.py": "uname",
    "cli/commands/setup.py": "geteuid",
    "cli/main.py": "environ",
    "cli/output.py": "environ uname",
    "cli/reader.py": "environ",
    "cli/save.py": "close open readlink stat",
    "files/blob.py": "close fstat pread",
    "files/live.py": "close getxattr listdir open readlink stat sysconf",
    "host/base.py": "environ",
    "host/directories.py": "environ",
    "host/live.py": "getegid geteuid getgroups uname",
    "image/open.py": "stat uname",
    "launch/caller.py": "getcwd geteuid getpwuid getuid isatty open",
    "launch/execute.py": "environ",
    "launch/named.py": "stat",
    "launch/shims.py": "close lstat mkdir open stat",
    "launch/stage.py": "close fchmod fstat fsync geteuid link listdir lstat mkdir open rename stat unlink urandom "
    "write",
    "launch/start.py": "getpid isatty urandom",
    "launch/target.py": "geteuid",
    "launch/wrap/passing.py": "open",
}
"""The modules that still call the operating system themselves, each with the functions. This list only shrinks."""


def caller_of(frame: Optional[FrameType]) -> Optional[str]:
    """The nearest module of gpubind above *frame*; None if there is none, or if a module is being loaded."""
    while frame is not None and "importlib" not in frame.f_code.co_filename:
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
    assert_listed(
        [f"{module} {name}" for module, name in sorted(calls)],
        [f"{module} {name}" for module, names in EXCEPTIONS.items() for name in names.split()],
        add="EXCEPTIONS of tests/machine/test_only_machine_asks.py: remove `{}`, which is no call any more",
        remove="gpubind/{} is called: nobody hears it, so call the function of gpubind/machine/ in its place",
    )
