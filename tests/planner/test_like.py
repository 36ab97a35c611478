"""--like: what the programs' own flag binds, mistakes included."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.errors import UsageError
from gpubind.model import Plan, Request, Vendor
from gpubind.planner.like import FLAVOURS, shipped_names
from tests.support.driver import host, kernel, libraries, ubuntu
from tests.support.elf import elf
from tests.support.golden import GOLDEN, assert_golden, folded
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Dir, File, Hidden, Item, Link, Socket, Spec

LIBS = "/.singularity.d/libs"
CONF = {"apptainer": "/etc/apptainer/nvliblist.conf", "singularity": "/etc/singularity/nvliblist.conf"}
PROGRAM = File(elf(kind=2), 0o755)


def like(
    flavour: str, *parts: Spec, path: str = "/usr/bin", caps: Optional[tuple[Any, ...]] = None, **facts: Any
) -> Plan:
    return plan(host(*parts, environ={"PATH": path}, **facts), Request(like=flavour, caps=caps))


def binds(made: Plan) -> set[tuple[str, str]]:
    return {(m.source or "", m.target) for m in made.mounts}


def number_of_names(vendor: Vendor) -> tuple[int, ...]:
    return tuple(len(shipped_names(FLAVOURS[name], vendor)) for name in ("apptainer", "singularity"))


def test_the_lists_have_as_many_names_as_those_releases() -> None:
    assert number_of_names("nvidia") == (57, 49)
    assert len(shipped_names(FLAVOURS["apptainer-1.6"], "nvidia")) == 73


def test_a_library_is_bound_as_the_cache_names_it_under_that_base_name() -> None:
    lib = "/usr/lib/x86_64-linux-gnu"
    assert (f"{lib}/libcuda.so.1", f"{LIBS}/libcuda.so.1") in binds(like("apptainer", ubuntu()))


def test_what_is_not_in_the_cache_is_missed() -> None:
    assert like("apptainer", libraries("/usr/lib64"), {"/etc/ld.so.cache": build_ldcache([])}).mounts == ()


def test_a_stub_a_stale_library_and_another_version_are_taken_as_they_are() -> None:
    spec: Spec = {
        "/x/stubs/libcuda.so.1": elf("libcuda.so.1"),
        "/etc/ld.so.cache": build_ldcache([entry("libcuda.so.1", "/x/stubs/libcuda.so.1")]),
    }
    assert binds(like("apptainer", spec, kernel())) == {("/x/stubs/libcuda.so.1", f"{LIBS}/libcuda.so.1")}


def test_of_two_architectures_the_first_counts_and_if_it_is_wrong_the_library_is_lost() -> None:
    spec: Spec = {
        "/usr/lib32/libcuda.so.1": elf("libcuda.so.1", bits=32, machine=3),
        "/usr/lib64/libcuda.so.1": elf("libcuda.so.1"),
        "/etc/ld.so.cache": build_ldcache(
            [entry("libcuda.so.1", "/usr/lib32/libcuda.so.1"), entry("libcuda.so.1", "/usr/lib64/libcuda.so.1")]
        ),
    }
    made = like("apptainer", spec)
    assert made.mounts == ()
    assert ("rejected", "wrong-machine") in [(d.verdict, d.rule) for d in made.decisions]


# Apptainer 1.6: by the class of the machine, and --compat32.

LIBS32 = f"{LIBS}32"
MULTIARCH: Spec = {
    "/usr/lib32/libcuda.so.1": elf("libcuda.so.1", bits=32, machine=3),
    "/usr/libx32/libcuda.so.1": elf("libcuda.so.1", bits=32),
    "/usr/lib64/libcuda.so.1": elf("libcuda.so.1"),
    "/opt/libcuda.so.1": elf("libcuda.so.1"),
    "/usr/bin/nvidia-smi": PROGRAM,
    "/etc/ld.so.cache": build_ldcache(
        [
            entry("libcuda.so.1", f"{directory}/libcuda.so.1")
            for directory in ("/usr/lib32", "/usr/libx32", "/usr/lib64")
        ]
    ),
}
OF_64 = {("/usr/lib64/libcuda.so.1", f"{LIBS}/libcuda.so.1"), ("/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi")}
OF_32 = {("/usr/lib32/libcuda.so.1", f"{LIBS32}/libcuda.so.1")}


def test_1_6_takes_the_first_library_of_the_machines_class_and_nothing_is_said_of_the_others() -> None:
    made = like("apptainer-1.6", MULTIARCH)
    assert binds(made) == OF_64
    assert "rejected" not in {d.verdict for d in made.decisions}
    assert made.libdir32 is None


@pytest.mark.parametrize("caps", [("compat32",), ("all",)])
def test_1_6_adds_those_of_32_bits_where_they_are_asked_for(caps: tuple[str, ...]) -> None:
    made = like("apptainer-1.6", MULTIARCH, caps=caps)
    assert binds(made) == OF_64 | OF_32
    assert made.libdir32 == LIBS32
    assert [(v.op, v.value) for v in made.env] == [("append", LIBS), ("append", LIBS32)]
    with pytest.raises(UsageError, match="like-with-option"):
        like("apptainer-1.5", MULTIARCH, caps=caps)


def test_1_6_without_a_library_of_32_bits_searches_no_directory_of_them() -> None:
    made = like("apptainer-1.6", ubuntu(), caps=("all",))
    assert {m.target.rpartition("/")[0] for m in made.mounts} == {LIBS}
    assert made.libdir32 is None
    assert len(made.env) == 1


def test_1_6_has_libraries_of_32_bits_on_x86_64_only() -> None:
    spec: Spec = {
        "/lib/libcuda.so.1": elf("libcuda.so.1", bits=32, machine=40),
        "/etc/ld.so.cache": build_ldcache([entry("libcuda.so.1", "/lib/libcuda.so.1")]),
    }
    made = like("apptainer-1.6", spec, caps=("all",), machine="aarch64")
    assert made.mounts == ()


def test_1_6_takes_an_absolute_library_and_those_around_it_for_their_class() -> None:
    spec: Spec = {
        CONF["apptainer"]: "/opt/a.so\n/opt/a32.so\n",
        "/opt/a.so": elf("a.so"),
        "/opt/a32.so": elf("a32.so", bits=32, machine=3),
        "/opt/a32.so.1": Link("a32.so"),
        f"{LIBS32}/libcuda.so.1": elf("libcuda.so.1", bits=32, machine=3),
        "/etc/ld.so.cache": build_ldcache([]),
    }
    of_64, of_32 = {f"{LIBS}/a.so"}, {f"{LIBS32}/{name}" for name in ("a32.so", "a32.so.1", "libcuda.so.1")}
    assert {t for _, t in binds(like("apptainer-1.6", spec))} == of_64
    assert {t for _, t in binds(like("apptainer-1.6", spec, caps=("all",)))} == of_64 | of_32


def test_the_hosts_own_list_counts_and_a_section_line_is_a_program_that_is_not_there() -> None:
    spec: Spec = {CONF["apptainer"]: "# only this\n[compute]\n  libnvidia-ml.so  \n\n/no/*.json\n"}
    assert {t for _, t in binds(like("apptainer", ubuntu(), spec))} == {f"{LIBS}/libnvidia-ml.so.1"}


def test_an_absolute_library_takes_the_links_that_resolve_to_it() -> None:
    spec: Spec = {
        CONF["apptainer"]: "/opt/a.so\n",
        "/opt/a.so": elf("a.so"),
        "/opt/a.so.1": Link("a.so"),
        "/opt/a.so.1.2": Link("a.so.1"),
        "/opt/a.so.2": Link("b.so"),
        "/opt/b.so": elf("b.so"),
        "/etc/ld.so.cache": build_ldcache([]),
    }
    assert {t for _, t in binds(like("apptainer", spec))} == {f"{LIBS}/a.so", f"{LIBS}/a.so.1", f"{LIBS}/a.so.1.2"}


@pytest.mark.parametrize(
    ("flavour", "expected"),
    [
        ("apptainer", {("/opt/data.json", "/opt/data.json"), ("/opt/tool", "/opt/tool")}),
        ("singularity", {("/opt/tool", "/usr/bin/tool")}),
    ],
)
def test_an_absolute_entry_is_a_file_to_apptainer_and_a_program_to_singularity(
    flavour: str, expected: set[tuple[str, str]]
) -> None:
    spec: Spec = {
        CONF[flavour]: "/opt/data.json\n/opt/tool\n",
        "/opt/data.json": "{}",
        "/opt/tool": PROGRAM,
        "/etc/ld.so.cache": build_ldcache([]),
    }
    assert binds(like(flavour, spec)) == expected


def test_a_file_of_the_list_that_the_caller_may_not_see_stops_apptainer() -> None:
    for item, cases in ((Hidden(), ["/opt/data.json"]), ("{}", [])):
        made = like("apptainer", {CONF["apptainer"]: "/opt/data.json\n", "/opt/data.json": item}, ubuntu())
        assert [one.subject for one in made.findings if one.code == "like-entry"] == cases


ENTRIES = ("libcuda.so", "libgone.so", "libwrong.so", "nvidia-smi", "no-such-program", "bin/relative")
FILES = ("/opt/a.so", "/opt/wrong.so", "/opt/data.json", "/opt/gone.json", "/opt/x/data.json")
EVERYTHING: Spec = {
    **{path: "".join(f"{line}\n" for line in (*ENTRIES, *FILES)) for path in CONF.values()},
    "/a/libcuda.so.1": elf("libcuda.so.1"),
    "/b/libcuda.so": elf("libcuda.so.1"),
    "/c/libcuda.so": elf("libcuda.so.1"),
    "/a/libwrong.so.1": elf("libwrong.so.1", machine=183),
    "/usr/bin/nvidia-smi": PROGRAM,
    "/opt/a.so": elf("a.so"),
    "/opt/a.so.1": Link("a.so"),
    "/opt/wrong.so": "text",
    "/opt/data.json": File(b"{}", 0o755),
    "/opt/x/data.json": File(b"{}", 0o755),
    "/var/run/nvidia-persistenced/socket": Socket(),
    "/etc/ld.so.cache": build_ldcache(
        [
            entry("libcuda.so.1", "/a/libcuda.so.1"),
            entry("libcuda.so", "/b/libcuda.so"),
            entry("libcuda.so", "/c/libcuda.so"),
            entry("libwrong.so.1", "/a/libwrong.so.1"),
        ]
    ),
    f"{LIBS}/libouter.so.1": elf("libouter.so.1"),
    f"{LIBS32}/libouter32.so.1": elf("libouter32.so.1", bits=32, machine=3),
}


@pytest.mark.parametrize("flavour", ["apptainer", "apptainer-1.6", "singularity"])
def test_the_whole_plan_of_a_flavour_is_as_it_was(flavour: str) -> None:
    made = like(flavour, EVERYTHING, caps=("compat32",) if flavour == "apptainer-1.6" else None).to_dict()
    text = json.dumps({key: made[key] for key in sorted(made) if key != "gpubind"}, indent=1)
    assert_golden(GOLDEN / "like" / f"{flavour}.json", folded(f"{text}\n"))


@pytest.mark.parametrize("mode", [0o100, 0o010, 0o001])
def test_any_right_to_execute_makes_a_program(mode: int) -> None:
    spec: Spec = {"/etc/ld.so.cache": build_ldcache([])}
    program = {"/usr/bin/nvidia-smi": File(elf(kind=2), 0o444 | mode)}
    other = {"/usr/bin/nvidia-smi": File(elf(kind=2), 0o666)}
    assert binds(like("apptainer", spec, program)) == {("/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi")}
    assert binds(like("apptainer", spec, other)) == set()


def test_a_program_is_the_first_executable_in_path_and_lands_in_usr_bin() -> None:
    spec: Spec = {
        "/a/nvidia-smi": "not executable",
        "/b/nvidia-smi": Dir(),
        "/c/nvidia-smi": PROGRAM,
        "/d/nvidia-smi": PROGRAM,
        "/etc/ld.so.cache": build_ldcache([]),
    }
    assert binds(like("apptainer", spec, path="/a:relative:/b:/c:/d")) == {("/c/nvidia-smi", "/usr/bin/nvidia-smi")}


@pytest.mark.parametrize("ldcache", [None, b"glibc-ld"], ids=["absent", "damaged"])
def test_without_a_cache_all_is_lost_but_the_socket(ldcache: Any) -> None:
    spec: Spec = {"/usr/bin/nvidia-smi": PROGRAM, "/var/run/nvidia-persistenced/socket": Socket()}
    made = like("apptainer", spec, {"/etc/ld.so.cache": ldcache} if ldcache else {})
    assert binds(made) == {("/var/run/nvidia-persistenced/socket", "/var/run/nvidia-persistenced/socket")}
    assert [f.code for f in made.findings] == ["like-ldcache"]


def test_the_socket_is_one_of_the_machine_and_not_of_the_driver_root() -> None:
    socket = "/var/run/nvidia-persistenced/socket"
    made = like("apptainer", ubuntu(), root="/run/nvidia/driver", dev={**kernel(), socket: Socket()})
    assert (socket, socket) in binds(made)
    lib = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    assert (f"/run/nvidia/driver{lib}", f"{LIBS}/libcuda.so.1") in binds(made)


def test_two_files_of_one_base_name_would_stop_the_program() -> None:
    names = [entry("libcuda.so.1", "/a/libcuda.so"), entry("libcuda.so", "/b/libcuda.so")]
    spec: Spec = {"/a/libcuda.so": elf("x"), "/b/libcuda.so": elf("x"), "/etc/ld.so.cache": build_ldcache(names)}
    assert [f.code for f in like("apptainer", spec).findings] == ["like-collision"]


def test_libraries_of_a_surrounding_container_come_first_to_apptainer_only() -> None:
    spec: Spec = {f"{LIBS}/libcuda.so.1": elf("libcuda.so.1"), f"{LIBS}/sub/libx.so.1": elf("libx.so.1")}
    nested = (f"{LIBS}/libcuda.so.1", f"{LIBS}/libcuda.so.1")
    assert nested in binds(like("apptainer", ubuntu(), spec))
    assert nested not in binds(like("singularity", ubuntu(), spec))


def test_no_device_is_bound_for_dev_is_whole() -> None:
    assert like("apptainer", ubuntu(), kernel()).devices == ()


def test_the_vendor_neutral_loaders_are_bound() -> None:
    spec: Spec = {
        "/usr/lib64/libGL.so.1": elf("libGL.so.1"),
        "/etc/ld.so.cache": build_ldcache([entry("libGL.so.1", "/usr/lib64/libGL.so.1")]),
    }
    assert {t for _, t in binds(like("singularity", spec))} == {f"{LIBS}/libGL.so.1"}


def test_apptainer_is_1_4_and_an_unknown_flavour_is_refused() -> None:
    assert like("apptainer", ubuntu()).request.like == "apptainer-1.4"
    with pytest.raises(UsageError) as caught:
        like("podman", ubuntu())
    known = "apptainer, apptainer-1.4, apptainer-1.5, apptainer-1.6, singularity"
    assert (caught.value.code, caught.value.what) == ("unknown-flavour", "unknown flavour `podman`")
    assert caught.value.hint == f"known: {known}"
    with pytest.raises(UsageError) as without:
        plan(host(ubuntu()), Request(like="singularity", vendors=("intel",)))
    assert (without.value.code, without.value.what, without.value.hint) == (
        "like-without-flag",
        "SingularityCE 4.5 has no flag for the GPUs of vendor `intel`",
        "leave --like out, or ask for NVIDIA's or AMD's",
    )


# --rocm.

ROCM = {"/usr/lib64/libamdocl64.so": elf("libamdocl64.so"), "/usr/lib64/libamdhip64.so.5": elf("libamdhip64.so.5")}
ROCM_CACHE: Spec = {
    **ROCM,
    "/usr/lib64/libhsakmt.so.1": elf("libhsakmt.so.1"),
    "/usr/bin/rocminfo": PROGRAM,
    "/etc/ld.so.cache": build_ldcache(
        [entry("libhsakmt.so.1"), entry("libcuda.so.1"), entry("libamdocl64.so"), entry("libamdhip64.so.5")]
    ),
    "/usr/lib64/libcuda.so.1": elf("libcuda.so.1"),
}


def like_vendors(flavour: str, *vendors: Vendor, **spec: Item) -> Plan:
    return plan(host(ROCM_CACHE, spec, environ={"PATH": "/usr/bin"}), Request(vendors=vendors, like=flavour))


def test_rocms_lists_have_as_many_names_as_those_releases() -> None:
    assert number_of_names("amd") == (16, 31)
    assert len(shipped_names(FLAVOURS["apptainer-1.6"], "amd")) == 16


def test_rocm_binds_what_its_list_names_and_nothing_of_nvidias() -> None:
    assert {t for _, t in binds(like_vendors("apptainer", "amd"))} == {f"{LIBS}/libamdocl64.so", "/usr/bin/rocminfo"}
    assert f"{LIBS}/libhsakmt.so.1" in {t for _, t in binds(like_vendors("singularity", "amd"))}


def test_both_flags_bind_both_lists_with_apptainer_and_one_with_singularity() -> None:
    both = like_vendors("apptainer", "nvidia", "amd")
    assert {m.vendor for m in both.mounts} == {"nvidia", "amd"}
    assert [planned.driver.vendor for planned in both.drivers] == ["nvidia", "amd"]
    one = like_vendors("singularity", "nvidia", "amd")
    assert {m.vendor for m in one.mounts} == {"nvidia"}
    assert [f.code for f in one.findings] == ["like-one-vendor"]


def test_rocms_own_list_file_counts() -> None:
    spec: dict[str, Item] = {"/etc/apptainer/rocmliblist.conf": "libamdhip64.so\n"}
    assert {t for _, t in binds(like_vendors("apptainer", "amd", **spec))} == {f"{LIBS}/libamdhip64.so.5"}
