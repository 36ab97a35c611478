"""A plan as a CDI spec: valid, for any host, and without what would harm a container."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import jsonschema
import pytest
import yaml

import gpubind
from gpubind import plan
from gpubind.documents.mounts.cdi import render_cdi
from gpubind.errors import RuntimeLimitError
from gpubind.formats.driver.cdi import parse_cdi
from gpubind.host import Host
from gpubind.host.recorded import RecordedHost
from gpubind.inventory.cdi.listing import list_cdi
from gpubind.model import HostPath, Plan, Request, Vendor
from gpubind.model.data import BUNDLED_HOSTS
from gpubind.planner import empty_plan
from gpubind.planner.placement import GPUBIND_LAYOUT, Layout, cdi_layout
from tests.support.amd import amd_host, drm_device, kfd_node, opt, xcp_device
from tests.support.amd import kernel as amds_kernel
from tests.support.driver import V, debian, host, kernel, libraries, rhel, run_directory, ubuntu
from tests.support.trees import Dir, Item, Link, Node, Socket, Spec
from tests.support.trees import record as recorded

DATA = Path(__file__).parent.parent / "data" / "cdi"
SCHEMA = jsonschema.Draft202012Validator(json.loads((DATA / "schema.json").read_text()))
X86 = cdi_layout("x86_64")
UUIDS = [f"GPU-0000000{n}-1111-2222-3333-444444444444" for n in (0, 1)]
HOOK = HostPath("/usr/bin/nvidia-cdi-hook")


def planned(on: Host, layout: Layout = X86, **request: Any) -> Plan:
    return plan(on, Request(**{"vendors": (), **request}), layout=layout)


def spec_of(made: Plan, hook: Optional[HostPath] = None) -> dict[str, Any]:
    """The spec of *made*, which must be valid by the schema and by our own reader."""
    staged = {mount.target: HostPath(f"/staged{mount.target}") for mount in made.mounts if mount.content is not None}
    text = render_cdi(made, staged, hook)
    spec: dict[str, Any] = json.loads(text)
    SCHEMA.validate(spec)
    parse_cdi(text.encode())
    assert yaml.safe_load(text) == spec
    assert render_cdi(made, staged, hook) == text
    return spec


def nodes(spec: dict[str, Any], name: str) -> list[str]:
    """The nodes that a device brings beside the common ones."""
    (device,) = [device for device in spec["devices"] if device["name"] == name]
    return [node["path"] for node in device["containerEdits"].get("deviceNodes", ())]


def targets(spec: dict[str, Any]) -> dict[str, str]:
    return {mount["containerPath"]: mount["hostPath"] for mount in spec["containerEdits"]["mounts"]}


@pytest.mark.parametrize("name", ["nvml", "nvml-json", "management"])
def test_the_schema_holds_for_real_specs(name: str) -> None:
    (file,) = (DATA / name).iterdir()
    SCHEMA.validate(yaml.safe_load(file.read_bytes()))


@pytest.mark.parametrize("layout", [ubuntu, rhel, debian, run_directory], ids=lambda layout: str(layout.__name__))
@pytest.mark.parametrize("module", [V, None], ids=["module", "no-module"])
@pytest.mark.parametrize("caps", [("compute",), ("compute", "utility", "graphics", "compat32")], ids=len)
def test_any_host_has_a_valid_spec(layout: Any, module: Optional[str], caps: tuple[str, ...]) -> None:
    spec = spec_of(planned(host(layout(), kernel(module)), caps=caps))
    assert [device["name"] for device in spec["devices"]] == ["0", UUIDS[0], "1", UUIDS[1], "all"]
    assert spec["kind"] == "nvidia.com/gpu"
    assert spec["cdiVersion"] == "0.5.0"


@pytest.mark.parametrize("name", BUNDLED_HOSTS)
def test_a_recorded_host_has_one(name: str) -> None:
    spec_of(planned(gpubind.open_host(name)))


def test_each_gpu_brings_its_own_nodes_and_all_brings_all() -> None:
    spec = spec_of(planned(gpubind.open_host("debian13-nvidia550")))
    first = ["/dev/dri/card0", "/dev/dri/renderD128", "/dev/nvidia0"]
    assert nodes(spec, "0") == nodes(spec, "GPU-00000000-0000-0000-0000-000000000000") == first
    assert nodes(spec, "1") == ["/dev/nvidia1"]
    assert nodes(spec, "all") == [*first, "/dev/nvidia1"]
    common = [node["path"] for node in spec["containerEdits"]["deviceNodes"]]
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm"} <= set(common)
    assert not set(common) & set(nodes(spec, "all"))


def test_nothing_that_a_reboot_changes_is_in_it() -> None:
    text = json.dumps(spec_of(planned(host(rhel(), kernel()))))
    for field in ("major", "minor", '"type"'):
        assert field not in text


def test_a_node_keeps_its_mode_and_group() -> None:
    spec = spec_of(planned(gpubind.open_host("debian13-nvidia550")))
    (device,) = [device for device in spec["devices"] if device["name"] == "0"]
    render = next(node for node in device["containerEdits"]["deviceNodes"] if "render" in node["path"])
    assert (render["fileMode"], render["gid"]) == (0o660, 105)


def test_no_variable_is_set_and_each_library_is_where_every_loader_looks() -> None:
    made = planned(gpubind.open_host("debian13-nvidia550"))
    spec = spec_of(made)
    assert made.env == ()
    assert "env" not in spec["containerEdits"]
    at = targets(spec)
    for name in {mount.target.rpartition("/")[2] for mount in made.mounts if mount.kind == "library"}:
        below = {"nvidia-drm_gbm.so": "gbm/", "libvdpau_nvidia.so.1": "vdpau/"}.get(name, "")
        assert at[f"/usr/lib/x86_64-linux-gnu/{below}{name}"] == at[f"/usr/lib64/{below}{name}"]
    assert at["/usr/bin/nvidia-smi"].endswith("/nvidia-smi")


@pytest.mark.parametrize(
    ("directories", "wanted"),
    [
        (None, ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"]),
        (("/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/lib64"), ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"]),
        (("/lib64", "/usr/lib64", "/lib", "/usr/lib"), ["/usr/lib64"]),
        (("/lib/x86_64-linux-gnu",), ["/usr/lib/x86_64-linux-gnu"]),
        (("/opt/lib",), ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"]),
    ],
)
def test_an_image_that_is_known_gets_the_directories_that_it_has(
    directories: Optional[tuple[str, ...]], wanted: list[str]
) -> None:
    assert list(cdi_layout("x86_64", directories).directories()) == wanted


def test_another_machine_has_directories_of_its_own() -> None:
    assert cdi_layout("aarch64").libdir == "/usr/lib/aarch64-linux-gnu"
    assert cdi_layout("x86_64").directories(compat32=True) == ("/usr/lib/i386-linux-gnu", "/usr/lib")


def test_libraries_of_32_bits_lie_beside_no_others() -> None:
    spec: Spec = {**libraries("/usr/lib/i386-linux-gnu", machine=3, bits=32)}
    made = planned(host(ubuntu(), spec, kernel()), caps=("compute", "compat32"))
    at = targets(spec_of(made))
    assert at["/usr/lib/i386-linux-gnu/libcuda.so.1"] == at["/usr/lib/libcuda.so.1"]
    assert at["/usr/lib/libcuda.so.1"] != at["/usr/lib64/libcuda.so.1"]


def test_files_are_read_only_and_sockets_are_not() -> None:
    socket: Spec = {"/run/nvidia-persistenced/socket": Socket()}
    spec = spec_of(planned(host(rhel(), kernel(), socket)))
    options = {mount["containerPath"]: mount["options"] for mount in spec["containerEdits"]["mounts"]}
    assert options["/usr/lib64/libcuda.so.1"] == ["ro", "nosuid", "nodev", "rbind", "rprivate"]
    assert options["/run/nvidia-persistenced/socket"] == ["nosuid", "nodev", "noexec", "rbind", "rprivate"]


MANIFEST = "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"


@pytest.mark.parametrize("directory", ["/usr/lib64", "/nix/store/x/lib"])
def test_a_manifest_is_made_anew_only_if_its_library_is_elsewhere(directory: str) -> None:
    """A generated file lies in somebody's home; a spec is for everybody."""
    text = json.dumps({"file_format_version": "1.0.1", "ICD": {"library_path": f"{directory}/libGLX_nvidia.so.0"}})
    at = targets(spec_of(planned(host(rhel(), kernel(), {MANIFEST: text}))))
    assert at[MANIFEST] == (MANIFEST if directory == "/usr/lib64" else f"/staged{MANIFEST}")


