"""musl's loader searches other directories than glibc's, and compares no versions."""

from __future__ import annotations

import pytest

from tests.rules.cases_image import HOST
from tests.rules.situations import Situation, found
from tests.support.elf import elf
from tests.support.images import GCOMPAT, glibc, image
from tests.support.trees import File, Spec

LOADER = "/lib/ld-musl-x86_64.so.1"
SOLVE = "/opt/solve"
MUSL: Spec = {LOADER: File(elf(), 0o755), "/bin/sh": File(elf(kind=2), 0o755)}


def lacks(*parts: Spec, **facts: object) -> list[str]:
    """What the loader does not find for a program with *facts*."""
    program = File(elf(kind=2, interpreter=LOADER, **facts), 0o755)  # type: ignore[arg-type]
    findings = found(Situation(HOST, image(MUSL, *parts, {SOLVE: program}), program=SOLVE))
    return [one.subject for one in findings if one.code.startswith("program-library")]


@pytest.mark.parametrize("name", ["libc.so", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"])
def test_the_libraries_that_the_loader_is_itself_need_no_file(name: str) -> None:
    assert lacks(needed=(name,)) == []


@pytest.mark.parametrize("directory", ["/lib", "/usr/lib", "/usr/local/lib"])
def test_a_library_is_found_in_the_usual_directories(directory: str) -> None:
    assert lacks({f"{directory}/libz.so": elf("libz.so")}, needed=("libz.so",)) == []


@pytest.mark.parametrize("directory", ["/lib64", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/opt/lib"])
def test_a_library_is_not_found_where_glibc_would_look(directory: str) -> None:
    conf = {"/etc/ld.so.conf": "/opt/lib\n"}
    assert lacks({f"{directory}/libz.so": elf("libz.so")}, conf, needed=("libz.so",)) == ["libz.so"]


def test_its_file_in_etc_takes_the_place_of_the_usual_directories() -> None:
    parts: Spec = {"/etc/ld-musl-x86_64.path": "/opt/a:/opt/b\n/opt/c\n", "/opt/c/libz.so": elf("libz.so")}
    assert lacks(parts, {"/lib/libm1.so": elf("libm1.so")}, needed=("libz.so", "libm1.so")) == ["libm1.so"]


@pytest.mark.parametrize("tag", ["rpath", "runpath"])
def test_a_search_path_of_a_program_counts_for_all_that_it_loads(tag: str) -> None:
    parts: Spec = {"/opt/lib/liba.so": elf("liba.so", needed=("libb.so",)), "/opt/lib/libb.so": elf("libb.so")}
    assert lacks(parts, needed=("liba.so",), **{tag: "$ORIGIN/lib"}) == []


def test_no_version_is_compared() -> None:
    part: Spec = {"/lib/libz.so": elf("libz.so", defines=("libz.so", "Z_1"))}
    assert lacks(part, needed=("libz.so",), needs={"libz.so": ("Z_2",)}) == []


def test_a_library_of_an_image_is_loaded_by_the_loader_in_it() -> None:
    path = "/usr/local/lib/libmine.so"
    opened = image(MUSL, {path: elf("libmine.so", needed=("libc.so",))})
    findings = found(Situation(HOST, opened, program=path, may_be_library=True))
    assert [one.subject for one in findings if one.code.startswith("program-library")] == []


@pytest.mark.parametrize("part", [GCOMPAT, {}], ids=["with gcompat", "without"])
def test_programs_and_libraries_of_glibc_are_loaded_by_musl_where_gcompat_is(part: Spec) -> None:
    needed = ("libc.so.6", "libm.so.6", "libz.so")
    program = File(elf(kind=2, interpreter="/lib64/ld-linux-x86-64.so.2", needed=needed), 0o755)
    opened = image(MUSL, part, {"/lib/libz.so": elf("libz.so", needed=("libc.so.6",)), SOLVE: program})
    findings = found(Situation(HOST, opened, program=SOLVE))
    assert bool([one for one in findings if one.code.startswith("program-")]) is not bool(part)
    assert not [one for one in findings if one.code == "library-missing" and one.subject.startswith("libc.so")]


def test_glibcs_programs_in_an_image_with_both_are_loaded_by_glibc() -> None:
    program = File(elf(kind=2, interpreter="/lib64/ld-linux-x86-64.so.2", needed=("libz.so",)), 0o755)
    spec: Spec = {"/usr/lib/ld-musl-x86_64.so.1": elf(), "/usr/local/lib/libz.so": elf("libz.so"), SOLVE: program}
    findings = found(Situation(HOST, image(glibc(), spec), program=SOLVE))
    assert [one.subject for one in findings if one.code == "program-library-missing"] == ["libz.so"]
