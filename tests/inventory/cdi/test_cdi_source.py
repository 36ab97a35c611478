"""CDI as a source: which specs count, what their devices and hooks become, what is stale."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import pytest

import gpubind
from gpubind import plan
from gpubind.documents.text import render_json
from gpubind.errors import HostReadError, UsageError
from gpubind.formats.driver.cdi import CdiName
from gpubind.host import Host
from gpubind.host.record import RecordedDirectory, RecordedEntry, RecordedList, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.inventory.cdi.specs import choose_devices, read_registry, registry_findings
from gpubind.model import Driver, Finding, HostPath, PassedOver, Plan, Request, Stat
from gpubind.model.data import read_data
from tests.support.driver import V, debian, host, kernel, libraries, rhel, ubuntu
from tests.support.elf import elf
from tests.support.golden import assert_fits
from tests.support.trees import Dir, Item, Link, Node, Socket, Spec

DATA = Path(__file__).parent.parent.parent / "data" / "cdi"
REAL = "debian13-nvidia550"
LAYOUTS = {"ubuntu": ubuntu, "rhel": rhel, "debian": debian}
GPU = "nvidia.com/gpu"
NO_DEVICE = ("no-device", "no spec in /etc/cdi, /var/run/cdi has a usable device of nvidia.com/gpu")
OTHERS = "vendor.com/accelerator=0"


def spec(*devices: str, kind: str = GPU, version: str = "0.7.0", **edits: Any) -> str:
    """A spec with these devices, each with nodes of its own, and *edits* of the file."""
    made = [{"name": name, "containerEdits": {"deviceNodes": nodes(name)}} for name in devices or ("0", "1", "all")]
    return json.dumps({"cdiVersion": version, "kind": kind, "devices": made, "containerEdits": edits})


def nodes(name: str) -> list[dict[str, Any]]:
    numbers = [int(name)] if name.isdigit() else [0, 1]
    return [{"path": f"/dev/nvidia{number}"} for number in numbers]


def mounts(*paths: str) -> list[dict[str, Any]]:
    options = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
    return [{"hostPath": path, "containerPath": path, "options": options} for path in paths]


def driver(parts: Spec) -> list[dict[str, Any]]:
    """The mounts of the libraries in *parts*, as nvidia-ctk would write them."""
    return mounts(*(path for path, item in parts.items() if path.endswith(V) and isinstance(item, bytes)))


def hook(*words: str, path: str = "/usr/bin/nvidia-cdi-hook") -> dict[str, Any]:
    return {"hookName": "createContainer", "path": path, "args": [path.rpartition("/")[2], *words]}


def made(on: Host, *devices: str, **request: Any) -> Plan:
    return plan(on, Request(source="cdi", cdi_devices=devices, **request))


def decided(of: Plan, subject: str) -> list[tuple[str, str]]:
    return [(d.verdict, d.rule) for d in of.decisions if d.subject == subject and d.named_by == "cdi"]


def findings(of: Plan, code: str) -> list[Finding]:
    return [finding for finding in of.findings if finding.code == code]


# Which specs count.


@pytest.mark.parametrize(
    ("files", "usable"),
    [
        ({"/etc/cdi/a.json": spec("0")}, {"0": "/etc/cdi/a.json"}),
        ({"/etc/cdi/a.yaml": "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n"}, {}),
        ({"/etc/cdi/a.yml": spec("0")}, {}),
        ({"/etc/cdi/a.JSON": spec("0")}, {}),
        ({"/etc/cdi/a": spec("0")}, {}),
        ({"/etc/cdi/sub/a.json": spec("0")}, {}),
        ({"/etc/cdi/a.json": Dir()}, {}),
        ({"/etc/cdi/.json": spec("0")}, {"0": "/etc/cdi/.json"}),
        ({"/etc/cdi/a.json": Link("/srv/b"), "/srv/b": spec("0")}, {"0": "/etc/cdi/a.json"}),
        ({"/etc/cdi/a.json": Link("/srv/b")}, {}),
        ({"/etc/cdi": Link("/srv"), "/srv/a.json": spec("0")}, {"0": "/etc/cdi/a.json"}),
        ({"/run/cdi/a.json": spec("0"), "/var/run": Link("/run")}, {"0": "/var/run/cdi/a.json"}),
        # Another directory: the later one wins.
        ({"/etc/cdi/a.json": spec("0"), "/var/run/cdi/a.json": spec("0")}, {"0": "/var/run/cdi/a.json"}),
        (
            {"/etc/cdi/a.json": spec("0", "1"), "/var/run/cdi/b.json": spec("1")},
            {"0": "/etc/cdi/a.json", "1": "/var/run/cdi/b.json"},
        ),
        # The same directory: neither.
        ({"/etc/cdi/a.json": spec("0", "1"), "/etc/cdi/b.json": spec("1")}, {"0": "/etc/cdi/a.json"}),
        # A conflict stays one, whatever comes later.
        ({"/etc/cdi/a.json": spec("0"), "/etc/cdi/b.json": spec("0"), "/var/run/cdi/c.json": spec("0")}, {}),
        # A file that counts for nothing is in no conflict.
        ({"/etc/cdi/a.json": spec("0"), "/etc/cdi/b.json": spec("0", version="0.1.0")}, {"0": "/etc/cdi/a.json"}),
        ({"/etc/cdi/a.json": spec("0"), "/etc/cdi/b.json": spec("0", kind="x.y/gpu")}, {"0": "/etc/cdi/a.json"}),
    ],
)
def test_specs_count_by_name_directory_and_content(files: dict[str, Item], usable: dict[str, str]) -> None:
    registry = read_registry(host(files))
    found = {name: loaded.path for name, (loaded, _) in registry.devices.items() if name.startswith(GPU)}
    assert found == {f"{GPU}={name}": path for name, path in usable.items()}


def test_directories_of_ones_own_take_the_place_of_the_usual_ones() -> None:
    on = host({"/etc/cdi/a.json": spec("0"), "/b/x.json": spec("1"), "/c/x.json": spec("1")})
    assert list(read_registry(on, ("/b",)).devices) == [f"{GPU}=1"]
    assert read_registry(on, ("/c", "/b")).devices[f"{GPU}=1"][0].path == "/b/x.json"


@pytest.mark.parametrize("devices", [(), (OTHERS,), (f"{GPU}=0", OTHERS)], ids=len)
def test_what_counts_for_nothing_is_said_once(devices: tuple[str, ...]) -> None:
    files = {"/etc/cdi/a.json": spec(mounts=driver(rhel())), "/etc/cdi/b.json": "{"}
    (finding,) = findings(made(host(rhel(), kernel(), files, ACCELERATOR), *devices), "bad-cdi")
    assert (finding.subject, finding.severity) == ("/etc/cdi/b.json", "warning")
    assert "line 2, column 1" in (finding.why or "")


# Which devices are meant.


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"/etc/cdi/a.json": spec()}, ["all"]),
        ({"/etc/cdi/a.json": spec("1", "0")}, ["0", "1"]),
        ({}, ("absent", "there is no CDI spec in /etc/cdi, /var/run/cdi")),
        ({"/etc/cdi/a.json": spec(kind="amd.com/gpu")}, NO_DEVICE),
        ({"/etc/cdi/a.json": "nonsense"}, NO_DEVICE),
        ({"/etc/cdi/a.json": spec("all"), "/etc/cdi/b.json": spec("all")}, NO_DEVICE),
        ({"/etc/cdi/a.json": spec("0", "1", kind="nvidia.com/gpu-x")}, NO_DEVICE),
    ],
)
def test_without_a_name_every_gpu_is_meant(files: dict[str, Item], names: Any) -> None:
    answer = choose_devices(host(files), Request(source="cdi"))
    if isinstance(answer, PassedOver):
        assert (answer.code, answer.why.partition(" (")[0]) == names
    else:
        assert [name.device for name in answer.names] == names


def test_without_a_usable_device_each_fault_of_a_spec_is_told() -> None:
    twice = {"/etc/cdi/a.json": spec("all"), "/etc/cdi/b.json": spec("all"), "/etc/cdi/c.json": "{"}
    fault = "/etc/cdi/c.json: line 2, column 1: did not find expected node content"
    why = f"{NO_DEVICE[1]} ({fault}; {GPU}=all is in /etc/cdi/a.json and /etc/cdi/b.json)"
    assert choose_devices(host(twice), Request(source="cdi")) == PassedOver("cdi", "no-device", why)


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (f"{GPU}=7", ""),
        (f"{GPU}=twice", "it is in both /etc/cdi/a.json and /etc/cdi/b.json, and so in neither"),
        ("vendor.com/net=eth0", ""),
    ],
)
def test_a_device_that_is_named_must_be_there(device: str, why: str) -> None:
    on = host(rhel(), kernel(), {"/etc/cdi/a.json": spec("0", "twice"), "/etc/cdi/b.json": spec("twice")})
    with pytest.raises(UsageError) as caught:
        made(on, device)
    error = caught.value
    assert (error.code, error.what) == ("unknown-cdi-device", f"no CDI spec has the device `{device}`")
    assert (error.where, error.why, error.hint) == ("/etc/cdi, /var/run/cdi", why, f"known: {GPU}=0")


def test_a_device_that_is_not_there_may_be_in_a_file_that_is_ignored() -> None:
    with pytest.raises(UsageError) as caught:
        made(host({"/etc/cdi/c.json": "{"}), f"{GPU}=0")
    why = "/etc/cdi/c.json: line 2, column 1: did not find expected node content"
    assert (caught.value.why, caught.value.hint) == (why, "known: none")
    with pytest.raises(UsageError) as caught:
        made(host({"/etc/cdi/a.json": spec("1", "0", kind="b.com/c"), "/etc/cdi/c.json": "{"}), f"{GPU}=0")
    assert (caught.value.why, caught.value.hint) == (why, "known: b.com/c=0, b.com/c=1")
    with pytest.raises(UsageError) as caught:
        made(host(), f"{GPU}=0")
    assert caught.value.why == "there is no spec in these directories"


def test_a_device_of_which_nothing_is_left_is_an_error_not_every_gpu() -> None:
    gone = mounts("/usr/lib64/libcuda.so.535.54.03")
    on = host(rhel(), kernel(), {"/etc/cdi/a.json": spec(mounts=gone)})
    with pytest.raises(HostReadError) as caught:
        made(on, f"{GPU}=0")
    error = caught.value
    why = "none of the 1 files that nvidia.com/gpu={} names is a library here"
    assert (error.code, error.what) == ("stale-cdi-device", f"nothing is left of what `{GPU}=0` brings")
    assert (error.where, error.why) == ("/etc/cdi/a.json: containerEdits", why.format(0))
    assert error.hint == "make it anew: `gpubind plan --format cdi -o FILE`, or `nvidia-ctk cdi generate`"
    assert made(on).drivers[0].source.passed_over == (PassedOver("cdi", "no-library", why.format("all")),)


def test_nodes_are_left_out_even_where_the_driver_tells_of_no_gpu() -> None:
    parts = {path: item for path, item in kernel().items() if "/proc/driver" not in path}
    on = host(rhel(), parts, {"/etc/cdi/a.json": spec(mounts=driver(rhel()))})
    targets = [node.target for node in made(on, f"{GPU}=0").devices]
    assert ("/dev/nvidia0" in targets, "/dev/nvidia1" in targets) == (True, False)


def test_a_gpu_that_the_chosen_devices_do_not_mean_is_left_out_with_its_findings() -> None:
    odd: Spec = {"/dev/nvidia1": Node("char", 99, 1)}
    on = host(rhel(), kernel(gpus=3), odd, {"/etc/cdi/a.json": spec("0", "1", "2", mounts=driver(rhel()))})
    of = made(on, f"{GPU}=0", f"{GPU}=2")
    assert [(gpu.index, gpu.chosen) for gpu in of.gpus] == [(0, True), (1, False), (2, True)]
    told = [
        (d.verdict, d.step, d.detail, d.path, d.named_by, d.named_at) for d in of.decisions if d.rule == "not-chosen"
    ]
    location = f"{GPU}=0, {GPU}=2"
    detail = f"not among the devices of {location}"
    assert told == [("left-out", "search", detail, "/dev/nvidia1", "cdi", location)]
    assert findings(of, "device-number") == []
    assert [one.subject for one in findings(made(on, f"{GPU}=1"), "device-number")] == ["/dev/nvidia1"]


def test_a_device_needs_a_qualified_name() -> None:
    with pytest.raises(UsageError) as caught:
        made(host(rhel(), kernel()), "0")
    assert caught.value.code == "bad-cdi-name"


def test_the_list_serves_where_no_spec_does() -> None:
    on = host(rhel(), kernel())
    (passed,) = made(on).drivers[0].source.passed_over
    assert (passed.source, passed.code) == ("cdi", "absent")
    assert made(on).drivers[0].source.served == "liblist"
    assert [finding.severity for finding in findings(made(on), "source-failed")] == ["warning"]
    assert made(on).digest == plan(on, Request()).digest


@pytest.mark.parametrize("source", ["auto", "liblist", "driver"])
def test_nobody_asks_specs_unasked(source: str) -> None:
    on = host(rhel(), kernel(), {"/etc/cdi/a.json": "nonsense"})
    assert not [d for d in plan(on, Request(source=source)).decisions if d.named_by == "cdi"]


ODD: Spec = {path.replace("/usr/lib64", "/srv/driver"): item for path, item in libraries("/usr/lib64").items()}
"""A driver where nobody looks."""
SITES = RecordedList("nvliblist.conf", "/etc/gpubind/nvliblist.conf", "libcuda.so\n")


@pytest.mark.parametrize(
    ("source", "libcuda", "sites", "answer"),
    [
        ("auto", V, (), (True, "cdi")),
        ("liblist", V, (), (False, "liblist")),
        ("auto", "535.54.03", (), (False, "liblist")),
        ("auto", V, (SITES,), (False, "liblist")),
    ],
)
def test_specs_are_asked_if_nobody_else_finds_libcuda(
    source: str, libcuda: str, sites: tuple[RecordedList, ...], answer: tuple[bool, str]
) -> None:
    text = spec(mounts=driver(ODD)).replace(f"libcuda.so.{V}", f"libcuda.so.{libcuda}")
    of = plan(host(ODD, kernel(), {"/etc/cdi/nvidia.json": text}, lists=sites), Request(source=source))
    has = "/srv/driver/libcuda.so." + V in [mount.source for mount in of.mounts]
    assert (has, of.drivers[0].source.served) == answer
    passed = {passed.source: passed.code for passed in of.drivers[0].source.passed_over}
    assert (passed.get("liblist") == "no-libcuda") is has
    assert bool(findings(of, "no-libcuda")) is not has


def test_specs_that_know_no_better_change_nothing() -> None:
    on = host(kernel(), {"/etc/cdi/nvidia.json": spec(mounts=driver(ODD))})
    assert plan(on, Request()) == plan(host(kernel()), Request())


# The driver: the same container, whoever names the files.


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("module", [V, None], ids=["module", "no-module"])
@pytest.mark.parametrize("age", ["new", "old"])
def test_the_digest_is_the_same_with_cdi(layout: str, module: Optional[str], age: str) -> None:
    parts = LAYOUTS[layout]()
    named = [mount for mount in driver(parts) if age == "new" or "libcuda" in mount["hostPath"]]
    on = host(parts, kernel(module), {"/etc/cdi/nvidia.json": spec(mounts=named)})
    assert made(on).drivers[0].source.served == "cdi"
    assert made(on).digest == plan(on, Request(source="liblist")).digest
    assert {mount.rule for mount in made(on).mounts if mount.soname == "libcuda.so.1"} == {"cdi"}


def real(name: str) -> RecordedHost:
    """The bundled host, with the spec that nvidia-ctk wrote on it."""
    record = parse_record(read_data(f"model/data/hosts/{REAL}.json"))
    (file,) = (DATA / name).iterdir()
    data = file.read_bytes()
    directories = dict(record.driver.directories)
    entry = RecordedEntry(Stat("file", 0o644, 0, 0, len(data)), body=data)
    directories["/etc/cdi"] = RecordedDirectory({file.name: entry}, (), True)
    etc = directories["/etc"]
    entries = {**etc.entries, "cdi": RecordedEntry(Stat("dir", 0o755, 0, 0, 0))}
    directories["/etc"] = etc._replace(entries=entries)
    return RecordedHost(record._replace(driver=record.driver._replace(directories=directories)), REAL)


SPECS = ("nvml", "nvml-json", "management")


@pytest.mark.parametrize("name", SPECS)
def test_a_real_spec_gives_the_plan_of_every_other_source(name: str) -> None:
    usual = plan(gpubind.open_host(REAL), Request())
    of = made(real(name))
    assert of.drivers[0].source.served == "cdi"
    assert (of.digest, of.devices, of.gpus) == (usual.digest, usual.devices, usual.gpus)
    assert [(m.source, m.target) for m in of.mounts] == [(m.source, m.target) for m in usual.mounts]
    assert {finding.code for finding in of.findings} == {"vendor-neutral-left-out"}


CURRENT = "/usr/lib/x86_64-linux-gnu/nvidia/current"
NOT_IN_THE_SPEC = {
    f"{CURRENT}/libnvidia-api.so.1": "its name carries no driver version, by which nvidia-ctk looks",
    f"{CURRENT}/nvidia/wine/_nvngx.dll": "for Windows programs: nvidia-ctk knows no such files",
    f"{CURRENT}/nvidia/wine/nvngx.dll": "for Windows programs: nvidia-ctk knows no such files",
    "/usr/share/nvidia/nvidia-application-profiles-550.163.01-rc": "nvidia-ctk makes none of these a mount",
}
"""Files of the live plan that the real spec lacks, and why."""
NOT_IN_THE_NODES = {
    "/dev/dri/card0": "nvidia-ctk found no DRM node of the stand-in GPU: the rig's /sys has no such PCI device",
    "/dev/dri/renderD128": "the same",
    "/dev/nvidia-caps/nvidia-cap1": "capability nodes are for MIG devices, and for the management spec",
    "/dev/nvidia-caps/nvidia-cap2": "the same",
}
ONLY_IN_MANAGEMENT = {
    "/etc/OpenCL/vendors/nvidia.icd",
    "/usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2",
    "/usr/lib/x86_64-linux-gnu/libnvidia-egl-wayland.so.1.1.18",
    f"{CURRENT}/nvoptix.bin",
    "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/vulkan/icd.d/nvidia_icd.json",
    "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
}
"""What the management spec lacks beside: manifests, and libraries without a driver version in their names."""


@pytest.mark.parametrize("name", SPECS)
def test_what_a_real_spec_names_is_what_the_live_plan_has_but_for_these(name: str) -> None:
    on = real(name)
    registry = read_registry(on)
    (loaded,) = registry.specs
    device = next(device for device in loaded.spec.devices if device.name == "all")
    paths = [mount.host_path for edits in (loaded.spec.edits, device.edits) for mount in edits.mounts]
    named = {on.driver.real(found) for path in paths if isinstance(found := on.driver.resolve(path), str)}
    usual = plan(gpubind.open_host(REAL), Request())
    missing = {*NOT_IN_THE_SPEC, *(ONLY_IN_MANAGEMENT if name == "management" else ())}
    assert len(named) == len(set(paths))
    assert named - {mount.source for mount in usual.mounts} == set()
    assert {mount.source for mount in usual.mounts} - named == missing
    has = {node.path for edits in (loaded.spec.edits, device.edits) for node in edits.nodes}
    lacks = {path for path in NOT_IN_THE_NODES if name != "management" or "/dri/" in path}
    assert {node.target for node in usual.devices} - has == lacks
    assert has <= {node.target for node in usual.devices}


def test_without_completion_a_real_spec_gives_the_plan_but_for_these() -> None:
    usual = {(mount.source, mount.target) for mount in plan(gpubind.open_host(REAL), Request()).mounts}
    of = {(mount.source, mount.target) for mount in made(real("nvml"), completion=False).mounts}
    # nvidia-ctk puts Vulkan's manifests into /etc/vulkan; the loader reads both places.
    vulkan = {f"/usr/share/vulkan/{path}" for path in ("icd.d/nvidia_icd.json", "implicit_layer.d/nvidia_layers.json")}
    assert of - usual == {(path, path.replace("/usr/share", "/etc")) for path in vulkan}
    assert {source for source, _ in usual - of} == {*NOT_IN_THE_SPEC, *vulkan}


@pytest.mark.parametrize("name", SPECS)
def test_a_plan_of_a_real_spec_fits_the_schema(name: str) -> None:
    assert_fits(json.loads(render_json(made(real(name)))), "plan")


def test_a_driver_that_lives_elsewhere_is_found_there() -> None:
    root = "/run/nvidia/driver"
    named = [{**mount, "hostPath": root + mount["hostPath"]} for mount in driver(rhel())]
    device: dict[str, Item] = {**kernel(), "/etc/cdi/nvidia.json": spec(mounts=named)}
    of = made(host(rhel(), dev=device, root=root))
    usual = plan(host(rhel(), dev=device, root=root), Request())
    assert (of.drivers[0].source.served, of.digest) == ("cdi", usual.digest)
    assert stale(of) == {}
    assert f"{root}/usr/lib64/libcuda.so.{V}" in [mount.source for mount in of.mounts]


def test_files_that_stay_on_the_host_stay_there() -> None:
    firmware = f"/lib/firmware/nvidia/{V}/gsp_ga10x.bin"
    xorg = "/usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so"
    more: Spec = {firmware: b"x", xorg: elf("libglxserver_nvidia.so")}
    on = host(rhel(), kernel(), more, {"/etc/cdi/a.json": spec(mounts=[*driver(rhel()), *mounts(firmware, xorg)])})
    assert made(on).digest == plan(host(rhel(), kernel()), Request()).digest
    assert decided(made(on), firmware) == decided(made(on), xorg) == [("left-out", "host-only")]


def test_a_file_of_the_sites_own_comes_along() -> None:
    site = {"hostPath": "/opt/site/tool.conf", "containerPath": "/etc/tool.conf"}
    more: Spec = {"/opt/site/tool.conf": "x"}
    on = host(rhel(), kernel(), more, {"/etc/cdi/a.json": spec(mounts=[*driver(rhel()), site])})
    assert ("/opt/site/tool.conf", "/etc/tool.conf") in [(m.source, m.target) for m in made(on).mounts]


# Choosing among GPUs.


@pytest.mark.parametrize(
    ("devices", "left"),
    [
        ((), {"/dev/nvidia0", "/dev/nvidia1"}),
        ((f"{GPU}=all",), {"/dev/nvidia0", "/dev/nvidia1"}),
        ((f"{GPU}=0",), {"/dev/nvidia0"}),
        ((f"{GPU}=1",), {"/dev/nvidia1"}),
        ((f"{GPU}=0", f"{GPU}=1"), {"/dev/nvidia0", "/dev/nvidia1"}),
        ((f"{GPU}=0", f"{GPU}=all"), {"/dev/nvidia0", "/dev/nvidia1"}),
    ],
)
def test_a_device_brings_its_own_nodes_and_no_others(devices: tuple[str, ...], left: set[str]) -> None:
    on = host(rhel(), kernel(), {"/etc/cdi/a.json": spec(mounts=driver(rhel()))})
    of = made(on, *devices)
    assert {node.target for node in of.devices if node.gpu is not None} == left
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm"} <= {node.target for node in of.devices}
    assert [gpu.chosen for gpu in of.gpus] == [f"/dev/nvidia{n}" in left for n in (0, 1)]
    gone = {"/dev/nvidia0", "/dev/nvidia1"} - left
    assert {d.subject for d in of.decisions if d.rule == "not-chosen"} == gone


def test_a_part_of_a_gpu_brings_its_capability_nodes_and_no_others() -> None:
    caps: Spec = {f"/dev/nvidia-caps/nvidia-cap{n}": Node("char", 234, n, 0o444) for n in (12, 13, 21, 22)}
    part = {"path": "/dev/nvidia-caps/nvidia-cap12"}, {"path": "/dev/nvidia-caps/nvidia-cap13"}
    document = json.loads(spec("0", mounts=driver(rhel())))
    document["devices"] = [{"name": "0:0", "containerEdits": {"deviceNodes": [*nodes("0"), *part]}}]
    on = host(rhel(), kernel(), caps, {"/etc/cdi/a.json": json.dumps(document)})
    targets = {node.target for node in made(on, f"{GPU}=0:0").devices}
    assert {path for path in targets if "caps" in path} == {node["path"] for node in part}
    assert "/dev/nvidia1" not in targets


# Hooks.

HOOKS = {
    "create-symlinks": (hook("create-symlinks", "--link", "a::/b"), ("taken", "cdi-hook")),
    "update-ldcache": (hook("update-ldcache", "--folder", "/usr/lib64"), ("taken", "cdi-hook")),
    "chmod": (hook("chmod", "--mode", "755", "--path", "/dev/dri"), ("left-out", "cdi-hook-not-run")),
    "enable-cuda-compat": (hook("enable-cuda-compat", "--host-driver-version=1"), ("left-out", "cdi-hook-not-run")),
    "disable-device-node-modification": (
        hook("disable-device-node-modification"),
        ("left-out", "cdi-hook-not-run"),
    ),
    "update-application-profile": (hook("update-application-profile"), ("left-out", "cdi-hook-not-run")),
    "make-coffee": (hook("make-coffee"), ("left-out", "cdi-hook-unknown")),
    "setup.sh": (hook("create-symlinks", path="/opt/site/setup.sh"), ("left-out", "cdi-hook-unknown")),
    "nvidia-ctk": (hook(path="/usr/bin/nvidia-ctk"), ("left-out", "cdi-hook-unknown")),
}


TOLD_OF_HOOKS = {
    "create-symlinks": "1 links, each a bind under its own name",
    "update-ldcache": "the directory of the libraries is in LD_LIBRARY_PATH instead",
    "chmod": "it changes modes of directories for users of the container; a bind keeps the host's",
    "enable-cuda-compat": "it prefers the image's own newer libcuda in /usr/local/cuda/compat; with an image, the plan "
    "decides that itself (--cuda-compat)",
    "disable-device-node-modification": "it keeps root in the container from making nodes anew; who starts without "
    "privileges cannot make any, and the nodes are the host's own",
    "update-application-profile": "it chooses the GPU for OpenGL where only some are visible",
}


@pytest.mark.parametrize("name", HOOKS)
def test_each_hook_is_done_or_said_not_to_be(name: str) -> None:
    made_hook, outcome = HOOKS[name]
    on = host(rhel(), kernel(), {"/etc/cdi/a.json": spec(mounts=driver(rhel()), hooks=[made_hook])})
    assert decided(made(on), name) == [outcome]
    (decision,) = [decision for decision in made(on).decisions if decision.subject == name]
    detail = TOLD_OF_HOOKS.get(name, "what it does is not known, and it is not run")
    place = "/etc/cdi/a.json: containerEdits.hooks[0]"
    assert (decision.step, decision.detail, decision.named_by, decision.named_at) == ("name", detail, "cdi", place)
    assert decision.path == made_hook["path"]
    assert bool(findings(made(on), "cdi-hook")) is (outcome[1] == "cdi-hook-unknown")


def test_the_toolkits_older_form_of_a_hook_is_the_same() -> None:
    old = hook("hook", "update-ldcache", "--folder", "/usr/lib64", path="/usr/bin/nvidia-ctk")
    on = host(rhel(), kernel(), {"/etc/cdi/a.json": spec(mounts=driver(rhel()), hooks=[old])})
    assert decided(made(on), "update-ldcache") == [("taken", "cdi-hook")]


def test_a_link_of_a_hook_is_a_name_of_the_library() -> None:
    links = hook(
        "create-symlinks",
        *("--link", f"libcuda.so.{V}::/usr/lib64/libcuda.so.1"),
        "--link=libcuda.so.1::/usr/lib64/libcuda-of-the-site.so",
        *("--link", "nothing.so::/usr/lib64/libnothing.so"),
    )
    on = host(rhel(), kernel(), {"/etc/cdi/a.json": spec(mounts=driver(rhel()), hooks=[links])})
    sources = {m.target.rpartition("/")[2]: m.source for m in made(on).mounts}
    assert sources["libcuda-of-the-site.so"] == sources["libcuda.so.1"] == f"/usr/lib64/libcuda.so.{V}"
    assert "libnothing.so" not in sources


# Variables.


def test_what_speaks_to_nvidias_runtime_is_not_set() -> None:
    env = [
        "NVIDIA_VISIBLE_DEVICES=void",
        "NVIDIA_CTK_LIBCUDA_DIR=/x",
        "SITE=1",
        "SITE=2",
        "LD_LIBRARY_PATH=/site",
        "PATH=",
        "a.b=c",
    ]
    of = made(host(rhel(), kernel(), {"/etc/cdi/a.json": spec(mounts=driver(rhel()), env=env)}))
    ours = [(v.name, v.op, v.value) for v in of.env if v.rule == "cdi"]
    # The user's own search path is kept.
    assert ours == [("SITE", "set", "2"), ("LD_LIBRARY_PATH", "prepend", "/site")]
    told = [(d.subject, d.verdict, d.step, d.detail, d.named_at) for d in of.decisions if d.rule == "cdi-env"]
    place, detail = "/etc/cdi/a.json: containerEdits.env", "only NVIDIA's own runtime and hooks read it"
    assert told == [
        ("NVIDIA_CTK_LIBCUDA_DIR", "left-out", "name", detail, place),
        ("NVIDIA_VISIBLE_DEVICES", "left-out", "name", detail, place),
        ("a.b", "rejected", "name", "no name of a variable", place),
    ]
    assert [v.separator for v in of.env if v.rule == "cdi"] == [None, ":"]


# Other kinds.

OTHER: dict[str, Any] = {
    "cdiVersion": "1.1.0",
    "kind": "vendor.com/accelerator",
    "devices": [
        {
            "name": "0",
            "containerEdits": {
                "deviceNodes": [
                    {"path": "/dev/acc", "hostPath": "/dev/acc0", "type": "c", "major": 240, "minor": 7},
                    {"path": "/dev/gone"},
                    {"path": "/dev/file", "hostPath": "/etc/acc.conf"},
                    {"path": "/dev/dots", "hostPath": "/dev/../x"},
                ]
            },
        }
    ],
    "containerEdits": {
        "env": ["ACC_MODE=fast"],
        "mounts": [
            {"hostPath": "/opt/acc/lib", "containerPath": "/usr/lib/acc", "options": ["ro", "rbind"]},
            {"hostPath": "/etc/acc.conf", "containerPath": "/etc/acc.conf", "options": ["ro", "nosuid", "nodev"]},
            {"hostPath": "/run/acc.sock", "containerPath": "/run/acc.sock", "options": ["rbind", "nosuid"]},
            {"hostPath": "/opt/acc/gone", "containerPath": "/opt/acc/gone"},
            {"hostPath": "tmpfs", "containerPath": "/scratch", "type": "tmpfs"},
            {"hostPath": "/opt/acc", "containerPath": "/usr"},
            {"hostPath": "/opt/../etc", "containerPath": "/x"},
            {"hostPath": "/dev/acc0", "containerPath": "/y"},
        ],
        "hooks": [
            hook("create-symlinks", "--link", "libacc.so.1.2::/usr/lib/acc/libacc.so.1"),
            hook("create-symlinks", "--link", "acc.conf::/etc/acc2.conf", "--link", "/bin/sh::/bin/accsh"),
            hook("update-ldcache", "--folder", "/usr/lib/acc"),
        ],
        "netDevices": [{"hostInterfaceName": "e0", "name": "e1"}],
        "additionalGids": [0, 44],
        "intelRdt": {"closID": "x"},
    },
}
ACCELERATOR: Spec = {
    "/etc/cdi/acc.json": json.dumps(OTHER),
    "/etc/acc.conf": "x",
    "/opt/acc/lib/libacc.so.1.2": elf("libacc.so.1"),
    "/dev/acc0": Node("char", 241, 0, 0o660, 0, 44),
    "/run/acc.sock": Socket(),
    "/etc/group": "video:x:44:\n",
}


def test_a_device_of_any_kind_is_done_to_the_letter() -> None:
    of = made(host(ACCELERATOR), OTHERS)
    assert {(m.source, m.target, m.kind, m.options) for m in of.mounts} == {
        ("/opt/acc/lib", "/usr/lib/acc", "directory", ("ro",)),
        ("/etc/acc.conf", "/etc/acc.conf", "file", ("ro", "nosuid", "nodev")),
        ("/etc/acc.conf", "/etc/acc2.conf", "file", ("ro", "nosuid", "nodev")),
        ("/run/acc.sock", "/run/acc.sock", "socket", ("nosuid",)),
        ("/opt/acc/lib/libacc.so.1.2", "/usr/lib/acc/libacc.so.1", "file", ("ro",)),
    }
    # A bind has the numbers of now, whatever the spec remembers.
    (node,) = of.devices
    assert (node.source, node.target, node.major, node.minor, node.group) == ("/dev/acc0", "/dev/acc", 241, 0, "video")
    assert [(v.name, v.op, v.value) for v in of.env] == [
        ("LD_LIBRARY_PATH", "prepend", "/usr/lib/acc"),
        ("ACC_MODE", "set", "fast"),
    ]
    told = [
        (d.subject, d.verdict, d.rule, d.step, d.detail, d.path, d.named_at)
        for d in of.decisions
        if d.verdict != "taken"
    ]
    edits = "/etc/cdi/acc.json: containerEdits"
    linked = "it leads to /bin/sh, which no mount of the spec brings: if the image has that, a bind cannot say it"
    unclean = "a path in a spec is absolute, without `.`, `..` and doubled or trailing slashes"
    gone, device = "the spec names it, but it leads nowhere", "/etc/cdi/acc.json: device 0"
    hides, scratch = "binding it would hide the container's own", "a mount of type tmpfs; a plan has binds alone"
    assert told == [
        ("/bin/accsh", "left-out", "cdi-link", "search", linked, None, "create-symlinks"),
        ("/dev/dots", "rejected", "unclean-path", "search", "no clean absolute path", "/dev/../x", device),
        ("/dev/file", "rejected", "no-device", "search", "a regular file, not a device node", "/etc/acc.conf", device),
        ("/dev/gone", "rejected", "dangling", "search", "absent", "/dev/gone", device),
        ("/opt/acc/gone", "rejected", "dangling", "search", gone, "/opt/acc/gone", "mount /opt/acc/gone"),
        ("/scratch", "rejected", "cdi-mount", "search", scratch, "tmpfs", f"{edits}.mounts[4]"),
        ("/usr", "rejected", "system-directory", "search", hides, "/opt/acc", f"{edits}.mounts[5]"),
        ("/x", "rejected", "unclean-path", "search", unclean, "/opt/../etc", f"{edits}.mounts[6]"),
        ("/y", "rejected", "special-file", "search", "a character device", "/dev/acc0", "mount /y"),
    ]
    subjects = [(finding.subject, finding.where, finding.vendor) for finding in findings(of, "cdi-edit")]
    assert subjects == [
        ("a class of Intel's resource director", edits, "other"),
        ("a mount of type tmpfs at /scratch", edits, "other"),
        ("the groups 44", edits, "other"),
        ("the network interface e0", edits, "other"),
    ]
    assert of.drivers[0].source.detail == "vendor.com/accelerator=0 (/etc/cdi/acc.json)"
    assert of.drivers[0].driver == Driver("other", None, False, None, "linux", None, HostPath("/"))


def test_devices_of_several_kinds_are_one_plan() -> None:
    on = host(rhel(), kernel(), {"/etc/cdi/a.json": spec(mounts=driver(rhel()))}, ACCELERATOR)
    of = made(on, f"{GPU}=0", OTHERS)
    assert [planned.driver.vendor for planned in of.drivers] == ["nvidia", "other"]
    assert {"/dev/nvidia0", "/dev/acc"} <= {node.target for node in of.devices}
    assert_fits(json.loads(render_json(of)), "plan")


# Stale specs.


def stale(of: Plan) -> dict[str, str]:
    return {finding.subject: finding.where or "" for finding in findings(of, "stale-cdi")}


SPEC_FILE = "/etc/cdi/a.json"
GONE = (f"/usr/lib64/libnvidia-gone.so.{V}", "/usr/bin/nvidia-gone")
ODD_NODES = [
    {"path": "/dev/nvidia-uvm", "major": 511, "minor": 0},
    {"path": "/dev/x", "hostPath": "/dev/none"},
    {"path": "/dev/fifo", "hostPath": "/dev/nvidiactl", "type": "p", "major": 1, "minor": 1},
    {"path": "/dev/nvidiactl"},
]


@pytest.mark.parametrize(
    ("devices", "edits", "told"),
    [
        ((), {"mounts": GONE}, [(SPEC_FILE, ", ".join(GONE), "mounts 2 files that do not exist on this host")]),
        ((), {"mounts": GONE[:1]}, [(SPEC_FILE, GONE[0], "mounts a file that does not exist on this host")]),
        (
            (),
            {"mounts": [f"/usr/lib64/libcuda.so.{version}" for version in ("535.54.03", "525.1.1")]},
            [
                (
                    SPEC_FILE,
                    "/usr/lib64/libcuda.so.535.54.03, /usr/lib64/libcuda.so.525.1.1",
                    f"is for driver 525.1.1, 535.54.03, the kernel module is {V}",
                )
            ],
        ),
        (
            (),
            {"deviceNodes": ODD_NODES},
            [
                (
                    *("/dev/nvidia-uvm", "/dev/nvidia-uvm"),
                    "has the device number 511:0 for /dev/nvidia-uvm; it is now 235:0",
                ),
                ("/dev/x", "/dev/none", "adds /dev/x, which does not exist on this host"),
            ],
        ),
        (
            ("0", "1", "2", "GPU-dead", "all"),
            {},
            [
                ("/dev/nvidia2", "/dev/nvidia2", "adds /dev/nvidia2, which does not exist on this host"),
                ("GPU-dead", "GPU-dead, 2", "has GPUs that do not exist on this host"),
            ],
        ),
        (("0", "all"), {}, [("1", "1", "lacks 1 of this host's GPUs")]),
        (("GPU-00000000-1111-2222-3333-444444444444", "gpu1"), {}, []),
        (("all",), {}, []),
        (("0", "0:1"), {}, []),
        (("0", "MIG-x"), {}, []),
    ],
)
def test_each_stale_entry_of_a_spec_is_told(
    devices: tuple[str, ...], edits: dict[str, Any], told: list[tuple[str, str, str]]
) -> None:
    gone = mounts(*edits.pop("mounts", ()))
    old: Spec = {**rhel("535.54.03"), **rhel("525.1.1")}
    files: Spec = {SPEC_FILE: spec(*devices, mounts=[*driver(rhel()), *gone], **edits)}
    found = findings(made(host(old, rhel(), kernel(), files)), "stale-cdi")
    assert [(one.severity, one.subject, one.where, one.what) for one in found] == [
        ("error", subject, f"{SPEC_FILE}: {entries}", f"the CDI spec {SPEC_FILE} {what}")
        for subject, entries, what in told
    ]


def test_a_spec_without_gpu_nodes_is_told_with_its_first_devices() -> None:
    text = spec("0", "all", "2", "3", "4", mounts=driver(rhel()))
    for name in ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3", "/dev/nvidia4"):
        text = text.replace(name, "/dev/nvidiactl")
    (finding,) = findings(made(host(rhel(), kernel(), {SPEC_FILE: text})), "stale-cdi")
    assert (finding.subject, finding.where) == ("0, all, 2, 3", f"{SPEC_FILE}: 0, all, 2, 3, 4")
    assert finding.what == f"the CDI spec {SPEC_FILE} has no GPU node, but this host has 2 GPUs"


def test_files_that_are_gone_are_named_each() -> None:
    gone = [f"/usr/lib64/libnvidia-gone.so.{V}", "/usr/bin/nvidia-gone"]
    of = made(host(rhel(), kernel(), {"/etc/cdi/a.json": spec(mounts=[*driver(rhel()), *mounts(*gone)])}))
    assert stale(of) == {"/etc/cdi/a.json": f"/etc/cdi/a.json: {', '.join(gone)}"}
    assert [decided(of, path) for path in gone] == [[("rejected", "dangling")]] * 2


def test_another_driver_version_is_named() -> None:
    old = {**rhel(), **{path.replace(V, "535.54.03"): item for path, item in rhel("535.54.03").items()}}
    of = made(
        host(
            old,
            rhel(),
            kernel(),
            {"/etc/cdi/a.json": spec(mounts=driver(rhel()) + mounts("/usr/lib64/libcuda.so.535.54.03"))},
        )
    )
    (finding,) = findings(of, "stale-cdi")
    assert "for driver 535.54.03, the kernel module is 550.54.14" in finding.what
    assert finding.severity == "error"
    assert of.digest == plan(host(old, rhel(), kernel()), Request()).digest


def test_a_node_with_another_number_is_named() -> None:
    uvm = {"path": "/dev/nvidia-uvm", "major": 511, "minor": 0}
    same = {"path": "/dev/nvidiactl", "major": 195, "minor": 255}
    now = {"path": "/dev/nvidia-modeset"}
    on = host(rhel(), kernel(), {"/etc/cdi/a.json": spec(mounts=driver(rhel()), deviceNodes=[uvm, same, now])})
    assert stale(made(on)) == {"/dev/nvidia-uvm": "/etc/cdi/a.json: /dev/nvidia-uvm"}


def test_gpus_that_are_gone_are_named() -> None:
    known, gone = "GPU-00000000-1111-2222-3333-444444444444", "GPU-dead"
    document = spec("0", "1", "2", known, gone, "all", mounts=driver(rhel()))
    assert stale(made(host(rhel(), kernel(), {"/etc/cdi/a.json": document}), f"{GPU}=0")) == {
        "/dev/nvidia2": "/etc/cdi/a.json: /dev/nvidia2",
        gone: f"/etc/cdi/a.json: {gone}, 2",
    }


def test_gpus_that_are_new_are_named() -> None:
    document = spec("0", "all", mounts=driver(rhel()))
    assert stale(made(host(rhel(), kernel(), {"/etc/cdi/a.json": document}))) == {"1": "/etc/cdi/a.json: 1"}


@pytest.mark.parametrize("name", SPECS)
def test_a_real_spec_is_not_stale_on_its_host(name: str) -> None:
    assert stale(made(real(name))) == {}


@pytest.mark.parametrize(
    ("size", "ignored"),
    [(1000, {}), (1001, {"/etc/cdi/4.json": "all specs together have more than 4194304 bytes"})],
)
def test_all_specs_together_have_a_limit_of_bytes(size: int, ignored: dict[str, str]) -> None:
    text = spec("0")
    sizes = (1 << 20, 1 << 20, 1 << 20, (1 << 20) - 1000, size)
    files = {f"/etc/cdi/{at}.json": text[:1] + " " * (each - len(text)) + text[1:] for at, each in enumerate(sizes)}
    assert read_registry(host(files)).ignored_files == ignored


def test_a_hundred_conflicts_are_told() -> None:
    def told(count: int, *used: CdiName) -> list[tuple[str, str, str]]:
        text = spec(*map(str, range(count)))
        registry = read_registry(host({"/etc/cdi/a.json": text, "/etc/cdi/b.json": text}))
        return [(one.severity, one.subject, one.where or "") for one in registry_findings(registry, used)]

    assert told(1) == [("warning", f"{GPU}=0", "/etc/cdi/a.json, /etc/cdi/b.json")]
    assert told(1, CdiName(GPU, "9"))[0][0] == "error"
    assert told(1, CdiName("a.com/b", "9"))[0][0] == "warning"
    assert (len(told(100)), len(told(101))) == (100, 100)
