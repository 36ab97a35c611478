"""What is said of real stacks of Python packages on 15 kinds of machines, against CUDA's rules: 210 pairs.

tests/data/stacks.json has what the wheels have: the modules of each file with GPU code, the packages that tell a
version of CUDA, and libraries that Debian 12 lacks. The verdicts follow from NVIDIA's tables: compute capabilities,
drivers by CUDA version, PTX by version.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpubind.api import plan
from gpubind.formats.text.record import parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.image.facts import Image
from gpubind.model import Finding, Request
from gpubind.model.data import read_data
from gpubind.rules.preflight import preflight
from gpubind.rules.table import check
from tests.image.cuda_trees import SITE
from tests.support.elf import elf
from tests.support.gpucode import container
from tests.support.images import glibc, image_with_bytes

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
STACKS: dict[str, dict[str, Any]] = json.loads(DATA.read_text())["stacks"]


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
    row = STACKS[name]
    files = {**{path: [] for path in row["needed"]}, **row["files"]}
    spec = {f"{SITE}/{package}/METADATA": b"" for package in row["packages"]}
    spec.update({f"{SITE}/{path}": text.encode() for path, text in row["texts"].items()})
    for path, modules in files.items():
        section = b"".join(container(*archs.split()) * alike for archs, alike in modules)
        more = {".nv_fatbin": section} if section else None
        spec[f"{SITE}/{path}"] = elf(path, needed=tuple(row["needed"].get(path, ())), more=more)
        spec[f"{SITE}/{path.partition('/')[0].removesuffix('.libs')}/__init__.py"] = b""
    return image_with_bytes(glibc(), spec)


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