def test_another_driver_root_is_the_source_not_the_place() -> None:
    on = RecordedHost(recorded({**rhel(), **kernel()}, root="/run/nvidia/driver"), "test")
    spec = spec_of(planned(on))
    assert targets(spec)["/usr/lib64/libcuda.so.1"] == f"/run/nvidia/driver/usr/lib64/libcuda.so.{V}"
    (device,) = [device for device in spec["devices"] if device["name"] == "0"]
    assert device["containerEdits"]["deviceNodes"][0]["hostPath"] == "/run/nvidia/driver/dev/nvidia0"


def test_a_uuid_that_is_not_known_yet_is_no_name() -> None:
    text = "Model: X\nGPU UUID: GPU-????????-????-????-????-????????????\nBus Location: 0000:01:00.0\nDevice Minor: 0\n"
    unknown: Spec = {"/proc/driver/nvidia/gpus/0000:01:00.0/information": text}
    spec = spec_of(planned(host(rhel(), kernel(gpus=1), unknown)))
    assert [device["name"] for device in spec["devices"]] == ["0", "all"]


def test_a_gpu_that_was_not_chosen_is_no_device() -> None:
    made = planned(host(rhel(), kernel()))
    chosen = tuple(gpu._replace(chosen=gpu.index == 1) for gpu in made.gpus)
    without = tuple(node for node in made.devices if node.gpu != 0)
    spec = spec_of(made._replace(gpus=chosen, devices=without))
    assert [device["name"] for device in spec["devices"]] == ["1", UUIDS[1], "all"]
    assert nodes(spec, "all") == ["/dev/nvidia1"]


