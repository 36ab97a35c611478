"""What the loader of a container would do: search order, breadth first, versions; and what it says."""

from __future__ import annotations

from types import MappingProxyType
from typing import Optional

import pytest

from gpubind.loader.container import Container
from gpubind.loader.hwcaps import Cpu
from gpubind.loader.search import LoadFailure
from gpubind.model import ContainerPath, EnvVar, HostPath, Mount
from tests.support.elf import AARCH64, I386, elf
from tests.support.images import GLIBC, glibc, image
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Link, Spec, recorded_tree

LIBS = "/.gpubind/libs"
USR = "/usr/lib/x86_64-linux-gnu"


def mount(name: str, target: Optional[str] = None) -> Mount:
    source = HostPath(f"/host/lib/{name}")
    where = ContainerPath(target or f"{LIBS}/{name}")
    return Mount("nvidia", source, None, where, "library", None, None, None, None, ("ro",), False, 1, "liblist")


def container(
    inside: Spec,
    brought: Spec = MappingProxyType({}),
    *,
    own: str = "",
    links: tuple[tuple[str, str], ...] = (),
    version: str = "2.36",
    cpu: Optional[Cpu] = None,
) -> Container:
    """An image with *inside* besides glibc of that *version*, and libraries of the host by name."""
    host = recorded_tree({f"/lib/{name}": item for name, item in brought.items()}, "/host")
    mounts = [mount(name) for name in brought] + [mount(name, target) for name, target in links]
    env = (EnvVar("LD_LIBRARY_PATH", "prepend", LIBS, ":", "libraries"),)
    return Container(image(glibc(version), inside).loader, host, mounts, env, own, cpu=lambda: cpu)


def needs(*names: str, soname: str = "libx.so.1", **facts: object) -> bytes:
    return elf(soname, needed=names, **facts)  # type: ignore[arg-type]


def brief(failures: tuple[LoadFailure, ...]) -> list[tuple[str, str]]:
    return [(failure.kind, failure.name) for failure in failures]


def test_a_library_that_finds_everything_loads() -> None:
    made = container({}, {"libx.so.1": needs("liby.so.1", "libc.so.6"), "liby.so.1": elf("liby.so.1")})
    assert made.failures(f"{LIBS}/libx.so.1") == ()


def test_what_is_missing_is_said_in_the_loaders_words() -> None:
    made = container({}, {"libx.so.1": needs("liby.so.1")})
    (failure,) = made.failures(f"{LIBS}/libx.so.1")
    assert failure.message == "liby.so.1: cannot open shared object file: No such file or directory"
    assert failure.needed_by == f"{LIBS}/libx.so.1"


PLACES = ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "x86_64", "haswell", "aarch64")


def tokens(libc: str, *, machine: int = 62, cpu: Optional[Cpu] = None, runpath: str = "/opt/$LIB") -> Optional[str]:
    """Which of the libraries in /opt/* a program with *runpath* gets, in an image whose glibc is at *libc*."""
    libraries: Spec = {f"/opt/{name}/liby.so.1": elf("liby.so.1", machine=machine) for name in PLACES}
    own: Spec = {libc: elf("libc.so.6", machine=machine, defines=("libc.so.6", *GLIBC))}
    program: Spec = {"/usr/bin/x": elf(kind=2, machine=machine, needed=("liby.so.1",), runpath=runpath)}
    loader = image(libraries, own, program).loader
    files = Container(loader, recorded_tree({}), (), (), "", cpu=lambda: cpu).load("/usr/bin/x").files
    return files[1].path.rpartition("/")[0][len("/opt/") :] if len(files) > 1 else None


@pytest.mark.parametrize(
    ("libc", "machine", "library"),
    [
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", 62, "lib/x86_64-linux-gnu"),
        ("/lib/aarch64-linux-gnu/libc.so.6", AARCH64, "lib/aarch64-linux-gnu"),
        ("/usr/lib64/libc.so.6", 62, "lib64"),
        ("/usr/lib/libc.so.6", 62, "lib"),
    ],
)
def test_lib_is_the_directory_that_the_images_own_glibc_lies_in(libc: str, machine: int, library: str) -> None:
    assert tokens(libc, machine=machine) == library
    assert tokens(libc, machine=machine, runpath="/opt/${LIB}") == library


