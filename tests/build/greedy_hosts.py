"""Driver roots with files of up to 16 MB that want to cost minutes: each is a function that writes one."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

from build.driver import V, kernel, libraries
from build.trees import Item, Spec, make_tree

GREEDY_HOSTS: dict[str, Callable[[Path], str]] = {}


def greedy(make: Callable[[], Spec]) -> Callable[[], Spec]:
    def write(path: Path) -> str:
        spec: dict[str, Item] = {**libraries("/usr/lib64"), **kernel(V, 2), **make()}
        make_tree(path / "root", {name: item for name, item in spec.items() if not name.startswith("/dev/")})
        return str(path / "root")

    GREEDY_HOSTS[make.__name__] = write
    return make


def ld_cache(count: int, strings: bytes, step: int) -> bytes:
    """Entries that all start elsewhere in *strings*."""
    base = 48 + 24 * count
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", count, len(strings), 2, 0)
    rows = b"".join(struct.pack("<iIIIQ", 0x303, base, base + 13 + step * n, 0, 0) for n in range(count))
    return head + rows + strings


@greedy
def an_ld_cache_of_great_paths() -> Spec:
    return {"/etc/ld.so.cache": ld_cache(130_000, b"libcuda.so.1\0" + b"/nothing" * 100_000 + b"\0", 6)}


@greedy
def an_ld_cache_of_many_names() -> Spec:
    strings = b"".join(b"libcuda.so.%06d\0/n/%06d\0" % (n, n) for n in range(130_000))
    base = 48 + 24 * 130_000
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", 130_000, len(strings), 2, 0)
    rows = (struct.pack("<iIIIQ", 0x303, base + 28 * n, base + 28 * n + 18, 0, 0) for n in range(130_000))
    return {"/etc/ld.so.cache": head + b"".join(rows) + strings}


@greedy
def a_list_of_the_driver_with_10_000_names() -> Spec:
    names = [{"name": f"lib{n}.so.{V}", "type": "LIB", "category": "cuda"} for n in range(10_000)]
    return {"/usr/share/nvidia/files.d/sandboxutils-filelist.json": json.dumps(names)}


@greedy
def a_manifest_of_a_megabyte() -> Spec:
    layers = [{"library_path": f"libnvidia-{n}.so"} for n in range(25_000)]
    return {"/usr/share/vulkan/icd.d/nvidia_icd.json": json.dumps({"layers": layers})}


@greedy
def a_cdi_spec_of_a_megabyte() -> Spec:
    devices = [{"name": f"d{n}", "containerEdits": {"env": [f"A{n}=1"]}} for n in range(15_000)]
    return {"/etc/cdi/a.json": json.dumps({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices})}


@greedy
def groups_and_devices_of_a_megabyte() -> Spec:
    return {
        "/etc/group": "".join(f"g{n}:x:{n}:\n" for n in range(60_000)),
        "/proc/devices": "Character devices:\n" + "".join(f"{n} a{n}\n" for n in range(60_000)),
    }
