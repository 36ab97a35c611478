"""What is chosen where: a host, what is asked for, and the devices, variables and findings that come of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from tests.planner.gpus.hosts import hexid
from tests.support.amd import UNIQUE_IDS
from tests.support.driver import uuid

CUDA, ORDER, NVIDIA = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"
ROCR, HIP, AMD = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES"
ORDINAL = "GPU_DEVICE_ORDINAL"
MASK, HIERARCHY = "ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY"
HABANA = "HABANA_VISIBLE_DEVICES"
STEP, JOB = "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"
ALL = "*"
"""Every node of the host."""
CTL = "nvidiactl nvidia-modeset nvidia-uvm"


class Row(NamedTuple):
    """One case."""

    host: str
    gpus: Optional[str]
    """The value of --gpus."""
    environ: Mapping[str, str]
    devices: str
    """Names below /dev, without those that go with a render node or an accelerator; or the code of the error."""
    env: Mapping[str, Optional[str]] = {}
    """What is set; None: unset."""
    findings: str = ""
    """Severity and code of each."""
    isolated: bool = True


def u(*numbers: int) -> str:
    return ",".join(uuid(number) for number in numbers)


def h(*numbers: int) -> str:
    return ",".join(hexid(number) for number in numbers)


def mig(number: int, *devices: str) -> str:
    return ",".join(f"MIG-{uuid(number)}/{one}" for one in devices)


NONE = {CUDA: "-1"}
MIG_CAPS = "nvidia-caps/nvidia-cap"
ONE_PART = f"nvidia0 {MIG_CAPS}110 {MIG_CAPS}111 {CTL}"
UNRESOLVED = f"nvidia0 {MIG_CAPS}110 {MIG_CAPS}111 {MIG_CAPS}120 {MIG_CAPS}121 nvidia1 {MIG_CAPS}250 {MIG_CAPS}251 " + (
    f"{MIG_CAPS}252 {MIG_CAPS}2 {CTL}"
)

ERRORS = ("bad-gpus", "unknown-gpu", "ambiguous-gpu")

ROWS: dict[str, Row] = {
    # --gpus: words.
    "nothing is asked": Row("two", None, {}, ALL),
    "all": Row("two", "all", {}, ALL),
    "ALL": Row("two", " ALL ", {}, ALL),
    "all wins over the environment": Row("two", "all", {CUDA: "1", STEP: "0"}, ALL, {CUDA: "0,1"}),
    "all, without UUIDs": Row("all-untold", "all", {CUDA: "1"}, ALL, {CUDA: "0,1,2,3"}),
    "all of divided GPUs has no name": Row("mig", "all", {CUDA: "1"}, ALL, {CUDA: None}),
    "none": Row("two", "none", {}, "", NONE),
    "none with the host's /dev": Row("two-drm", "none", {CUDA: "0"}, "", NONE, isolated=False),
    "none of both vendors": Row("both", "none", {}, "", {CUDA: "-1", ROCR: "-1"}),
    "none on a host without GPUs": Row("none", "none", {}, "", NONE),
    "all on a host without GPUs": Row("none", "all", {CUDA: "0"}, ALL),
    # --gpus: one spelling each.
    "index": Row("eight", "3", {}, f"nvidia3 {CTL}", {CUDA: "0"}),
    "index with zeros": Row("eight", "03", {}, f"nvidia3 {CTL}", {CUDA: "0"}),
    "index, not minor": Row("minors", "0", {}, f"nvidia3 {CTL}", {CUDA: "0"}),
    "index counts no excluded GPU": Row("excluded", "1", {}, f"nvidia2 dri/renderD130 {CTL}", {CUDA: "0"}),
    "two digits are a number": Row("sixteen", "2,10", {}, f"nvidia2 nvidia10 {CTL}", {CUDA: "0,1"}),
    "the order of the list is kept": Row("eight", "5,1", {}, f"nvidia1 nvidia5 {CTL}", {CUDA: "1,0"}),
    "twice is once": Row("eight", "1,minor:1,1", {}, f"nvidia1 {CTL}", {CUDA: "0"}),
    "blanks do not matter": Row("eight", " 1 , 2 ", {}, f"nvidia1 nvidia2 {CTL}", {CUDA: "0,1"}),
    "uuid": Row("eight", u(6), {}, f"nvidia6 {CTL}", {CUDA: u(6)}),
    "uuid in capitals": Row("sixteen", u(10).upper(), {}, f"nvidia10 {CTL}", {CUDA: u(10)}),
    "beginning of a uuid": Row("eight", "GPU-00000006-1", {}, f"nvidia6 {CTL}", {CUDA: u(6)}),
    "pci address": Row("eight", "0000:03:00.0", {}, f"nvidia2 {CTL}", {CUDA: "0"}),
    "pci address of eight digits": Row("eight", "00000000:03:00.0", {}, f"nvidia2 {CTL}", {CUDA: "0"}),
    "pci address without domain": Row("eight", "03:00.0", {}, f"nvidia2 {CTL}", {CUDA: "0"}),
    "minor": Row("minors", "minor:0", {}, f"nvidia0 {CTL}", {CUDA: "0"}),
    "render node": Row("two-drm", "renderD129", {}, f"nvidia1 dri/renderD129 {CTL}", {CUDA: "0"}),
    "render node's path": Row("amd", "/dev/dri/renderD129", {}, "kfd dri/renderD129", {ROCR: "0"}),
    "nodes of the display go with the GPU": Row("two-drm", "0", {}, f"nvidia0 dri/renderD128 {CTL}", {CUDA: "0"}),
    "one of one": Row("one", "0", {}, f"nvidia0 {CTL}", {CUDA: "0"}),
    "the list wins over the environment": Row(
        "eight", "1", {STEP: "2", CUDA: "0", NVIDIA: "3"}, f"nvidia1 {CTL}", {CUDA: "0"}
    ),
    "with the host's /dev the host's number does it": Row(
        "eight", "1", {}, f"nvidia1 {CTL}", {CUDA: "1"}, isolated=False
    ),
    # --gpus: without UUIDs.
    "numbers count anew": Row("sixteen-untold", "10,2", {}, f"nvidia2 nvidia10 {CTL}", {CUDA: "1,0"}),
    "numbers as on the host": Row(
        "sixteen-untold", "10,2", {}, f"nvidia2 nvidia10 {CTL}", {CUDA: "10,2"}, isolated=False
    ),
    "numbers as the cgroup counts": Row(
        "cgroup-untold", "2", {CUDA: "0"}, f"nvidia2 {CTL}", {CUDA: "0"}, isolated=False
    ),
    "one UUID is missing, and is not chosen": Row("untold", "2,0", {}, f"nvidia0 nvidia2 {CTL}", {CUDA: "1,0"}),
    "one UUID is missing": Row("untold", "2,1", {}, f"nvidia1 nvidia2 {CTL}", {CUDA: "1,0"}),
    # --gpus: MIG.
    "MIG device": Row("mig", "0:2/0", {}, f"nvidia0 {MIG_CAPS}120 {MIG_CAPS}121 {CTL}", {CUDA: mig(0, "2/0")}),
    "MIG device by uuid": Row(
        "mig", mig(1, "5/1"), {}, f"nvidia1 {MIG_CAPS}250 {MIG_CAPS}252 {CTL}", {CUDA: mig(1, "5/1")}
    ),
    "two MIG devices of one GPU instance": Row(
        "mig",
        "1:5/1,1:5/0",
        {},
        f"nvidia1 {MIG_CAPS}250 {MIG_CAPS}251 {MIG_CAPS}252 {CTL}",
        {CUDA: mig(1, "5/1", "5/0")},
    ),
    "all MIG devices of a GPU": Row(
        "mig",
        "0",
        {},
        f"nvidia0 {MIG_CAPS}110 {MIG_CAPS}111 {MIG_CAPS}120 {MIG_CAPS}121 {MIG_CAPS}2 {CTL}",
        {CUDA: mig(0, "1/0", "2/0")},
    ),
    "a whole GPU beside divided ones": Row("mig", "2", {}, f"nvidia2 {MIG_CAPS}2 {CTL}", {CUDA: "0"}),
    "MIG device of a GPU without UUID": Row(
        "mig-untold", "0:1/0", {CUDA: "0"}, f"nvidia0 {MIG_CAPS}110 {MIG_CAPS}111 {CTL}", {CUDA: None}
    ),
    "MIG UUID that the program knows": Row(
        "mig-known", "MIG-aaaa", {}, f"nvidia0 {MIG_CAPS}120 {MIG_CAPS}121 {CTL}", {CUDA: mig(0, "2/0")}
    ),
    "place that the program knows": Row(
        "mig-known", "0:1", {}, f"nvidia0 {MIG_CAPS}120 {MIG_CAPS}121 {CTL}", {CUDA: mig(0, "2/0")}
    ),
    "MIG UUID that nobody knows": Row("mig", "MIG-aaaa", {}, UNRESOLVED, {CUDA: "MIG-aaaa"}, "warning mig-unresolved"),
    "MIG UUID beside a whole GPU": Row(
        "mig", "2,MIG-aaaa", {}, f"{UNRESOLVED} nvidia2", {CUDA: f"{u(2)},MIG-aaaa"}, "warning mig-unresolved"
    ),
    "place that nobody knows": Row(
        "mig",
        "0:1",
        {},
        f"nvidia0 {MIG_CAPS}110 {MIG_CAPS}111 {MIG_CAPS}120 {MIG_CAPS}121 {MIG_CAPS}2 {CTL}",
        {CUDA: mig(0, "1/0", "2/0")},
        "warning mig-unresolved",
    ),
    "the only place": Row("mig-one", "0:0", {}, ONE_PART, {CUDA: mig(0, "1/0")}),
    # --gpus: AMD, and both.
    "AMD's index": Row("amd", "2,0", {}, "kfd dri/renderD128 dri/renderD130", {ROCR: "1,0"}),
    "AMD's unique_id": Row("amd", h(3), {}, "kfd dri/renderD131", {ROCR: h(3)}),
    "a GPU in parts by its unique_id": Row("amd-parts", h(1), {}, "kfd dri/renderD130 dri/renderD131", {ROCR: "0,1"}),
    "a GPU in parts by its address": Row(
        "amd-parts-ids", "05:00.0", {}, "kfd dri/renderD128 dri/renderD129", {ROCR: "0,1"}, isolated=False
    ),
    "one part by its index": Row("amd-parts", "2", {}, "kfd dri/renderD130", {ROCR: "2"}, isolated=False),
    "one part by its render node": Row("amd-parts", "renderD131", {}, "kfd dri/renderD131", {ROCR: "0"}),
    "a part with a unique_id of its own": Row("amd-parts-ids", h(3), {}, "kfd dri/renderD131", {ROCR: h(3)}),
    "beginning of the unique_ids of several": Row("amd-parts", "GPU-7e5f", {}, "ambiguous-gpu"),
    "AMD without unique_id": Row("amd-untold", "2,1", {}, "kfd dri/renderD129 dri/renderD130", {ROCR: "1,0"}),
    "AMD without unique_id, and the host's /dev": Row(
        "amd-untold", "2,1", {}, "kfd dri/renderD129 dri/renderD130", {ROCR: "2,1"}, isolated=False
    ),
    "HIP would count again": Row(
        "amd", "3,1", {HIP: "2"}, "kfd dri/renderD129 dri/renderD131", {ROCR: "1,0", HIP: "0,1"}
    ),
    "one of each": Row(
        "both", f"{u(1)},renderD128", {}, f"nvidia1 {CTL} kfd dri/renderD128", {CUDA: u(1), ROCR: "0", HIP: "0"}
    ),
    "NVIDIA's alone": Row("both", "0000:01:00.0", {}, f"nvidia0 {CTL}", {CUDA: "0", ROCR: "-1"}),
    "AMD's alone": Row("both", h(1), {}, "kfd dri/renderD129", {CUDA: "-1", ROCR: h(1), HIP: "0"}),
    # --gpus: errors.
    "no such index": Row("eight", "8", {}, "unknown-gpu"),
    "no such uuid": Row("eight", "GPU-dead", {}, "unknown-gpu"),
    "no such address": Row("eight", "0000:99:00.0", {}, "unknown-gpu"),
    "no such minor": Row("eight", "minor:8", {}, "unknown-gpu"),
    "no such render node": Row("eight", "renderD128", {}, "unknown-gpu"),
    "no such MIG device": Row("mig", "0:3/0", {}, "unknown-gpu"),
    "no MIG device of a whole GPU": Row("mig", "2:1/0", {}, "unknown-gpu"),
    "no such place": Row("mig", "0:2", {}, "unknown-gpu"),
    "no MIG here": Row("eight", "MIG-aaaa", {}, "unknown-gpu"),
    "excluded": Row("excluded", u(1), {}, "unknown-gpu"),
    "uuid that is not told yet": Row("untold", u(1), {}, "unknown-gpu"),
    "no GPU at all": Row("none", "0", {}, "unknown-gpu"),
    "beginning of several": Row("eight", "GPU-0000000", {}, "ambiguous-gpu"),
    "index of either vendor": Row("both", "0", {}, "ambiguous-gpu"),
    "empty": Row("two", "", {}, "bad-gpus"),
    "empty item": Row("two", "0,,1", {}, "bad-gpus"),
    "all beside others": Row("two", "0,all", {}, "bad-gpus"),
    "a negative number": Row("two", "-1", {}, "bad-gpus"),
    "a range": Row("two", "0-1", {}, "bad-gpus"),
    "another script's digits": Row("two", "\u0661", {}, "bad-gpus"),
    "far too long": Row("two", "0," * 20000 + "0", {}, "bad-gpus"),
    # Slurm.
    "step": Row("eight", None, {STEP: "2,3"}, f"nvidia2 nvidia3 {CTL}", {CUDA: "0,1"}),
    "numbers that are not the job's": Row(
        "eight", None, {STEP: "2,3", CUDA: "0,1"}, ALL, {CUDA: "0,1"}, "warning gpu-order-unknown"
    ),
    "job": Row("eight", None, {JOB: "4"}, f"nvidia4 {CTL}", {CUDA: "0"}),
    "step before job": Row("eight", None, {STEP: "2", JOB: "2,3"}, f"nvidia2 {CTL}", {CUDA: "0"}),
    "an empty step does not count": Row("eight", None, {STEP: "", JOB: "3"}, f"nvidia3 {CTL}", {CUDA: "0"}),
    "Slurm's numbers are minors": Row("minors", None, {STEP: "0"}, f"nvidia0 {CTL}", {CUDA: "0"}),
    "Slurm in a cgroup": Row("cgroup", None, {STEP: "2,3", CUDA: "0,1"}, f"nvidia2 nvidia3 {CTL}", {CUDA: "0,1"}),
    "Slurm's ten is after nine": Row(
        "sixteen", None, {STEP: "9,10", CUDA: "9,10"}, f"nvidia9 nvidia10 {CTL}", {CUDA: "0,1"}
    ),
    "the order within a job": Row("cgroup", None, {STEP: "2,3", CUDA: "1,0"}, f"nvidia2 nvidia3 {CTL}", {CUDA: "1,0"}),
    "the order of Slurm's list is none of CUDA's": Row(
        "two", None, {STEP: "1,0", CUDA: "1"}, f"nvidia1 {CTL}", {CUDA: "0"}
    ),
    "less than the job, of two models": Row(
        "cgroup-mixed", None, {STEP: "1,3", CUDA: "0"}, ALL, {CUDA: "0"}, "warning gpu-order-unknown"
    ),
    "less than the job, counted in it": Row("cgroup", None, {STEP: "2,3", CUDA: "1"}, f"nvidia3 {CTL}", {CUDA: "0"}),
    "less than the job, counted on the host": Row(
        "eight", None, {STEP: "4,5", CUDA: "5"}, f"nvidia5 {CTL}", {CUDA: "0"}
    ),
    "less than the job, counted who knows where": Row(
        "eight", None, {STEP: "1,2", CUDA: "1"}, ALL, {CUDA: "1"}, "warning gpu-order-unknown"
    ),
    "less than the job in a cgroup, by uuid": Row(
        "cgroup", None, {STEP: "2,3", CUDA: u(3)}, f"nvidia3 {CTL}", {CUDA: u(3)}
    ),
    "less than the job, by uuid": Row("eight", None, {STEP: "1,2", CUDA: u(2)}, f"nvidia2 {CTL}", {CUDA: u(2)}),
    "nothing of the job": Row("eight", None, {STEP: "1,2", CUDA: ""}, "", NONE, "warning visible-devices-none"),
    "as many as the job, of several models": Row(
        "cgroup-mixed", None, {STEP: "1,3", CUDA: "0,1"}, f"nvidia1 nvidia3 {CTL}", {CUDA: "0,1"}
    ),
    "as many as the job, of several models, counted on the host": Row(
        "cgroup-mixed",
        None,
        {STEP: "1,3", CUDA: "1,3"},
        f"nvidia1 nvidia3 {CTL}",
        {ORDER: "PCI_BUS_ID", CUDA: "0,1"},
    ),
    "the job's numbers, of several models, where nothing is hidden": Row(
        "eight-mixed", None, {STEP: "1,7", CUDA: "1,7"}, ALL, {CUDA: "1,7"}, "warning gpu-order-unknown"
    ),
    "MIG devices are not what Slurm counts": Row(
        "mig-known",
        None,
        {STEP: "9", CUDA: "MIG-aaaa"},
        f"nvidia0 {MIG_CAPS}120 {MIG_CAPS}121 {CTL}",
        {CUDA: "MIG-aaaa"},
    ),
    "Slurm names what is not here": Row(
        "two", None, {JOB: "1,5"}, f"nvidia1 {CTL}", {CUDA: "0"}, "warning visible-devices-unknown"
    ),
    "Slurm names nothing that is here": Row("two", None, {JOB: "gpu:a100"}, ALL, {}, "warning visible-devices-unknown"),
    "Slurm without UUIDs": Row(
        "cgroup-untold", None, {STEP: "2,3", CUDA: "0,1"}, f"nvidia2 nvidia3 {CTL}", {CUDA: "0,1"}
    ),
    "Slurm without UUIDs, in a cgroup, with the host's /dev": Row(
        "cgroup-untold", None, {STEP: "2,3", CUDA: "1,0"}, f"nvidia2 nvidia3 {CTL}", isolated=False
    ),
    "Slurm's AMD by render node": Row("amd", None, {STEP: "129"}, "kfd dri/renderD129", {ROCR: "0"}),
    "Slurm's AMD by index": Row("amd", None, {STEP: "1", ROCR: "1"}, "kfd dri/renderD129", {ROCR: "0"}),
    "Slurm's AMD by index, and others' numbers": Row(
        "amd", None, {STEP: "1", ROCR: "0"}, ALL, {ROCR: "0"}, "warning gpu-order-unknown"
    ),
    "Slurm's AMD in a cgroup": Row(
        "amd-cgroup", None, {STEP: "5,6", ROCR: "0,1"}, ALL, {ROCR: "0,1"}, "warning gpu-order-unknown"
    ),
    "Slurm's AMD in a cgroup, by render node": Row(
        "amd-cgroup", None, {STEP: "130"}, "kfd dri/renderD130", {ROCR: "0"}
    ),
    "a number below the first render node's is an index that the cgroup has moved": Row(
        "amd-cgroup", None, {STEP: "127"}, ALL
    ),
    "a render node that the cgroup hides": Row(
        "amd-cgroup", None, {STEP: "128"}, ALL, {}, "warning visible-devices-unknown"
    ),
    "HIP's own in a job": Row("amd", None, {STEP: "1,2", HIP: "1"}, ALL, {HIP: "1"}, "warning gpu-order-unknown"),
    "Slurm sets CUDA's for AMD, too": Row(
        "amd",
        None,
        {STEP: "1,2", ROCR: "1,2", CUDA: "0,1"},
        "kfd dri/renderD129 dri/renderD130",
        {ROCR: "0,1", HIP: "0,1"},
    ),
    "Slurm on both vendors": Row(
        "both", None, {STEP: "1,128"}, f"nvidia1 {CTL} kfd dri/renderD128", {CUDA: "0", ROCR: "0", HIP: "0"}
    ),
    # CUDA_VISIBLE_DEVICES.
    "number": Row("eight", None, {CUDA: "3"}, f"nvidia3 {CTL}", {CUDA: "0"}),
    "numbers": Row("sixteen", None, {CUDA: "10, 9,"}, f"nvidia9 nvidia10 {CTL}", {CUDA: "1,0"}),
    "number of an only GPU": Row("one", None, {CUDA: "0"}, f"nvidia0 {CTL}", {CUDA: "0"}),
    "number with the excluded": Row("excluded", None, {CUDA: "1"}, f"nvidia2 dri/renderD130 {CTL}", {CUDA: "0"}),
    "number among several models": Row(
        "mixed-models", None, {CUDA: "0"}, ALL, {CUDA: "0"}, "warning gpu-order-unknown"
    ),
    "number in PCI order": Row("mixed-models", None, {CUDA: "0", ORDER: "PCI_BUS_ID"}, f"nvidia0 {CTL}", {CUDA: "0"}),
    "number in the order of speed": Row(
        "mixed-models",
        None,
        {CUDA: "0", ORDER: "FASTEST_FIRST"},
        ALL,
        {CUDA: "0", ORDER: "FASTEST_FIRST"},
        "warning gpu-order-unknown",
    ),
    "number in a cgroup": Row("cgroup", None, {CUDA: "0"}, ALL, {CUDA: "0"}, "warning gpu-order-unknown"),
    "number in a cgroup, in PCI order": Row(
        "cgroup",
        None,
        {CUDA: "0", ORDER: "PCI_BUS_ID"},
        ALL,
        {CUDA: "0", ORDER: "PCI_BUS_ID"},
        "warning gpu-order-unknown",
    ),
    "uuid in a cgroup": Row("cgroup", None, {CUDA: u(2)}, f"nvidia2 {CTL}", {CUDA: u(2)}),
    "number of a divided GPU": Row("mig", None, {CUDA: "0"}, ALL, {CUDA: "0"}, "warning gpu-order-unknown"),
    "number without UUIDs": Row("all-untold", None, {CUDA: "2"}, f"nvidia2 {CTL}", {CUDA: "0"}),
    "number without UUIDs, and the host's /dev": Row("all-untold", None, {CUDA: "2"}, f"nvidia2 {CTL}", isolated=False),
    "several models without UUIDs, in PCI order, and the host's /dev": Row(
        "untold-models",
        None,
        {CUDA: "2,0", ORDER: "PCI_BUS_ID"},
        f"nvidia0 nvidia2 {CTL}",
        isolated=False,
    ),
    "uuids": Row("eight", None, {CUDA: u(7, 1)}, f"nvidia1 nvidia7 {CTL}", {CUDA: u(7, 1)}),
    "beginning": Row("eight", None, {CUDA: "GPU-00000007"}, f"nvidia7 {CTL}", {CUDA: "GPU-00000007"}),
    "beginning of more than one": Row(
        "two", None, {CUDA: "GPU-0000000"}, ALL, {CUDA: "GPU-0000000"}, "error visible-devices-unknown"
    ),
    "beginning, while one is untold": Row(
        "untold", None, {CUDA: "GPU-00000002"}, ALL, {CUDA: "GPU-00000002"}, "note gpu-uuid-unknown"
    ),
    "uuid, while another is untold": Row("untold", None, {CUDA: u(2)}, f"nvidia2 {CTL}", {CUDA: u(2)}),
    "the list ends": Row(
        "two", None, {CUDA: "1,7,0"}, f"nvidia1 {CTL}", {CUDA: "0"}, "warning visible-devices-unknown"
    ),
    "the list is empty": Row("two", None, {CUDA: "7,0"}, ALL, {CUDA: "7,0"}, "error visible-devices-unknown"),
    "no name at all": Row("two", None, {CUDA: "all"}, ALL, {CUDA: "all"}, "error visible-devices-unknown"),
    "a uuid of small letters is none to CUDA": Row(
        "two", None, {CUDA: "gpu-00000001"}, ALL, {CUDA: "gpu-00000001"}, "error visible-devices-unknown"
    ),
    "what no list holds is not handed on": Row(
        "two", None, {CUDA: "$(reboot)"}, ALL, {}, "error visible-devices-unknown"
    ),
    "empty hides": Row("two", None, {CUDA: ""}, "", NONE, "warning visible-devices-none"),
    "minus one hides": Row("two", None, {CUDA: "-1"}, "", NONE, "warning visible-devices-none"),
    "Slurm's word hides": Row("two", None, {CUDA: "NoDevFiles"}, "", NONE, "warning visible-devices-none"),
    "it is nothing to AMD's": Row(
        "both", None, {CUDA: "1"}, f"nvidia1 {CTL} kfd dri/renderD128 dri/renderD129", {CUDA: "0", HIP: "0,1"}
    ),
    "MIG device by its GPU": Row(
        "mig",
        None,
        {CUDA: mig(0, "1/0")},
        f"nvidia0 {MIG_CAPS}110 {MIG_CAPS}111 {CTL}",
        {CUDA: mig(0, "1/0")},
    ),
    "no such MIG device of it": Row(
        "mig", None, {CUDA: mig(0, "7/0")}, ALL, {CUDA: mig(0, "7/0")}, "error visible-devices-unknown"
    ),
    "MIG UUID": Row("mig", None, {CUDA: "MIG-bbbb"}, UNRESOLVED, {CUDA: "MIG-bbbb"}, "warning mig-unresolved"),
    "MIG UUID where nothing is divided": Row(
        "two", None, {CUDA: "MIG-bbbb"}, ALL, {CUDA: "MIG-bbbb"}, "error visible-devices-unknown"
    ),
    "on a host without GPUs": Row("none", None, {CUDA: "0"}, ALL),
    # NVIDIA_VISIBLE_DEVICES.
    "it says all": Row("two", None, {NVIDIA: "all"}, ALL),
    "it says void": Row("two", None, {NVIDIA: "void"}, ALL),
    "it says nothing": Row("two", None, {NVIDIA: ""}, ALL),
    "it says none": Row("two", None, {NVIDIA: "none"}, "", NONE, "warning visible-devices-none"),
    "it narrows": Row("eight", None, {NVIDIA: "2,3"}, f"nvidia2 nvidia3 {CTL}", {CUDA: "0,1"}),
    "its numbers go by address": Row("mixed-models", None, {NVIDIA: "1"}, f"nvidia1 {CTL}", {CUDA: "0"}),
    "it narrows what CUDA's names": Row(
        "eight", None, {CUDA: "1,2,3", NVIDIA: f"{u(2)},7"}, f"nvidia2 {CTL}", {CUDA: "0"}
    ),
    "it never widens": Row("eight", None, {CUDA: "1", NVIDIA: "all"}, f"nvidia1 {CTL}", {CUDA: "0"}),
    "it has nothing in common": Row("eight", None, {CUDA: "1", NVIDIA: "2"}, "", NONE, "warning visible-devices-none"),
    "it names a MIG device by its GPU": Row(
        "mig",
        None,
        {NVIDIA: mig(0, "1/0")},
        f"nvidia0 {MIG_CAPS}110 {MIG_CAPS}111 {CTL}",
        {CUDA: mig(0, "1/0")},
    ),
    "it names a MIG device": Row("mig", None, {NVIDIA: "0:1"}, ALL, {}, "warning mig-unresolved"),
    "it names a MIG device that is known": Row(
        "mig-known",
        None,
        {NVIDIA: "0:1"},
        f"nvidia0 {MIG_CAPS}120 {MIG_CAPS}121 {CTL}",
        {CUDA: mig(0, "2/0")},
    ),
    "it names what is not here": Row("two", None, {NVIDIA: "7"}, ALL, {}, "note visible-devices-unknown"),
    "it names what is here and what is not": Row(
        "two", None, {NVIDIA: "1,7,8"}, f"nvidia1 {CTL}", {CUDA: "0"}, "note visible-devices-unknown"
    ),
    "it names an address that is not here": Row(
        "two", None, {NVIDIA: "0000:99:00.0,1"}, f"nvidia1 {CTL}", {CUDA: "0"}, "note visible-devices-unknown"
    ),
    "it names a place where nothing is divided": Row("two", None, {NVIDIA: "0:1"}, ALL),
    "it names a MIG device as --gpus does": Row(
        "mig", None, {NVIDIA: "0:1/0"}, ALL, {}, "note visible-devices-unknown"
    ),
    "it names a beginning, while one is untold": Row(
        "untold", None, {NVIDIA: "GPU-00000002"}, ALL, {}, "note gpu-uuid-unknown"
    ),
    "a word in its list decides": Row("two", None, {NVIDIA: "0,all"}, ALL),
    "a word in its list hides": Row("two", None, {NVIDIA: "0,none"}, "", NONE, "warning visible-devices-none"),
    "the void in its list": Row("two", None, {NVIDIA: "none,void"}, ALL),
    "commas alone": Row("two", None, {NVIDIA: " , "}, ALL),
    "places in its list are empty": Row("two", None, {NVIDIA: ",0, ,"}, f"nvidia0 {CTL}", {CUDA: "0"}),
    "it has an unknown word": Row("two", None, {NVIDIA: "any"}, ALL, {}, "note visible-devices-unknown"),
    "it is a directory": Row("two", None, {NVIDIA: "/var/run/nvidia-container-devices"}, ALL),
    "it names a CDI device": Row("two", None, {NVIDIA: "nvidia.com/gpu=0"}, ALL),
    "it counts in a cgroup": Row("cgroup", None, {NVIDIA: "1"}, ALL, {}, "warning gpu-order-unknown"),
    "it is nothing where numbers are unsure": Row(
        "mixed-models", None, {CUDA: "0", NVIDIA: "1"}, ALL, {CUDA: "0"}, "warning gpu-order-unknown"
    ),
    # AMD's variables.
    "ROCR's numbers": Row("amd", None, {ROCR: "3,1"}, "kfd dri/renderD129 dri/renderD131", {ROCR: "1,0"}),
    "ROCR's uuids": Row("amd", None, {ROCR: h(2)}, "kfd dri/renderD130", {ROCR: h(2)}),
    "ROCR's list ends": Row(
        "amd", None, {ROCR: "2,9,1"}, "kfd dri/renderD130", {ROCR: "0"}, "warning visible-devices-unknown"
    ),
    "ROCR's list ends at a repetition": Row(
        "amd", None, {ROCR: "2,2,1"}, "kfd dri/renderD130", {ROCR: "0"}, "warning rocr-visible-cut"
    ),
    "HIP's list ends at a repetition": Row(
        "amd", None, {HIP: "2,2,1"}, "kfd dri/renderD130", {ROCR: "0", HIP: "0"}, "warning rocr-visible-cut"
    ),
    "ROCR's list ends at a repetition in a job, too": Row(
        "amd", None, {STEP: "0,1", ROCR: "0,0"}, "kfd dri/renderD128", {ROCR: "0"}, "warning rocr-visible-cut"
    ),
    "ROCR knows no MIG device": Row(
        "amd-untold", None, {ROCR: mig(0, "1/0")}, ALL, {ROCR: mig(0, "1/0")}, "error visible-devices-unknown"
    ),
    "ROCR without unique_id": Row("amd-untold", None, {ROCR: h(1)}, ALL, {ROCR: h(1)}, "note gpu-uuid-unknown"),
    "ROCR hides": Row("amd", None, {ROCR: "-1"}, "", {ROCR: "-1"}, "warning visible-devices-none"),
    "ROCR in a cgroup": Row("amd-cgroup", None, {ROCR: "1"}, ALL, {ROCR: "1"}, "warning gpu-order-unknown"),
    "OpenCL's, as Slurm sets it": Row(
        "amd", None, {ROCR: "2", ORDINAL: "2"}, "kfd dri/renderD130", {ROCR: "0", ORDINAL: "0"}
    ),
    "OpenCL's, of several": Row(
        "amd",
        None,
        {ROCR: "0,2", ORDINAL: "0,2"},
        "kfd dri/renderD128 dri/renderD130",
        {ROCR: "0,1", ORDINAL: "0,1"},
    ),
    "OpenCL's, among those that ROCr shows": Row(
        "amd", None, {ROCR: "3,2", ORDINAL: "1"}, "kfd dri/renderD130 dri/renderD131", {ROCR: "1,0"}
    ),
    "OpenCL's, and --gpus": Row("amd", "3", {ORDINAL: "3"}, "kfd dri/renderD131", {ROCR: "0", ORDINAL: "0"}),
    "OpenCL's, where --gpus hides all": Row("amd", "none", {ORDINAL: "3"}, "", {ROCR: "-1"}),
    "OpenCL's alone": Row("amd", None, {ORDINAL: "2"}, ALL),
    "OpenCL's, where the caller's choose": Row(
        "amd", None, {ROCR: "2", ORDINAL: "2"}, "kfd dri/renderD130", isolated=False
    ),
    "HIP alone": Row("amd", None, {HIP: "1"}, "kfd dri/renderD129", {ROCR: "0", HIP: "0"}),
    "HIP counts in ROCR's": Row(
        "amd", None, {ROCR: "1,3,2", HIP: "2,0"}, "kfd dri/renderD129 dri/renderD130", {ROCR: "1,0", HIP: "0,1"}
    ),
    "HIP hides": Row("amd", None, {ROCR: "1", HIP: "-1"}, "", {ROCR: "-1"}, "warning visible-devices-none"),
    "HIP names too much": Row(
        "amd", None, {ROCR: "1", HIP: "1"}, ALL, {ROCR: "1", HIP: "1"}, "error visible-devices-unknown"
    ),
    "HIP's list ends at a number too high": Row(
        "amd",
        None,
        {ROCR: "1,3", HIP: "1,2"},
        "kfd dri/renderD131",
        {ROCR: "0", HIP: "0"},
        "warning visible-devices-unknown",
    ),
    "HIP in a cgroup": Row(
        "amd-cgroup", None, {ROCR: "1", HIP: "0"}, ALL, {ROCR: "1", HIP: "0"}, "warning gpu-order-unknown"
    ),
    "AMD's toolkit: all": Row("amd", None, {AMD: "ALL"}, ALL),
    "AMD's toolkit: nothing is said": Row("amd", None, {AMD: ""}, ALL),
    "AMD's toolkit: none": Row("amd", None, {AMD: "none"}, "", {ROCR: "-1"}, "warning visible-devices-none"),
    "AMD's toolkit: indexes and ranges": Row(
        "amd", None, {AMD: "3,0-1"}, "kfd dri/renderD131 dri/renderD128 dri/renderD129", {ROCR: "2,0,1"}
    ),
    "AMD's toolkit: an empty element names nothing": Row("amd", None, {AMD: ",02,"}, "kfd dri/renderD130", {ROCR: "0"}),
    "AMD's toolkit: IDs": Row("amd", None, {AMD: f"0x{UNIQUE_IDS[2]:X}"}, "kfd dri/renderD130", {ROCR: h(2)}),
    "AMD's toolkit: the ID of a GPU in parts": Row(
        "amd-parts", None, {AMD: f"{UNIQUE_IDS[0]:x}"}, "kfd dri/renderD128 dri/renderD129", {ROCR: "0,1"}
    ),
    "AMD's toolkit: parts are numbered": Row(
        "amd-parts", None, {AMD: "1-2"}, "kfd dri/renderD129 dri/renderD130", {ROCR: "0,1"}
    ),
    "AMD's toolkit counts by address": Row("amd-backwards", None, {AMD: "0"}, "kfd dri/renderD130", {ROCR: "0"}),
    "AMD's toolkit: an unknown number is skipped": Row(
        "amd", None, {AMD: "9,2"}, "kfd dri/renderD130", {ROCR: "0"}, "note visible-devices-unknown"
    ),
    "AMD's toolkit leaves of ROCR's": Row("amd", None, {ROCR: "2,1", AMD: "0-1"}, "kfd dri/renderD129", {ROCR: "0"}),
    "AMD's toolkit leaves nothing": Row(
        "amd", None, {ROCR: "2", AMD: "0"}, "", {ROCR: "-1"}, "warning visible-devices-none"
    ),
    "AMD's toolkit in a cgroup": Row("amd-cgroup", None, {AMD: "1"}, ALL, {}, "warning gpu-order-unknown"),
    "AMD's toolkit without unique_id": Row(
        "amd-untold", None, {AMD: hex(UNIQUE_IDS[1])}, ALL, {}, "note gpu-uuid-unknown"
    ),
    "AMD's toolkit is not for NVIDIA": Row("two", None, {AMD: "0"}, ALL),
    "HIP without unique_id": Row("amd-untold", None, {HIP: "2"}, "kfd dri/renderD130", {ROCR: "0", HIP: "0"}),
    # The host's /dev: the caller's own value and spelling.
    "the caller's numbers stay": Row("two", None, {STEP: "0,1", CUDA: "0,1"}, f"nvidia0 nvidia1 {CTL}", isolated=False),
    "the caller's spelling stays": Row("eight", None, {CUDA: " 3, 1,"}, f"nvidia1 nvidia3 {CTL}", isolated=False),
    "the caller's uuids stay": Row("eight", None, {CUDA: u(5)}, f"nvidia5 {CTL}", isolated=False),
    "the caller's beginning of a uuid stays": Row(
        "eight", None, {CUDA: "GPU-00000005"}, f"nvidia5 {CTL}", isolated=False
    ),
    "the caller's MIG device stays": Row("mig-one", None, {CUDA: mig(0, "1/0")}, ONE_PART, isolated=False),
    "the cgroup's count stays": Row(
        "cgroup", None, {STEP: "2,3", CUDA: "0,1"}, f"nvidia2 nvidia3 {CTL}", isolated=False
    ),
    "less than the job stays": Row("cgroup", None, {STEP: "2,3", CUDA: "1"}, f"nvidia3 {CTL}", isolated=False),
    "what is unsure stays": Row(
        "mixed-models", None, {CUDA: "0"}, ALL, {}, "warning gpu-order-unknown", isolated=False
    ),
    "numbers that are not the job's stay": Row(
        "eight", None, {STEP: "2,3", CUDA: "0,1"}, ALL, {}, "warning gpu-order-unknown", isolated=False
    ),
    "what hides all stays": Row("two", None, {CUDA: ""}, "", {}, "warning visible-devices-none", isolated=False),
    "all by name, over the caller's": Row("eight", "all", {CUDA: "3"}, ALL, {CUDA: "0,1,2,3,4,5,6,7"}, isolated=False),
    "all by name, in a cgroup": Row("cgroup", "all", {CUDA: "0"}, ALL, {CUDA: "0,1"}, isolated=False),
    "Slurm alone": Row("eight", None, {JOB: "4,6"}, f"nvidia4 nvidia6 {CTL}", {CUDA: "4,6"}, isolated=False),
    "Slurm alone, in a cgroup": Row("cgroup", None, {JOB: "3"}, f"nvidia3 {CTL}", {CUDA: "1"}, isolated=False),
    "Slurm alone, of several models": Row(
        "eight-mixed", None, {JOB: "7"}, f"nvidia7 {CTL}", {ORDER: "PCI_BUS_ID", CUDA: "7"}, isolated=False
    ),
    "Slurm alone, beside a divided GPU": Row(
        "mig", None, {JOB: "2"}, f"nvidia2 {MIG_CAPS}2 {CTL}", {CUDA: u(2)}, isolated=False
    ),
    "asked by number": Row("eight", "5,1", {CUDA: "0"}, f"nvidia1 nvidia5 {CTL}", {CUDA: "5,1"}, isolated=False),
    "asked by number, of several models": Row(
        "mixed-models", "1", {}, f"nvidia1 {CTL}", {ORDER: "PCI_BUS_ID", CUDA: "1"}, isolated=False
    ),
    "asked by number, several models, /dev of its own": Row(
        "eight-mixed", "7,1", {}, f"nvidia1 nvidia7 {CTL}", {ORDER: "PCI_BUS_ID", CUDA: "1,0"}
    ),
    "asked by number, one of several models, /dev of its own": Row(
        "eight-mixed", "7", {}, f"nvidia7 {CTL}", {CUDA: "0"}
    ),
    "asked by uuid": Row("eight", u(5), {CUDA: "0"}, f"nvidia5 {CTL}", {CUDA: u(5)}, isolated=False),
    "asked by uuid and by number": Row(
        "eight", f"1,{u(5)}", {}, f"nvidia1 nvidia5 {CTL}", {CUDA: u(1, 5)}, isolated=False
    ),
    "asked by address": Row("eight", "03:00.0", {}, f"nvidia2 {CTL}", {CUDA: "2"}, isolated=False),
    "asked beside a divided GPU": Row("mig", "2", {}, f"nvidia2 {MIG_CAPS}2 {CTL}", {CUDA: u(2)}, isolated=False),
    "asked in a cgroup": Row("cgroup", "3,2", {CUDA: "0"}, f"nvidia2 nvidia3 {CTL}", {CUDA: "1,0"}, isolated=False),
    "narrowed": Row(
        "eight", None, {CUDA: "1,2,3", NVIDIA: "3,2"}, f"nvidia2 nvidia3 {CTL}", {CUDA: "2,3"}, isolated=False
    ),
    "narrowed by nothing": Row("eight", None, {CUDA: "1", NVIDIA: "1,2"}, f"nvidia1 {CTL}", isolated=False),
    "narrowed, by uuid": Row(
        "eight", None, {CUDA: u(1, 2), NVIDIA: "2"}, f"nvidia2 {CTL}", {CUDA: u(2)}, isolated=False
    ),
    "NVIDIA's variable alone": Row("eight", None, {NVIDIA: u(2)}, f"nvidia2 {CTL}", {CUDA: u(2)}, isolated=False),
    "ROCR's numbers stay": Row("amd", None, {ROCR: "3,1", HIP: "1"}, "kfd dri/renderD129", isolated=False),
    "HIP's numbers stay": Row("amd", None, {HIP: "1"}, "kfd dri/renderD129", isolated=False),
    "CUDA's numbers stay for AMD": Row(
        "amd", None, {STEP: "1,2", CUDA: "2"}, "kfd dri/renderD129 dri/renderD130", isolated=False
    ),
    "CUDA's numbers stay for both": Row(
        "both", None, {CUDA: "1"}, f"nvidia1 {CTL} kfd dri/renderD128 dri/renderD129", isolated=False
    ),
    "AMD's asked by number": Row(
        "amd",
        "3,1",
        {ROCR: "0", HIP: "0"},
        "kfd dri/renderD129 dri/renderD131",
        {ROCR: "3,1", HIP: "0,1"},
        isolated=False,
    ),
    "AMD's asked by uuid": Row("amd", h(3), {}, "kfd dri/renderD131", {ROCR: h(3)}, isolated=False),
    # A job whose cgroup forbids what is asked for.
    "a forbidden GPU": Row("cgroup", "0", {}, f"nvidia0 {CTL}", {CUDA: u(0)}, "error gpu-forbidden"),
    "a forbidden GPU without UUID": Row("cgroup-untold", "0", {}, f"nvidia0 {CTL}", NONE, "error gpu-forbidden"),
    "a forbidden GPU beside another": Row(
        "cgroup", "2,0", {}, f"nvidia0 nvidia2 {CTL}", {CUDA: "0"}, "warning gpu-forbidden"
    ),
    "a GPU of the job's": Row("cgroup", "2", {}, f"nvidia2 {CTL}", {CUDA: "0"}),
    "all GPUs are forbidden": Row("closed", None, {}, ALL, {}, "warning gpu-forbidden"),
    "all GPUs are forbidden, and one is asked for": Row(
        "closed", "1", {}, f"nvidia1 {CTL}", {CUDA: "0"}, "error gpu-forbidden"
    ),
    "all GPUs are forbidden, and none is asked for": Row("closed", "none", {}, "", NONE),
    "the others' GPUs are forbidden": Row("cgroup", None, {}, ALL),
    # Slurm's numbers where both vendors' GPUs are.
    "a small number": Row(
        "both",
        None,
        {JOB: "1"},
        f"nvidia1 {CTL} kfd dri/renderD128 dri/renderD129",
        {CUDA: "0", HIP: "0,1"},
        "warning slurm-gpu-ambiguous",
    ),
    "a small number, and NVIDIA's own": Row(
        "both",
        None,
        {JOB: "1", CUDA: "1"},
        f"nvidia1 {CTL} kfd dri/renderD128 dri/renderD129",
        {CUDA: "0", HIP: "0,1"},
        "warning slurm-gpu-ambiguous",
    ),
    "a small number, and both vendors' own": Row(
        "both",
        None,
        {JOB: "1", CUDA: "1", ROCR: "0"},
        f"nvidia1 {CTL} kfd dri/renderD128",
        {CUDA: "0", ROCR: "0", HIP: "0"},
    ),
    # A GPU that has told nothing.
    "the one after it keeps its number": Row("silent", "2", {}, f"nvidia2 {CTL}", {CUDA: "0"}),
    "it is chosen by number, and any node may be its": Row(
        "silent", "1", {}, f"nvidia1 nvidia3 {CTL}", {ORDER: "PCI_BUS_ID", CUDA: "0"}
    ),
    "it is chosen on the host's /dev": Row(
        "silent", "3", {}, f"nvidia1 nvidia3 {CTL}", {ORDER: "PCI_BUS_ID", CUDA: "3"}, isolated=False
    ),
    "it and another": Row("silent", "3,2", {}, f"nvidia1 nvidia2 nvidia3 {CTL}", {ORDER: "PCI_BUS_ID", CUDA: "2,1"}),
    # Level Zero's mask, which Slurm sets; tests/planner/gpus/test_intel.py has more.
    "a mask": Row("intel", None, {MASK: "1", STEP: "1"}, "dri/renderD129", {MASK: "0"}),
    "a mask of tiles": Row(
        "intel-tiles", None, {MASK: "3", HIERARCHY: "FLAT"}, "dri/renderD129", {MASK: "1", HIERARCHY: "FLAT"}
    ),
    "a mask of other models": Row("intel-models", None, {MASK: "1"}, ALL, {MASK: "1"}, "note gpu-order-unknown"),
    "a mask of tiles or GPUs": Row("intel-tiles", None, {MASK: "1"}, ALL, {MASK: "1"}, "note gpu-order-unknown"),
    "a mask that is no list": Row("intel", None, {MASK: "gpu"}, ALL, {MASK: "gpu"}, "warning gpu-order-unknown"),
    "a mask of a tile": Row("intel", None, {MASK: "1.0"}, ALL, {MASK: "1.0"}, "note gpu-order-unknown"),
    "a mask beyond the last": Row("intel", None, {MASK: "7"}, ALL, {MASK: "7"}, "warning visible-devices-unknown"),
    "a mask partly beyond": Row("intel", None, {MASK: "7,1"}, ALL, {MASK: "7,1"}, "warning visible-devices-unknown"),
    "accelerators": Row("gaudi", None, {HABANA: "1"}, "accel/accel1", {HABANA: "1"}),
    "all accelerators": Row("gaudi", None, {HABANA: "all"}, ALL, {HABANA: "all"}),
    "an accelerator that is not there": Row(
        "gaudi", None, {HABANA: "0,9"}, ALL, {HABANA: "0,9"}, "note visible-devices-unknown"
    ),
    "no accelerator is there": Row("intel", None, {HABANA: "0,9"}, ALL, {HABANA: "0,9"}),
}
