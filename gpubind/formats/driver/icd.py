"""ICD manifests: small files with the name of the driver library that a loader opens.

JSON for EGL vendors, EGL platforms, Vulkan drivers and layers; one line of text for OpenCL. Sources: libglvnd
`src/EGL/icd_enumeration.md`, Khronos Vulkan-Loader `LoaderDriverInterface.md` and `LoaderLayerInterface.md`,
cl_khr_icd.
"""

from __future__ import annotations

import json
from typing import Any

from gpubind.errors import Format
from gpubind.formats.text.json import parse_json
from gpubind.frozen import NamedTuple

SIZE_LIMIT = 1 << 20
_FORMAT = Format("bad-icd", "malformed ICD manifest")


class Icd(NamedTuple):
    """A manifest and the libraries that it names."""

    libraries: tuple[str, ...]
    """The values of `library_path` in file order: sonames or absolute paths."""
    document: Any
    """The JSON value; for an OpenCL `.icd` file, the list of its lines."""


def parse_icd(data: bytes) -> Icd:
    """Return the manifest in *data*, a JSON object or an OpenCL `.icd` text.

    Errors: `FormatError` (code `bad-icd`) if it is too large, not UTF-8, malformed JSON, or names no library.
    """
    if not data.lstrip().startswith((b"{", b"[")):
        return _of_text(data)
    document = parse_json(data, SIZE_LIMIT, _FORMAT)
    libraries = tuple(holder["library_path"] for holder in _holders(document))
    if not libraries:
        raise _FORMAT.damaged("no `library_path` in `ICD`, `layer` or `layers`", "key library_path")
    return Icd(libraries, document)


def _of_text(data: bytes) -> Icd:
    if len(data) > SIZE_LIMIT:
        raise _FORMAT.damaged(f"{len(data)} bytes; {SIZE_LIMIT} at most")
    try:
        lines = [line.strip() for line in data.decode("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise _FORMAT.damaged("not UTF-8", f"byte {error.start}") from error
    # JSON may follow white space that JSON does not allow.
    if len(lines) != 1 or "\0" in lines[0] or lines[0].startswith(("{", "[")):
        raise _FORMAT.damaged(f"an .icd file holds one library, this one {len(lines)} lines", "line 1")
    return Icd((lines[0],), lines)


def with_library_paths(icd: Icd, replacements: dict[str, str]) -> str:
    """Return the manifest's text with each `library_path` that is a key of *replacements* replaced."""
    if isinstance(icd.document, list):
        return "".join(replacements.get(line, line) + "\n" for line in icd.libraries)
    document = json.loads(json.dumps(icd.document))  # a deep copy
    for holder in _holders(document):
        holder["library_path"] = replacements.get(holder["library_path"], holder["library_path"])
    return json.dumps(document, indent=4) + "\n"


def _holders(document: Any) -> list[dict[str, Any]]:
    if not isinstance(document, dict):
        return []
    layers = document.get("layers")
    candidates = [document.get("ICD"), document.get("layer"), *(layers if isinstance(layers, list) else [])]
    return [c for c in candidates if isinstance(c, dict) and isinstance(c.get("library_path"), str)]