def test_platform_is_what_the_kernel_and_the_loader_call_the_processor() -> None:
    haswell = Cpu("GenuineIntel", frozenset(("avx2", "bmi1", "bmi2", "fma", "abm", "movbe", "popcnt")))
    path = "/opt/$PLATFORM"
    assert tokens(f"{USR}/libc.so.6", cpu=Cpu("AuthenticAMD", haswell.flags), runpath=path) == "x86_64"
    assert tokens(f"{USR}/libc.so.6", cpu=haswell, runpath=path) == "haswell"
    assert tokens("/lib/aarch64-linux-gnu/libc.so.6", machine=AARCH64, runpath=path) == "aarch64"


def test_a_directory_with_a_word_that_the_loader_has_no_value_for_is_passed_over() -> None:
    made = image({"/usr/bin/x": elf(kind=2, needed=("libx.so.1",), runpath="/opt/$LIB")}, {"/opt/lib64/libx.so.1": b""})
    files = Container(made.loader, recorded_tree({}), (), (), "").load("/usr/bin/x").files
    assert [file.path for file in files] == ["/usr/bin/x"]


def test_a_version_that_the_image_lacks_is_said_in_the_loaders_words() -> None:
    made = container({}, {"libx.so.1": needs("libc.so.6", needs={"libc.so.6": ("GLIBC_2.38", "GLIBC_2.17")})})
    (failure,) = made.failures(f"{LIBS}/libx.so.1")
    assert failure.message == (f"{USR}/libc.so.6: version `GLIBC_2.38' not found (required by {LIBS}/libx.so.1)")


def test_a_library_without_version_definitions_satisfies_everybody() -> None:
    brought = {"libx.so.1": needs("liby.so.1", needs={"liby.so.1": ("Y_2",)}), "liby.so.1": elf("liby.so.1")}
    assert container({}, brought).failures(f"{LIBS}/libx.so.1") == ()


def test_what_is_missing_further_down_fails_too() -> None:
    made = container({f"{USR}/liby.so.1": needs("libz.so.1", soname="liby.so.1")}, {"libx.so.1": needs("liby.so.1")})
    assert brief(made.failures(f"{LIBS}/libx.so.1")) == [("missing", "libz.so.1")]


def test_the_plans_directory_comes_before_the_images_own() -> None:
    old = elf("liby.so.1", defines=("liby.so.1", "Y_1"))
    new = elf("liby.so.1", defines=("liby.so.1", "Y_1", "Y_2"))
    wants = needs("liby.so.1", needs={"liby.so.1": ("Y_2",)})
    assert (
        container({f"{USR}/liby.so.1": old}, {"libx.so.1": wants, "liby.so.1": new}).failures(f"{LIBS}/libx.so.1") == ()
    )
    made = container({f"{USR}/liby.so.1": new}, {"libx.so.1": wants, "liby.so.1": old})
    assert brief(made.failures(f"{LIBS}/libx.so.1")) == [("version", "Y_2")]


@pytest.mark.parametrize(
    ("facts", "fails"),
    [
        ({"rpath": "/opt/app/lib"}, False),
        ({"runpath": "/opt/app/lib"}, False),
        ({"runpath": "$ORIGIN/../lib"}, False),
        ({"rpath": "/opt/app/lib", "runpath": "/nowhere"}, True),
        ({}, True),
    ],
    ids=["rpath", "runpath", "origin", "runpath-hides-rpath", "none"],
)
def test_search_paths_of_a_file_are_searched(facts: dict[str, str], fails: bool) -> None:
    made = container({"/opt/app/bin/run": needs("liby.so.1", **facts), "/opt/app/lib/liby.so.1": elf("liby.so.1")})
    assert bool(made.failures("/opt/app/bin/run")) == fails


@pytest.mark.parametrize(
    ("runpath", "directory"),
    [("/opt/MYLIB/x", "/opt/MYLIB/x"), ("/opt/$LIBS/x", "/opt/$LIBS/x"), ("/opt/$ORIGIN_1", "/opt/$ORIGIN_1")],
    ids=["no-dollar", "longer-name", "underscore"],
)
def test_only_a_whole_token_of_a_search_path_is_expanded(runpath: str, directory: str) -> None:
    """glibc's is_dst: a name that goes on is not a token, and a directory without a token needs no value of one."""
    spec = {"/opt/run": needs("liby.so.1", runpath=runpath), f"{directory}/liby.so.1": elf("liby.so.1")}
    assert container(spec).failures("/opt/run") == ()


