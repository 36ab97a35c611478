"""From claims to files: which claim counts, what it means on a host, and what becomes of those that mean nothing."""

from __future__ import annotations

from typing import Any

import pytest

from gpubind.host.base import shipped_liblist
from gpubind.inventory.claims import Claim
from gpubind.inventory.liblist import read_table
from gpubind.inventory.locate import LocatedFiles, locate
from gpubind.inventory.search import Search, read_cache
from gpubind.model import HostFile, RootedPath
from tests.support.driver import V, host, libraries, ubuntu
from tests.support.elf import elf
from tests.support.trees import Dir, File, Link, Spec

LIB = "/usr/lib/x86_64-linux-gnu"
CUDA = f"{LIB}/libcuda.so.{V}"


def located(spec: Spec, *claims: Claim, **search: Any) -> LocatedFiles:
    on = host(spec)
    cache, _, _ = read_cache(on.driver, "nvidia")
    table = read_table(shipped_liblist("nvliblist.conf"))
    return locate(Search(on, cache, (RootedPath(LIB),), V, **search), table, claims)


def claim(kind: Any, name: str, by: str = "test", **more: Any) -> Claim:
    return Claim(kind, name, by, "here", **more)


def only(found: LocatedFiles) -> HostFile:
    (file,) = (*found.libraries, *found.files)
    return file


def said(found: LocatedFiles) -> list[tuple[str, str, str]]:
    return [(d.subject, d.verdict, d.rule) for d in (*found.decisions, *found.listed_decisions)]


def test_nobody_claims_anything_and_nothing_is_found() -> None:
    assert located(ubuntu()) == located(ubuntu(), claim("version", "1.2.3"))


def test_without_a_version_no_name_carries_it() -> None:
    odd = f"{LIB}/libodd.so.None"
    on = host({**ubuntu(), odd: elf("libodd.so")})
    found = Search(on, None, (RootedPath(LIB),)).candidates(frozenset(("libcuda.so",)))
    assert {candidate.name.partition(".so")[0] for candidate in found} == {"libcuda"}


def test_the_first_claim_on_a_name_names_the_file() -> None:
    names = {"library": "libcuda.so", "library-name": "libcuda.so.1"}
    for first, second in [("library", "library-name"), ("library-name", "library")]:
        found = located(ubuntu(), claim(first, names[first], "first"), claim(second, names[second], "second"))
        assert only(found).named_by == "first"


def test_a_claim_outside_the_list_in_force_is_told_and_not_taken() -> None:
    found = located(ubuntu(), claim("library", "libcuda.so", not_in_list=True))
    assert found.libraries == ()
    assert found.found_libraries.not_in_list == ("libcuda.so.1", f"libcuda.so.{V}")
    assert said(found)[0] == ("libcuda.so.1", "left-out", "not-in-list")


def test_a_claim_outside_the_list_on_a_program_or_path_is_not_even_looked_for() -> None:
    spec = {**ubuntu(), "/etc/x": "x"}
    claims = claim("program", "nope", not_in_list=True), claim("path", "/nope", not_in_list=True)
    assert said(located(spec, *claims)) == []


def test_the_path_of_a_library_means_every_name_that_leads_to_it() -> None:
    found = located(ubuntu(), claim("library-file", CUDA))
    assert only(found).names == ("libcuda.so", "libcuda.so.1")


def test_the_path_of_a_library_where_nobody_searches_is_found_all_the_same() -> None:
    found = located({"/srv/libcuda.so." + V: elf("libcuda.so.1")}, claim("library-file", f"/srv/libcuda.so.{V}"))
    assert only(found).path == f"/srv/libcuda.so.{V}"


@pytest.mark.parametrize(
    ("name", "capability"),
    [(f"libnvidia-glcore.so.{V}", "graphics"), (f"libnvidia-encode.so.{V}", "video"), ("libunheard.so.1", None)],
)
def test_the_list_decides_the_capability_of_a_library_where_nobody_searches(name: str, capability: object) -> None:
    assert only(located({f"/srv/{name}": elf(name)}, claim("library-file", f"/srv/{name}"))).capability == capability


def test_a_library_has_the_further_names_that_a_claim_gives_it_unless_another_has_them() -> None:
    spec = ubuntu()
    links = ("libextra.so", "libnvidia-ml.so.1")
    found = located(spec, claim("library-file", CUDA, extra_names=links), claim("library", "libnvidia-ml.so"))
    cuda, ml = found.libraries
    assert "libextra.so" in cuda.names and "libnvidia-ml.so.1" not in cuda.names
    assert "libnvidia-ml.so.1" in ml.names


