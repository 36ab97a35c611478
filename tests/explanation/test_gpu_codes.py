"""The tables of error codes, and what `explain` says of a code that no message is about."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from gpubind.cli.commands import command_of
from gpubind.cli.reader import read_line
from gpubind.explanation.gpu_codes import (
    Code,
    code_names,
    find_code_by_name,
    find_code_by_number,
    similar_codes,
)
from gpubind.explanation.messages import find_message, messages, search
from gpubind.model import data
from gpubind.model.data import table
from tests.explanation.test_messages import name_of
from tests.support.codes import FILE, HEADERS, dumped, parse_codes
from tests.support.commands import HOST, gpubind
from tests.support.golden import assert_golden, assert_listed

FAMILIES = {family["name"]: family for family in table("codes")["families"]}
COUNTS = {
    "cuda-driver": 106,
    "cuda-runtime": 138,
    "nvml": 32,
    "nccl": 9,
    "xid": 176,
    "hip": 79,
    "hsa": 53,
    "level-zero": 62,
    "synapse": 44,
    "vulkan": 50,
    "opencl": 103,
}
KINDS = ("number", "hip", "xid", "nvml", "nccl", "hsa", "ze", "syn", "vk", "cl")


def every_code() -> list[Code]:
    """Each code by its name, and each Xid by its number."""
    xids = [find_code_by_number("xid", str(row[1])) for row in FAMILIES["xid"]["codes"]]
    return [*map(find_code_by_name, sorted(code_names())), *(xid for xid in xids if xid is not None)]


def test_each_family_is_complete_and_has_no_name_or_number_twice() -> None:
    now, counted = (
        [f"{name}: {n}" for name, n in counts]
        for counts in (((name, len(family["codes"])) for name, family in FAMILIES.items()), COUNTS.items())
    )
    assert_listed(
        now, counted, add="", remove="tests/explanation/test_gpu_codes.py, COUNTS: write `{}`, if codes were added"
    )
    add = "gpubind/model/data/codes.json: add the family `{}`: python -m tests.support.codes DIRECTORY..."
    assert_listed(FAMILIES, HEADERS, add=add, remove="tests/support/codes.py: add the headers of `{}` to HEADERS")
    for family in FAMILIES.values():
        assert max(Counter(row[1] for row in family["codes"]).values()) == 1, family["name"]
        assert max(Counter(row[0] for row in family["codes"]).values()) == 1, family["name"]
        names = {row[0] for row in family["codes"]}
        assert set(family.get("aliases", {}).values()) <= names
        assert not names & set(family.get("aliases", {}))
    every = [row[0].lower() for family in FAMILIES.values() for row in family["codes"] if row[0]]
    assert max(Counter(every).values()) == 1


def test_each_code_has_a_meaning_and_a_command() -> None:
    for code in every_code():
        assert re.search(r"\. [A-Za-z].*\.$", code.means), code
        assert re.search(r"`[^`]+`", code.do), code
    for family in FAMILIES.values():
        assert {row[2] for row in family["codes"] if len(row) > 2} <= set(table("codes")["do"][family["do"]]), family[
            "name"
        ]


def test_the_file_has_a_line_for_each_code_as_its_generator_writes_it() -> None:
    assert_golden(FILE, dumped(json.loads(FILE.read_text())))


def test_names_of_codes_are_not_those_of_messages() -> None:
    names = {re.sub(r"[^a-z0-9]+", "-", code.name.lower()) for code in every_code()}
    assert not names & {row.name for row in messages()}


COMMANDS = {
    line for todo in table("codes")["do"].values() for text in todo.values() for line in re.findall(r"`([^`]+)`", text)
}


@pytest.mark.parametrize("line", sorted(line for line in COMMANDS if re.match(r"gpubind \w+ -", line)))
def test_the_commands_that_a_code_names_are_read(line: str) -> None:
    _, name, *words = line.split()
    assert read_line(command_of(name), words, {}).error is None


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ("RuntimeError: CUDA error: CUDA_ERROR_INVALID_PC", "cuda-error-invalid-pc"),
        ("cudaGraphLaunch: cudaErrorInvalidConfiguration", "cudaerrorinvalidconfiguration"),
        ("nvmlDeviceGetHandleByIndex: NVML_ERROR_RESET_TYPE_NOT_SUPPORTED", "nvml-error-reset-type-not-supported"),
        ("ncclTimeout", "nccltimeout"),
        ("hipErrorInvalidContext in ihipModule", "hiperrorinvalidcontext"),
        ("returned HSA_STATUS_ERROR_INVALID_ISA_NAME:", "hsa-status-error-invalid-isa-name"),
        ("ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "ze-result-error-out-of-device-memory"),
        ("Level-Zero error: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "ze-result-error-out-of-device-memory"),
        ("synLaunch: synFailedSectionValidation", "synfailedsectionvalidation"),
        ("VkResult: VK_ERROR_FRAGMENTED_POOL", "vk-error-fragmented-pool"),
        ("clEnqueueCopyBuffer: CL_MEM_COPY_OVERLAP", "cl-mem-copy-overlap"),
        ("CL_INVALID_SEMAPHORE_KHR", "cl-invalid-semaphore-khr"),
    ],
)
def test_a_line_with_the_name_of_a_code_is_answered(seen: str, name: str) -> None:
    assert name_of(seen) == name


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ("CUDA error 717", "cuda-error-invalid-address-space"),
        ("CUDA error 9", "cudaerrorinvalidconfiguration"),
        ("cuInit failed: 201", "cuda-error-invalid-context"),
        ("nvmlInit_v2 failed: 23", "nvml-error-insufficient-resources"),
        ("NCCL error: 8", "nccltimeout"),
        ("NVRM: Xid (PCI:0000:3b:00): 109, pid=1, name=a", "xid-109"),
        ("Xid 46", "xid-46"),
        ("hipError 201", "hiperrorinvalidcontext"),
        ("hsa_status_t 4119", "hsa-status-error-invalid-isa-name"),
        ("zeInit returned 0x78000005", "ze-result-error-invalid-null-handle"),
        ("ze_result_t 2013265925", "ze-result-error-invalid-null-handle"),
        ("RuntimeError: synStatus=17 [Device in reset] Graph launch failed.", "syndevicereset"),
        ("synLaunch failed: 42", "syntimeout"),
        ("vkQueueSubmit failed: -12", "vk-error-fragmented-pool"),
        ("clEnqueueNDRangeKernel failed with error -54", "cl-invalid-work-group-size"),
        ("pyopencl._cl.RuntimeError: clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES", "cl-out-of-resources"),
        ("vk::Device::allocateDescriptorSets: ErrorFragmentedPool", "vk-error-fragmented-pool"),
        ("vk::Queue::submit: eErrorDeviceLost", "vulkan-device-lost"),
    ],
)
def test_a_number_in_a_form_of_its_family_is_answered(seen: str, name: str) -> None:
    assert name_of(seen) == name


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ("CUDA error 803", "driver-combination"),
        ("cuInit failed: 999", "cuda-unknown"),
        ("CUDA_ERROR_NOT_PERMITTED", "imex"),
        ("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "driver-mismatch"),
        ("nvmlInit failed: 18", "driver-mismatch"),
        ("hipError 98", "hip-no-code"),
        ("Xid 79", "xid-bus"),
        ("ncclSystemError", "nccl-failed"),
        ("VkResult(-4)", "vulkan-device-lost"),
        ("ZE_RESULT_ERROR_UNINITIALIZED", "intel-no-device"),
        ("VK_ERROR_INCOMPATIBLE_DRIVER", "vulkan-no-driver"),
        ("opencl error -9999", "opencl-context"),
        ("HSA_STATUS_ERROR_OUT_OF_RESOURCES", "hip-no-device"),
        ("NVRM: Xid (PCI:0000:3b:00): 900, pid=1", "xid-other"),
    ],
)
def test_a_message_that_is_about_a_code_is_the_better_answer(seen: str, name: str) -> None:
    assert name_of(seen) == name


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ("RuntimeError: HIP error: hipErrorInvalidValue", "hiperrorinvalidvalue"),
        ("RuntimeError: CUDA error: CUDA_ERROR_INVALID_HANDLE", "cuda-error-invalid-handle"),
        ("NCCL error: 5", "ncclinvalidusage"),
        ("zeInit returned 0x78000001", "ze-result-error-uninitialized"),
        ("vkGetPhysicalDeviceSurfaceFormatsKHR failed, VkResult=-3", "vk-error-initialization-failed"),
    ],
)
def test_a_code_says_more_than_a_message_that_only_says_that_a_call_failed(seen: str, name: str) -> None:
    assert name_of(seen) == name


def test_a_code_is_found_once_in_a_log() -> None:
    log = search([b"a VK_ERROR_FRAGMENTED_POOL\nb VK_ERROR_FRAGMENTED_POOL\nNVML_ERROR_NO_DATA\n" * 3]).found
    assert [(one.line, one.message.name) for one in log] == [(1, "vk-error-fragmented-pool"), (3, "nvml-error-no-data")]


SUCCESSES = re.split(
    r"\s+",
    """CUDA_SUCCESS CUDA_ERROR_NOT_READY cudaSuccess cudaErrorNotReady NVML_SUCCESS ncclSuccess ncclInProgress
