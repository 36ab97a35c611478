"""What is said of real stacks on kinds of machines, against the rules of CUDA (210 pairs) and ROCm (276 pairs),
and against what Intel's drivers know (182 pairs).

tests/data/stacks.json has what the wheels have: the modules of each file with GPU code, the packages that tell a
version of CUDA, and libraries that Debian 12 lacks; of those for AMD, the libraries of ROCm. The verdicts follow from
NVIDIA's tables (compute capabilities, drivers by CUDA version, PTX by version) and from AMD's names of processors.
`make stacks` builds the images.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.formats.gpucode.sycl import GENERATED
from gpubind.host.record import parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.image.facts import Image
from gpubind.model import Finding, Request
from gpubind.model.data import read_data
from gpubind.rules.preflight import preflight
from gpubind.rules.table import check
from tests.formats.test_sycl import archive
from tests.image.cuda_trees import SITE
from tests.support.amd import LIB, system
from tests.support.elf import elf
from tests.support.gpucode import bundle, container
from tests.support.images import glibc, image_with_bytes
from tests.support.intel import ihd, neo
from tests.support.stacks import AMD, all_on_amd, amd_machine, on_amd, on_intel_machines, worst
from tests.support.trees import File

DRIVERS = {"550": "550.163.01", "535": "535.261.03", "525": "525.147.05", "470": "470.256.02", "390": "390.157"}
DEVICES = {
    "H100": "0x2330", "A100": "0x20b0", "V100": "0x1db1", "P100": "0x15f8", "K80": "0x102d", "RTX 5090": "0x2b85",
}  # fmt: skip
HOSTS = (
    *(("550", gpu) for gpu in ("H100", "A100", "V100", "P100", "RTX 5090")),
    *(("535", gpu) for gpu in ("H100", "V100", "P100")),
    *(("470", gpu) for gpu in ("A100", "V100", "P100", "K80")),
    *(("390", gpu) for gpu in ("V100", "P100", "K80")),
)
ABOUT = ("cuda-too-new", "framework-library", "gpu-code-missing", "ptx-too-new")
DATA = Path(__file__).parent.parent / "data" / "stacks.json"
DATA_OF = json.loads(DATA.read_text())
STACKS: dict[str, dict[str, Any]] = DATA_OF["stacks"]
INTEL_STACKS: dict[str, dict[str, Any]] = DATA_OF["intel"]
AMD_STACKS: dict[str, dict[str, Any]] = DATA_OF["amd"]
PROGRAMS: dict[str, str] = DATA_OF["programs"]
"""Verdicts of programs with code for the processors in their name, on each machine of `AMD`."""


@cache
def host(branch: str, gpu: str) -> RecordedHost:
    """The recorded host with the driver of *branch*, and *gpu*."""
    text = read_data("model/data/hosts/debian13-nvidia550.json").decode()
    data: dict[str, Any] = json.loads(text.replace("550.163.01", DRIVERS[branch]))
    directories = data["trees"]["driver"]["directories"]
    for address in ("0000:01:00.0", "0000:02:00.0"):
        directories["/sys/bus/pci/devices"]["entries"][address] = {"type": "dir"}
        device = {"size": 4096, "text": f"{DEVICES[gpu]}\n"}
        directories[f"/sys/bus/pci/devices/{address}"] = {"listed": True, "entries": {"device": device}}
    return RecordedHost(parse_record(json.dumps(data).encode()), f"{branch}, {gpu}")


@cache
def stack(name: str) -> Image:
    row = {"packages": [], "texts": {}, **(STACKS.get(name) or AMD_STACKS[name])}
    files = {**{path: [] for path in row["needed"]}, **row["files"]}
    spec = {f"{SITE}/{package}/METADATA": b"" for package in row["packages"]}
    spec.update({f"{SITE}/{path}": text.encode() for path, text in row["texts"].items()})
    for path, modules in files.items():
        if path.endswith("/"):
            spec.update({f"{path}Kernels.so-000-{arch.replace(':', '-')}.hsaco": b"" for arch in modules[0][0].split()})
            continue
        own = {
            ".nv_fatbin": [container(*archs.split()) * alike for archs, alike in modules if archs[:3] != "gfx"],
            ".hip_fatbin": [bundle(*archs.split()) * alike for archs, alike in modules if archs[:3] == "gfx"],
        }
        more = {section: b"".join(parts) for section, parts in own.items() if parts}
        place = path if path.startswith("/") else f"{SITE}/{path}"
        spec[place] = elf(path, needed=tuple(row["needed"].get(path, ())), more=more or None)
        spec[f"{SITE}/{path.partition('/')[0].removesuffix('.libs')}/__init__.py"] = b""
    return image_with_bytes(system() if name in AMD_STACKS else {}, glibc(), spec)


def findings(branch: str, gpu: str, name: str) -> list[Finding]:
    on, image = host(branch, gpu), stack(name)
    made = plan(on, Request(vendors=("nvidia",), caps=("compute", "utility")), image=image)
    return [finding for finding in check(preflight(on, made, image)) if finding.code in ABOUT]


@pytest.mark.parametrize("name", STACKS)
def test_each_of_14_stacks_has_the_right_verdict_on_each_of_15_machines(name: str) -> None:
    errors = (any(one.severity == "error" for one in findings(*machine, name)) for machine in HOSTS)
    verdicts = "".join("E" if is_error else "." for is_error in errors)
    assert verdicts == STACKS[name]["verdicts"].replace(" ", "")


def test_ptx_that_a_driver_of_the_same_major_version_refuses_is_an_error() -> None:
    (found,) = findings("525", "H100", "tensorflow 2.15.1")
    assert (found.code, found.subject, found.severity) == ("ptx-too-new", "TensorFlow", "error")
    (found,) = findings("525", "H100", "ctranslate2 4.5.0")
    assert (found.code, found.subject, found.severity) == ("ptx-too-new", "CTranslate2", "error")


def test_nothing_is_said_of_a_healthy_pair() -> None:
    assert [one.code for one in findings("550", "A100", "vllm 0.13.0 and torch 2.9.0")] == []
    assert [one.code for one in findings("550", "H100", "jax[cuda12] 0.4.30")] == []


@cache
def all_of_stack(machine: str, name: str, rocm: Optional[str]) -> tuple[Finding, ...]:
    return all_on_amd(machine, stack(name), rocm)


def of_stack(machine: str, name: str, rocm: Optional[str], *codes: str) -> list[Finding]:
    return [finding for finding in all_of_stack(machine, name, rocm) if finding.code in codes]


@pytest.mark.parametrize("name", AMD_STACKS)
def test_each_of_12_stacks_for_amd_has_the_right_verdict_about_code_on_each_of_12_machines(name: str) -> None:
    found = (of_stack(machine, name, "6.2.4", "gpu-code-missing", "gpu-code-unread") for machine in AMD)
    assert "".join(map(worst, found)) == AMD_STACKS[name]["verdicts"]


@pytest.mark.parametrize("archs", PROGRAMS)
def test_each_of_11_programs_has_the_right_verdict_about_code_on_each_of_12_machines(archs: str) -> None:
    program = File(elf(kind=2, more={".hip_fatbin": bundle(*archs.split())}), 0o755)
    image = image_with_bytes(glibc(), {"/usr/bin/solve": program})
    found = (on_amd(machine, image, None, "gpu-code-missing", program="solve") for machine in AMD)
    assert "".join(map(worst, found)) == PROGRAMS[archs]


@pytest.mark.parametrize("name", AMD_STACKS)
@pytest.mark.parametrize("rocm", ["6.2.4", None])
def test_what_a_stack_lacks_of_rocm_is_told_on_each_of_12_machines(name: str, rocm: Optional[str]) -> None:
    row = AMD_STACKS[name]
    codes = ("framework-library", *(("userspace-missing",) if row["libraries"] == "E" else ()))
    found = [of_stack(machine, name, rocm, *codes) for machine in AMD]
    assert "".join(map(worst, found)) == row["libraries"] * len(AMD)
    mounts = plan(amd_machine("MI100", rocm), Request(vendors=("amd",)), image=stack(name)).mounts
    provided = {mount.soname for mount in mounts}
    for (told,) in filter(None, found):
        needed = {*row["needed"].get((told.where or "").removeprefix(f"{SITE}/"), ())} - provided
        assert told.code == "userspace-missing" or {*re.findall(r"lib[\w-]+\.so\.[0-9]+", told.what)} == needed


def intel_stack(name: str) -> Image:
    """The image with the files of a stack for Intel's GPUs."""
    row = INTEL_STACKS[name]
    spec: dict[str, Any] = {f"{LIB}/{library}": elf(library) for library in row.get("libraries", ())}
    for path, file in row.get("files", {}).items():
        sections = {GENERATED: archive(*file["sycl"].split())} if "sycl" in file else None
        spec[path if path.startswith("/") else f"{SITE}/{path}"] = elf(path, needed=file["needed"], more=sections)
    files = "".join(f"{path},sha256=x,9000000\n" for path in row.get("files", {}) if not path.startswith("/"))
    spec[f"{SITE}/stack-1.dist-info/RECORD"] = files.encode()
    for library in ("libze_intel_gpu.so.1", "intel-opencl/libigdrcl.so") if "neo" in row else ():
        release, platforms, xe = row["neo"]
        spec.update(neo(release, platforms, xe, library))
        spec["/etc/OpenCL/vendors/intel.icd"] = f"{LIB}/intel-opencl/libigdrcl.so\n".encode()
    if "ihd" in row:
        release, platforms = row["ihd"]
        spec[f"{LIB}/dri/iHD_drv_video.so"] = ihd(release, *platforms.split(), xe=release != "23.1.1")
    return image_with_bytes(glibc("2.36"), {"/usr/bin/python3": elf(kind=2)}, spec)


@pytest.mark.parametrize("name", INTEL_STACKS)
def test_each_of_13_stacks_for_intel_has_the_right_verdict_on_each_of_14_machines(name: str) -> None:
    assert on_intel_machines(intel_stack(name)) == INTEL_STACKS[name]["verdicts"].replace(" ", "")
