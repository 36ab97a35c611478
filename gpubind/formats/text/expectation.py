"""What a node is to have, in TOML: a file of a few lines, or the table `[require]` of a configuration file.

    driver = "550.163.01"
    capabilities = ["compute", "utility"]

    [gpus]
    "NVIDIA A100-SXM4-80GB" = 8

`driver` may be a list, where a node has several, and `550` is every version of that branch. `gpus = 8` means GPUs of
any model. `partition = "CPX/NPS4"` is the mode in which AMD's GPUs are divided; it may be a list, or one of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpubind.errors import FormatError, one_of
from gpubind.formats.text.toml import parse_toml
from gpubind.model import CAPABILITIES
from gpubind.model.expectation import Expectation

_WHAT = "malformed expectation of a node"
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+~_-]{0,60}")
_PARTITION = re.compile(r"[A-Z]PX(/NPS[0-9])?|NPS[0-9]")
KEYS = ("driver", "gpus", "partition", "capabilities")
SIZE_LIMIT = 256 << 10
GPUS_LIMIT = 4096
"""GPUs of a node, and models that it may have."""
_SHOWN = 100
"""Characters of a text that is wrong."""


def parse_expectation(data: bytes) -> Expectation:
    """Return what *data* expects. Errors: `FormatError` (code `bad-expectation`)."""
    if len(data) > SIZE_LIMIT:
        raise _malformed(f"{len(data)} bytes; {SIZE_LIMIT} at most")
    return expectation_of_table(parse_toml(data, "bad-expectation", _WHAT))


def expectation_of_table(table: Mapping[str, Any], prefix: str = "") -> Expectation:
    """Return what the *table* of a TOML file expects; *prefix* stands before its keys in errors. Errors: as above."""
    for key in table:
        if key not in KEYS:
            raise _malformed(f"unknown key `{prefix}{key[:_SHOWN]}`", one_of(KEYS, key))
    drivers, gpus, names = table.get("driver", []), table.get("gpus", {}), table.get("capabilities", [])
    drivers = [drivers] if isinstance(drivers, str) else drivers
    if not _are_texts(drivers) or not all(_VERSION.fullmatch(version) for version in drivers):
        raise _malformed(f"`{prefix}driver` is not a version in quotes, or a list of them")
    models = {"": gpus} if isinstance(gpus, int) else gpus
    is_table = isinstance(models, dict) and len(models) <= GPUS_LIMIT
    if not is_table or not all(type(number) is int and 0 <= number <= GPUS_LIMIT for number in models.values()):
        raise _malformed(f"`{prefix}gpus` is not a number of GPUs, or a table of models and numbers")
    modes = table.get("partition", [])
    modes = [modes] if isinstance(modes, str) else modes
    if not _are_texts(modes) or not all(_PARTITION.fullmatch(mode) for mode in modes):
        raise _malformed(f'`{prefix}partition` is not a mode in quotes, as "SPX/NPS1", or a list of them')
    if not _are_texts(names):
        raise _malformed(f"`{prefix}capabilities` is not a list of texts in quotes")
    unknown = next((name for name in names if name not in CAPABILITIES), None)
    if unknown is not None:
        raise _malformed(f"`{prefix}capabilities` names `{unknown[:_SHOWN]}`", one_of(CAPABILITIES, unknown))
    return Expectation("", tuple(drivers), tuple(models.items()), tuple(dict.fromkeys(names)), (), tuple(modes))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def _malformed(why: str, hint: str = "") -> FormatError:
    return FormatError("bad-expectation", _WHAT, why=why, hint=hint)
