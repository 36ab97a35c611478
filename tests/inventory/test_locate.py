"""From claims to files: which claim counts, what it means on a host, and what becomes of those that mean nothing."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind.host import ListFile
from gpubind.host.base import shipped_liblist
from gpubind.inventory.claims import Claim
from gpubind.inventory.liblist import read_table
from gpubind.inventory.locate import LocatedFiles, locate
from gpubind.inventory.search import Search, read_cache
from gpubind.model import HostFile, RootedPath
from tests.support.driver import V, host, libraries, ubuntu
from tests.support.elf import elf
from tests.support.trees import Dir, Fifo, File, Hidden, Item, Link, Socket, Spec

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


def told(found: LocatedFiles) -> list[tuple[object, ...]]:
    """All of each Decision but who claims the name and where it lands."""
    every = (*found.decisions, *found.listed_decisions)
    return [(d.subject, d.verdict, d.rule, d.step, d.detail, d.path, d.found_by) for d in every]


def test_why_a_program_is_not_taken() -> None:
    spec: Spec = {
        "/usr/bin/arm": elf(kind=2, machine=183),
        "/usr/bin/script": File(b"#!/bin/sh\n", 0o755),
        "/usr/bin/directory": Dir(),
    }
    claims = [claim("program", name) for name in ("a/b", "arm", "none", "directory")]
    script = "a script, which needs the files beside it and an interpreter: it has to come with the image"
    nowhere = "in none of the program directories"
    assert told(located(spec, *claims, claim("program", "script", group="rocm"))) == [
        (
            "a/b",
            "rejected",
            "relative-path",
            "search",
            "a relative path would depend on the current directory",
            *NO_PATH,
        ),
        ("arm", "rejected", "wrong-machine", "search", "aarch64; this host is x86_64", "/usr/bin/arm", None),
        ("none", "absent", "no-match", "search", nowhere, *NO_PATH),
        ("directory", "absent", "no-match", "search", nowhere, *NO_PATH),
        ("script", "left-out", "script", "name", script, "/usr/bin/script", "/usr/bin"),
    ]


NO_PATH = (None, None)
UNCLEAN = "a path in a list is written without `.`, `..` and doubled or trailing slashes"
DAMAGED = "byte 1: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
OF_OTHER = f"its name carries 570.1.1, the driver is {V}"
MANIFEST = '{"file_format_version":"1.0.0","ICD":{"library_path":"libx.so","api_version":"1"}}'


@pytest.mark.parametrize(
    ("name", "item", "outcome"),
    [
        ("/a/../b", Dir(), ("rejected", "unclean-path", "search", UNCLEAN, "/a/../b")),
        ("/a/", Dir(), ("rejected", "unclean-path", "search", UNCLEAN, "/a/")),
        ("/none*", None, ("absent", "no-match", "search", "nothing matches", None)),
        ("/non[e]", None, ("absent", "no-match", "search", "nothing matches", None)),
        ("/non?", None, ("absent", "no-match", "search", "nothing matches", None)),
        ("/none", None, ("absent", "no-match", "search", "it is not there", None)),
        ("/x/y", None, ("rejected", "path-forbidden", "search", "forbidden: permission denied", "/x/y")),
        ("/etc/v-570.1.1", "", ("rejected", "other-driver-version", "search", OF_OTHER, "/etc/v-570.1.1")),
        (
            "/usr/lib",
            Dir(),
            ("rejected", "system-directory", "search", "binding it would hide the container's own", "/usr/lib"),
        ),
        ("/etc/bad.json", "{", ("rejected", "bad-icd", "search", DAMAGED, "/etc/bad.json")),
        (
            "/etc/hidden.icd",
            Hidden(),
            ("rejected", "path-forbidden", "search", "forbidden: permission denied", "/etc/hidden.icd"),
        ),
        ("/etc/fifo", Fifo(), ("rejected", "special-file", "search", "a FIFO", "/etc/fifo")),
    ],
)
def test_why_a_path_is_not_taken(name: str, item: Optional[Item], outcome: tuple[object, ...]) -> None:
    spec: Spec = {"/x": Hidden(True), **({} if item is None else {name.rstrip("/").replace("..", "c"): item})}
    found = located(spec, claim("path", name))
    assert (told(found), found.files) == ([(name, *outcome, None)], ())


def test_what_a_path_leads_to_is_bound_as_its_kind() -> None:
    spec: Spec = {
        "/etc/ok.json": MANIFEST,
        f"/etc/data-{V}": "x",
        "/run/s": Socket(),
        "/etc/d": Dir(),
        "/etc/listed": Dir(),
    }
    claims = [claim("path", path, group="rocm") for path in ("/etc/ok.json", f"/etc/data-{V}", "/run/s", "/etc/d")]
    found = located(spec, *claims, claim("own-path", "/etc/listed"))
    assert told(found) == []
    assert [(f.kind, f.path, f.target, f.options, f.version, f.group, f.content) for f in found.files] == [
        ("manifest", "/etc/ok.json", "/etc/ok.json", None, None, "rocm", MANIFEST.encode()),
        ("file", f"/etc/data-{V}", f"/etc/data-{V}", None, V, None, None),
        ("socket", "/run/s", "/run/s", None, None, None, None),
        ("directory", "/etc/d", "/etc/d", None, None, None, None),
        ("directory", "/etc/listed", "/etc/listed", ("ro", "nosuid", "nodev"), None, None, None),
    ]


def test_why_what_the_list_of_another_program_names_is_not_taken() -> None:
    spec: Spec = {
        "/usr/bin/tool": elf(kind=2),
        "/srv/tool": File(elf(kind=2), 0o755),
        "/srv/arm": File(elf(kind=2, machine=183), 0o755),
        "/srv/firmware/x": "x",
        "/srv/fifo": Fifo(),
        "/srv/script": File(b"#!/bin/sh\n", 0o755),
        "/srv/plain": elf(kind=2),
        "/srv/stays": "x",
        "/dev/odd": "x",
        "/dev/directory": Dir(),
    }
    names = ("tool", "arm", "firmware/x", "fifo", "script", "plain", "none")
    claims = [claim("file", f"/srv/{name}", "list") for name in names]
    claims += [claim("file", "/srv/stays", host_only_reason="because")]
    claims += [claim("device", "/dev/odd", "list"), claim("device", "/dev/directory", "list")]
    found = located(spec, claim("program", "tool", "first"), *claims)
    firmware = "firmware: the kernel reads it, not a process"
    assert told(found) == [
        ("/srv/none", "rejected", "dangling", "search", "list names it, but it leads nowhere", "/srv/none", None),
        ("/srv/stays", "left-out", "host-only", "search", "because", "/srv/stays", None),
        ("tool", "left-out", "shadowed", "search", "/usr/bin/tool comes first", "/srv/tool", None),
        ("arm", "rejected", "wrong-machine", "search", "aarch64; this host is x86_64", "/srv/arm", None),
        ("/srv/firmware/x", "left-out", "host-only", "search", firmware, "/srv/firmware/x", None),
        ("/srv/fifo", "rejected", "special-file", "search", "a FIFO", "/srv/fifo", None),
        ("/dev/odd", "left-out", "unknown-device", "search", "list names it, nobody else does", "/dev/odd", None),
    ]
    assert [(f.kind, f.path, f.target, f.names, f.named_by, f.found_by) for f in found.files] == [
        ("binary", "/usr/bin/tool", None, ("tool",), "first", "/usr/bin"),
        ("binary", "/srv/script", None, ("script",), "list", "/srv/script"),
        ("file", "/srv/plain", "/srv/plain", (), "list", "/srv/plain"),
    ]


def test_why_a_library_is_not_taken() -> None:
    spec: Spec = {
        **libraries(LIB, stems=("libcuda", "libnvidia-ml")),
        **libraries("/usr/lib32", stems=("libnvidia-nvvm",), machine=3, bits=32),
        "/opt/libcuda.so.1": elf("libcuda.so.1"),
        f"{LIB}/libGL.so.1": elf("libGL.so.1"),
        f"{LIB}/libOpenCL.so.1": elf("libOpenCL.so.1"),
        f"{LIB}/libcuda.so.570.1.1": elf("libcuda.so.1"),
    }
    paths = claim("path", "/opt/libcuda.so*"), claim("path", "/usr/lib32/libnvidia-nvvm.so*")
    starts = [claim("library", name) for name in ("libcuda.so", "libGL.so", "libOpenCL.so", "libnone.so")]
    found = located(spec, *paths, *starts, claim("library", "libnvidia-ml.so", not_in_list=True))
    foreign = "not NVIDIA's: its name carries no driver version, and no libGLdispatch stands beside it"
    unlisted = "the driver has it, the list in force does not name it"
    nvvm, ml = f"/usr/lib32/libnvidia-nvvm.so.{V}", f"{LIB}/libnvidia-ml.so.{V}"
    other, first = f"{LIB}/libcuda.so.570.1.1", "/opt/libcuda.so.1 comes first (/opt)"
    assert sorted(told(found), key=str) == [
        ("libGL.so.1", "rejected", "not-nvidia", "side", foreign, f"{LIB}/libGL.so.1", LIB),
        ("libcuda.so.1", "left-out", "shadowed", "search", first, CUDA, LIB),
        ("libcuda.so.570.1.1", "rejected", "other-driver-version", "search", OF_OTHER, other, LIB),
        ("libnone.so", "absent", "no-match", "search", "neither in the ld cache nor in a driver directory", *NO_PATH),
        ("libnvidia-ml.so.1", "left-out", "not-in-list", "name", unlisted, ml, LIB),
        ("libnvidia-nvvm.so.4", "left-out", "compat32", "capability", "i386: not asked for", nvvm, "/usr/lib32"),
    ]
    assert [(f.path, f.names, f.capability, f.soname, f.version, f.group) for f in found.libraries] == [
        ("/opt/libcuda.so.1", ("libcuda.so.1",), "compute", "libcuda.so.1", None, None),
        (f"{LIB}/libOpenCL.so.1", ("libOpenCL.so.1",), "compute", "libOpenCL.so.1", None, "opencl"),
        (CUDA, ("libcuda.so", "libcuda.so.1"), "compute", "libcuda.so.1", V, None),
    ]


def test_of_several_major_versions_in_names_the_first_is_the_soname() -> None:
    spec: Spec = {f"{LIB}/libcuda.so.{number}": Link(f"libcuda.so.{V}") for number in (2, 1, 3)}
    file = only(located({**spec, CUDA: elf("libcuda.so.9")}, claim("library", "libcuda.so")))
    assert (file.soname, file.names) == ("libcuda.so.1", tuple(f"libcuda.so{end}" for end in ("", ".1", ".2", ".3")))


@pytest.mark.parametrize(
    ("name", "soname", "expected"),
    [
        ("libcuda.so", "libcuda.so.1", "libcuda.so.1"),
        ("libcuda.so", "libc.so.6", "libcuda.so"),
        ("libcuda.so", "libcuda.so/x", "libcuda.so"),
        ("libcuda.so", "libcuda.so.\u00e9", "libcuda.so"),
        ("libcuda.so", None, "libcuda.so"),
    ],
)
def test_only_a_soname_that_belongs_to_its_file_is_used(name: str, soname: Optional[str], expected: str) -> None:
    file = only(located({f"{LIB}/{name}": elf(soname)}, claim("library", "libcuda.so")))
    assert (file.soname, file.names) == (expected, tuple(sorted({"libcuda.so", expected})))


@pytest.mark.parametrize("dispatch", ["libGLdispatch.so.0", "libglvnd/libGLdispatch.so.0"])
def test_a_vendor_neutral_library_is_of_glvnd_where_its_dispatch_is_near(dispatch: str) -> None:
    spec: Spec = {f"{LIB}/libGL.so.1": elf("libGL.so.1"), f"{LIB}/{dispatch}": elf("libGLdispatch.so.0")}
    file = only(located(spec, claim("library", "libGL.so")))
    assert (file.group, file.capability, file.version) == ("glvnd", "graphics", None)


def test_a_program_of_a_list_precedes_a_pattern_that_its_path_matches() -> None:
    table = read_table(ListFile("odd.conf", b"[video]\n/usr/bin/*\n[utility]\ntool\n", shipped=False))
    assert table.section("tool", "/usr/bin/tool") == "utility"
    assert table.section("other", "/usr/bin/other") == "video"
    assert table.section("other", "/bin/other") is None
    assert table.capability(claim("path", "/usr/bin/tool")) == "utility"
    assert table.capability(claim("path", "/usr/bin/tool", section="graphics")) == "graphics"