def test_the_node_of_an_excluded_gpu_comes_with_all_alone() -> None:
    path = "/proc/driver/nvidia/gpus/0000:02:00.0/information"
    text = "Model: X\nGPU UUID: GPU-1\nBus Location: 0000:02:00.0\nDevice Minor: 1\nGPU Excluded: Yes\n"
    spec = spec_of(planned(host(rhel(), kernel(), {path: text})))
    assert [device["name"] for device in spec["devices"]] == ["0", UUIDS[0], "all"]
    assert (nodes(spec, "0"), nodes(spec, "all")) == (["/dev/nvidia0"], ["/dev/nvidia0", "/dev/nvidia1"])
    assert "/dev/nvidia1" not in [node["path"] for node in spec["containerEdits"]["deviceNodes"]]


def test_nodes_without_a_gpu_that_is_known_are_the_device() -> None:
    parts: dict[str, Item] = {path: item for path, item in kernel().items() if "/proc/driver" not in path}
    spec = spec_of(planned(host(rhel(), parts)))
    assert [device["name"] for device in spec["devices"]] == ["all"]
    assert "/dev/nvidia0" in nodes(spec, "all")
    assert spec["cdiVersion"] == "0.3.0"


def test_a_host_without_nodes_has_libraries_all_the_same() -> None:
    spec = spec_of(planned(host(rhel())))
    (device,) = spec["devices"]
    assert device["name"] == "all"
    assert device["containerEdits"]["mounts"]


def test_wsl_has_its_one_node() -> None:
    dxg: Spec = {"/dev/dxg": Node("char", 10, 125), "/dev/nvidiactl": Node("char", 195, 255)}
    spec_of(planned(host(rhel(), dxg)))


def test_a_hook_keeps_libraries_in_one_directory() -> None:
    layout = X86._replace(libdir=GPUBIND_LAYOUT.libdir, more_libdirs=(), searched=False)
    spec = spec_of(planned(gpubind.open_host("debian13-nvidia550"), layout), HOOK)
    (hook,) = spec["containerEdits"]["hooks"]
    assert hook["args"] == ["nvidia-cdi-hook", "update-ldcache", "--folder", "/.gpubind/libs"]
    assert (hook["hookName"], hook["path"]) == ("createContainer", HOOK)
    assert "/.gpubind/libs/libcuda.so.1" in targets(spec)
    # The image has no value of its own for these.
    names = [variable.partition("=")[0] for variable in spec["containerEdits"]["env"]]
    assert names == ["GBM_BACKENDS_PATH", "VDPAU_DRIVER_PATH"]


OTHER = {"cdiVersion": "0.3.0", "kind": "a.b/c", "devices": [{"name": "x", "containerEdits": {"env": ["A=b"]}}]}


