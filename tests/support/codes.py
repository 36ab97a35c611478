"""The tables of error codes, gpubind/model/data/codes.json, from the headers that define the codes.

python -m tests.support.codes DIRECTORY... writes names and numbers of the headers below DIRECTORY into the tables.
Kind and meaning of a code are written by hand, and stay; a new code has neither: tests/explanation/test_gpu_codes.py
fails until it does. Nothing is removed: programs of other versions print codes that the newest header no longer has.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gpubind.model.data import read_data

FILE = Path(__file__).parents[2] / "gpubind/model/data/codes.json"
_ENTRY = r"^\s*(?:#define\s+)?({names})\s*(?:=|\s)\s*\(?(-?(?:0x[0-9A-Fa-f]+|\d+))\)?"


class Header(NamedTuple):
    """Where the codes of a family are defined."""

    files: str
    """A pattern of the names of its files."""
    names: str
    """A regular expression of the names."""
    within: str = r"(?s:.*)"
    """What the file has around them."""


HEADERS = {
    "cuda-driver": Header("cuda.h", r"CUDA_\w+", r"enum cudaError_enum\s*\{[^}]*\}"),
    "cuda-runtime": Header("driver_types.h", r"cuda(?:Success|Error)\w*", r"(?s:enum \w*\s*cudaError\s*\{.*?\n\s*\};)"),
    "nvml": Header("pynvml.py", r"NVML_(?:SUCCESS|ERROR_\w+)"),
    "nccl": Header("nccl.h", r"(?:typedef enum \{ )?nccl(?!NumResults)\w+", r"typedef enum \{ ncclSuccess[^}]*\}"),
    "xid": Header("nverror.h", r"(?!ROBUST_CHANNEL_(?:LAST_ERROR|ERROR_RECOVERY)|NVERROR_H)[A-Z]\w+"),
    "hip": Header("hip_runtime_api.h", r"hip(?:Success|Error\w+)", r"(?s:enum [\w ]*hipError_t.*?\} hipError_t)"),
    "hsa": Header("hsa*.h", r"HSA_(?:EXT_)?STATUS_\w+"),
    "level-zero": Header("ze_api.h", r"ZE_RESULT_(?!FORCE)\w+", r"(?s:enum _ze_result_t\s*\{.*?\} ze_result_t)"),
    "synapse": Header("synapse_common_types.h", r"syn(?!StatusLast)[A-Z]\w*", r"enum synStatus\s*\{[^}]*\}"),
    "vulkan": Header("vulkan_core.h", r"VK_(?!RESULT_MAX)\w+", r"(?s:enum VkResult \{.*?\} VkResult)"),
    "opencl": Header(
        "cl*.h", r"CL_(?:SUCCESS|(?!BUILD_(?:NONE|ERROR|IN_PROGRESS)\b|\w*LIST_END|\w+_MIN(?:_\w*EXP)?\b)\w+)"
    ),
}


def parse_codes(family: str, text: str) -> list[tuple[str, int]]:
    """Return the names and numbers of the codes of *family* that the header *text* defines, in its order."""
    header = HEADERS[family]
    found = re.search(header.within, text)
    pairs = re.findall(_ENTRY.format(names=header.names), found.group(), re.MULTILINE) if found else []
    codes = [(name.rpartition(" ")[2], int(number, 0)) for name, number in pairs]
    return [(name, number) for name, number in codes if family != "opencl" or number < 0 or name == "CL_SUCCESS"]


def aliases(family: str, text: str) -> dict[str, str]:
    """Return the other names that the header *text* has for codes of *family*: `NAME = OTHER_NAME`."""
    header = HEADERS[family]
    found = re.search(header.within, text)
    names = header.names
    return dict(re.findall(rf"^\s*({names})\s*=\s*({names})\b", found.group(), re.MULTILINE)) if found else {}


def headers(family: str, directory: Path) -> Iterator[str]:
    """Yield the texts of the headers of *family* below *directory*."""
    for path in sorted(directory.rglob(HEADERS[family].files)):
        if path.is_file():
            yield path.read_text(errors="replace")


def merge(family: dict[str, Any], text: str) -> None:
    """Add the codes of the header *text* to *family*: a second name of a number is an alias of the first.

    Of an Xid the name is that of NVIDIA's catalogue, and the header's is left out.
    """
    rows = family["codes"]
    others = dict(family.get("aliases", {}))
    for name, number in parse_codes(family["name"], text):
        first = next((row[0] for row in rows if row[1] == number), None)
        if first is None:
            rows.append([name, number])
        elif first != name:
            others.setdefault(name, first)
    others = {**aliases(family["name"], text), **others}
    if others and family["name"] != "xid":
        family["aliases"] = others
    rows.sort(key=lambda row: (abs(row[1]), row[1]))


def dumped(tables: dict[str, Any]) -> str:
    """Return *tables* as JSON with a line for each code."""
    text = json.dumps(tables, indent=1, ensure_ascii=False)
    return re.sub(r"\[\n\s+([^\[\]{}]+?)\n\s+\]", lambda row: "[" + re.sub(r"\n\s+", " ", row[1]) + "]", text) + "\n"


def main(directories: list[str]) -> None:
    tables = json.loads(read_data("model/data/codes.json"))
    for family in tables["families"]:
        for directory in directories:
            for text in headers(family["name"], Path(directory)):
                merge(family, text)
    FILE.write_text(dumped(tables))


if __name__ == "__main__":
    main(sys.argv[1:])
