"""Codes of the interfaces to a GPU, by name and by number, for codes that no message explains better.

data/codes.json has every code of each family, as its header defines it. The remedy depends on the family. The file is
read only for a text that contains the beginning of such a name, or a number in a form that names its family.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal, Optional

from gpubind.frozen import NamedTuple
from gpubind.model.data import table

_BEGINS = re.compile(
    rb"cuda_?(?:error|success)|hip(?:error|success)|nvml_(?:error|success)"
    rb"|nccl(?:success|unhandled|system|internal|invalid|remote|inprogress|timeout)|hsa_(?:ext_)?status|ze_result_"
    rb"|syn(?:success|invalid|cbfull|outof|object|command|nodevice|device|fail|unsupp|wrong|name|busy|all|unavail|unini)"
    rb"|syn(?:already|synapse|assert|mapping|timeout|resource)"
    rb"|vk_(?:success|not_|timeout|event_|incomp|error_|pipeline_|suboptimal|thread_|operation_)|cl_[a-z]"
)
"""The beginnings of the names of codes, folded."""
_CODE_LIKE = re.compile(r"\b(?:cuda|hip|nvml|nccl|hsa_|ze_|vk_|cl_)[a-z0-9_]{4,60}\b", re.IGNORECASE)
"""Words that may be misspelt codes."""
_FEW = 3
_LONG_TEXT = 1 << 17
"""The size in bytes from which searching a text for a beginning takes longer than reading the tables."""
_HEXADECIMAL = ("hsa", "level-zero")
"""Families whose numbers are usually printed in hexadecimal."""
_NUMBERED = {
    "number": ("cuda-driver", "cuda-runtime"),
    "hip": ("hip",),
    "xid": ("xid",),
    "nvml": ("nvml",),
    "nccl": ("nccl",),
    "hsa": ("hsa",),
    "ze": ("level-zero",),
    "syn": ("synapse",),
    "vk": ("vulkan",),
    "cl": ("opencl",),
}
"""The families whose numbers have each form. The first family that has the number is used."""
_EARLIER = ("note", "follow", "action", "unused", "none", "new")
"""Kinds of Xid that may be only the consequence of a cause in another line."""

Rank = Literal["cause", "general", "warning", "harmless"]
_RANKS: dict[str, Rank] = {"ok": "harmless", "warning": "warning"}
"""Kinds of codes that do not mean a failure."""


class Code(NamedTuple):
    """A code and its meaning."""

    name: str
    means: str
    do: str
    rank: Rank


def may_have_codes(text: bytes) -> bool:
    """Return whether the folded *text* may contain the name of a code."""
    return len(text) > _LONG_TEXT or _BEGINS.search(text) is not None


@lru_cache(maxsize=1)
def _names() -> dict[str, tuple[int, int]]:
    """Return the family and row of each folded name. Xids are left out, because kernel logs contain their numbers."""
    positions: dict[str, tuple[int, int]] = {}
    for number, family in enumerate(table("codes")["families"]):
        if family["name"] != "xid":
            rows = {row[0]: index for index, row in enumerate(family["codes"]) if row[0]}
            positions.update({name.lower(): (number, index) for name, index in rows.items()})
            for alias, name in family.get("aliases", {}).items():
                positions[alias.lower()] = (number, rows[name])
    return positions


@lru_cache(maxsize=1)
def code_names() -> frozenset[bytes]:
    """Return the names of codes, folded."""
    return frozenset(name.encode() for name in _names())


@lru_cache(maxsize=1)
def _squeezed_names() -> dict[str, bytes]:
    return {name.decode().replace("_", ""): name for name in sorted(code_names(), reverse=True)}


def find_code_by_name(name: bytes) -> Code:
    """Return the code with the folded *name*, one of `code_names`."""
    family, index = _names()[name.decode()]
    chosen = table("codes")["families"][family]
    return _code(chosen, chosen["codes"][index])


@lru_cache(maxsize=256)
def find_code_by_number(kind: str, text: str) -> Optional[Code]:
    """Return the code that has the number *text* in a form of *kind*, or the name *text* as another language spells it.

    PyOpenCL writes `OUT_OF_RESOURCES` for `CL_OUT_OF_RESOURCES`, C++ `ErrorDeviceLost` for `VK_ERROR_DEVICE_LOST`.
    """
    if re.match(r"[a-z_]+$", text):
        folded_name = _squeezed_names().get((kind + text).replace("_", "").replace("vkeerror", "vkerror"))
        return None if folded_name is None else find_code_by_name(folded_name)
    number = int(text, 16 if text.lower().startswith("0x") else 10)
    for name in _NUMBERED[kind]:
        family = next(family for family in table("codes")["families"] if family["name"] == name)
        row = next((row for row in family["codes"] if row[1] == number), None)
        if row is not None:
            return _code(family, row)
    return None


def _code(family: dict[str, Any], row: list[Any]) -> Code:
    name, number, *_ = row
    kind, meaning, causes = [*_kind_and_meaning(row), ""][:3]
    shown = f"{number:#x}" if family["name"] in _HEXADECIMAL else str(number)
    is_xid = family["name"] == "xid"
    description = f"Xid {shown}, {name}." if is_xid else f"{name} is number {shown} of {family['type']}."
    causes = ", ".join(table("codes")["causes"][letter] for letter in causes)
    possible = f" NVIDIA's table names as possible causes: {causes}." if causes else ""
    means = f"{description if name else ''} {meaning}{possible}".strip()
    is_cause = is_xid and kind not in _EARLIER
    rank = _RANKS.get(kind) or ("cause" if is_cause else "general")
    title = f"Xid {number}" if is_xid else name or f"{family['title']} error {number}"
    return Code(title, means, table("codes")["do"][family["do"]][kind], rank)


def _kind_and_meaning(row: list[Any]) -> list[str]:
    """Return the kind and meaning of *row*. If it has none, return those of the CUDA code with the same number."""
    if len(row) > 2:
        return row[2:]
    driver, runtime = table("codes")["families"][:2]
    of_cuda = (*driver["codes"], *runtime["codes"])
    return next(cuda_row[2:] for cuda_row in of_cuda if cuda_row[1] == row[1] and len(cuda_row) > 2)


def says_less(message: str) -> bool:
    """Return whether the number of a code is more exact than *message*."""
    return message in table("codes")["general"] or message in table("codes")["partial"]


def is_more_exact(code_name: bytes, message: str, like: Iterable[str]) -> bool:
    """Return whether the code *code_name* is more exact than *message* with the phrases *like*."""
    is_about = any(code_name.decode() in phrase for phrase in like)
    return message in table("codes")["general"] or (message in table("codes")["partial"] and not is_about)


def similar_codes(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the names of codes that are similar to the first three candidate words of *texts*."""
    from difflib import get_close_matches  # only where a name means nothing

    words = [word.lower() for text in texts for word in _CODE_LIKE.findall(text)][:_FEW]
    near = (name for word in words for name in get_close_matches(word, _names(), n=1, cutoff=0.85))
    return tuple(dict.fromkeys(find_code_by_name(name.encode()).name for name in near))
