"""The tables of error codes against the headers of today, which are downloaded: every code of a header is known.

NCCL's wheel (300 MB for nine codes), SynapseAI and NVIDIA's kernel module are left out:
`python -m tests.support.codes`, by hand.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpubind.model.data import table
from tests.support.codes import HEADERS, aliases, headers, parse_codes

pytestmark = pytest.mark.live

WHEELS = {"cuda-driver": "nvidia-cuda-runtime", "cuda-runtime": "nvidia-cuda-runtime", "nvml": "nvidia-ml-py"}
DEBS = {
    "hip": "libamdhip64-dev",
    "hsa": "libhsa-runtime-dev",
    "level-zero": "libze-dev",
    "opencl": "opencl-c-headers",
    "vulkan": "libvulkan-dev",
}


def downloaded(family: str, directory: Path) -> None:
    """Unpack the package with the headers of *family* below *directory*."""
    if family in WHEELS:
        words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", WHEELS[family]]
        subprocess.run(words, cwd=directory, check=True)
        unpack = [sys.executable, "-m", "zipfile", "-e", *map(str, directory.glob("*.whl")), str(directory)]
    else:
        subprocess.run(["apt-get", "-qq", "download", DEBS[family]], cwd=directory, check=True)
        unpack = ["dpkg", "-x", *map(str, directory.glob("*.deb")), str(directory)]
    subprocess.run(unpack, check=True)


def test_the_families_that_are_left_out_are_those_without_a_small_package() -> None:
    assert set(HEADERS) - {*WHEELS, *DEBS} == {"nccl", "synapse", "xid"}


@pytest.mark.parametrize("family", [*WHEELS, *DEBS])
def test_every_code_of_the_headers_is_in_the_tables(family: str, tmp_path: Path) -> None:
    downloaded(family, tmp_path)
    known = next(one for one in table("codes")["families"] if one["name"] == family)
    numbers = {row[0]: row[1] for row in known["codes"]}
    numbers.update({alias: numbers[name] for alias, name in known.get("aliases", {}).items()})
    defined: dict[str, int] = {}
    for text in headers(family, tmp_path):
        defined.update(parse_codes(family, text))
        assert set(aliases(family, text)) <= set(numbers)
    assert len(defined) * 2 > len(known["codes"])
    assert {name: numbers.get(name) for name in defined} == defined
