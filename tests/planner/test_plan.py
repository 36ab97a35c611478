"""From an inventory to a plan."""

from __future__ import annotations

from typing import Any

import pytest

from gpubind import plan
from gpubind.model import CAPABILITIES, ContainerPath, Mount, Plan, Request, finding
from gpubind.planner.plan import findings_that_matter
from gpubind.planner.planning import PlanQuery, plan_or_empty
from tests.planner.gpus.hosts import HOSTS
from tests.support.driver import V, host, kernel, libraries, rhel, ubuntu
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.trees import Link, Socket, Spec


def make(*parts: Spec, **request: Any) -> Plan:
    return plan(host(*(parts or (rhel(), kernel()))), Request(**request))


def mount(made: Plan, target: str) -> Mount:
    (found,) = [m for m in made.mounts if m.target == target]
    return found


def test_libraries_land_in_one_directory_and_programs_in_another() -> None:
    made = make()
    assert mount(made, "/.gpubind/libs/libcuda.so.1").source == f"/usr/lib64/libcuda.so.{V}"
    assert mount(made, "/.gpubind/bin/nvidia-smi").kind == "binary"


def test_libdir_moves_libraries_and_the_environment_with_them() -> None:
    made = make(libdir=ContainerPath("/opt/gpu"))
    assert mount(made, "/opt/gpu/libcuda.so.1")
    assert ("LD_LIBRARY_PATH", "prepend", "/opt/gpu") in [(e.name, e.op, e.value) for e in made.env]


def test_a_library_is_bound_once_for_each_of_its_names() -> None:
    targets = [m.target for m in make().mounts if m.soname == "libcuda.so.1"]
    assert targets == ["/.gpubind/libs/libcuda.so", "/.gpubind/libs/libcuda.so.1"]


def test_every_bind_of_a_file_is_read_only_without_devices_and_set_id() -> None:
    assert {m.options for m in make().mounts} == {("ro", "nosuid", "nodev")}


def test_a_socket_keeps_its_path() -> None:
    made = make(rhel(), kernel(), {"/run/nvidia-persistenced/socket": Socket()})
    assert mount(made, "/run/nvidia-persistenced/socket").options == ("nosuid", "nodev", "noexec")


def test_libcuda_and_nvml_are_required_and_nothing_else() -> None:
    assert {m.soname for m in make().mounts if m.required} == {"libcuda.so.1", "libnvidia-ml.so.1"}


