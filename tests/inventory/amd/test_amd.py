"""AMD's inventory: which ROCm, what it needs, which devices."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Optional

import pytest

import gpubind
from gpubind import plan
from gpubind.errors import NothingToBindError
from gpubind.host import Host, ListFile
from gpubind.host.record import dump_record, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.inventory.amd import devices
from gpubind.inventory.amd.inventory import read_inventory
from gpubind.model import Plan, Request, RootedPath, Vendor
from gpubind.model.data import read_data
from tests.support.amd import (
    BUSES,
    DESCRIPTION,
    LIB,
    RENDER,
    UNIQUE_IDS,
    VIDEO,
    alternatives,
    amd_host,
    cached,
    core_sdk,
    debian,
    drm_device,
    kernel,
    kfd_node,
    merged,
    mi300x,
    of_pci,
    opt,
    partition,
    system,
    unserved,
    xcp_device,
)
from tests.support.amd import rocm as amd_packages
from tests.support.driver import host as nvidia_host
from tests.support.driver import kernel as nvidia_kernel
from tests.support.driver import rhel
from tests.support.elf import elf
from tests.support.surveys import survey
from tests.support.trees import Hidden, Link, Node, Spec, make_tree

AMD: tuple[Vendor, ...] = ("amd",)
NODES = "/sys/class/kfd/kfd/topology/nodes"


def planned(*parts: Spec, environ: Optional[dict[str, str]] = None, **request: Any) -> Plan:
    return plan(amd_host(*parts, environ=environ), Request(**{"vendors": AMD, **request}))


def names(made: Plan) -> set[str]:
    return {mount.target.rpartition("/")[2] for mount in made.mounts if mount.kind == "library"}


def sources(made: Plan) -> dict[str, str]:
    return {m.target.rpartition("/")[2]: m.source or "" for m in made.mounts if m.kind == "library"}


def rules(made: Plan, subject: str) -> list[tuple[str, str]]:
    return [(d.verdict, d.rule) for d in made.decisions if d.subject == subject]


def codes(made: Plan) -> list[str]:
    return [finding.code for finding in made.findings]


# What is planned.


def test_what_a_program_links_or_opens_is_planned_with_all_that_it_needs() -> None:
    made = planned(debian(), kernel())
    roots = {"libamdhip64.so.5", "libhsa-runtime64.so.1", "libhsakmt.so.1", "libamd_comgr.so.2", "libamdocl64.so"}
    needed = {"libLLVM-17.so.1", "libelf.so.1", "libz.so.1", "libtinfo.so.6", "libstdc++.so.6", "libgcc_s.so.1"}
    assert roots | needed <= names(made)
    assert rules(made, "libLLVM-17.so.1") == [("taken", "closure")]
    assert rules(made, "libamdhip64.so.5") == [("taken", "liblist")]


def test_the_c_library_is_never_planned() -> None:
    assert not {name for name in names(planned(debian(), kernel())) if name.startswith(("libc.", "libm.", "ld-"))}


def test_what_libraries_open_by_path_is_planned_where_they_look_for_it() -> None:
    targets = {mount.target for mount in planned(debian(), kernel()).mounts}
    assert {"/usr/share/libdrm/amdgpu.ids", "/etc/OpenCL/vendors/amdocl64.icd"} <= targets


def test_a_script_stays_and_a_program_goes() -> None:
    made = planned(debian(), kernel())
    assert rules(made, "rocm-smi") == [("left-out", "script")]
    assert rules(made, "rocminfo") == [("taken", "liblist")]


def test_a_dependency_goes_with_the_capability_that_needs_it() -> None:
    made = planned(debian(), kernel(), caps=("utility",))
    assert "librocm_smi64.so.1" in names(made)
    assert "libstdc++.so.6" in names(made)
    assert not {"libamdhip64.so.5", "libLLVM-17.so.1"} & names(made)


def test_what_the_host_lacks_is_named_and_who_needs_it() -> None:
    spec = {path: item for path, item in debian().items() if path != f"{LIB}/libLLVM-17.so.1"}
    made = planned(spec, kernel())
    absent = next(d for d in made.decisions if d.subject == "libLLVM-17.so.1")
    assert (absent.verdict, absent.named_by, absent.named_at) == ("absent", "closure", "needed by libamd_comgr.so.2")
    assert absent.detail == "this host has no such library; the image may have one"


def test_a_dependency_under_two_names_is_one_file_of_both() -> None:
    def runtime(name: str, *needed: str) -> Spec:
        return {f"{LIB}/{name}": elf(name, needed=needed)}

    spec = merged(
        *(
            system(),
            runtime("libhsa-runtime64.so.1", "libx.so.1"),
            runtime("libamdhip64.so.6", "libx.so.2", "liby.so.1"),
        ),
        {f"{LIB}/libx.so.3": elf("libx.so.3"), f"{LIB}/liby.so.1": elf(None)},
        {f"{LIB}/libx.so.{number}": Link("libx.so.3") for number in (1, 2)},
    )
    inventory = read_inventory(amd_host(spec, cached(spec, LIB), kernel()), Request(vendors=AMD))
    x, y = sorted(
        (f for f in inventory.files if f.path.startswith((f"{LIB}/libx", f"{LIB}/liby"))), key=lambda f: f.path
    )
    assert (x.path, x.names, x.soname, y.names, y.soname) == (
        *(f"{LIB}/libx.so.3", ("libx.so.1", "libx.so.2"), "libx.so.3"),
        *(("liby.so.1",), "liby.so.1"),
    )
    for file, consumer in ((x, "libhsa-runtime64.so.1"), (y, "libamdhip64.so.6")):
        assert (file.named_by, file.named_at, file.capability) == ("closure", f"needed by {consumer}", "compute")
        assert (file.kind, file.vendor, file.group, file.arch) == ("library", "amd", "rocm", "x86_64")


def test_a_program_comes_with_its_dependencies_and_a_loader_of_all_vendors_without() -> None:
    spec = {
        **debian(),
        "/usr/bin/rocminfo": elf(kind=2, needed=("libof-program.so.1",)),
        f"{LIB}/libof-program.so.1": elf("libof-program.so.1"),
        f"{LIB}/libOpenCL.so.1": elf("libOpenCL.so.1", needed=("libof-loader.so.1",)),
        f"{LIB}/libof-loader.so.1": elf("libof-loader.so.1"),
    }
    found = names(planned({**spec, **cached(spec, LIB)}, kernel()))
    assert ("libof-program.so.1" in found, "libof-loader.so.1" in found) == (True, False)


def test_a_dependency_of_another_release_is_rejected() -> None:
    runtime = elf("libhsa-runtime64.so.1", needed=("libodd.so.1",), runpath="/opt/rocm-6.2.4/lib")
    other = "/opt/rocm-6.2.4/lib/libodd.so.1"
    both = {"/opt/rocm-6.1.2/lib/libhsa-runtime64.so.1": runtime, other: elf("libodd.so.1")}
    made = planned(opt("6.1.2", "6.2.4"), both, kernel())
    (decision,) = [decision for decision in made.decisions if decision.subject == "libodd.so.1"]
    assert (decision.verdict, decision.rule, decision.path) == ("rejected", "other-rocm", other)
    assert decision.detail == "of another ROCm than the one that serves"


def test_a_runpath_comes_before_the_cache_and_an_rpath_before_both() -> None:
    def runtime(**tags: str) -> Spec:
        spec = merged(
            system(),
            {
                f"{LIB}/libhsa-runtime64.so.1": elf("libhsa-runtime64.so.1", needed=("libelf.so.1",), **tags),  # type: ignore[arg-type]
                "/private/libelf.so.1": elf("libelf.so.1"),
            },
        )
        return {**spec, **cached(spec, LIB)}

    for tags in ({"rpath": "/private"}, {"runpath": "/private"}, {"runpath": "$ORIGIN/../../../private"}):
        assert sources(planned(runtime(**tags), kernel()))["libelf.so.1"] == "/private/libelf.so.1"
    assert sources(planned(runtime(), kernel()))["libelf.so.1"] == f"{LIB}/libelf.so.1"


def test_a_library_of_another_machine_is_passed_over() -> None:
    spec = merged(debian(), {"/private/libelf.so.1": elf("libelf.so.1", machine=183)})
    spec[f"{LIB}/libhsakmt.so.1"] = elf("libhsakmt.so.1", needed=("libelf.so.1",), runpath="/private")
    assert sources(planned(spec, kernel()))["libelf.so.1"] == f"{LIB}/libelf.so.1"


def test_libraries_that_need_each_other_are_planned() -> None:
    spec = debian()
    loop = {
        f"{LIB}/libelf.so.1": elf("libelf.so.1", needed=("libz.so.1",)),
        f"{LIB}/libz.so.1": elf("libz.so.1", needed=("libelf.so.1",)),
    }
    assert {"libelf.so.1", "libz.so.1"} <= names(planned(spec, loop, kernel()))


def test_red_hats_directory_serves() -> None:
    spec = {path.replace(LIB, "/usr/lib64"): item for path, item in debian().items() if "ld" not in path}
    made = planned(spec, {**cached(spec, "/usr/lib64")}, kernel())
    assert sources(made)["libamdhip64.so.5"].startswith("/usr/lib64/")
    assert "libLLVM-17.so.1" in names(made)


# Which ROCm.


def test_opt_rocm_serves_though_the_ld_cache_does_not_know_it() -> None:
    made = planned(opt(), kernel())
    assert sources(made)["libamdhip64.so.6"] == "/opt/rocm-6.2.4/lib/libamdhip64.so.6.2.60204"
    assert made.drivers[0].driver.version == "6.2.4"
    assert "librocprofiler-register.so.0" in names(made)


def test_of_two_releases_one_serves_and_the_other_is_named() -> None:
    made = planned(opt("6.1.2", "6.2.4"), kernel())
    assert made.drivers[0].driver.version == "6.1.2"
    assert not [source for source in sources(made).values() if "6.2.4" in source]
    assert rules(made, "/opt/rocm-6.2.4") == [("left-out", "other-rocm")]


@pytest.mark.parametrize(
    ("spec", "environ", "request_", "serves", "why"),
    [
        (opt("6.1.2", "6.2.4"), {}, {}, "6.1.2", "/opt/rocm"),
        (opt("6.1.2", "6.2.4"), {"ROCM_PATH": "/opt/rocm-6.2.4"}, {}, "6.2.4", "ROCM_PATH=/opt/rocm-6.2.4"),
        (
            *(opt("6.1.2", "6.2.4"), {}, {"library_path": ("/opt/rocm-6.2.4/lib",)}),
            *("6.2.4", "--library-path /opt/rocm-6.2.4/lib"),
        ),
        (
            {path: item for path, item in opt("6.1.2", "6.2.4").items() if path != "/opt/rocm"},
            *({}, {}, "6.2.4", "the newest of /opt/rocm-*"),
        ),
    ],
)
def test_why_a_release_serves_is_told_with_the_others(
    spec: Spec, environ: dict[str, str], request_: dict[str, Any], serves: str, why: str
) -> None:
    made = planned(spec, kernel(), environ=environ, **request_)
    (other,) = {"6.1.2", "6.2.4"} - {serves}
    (decision,) = [decision for decision in made.decisions if decision.subject == f"/opt/rocm-{other}"]
    detail = f"/opt/rocm-{serves} serves ({why}); name another with ROCM_PATH"
    assert (decision.subject, decision.path, decision.detail) == (f"/opt/rocm-{other}", f"/opt/rocm-{other}", detail)
    assert (decision.vendor, decision.step) == ("amd", "search")
    lib = f"/opt/rocm-{serves}/lib"
    amdgpu = "/opt/amdgpu/lib/x86_64-linux-gnu"
    known = ("ld.so.cache", lib, amdgpu, LIB, "/usr/lib64", "/usr/lib", "/", f"/opt/rocm-{other}/lib")
    named = (lib,) if request_ else ()
    assert made.drivers[0].searched == (lib, *known, *named)


@pytest.mark.parametrize("path", ["/opt/rocm-6.2.4", "/opt/rocm-6.2.4/"])
def test_rocm_path_chooses(path: str) -> None:
    made = planned(opt("6.1.2", "6.2.4"), kernel(), environ={"ROCM_PATH": path})
    assert made.drivers[0].driver.version == "6.2.4"
    assert not [source for source in sources(made).values() if "6.1.2" in source]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/opt/rocm-5.0.0", "absent"),
        ("opt/rocm", "absent: no absolute path"),
        ("/etc", "no libhsa-runtime64 and no libamdhip64 in its lib"),
    ],
)
def test_a_rocm_path_that_leads_nowhere_is_a_finding_and_another_serves(path: str, why: str) -> None:
    made = planned(opt(), kernel(), environ={"ROCM_PATH": path})
    (finding,) = [finding for finding in made.findings if finding.code == "rocm-path"]
    assert (finding.subject, finding.where, finding.why) == ("ROCM_PATH", f"the environment: ROCM_PATH={path}", why)
    instead = "ROCM_PATH does not name a ROCm directory on this host; {} is used instead"
    assert finding.what == instead.format("/opt/rocm-6.2.4")
    assert made.drivers[0].driver.version == "6.2.4"
    of_packages = planned(debian(), kernel(), environ={"ROCM_PATH": path}).findings
    told = [finding.what for finding in of_packages if finding.code == "rocm-path"]
    assert told == [instead.format("the distribution's, if there is one")]


def test_without_opt_rocm_the_newest_release_serves_by_number() -> None:
    spec = merged(system(), amd_packages("/opt/rocm-6.9.1", "6.9.1"), amd_packages("/opt/rocm-6.10.0", "6.10.0"))
    assert planned(spec, cached(spec, LIB), kernel()).drivers[0].driver.version == "6.10.0"


CORES = merged(
    *(core_sdk(f"/opt/rocm/core-{release}", f"{release}.0") for release in ("7.13", "7.14")),
    *(system(), alternatives("/opt/rocm/core-7.13"), amd_packages("/opt/rocm-6.4.1", "6.4.1")),
)


@pytest.mark.parametrize(
    ("spec", "environ", "serves"),
    [
        (CORES, {}, "/opt/rocm/core-7.13"),  # to which /opt/rocm/lib leads
        (CORES, {"ROCM_PATH": "/opt/rocm"}, "/opt/rocm/core-7.13"),
        (CORES, {"ROCM_PATH": "/opt/rocm/core-7.14"}, "/opt/rocm/core-7.14"),
        (CORES, {"ROCM_PATH": "/opt/rocm-6.4.1"}, "/opt/rocm-6.4.1"),
        ({path: item for path, item in CORES.items() if path != "/opt/rocm/lib"}, {}, "/opt/rocm/core-7.14"),
        ({**CORES, **cached(CORES, "/opt/rocm/core-7.14/lib", LIB)}, {}, "/opt/rocm/core-7.14"),
    ],
)
def test_of_the_core_sdks_one_serves_with_its_own_dependencies_and_the_others_are_named(
    spec: Spec, environ: dict[str, str], serves: str
) -> None:
    made = planned(spec, kernel(2), environ=environ)
    releases = ("/opt/rocm-6.4.1", "/opt/rocm/core-7.13", "/opt/rocm/core-7.14")
    assert {one for one in releases for path in sources(made).values() if path.startswith(f"{one}/")} == {serves}
    assert [one for one in releases if rules(made, one)] == [one for one in releases if one != serves]
    assert (made.drivers[0].driver.version or "").startswith(serves.rpartition("-")[2])
    (six, *_) = rules(made, "libamdhip64.so.6")
    assert six == (("taken", "liblist") if "6.4" in serves else ("rejected", "other-rocm"))
    if "core" in serves:
        assert sources(made)["librocm_sysdeps_drm.so.2"] == f"{serves}/lib/rocm_sysdeps/lib/librocm_sysdeps_drm.so.2"


MODULE = {**opt("5.7.1"), **amd_packages("/apps/rocm/6.2.4", "6.2.4"), **amd_packages("/apps/hip", "6.2.4")}


@pytest.mark.parametrize("environ", [{}, {"ROCM_PATH": "/opt/rocm-5.7.1"}, {"ROCM_PATH": "/nowhere"}])
def test_a_release_whose_libraries_the_option_names_serves_alone(environ: dict[str, str]) -> None:
    made = planned(MODULE, kernel(2), environ=environ, library_path=("/apps/rocm/6.2.4/lib",))
    assert not [path for path in sources(made).values() if path.startswith("/opt/rocm")]
    assert made.drivers[0].driver.version == "6.2.4"
    assert rules(made, "/opt/rocm-5.7.1") == [("left-out", "other-rocm")]
    assert [code for code in codes(made) if code != "userspace-unknown"] == []


@pytest.mark.parametrize("directory", ["/apps/rocm/6.2.4/lib", "/apps/rocm/6.2.4/lib64", "/apps/rocm/6.2.4", "/gone"])
def test_a_record_with_the_option_answers_as_its_host(directory: str) -> None:
    spec = {path.replace("6.2.4/lib/", f"6.2.4/{directory[17:] or 'lib'}/"): item for path, item in MODULE.items()}
    request = Request(vendors=AMD, library_path=(RootedPath(directory),))
    machine = amd_host(spec, kernel(2))
    again = RecordedHost(parse_record(gpubind.record(machine, request=request).encode()), "test")
    assert plan(again, request) == plan(machine, request)


def test_the_number_of_libraries_without_an_image_is_that_of_the_plan() -> None:
    two = {path.replace("/apps/hip/lib", "/apps/hip/libraries"): item for path, item in MODULE.items()}
    for spec in (opt("6.2.4", "5.7.1"), debian(), {**debian(), **amd_packages("/opt/rocm-6.2.4", "6.2.4")}, CORES, two):
        for environ in ({}, {"ROCM_PATH": "/opt/rocm-6.2.4"}):
            made = planned(spec, kernel(2), environ=environ, library_path=("/apps/hip/libraries",))
            files = {mount.source for mount in made.mounts if mount.kind == "library"}
            (told,) = (one.what for one in made.findings if one.code == "userspace-unknown")
            assert told.startswith(f"{len(files)} libraries ")


def test_what_the_loader_finds_first_serves() -> None:
    spec = merged(opt("6.2.4", "6.1.2"))
    spec.update(cached(spec, "/opt/rocm-6.1.2/lib", LIB, "/opt/amdgpu/lib/x86_64-linux-gnu"))
    assert planned(spec, kernel()).drivers[0].driver.version == "6.1.2"


def test_a_root_is_a_prefix_for_all_of_it(tmp_path: Path) -> None:
    make_tree(tmp_path / "node", opt())
    made = plan(gpubind.LiveHost(str(tmp_path / "node"), str(tmp_path / "node")), Request(vendors=AMD))
    assert sources(made)["libamdhip64.so.6"] == f"{tmp_path}/node/opt/rocm-6.2.4/lib/libamdhip64.so.6.2.60204"
    assert sources(made)["libelf.so.1"] == f"{tmp_path}/node{LIB}/libelf.so.1"


# Devices.


def test_gpus_are_in_the_order_of_the_topology_with_their_ids() -> None:
    gpus = planned(opt(), kernel()).gpus
    assert [gpu.index for gpu in gpus] == list(range(8))
    assert [gpu.uuid for gpu in gpus] == [f"GPU-{unique:016x}" for unique in UNIQUE_IDS]
    assert [gpu.pci for gpu in gpus] == [f"0000:{bus:02x}:00.0" for bus in BUSES]
    assert gpus[1].render == "/dev/dri/renderD136"
    assert gpus[0].model == "AMD Instinct MI300X (gfx942)"


@pytest.mark.parametrize("bmc", [True, False])
def test_a_bmcs_display_shifts_nothing_and_is_not_planned(bmc: bool) -> None:
    made = planned(opt(), kernel(gpus=2, bmc=bmc))
    nodes = {node.target: node.gpu for node in made.devices}
    cards = ("/dev/dri/card1", "/dev/dri/card9") if bmc else ("/dev/dri/card0", "/dev/dri/card8")
    assert nodes == {
        "/dev/kfd": None,
        "/dev/dri/renderD128": 0,
        "/dev/dri/renderD136": 1,
        **dict(zip(cards, (0, 1))),
    }


@pytest.mark.parametrize("unique", [(7, 7, 8, 8), (7, 9, 8, 10)])
def test_the_partitions_of_a_gpu_are_gpus_at_its_one_address(unique: tuple[int, ...]) -> None:
    """CPX, DPX: KFD numbers them in the bits of the PCI function; newer kernels give each a unique_id of its own."""
    parts = [
        *(kfd_node(2 + at, 128 + at, bus=BUSES[at // 2], unique=unique[at], part=at % 2) for at in range(4)),
        *(drm_device(f"0000:{BUSES[at]:02x}:00.0", 1 + 2 * at, 128 + 2 * at) for at in range(2)),
        *(xcp_device(at, 2 + 2 * at, 129 + 2 * at) for at in range(2)),
    ]
    host = (opt(), kernel(gpus=0, bmc=False), *parts)
    made = planned(*host, partition("0000:26:00.0", "DPX", "NPS2"))
    assert [gpu.partition for gpu in made.gpus] == [None, None, "DPX/NPS2", "DPX/NPS2"]
    assert [(gpu.index, gpu.pci, gpu.minor) for gpu in made.gpus] == [
        (0, "0000:05:00.0", 128),
        (1, "0000:05:00.0", 129),
        (2, "0000:26:00.0", 130),
        (3, "0000:26:00.0", 131),
    ]
    both = ["/dev/kfd", "/dev/dri/renderD130", "/dev/dri/card3", "/dev/dri/renderD131", "/dev/dri/card4"]
    assert sorted(node.target for node in planned(*host, gpus="26:00.0").devices) == sorted(both)
    assert sorted(node.target for node in planned(*host, gpus="3").devices) == sorted([both[0], *both[3:]])
    by_variable = planned(*host, environ={"AMD_VISIBLE_DEVICES": "2-3"})
    assert sorted(node.target for node in by_variable.devices) == sorted(both)


def test_topology_nodes_count_as_numbers() -> None:
    parts = [kfd_node(number, 120 + number, bus=number) for number in (9, 10)]
    nodes = [drm_device(f"0000:{number:02x}:00.0", number, 120 + number) for number in (9, 10)]
    made = planned(opt(), *parts, *nodes, {"/sys/module/amdgpu/version": "6\n"})
    assert [gpu.minor for gpu in made.gpus] == [129, 130]


UNREAD: Spec = {
    f"{NODES}/4/properties": "nonsense\n",
    f"{NODES}/5/gpu_id": "7",
    f"{NODES}/5/properties": Hidden(),
    f"{NODES}/6/gpu_id": Hidden(),
    f"{NODES}/x/gpu_id": "3",
    f"{NODES}/1234567/gpu_id": "3",
}
UNUSABLE: tuple[Spec, ...] = (
    unserved("0000:a5:00.0", "0x74a1"),
    unserved("0000:a6:00.0", "0x1234", driver="radeon"),
    unserved("0000:a7:00.0", "0x74a1", driver="amdgpu"),
    unserved("0000:a8:00.0", "0x74a1", driver="amdgpu", **{"class": "0x020000"}),
)


def test_what_hides_a_node_of_the_topology_is_told_with_its_path() -> None:
    topology = devices.read_topology(amd_host(kernel(gpus=1), kfd_node(4, 130, bus=7), UNREAD))
    damaged = f"{NODES}/4/properties: line 1: not a name and a number: 'nonsense'"
    assert topology.hidden == (
        devices.HiddenNode(damaged, False),
        devices.HiddenNode(f"{NODES}/5: forbidden: permission denied", True),
        devices.HiddenNode(f"{NODES}/6: forbidden: permission denied", True),
    )
    assert [gpu.pci for gpu in topology.gpus] == ["0000:05:00.0"]


def test_a_gpu_that_rocm_cannot_use_is_named_with_the_reason() -> None:
    host = amd_host(kernel(gpus=1), *UNUSABLE)
    known = [
        ("0000:a5:00.0", "AMD Instinct MI300X", "no-driver"),
        ("0000:a6:00.0", None, "other-driver"),
        ("0000:a7:00.0", "AMD Instinct MI300X", "not-in-kfd"),
    ]
    assert list(devices.read_unusable(host)) == known
    assert list(devices.read_unusable(amd_host(kernel(gpus=1), *UNUSABLE, UNREAD))) == known[:2]
    without = {path: item for path, item in kernel(gpus=0).items() if "kfd" not in path}
    assert list(devices.read_unusable(amd_host(without, *UNUSABLE))) == known[:2]


def test_processors_of_the_topology_count_for_libhsakmt_and_are_no_gpus() -> None:
    host = amd_host(kernel(gpus=2))
    assert devices.read_processors(host) == {128: "gfx942", 136: "gfx942"}
    assert devices.read_render_minors(host) == (None, None, 128, 136)
    hidden = amd_host(kernel(gpus=2), {f"{NODES}/2/properties": Hidden()})
    assert (devices.read_processors(hidden), devices.read_render_minors(hidden)) == ({136: "gfx942"}, (None, None, 136))
    no_node = amd_host(kernel(gpus=1), {f"{NODES}/2/properties": "gfx_target_version 90402\n"})
    assert (devices.read_processors(no_node), devices.read_render_minors(no_node)) == (
        {None: "gfx942"},
        (None, None, 0),
    )


def test_without_a_topology_the_pci_bus_tells() -> None:
    spec = {path: item for path, item in kernel(gpus=2).items() if "kfd" not in path}
    made = planned(opt(), spec)
    assert [(gpu.pci, gpu.render, gpu.uuid) for gpu in made.gpus] == [
        ("0000:05:00.0", "/dev/dri/renderD128", None),
        ("0000:26:00.0", "/dev/dri/renderD136", None),
    ]


def one_gpu(device: int, revision: Optional[str], gfx: int, name: str = "ip discovery", *more: Spec) -> Optional[str]:
    """The model of the one GPU of a host; without a *revision* it is of a record that has none."""
    gpu = merged(kernel(gpus=0), kfd_node(2, 128, bus=5, gfx=gfx, device=device, name=name))
    drm = drm_device("0000:05:00.0", 1, 128, kind="0x030000")
    facts = of_pci("0000:05:00.0", **({} if revision is None else {"revision": revision}))
    (gpu_found,) = planned(opt(), gpu, drm, facts, *more).gpus
    return gpu_found.model


@pytest.mark.parametrize(
    ("device", "revision", "gfx", "model"),
    [
        (0x74A1, "0x00", 90402, "AMD Instinct MI300X (gfx942)"),
        (0x74A5, "0x00", 90402, "AMD Instinct MI325X (gfx942)"),
        (0x74B5, "0x00", 90402, "AMD Instinct MI300X VF (gfx942)"),
        (0x740F, "0x02", 90010, "AMD Instinct MI210 (gfx90a)"),
        (0x738C, "0x01", 90008, "AMD Instinct MI100 (gfx908)"),
        (0x75A3, "0x00", 90500, "AMD Instinct MI355X (gfx950)"),
        (0x7448, "0x00", 110000, "AMD Radeon Pro W7900 (gfx1100)"),
        (0x744C, "0xc8", 110000, "AMD Radeon RX 7900 XTX (gfx1100)"),
        (0x744C, "0xcc", 110000, "AMD Radeon RX 7900 XT (gfx1100)"),
        (0x1586, "0xc1", 110501, "AMD Radeon 8060S Graphics (gfx1151)"),
        (0x7550, "0xc3", 120001, "AMD Radeon RX 9070 (gfx1201)"),
    ],
)
def test_a_gpu_is_called_as_its_pci_device_and_revision(device: int, revision: str, gfx: int, model: str) -> None:
    assert one_gpu(device, revision, gfx) == model


def test_a_revision_matters_only_where_the_names_of_a_device_differ() -> None:
    assert one_gpu(0x74A1, None, 90402) == one_gpu(0x74A1, "0x7f", 90402) == "AMD Instinct MI300X (gfx942)"
    assert one_gpu(0x744C, None, 110000) == one_gpu(0x744C, "0x7f", 110000) == "gfx1100"


def test_a_processors_graphics_have_the_name_of_a_laptops_only_with_a_laptops_revision() -> None:
    assert one_gpu(0x164E, "0xd8", 100306) == "AMD Radeon 610M (gfx1036)"
    assert one_gpu(0x164E, "0xc1", 100306) == one_gpu(0x164E, None, 100306)
    assert one_gpu(0x164E, "0xc1", 100306) == "AMD Radeon Graphics (Raphael) (gfx1036)"
    ids = {"/usr/share/libdrm/amdgpu.ids": "1.0.0\n164E,\tC1,\tAMD Radeon(TM) Graphics\n"}
    assert one_gpu(0x164E, "0xc1", 100306, "ip discovery", ids) == "AMD Radeon(TM) Graphics (gfx1036)"


@pytest.mark.parametrize("path", ["/usr/share/libdrm/amdgpu.ids", "/opt/amdgpu/share/libdrm/amdgpu.ids"])
def test_the_hosts_own_table_has_the_name_of_a_gpu_that_ours_lacks_and_a_record_keeps_it(path: str) -> None:
    ids = {path: "# comment\n1.0.0\n7FFE,\tC0,\tAMD Radeon Next\n74A1,\t00,\tanother name\n"}
    assert one_gpu(0x7FFE, "0xc0", 130000, "ip discovery", ids) == "AMD Radeon Next (gfx1300)"
    assert one_gpu(0x7FFE, "0xc1", 130000, "ip discovery", ids) == "gfx1300"
    assert one_gpu(0x74A1, "0x00", 90402, "ip discovery", ids) == "AMD Instinct MI300X (gfx942)"
    host = amd_host(opt(), kernel(gpus=1), of_pci("0000:05:00.0", revision="0xc0"), ids)
    unknown = amd_host(
        opt(),
        kernel(gpus=0),
        kfd_node(2, 128, bus=5, device=0x7FFE),
        drm_device("0000:05:00.0", 1, 128),
        of_pci("0000:05:00.0", revision="0xc0", device="0x7ffe"),
        ids,
    )
    for each in (host, unknown):
        again = RecordedHost(parse_record(gpubind.record(each).encode()), "again")
        assert plan(again, Request(vendors=AMD)).gpus == plan(each, Request(vendors=AMD)).gpus


def test_an_older_kernels_name_of_a_chip_serves_where_no_table_has_one() -> None:
    assert one_gpu(0x7FFE, "0x00", 90006, "vega20") == "vega20 (gfx906)"


def test_the_name_of_every_gpu_that_is_found_by_discovery_is_not_a_model() -> None:
    assert one_gpu(0x7FFE, "0x00", 90402) == "gfx942"


def test_each_device_and_revision_has_one_name() -> None:
    names = json.loads(read_data("model/data/amd_gpus.json"))["names"]
    pairs = [
        (device, revision)
        for words in names.values()
        for device, _, revisions in (word.partition(":") for word in words.split())
        for revision in revisions.split(",")
    ]
    assert len(pairs) == len(set(pairs))
    assert all(re.fullmatch(r"[0-9a-f]{4}[0-9a-f]{0,2}", device + revision) for device, revision in pairs)
    assert not [name for name in names if not name.startswith(("AMD ", "ATI "))]


@pytest.mark.parametrize(
    ("compute", "memory", "mode"),
    [
        ("SPX", "NPS1", "SPX/NPS1"),
        ("CPX", "NPS4", "CPX/NPS4"),
        ("DPX", "", "DPX"),
        ("UNKNOWN", "NPS1", "NPS1"),
        ("UNKNOWN", "UNKNOWN", None),
        ("", "", None),
    ],
)
def test_a_gpu_has_the_mode_in_which_it_and_its_memory_are_divided(
    compute: str, memory: str, mode: Optional[str]
) -> None:
    host = (opt(), kernel(gpus=1), partition("0000:05:00.0", compute, memory))
    assert [gpu.partition for gpu in planned(*host).gpus] == [mode]
    again = RecordedHost(parse_record(dump_record(survey(amd_host(*host)), "1").encode()), "again")
    assert [gpu.partition for gpu in plan(again, Request(vendors=AMD)).gpus] == [mode]


def test_a_chip_without_an_id_has_no_uuid() -> None:
    assert planned(opt(), kernel(gpus=1), kfd_node(2, 128, bus=5, unique=0)).gpus[0].uuid is None


@pytest.mark.parametrize("text", ["nonsense\n", Hidden()])
def test_a_node_that_cannot_be_read_is_no_gpu_and_a_finding_of_check(text: Any) -> None:
    host = amd_host(opt(), kernel(gpus=2), {f"{NODES}/2/properties": text})
    made = plan(host, Request(vendors=AMD))
    assert [gpu.pci for gpu in made.gpus] == ["0000:26:00.0"]
    assert "kfd-hidden" in [finding.code for finding in gpubind.check(host, made)]


@pytest.mark.parametrize(
    ("groups", "findings"),
    [
        ((VIDEO, RENDER), []),
        ((RENDER,), [("note", "/dev/dri/card1", "video")]),
        (
            (VIDEO,),
            [("error", "/dev/dri/renderD128", "render"), ("error", "/dev/kfd", "render")],
        ),
    ],
)
def test_a_missing_group_is_a_finding_that_names_it(
    groups: tuple[int, ...], findings: list[tuple[str, str, str]]
) -> None:
    made = plan(amd_host(opt(), kernel(gpus=1), groups=(1000, *groups)), Request(vendors=AMD))
    found = [finding for finding in made.findings if finding.code == "device-permission"]
    assert [(f.severity, f.subject) for f in found] == [(severity, node) for severity, node, _ in findings]
    assert all(f"group `{group}`" in (f.hint or "") for f, (_, _, group) in zip(found, findings))


def test_a_node_with_another_number_than_the_kernels_is_an_error() -> None:
    made = planned(opt(), kernel(gpus=1), {"/dev/kfd": Node("char", 235, 0)})
    finding = next(f for f in made.findings if f.code == "device-number")
    assert (finding.severity, finding.vendor, "udevadm" in (finding.command or "")) == ("error", "amd", True)


@pytest.mark.parametrize(("version", "told"), [("6.8.5", "6.8.5"), (None, "Linux 6.12.0")])
def test_the_kernel_driver_is_in_the_plan(version: Optional[str], told: str) -> None:
    assert planned(opt(), kernel(version=version)).drivers[0].driver.kernel_version == told


def test_without_the_kernel_driver_the_user_space_is_planned_and_an_error_found() -> None:
    made = planned(opt())
    assert made.drivers[0].driver.kernel_version is None
    (finding,) = [finding for finding in made.findings if finding.severity == "error"]
    assert (finding.code, finding.subject) == ("driver-not-loaded", "amdgpu")
    assert finding.where == f"/sys/module/amdgpu, {NODES}"
    unused = planned(opt(), *ON_THE_BUS).findings
    (finding,) = [finding for finding in unused if finding.code == "driver-not-loaded"]
    buses = ", ".join(f"/sys/bus/pci/devices/0000:0{bus}:00.0" for bus in (5, 6))
    assert finding.where == f"/sys/module/amdgpu, {NODES}, {buses}"


# Whose host it is.


ON_THE_BUS = unserved("0000:05:00.0", "0x74a1"), unserved("0000:06:00.0", "0x1234", driver="radeon")
BOTH = "amdgpu is not loaded; on the PCI bus: 0000:05:00.0 (no driver), 0000:06:00.0 (other driver)"


@pytest.mark.parametrize(
    ("parts", "why", "remedy"),
    [
        ((), "amdgpu is not loaded", "load amdgpu"),
        (({"/dev/dxg": Node("char", 10, 125)},), "amdgpu is not loaded", "install ROCm with librocdxg"),
        (({"/sys/module/amdgpu/version": "6"},), "amdgpu has no GPU", "load amdgpu"),
        (ON_THE_BUS, BOTH, "load amdgpu"),
    ],
    ids=["none", "windows", "loaded", "unserved"],
)
def test_a_host_with_neither_is_told_where_nothing_was_found_and_why(
    parts: tuple[Spec, ...], why: str, remedy: str
) -> None:
    with pytest.raises(NothingToBindError) as caught:
        planned(system(), *parts)
    error = caught.value
    assert (error.code, error.what) == ("nothing-to-bind", "no ROCm library and no AMD device on this host")
    assert error.where == f"no usable ld.so.cache, {LIB}, /usr/lib64, /usr/lib, /, /dev/kfd, {NODES}"
    assert error.why == f"no file matches, and {why}"
    assert error.hint == f"with AMD's GPUs: {remedy}, or name ROCm's place with ROCM_PATH or --root"


def test_a_host_with_neither_is_nothing_to_bind() -> None:
    for vendors in ((), AMD):
        with pytest.raises(NothingToBindError):
            planned(system(), vendors=vendors)


def test_libdrm_and_libnuma_alone_are_no_rocm() -> None:
    made = planned(system(), {**cached(system(), LIB)}, kernel())
    assert names(made) == set()
    assert rules(made, "libnuma.so.1") == [("left-out", "no-rocm")]
    assert {d.detail for d in made.decisions if d.rule == "no-rocm"} == {"this host has no ROCm that would need it"}
    assert "/dev/kfd" in {node.target for node in made.devices}


def test_what_a_list_that_is_the_law_names_is_wanted_and_nothing_else() -> None:
    law = ListFile("/etc/gpubind/rocmliblist.conf", b"libnuma.so\n", shipped=False)
    made = plan(amd_host(system(), cached(system(), LIB), kernel()), Request(vendors=AMD), law)
    assert names(made) == {"libnuma.so.1"}
    made = plan(amd_host(opt(), kernel()), Request(vendors=AMD), law)
    assert names(made) == {"libnuma.so.1"}
    assert rules(made, "libamdhip64.so.6") == [("left-out", "not-in-list")]


def test_no_vendor_named_means_every_vendor_found() -> None:
    both = merged(rhel(), nvidia_kernel(), opt(), kernel())
    assert planned(both, vendors=()).request.vendors == ("nvidia", "amd")
    assert planned(opt(), kernel(), vendors=()).request.vendors == ("amd",)
    assert planned(opt(), vendors=()).request.vendors == ("amd",)
    # ROCm's libraries come with many a distribution: on NVIDIA's host they say nothing.
    assert planned(merged(rhel(), nvidia_kernel(), opt()), vendors=()).request.vendors == ("nvidia",)


def test_both_vendors_are_one_plan() -> None:
    made = planned(merged(rhel(), nvidia_kernel(), opt(), kernel(gpus=1)), vendors=("nvidia", "amd"))
    assert {"libcuda.so.1", "libamdhip64.so.6"} <= names(made)
    assert {"/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128"} <= {node.target for node in made.devices}
    assert [planned.driver.vendor for planned in made.drivers] == ["nvidia", "amd"]


def test_a_vendor_that_was_asked_for_and_is_not_there_is_an_error_finding() -> None:
    made = plan(nvidia_host(rhel(), nvidia_kernel()), Request(vendors=("nvidia", "amd")))
    assert [(f.code, f.vendor) for f in made.findings if f.severity == "error"] == [("nothing-to-bind", "amd")]


def test_nvidias_plan_is_the_same_beside_amds() -> None:
    alone = planned(merged(rhel(), nvidia_kernel()), vendors=("nvidia",))
    beside = planned(merged(opt(), kernel(), rhel(), nvidia_kernel()), vendors=("nvidia",))
    assert [m.target for m in alone.mounts] == [m.target for m in beside.mounts]


def test_a_link_out_of_the_root_and_a_loop_do_no_harm() -> None:
    spec = merged(opt(), {"/opt/rocm-7.0.0": Link("rocm-7.0.0"), "/opt/rocm-8.0.0": Link("../../..")})
    assert planned(spec, kernel()).drivers[0].driver.version == "6.2.4"


def test_a_damaged_library_is_planned_without_what_it_may_need() -> None:
    spec = merged(debian(), {f"{LIB}/libamd_comgr.so.2": b"\x7fELF" + bytes(60)})
    assert "libamdhip64.so.5" in names(planned(spec, kernel()))


# Records.


def again(host: Host) -> Host:
    """*host*, recorded and read back."""
    return RecordedHost(parse_record(dump_record(survey(host), "1").encode()), "test")


@pytest.mark.parametrize("spec", [opt("6.2.4", "6.1.2"), debian()], ids=["amd", "debian"])
def test_a_record_gives_the_plan_of_its_host(spec: Spec) -> None:
    host = amd_host(spec, kernel())
    assert plan(again(host), Request(vendors=AMD)) == plan(host, Request(vendors=AMD))


def test_the_host_that_ships_is_what_its_builder_makes_and_says_that_it_is_made_up() -> None:
    shipped = parse_record(read_data("model/data/hosts/mi300x-rocm62.json"))
    is_made = shipped == parse_record(gpubind.record(mi300x(), DESCRIPTION).encode())
    assert is_made, "run python -m tests.support.amd gpubind/model/data/hosts/mi300x-rocm62.json, and read `git diff`"
    assert "Made up" in shipped.description
