"""What `explain` says of healthy lines, and of lines that only look like a known failure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpubind.documents.explanation import render_text
from gpubind.explanation.answer import Answer
from gpubind.explanation.messages import Message, find_message, messages, search, vendor_of_lines
from tests.explanation.test_messages import LINES, SEEN, name_of
from tests.support.commands import gpubind

HEALTHY = [line.split("\t")[0] for line in (Path(__file__).parent / "healthy.tsv").read_text().splitlines()]
"""Lines of public logs in which nothing is wrong: each line, and where it is."""
RANK = {row.name: row.rank for row in messages()}


@pytest.mark.parametrize(
    "line",
    [
        "INFO[0000] Selecting /lib/firmware/nvidia/580/gsp_ga10x.bin as /lib/firmware/nvidia/580/gsp_ga10x.bin",
        "I1123 10:00:00.000000 1 nvc_info.c:499] listing firmware path /lib/firmware/nvidia/580.126.09/gsp_ga10x.bin",
        "      hostPath: /lib/firmware/nvidia/575.57.08/gsp_tu10x.bin",
        "WARN[0000] Could not locate libnvidia-sandboxutils.so.1: pattern libnvidia-sandboxutils.so.1 not found",
        "WARN[0000] Could not locate libnvidia-vulkan-api.so.550: pattern libnvidia-vulkan-api.so.550 not found",
        "WARN[0000] Could not locate vulkan/icd.d/nvidia_icd.json: pattern vulkan/icd.d/nvidia_icd.json not found",
        "WARN[0000] Could not locate nvidia-imex: pattern nvidia-imex not found",
        "WARN[0000] Could not locate /tmp/nvidia-mps: pattern /tmp/nvidia-mps not found",
        "W1123 10:00:00.000000 1 nvc_info.c:404] missing library libnvidia-fatbinaryloader.so",
        "00000000000d1ed0  w   DF *UND*  0000000000000000 (GLIBC_2.34) __libc_start_main, version GLIBC_2.34",
        "vkCreateInstance layer callstack setup to:",
        "NCCL WARN NET/Socket: using 4 threads",
    ],
)
def test_a_line_that_names_a_file_or_a_function_without_a_failure_is_not_called_one(line: str) -> None:
    assert {RANK[one.message.name] for one in find_message(line)} <= {"harmless", "warning"}


def test_healthy_lines_of_public_logs_are_not_called_a_failure() -> None:
    answered = [(line, one.message) for line in HEALTHY for one in find_message(line)]
    assert [(line, row.name) for line, row in answered if row.rank not in ("harmless", "warning")] == []


def test_what_stands_within_a_harmless_message_is_harmless_and_what_stands_beside_it_counts() -> None:
    harmless = "Could not locate libcuda.so.1: pattern libcuda.so.1 not found"
    assert name_of(harmless) == "ctk-optional"
    assert name_of(f"{harmless}; error: libcuda.so.1: cannot open shared object file") == "driver-library-missing"
    assert name_of(f"error: libcuda.so.1: cannot open shared object file; {harmless}") == "driver-library-missing"
    assert name_of("Unable to initialize backend 'rocm': NOT_FOUND") == "tf-noise"
    assert name_of("RuntimeError: Unable to initialize backend 'rocm': NOT_FOUND") == "jax-backend"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Unable to open /dev/kfd read-write: Permission denied", "kfd-permission"),
        ("Unable to open /dev/kfd read-write: Operation not permitted", "kfd-permission"),
        ("Unable to open /dev/kfd read-write: No such file or directory", "kfd-absent"),
        ("Unable to open /dev/kfd read-write: Invalid argument", "kfd-refused"),
        ("Unable to open /dev/kfd read-write: Cannot allocate memory", "kfd-refused"),
        ("Unable to open /dev/kfd read-write: Input/output error", "kfd-refused"),
        ("Unable to open /dev/kfd read-write: No such device", "kfd-refused"),
        ("Failed to open /dev/dri/renderD128: Permission denied", "render-permission"),
        ("Failed to open /dev/dri/renderD128: No such file or directory", "render-node-absent"),
        ("Failed to open /dev/dri/renderD128", "render-not-opened"),
    ],
)
def test_the_error_of_the_system_decides_on_the_cause(line: str, name: str) -> None:
    assert name_of(line) == name


TOOLS_OF_NVIDIA = re.compile(r"compute-sanitizer|nvidia-smi|nvidia-modprobe|CUDA_LAUNCH_BLOCKING|Xid")
OF_AMD = re.compile(r"\b(hip|rocm|kfd|hsa|rocblas|miopen|rccl)\w*|\bamdgpu|GPU node-", re.IGNORECASE)
OF_BOTH = re.compile(r"nvidia|cuda", re.IGNORECASE)


def test_a_line_about_an_amd_gpu_is_not_answered_with_tools_of_nvidia_only() -> None:
    lines = [line for name, line in (*SEEN, *((name, line) for name, line, _ in LINES)) if name != "-"]
    of_amd = [line for line in lines if OF_AMD.search(line) and not OF_BOTH.search(line)]
    of_amd += [
        f"HIP error: {text}" for text in ("an illegal memory access was encountered", "unspecified launch failure")
    ]
    of_amd += [f"hip error {number}" for number in (2, 98, 100, 101, 209, 700, 719)]
    assert len(of_amd) > 30
    for line in of_amd:
        row = find_message(line)[0].message
        assert not TOOLS_OF_NVIDIA.search(row.do) or re.search(r"rocm|amd", row.do), (line, row.name)


OPTION_OF_NVIDIA = re.compile(r"--nv(?![a-z-]| --rocm)")
OPTIONS = {"amd": "--rocm", "intel": "--intel"}
OF_OTHERS = [
    (line, vendor_of_lines([line]))
    for line in dict.fromkeys(
        [*(row.message for row in messages()), *(line for _, line in SEEN), *(one[1] for one in LINES)]
    )
    if vendor_of_lines([line]) in OPTIONS
]
"""Lines of AMD and Intel, each with the vendor."""


def of_nvidia(message: Message) -> list[str]:
    """What of *message* is only for GPUs of NVIDIA."""
    is_for_others = re.search(r"rocm|amd|intel|sycl|i915", message.do, re.IGNORECASE)
    tools = [] if is_for_others else TOOLS_OF_NVIDIA.findall(message.do)
    return tools + OPTION_OF_NVIDIA.findall(message.do)


def test_a_line_of_amd_or_intel_never_gets_advice_about_nvidia() -> None:
    assert len(OF_OTHERS) > 150
    assert {vendor for _, vendor in OF_OTHERS} == set(OPTIONS)
    wrong = [(line, one.message.name, of_nvidia(one.message)) for line, _ in OF_OTHERS for one in find_message(line)]
    assert [one for one in wrong if one[2]] == []


@pytest.mark.parametrize("row", messages(), ids=lambda row: row.name)
def test_any_message_in_a_line_of_amd_or_intel_is_answered_for_that_vendor(row: Message) -> None:
    for word, vendor in (("gfx1100: ", "amd"), ("level_zero: ", "intel")):
        line = word + row.message
        if vendor_of_lines([line]) == vendor:
            found = find_message(line)
            assert [OPTION_OF_NVIDIA.findall(one.message.do) for one in found] == [[]] * len(found), line


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("rocFFT error: the frobnicator of gfx90a quuxed", "--rocm "),
        ("RuntimeError: openvino failed to quux", "--intel "),
        ("xe 0000:03:00.0: [drm] *ERROR* frobnication failed", "--intel "),
        ("NVRM: frobnication failed", "--nv "),
        ("frobnication failed for amdgpu and nvidia", ""),
        ("frobnication failed", ""),
    ],
)
def test_an_unknown_line_gets_the_option_of_its_vendor_as_advice(line: str, option: str) -> None:
    done = gpubind("explain", line)
    assert done.returncode == 2
    assert f"`gpubind check {option}--image IMAGE`" in done.stderr


@pytest.mark.parametrize(
    "line",
    ["AMD EPYC 7763 64-Core Processor", "Intel(R) Xeon(R) Platinum 8480+", "whip hippo ship", "axe xerox", "fixed xes"],
)
def test_a_processor_or_a_word_that_is_alike_names_no_vendor_of_gpus(line: str) -> None:
    assert vendor_of_lines([line]) is None


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('could not select device driver "cdi" with capabilities: []', "docker-cdi-off"),
        ('could not select device driver "" with capabilities: [[gpu]]', "docker-no-toolkit"),
        ("failed to locate libcuda.so.535.183.06: pattern libcuda.so.535.183.06 not found", "ctk-no-libcuda"),
        ("The minimum required Nvidia driver for nvenc is (unknown) or newer", "video-library-missing"),
        ("The minimum required Nvidia driver for nvenc is 522.25 or newer", "nvenc-driver"),
        ("XGBoost is not compiled with CUDA support.", "xgboost-no-gpu"),
        ("failed to inject CDI devices: unresolvable CDI devices runtime.nvidia.com/gpu=all", "cdi-runtime"),
        ("[ggml] ggml_vulkan: No devices found.", "vulkan-no-driver"),
        ("warning: no usable GPU found, --gpu-layers option will be ignored", "llama-no-gpu"),
        ("Failed to initialise VAAPI connection: -1 (unknown libva error).", "vaapi-driver"),
    ],
)
def test_lines_that_are_alike_and_have_other_causes_have_their_own_answers(line: str, name: str) -> None:
    assert name_of(line) == name


@pytest.mark.parametrize("row", messages(), ids=lambda row: row.name)
def test_a_log_of_many_messages_is_told_in_20_lines_and_begins_with_a_conclusion(row: Message) -> None:
    (found,) = find_message(row.message)[:1]
    others = tuple(one._replace(line=2 + number) for number, one in enumerate(search([b"\n".join(LOG)]).found))
    text = render_text(Answer(None, (found._replace(line=1), *others)), 80)
    lines = text.splitlines()
    assert len(lines) <= 20
    assert "line 1" in lines[0].lower()
    assert all(len(line) <= 80 for line in lines if "`" not in line and " " in line)


LOG = [line.encode() for _, line in SEEN[::20]]


def test_a_log_says_what_follows_and_what_is_normal_each_in_a_line() -> None:
    log = b"""Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file
