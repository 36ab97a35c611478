"""What the documents of mounts have in common: their edits, the values that no document can express, and YAML.

Their YAML has only constructs that all parsers read in the same way: blocks, and ASCII strings in double quotes. So the
name of a file means the same to every parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpubind.documents.text import printable
from gpubind.formats.driver.gpu_names import CUDA_DEVICE_ORDER, GPU_VARIABLES
from gpubind.model import VENDOR_ROWS, ContainerPath, EnvVar, HostPath, Plan, Vendor
from gpubind.runtimes.edits import Edits, is_utf8, make_edits, unsupported_path, unsupported_value

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NO_STRINGS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
"""Words that are a boolean or null in YAML 1.1 or 1.2."""
_WIDE = re.compile(r"[\U00010000-\U0010ffff]")


def mount_edits(plan: Plan, staged: Mapping[ContainerPath, HostPath], title: str) -> Edits:
    """Return the edits of *plan* for a document of mounts, called *title*, with the variables of `context_free_env`.

    These runtimes create every mount point.
    Errors: `RuntimeLimitError` (codes `unsupported-path`, `unsupported-value`).
    """
    edits = make_edits(plan, staged)
    for bind in edits.binds:
        require_supported_path(bind.source, title)
        require_supported_path(bind.target, title)
    for node in edits.devices:
        require_supported_path(node.source, title)
        require_supported_path(node.target, title)
    env = context_free_env(plan)
    for variable in env:
        require_supported_value(variable.name, variable.value or "", title)
    return edits._replace(env=env)


def context_free_env(plan: Plan) -> tuple[EnvVar, ...]:
    """Return the variables that a document can set although it does not know the image's or the user's values.

    A search path would replace the image's; only variables of the rules below may do so. Variables that choose GPUs are
    left out, because they are for one container: the document's nodes choose the GPUs.
    """
    variables = (v for v in plan.env if v.op == "set" or v.rule in ("cdi", "gbm-backend", "rocdxg", "vdpau-driver"))
    return tuple(v for v in variables if v.name not in (*GPU_VARIABLES, CUDA_DEVICE_ORDER))


NO_GPU: Mapping[Vendor, EnvVar] = {
    vendor: EnvVar(row.hide_all_variable[0], "set", row.hide_all_variable[1], None, "none")
    for vendor, row in VENDOR_ROWS.items()
}
"""The variables that hide all GPUs, for documents of a host without a GPU that must set one.

Source: nvidia-container-toolkit's `nvidia.com/gpu=none`; ROCm's documentation, "GPU isolation techniques".
"""


def groups_of(edits: Edits) -> tuple[int, ...]:
    """Return the groups whose members may open nodes that other users may not open. Root's group is left out."""
    nodes = (node for node in edits.devices if node.mode & 0o006 != 0o006 and node.mode & 0o060 == 0o060)
    return tuple(sorted({node.gid for node in nodes if node.gid}))


def require_supported_path(path: str, title: str) -> None:
    """Errors: `RuntimeLimitError` (code `unsupported-path`) for a *path* that a document (*title*) cannot hold."""
    why = _unsupported_reason(path)
    if why:
        raise unsupported_path(path, why, document=title)


def require_supported_value(name: str, value: str, title: str) -> None:
    """Errors: `RuntimeLimitError` (code `unsupported-value`) for a value that a document (*title*) cannot hold."""
    why = _unsupported_reason(value) or _unsupported_reason(name)
    if why:
        raise unsupported_value(name, why, document=title)


def heading(plan: Plan, comment: str, *lines: str) -> str:
    """Return the lines at the top of a document, each after *comment*: the summary of the plan, and *lines*."""
    return "".join(f"{comment} {line}\n" for line in (printable(f"gpubind: {plan.summary}"), *lines))


def yaml_text(value: Mapping[str, Any]) -> str:
    """Return *value* as YAML. Empty lists and mappings in it are left out."""
    return "".join(f"{line}\n" for line in _block(value))


def _block(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            key_text = key if _PLAIN_KEY.fullmatch(key) and key.lower() not in _NO_STRINGS else _quoted(key)
            if isinstance(item, (Mapping, list, tuple)):
                if item:
                    yield f"{key_text}:"
                    yield from (f"  {line}" for line in _block(item))
            else:
                yield f"{key_text}: {_scalar(item)}"
    else:
        for item in value:
            lines = _block(item) if isinstance(item, Mapping) else iter((_scalar(item),))
            yield from (f"{'  ' if number else '- '}{line}" for number, line in enumerate(lines))


def _scalar(value: Any) -> str:
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    """Quote *text* as JSON does, except that a character beyond 16 bits has one escape: YAML reads JSON's two as
    two characters.
    """
    pieces = _WIDE.split(text)
    wide = [f"\\U{ord(character):08x}" for character in _WIDE.findall(text)]
    escaped = [json.dumps(piece)[1:-1] for piece in pieces]
    return '"' + "".join(part + (wide[n] if n < len(wide) else "") for n, part in enumerate(escaped)) + '"'


def _unsupported_reason(text: str) -> str:
    if not is_utf8(text):
        return "it is not UTF-8"
    return "it has a control character in it" if _CONTROL.search(text) else ""