@pytest.mark.parametrize("devices", [("a.b/c=x",), ("a.b/c=x", "nvidia.com/gpu=all")])
def test_a_plan_of_other_kinds_cannot_be_one_spec(devices: tuple[str, ...]) -> None:
    (file,) = (DATA / "nvml-json").iterdir()
    files: Spec = {"/etc/cdi/a.json": json.dumps(OTHER), "/etc/cdi/b.json": file.read_bytes(), "/opt": Dir()}
    cuda: Spec = {"/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.163.01": Link(f"/usr/lib64/libcuda.so.{V}")}
    made = planned(host(rhel(), kernel(), files, cuda), source="cdi", cdi_devices=devices)
    with pytest.raises(RuntimeLimitError) as caught:
        spec_of(made)
    assert caught.value.code == "cdi-kinds"


@pytest.mark.parametrize(
    ("vendor", "kind", "variable"),
    [
        ("nvidia", "nvidia.com/gpu", "NVIDIA_VISIBLE_DEVICES=void"),
        ("amd", "amd.com/gpu", "ROCR_VISIBLE_DEVICES=-1"),
    ],
)
def test_of_a_host_without_a_gpu_all_and_none_bring_nothing(vendor: Vendor, kind: str, variable: str) -> None:
    spec = spec_of(empty_plan(vendors=(vendor,)))
    assert (spec["cdiVersion"], spec["kind"]) == ("0.3.0", kind)
    assert spec["devices"] == [{"name": name, "containerEdits": {"env": [variable]}} for name in ("all", "none")]
    assert "containerEdits" not in spec


def test_amds_gpus_have_the_numbers_of_amds_toolkit_and_the_spec_is_not_stale() -> None:
    """Those are places by PCI address, and the partitions of a GPU follow each other; ROCr counts by the topology."""
    nodes = [kfd_node(2, 128, bus=0x26, unique=1)]
    nodes += [kfd_node(3 + part, 129 + part, bus=0x05, unique=2, part=part) for part in range(2)]
    cards = [drm_device("0000:26:00.0", 0, 128), drm_device("0000:05:00.0", 1, 129), xcp_device(0, 2, 130)]
    parts = (opt(), amds_kernel(gpus=0, bmc=False), *nodes, *cards)
    made = plan(amd_host(*parts), Request(vendors=("amd",)))
    spec = spec_of(made)
    paths = {one["name"]: [node["path"] for node in one["containerEdits"]["deviceNodes"]] for one in spec["devices"]}
    assert [path for path in paths["GPU-0000000000000002"] if "render" in path] == [
        "/dev/dri/renderD129",
        "/dev/dri/renderD130",
    ]
    by_name = plan(amd_host(*parts), Request(vendors=("amd",), gpus="GPU-0000000000000002"))
    own = {node.target for node in by_name.devices if node.target != "/dev/kfd"}
    assert sorted(paths["GPU-0000000000000002"]) == sorted(own)
    renders = [next(path for path in paths[name] if "render" in path) for name in "012"]
    assert renders == [f"/dev/dri/renderD{minor}" for minor in (129, 130, 128)]
    with_it = amd_host(*parts, {"/etc/cdi/amd.json": json.dumps(spec)})
    listing = list_cdi(with_it, gpus=made.gpus)
    assert [file.stale for file in listing.files] == [()]
    spec["devices"] = [one for one in spec["devices"] if one["name"] in ("0", "1", "all")]
    older = amd_host(*parts, {"/etc/cdi/amd.json": json.dumps(spec)})
    (file,) = list_cdi(older, gpus=made.gpus).files
    assert file.stale == ("the CDI spec /etc/cdi/amd.json lacks 1 of this host's GPUs",)


@pytest.mark.parametrize("vendors", [(), ("nvidia", "amd")])
def test_without_a_gpu_the_kind_is_that_of_the_one_vendor_that_is_named(vendors: tuple[Vendor, ...]) -> None:
    with pytest.raises(RuntimeLimitError, match="cdi-kinds"):
        spec_of(empty_plan(vendors=vendors))


def test_a_spec_of_gpubinds_is_a_source_of_the_same_plan() -> None:
    spec = spec_of(planned(host(ubuntu(), kernel())))
    again = host(ubuntu(), kernel(), {"/etc/cdi/gpubind.json": json.dumps(spec)})
    made = plan(again, Request(source="cdi"))
    assert made.drivers[0].source.served == "cdi"
    assert made.digest == plan(again, Request(source="liblist")).digest
    assert [finding.code for finding in made.findings if finding.code.endswith("cdi")] == []