INFO:    Could not find any nv files on this host!
RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver
"""
    text = render_text(Answer(None, search([log]).found), 80)
    assert text.startswith("The first cause is in line 2.\n\nINFO: Could not find any nv files on this host!\n")
    assert text.endswith(
        "also in it; these may follow from it:\n"
        "  line 3: RuntimeError: Found no NVIDIA driver on your system. Please check t...\n"
        "normal, nothing is wrong:\n"
        "  line 1: Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot op...\n"
    )
    whole = render_text(Answer(None, search([log]).found), 80, verbose=True)
    assert [line for line in whole.splitlines() if line.startswith("line ")] != []
    assert "This is normal. " in whole


def test_a_log_without_a_failure_is_said_to_have_none() -> None:
    found = search([b"WARN[0000] Could not locate nvidia-imex: pattern nvidia-imex not found\n"]).found
    assert render_text(Answer(None, found), 200).startswith("No failure that gpubind knows is in this log.")


@pytest.mark.parametrize("name", ["libcuda.so.1", "nvidia-smi", "/dev/nvidia0", "libnvidia-ml.so.1"])
def test_a_file_of_the_driver_on_a_host_without_one_is_answered_as_its_message(tmp_path: object, name: str) -> None:
    done = gpubind("explain", name, "--root", str(tmp_path), "--dev-root", str(tmp_path))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, name)
    assert done.stderr.startswith("note: this host has no driver")
