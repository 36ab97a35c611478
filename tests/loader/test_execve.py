"""What execve(2) runs in a container, and why it does not: scripts, interpreters, modes, machines."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind.loader.container import Container
from gpubind.loader.execve import (
    Caller,
    ExecStop,
    first_program,
    is_library,
    is_undecided,
    library_chain,
    nearest_program,
    resolve_program,
)
from gpubind.loader.namespace import UserMounts
from gpubind.model import ContainerPath
from tests.support.elf import AARCH64, I386, elf
from tests.support.images import glibc, image
from tests.support.trees import Dir, Fifo, File, Link, Spec, recorded_tree

PATH = "/usr/local/bin:/usr/bin"
USER = Caller("x86_64", 1000)
PROGRAM = File(elf(kind=2), 0o755)


def container(inside: Spec, working_directory: Optional[str] = None) -> Container:
    mounts = UserMounts(working_directory=ContainerPath(working_directory) if working_directory else None)
    return Container(image(glibc(), inside).loader, recorded_tree({}), (), (), "", mounts)


def script(text: str, mode: int = 0o755) -> File:
    return File(text.encode(), mode)


CHAINS: dict[str, tuple[Spec, str, tuple[str, ...], Optional[ExecStop]]] = {
    "a program": ({"/x": PROGRAM}, "/x", ("/x",), None),
    "a name": ({"/usr/bin/x": PROGRAM}, "x", ("x",), None),
    "the first that may be executed": (
        {"/usr/local/bin/x": File(elf(kind=2), 0o644), "/usr/bin/x": PROGRAM},
        "x",
        ("x",),
        None,
    ),
    "a directory of that name": ({"/usr/local/bin/x": Dir(), "/usr/bin/x": PROGRAM}, "x", ("x",), None),
    "nothing": ({}, "/x", ("/x",), ExecStop("missing", "/x: No such file or directory (127)")),
    "no such name": ({}, "x", ("x",), ExecStop("missing", "x: No such file or directory (127)")),
    "a directory": ({"/x": Dir()}, "/x", ("/x",), ExecStop("directory", "/x: Permission denied (126)")),
    "a pipe": ({"/x": Fifo()}, "/x", ("/x",), ExecStop("special", "/x: Permission denied (126)")),
    "a file without the bit": (
        {"/x": File(elf(kind=2), 0o644)},
        "/x",
        ("/x",),
        ExecStop("mode", "/x: Permission denied (126)"),
    ),
    "another machine": (
        {"/x": File(elf(kind=2, machine=AARCH64), 0o755)},
        "/x",
        ("/x",),
        ExecStop("architecture", "/x: Exec format error (126); it is for aarch64, this machine is x86_64"),
    ),
    "a program of 32 bits": ({"/x": File(elf(kind=2, bits=32, machine=I386), 0o755)}, "/x", ("/x",), None),
    "an empty file": ({"/x": script("")}, "/x", ("/x",), ExecStop("empty", "/x is empty: it ends at once, with 0")),
    "a script": ({"/x": script("#!/usr/bin/sh -e\n")}, "/x", ("/x", "/usr/bin/sh"), None),
    "a script with blanks": ({"/x": script("#! \t/usr/bin/sh \t -e \n")}, "/x", ("/x", "/usr/bin/sh"), None),
    "a text": ({"/x": script("echo\n")}, "/x", ("/x", "/bin/sh"), None),
    "a text with a NUL byte": (
        {"/x": script("echo\0")},
        "/x",
        ("/x",),
        ExecStop("format", "/x: Exec format error (126)"),
    ),
    "a script without an interpreter": ({"/x": script("#! \n")}, "/x", ("/x", "/bin/sh"), None),
    "an interpreter that is missing": (
        {"/x": script("#!/no/sh\n")},
        "/x",
        ("/x", "/no/sh"),
        ExecStop("missing", "/no/sh: bad interpreter: No such file or directory (127)"),
    ),
    "an interpreter that is a directory": (
        {"/x": script("#!/usr/share\n")},
        "/x",
        ("/x", "/usr/share"),
        ExecStop("directory", "/usr/share: bad interpreter: Permission denied (126)"),
    ),
    "an empty interpreter": ({"/x": script("#!/y\n"), "/y": script("")}, "/x", ("/x", "/y", "/bin/sh"), None),
    "env": (
        {"/x": script("#!/usr/bin/env y\n"), "/usr/bin/env": PROGRAM, "/usr/bin/y": PROGRAM},
        "/x",
        ("/x", "y"),
        None,
    ),
    "env -S": (
        {"/x": script("#!/usr/bin/env -S y -u\n"), "/usr/bin/env": PROGRAM, "/usr/bin/y": PROGRAM},
        "/x",
        ("/x", "y"),
        None,
    ),
    "busybox's env does not split": (
        {"/x": script("#!/usr/bin/env -S y\n"), "/usr/bin/env": Link("busybox"), "/usr/bin/busybox": PROGRAM},
        "/x",
        ("/x", "/usr/bin/env"),
        None,
    ),
    "busybox's env": (
        {
            "/x": script("#!/usr/bin/env y\n"),
            "/usr/bin/env": Link("busybox"),
            "/usr/bin/busybox": PROGRAM,
            "/usr/bin/y": PROGRAM,
        },
        "/x",
        ("/x", "y"),
        None,
    ),
    "an env that cannot run": (
        {"/x": script("#!/usr/bin/env y\n"), "/usr/bin/env": File(elf(kind=2), 0o644)},
        "/x",
        ("/x", "/usr/bin/env"),
        ExecStop("mode", "/usr/bin/env: Permission denied (126)"),
    ),
    "env of what is missing": (
        {"/x": script("#!/usr/bin/env y\n"), "/usr/bin/env": PROGRAM},
        "/x",
        ("/x", "y"),
        ExecStop("missing", "y: bad interpreter: No such file or directory (127)"),
    ),
    "a loader without the bit": (
        {"/x": File(elf(kind=2, interpreter="/ld.so"), 0o755), "/ld.so": File(elf(), 0o644)},
        "/x",
        ("/x", "/ld.so"),
        ExecStop("mode", "/x: Permission denied (126)"),
    ),
    "a loader": ({"/x": File(elf(kind=2, interpreter="/ld.so"), 0o755), "/ld.so": PROGRAM}, "/x", ("/x",), None),
    "a line of 255 bytes": ({"/x": script("#!/" + "y" * 252 + "\n")}, "/x", ("/x", "/" + "y" * 252), ExecStop(
        "missing", "/" + "y" * 252 + ": bad interpreter: No such file or directory (127)"
    )),
    "a line of 256 bytes": ({"/x": script("#!/" + "y" * 253 + "\n")}, "/x", ("/x", "/bin/sh"), None),
    "a line of 255 bytes without an end": ({"/x": script("#!/" + "y" * 252)}, "/x", ("/x", "/" + "y" * 252), ExecStop(
        "missing", "/" + "y" * 252 + ": bad interpreter: No such file or directory (127)"
    )),
    "five interpreters": (
        {f"/{number}": script(f"#!/{number + 1}\n") if number < 5 else PROGRAM for number in range(6)},
        "/0",
        ("/0", "/1", "/2", "/3", "/4", "/5"),
        None,
    ),
    "six interpreters": (
        {f"/{number}": script(f"#!/{number + 1}\n") if number < 6 else PROGRAM for number in range(7)},
        "/0",
        ("/0", "/1", "/2", "/3", "/4", "/5"),
        ExecStop("format", "/0: Too many levels of symbolic links (126)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_a_program_is_followed_to_what_runs(name: str) -> None:
    inside, program, names, stop = CHAINS[name]
    chain = resolve_program(container(inside), program, PATH, USER)
    assert (chain.names, chain.stop) == (names, stop)


@pytest.mark.parametrize(
    ("caller", "mode", "runs"),
    [
        (Caller(), 0o544, True),
        (Caller(), 0o644, False),
        (Caller(euid=0), 0o454, True),
        (Caller(euid=1000), 0o700, False),
        (Caller(euid=1000), 0o445, True),
        (Caller(euid=1000, groups=(0,)), 0o701, False),
        (Caller(euid=1000, groups=(0,)), 0o610, True),
        (Caller(euid=1000, modes_count=False), 0o700, True),
    ],
)
def test_the_mode_decides_for_each_caller(caller: Caller, mode: int, runs: bool) -> None:
    chain = resolve_program(container({"/x": File(elf(kind=2), mode)}), "/x", PATH, caller)
    assert (chain.stop is None) == runs


@pytest.mark.parametrize(
    ("machine", "image_arch", "arch", "runs"),
    [
        ("x86_64", None, "x86_64", True),
        ("x86_64", "aarch64", "i386", True),
        ("x86_64", "aarch64", "aarch64", False),
        (None, "aarch64", "aarch64", True),
        (None, "aarch64", "x86_64", False),
        (None, None, "x86_64", True),
    ],
)
def test_the_machine_decides_or_else_the_image(
    machine: Optional[str], image_arch: Optional[str], arch: str, runs: bool
) -> None:
    assert Caller(machine).runs(arch, image_arch) == runs


@pytest.mark.parametrize(
    ("path", "data", "library"),
    [
        ("/x/libx.so.1.2", elf(None), True),
        ("/x/libx.so", elf("libx.so", interpreter="/ld.so"), False),
        ("/x/plugin", elf("plugin.so"), True),
        ("/x/program", elf(None), False),
        ("/x/libx.so", b"\x7fELF", True),
        ("/x/program", b"\x7fELF", False),
        ("/x/libx.so.conf", elf(None), False),
    ],
)
def test_a_file_without_an_interpreter_is_a_library_by_its_name_or_soname(
    path: str, data: bytes, library: bool
) -> None:
    file = container({path: File(data, 0o755)}).locate(path)
    assert file is not None
    assert is_library(file) == library


def test_only_a_damaged_library_stops_its_chain() -> None:
    made = container({"/a.so": elf("a.so", needed=("none.so",)), "/b.so": elf("b.so")[:90]})
    for path, stop in (("/a.so", None), ("/b.so", "/b.so: ")):
        file = made.locate(path)
        assert file is not None
        chain = library_chain(made, "name", file)
        assert (chain.names, chain.file) == (("name",), file)
        assert (chain.stop is None) == (stop is None)
        if chain.stop is not None:
            assert (chain.stop.kind, chain.stop.why[:7]) == ("library", stop)


@pytest.mark.parametrize(
    ("inside", "name", "hint"),
    [
        ({"/usr/lib64/libx.so.1": elf("libx.so.1")}, "libx.so.1", "did you mean `/usr/lib64/libx.so.1`? "),
        ({"/usr/local/bin/tool": PROGRAM}, "/opt/tool", "did you mean `/usr/local/bin/tool`? "),
        ({"/app/bin/tool": PROGRAM}, "tool", "did you mean `/app/bin/tool`? "),
        ({"/app/tool": PROGRAM, "/opt/tool": PROGRAM}, "tool", "did you mean `/app/tool`? "),
        ({"/opt/tool/bin/tool": PROGRAM}, "tool", "did you mean `/opt/tool/bin/tool`? "),
        ({"/usr/local/cuda/tool": PROGRAM}, "tool", "did you mean `/usr/local/cuda/tool`? "),
        ({"/usr/bin/tools": PROGRAM}, "tool", "did you mean `tools`? "),
        ({"/a/tools": PROGRAM}, "/a/tool", "did you mean `tools`? "),
        ({"/srv/bin/tool": PROGRAM}, "tool", ""),
        ({"/a/tools": PROGRAM}, "a/tool", ""),
    ],
)
def test_a_missing_program_has_a_suggestion(inside: Spec, name: str, hint: str) -> None:
    assert nearest_program(container(inside), name, PATH) == hint


@pytest.mark.parametrize(
    ("name", "first"),
    [("sh -c x", "sh"), ("/usr/bin/sh -c", "/usr/bin/sh"), ("sh", None), ("none -c", None), ("", None), (" ", None)],
)
def test_several_words_that_begin_with_a_program_are_a_command_line(name: str, first: Optional[str]) -> None:
    assert first_program(container({}), name, PATH) == first


def test_a_relative_path_is_undecided_without_a_working_directory() -> None:
    assert [is_undecided(container({}), name, PATH) for name in ("./x", "x", "/x")] == [True, False, False]
    assert not is_undecided(container({"/w/x": PROGRAM}, "/w"), "./x", PATH)
    assert resolve_program(container({"/w/x": PROGRAM}, "/w"), "./x", PATH, USER).stop is None
    assert resolve_program(container({"/w/x": PROGRAM}, "/w"), "x", ":/usr/bin", USER).stop is None
