"""Intel's devices and user space: what counts, what it is called, which nodes it has."""

from __future__ import annotations

import json

import pytest

import gpubind
from gpubind.errors import NothingToBindError
from gpubind.host.recorded import RecordedHost
from gpubind.inventory.intel import devices
from gpubind.model import Inventory, Plan, Request, Vendor
from gpubind.model.data import read_data
from gpubind.planner.planning import PlanQuery, plan_host
from tests.support.amd import LIB, debian, merged, opt
from tests.support.amd import kernel as amd_kernel
from tests.support.driver import kernel, ubuntu
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.intel import INTEGRATED, MAX_1550, gaudi, gpu, habanalabs, intel_host, npu, userspace
from tests.support.trees import Dir, Link, Node, Spec

ONE = gpu("0000:03:00.0", 0, 128)
OWN = gpu("0000:00:02.0", 1, 129, INTEGRATED)
OWN_LATER = gpu("0000:00:02.0", 2, 130, INTEGRATED)


def plan(*parts: Spec, vendors: tuple[Vendor, ...] = ()) -> Plan:
    return gpubind.plan(intel_host(*parts), Request(vendors=vendors))


def inventory(host: RecordedHost) -> Inventory:
    from gpubind.inventory.intel.inventory import read_inventory

    return read_inventory(host, Request())


def vendors(planned: Plan) -> list[Vendor]:
    return [one.driver.vendor for one in planned.drivers]


def test_gpus_are_in_the_order_of_their_addresses_whatever_their_driver() -> None:
    planned = plan(gpu("0000:4d:00.0", 0, 128), gpu("0000:03:00.0", 1, 129, "0xe20b", "xe"), OWN_LATER)
    assert [(one.pci, one.model) for one in planned.gpus] == [
        ("0000:00:02.0", "Intel Iris Xe Graphics (Raptor Lake-P)"),
        ("0000:03:00.0", "Intel Arc B580"),
        ("0000:4d:00.0", "Intel Arc A770"),
    ]


def test_a_gpu_that_the_table_lacks_is_called_by_its_pci_ids() -> None:
    (one,) = plan(gpu("0000:03:00.0", 0, 128, "0x1234")).gpus
    assert one.model == "Intel GPU 8086:1234"


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("0xb080", "Arc B390"),
        ("0xb081", "Arc B370"),
        ("0x56b0", "Arc Pro A30M"),
        ("0x56b2", "Arc Pro A60M"),
        ("0x64a0", "Arc Graphics (Lunar Lake)"),
        ("0x7d55", "Arc Graphics (Meteor Lake)"),
        ("0x7d45", "Meteor Lake graphics"),
        ("0x0b69", "Data Center GPU Max 1450"),
        ("0x1912", "Skylake graphics"),
    ],
)
def test_a_gpu_is_called_by_its_makers_name_or_by_its_platform(device: str, name: str) -> None:
    (one,) = plan(gpu("0000:00:02.0", 0, 128, device)).gpus
    assert one.model == f"Intel {name}"


def test_each_device_has_one_platform() -> None:
    table = json.loads(read_data("model/data/intel_gpus.json"))
    devices = [device for row in table["platforms"] for device in row["devices"].split()]
    assert len(devices) == len(set(devices))
    assert {name.partition(":")[2] for name in table["names"] if name.startswith("8086:")} <= set(devices)


def test_a_gpu_whose_ids_cannot_be_read_is_one_all_the_same() -> None:
    spec = {path: "\x1b[31m" if path.endswith("/device") and item == "0x56a0\n" else item for path, item in ONE.items()}
    (one,) = plan(spec).gpus
    assert one.model == "Intel GPU 8086:????"


