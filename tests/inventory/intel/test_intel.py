"""Intel's devices and user space: what counts, what it is called, which nodes it has."""

from __future__ import annotations

import json

import pytest

import gpubind
from gpubind.errors import NothingToBindError
from gpubind.host.recorded import RecordedHost
from gpubind.model import Inventory, Plan, Request, Vendor
from gpubind.model.data import read_data
from gpubind.planner.planning import PlanQuery, plan_host
from tests.support.amd import LIB, debian, merged, opt
from tests.support.amd import kernel as amd_kernel
from tests.support.driver import kernel, ubuntu
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.intel import INTEGRATED, MAX_1550, gaudi, gpu, intel_host, npu, userspace
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


def test_a_device_without_a_driver_is_named_where_nothing_else_is_there() -> None:
    spec = {path: item for path, item in ONE.items() if "/drivers/" not in path and "/dri/" not in path}
    with pytest.raises(NothingToBindError) as raised:
        plan(spec, vendors=("intel",))
    assert "Intel Arc A770 at 0000:03:00.0: no kernel driver has it" in raised.value.why
    with pytest.raises(NothingToBindError) as raised:
        plan(spec)
    assert "Intel Arc A770 at 0000:03:00.0: no kernel driver has it" in raised.value.why


def test_a_device_that_the_loaded_driver_does_not_take_may_need_a_newer_kernel() -> None:
    spec = {path: item for path, item in ONE.items() if "/drivers/" not in path and "/dri/" not in path}
    with pytest.raises(NothingToBindError) as raised:
        plan(spec, {"/sys/module/i915": Dir()}, vendors=("intel",))
    assert raised.value.hint.startswith("load xe or habanalabs; a newer kernel may know the device; ")


@pytest.mark.parametrize(("vendor", "hint"), [("intel", "Intel's GPUs are not planned"), ("amd", "librocdxg")])
def test_in_windows_nobody_is_told_to_load_a_kernel_driver(vendor: Vendor, hint: str) -> None:
    with pytest.raises(NothingToBindError) as raised:
        plan({"/dev/dxg": Node("char", 10, 125)}, vendors=(vendor,))
    assert hint in raised.value.hint
    assert "load " not in raised.value.hint


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


def test_without_a_vendor_option_only_the_nodes_are_planned_and_no_image_lacks_anything() -> None:
    host = intel_host(userspace(), ONE)
    planned = gpubind.plan(host, Request(), image=image(glibc("2.41")))
    assert [mount.target for mount in planned.mounts] == ["/dev/dri/by-path"]
    assert [finding.code for finding in planned.findings] == []
    (why,) = (one for one in planned.decisions if one.subject == "libze_intel_gpu.so")
    assert (why.verdict, why.rule) == ("left-out", "not-asked")
    asked = gpubind.plan(host, Request(userspace="host"))
    assert "libze_intel_gpu.so.1" in {mount.soname for mount in asked.mounts}


def test_a_loader_without_a_driver_stays() -> None:
    spec = {path: item for path, item in userspace().items() if "libze_intel_gpu" not in path and "igdrcl" not in path}
    planned = plan(spec, ONE, vendors=("intel",))
    assert [mount.target for mount in planned.mounts] == ["/dev/dri/by-path"]
    (why,) = (one for one in planned.decisions if one.subject == "libze_loader.so.1" and one.verdict == "left-out")
    assert why.rule == "no-runtime"


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