def test_the_rpath_of_a_program_counts_for_what_it_loads_but_a_runpath_does_not() -> None:
    inside = {"/opt/lib/liby.so.1": needs("libz.so.1", soname="liby.so.1"), "/opt/lib/libz.so.1": elf("libz.so.1")}
    assert container({**inside, "/opt/run": needs("liby.so.1", rpath="/opt/lib")}).failures("/opt/run") == ()
    made = container({**inside, "/opt/run": needs("liby.so.1", runpath="/opt/lib")})
    assert brief(made.failures("/opt/run")) == [("missing", "libz.so.1")]


def test_the_images_own_library_path_counts_and_its_empty_elements_do_not() -> None:
    inside = {"/opt/run": needs("liby.so.1"), "/opt/lib/liby.so.1": elf("liby.so.1")}
    assert container(inside, own=":/opt/lib:").failures("/opt/run") == ()


def test_a_library_of_another_machine_is_passed_over() -> None:
    inside = {"/opt/run": needs("liby.so.1"), "/opt/lib/liby.so.1": elf("liby.so.1", machine=183)}
    inside[f"{USR}/liby.so.1"] = elf("liby.so.1")
    assert container(inside, own="/opt/lib").failures("/opt/run") == ()


def test_a_loop_of_needs_ends() -> None:
    inside = {
        f"{USR}/liby.so.1": needs("libz.so.1", soname="liby.so.1"),
        f"{USR}/libz.so.1": needs("liby.so.1", soname="libz.so.1"),
    }
    assert container(inside, {"libx.so.1": needs("liby.so.1")}).failures(f"{LIBS}/libx.so.1") == ()


def test_a_bind_lies_where_the_links_of_the_image_lead() -> None:
    made = container(
        {"/usr/lib/app": Link("/opt/app"), "/opt/app/keep": b""},
        {"libx.so.1": elf("libx.so.1")},
        links=(("libx.so.1", "/usr/lib/app/libx.so.1"),),
    )
    for path in ("/usr/lib/app/libx.so.1", "/opt/app/libx.so.1"):
        found = made.locate(path)
        assert found is not None
        assert found.mount is not None


def test_a_damaged_library_is_unreadable() -> None:
    made = container({}, {"libx.so.1": needs("libc.so.6")[:120]})
    assert brief(made.failures(f"{LIBS}/libx.so.1"))[0][0] == "unreadable"


def test_a_program_may_be_a_link_and_its_origin_is_where_that_leads() -> None:
    loader = "/lib64/ld-linux-x86-64.so.2"
    inside: Spec = {
        "/opt/bin/run": needs("liby.so.1", runpath="$ORIGIN/../lib", interpreter=loader),
        "/opt/lib/liby.so.1": elf("liby.so.1"),
        "/usr/bin/run": Link("/opt/bin/run"),
    }
    assert container(inside).failures("/usr/bin/run") == ()


@pytest.mark.parametrize(("asks", "fails"), [(True, True), (False, False)])
def test_no_default_directory_counts_for_a_file_that_says_so(asks: bool, fails: bool) -> None:
    inside = {f"{USR}/liby.so.1": elf("liby.so.1"), "/opt/run": needs("liby.so.1", no_default_directories=asks)}
    assert bool(container(inside).failures("/opt/run")) == fails
    inside["/etc/ld.so.cache"] = build_ldcache([entry("liby.so.1", f"{USR}/liby.so.1")])
    assert bool(container(inside).failures("/opt/run")) == fails
    inside["/etc/ld.so.cache"] = build_ldcache([entry("liby.so.1", "/opt/lib/liby.so.1")])
    inside["/opt/lib/liby.so.1"] = elf("liby.so.1")
    assert container(inside).failures("/opt/run") == ()


def test_ld_so_conf_counts_only_as_far_as_the_cache_knows_it() -> None:
    inside: Spec = {
        "/etc/ld.so.conf": "/opt/lib\n",
        "/opt/lib/liby.so.1": elf("liby.so.1"),
        "/opt/run": needs("liby.so.1"),
    }
    assert container(inside).failures("/opt/run") == ()  # ldconfig is still to run
    stale = build_ldcache([entry("libz.so.1", "/opt/lib/libz.so.1")])
    assert brief(container({**inside, "/etc/ld.so.cache": stale}).failures("/opt/run")) == [("missing", "liby.so.1")]