def test_gaudi_is_counted_by_the_numbers_of_its_nodes() -> None:
    planned = plan(gaudi("0000:19:00.0", 1, uverbs=1), gaudi("0000:1a:00.0", 0))
    assert [(one.pci, one.render, one.model) for one in planned.gpus] == [
        ("0000:1a:00.0", "/dev/accel/accel0", "Intel Gaudi 2"),
        ("0000:19:00.0", "/dev/accel/accel1", "Intel Gaudi 2"),
    ]
    assert {node.target: node.gpu for node in planned.devices} == {
        "/dev/accel/accel0": 0,
        "/dev/accel/accel_controlD0": 0,
        "/dev/accel/accel1": 1,
        "/dev/accel/accel_controlD1": 1,
        "/dev/infiniband/uverbs1": 1,
    }


def test_an_npu_is_no_gpu_and_its_node_goes_with_any() -> None:
    planned = gpubind.plan(intel_host(ONE, npu()), Request(gpus="0"))
    assert [node.target for node in planned.devices] == ["/dev/accel/accel0", "/dev/dri/card0", "/dev/dri/renderD128"]
    assert len(planned.gpus) == 1


def test_other_devices_of_infiniband_are_not_gaudis() -> None:
    planned = plan(gaudi("0000:19:00.0", 0, uverbs=3), {"/dev/infiniband/uverbs0": gaudi("", 0)["/dev/accel/accel0"]})
    assert "/dev/infiniband/uverbs0" not in {node.target for node in planned.devices}


def test_the_graphics_of_a_processor_count_where_no_other_gpu_is() -> None:
    assert vendors(plan(OWN)) == ["intel"]
    assert vendors(plan(ubuntu(), kernel(), OWN)) == ["nvidia"]
    assert vendors(plan(ubuntu(), kernel(), OWN, vendors=("nvidia", "intel"))) == ["nvidia", "intel"]


def test_a_card_of_intels_counts_beside_nvidias() -> None:
    assert vendors(plan(ubuntu(), kernel(), ONE, OWN)) == ["nvidia", "intel"]


def test_rocms_packages_without_amdgpu_do_not_hide_the_graphics_of_a_processor() -> None:
    assert vendors(plan(debian(), OWN)) == ["intel"]


def test_the_directory_of_links_by_address_is_bound() -> None:
    (mount,) = plan(ONE).mounts
    assert (mount.target, mount.kind, mount.source) == ("/dev/dri/by-path", "directory", "/dev/dri/by-path")


@pytest.mark.parametrize("target", ["/etc", "/"])
def test_a_link_in_its_place_that_leaves_dev_is_not_bound(target: str) -> None:
    spec = {path: item for path, item in ONE.items() if not path.startswith("/dev/dri/by-path")}
    assert plan(spec, {"/dev/dri/by-path": Link(target), "/etc/passwd": "x"}).mounts == ()


WITHOUT_DRIVER = {path: item for path, item in ONE.items() if "/drivers/" not in path and "/dri/" not in path}
WITHOUT_NODE = {path: item for path, item in ONE.items() if "/dri/" not in path}
LOG = "the kernel log (`dmesg`) says why a driver does not take a device"
LOADED: Spec = {f"/sys/module/{name}": Dir() for name in ("i915", "xe", "habanalabs")}
ARC = "Intel Arc A770 at 0000:03:00.0"
NONE = "none of these drivers has a device"


@pytest.mark.parametrize(
    ("spec", "why", "hint"),
    [
        (
            WITHOUT_DRIVER,
            f"{ARC}: no kernel driver has it",
            f"load xe or habanalabs; a newer kernel may know the device; {LOG}",
        ),
        (
            WITHOUT_NODE,
            f"{ARC}: /dev has no node of it",
            f"load xe or habanalabs; a newer kernel may know the device; {LOG}",
        ),
        ({}, NONE, f"load i915 or xe or habanalabs; {LOG}"),
        (LOADED, NONE, LOG),
        ({"/dev/dxg": Node("char", 10, 125)}, NONE, "in WSL, Intel's GPUs are not planned"),
    ],
    ids=["no-driver", "no-node", "none", "loaded", "windows"],
)
def test_a_host_without_a_usable_device_is_told_why_and_what_to_load(spec: Spec, why: str, hint: str) -> None:
    with pytest.raises(NothingToBindError) as raised:
        plan(spec, vendors=("intel",))
    error = raised.value
    assert (error.code, error.what) == ("nothing-to-bind", "no device of Intel's that a program could use")
    where = ", ".join(f"/sys/bus/pci/drivers/{name}" for name in ("i915", "xe", "habanalabs"))
    assert (error.where, error.why, error.hint) == (where, why, hint)


