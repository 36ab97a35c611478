"""probe.py NAME...   open each library by name, start the ones whose driver we know, and say what happened, as JSON.

For use inside a container: `found` is what dlopen says, `status` what the driver says (100 from CUDA is "no device":
the real driver was found and ran), `files` which file the name became.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any, Callable


def main(names: list[str]) -> None:
    json.dump({name: probe(name) for name in names}, sys.stdout, indent=1)
    sys.stdout.write("\n")


def probe(name: str) -> dict[str, Any]:
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return {"found": False, "why": str(error)}
    stem = name.partition(".so")[0]
    with open("/proc/self/maps") as maps:
        files = {line.split()[-1] for line in maps if f"/{stem}." in line}
    return {"found": True, "status": STARTERS.get(stem, _nothing)(library), "files": sorted(files)}


def _nothing(library: ctypes.CDLL) -> None:
    return None


STARTERS: dict[str, Callable[[ctypes.CDLL], Any]] = {
    "libcuda": lambda library: library.cuInit(0),
    "libnvidia-ml": lambda library: library.nvmlInit_v2(),
    "libamdhip64": lambda library: library.hipInit(0),
    "libhsa-runtime64": lambda library: library.hsa_init(),
    "librocm_smi64": lambda library: library.rsmi_init(ctypes.c_uint64(0)),
}

if __name__ == "__main__":
    main(sys.argv[1:] or ["libcuda.so.1"])