LEVEL_3 = Cpu(
    "AuthenticAMD", frozenset(["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3", "avx", "avx2"])
)
LEVEL_3 = LEVEL_3._replace(flags=LEVEL_3.flags | {"bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})


@pytest.mark.parametrize(
    ("version", "below", "cpu", "fails"),
    [
        ("2.41", "glibc-hwcaps/x86-64-v3", LEVEL_3, False),
        ("2.41", "glibc-hwcaps/x86-64-v4", LEVEL_3, True),
        ("2.41", "glibc-hwcaps/x86-64-v4", None, False),
        ("2.31", "glibc-hwcaps/x86-64-v3", LEVEL_3, True),
        ("2.36", "tls/x86_64", LEVEL_3, False),
        ("2.37", "tls/x86_64", LEVEL_3, True),
        ("2.36", "haswell", LEVEL_3, True),
        ("2.36", "haswell", None, False),
        ("2.36", "haswell", LEVEL_3._replace(vendor="GenuineIntel"), False),
    ],
)
@pytest.mark.parametrize("facts", [{"rpath": "/opt/lib"}, {"runpath": "/opt/lib"}, {"own": "/opt/lib"}, {}], ids=str)
def test_subdirectories_for_the_processor_count_below_every_directory(
    version: str, below: str, cpu: Optional[Cpu], fails: bool, facts: dict[str, str]
) -> None:
    own = facts.get("own", "")
    base = "/opt/lib" if facts else USR
    told = {} if own else facts
    inside = {"/opt/run": needs("liby.so.1", **told), f"{base}/{below}/liby.so.1": elf("liby.so.1")}
    assert bool(container(inside, own=own, version=version, cpu=cpu).failures("/opt/run")) == fails


def test_what_is_made_for_the_processor_comes_first() -> None:
    inside = {
        "/opt/run": needs("liby.so.1", rpath="/opt/lib"),
        "/opt/lib/liby.so.1": elf("liby.so.1"),
        "/opt/lib/glibc-hwcaps/x86-64-v3/liby.so.1": needs("libz.so.1", soname="liby.so.1"),
    }
    assert brief(container(inside, cpu=LEVEL_3).failures("/opt/run")) == [("missing", "libz.so.1")]
    assert container(inside).failures("/opt/run") == ()


def test_programs_of_32_bits_find_their_own_libraries() -> None:
    inside: Spec = {
        "/opt/run": needs("liby.so.1", "libz.so.1", bits=32, machine=I386),
        f"{USR}/liby.so.1": elf("liby.so.1"),
        "/usr/lib/i386-linux-gnu/liby.so.1": elf("liby.so.1", bits=32, machine=I386),
        "/usr/lib32/libz.so.1": elf("libz.so.1", bits=32, machine=I386),
    }
    assert container(inside).failures("/opt/run") == ()
    inside = {**inside, "/usr/lib32/libz.so.1": elf("libz.so.1")}
    assert brief(container(inside).failures("/opt/run")) == [("missing", "libz.so.1")]


def test_a_file_that_is_no_library_ends_the_search() -> None:
    for text, said in (("INPUT(libz.so.1)" * 9, "invalid ELF header"), ("", "file too short")):
        inside: Spec = {"/opt/run": needs("liby.so.1"), "/opt/lib/liby.so.1": text}
        inside = {**inside, f"{USR}/liby.so.1": elf("liby.so.1")}
        (failure,) = container(inside, own="/opt/lib").failures("/opt/run")
        assert failure.message == f"/opt/lib/liby.so.1: {said}"


@pytest.mark.parametrize(
    ("version", "interpreter", "fails"),
    [("2.41", None, True), ("2.40", None, False), ("2.41", "/lib64/ld-linux-x86-64.so.2", False)],
)
def test_dlopen_refuses_executable_stacks_and_the_start_of_a_program_does_not(
    version: str, interpreter: Optional[str], fails: bool
) -> None:
    inside = {"/opt/run": needs("liby.so.1", interpreter=interpreter)}
    inside[f"{USR}/liby.so.1"] = elf("liby.so.1", executable_stack=True)
    failures = container(inside, version=version).failures("/opt/run")
    said = [f"{USR}/liby.so.1: cannot enable executable stack as shared object requires: Invalid argument"]
    assert [failure.message for failure in failures] == (said if fails else [])