def test_a_device_without_a_driver_is_named_where_nothing_else_is_there() -> None:
    with pytest.raises(NothingToBindError) as raised:
        plan(WITHOUT_DRIVER)
    assert f"{ARC}: no kernel driver has it" in raised.value.why


def test_in_windows_nobody_is_told_to_load_amdgpu() -> None:
    with pytest.raises(NothingToBindError) as raised:
        plan({"/dev/dxg": Node("char", 10, 125)}, vendors=("amd",))
    hint = "with AMD's GPUs: install ROCm with librocdxg, or name ROCm's place with ROCM_PATH or --root"
    assert raised.value.hint == hint


def test_what_is_known_of_each_device_is_by_its_pci_ids() -> None:
    host = intel_host(ONE, OWN, gaudi("0000:19:00.0", 0), gpu("0000:04:00.0", 3, 131, "0x1234"))

    def known(address: str) -> tuple[object, ...]:
        releases = [devices.release_for(host, address, component) for component in ("compute", "media")]
        found = devices.platform(host, address), devices.device_id(host, address), devices.read_name(host, address)
        return (*found, *releases)

    iris = "Intel Iris Xe Graphics (Raptor Lake-P)"
    assert known("0000:03:00.0") == ("dg2", "56a0", "Intel Arc A770", ("25.05", "DG2"), ("24.3.4", "DG2"))
    releases = (("24.09", "Raptor Lake-P"), ("23.3.3", "Raptor Lake-P"))
    assert known("0000:00:02.0") == ("adlp", "a7a0", iris, *releases)
    assert known("0000:19:00.0") == (None, None, "Intel Gaudi 2", None, None)
    assert known("0000:04:00.0") == (None, "1234", "Intel GPU 8086:1234", None, None)
    assert known("0000:99:00.0") == (None, None, "Intel GPU ????:????", None, None)
    own = intel_host(gpu("0000:00:02.0", 0, 128, "0x1234"))
    assert devices.read_name(own, "0000:00:02.0") == "Intel integrated GPU 8086:1234"


def test_platforms_are_from_the_oldest_and_some_have_an_earlier_name() -> None:
    assert devices.platforms()[:4] == ("bdw", "skl", "bxt", "glk")
    assert devices.device_ids("bdw") == frozenset()
    assert devices.device_ids("skl") | devices.device_ids("bxt") == devices.device_ids("bxt")
    assert {"1602", "e20b"} <= devices.device_ids()
    assert ("1602" in devices.device_ids("skl"), "e20b" in devices.device_ids("bmg")) == (True, False)
    assert [devices.platform_aliases(name) for name in ("arl", "mtl")] == [("mtl",), ()]


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (24595, "mtl arl lnl bmg ptl nvls nvlp cri xe"),
        (24596, ""),
        (39121, ""),
        (39122, "bdw skl bxt glk kbl cfl icllp ehl"),
        (39123, "bdw skl bxt glk kbl cfl icllp ehl"),
    ],
)
def test_a_build_of_the_compute_runtime_lacks_newer_and_older_platforms(build: int, names: str) -> None:
    assert devices.unsupported_platforms(build) == tuple(names.split())


