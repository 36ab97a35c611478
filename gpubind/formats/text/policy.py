"""What the hosts have on which an image is to run, in TOML: the file of `check --require`.

    driver = "525"
    gpus = ["sm_80+", "gfx90a"]
    arch = ['x86_64']
    brings-driver = false

`sm_80+` is each known architecture from there up, without those of Jetson and DRIVE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Optional

from gpubind.errors import FormatError, one_of
from gpubind.formats.text.toml import parse_toml
from gpubind.model import CAPABILITIES
from gpubind.model.arch import WITH_DRIVERS
from gpubind.model.capability import known_architectures
from gpubind.model.gpucode import INTEL, arch_order, is_of_board
from gpubind.model.policy import KEYS, Policy

_WHAT = "malformed policy"
SIZE_LIMIT = 256 << 10
ITEMS_LIMIT = 256
_SHOWN = 100
"""Characters of a text that is wrong."""
_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}")
_AMD = re.compile(r"gfx[1-9][0-9]{0,2}[0-9a-f]{2}(:(sramecc|xnack)[+-]){0,2}")


def parse_policy(data: bytes) -> Policy:
    """Return the policy in *data*. Errors: `FormatError` (code `bad-policy`)."""
    if len(data) > SIZE_LIMIT:
        raise _malformed(f"{len(data)} bytes; {SIZE_LIMIT} at most")
    table = parse_toml(data, "bad-policy", _WHAT)
    for key in table:
        if key not in KEYS:
            raise _malformed(f"unknown key `{key[:_SHOWN]}`", one_of(KEYS, key))
    if not table:
        raise _malformed("it requires nothing", f"known: {', '.join(KEYS)}")
    brings = table.get("brings-driver", True)
    if not isinstance(brings, bool):
        raise _malformed("`brings-driver` is not true or false")
    gpus = dict.fromkeys(gpu for text in _texts(table, "gpus") for gpu in _gpus(text))
    names = _known(table, "capabilities", CAPABILITIES)
    return Policy(
        driver=_version(table, "driver"),
        cuda=_version(table, "cuda"),
        rocm=_version(table, "rocm"),
        glibc=_version(table, "glibc"),
        gpus=tuple(sorted(gpus, key=lambda gpu: (not gpu.startswith("sm_"), arch_order(gpu)))),
        arch=_known(table, "arch", WITH_DRIVERS),
        capabilities=tuple(name for name in CAPABILITIES if name in names) if "capabilities" in table else None,
        brings_driver=brings,
    )


def _version(table: dict[str, Any], key: str) -> Optional[str]:
    value = table.get(key)
    if value is not None and not (isinstance(value, str) and _VERSION.fullmatch(value)):
        raise _malformed(f"`{key}` is not a version in quotes", f'{key} = "{value}"' if type(value) is int else "")
    return value


def _texts(table: dict[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise _malformed(f"`{key}` is not a list of texts in quotes")
    if len(value) > ITEMS_LIMIT:
        raise _malformed(f"`{key}` has {len(value)} texts; {ITEMS_LIMIT} at most")
    return tuple(value)


def _known(table: dict[str, Any], key: str, known: tuple[str, ...]) -> tuple[str, ...]:
    given = _texts(table, key)
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise _malformed(f"`{key}` names `{unknown[:_SHOWN]}`", one_of(known, unknown))
    return tuple(dict.fromkeys(given))


def _gpus(text: str) -> Iterator[str]:
    """Yield the architectures that *text* stands for."""
    name, known = text.removesuffix("+"), known_architectures()
    if _AMD.fullmatch(text) or text in INTEL:
        yield text
    elif name in known:
        above = known[known.index(name) :] if name != text else (name,)
        yield from (gpu for gpu in above if gpu == name or not is_of_board(gpu))
    else:
        is_others = name != text and (_AMD.fullmatch(name) or name in INTEL)
        known = (*known, "gfx90a", *INTEL)
        hint = "AMD's and Intel's architectures have no order: name each" if is_others else one_of(known, text)
        raise _malformed(f"`gpus` names `{text[:_SHOWN]}`", hint)


def _malformed(why: str, hint: str = "") -> FormatError:
    return FormatError("bad-policy", _WHAT, why=why, hint=hint)
