"""What execve would make of a program: scripts to their interpreters, modes, loaders."""

from __future__ import annotations

from typing import Optional

import pytest
from build.elf import elf
from build.images import glibc, image, sandbox
from build.trees import Dir, File, Item, Spec

from rules.cases_image import HOST
from rules.situations import Situation, found

SOLVE = "/opt/solve"


def said(program: str, spec: Spec) -> list[tuple[str, str]]:
    """(code, subject) of the findings about *program*."""
    findings = found(Situation(HOST, image(glibc(), spec), program=program))
    return [(finding.code, finding.subject) for finding in findings if finding.code.startswith("program")]


def script(line: str, mode: int = 0o755) -> Spec:
    tools: dict[str, Item] = {f"/usr/bin/{name}": File(elf(kind=2), 0o755) for name in ("bash", "env", "python3")}
    return {SOLVE: File(line.encode(), mode), **tools}


@pytest.mark.parametrize(
    ("line", "lacks"),
    [
        ("#!/bin/sh\n", None),
        ("#! /bin/sh -e\n", None),
        ("#!\t/bin/sh\n", None),
        ("echo no first line\n", None),
        ("", None),
        ("#!/usr/bin/env bash\n", None),
        ("#!/usr/bin/env -S bash -x\n", None),
        ("#!/usr/bin/env -S -u HOME -i A=1 B=2 bash\n", None),
        ("#!/usr/bin/env -vS python3 -u\n", None),
        ("#!/bin/sh\r\n", "/bin/sh\r"),
        ("#!/usr/bin/env bash -x\n", "bash -x"),
        ("#!/usr/bin/env perl\n", "perl"),
        ("#!/opt/conda/bin/python\n", "/opt/conda/bin/python"),
    ],
)
def test_a_script_is_followed_to_its_interpreter(line: str, lacks: Optional[str]) -> None:
    assert said(SOLVE, script(line)) == ([("program-missing", lacks)] if lacks else [])


def test_a_script_must_be_executable_and_so_must_its_interpreter() -> None:
    assert said(SOLVE, script("#!/bin/sh\n", 0o644)) == [("program-not-executable", SOLVE)]
    spec = {**script("#!/opt/run\n"), "/opt/run": File(b"#!/bin/sh\n", 0o644)}
    assert said(SOLVE, spec) == [("program-not-executable", "/opt/run")]


def test_a_script_that_runs_itself_ends() -> None:
    assert said(SOLVE, script(f"#!{SOLVE}\n")) == [("program-not-executable", SOLVE)]


@pytest.mark.parametrize("data", [b"\x7fELF\0\0", b"\0\1\2\3", b"MZ\0\0"])
def test_what_is_neither_program_nor_script_is_told(data: bytes) -> None:
    assert said(SOLVE, {SOLVE: File(data, 0o755)}) == [("program-not-executable", SOLVE)]


def test_a_directory_is_no_program() -> None:
    assert said(SOLVE, {SOLVE: Dir()}) == [("program-missing", SOLVE)]


@pytest.mark.parametrize("interpreter", ["lib64/ld-linux-x86-64.so.2", ""])
def test_a_loader_that_is_no_absolute_path_is_left_alone(interpreter: str) -> None:
    assert said(SOLVE, {SOLVE: File(elf(kind=2, interpreter=interpreter), 0o755)}) == []


def test_a_loader_that_is_no_program_is_told() -> None:
    spec = {SOLVE: File(elf(kind=2, interpreter="/etc/passwd"), 0o755)}
    assert said(SOLVE, spec) == [("program-interpreter", SOLVE)]


def test_a_program_for_another_machine_is_one_finding() -> None:
    spec = {SOLVE: File(elf(kind=2, machine=183, needed=("libc.so.6",)), 0o755)}
    assert said(SOLVE, spec) == [("program-not-executable", SOLVE)]


def test_a_program_in_a_directory_of_the_host_is_a_warning() -> None:
    findings = found(Situation(HOST, image(glibc()), program="/home/me/a.out"))
    assert [f.severity for f in findings if f.code == "program-missing"] == ["warning"]


def test_the_images_search_paths_count() -> None:
    env = "export PATH=/opt/bin:$PATH\nexport LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH"
    spec: Spec = {
        **sandbox(env),
        "/opt/bin/solve": File(elf(kind=2, needed=("libsolve.so.1",)), 0o755),
        "/opt/lib/libsolve.so.1": elf("libsolve.so.1"),
    }
    assert said("solve", spec) == []
    assert said("sh", spec) == []


def test_a_program_that_was_not_asked_for_is_to_be_asked_for() -> None:
    request = {"caps": ("compute",), "caps_explicit": True}
    findings = found(Situation(HOST, image(glibc()), request, program="nvidia-smi"))
    assert ["utility" in (f.hint or "") for f in findings if f.code == "program-missing"] == [True]
