"""library-unreadable: what a driver's file is, when it is no library that dlopen loads. No image is needed to tell."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.cases_host import healthy
from tests.rules.situations import Situation, found
from tests.support.driver import V
from tests.support.elf import EXECUTABLE, elf
from tests.support.trees import Dir, File, Spec

ML, PTX = (f"/usr/lib64/{stem}.so.{V}" for stem in ("libnvidia-ml", "libnvidia-ptxjitcompiler"))


def reported(spec: Spec, **facts: Any) -> dict[str, tuple[str, str]]:
    findings = found(Situation(healthy(spec), **facts))
    return {one.subject: (one.severity, one.why or "") for one in findings if one.code == "library-unreadable"}


def test_a_healthy_driver_has_none() -> None:
    assert reported({}) == {}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (elf("libnvidia-ml.so.1")[:-400], "truncated"),
        (elf(kind=EXECUTABLE), "a program"),
        (elf(pie=True, interpreter="/lib64/ld-linux-x86-64.so.2"), "a program"),
        (elf("libc.so.6"), "another library: its DT_SONAME is libc.so.6"),
    ],
    ids=["truncated", "executable", "pie", "another-library"],
)
def test_what_dlopen_would_refuse_is_an_error(data: bytes, why: str) -> None:
    answer = reported({ML: data})
    assert set(answer) == {"libnvidia-ml.so.1"}
    severity, told = answer["libnvidia-ml.so.1"]
    assert severity == "error"
    assert why in told


@pytest.mark.parametrize("data", [b"", b"not an ELF file at all", b"\x7fELF\2\1\1"], ids=["empty", "text", "header"])
def test_a_library_that_the_plan_lacks_since_its_file_is_none_is_an_error(data: bytes) -> None:
    answer = reported({PTX: data})
    assert list(answer) == ["libnvidia-ptxjitcompiler.so.1"]


def test_damage_beside_a_file_that_serves_is_not_reported() -> None:
    assert reported({f"/usr/lib/libnvidia-ptxjitcompiler.so.{V}": b""}) == {}


CLOSED: list[Spec] = [
    {ML: File(elf("libnvidia-ml.so.1"), 0o400)},
    {ML: File(elf("libnvidia-ml.so.1"), 0o640)},  # root's group
    {"/usr/lib64": Dir(0o700)},
]


@pytest.mark.parametrize("spec", CLOSED, ids=["root", "roots-group", "directory"])
def test_what_root_alone_may_read_is_an_error_for_root(spec: Spec) -> None:
    told = reported(spec, facts={"euid": 0})
    (path, item), *_ = spec.items()
    verb, mode = ("enter", "0700") if isinstance(item, Dir) else ("read", f"{item.mode:04o}")  # type: ignore[union-attr]
    assert told["libnvidia-ml.so.1"] == ("error", f"only root may {verb} {path} (mode {mode})")
    assert len(told) == (1 if path == ML else len(reported({"/usr/lib64": Dir(0o700)}, facts={"euid": 0})))


def test_of_files_that_others_may_read_none_is_reported_to_root() -> None:
    assert reported({}, facts={"euid": 0}) == {}


@pytest.mark.parametrize("spec", CLOSED, ids=["root", "roots-group", "directory"])
def test_a_runtime_that_root_starts_reads_everything(spec: Spec) -> None:
    assert reported(spec, facts={"euid": 0}, backend="apptainer") == {}