def test_devices_have_their_nodes_and_tiles_in_one_order() -> None:
    parts = (ONE, OWN, gaudi("0000:19:00.0", 0, uverbs=5), npu(), gpu("0000:04:00.0", 3, 131, "0x1234"))
    found = inventory(intel_host(*parts))
    assert [(one.index, one.pci, one.minor, one.render) for one in found.gpus] == [
        (0, "0000:00:02.0", 129, "/dev/dri/renderD129"),
        (1, "0000:03:00.0", 128, "/dev/dri/renderD128"),
        (2, "0000:04:00.0", 131, "/dev/dri/renderD131"),
        (3, "0000:19:00.0", 0, "/dev/accel/accel0"),
    ]
    assert found.devices_per_gpu == (1, 1, 0, 1)
    dri = [(f"/dev/dri/{name}", at // 2) for at, name in enumerate(["card1", "renderD129", "card0", "renderD128"])]
    others = [("/dev/dri/card3", 2), ("/dev/dri/renderD131", 2)]
    accelerator = [("/dev/accel/accel_controlD0", 3), ("/dev/infiniband/uverbs5", 3)]
    assert [(node.target, node.gpu) for node in found.devices] == [
        *dri,
        *others,
        ("/dev/accel/accel0", None),  # the NPU has it, too
        *accelerator,
    ]
    assert found.findings == ()


def test_a_gpu_whose_node_is_missing_is_not_counted() -> None:
    spec = {path: item for path, item in ONE.items() if path != "/dev/dri/renderD128"}
    assert [one.pci for one in plan(spec, OWN).gpus] == ["0000:00:02.0"]


def test_tiles_are_what_level_zero_counts() -> None:
    host = intel_host(gpu("0000:18:00.0", 0, 128, MAX_1550), gpu("0000:2a:00.0", 1, 129))
    assert inventory(host).devices_per_gpu == (2, 1)


def test_a_node_for_a_group_is_an_error_for_others_and_a_card_is_none() -> None:
    host = intel_host(ONE, groups=(1000,))
    found = {
        one.subject: one
        for one in gpubind.check(host, gpubind.plan(host, Request()))
        if one.code == "device-permission"
    }
    assert {subject: one.severity for subject, one in found.items()} == {
        "/dev/dri/card0": "note",
        "/dev/dri/renderD128": "error",
    }
    assert found["/dev/dri/renderD128"].hint == "become a member of group `render`"
    assert "Level Zero and OpenCL list no GPU" in (found["/dev/dri/renderD128"].why or "")


def test_the_user_space_is_planned_with_what_it_needs() -> None:
    planned = plan(userspace(), ONE, vendors=("intel",))
    names = {mount.soname for mount in planned.mounts if mount.kind == "library"}
    assert {"libze_loader.so.1", "libze_intel_gpu.so.1", "libigdrcl.so", "libigc.so.2", "libLLVM.so.19.1"} <= names
    (icd,) = (mount for mount in planned.mounts if mount.kind == "manifest")
    assert (icd.target, icd.content) == ("/etc/OpenCL/vendors/intel.icd", "libigdrcl.so\n")


def test_what_is_decided_of_devices_and_of_files_is_in_one_plan() -> None:
    odd: Spec = {"/dev/dri/card0": "a file", f"{LIB}/libze_loader.so.2": Link("gone")}
    planned = plan(userspace(), ONE, odd, vendors=("intel",))
    told = {(one.subject, one.verdict, one.rule) for one in planned.decisions}
    assert {
        ("/dev/dri/card0", "rejected", "no-device"),
        ("libze_loader.so.2", "rejected", "dangling"),
        ("libLLVM.so.19.1", "taken", "closure"),
        ("/dev/dri/renderD128", "taken", "devices"),
    } <= told
    only_nodes = {(one.subject, one.verdict, one.rule) for one in plan(userspace(), ONE, odd).decisions}
    assert ("/dev/dri/card0", "rejected", "no-device") in only_nodes


def test_without_a_vendor_option_only_the_nodes_are_planned_and_no_image_lacks_anything() -> None:
    host = intel_host(userspace(), ONE)
    planned = gpubind.plan(host, Request(), image=image(glibc("2.41")))
    assert [mount.target for mount in planned.mounts] == ["/dev/dri/by-path"]
    assert [finding.code for finding in planned.findings] == []
    told = {(one.verdict, one.rule, one.step, one.detail) for one in planned.decisions if one.verdict != "taken"}
    detail = "the host's user space was not asked for: --intel, or --userspace host"
    assert told == {("left-out", "not-asked", "choice", detail)}
    assert "libze_intel_gpu.so" in {one.subject for one in planned.decisions}
    asked = gpubind.plan(host, Request(userspace="host"))
    assert "libze_intel_gpu.so.1" in {mount.soname for mount in asked.mounts}


def test_a_loader_without_a_driver_stays() -> None:
    spec = {path: item for path, item in userspace().items() if "libze_intel_gpu" not in path and "igdrcl" not in path}
    planned = plan(spec, ONE, vendors=("intel",))
    assert [mount.target for mount in planned.mounts] == ["/dev/dri/by-path"]
    (why,) = (one for one in planned.decisions if one.subject == "libze_loader.so.1" and one.verdict == "left-out")
    assert (why.rule, why.step) == ("no-runtime", "search")
    assert why.detail == "this host has no Intel compute runtime that would need it"


def test_the_user_space_stays_where_all_devices_are_gaudis() -> None:
    detail = "the host has no GPU that Level Zero lists: Gaudi has other software, which is the image's"
    for devices_, details in (((gaudi("0000:19:00.0", 0),), {detail}), ((gaudi("0000:19:00.0", 0), ONE), set())):
        planned = plan(userspace(), *devices_, vendors=("intel",))
        assert {one.detail for one in planned.decisions if one.rule == "not-asked"} == details
    npus = plan(userspace(), gaudi("0000:19:00.0", 0), npu(number=1), vendors=("intel",))
    assert not [one for one in npus.decisions if one.rule == "not-asked"]


def test_the_kernel_drivers_that_have_a_device_are_named_with_their_versions() -> None:
    found = inventory(intel_host(ONE, gaudi("0000:19:00.0", 1), habanalabs()))
    assert found.driver.kernel_version == "i915, habanalabs 1.24.0-ee698fb, Linux 6.12.0"


def test_a_site_has_its_own_list_and_all_that_is_said_is_of_the_vendor() -> None:
    from gpubind.host import ListFile

    request = Request(vendors=("intel",), userspace="host")
    listed = ListFile("/etc/gpubind/intelliblist.conf", b"libze_intel_gpu.so\n", shipped=False)
    planned = plan_host(intel_host(userspace(), {"/etc/ld.so.cache": "damaged"}, ONE), PlanQuery(request, listed))
    assert "libze_loader.so.1" not in {mount.soname for mount in planned.mounts}
    assert any(one.subject.startswith("libze_loader") and one.verdict == "left-out" for one in planned.decisions)
    assert {one.vendor for one in planned.decisions} | {one.vendor for one in planned.findings} == {"intel"}
    assert "bad-ldcache" in [finding.code for finding in planned.findings]


def test_two_user_spaces_are_decided_each_by_itself() -> None:
    host = intel_host(opt(), amd_kernel(), userspace(), gpu("0000:f3:00.0", 40, 190))
    system = {f"{LIB}/{name}": elf(name) for name in ("libm.so.6", "libgcc_s.so.1", "libstdc++.so.6")}
    own = {
        "libamdhip64.so.6": {f"{LIB}/libze_intel_gpu.so.1": elf("libze_intel_gpu.so.1")},
        "libze_intel_gpu.so.1": {"/opt/rocm-6.1.0/lib/libhsa-runtime64.so.1": elf("libhsa-runtime64.so.1")},
    }
    for name, has in own.items():
        opened = image(glibc("2.38"), system, has)
        planned = gpubind.plan(host, Request(vendors=("amd", "intel")), image=opened)
        assert {mount.soname for mount in planned.mounts}.intersection(own) == {name}
        assert [one.code for one in planned.findings if one.code.startswith("userspace")] == []


def test_like_has_no_flag_for_it() -> None:
    with pytest.raises(gpubind.UsageError) as raised:
        gpubind.plan(intel_host(ONE), Request(vendors=("intel",), like="apptainer"))
    assert raised.value.code == "like-without-flag"


def test_all_parts_of_a_host_come_together() -> None:
    planned = plan(merged(userspace(), ONE, OWN, npu(), gaudi("0000:19:00.0", 1)))
    assert [one.index for one in planned.gpus] == [0, 1, 2]
    assert planned.drivers[0].driver.kernel_version == "i915, habanalabs, Linux 6.12.0"
