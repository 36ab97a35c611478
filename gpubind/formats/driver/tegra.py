"""The lists of a Jetson: the host files that a container needs, one path a line, `lib, /usr/lib/...`.

Source: nvidia-container-toolkit `internal/platform-support/tegra/csv`.
"""

from __future__ import annotations

import re
from typing import Literal, Union, get_args

from gpubind.frozen import NamedTuple

LINE_LIMIT = 4096
ENTRIES_LIMIT = 10_000

SpecKind = Literal["dev", "dir", "lib", "sym"]
_KINDS: tuple[SpecKind, ...] = get_args(SpecKind)


class MountSpec(NamedTuple):
    """One line of a list."""

    kind: SpecKind
    """`dev`: a device node; `dir`: a directory; `lib`: any file; `sym`: a link."""
    path: str
    """Absolute; it may have wildcards in fnmatch's syntax."""
    line: int
    """1-based."""


class Fault(NamedTuple):
    """A malformed line. Like NVIDIA's toolkit, gpubind still uses the others."""

    line: int
    why: str


def parse_mount_specs(data: bytes) -> tuple[tuple[MountSpec, ...], tuple[Fault, ...]]:
    """Return the entries of *data*, and its malformed lines. Comments and empty lines are ignored."""
    specs: list[MountSpec] = []
    faults: list[Fault] = []
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").lstrip("\ufeff").split("\n"), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if len(specs) + len(faults) >= ENTRIES_LIMIT:
            faults.append(Fault(number, f"over {ENTRIES_LIMIT} entries: the rest is not read"))
            break
        spec = _spec(text, number)
        if isinstance(spec, MountSpec):
            specs.append(spec)
        else:
            faults.append(spec)
    return tuple(specs), tuple(faults)


def _spec(text: str, number: int) -> Union[MountSpec, Fault]:
    if len(text) > LINE_LIMIT:
        return Fault(number, f"{len(text)} characters: a line has {LINE_LIMIT} at most")
    kind_name, _, path = (part.strip() for part in text.partition(","))
    kind = next((kind for kind in _KINDS if kind == kind_name), None)
    if kind is None:
        return Fault(number, f"it begins with none of {', '.join(_KINDS)}")
    if kind == "dev" and path and "/" not in path:
        path = f"/dev/{path}"
    names = [name for name in path.split("/") if name]
    if not (names and path.startswith("/")) or "\0" in path or {".", ".."} & {*names}:
        return Fault(number, "it names no absolute path")
    # The pattern is one of Go's filepath.Match: `^` negates a class in Go, `!` in fnmatch.
    pattern = re.sub(r"\[!([^]]+)\]", r"[\1!]", "/" + "/".join(names)).replace("[^", "[!")
    return MountSpec(kind, pattern, number)
