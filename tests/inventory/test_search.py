"""Candidates in their order, and each reason to reject one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import pytest

from gpubind.files.ldconfig import LD_CACHE_PATH
from gpubind.inventory.search import (
    Accepted,
    Candidate,
    Rejected,
    Search,
    existing_directories,
    ldconfig_command,
    os_release_id,
    read_cache,
)
from gpubind.model import Decision, RootedPath
from gpubind.model.layouts import STANDARD_PROGRAMS
from tests.support.driver import V, host, libraries
from tests.support.elf import elf, stub
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Dir, Hidden, Item, Link, Spec

D = RootedPath("/usr/lib64")
CUDA = RootedPath(f"{D}/libcuda.so.1")
NEW = RootedPath(f"{D}/libcuda.so.570.1.1")
COMPAT = RootedPath("/usr/local/cuda/compat/libcuda.so.570.1.1")


def judged(
    path: RootedPath, spec: Mapping[Any, Item], by: str = D, version: Optional[str] = V, **search: Any
) -> object:
    made = Search(host(dict(spec)), None, (D,), version, **search)
    return made.judge(Candidate(path.rpartition("/")[2], path, by))


REJECTED: tuple[tuple[Spec, Rejected], ...] = (
    ({CUDA: Link("gone")}, Rejected("dangling", "/usr/lib64 names it, but it leads nowhere")),
    ({CUDA: Link("libcuda.so.1")}, Rejected("path-loop", "loop: too many levels of symbolic links")),
    ({CUDA: Hidden()}, Rejected("path-forbidden", "forbidden: permission denied")),
    (
        {CUDA: stub("libcuda.so.1")},
        Rejected("stub", "a stand-in from the CUDA toolkit, for linking programs only; no driver", CUDA),
    ),
    (
        {CUDA: "INPUT(libcuda.so)"},
        Rejected("linker-script", "a text for the link editor; the loader cannot use it", CUDA),
    ),
    (
        {CUDA: elf("libcuda.so.1", machine=183)},
        Rejected("wrong-machine", "aarch64, 64-bit; this host is x86_64", CUDA),
    ),
    (
        {CUDA: elf("libcuda.so.1", machine=40, bits=32)},
        Rejected("wrong-machine", "arm, 32-bit; this host is x86_64", CUDA),
    ),
    (
        {CUDA: Link(COMPAT), COMPAT: elf("libcuda.so.1")},
        Rejected("cuda-compat", "a forward-compatibility library, not the driver's", COMPAT),
    ),
    (
        {CUDA: Link(NEW), NEW: elf("libcuda.so.1")},
        Rejected("other-driver-version", f"its name carries 570.1.1, the driver is {V}", NEW),
    ),
)


@pytest.mark.parametrize(("spec", "reason"), REJECTED, ids=[f"{each.rule}-{each.detail}" for _, each in REJECTED])
def test_a_file_that_cannot_serve_is_rejected_with_its_reason(spec: Spec, reason: Rejected) -> None:
    assert judged(CUDA, spec) == reason


def test_a_name_that_no_program_opens_is_rejected_unless_the_cache_has_it() -> None:
    backup = RootedPath(f"{CUDA}.bak")
    spec = {backup: elf("libcuda.so.1")}
    detail = "no program opens a library by this name: behind `.so` there are only numbers"
    assert judged(backup, spec) == Rejected("backup-name", detail)
    assert isinstance(judged(backup, spec, by="ld.so.cache"), Accepted)


def test_only_a_library_of_cuda_below_compat_is_one_for_forward_compatibility() -> None:
    other = RootedPath("/usr/local/cuda/compat/libnvidia-ml.so.1")
    assert isinstance(judged(other, {other: elf("libnvidia-ml.so.1")}), Accepted)


def test_a_stub_is_known_by_its_name_or_its_directory() -> None:
    odd, in_stubs = RootedPath(f"{D}/libodd.so.1"), RootedPath("/opt/stubs/libodd.so.1")
    assert isinstance(judged(odd, {odd: stub("libodd.so.1")}), Accepted)
    found = judged(in_stubs, {in_stubs: stub("libodd.so.1")})
    assert isinstance(found, Rejected) and found.rule == "stub"


def test_a_version_in_a_name_matters_only_where_the_drivers_is_known_or_that_of_windows() -> None:
    spec = {NEW: elf("libcuda.so.1")}
    free = judged(NEW, spec, version=None)
    assert isinstance(free, Accepted)
    assert free[2:] == ("x86_64", "570.1.1")
    detail = "its name carries 570.1.1, the driver is that of Windows"
    assert judged(NEW, spec, version=None, is_windows=True) == Rejected("other-driver-version", detail, NEW)
    plain = RootedPath(f"{D}/libnvidia-egl-gbm.so.1.1.2")
    assert isinstance(judged(plain, {plain: elf("libnvidia-egl-gbm.so.1")}, is_windows=True), Accepted)


def test_a_library_of_another_release_of_rocm_is_rejected() -> None:
    release = RootedPath("/opt/rocm-6.1.0")
    path = RootedPath(f"{release}/lib/libhsa-runtime64.so.1")
    found = judged(path, {path: elf("libhsa-runtime64.so.1")}, others=(release,))
    assert found == Rejected("other-rocm", "of /opt/rocm-6.1.0, and another ROCm serves", path)
    near = RootedPath("/opt/rocm-6.1.01/lib/libhsa-runtime64.so.1")
    assert isinstance(judged(near, {near: elf("libhsa-runtime64.so.1")}, others=(release,)), Accepted)


def test_candidates_are_those_of_the_container_around_then_of_the_cache_then_of_directories() -> None:
    around, after = RootedPath("/around"), RootedPath("/")
    spec: Spec = {
        **libraries("/around", stems=["libcuda"]),
        "/libcuda.so.1": elf("libcuda.so.1"),
        "/libcuda.so": elf("libcuda.so.1"),
        f"/libodd.so.{V}": elf("libodd.so.1"),
        "/libother.so.1": elf("libother.so.1"),
        "/libcudart.so.1": elf("libcudart.so.1"),
    }
    names = (("libcuda.so.1", "/usr/lib64/libcuda.so.1"), ("libcuda.so.1", "not/absolute"), ("libz.so.1", "/libz.so.1"))
    on = host(spec, {LD_CACHE_PATH: build_ldcache([entry(*each) for each in names])})
    cache, _, _ = read_cache(on.driver, "nvidia")
    search = Search(on, cache, (after,), V, first=(around,))
    assert list(search.candidates(frozenset(("libcuda.so",)))) == [
        Candidate("libcuda.so.1", RootedPath("/around/libcuda.so.1"), "/around"),
        Candidate(f"libcuda.so.{V}", RootedPath(f"/around/libcuda.so.{V}"), "/around"),
        Candidate("libcuda.so.1", RootedPath("/usr/lib64/libcuda.so.1"), "ld.so.cache"),
        Candidate("libcuda.so", RootedPath("/libcuda.so"), "/"),
        Candidate("libcuda.so.1", RootedPath("/libcuda.so.1"), "/"),
        Candidate(f"libodd.so.{V}", RootedPath(f"/libodd.so.{V}"), "/"),
    ]
    assert search.searched == ("/around", "ld.so.cache", "/")
    assert search.search_summary == ("ld.so.cache (3 entries)", "/around", "/")
    without = Search(on, None, (after,), V, first=(around,))
    assert without.searched == ("/around", "/")
    assert without.search_summary == ("no usable ld.so.cache", "/around", "/")


def test_programs_are_near_libcuda_then_where_they_usually_are_then_on_path() -> None:
    def programs(**search: Any) -> tuple[str, ...]:
        spec: Spec = {"/nix/store/x-nvidia/bin/nvidia-smi": elf(kind=2), "/nix/store/x-nvidia/lib": Dir()}
        return Search(host(spec, environ={"PATH": "/a:rel:/usr/bin::/b"}), None, (), V, **search).programs

    assert programs(programs=("/p",)) == ("/p", "/a", "/usr/bin", "/b")
    near = programs(programs=("/p",), beside=(RootedPath("/nix/store/x-nvidia/lib"),))
    assert near == (*STANDARD_PROGRAMS, "/nix/store/x-nvidia/bin", "/p", "/a", "/b")


ABSENT = Decision("nvidia", LD_CACHE_PATH, "rejected", "no-ldcache", "search", path=LD_CACHE_PATH, detail="absent")


def test_a_system_without_an_ld_cache_is_told_unless_it_never_has_one() -> None:
    cache, findings, decisions = read_cache(host({"/etc/os-release": "ID=debian\n"}).driver, "nvidia")
    assert (cache, decisions) == (None, [ABSENT])
    (finding,) = findings
    told = ("no-ldcache", LD_CACHE_PATH, LD_CACHE_PATH, "absent")
    assert (finding.code, finding.subject, finding.where, finding.why) == told
    assert read_cache(host({"/etc/os-release": "ID=alpine\n"}).driver, "nvidia") == (None, [], [ABSENT])


def test_a_damaged_ld_cache_is_told_with_the_place_of_the_damage() -> None:
    cache, findings, decisions = read_cache(host({LD_CACHE_PATH: b"glibc-ld.so.cache1.1"}).driver, "amd")
    assert cache is None
    assert [(d.vendor, d.rule, d.detail) for d in decisions] == [("amd", "bad-ldcache", "byte 20: truncated header")]
    assert [(f.vendor, f.code, f.why) for f in findings] == [("amd", "bad-ldcache", "byte 20: truncated header")]


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ("NAME=x\nID=debian\n", "debian"),
        ('ID="opensuse-leap"\n', "opensuse-leap"),
        ("ID='a_b.c'\n", "a_b.c"),
        ("VERSION_ID=9\n", ""),
        ("", ""),
    ],
)
def test_the_system_is_the_id_of_os_release(text: str, system: str) -> None:
    assert os_release_id(host({"/etc/os-release": text}).driver) == system
    assert os_release_id(host({}).driver) == ""


def test_the_command_for_a_cache_names_a_root_that_is_not_this_one() -> None:
    assert ldconfig_command("/") == "ldconfig"
    assert ldconfig_command("/run/driver's") == """ldconfig -r '/run/driver'"'"'s'"""


def test_directories_are_resolved_and_each_is_there_once() -> None:
    spec: Spec = {"/a/x": Dir(), "/b": Link("a"), "/c": "a file", "/a/y": "a file", "/": Dir()}
    found = existing_directories(host(spec).driver, ("/a/", "/b", "/c", "/gone", "/"), below=("", "x", "y"))
    assert found == ("/a", "/a/x", "/")