@pytest.mark.parametrize(
    ("caps", "there", "not_there"),
    [
        (("utility",), "libnvidia-ml.so.1", "libcuda.so.1"),
        (("compute",), "libcuda.so.1", "libGLX_nvidia.so.0"),
        (("video",), "libcuda.so.1", "libnvidia-ml.so.1"),
        (("display",), "libGLX_nvidia.so.0", "libnvidia-ml.so.1"),
        (("graphics",), "libEGL_nvidia.so.0", "libcuda.so.1"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, tuple) else value,
)
def test_a_capability_brings_what_it_needs_and_no_other(caps: Any, there: str, not_there: str) -> None:
    made = make(caps=caps)
    names = {m.target.rpartition("/")[2] for m in made.mounts}
    assert there in names
    assert not_there not in names
    assert ("left-out", "capability") in [(d.verdict, d.rule) for d in made.decisions if d.subject == not_there]


def test_uvm_comes_with_compute_only() -> None:
    assert "/dev/nvidia-uvm" in [node.target for node in make(caps=("compute",)).devices]
    made = make(caps=("utility",))
    assert [node.target for node in made.devices] == ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"]
    assert ("left-out", "capability") in [(d.verdict, d.rule) for d in made.decisions if d.subject == "/dev/nvidia-uvm"]


def test_32_bit_libraries_land_apart_and_are_on_the_path_after_the_others() -> None:
    i386 = libraries("/usr/lib/i386-linux-gnu", machine=3, bits=32)
    made = make(rhel(), i386, kernel(), caps=CAPABILITIES)
    assert mount(made, "/.gpubind/libs32/libcuda.so.1").arch == "i386"
    paths = [e.value for e in made.env if e.name == "LD_LIBRARY_PATH"]
    assert paths == ["/.gpubind/libs", "/.gpubind/libs32"]


def test_loaders_are_told_of_gbm_and_vdpau_modules_only_if_planned() -> None:
    names = {e.name for e in make().env}
    assert {"GBM_BACKENDS_PATH", "VDPAU_DRIVER_PATH"} <= names
    assert not {"GBM_BACKENDS_PATH", "VDPAU_DRIVER_PATH"} & {e.name for e in make(caps=("utility",)).env}


def test_a_manifest_with_an_absolute_library_path_is_rewritten() -> None:
    made = mount(make(), "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json")
    assert made.source is None
    assert made.content is not None
    assert '"library_path": "libGLX_nvidia.so.0"' in made.content
    assert made.size == len(made.content)


def test_a_manifest_with_a_soname_is_bound_as_it_is() -> None:
    icd: Spec = {"/usr/share/glvnd/egl_vendor.d/10_nvidia.json": '{"ICD": {"library_path": "libEGL_nvidia.so.0"}}'}
    assert mount(make(ubuntu(), icd, kernel()), "/usr/share/glvnd/egl_vendor.d/10_nvidia.json").content is None


def test_a_manifest_for_a_library_that_is_not_planned_is_bound_as_it_is() -> None:
    icd: Spec = {"/usr/share/glvnd/egl_vendor.d/10_nvidia.json": '{"ICD": {"library_path": "/opt/libEGL_other.so"}}'}
    assert mount(make(ubuntu(), icd, kernel()), "/usr/share/glvnd/egl_vendor.d/10_nvidia.json").content is None


def test_mounts_and_devices_are_sorted_by_target() -> None:
    made = make()
    assert [m.target for m in made.mounts] == sorted(m.target for m in made.mounts)
    assert [d.target for d in made.devices] == sorted(d.target for d in made.devices)


def test_every_mount_and_device_has_a_decision_that_says_where_it_lands() -> None:
    made = make()
    landed = {d.target for d in made.decisions if d.verdict == "taken"}
    assert landed == {m.target for m in made.mounts} | {d.target for d in made.devices}


def test_equal_nodes_have_equal_digests_whatever_names_the_machine() -> None:
    other = dict(kernel())
    for path, item in kernel().items():
        if isinstance(item, str):
            other[path] = item.replace("GPU-0000000", "GPU-9999999").replace("235 nvidia-uvm", "511 nvidia-uvm")
    assert make(rhel(), other).digest == make(rhel(), kernel()).digest


@pytest.mark.parametrize(
    "other",
    [
        (rhel("550.54.15"), kernel("550.54.15")),
        (rhel(), kernel(gpus=1)),
        ({**rhel(), f"/usr/lib64/libcuda.so.{V}": elf("libcuda.so.1", needed=("libz.so.1",))}, kernel()),
    ],
    ids=["version", "gpus", "size"],
)
def test_different_nodes_have_different_digests(other: tuple[Spec, ...]) -> None:
    assert make(*other).digest != make(rhel(), kernel()).digest


def test_the_root_is_the_prefix_of_every_source_and_changes_nothing_else() -> None:
    here = plan(host(rhel(), kernel()), Request())
    there = plan(host(rhel(), kernel(), root="/run/nvidia/driver"), Request())
    assert [m.source for m in there.mounts] == [m.source and f"/run/nvidia/driver{m.source}" for m in here.mounts]
    assert there.digest == here.digest


def test_where_there_is_nothing_to_bind_the_empty_plan_has_the_facts_of_the_image() -> None:
    opened = image(glibc())
    for given in (None, opened):
        made = plan_or_empty(host({}), PlanQuery(), given)
        assert (made.mounts, made.image) == ((), given and opened.facts)
        assert [finding.code for finding in made.findings] == ["nothing-to-bind"]


def test_two_files_that_want_one_place_are_resolved_not_fatal() -> None:
    # The same manifest name below /usr/share and /etc is two places; a program in PATH twice is one.
    spec: Spec = {"/usr/sbin/nvidia-smi": elf(kind=2), "/usr/lib64/libcuda.so.1.x": Link("libcuda.so.1")}
    targets = [m.target for m in make(rhel(), spec, kernel()).mounts]
    assert len(targets) == len(set(targets))


@pytest.mark.parametrize("code", ["device-number", "device-permission", "other"])
def test_a_finding_about_a_node_matters_if_the_container_gets_the_node(code: str) -> None:
    (inventory,) = HOSTS["two-drm"]
    node = next(node for node in inventory.devices if node.capability == "graphics")
    about = finding("device-permission", subject=node.target, vendor="nvidia", mode=0o600, owner="video")
    found = inventory._replace(findings=(about._replace(code=code, severity="warning"),))

    def severities(**request: Any) -> list[str]:
        return [one.severity for one in findings_that_matter(found, Request(**request))]

    assert severities(caps=("compute",)) == (["warning"] if code == "other" else [])
    assert severities() == (["note"] if code == "device-permission" else ["warning"])
    assert severities(caps=("graphics",)) == ["warning"]
    assert severities(caps=("display",)) == ["warning"]  # which needs graphics