def test_a_path_that_leads_nowhere_is_rejected_by_whoever_named_it() -> None:
    found = located({"/a": Link("/gone")}, claim("library-file", "/a"), claim("file", "/b"), claim("device", "/dev/c"))
    assert said(found) == [(path, "rejected", "dangling") for path in ("/a", "/b", "/dev/c")]


def test_what_stays_on_the_host_is_left_out_unless_it_was_taken() -> None:
    spec = {"/usr/bin/tool": elf(kind=2)}
    stays = claim("path", "/usr/bin/t*", host_only_reason="because")
    assert said(located(spec, stays)) == [("/usr/bin/tool", "left-out", "host-only")]
    assert said(located(spec, claim("program", "tool"), stays)) == []


def test_a_file_that_two_claims_name_is_one_file_and_the_list_of_real_paths_names_it() -> None:
    spec = {"/usr/bin/tool": elf(kind=2)}
    file = only(located(spec, claim("file", "/usr/bin/tool", "list"), claim("program", "tool", "first")))
    assert (file.names, file.named_by) == (("tool",), "list")


def test_a_script_of_a_user_space_stays_on_the_host() -> None:
    spec = {"/usr/bin/tool": File(b"#!/bin/sh\n", 0o755)}
    assert only(located(spec, claim("program", "tool"))).kind == "binary"
    assert said(located(spec, claim("program", "tool", group="rocm"))) == [("tool", "left-out", "script")]


def test_32_bit_libraries_are_taken_where_they_are_wanted() -> None:
    spec = libraries(LIB, machine=3, bits=32)
    assert said(located(spec, claim("library", "libcuda.so")))[0][1:] == ("left-out", "compat32")
    assert only(located(spec, claim("library", "libcuda.so"), compat32=True)).compat32


STORE = "/nix/store/0a1b2c-glibc-2.40/lib"
PATCHED = File(elf(kind=2, interpreter=f"{STORE}/ld-linux-x86-64.so.2"), 0o755)
WITH_LOADER: Spec = {
    "/usr/bin/tool": Link("/nix/store/d4e5f6-tool/bin/tool"),
    "/nix/store/d4e5f6-tool/bin/tool": PATCHED,
    f"{STORE}/ld-linux-x86-64.so.2": elf("ld-linux-x86-64.so.2"),
    f"{STORE}/libc.so.6": elf("libc.so.6"),
}


def test_a_program_with_a_loader_of_its_own_comes_with_the_directory_of_that_loader() -> None:
    tool, directory = located(WITH_LOADER, claim("program", "tool")).files
    assert (tool.names, tool.path) == (("tool",), "/nix/store/d4e5f6-tool/bin/tool")
    assert (directory.kind, directory.source, directory.target, directory.names) == ("directory", STORE, STORE, ())
    assert directory.options == ("ro", "nosuid", "nodev")
    assert directory.capability == tool.capability


def test_several_programs_with_one_loader_come_with_one_directory() -> None:
    spec = {**WITH_LOADER, "/usr/bin/other": PATCHED}
    found = located(spec, claim("program", "tool"), claim("program", "other"))
    assert [file.kind for file in found.files] == ["binary", "binary", "directory"]


@pytest.mark.parametrize(
    "interpreter",
    [
        *("/opt/ld.so", "/srv/no-libc/ld.so", "/srv/gone/ld.so", "lib/ld.so"),
        *("//opt/ld.so", "/opt/./ld.so", "/srv/../opt/ld.so", "/opt//ld.so", "/srv/link/ld.so", "/srv/top/ld.so"),
        f"{LIB}/a/../ld.so",
    ],
)
def test_a_directory_without_a_c_library_and_one_of_the_system_are_never_a_loaders(interpreter: str) -> None:
    spec: Spec = {
        "/usr/bin/tool": File(elf(kind=2, interpreter=interpreter), 0o755),
        "/opt/libc.so.6": elf("libc.so.6"),
        "/srv/no-libc/ld.so": elf("ld.so"),
        "/srv/link": Link("/opt"),
        "/srv/top": Link("/"),
        "/libc.so.6": elf("libc.so.6"),
        f"{LIB}/a": Dir(),
        f"{LIB}/libc.so.6": elf("libc.so.6"),
    }
    assert [file.kind for file in located(spec, claim("program", "tool")).files] == ["binary"]
