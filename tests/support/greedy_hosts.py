"""Driver roots with files of up to 16 MB that want to cost minutes: each is a function that writes one."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

from gpubind.formats.elf.ldcache import ENTRIES_LIMIT
from tests.support.driver import V, kernel, libraries
from tests.support.trees import Item, Spec, make_tree

GREEDY_HOSTS: dict[str, Callable[[Path], str]] = {}


def greedy(make: Callable[[], Spec]) -> Callable[[], Spec]:
    def write(path: Path) -> str:
        spec: dict[str, Item] = {**libraries("/usr/lib64"), **kernel(V, 2), **make()}
        make_tree(path / "root", {name: item for name, item in spec.items() if not name.startswith("/dev/")})
        return str(path / "root")

    GREEDY_HOSTS[make.__name__] = write
    return make


def ld_cache(names: bytes, paths: bytes, key: int, value: int) -> bytes:
    """Return a cache whose entries have their names each *key* bytes in *names*, and their paths each *value* bytes."""
    count = ENTRIES_LIMIT
    base = 48 + 24 * count
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", count, len(names) + len(paths), 2, 0)
    first = base + len(names)
    rows = (struct.pack("<iIIIQ", 0x303, base + key * n, first + value * n, 0, 0) for n in range(count))
    return head + b"".join(rows) + names + paths


NAMES = b"".join(b"libcuda.so.%06d\0" % n for n in range(ENTRIES_LIMIT))


@greedy
def an_ld_cache_of_great_paths() -> Spec:
    return {"/etc/ld.so.cache": ld_cache(b"libcuda.so.1\0", b"/nothing" * 100_000 + b"\0", 0, 6)}


@greedy
def an_ld_cache_of_great_paths_and_many_names() -> Spec:
    return {"/etc/ld.so.cache": ld_cache(NAMES, b"/nothing" * 100_000 + b"\0", 18, 8)}


@greedy
def an_ld_cache_of_many_names() -> Spec:
    return {"/etc/ld.so.cache": ld_cache(NAMES, b"".join(b"/n/%06d\0" % n for n in range(ENTRIES_LIMIT)), 18, 10)}


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