hipSuccess hipErrorNotReady HSA_STATUS_SUCCESS HSA_STATUS_INFO_BREAK ZE_RESULT_SUCCESS ZE_RESULT_NOT_READY VK_SUCCESS
VK_INCOMPLETE VK_SUBOPTIMAL_KHR VK_TIMEOUT VK_NOT_READY CL_SUCCESS""",
)


@pytest.mark.parametrize("name", SUCCESSES)
def test_a_code_of_success_is_not_called_a_failure(name: str) -> None:
    for seen in (name, f"cuCtxCreate: {name}", f"call returned {name} after 3 ms"):
        assert [one.message.rank for one in find_message(seen)] == ["harmless"], seen
    for seen in (f"Check failed: status == {name}", f"expected {name}, got garbage: error"):
        assert [one.message.rank for one in find_message(seen) if one.message.rank == "harmless"] == [], seen
    assert [one.message.rank for one in search([f"{name}\nbug: CUDA_ERROR_INVALID_PC\n".encode()]).found] == [
        "general",
        "harmless",
    ]


def test_every_positive_code_of_vulkan_and_every_zero_is_not_called_a_failure() -> None:
    zero = [find_code_by_number(kind, "0") for kind in KINDS if kind != "xid"]
    positive = [find_code_by_number("vk", str(row[1])) for row in FAMILIES["vulkan"]["codes"] if row[1] > 0]
    assert {code and code.rank for code in (*zero, *positive)} == {"harmless"}


@pytest.mark.parametrize(
    "line",
    [
        "clone failed: -12",
        "cluster join failed with error -2",
        "client returned -5",
        "cudaGetDeviceCount returned 2",
        "zeros returned 3",
        "vkcube failed: -1",
        "opencl error -5.3 dB",
        "NVML error 4.5",
        "CL_DEVICE_NAME NVIDIA A100, CL_DEVICE_AVAILABLE CL_TRUE",
        "VK_FORMAT_R8G8B8A8_UNORM VK_QUEUE_GRAPHICS_BIT",
        "cudaErrorHandler registered",
        "vk::Device::allocateMemory: ErrorHandler installed",
        "clBuildProgram failed: my_own_word",
    ],
)
def test_what_only_looks_like_a_code_is_not_one(line: str) -> None:
    assert name_of(line) == "-"


def test_a_line_with_a_success_and_a_failure_is_about_the_failure() -> None:
    assert name_of("expected CUDA_SUCCESS, got CUDA_ERROR_INVALID_PC") == "cuda-error-invalid-pc"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("CUDA_ERROR_NODEVICE", "CUDA_ERROR_NO_DEVICE"),
        ("cudaErrorIlegalAddress", "cudaErrorIllegalAddress"),
        ("NVML_ERROR_NOPERMISSION", "NVML_ERROR_NO_PERMISSION"),
        ("ncclSytemError", "ncclSystemError"),
        ("hipErrorInvalidImages", "hipErrorInvalidImage"),
        ("HSA_STATUS_ERROR_OUT_OF_RESOURCE", "HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
        ("ZE_RESULT_ERROR_UNINITIALISED", "ZE_RESULT_ERROR_UNINITIALIZED"),
        ("VK_ERROR_INCOMPATIBLE_DRIVERS", "VK_ERROR_INCOMPATIBLE_DRIVER"),
        ("CL_DEVICE_NOTAVAILABLE", "CL_DEVICE_NOT_AVAILABLE"),
    ],
)
def test_a_name_that_is_almost_a_code_is_answered_with_the_code(asked: str, name: str) -> None:
    assert similar_codes([f"{asked} was returned"]) == (name,)


def test_explain_suggests_the_code_that_was_almost_named() -> None:
    done = gpubind("explain", "CUDA_ERROR_NODEVICE", "--host", HOST)
    assert done.returncode == 2
    assert "did you mean `CUDA_ERROR_NO_DEVICE`?" in done.stderr


def test_the_vendor_of_a_code_decides_on_the_tools() -> None:
    nvidia = re.compile("compute-sanitizer|nvidia-|CUDA_LAUNCH_BLOCKING|Xid")
    amd = re.compile("rocm|AMD_|amdgpu")
    for vendor, todo in table("codes")["do"].items():
        texts = " ".join(todo.values())
        assert bool(nvidia.search(texts)) == (vendor in ("nvidia", "xid")), vendor
        assert bool(amd.search(texts)) == (vendor == "amd"), vendor


def test_only_what_nvidias_catalogue_drains_is_drained() -> None:
    assert [kind for kind, text in table("codes")["do"]["xid"].items() if "drain" in text] == ["ecc", "action"]
    assert [row[1] for row in FAMILIES["xid"]["codes"] if row[2] in ("ecc", "action")] == [48, 154]


def test_the_tables_are_read_only_for_a_text_with_the_beginning_of_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data, "READ", {})
    table.cache_clear()
    search([b"NCCL INFO Channel 0 via P2P on cuda:0, hip, vulkan, opencl\nerror: no\n"])
    assert not any(path.endswith("codes.json") for path in data.READ)
    search([b"VK_ERROR_FRAGMENTED_POOL\n"])
    code_names()
    assert name_of("VK_ERROR_FRAGMENTED_POOL") == "vk-error-fragmented-pool"


@pytest.mark.parametrize(
    ("family", "text", "codes"),
    [
        (
            "cuda-driver",
            "typedef enum cudaError_enum {\n  CUDA_SUCCESS = 0, /** */\n  CUDA_ERROR_A = 7\n} CUresult;\nCUDA_B = 1\n",
            [("CUDA_SUCCESS", 0), ("CUDA_ERROR_A", 7)],
        ),
        (
            "nccl",
            "typedef enum { ncclSuccess   =  0,\n   ncclA  =  1,\n  ncclNumResults = 2 } ncclResult_t;",
            [("ncclSuccess", 0), ("ncclA", 1)],
        ),
        (
            "opencl",
            "#define CL_SUCCESS 0\n#define CL_A -30\n#define CL_BUILD_ERROR -2\n#define CL_TRUE 1\n",
            [("CL_SUCCESS", 0), ("CL_A", -30)],
        ),
        (
            "vulkan",
            "typedef enum VkResult {\n VK_A = -1000,\n VK_B = VK_A,\n VK_RESULT_MAX_ENUM = 0x7\n} VkResult;\n",
            [("VK_A", -1000)],
        ),
        (
            "level-zero",
            "typedef enum _ze_result_t\n{\n ZE_RESULT_A = 0x70000001, ///< x\n} ze_result_t;\n",
            [("ZE_RESULT_A", 0x70000001)],
        ),
        (
            "synapse",
            "typedef enum synStatus\n{\n    synA = 0,\n    synB = 1,\n    synStatusLast = synB\n} synStatus;\n",
            [("synA", 0), ("synB", 1)],
        ),
    ],
)
def test_the_codes_of_a_header_are_read(family: str, text: str, codes: list[tuple[str, int]]) -> None:
    assert parse_codes(family, text) == codes


XID_79 = (
    "Xid 79, ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS. The GPU no longer answers on PCI Express. NVIDIA's table names "
    "as possible causes: the driver, the hardware, the bus (PCI Express), damaged memory of the host, heat."
)
HSA = "HSA_STATUS_ERROR is number 0x1000 of hsa_status_t. The ROCm runtime failed without a more exact code."
LOST = (
    "VK_ERROR_DEVICE_LOST is number -4 of VkResult. The GPU stopped working for this program: a hang, a reset, or a "
    "fault of the driver."
)


@pytest.mark.parametrize(
    ("kind", "text", "name", "means", "rank"),
    [
        ("xid", "79", "Xid 79", XID_79, "cause"),
        ("hsa", "4096", "HSA_STATUS_ERROR", HSA, "general"),
        ("hsa", "0x1000", "HSA_STATUS_ERROR", HSA, "general"),
        ("hsa", "0X1000", "HSA_STATUS_ERROR", HSA, "general"),
        *(
            ("vk", text, "VK_ERROR_DEVICE_LOST", LOST, "general")
            for text in ("-4", "errordevicelost", "error_device_lost", "eerror_device_lost")
        ),
        (
            *("syn", "3", "synOutOfHostMemory"),
            "synOutOfHostMemory is number 3 of synStatus. The host has not enough free memory.",
            "general",
        ),
        (
            *("nvml", "0", "NVML_SUCCESS"),
            "NVML_SUCCESS is number 0 of nvmlReturn_t. The call was successful.",
            "harmless",
        ),
    ],
)
def test_the_meaning_of_a_code_begins_with_its_name_number_and_type(
    kind: str, text: str, name: str, means: str, rank: str
) -> None:
    code = find_code_by_number(kind, text)
    assert code is not None
    assert (code.name, code.means, code.rank) == (name, means, rank)


@pytest.mark.parametrize(("kind", "text"), [("xid", "900"), ("cl", "nothing_x"), ("hsa", "0xfff"), ("nvml", "-1")])
def test_a_number_or_name_of_no_family_is_no_code(kind: str, text: str) -> None:
    assert find_code_by_number(kind, text) is None


def test_the_runtimes_code_of_cuda_serves_where_the_drivers_has_none_of_its_number() -> None:
    code = find_code_by_number("number", "98")
    assert code is not None
    assert (code.name, code.means.partition(". ")[0]) == (
        "cudaErrorInvalidDeviceFunction",
        "cudaErrorInvalidDeviceFunction is number 98 of cudaError_t",
    )


def test_up_to_three_words_are_taken_for_misspelt_codes() -> None:
    four = "cudaErorInvalidValue cudaErorNoDevice hipErorNoDevice hipErorOutOfMemory"
    assert similar_codes([four]) == ("cudaErrorInvalidValue", "cudaErrorNoDevice", "hipErrorNoDevice")
    assert similar_codes(["cudaErorNoDevice", "cudaErorNoDevice"]) == ("cudaErrorNoDevice",)
    assert similar_codes(["xcudaErorNoDevice", "hip", "cuda_abc"]) == ()
