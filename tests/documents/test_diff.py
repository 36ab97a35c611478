"""Snapshots and their comparison: what differs by its meaning, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Optional

import pytest

from gpubind.api.diff import take_snapshot
from gpubind.documents.diff.comparison import Difference, compare
from gpubind.documents.diff.snapshot import Snapshot, image_fact, sorted_snapshot
from gpubind.documents.diff.text import diff_document, render_diff_text
from gpubind.errors import FormatError
from gpubind.model import Request
from gpubind.planner.planning import PlanQuery
from tests.support import amd
from tests.support.driver import V, cache, debian, host, kernel, rhel
from tests.support.elf import elf
from tests.support.golden import assert_fits
from tests.support.trees import Item, Link, Node, Spec

ICD = "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"
LIB, LIB64 = "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib64"
MANIFEST = '{"file_format_version": "1.0.1", "ICD": {"library_path": "/opt/nvidia/lib64/libGLX_nvidia.so.0"}}'
GPU = "/proc/driver/nvidia/gpus/0000:0%d:00.0/information"
INFORMATION = (
    "Model: \t\t %s\nGPU UUID: \t GPU-0000000%d-1111-2222-3333-44444444444%d\n"
    "Bus Location: \t 0000:0%d:00.0\nDevice Minor: \t %d\nGPU Excluded:\t %s\n"
)


def information(number: int, model: str = "NVIDIA A100", serial: int = 4, excluded: str = "No") -> str:
    return INFORMATION % (model, number, serial, number + 1, number, excluded)


NVIDIA: dict[str, Item] = {**rhel(), **kernel(gpus=4)}
DEBIAN: dict[str, Item] = {**debian(), **kernel()}
AMD: dict[str, Item] = {**amd.opt(), **amd.system(), **amd.kernel(gpus=4)}

Changes = Mapping[str, Optional[Item]]


def changed(spec: Spec, changes: Changes) -> Spec:
    """*spec* with *changes*; None removes what is there."""
    return {path: item for path, item in {**spec, **changes}.items() if item is not None}


def snapshot(name: str, spec: Spec, **facts: Any) -> Snapshot:
    return take_snapshot(name, host(spec, **facts), PlanQuery(Request()))


def differences(spec: Spec, changes: Changes, **facts: Any) -> list[Difference]:
    compared = compare([snapshot("a", spec), snapshot("b", changed(spec, changes), **facts)])
    return [one for group in compared.groups for one in group.differences if one.follows is None]


def longer(data: object) -> bytes:
    assert isinstance(data, bytes)
    return data + b"\0"


def other_mode(path: str, spec: Spec = NVIDIA, **values: Any) -> Changes:
    node = spec[path]
    assert isinstance(node, Node)
    return {path: node._replace(**values)}


def file_of(stem: str) -> str:
    return f"{LIB64}/{stem}.so.{V}"


def without(stem: str, soname: str = "") -> Changes:
    """The library is not installed: its links and its line in ld.so.cache are gone, too."""
    gone: dict[str, Optional[Item]] = {file_of(stem): None, f"{LIB64}/{soname or stem + '.so.1'}": None}
    return {**gone, "/etc/ld.so.cache": cache(changed(NVIDIA, gone), [LIB64])}


def upgraded(version: str) -> Changes:
    """Everything of the driver, the kernel module too, is of *version*."""
    gone = dict.fromkeys(path for path in rhel() if V in path)
    return {**gone, **rhel(version), "/sys/module/nvidia/version": f"{version}\n"}


UVM_ELSEWHERE: Changes = {
    "/dev/nvidia-uvm": Node("char", 511, 0),
    "/dev/char/235:0": None,
    "/dev/char/511:0": Link("../nvidia-uvm"),
    "/proc/devices": str(NVIDIA["/proc/devices"]).replace("235 ", "511 "),
}
SIZES = ("libcuda", "libnvidia-ml", "libnvidia-opticalflow", "libEGL_nvidia", "libnvidia-glcore", "libnvidia-nvvm")
GONE = ("libnvidia-ptxjitcompiler", "libnvidia-opticalflow", "libnvidia-ml", "libnvidia-allocator", "libcuda")
VERSIONED = ("libnvidia-eglcore", "libnvidia-glvkspirv", "libnvidia-gpucomp")
HIP = "/opt/rocm-6.2.4/lib/libamdhip64.so.6.2.60204"
MI300X, TOPOLOGY = "/sys/devices/pci0000:00/0000:05:00.0", "/sys/class/kfd/kfd/topology/nodes"
MI325X = str(AMD[f"{TOPOLOGY}/2/properties"]).replace(f"device_id {0x74A1}", f"device_id {0x74A5}")
ONE_THING: dict[str, tuple[Spec, Changes, str]] = {
    **{f"size of {stem}": (NVIDIA, {file_of(stem): longer(NVIDIA[file_of(stem)])}, stem) for stem in SIZES},
    **{f"without {stem}": (NVIDIA, without(stem), stem) for stem in GONE},
    **{f"without {stem}": (NVIDIA, without(stem, f"{stem}.so.{V}"), stem) for stem in VERSIONED},
    "without libGLX_nvidia": (NVIDIA, without("libGLX_nvidia", "libGLX_nvidia.so.0"), "libGLX_nvidia"),
    "truncated libcuda": (NVIDIA, {file_of("libcuda"): bytes(NVIDIA[file_of("libcuda")])[:200]}, "libcuda"),  # type: ignore[arg-type]
    "without nvidia-smi": (NVIDIA, {"/usr/bin/nvidia-smi": None}, "nvidia-smi"),
    "another nvidia-smi": (NVIDIA, {"/usr/bin/nvidia-smi": elf(kind=2) + b"\0"}, "nvidia-smi"),
    "without a manifest": (NVIDIA, {ICD: None}, ICD),
    "another manifest": (NVIDIA, {ICD: MANIFEST.replace("1.0.1", "1.0.0").replace("}}", '}, "x": 1}')}, ICD),
    "one more manifest": (NVIDIA, {"/etc/OpenCL/vendors/nvidia.icd": "libnvidia-opencl.so.1\n"}, "nvidia.icd"),
    "mode of a node": (NVIDIA, other_mode("/dev/nvidia0", mode=0o640), "/dev/nvidia0"),
    "group of a node": (NVIDIA, other_mode("/dev/nvidia0", gid=44), "/dev/nvidia0"),
    "owner of a node": (NVIDIA, other_mode("/dev/nvidiactl", uid=1000), "/dev/nvidiactl"),
    "minor of a node": (NVIDIA, other_mode("/dev/nvidia0", minor=7), "/dev/nvidia0"),
    "major of a node": (NVIDIA, other_mode("/dev/nvidia0", major=7), "/dev/nvidia0"),
    "without a GPU's node": (NVIDIA, {"/dev/nvidia1": None}, "/dev/nvidia1"),
    "without uvm": (NVIDIA, {"/dev/nvidia-uvm": None, "/dev/char/235:0": None}, "/dev/nvidia-uvm"),
    "without modeset": (NVIDIA, {"/dev/nvidia-modeset": None, "/dev/char/195:254": None}, "/dev/nvidia-modeset"),
    "without the control node": (NVIDIA, {"/dev/nvidiactl": None, "/dev/char/195:255": None}, "/dev/nvidiactl"),
    "one more node": (NVIDIA, {"/dev/nvidia-uvm-tools": Node("char", 235, 1)}, "/dev/nvidia-uvm-tools"),
    "without the last GPU": (NVIDIA, {"/dev/nvidia3": None, GPU % 4: None, "/dev/char/195:3": None}, "gpus"),
    "without the first GPU": (NVIDIA, {"/dev/nvidia0": None, GPU % 1: None, "/dev/char/195:0": None}, "gpus"),
    "model of a GPU": (NVIDIA, {GPU % 1: information(0, "NVIDIA H100")}, "gpus"),
    "an excluded GPU": (NVIDIA, {GPU % 1: information(0, excluded="Yes")}, "gpus"),
    "the driver": (NVIDIA, upgraded("535.261.03"), "driver"),
    "the kernel module only": (NVIDIA, {"/sys/module/nvidia/version": "535.261.03\n"}, "driver"),
    "the module is not loaded": (NVIDIA, {"/sys/module/nvidia/version": None}, "driver"),
    "a damaged CDI spec": (NVIDIA, {"/etc/cdi/nvidia.yaml": "x"}, "/etc/cdi/nvidia.yaml"),
    "size on Debian": (DEBIAN, {f"{LIB}/libcuda.so.{V}": longer(DEBIAN[f"{LIB}/libcuda.so.{V}"])}, "libcuda"),
    "node on Debian": (DEBIAN, other_mode("/dev/nvidia-uvm", DEBIAN, mode=0o600), "/dev/nvidia-uvm"),
    "size of HIP": (AMD, {HIP: longer(AMD[HIP])}, "libamdhip64.so.6"),
    "mode of kfd": (AMD, other_mode("/dev/kfd", AMD, mode=0o600), "/dev/kfd"),
    "a divided GPU": (AMD, {f"{MI300X}/current_compute_partition": "CPX\n"}, "gpus"),
    "divided memory": (AMD, {f"{MI300X}/current_memory_partition": "NPS4\n"}, "gpus"),
    "another GPU of the same chip": (AMD, {f"{TOPOLOGY}/2/properties": MI325X}, "gpus"),
    "without a render node": (AMD, {"/dev/dri/renderD136": None}, "/dev/dri/renderD136|amd-render-missing"),
}


@pytest.mark.parametrize("case", ONE_THING)
def test_a_pair_that_differs_in_one_thing_is_told_that_thing_and_nothing_else(case: str) -> None:
    spec, changes, thing = ONE_THING[case]
    found = differences(spec, changes)
    assert found
    assert [one for one in found if not re.search(thing, f"{one.section} {one.name}")] == []
    assert len(ONE_THING) >= 40


OTHER_UUIDS: Changes = {GPU % number: information(number - 1, serial=7) for number in range(1, 5)}
OTHER_ADDRESSES: Changes = {
    path: item
    for number in range(4)
    for path, item in (
        (GPU % (number + 1), None),
        (f"/proc/driver/nvidia/gpus/0000:8{number}:00.0/information", information(number).replace(":0", ":8")),
    )
}
EQUAL: dict[str, tuple[Spec, Changes, dict[str, Any]]] = {
    "UUIDs": (NVIDIA, OTHER_UUIDS, {}),
    "PCI addresses": (NVIDIA, OTHER_ADDRESSES, {}),
    "the major number of uvm": (NVIDIA, UVM_ELSEWHERE, {}),
    "a job's GPUs": (NVIDIA, {}, {"environ": {"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "0,1"}}),
    "a job's other variables": (NVIDIA, {}, {"environ": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "NVIDIA_GDS": "enabled"}}),
    "a job's UUID": (
        NVIDIA,
        OTHER_UUIDS,
        {"environ": {"CUDA_VISIBLE_DEVICES": "GPU-00000000-1111-2222-3333-444444444447"}},
    ),
    "who recorded it": (NVIDIA, {}, {"euid": 0, "groups": (0, 44, 110)}),
    "files that no container gets": (NVIDIA, {"/etc/motd": "hello\n", "/etc/machine-id": "17\n"}, {}),
    "the place of the driver": (changed(NVIDIA, {}), {"/opt/x": Link("/usr/lib64")}, {}),
    "UUIDs on Debian": (DEBIAN, {GPU % 1: information(0, serial=7)}, {}),
    "a job's GPUs of AMD": (AMD, {}, {"environ": {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}}),
}


@pytest.mark.parametrize("case", EQUAL)
def test_a_pair_that_differs_in_names_numbers_and_a_job_is_equal(case: str) -> None:
    spec, changes, facts = EQUAL[case]
    compared = compare([snapshot("a", spec), snapshot("b", changed(spec, changes), **facts)])
    assert compared.is_equal
    assert compared.groups[0].hosts == ("a", "b")
    assert len(EQUAL) >= 10


def test_the_largest_group_is_the_reference_and_of_as_large_ones_that_of_the_first_host() -> None:
    def hosts(*verdicts: str) -> list[tuple[str, ...]]:
        made = (sorted_snapshot(f"n{at}", [image_fact("app.sif", word)]) for at, word in enumerate(verdicts))
        return [group.hosts for group in compare(made).groups]

    assert hosts("ok", "error", "error") == [("n1", "n2"), ("n0",)]
    assert hosts("ok", "error", "ok", "error") == [("n0", "n2"), ("n1", "n3")]
    assert hosts("ok") == [("n0",)]


def test_each_group_is_compared_with_the_reference_and_the_text_names_it() -> None:
    hosts = [snapshot(name, NVIDIA) for name in ("gpu001", "gpu002", "gpu003")]
    lame = changed(NVIDIA, {"/dev/nvidia3": None, GPU % 4: None, "/dev/char/195:3": None, ICD: None})
    text = render_diff_text(compare([snapshot("gpu000", lame), *hosts]))
    assert text == (
        "gpu001, gpu002, gpu003: equal (3)\n"
        "gpu000 differs from gpu001:\n"
        "  gpus   NVIDIA A100  4 -> 3\n"
        f"  lacks  {ICD}\n"
        "  following from the number of GPUs: /dev/nvidia3\n"
    )


def test_what_differs_twice_in_the_same_words_is_one_line() -> None:
    spec = """{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": {
        "mounts": [{"hostPath": "/usr/lib64/libcuda.so.535.1.1", "containerPath": "/usr/lib64/libcuda.so.535.1.1"}],
        "deviceNodes": [{"path": "/dev/nvidia0"}]
    }}]}"""
    compared = compare([snapshot("a", NVIDIA), snapshot("b", changed(NVIDIA, {"/etc/cdi/x.json": spec}))])
    lines = render_diff_text(compared).splitlines()
    assert len([one for one in compared.groups[1].differences if one.name == "stale-cdi(/etc/cdi/x.json)"]) == 2
    assert [line for line in lines if "stale-cdi" in line] == ["  finding  stale-cdi(/etc/cdi/x.json)  none -> warning"]


def test_names_of_many_hosts_are_shortened_unless_the_caller_folds_them() -> None:
    compared = compare([snapshot(f"n{number}", NVIDIA) for number in range(9)])
    assert render_diff_text(compared) == "n0, n1, n2, n3 and 5 others: equal (9)\n"
    assert render_diff_text(compared, lambda names: f"n[0-{len(names) - 1}]") == "n[0-8]: equal (9)\n"


def test_another_driver_hides_no_difference_from_the_document() -> None:
    document = diff_document(compare([snapshot("a", NVIDIA), snapshot("b", changed(NVIDIA, upgraded("535.261.03")))]))
    assert_fits(document, "diff")
    told = {(one["name"], one["field"]): (one["from"], one["to"], one["follows"]) for one in document["differences"]}
    assert told["nvidia", "version"] == (V, "535.261.03", None)
    assert told[f"libnvidia-eglcore.so.{V}", "size"][2] == "driver"
    assert document["groups"][0]["hosts"] == ["a"]


def test_a_snapshot_is_the_same_after_it_was_sent() -> None:
    for spec in (NVIDIA, DEBIAN, AMD):
        taken = snapshot("a", spec)
        again = Snapshot.from_dict(json.loads(json.dumps(taken.to_dict())))
        assert again == taken
        assert again.digest == taken.digest


@pytest.mark.parametrize(
    "value", [None, [], {}, {"name": "a"}, {"name": 1, "facts": []}, {"name": "a", "facts": [{"section": "x"}]}]
)
def test_what_is_no_snapshot_is_refused(value: object) -> None:
    with pytest.raises(FormatError) as caught:
        Snapshot.from_dict(value)
    assert caught.value.code == "bad-snapshot"


def test_names_of_files_cannot_steer_a_terminal() -> None:
    odd = "/usr/share/vulkan/icd.d/nvidia\x1b[31m\n.json"
    text = render_diff_text(compare([snapshot("a", NVIDIA), snapshot("b\x1b]0;", changed(NVIDIA, {odd: MANIFEST}))]))
    assert "\x1b" not in text
    assert len(text.splitlines()) <= 2
