"""Images that want to do harm: each is a function that writes one and returns the reference to it."""

from __future__ import annotations

import json
import lzma
import os
import struct
import tarfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Union

import zstandard

from gpubind.formats.driver.names import DRIVER_SONAMES, VENDOR_NEUTRAL_SONAMES
from tests.support.elf import elf
from tests.support.images import glibc
from tests.support.layers import (
    LAYER,
    OCI,
    Blobs,
    Claim,
    HardLink,
    archive,
    docker_archive,
    oci_layout,
    packed,
    tar,
    write,
    zstd,
)
from tests.support.squashfs import SifObject, Squashfs, metadata, sif, squashfs
from tests.support.trees import Dir, Fifo, Link, Node, Spec, make_tree

CASES: dict[str, Callable[[Path], str]] = {}
Data = Union[bytes, Callable[[], bytes]]
"""Bytes; a function for those that take long to make."""
BASE = glibc("2.36")
MIB = 1 << 20


def case(make: Callable[[Path], str]) -> Callable[[Path], str]:
    CASES[make.__name__] = make
    return make


def made(data: Data) -> bytes:
    return data if isinstance(data, bytes) else data()


def of_layers(name: str, *layers: Data) -> None:
    """A case: an OCI layout with these layers."""
    CASES[name] = lambda path: write(path / "image", oci_layout([*map(made, layers)], layer_type=LAYER))


def of_file(name: str, data: Data) -> None:
    """A case: a file."""

    def make(path: Path) -> str:
        (path / "image").write_bytes(made(data))
        return str(path / "image")

    CASES[name] = make


def of_squashfs(name: str, change: Callable[[Squashfs], Squashfs], spec: Spec = BASE) -> None:
    of_file(name, squashfs(spec, change=change))


# Directories, and the same as layers, squashfs and SIF.

LINKS: dict[str, Spec] = {
    "links_out": {
        "/etc/ld.so.conf": Link("../../../../../../secret"),
        "/etc/ld.so.cache": Link("/../../secret"),
        "/.singularity.d/env": Link("../../../../outside"),
        "/usr/local/cuda": Link("/proc/self/root"),
        "/lib": Link("../../../outside"),
        "/usr/local/cuda-1": Link("/proc/self/cwd"),
    },
    "link_loops": {
        "/lib": Link("lib64"),
        "/lib64": Link("/lib"),
        "/usr/lib": Link("lib"),
        "/etc": Link("."),
        "/bin": Link("bin/../bin/sh"),
        "/usr/local": Link("../usr/local/cuda"),
    },
    "links_that_multiply": {
        **{f"/l{number}": Link("/".join([f"l{number + 1}"] * 300)) for number in range(40)},
        "/lib": Link("l0"),
        "/usr/lib": Link("../l0"),
        "/l40": Dir(),
    },
    "a_fifo_for_each_file": {
        "/etc/ld.so.conf": Fifo(),
        "/etc/ld.so.cache": Fifo(),
        "/usr/lib/libc.so.6": Fifo(),
        "/bin/sh": Fifo(),
        "/usr/local/cuda/version.json": Fifo(),
    },
    "files_for_directories": {"/etc": "x", "/usr": "x", "/lib": "x", "/.singularity.d": "x", "/bin": Dir()},
    "an_include_that_includes_itself": {
        "/etc/ld.so.conf": "include /etc/ld.so.conf\n" * 50 + "include /etc/*/*/*\n",
        "/etc/a": Link("."),
    },
    "elf_files_that_lie": {
        "/lib/libc.so.6": elf("libc.so.6")[:64] + b"\xff" * 4096,
        "/lib64/libc.so.6": b"\x7fELF",
        "/usr/lib/libstdc++.so.6": elf("libstdc++.so.6")[:200],
        "/usr/lib/libc.so.6": elf("libc.so.6", defines=[f"GLIBC_2.{n}" for n in range(5000)]),
        "/usr/local/cuda/compat/libcuda.so.1.2": b"\x7fELF\2\1\1" + b"\x7f" * 100_000,
    },
    "a_cache_that_lies": {
        "/etc/ld.so.cache": b"glibc-ld.so.cache1.1" + b"\xff" * 100_000,
        "/usr/local/cuda/version.json": "[" * 500_000,
        "/usr/local/cuda/version.txt": "CUDA Version " + "1." * 400_000,
    },
    "environment_files_that_multiply": {
        "/.singularity.d/env/10-a.sh": "export PATH=ab\n" + "export PATH=$PATH$PATH\n" * 40,
        "/.singularity.d/env/11-b.sh": 'export LD_LIBRARY_PATH="' + "${A:-" * 100_000 + "x" + "}" * 100_000,
        "/.singularity.d/env/12-c.sh": 'export PATH="' + "\\" * 900_000,
        "/.singularity.d/env/13-d.sh": "export PATH=" + "'" * 900_001,
    },
    "names_that_are_odd": {"/etc/a\nb": "x", "/lib/\udcff\udcfe": "x", "/etc/ld.so.conf": "/lib/\udcff\udcfe\n\0\n"},
}
for title, parts in LINKS.items():

    def _directory(path: Path, parts: Spec = parts) -> str:
        make_tree(path / "image", parts)
        return str(path / "image")

    CASES[f"{title}_in_a_directory"] = _directory
    of_layers(f"{title}_in_a_layer", tar(dict(parts)))
    of_file(f"{title}_in_squashfs", squashfs(parts))
    of_file(f"{title}_in_a_sif", sif(SifObject(squashfs(parts))))


# Members of layers.

of_layers(
    "names_that_climb",
    tar(
        [
            ("../secret", "taken"),
            ("/../../secret", "taken"),
            ("/etc/passwd", "taken"),
            ("usr/../../../secret", "taken"),
            ("./././a/../b", "taken"),
            ("..", Dir(0)),
            ("a/..", Dir(0)),
            ("", Dir(0)),
            ("/", Dir(0o777)),
            (".", Dir(0)),
            ("up", Link("..")),
            ("up/secret", "taken"),
            ("root", Link("/")),
            ("root/root/root/deep", "taken"),
        ],
        directories=False,
    ),
)
of_layers(
    "links_that_lead_members_out",
    tar(
        [("lib", Link("../../../outside")), ("lib/file", "taken"), ("etc", Link("/")), ("etc/passwd", "x")],
        directories=False,
    ),
    tar(
        [("lib/.wh..wh..opq", ""), ("lib/.wh.secret", ""), (".wh...", ""), ("../.wh.secret", ""), (".wh.", "")],
        directories=False,
    ),
)
of_layers("devices_for_files", tar({path: Node("char", 1, 5) for path in BASE}), tar({"/bin/sh": Node("block", 8, 0)}))
of_layers(
    "hard_links_to_nothing",
    tar([("a", HardLink("nothing")), ("b", HardLink("")), ("c", HardLink("/")), ("d", HardLink("d"))]),
)
of_layers(
    "hard_links_in_a_loop",
    tar([("a", HardLink("b")), ("b", HardLink("a")), ("c", HardLink("../secret")), ("e", HardLink("."))]),
)
of_layers("hard_links_to_directories", tar([("a/b", "x"), ("a/c", HardLink("a")), ("a/d", HardLink("a/c"))]))
of_layers(
    "a_link_loop_above_members",
    tar([("x", Link("y")), ("y", Link("x")), ("x/a", "a"), ("y/b/c", "c")], directories=False),
)
of_layers(
    "whiteouts_of_everything", tar(dict(BASE)), tar({"/.wh..wh..opq": "", "/.wh.usr": "", "/.wh..": "", "/.wh...": ""})
)
of_layers("whiteouts_in_whiteouts", tar({"/.wh.a/.wh.b/c": "x", "/a/.wh..wh.x/y": "x", "/.wh..wh.plnk/1.2": "x"}))
of_layers(
    "files_under_files",
    tar([("a", "x"), ("a/b", "x"), ("a/b/c", "x"), ("a", "x"), ("a/b/c/d", Fifo())], directories=False),
)
of_layers(
    "the_same_name_often",
    lambda: tar([("a", "x"), ("a", Dir()), ("a", Link("a")), ("a/b", "x")] * 2000, directories=False),
)
of_layers("deep_directories", tar([("/".join(["d"] * 2000) + f"/{n}", "x") for n in range(200)], directories=False))
of_layers("too_deep_directories", tar([("/".join(["d"] * 100_000), "x")], directories=False))
of_layers("a_name_too_long", tar([("n" * 300, "x"), ("n" * 5000, "x"), ("l", Link("t" * 100_000))]))
of_layers("a_name_with_nul", tar([("a", "x")]).replace(b"a\0\0\0", b"\0a\0\0", 1))
of_layers("a_file_of_an_exabyte", tar({"/lib/libc.so.6": Claim(1 << 60)}, form=tarfile.GNU_FORMAT))
of_layers("a_negative_size", tar({"/lib/libc.so.6": Claim(-512)}, form=tarfile.GNU_FORMAT))
of_layers("a_truncated_layer", tar(dict(BASE))[:5000])
of_layers("a_truncated_header", tar(dict(BASE), end=False) + b"x" * 100)
of_layers("a_truncated_gzip_layer", packed(tar(dict(BASE)))[:-200])
of_layers("a_truncated_zstd_layer", zstd(tar(dict(BASE)))[:-50])
of_layers("no_tar", b"hello, world" * 1000)
of_layers("an_empty_layer", b"", bytes(1024), packed(b""))
of_layers("half_a_gzip_header", b"\x1f\x8b")
of_layers("a_wrong_gzip_checksum", packed(tar(dict(BASE)))[:-8] + bytes(8))
of_layers("a_zstd_window_of_a_terabyte", b"\x28\xb5\x2f\xfd\x00\xf8" + bytes(100))
of_layers("zstd_frames_to_be_skipped", b"\x50\x2a\x4d\x18\xff\xff\xff\xff" + bytes(1000))


def pax(records: bytes, kind: bytes = b"x", size: int = -1) -> bytes:
    info = tarfile.TarInfo("pax")
    info.type, info.size = kind, len(records) if size < 0 else size
    return info.tobuf(tarfile.USTAR_FORMAT) + records + bytes(-len(records) % 512)


END = tar({"/lib/libc.so.6": elf("libc.so.6")})
of_layers("a_huge_pax_record", lambda: packed(pax(b"9" * (64 * MIB)) + END))
of_layers("a_pax_record_of_digits", pax(b"9" * 900_000) + END)
of_layers("a_claimed_pax_record", pax(b"", size=1 << 32) + END)
of_layers("pax_records_in_a_row", lambda: pax(b"6 a=b\n") * 100_000 + END)
of_layers("global_pax_records", b"".join(pax(b"%d %d=%s\n" % (1017, n, b"x" * 1000), b"g") for n in range(50)) + END)
of_layers("long_names_in_a_row", pax(b"n" * 1000, b"L") * 20 + END)
of_layers("a_pax_size_that_lies", pax(b"31 size=99999999999999999999999\n") + END)
of_layers("a_pax_size_that_is_none", pax(b"11 size=-99\n") + END)
of_layers(
    "a_sparse_file_without_end",
    pax(b"", b"S").replace(b"\0" * 30 + b"ustar", b"\0" * 30 + b"ustar") + b"\1" * 3_000_000,
)
of_layers("a_pax_sparse_file", pax(b"22 GNU.sparse.major=1\n25 GNU.sparse.name=lib/a\n") + END)


# Bombs.


def gzip_of(*parts: tuple[bytes, int]) -> bytes:
    """A gzip file with each part as many times as it says; its checksum is wrong, if anyone gets there."""
    out = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    for data, times in parts:
        compressor = zlib.compressobj(9, wbits=-15)
        out += (compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)) * times
    return out + b"\x03\x00" + bytes(8)


HUGE = tar({"/lib/libc.so.6": Claim(1 << 40)}, form=tarfile.GNU_FORMAT, end=False)
ZEROS = bytes(8 * MIB)
of_layers("a_gzip_bomb", lambda: gzip_of((ZEROS, 512)))
of_layers("a_gzip_bomb_in_a_file", lambda: gzip_of((HUGE, 1), (ZEROS, 512)))
of_layers("a_gzip_bomb_in_a_gzip_bomb", lambda: packed(gzip_of((HUGE, 1), (ZEROS, 512))))
of_layers("a_zstd_bomb", lambda: zstd(HUGE) + zstd(ZEROS) * 1024)
of_file("an_archive_that_is_a_bomb", lambda: gzip_of((HUGE, 1), (ZEROS, 512)))
of_file("an_archive_that_is_a_zstd_bomb", lambda: zstd(HUGE) + zstd(ZEROS) * 1024)
of_layers("gzip_members_without_content", lambda: packed(b"") * 100_000)
of_layers("a_million_small_files", lambda: gzip_of((tar([(f"f{n:06}", "") for n in range(1000)], end=False), 1000)))


@case
def long_paths_in_great_number(path: Path) -> str:
    names = ("/".join(["d"] * 2000) + f"/{n}/x" for n in range(4500))
    blob = gzip_of((b"".join(tar([(name, "")], directories=False, end=False) for name in names), 10))
    return write(path / "image", oci_layout([blob], layer_type=LAYER))


@case
def links_in_great_number(path: Path) -> str:
    items: list[tuple[str, object]] = [
        (f"l{n}", Link("/".join([".", f"l{n + 1}", ".."] * 20 + [f"l{n + 1}"]))) for n in range(39)
    ]
    items += [("l39/x", "x"), *((f"l0/{n}/y", "x") for n in range(8000))]
    return write(path / "image", oci_layout([packed(tar(items, directories=False))], layer_type=LAYER))


@case
def whiteouts_in_great_number(path: Path) -> str:
    items = [(f"a/{n}", "x") for n in range(1500)] + [("a/.wh..wh..opq", "")] * 1500
    return write(path / "image", oci_layout([packed(tar(items))], layer_type=LAYER))


# Documents.


def of_index(name: str, index: object) -> None:
    data = index if isinstance(index, bytes) else json.dumps(index).encode()
    CASES[f"{name}_in_a_layout"] = lambda path: write(path / "image", Blobs().layout(index=data))
    of_file(f"{name}_in_an_archive", archive(Blobs().layout(index=data)))


BLOB = {"mediaType": f"{OCI}.manifest.v1+json", "digest": "sha256:" + "0" * 64, "size": 7}
of_index("json_nested_deeply", b"[" * MIB)
of_index("json_objects_nested_deeply", b'{"manifests":' * 100_000)
of_index("json_of_a_long_number", b'{"manifests": ' + b"9" * 3_000_000 + b"}")
of_index("json_of_many_lists", b"[" + b"[]," * 1_300_000 + b"[]]")
of_index("json_too_large", b" " * (5 * MIB))
of_index("json_of_a_wrong_type", [1, 2, 3])
of_index("manifests_of_a_wrong_type", {"manifests": {"a": 1}})
of_index("a_manifest_of_a_wrong_type", {"manifests": [None, 1, "x"]})
of_index("a_missing_blob", {"manifests": [BLOB]})
of_index("a_digest_that_escapes", {"manifests": [{**BLOB, "digest": "sha256:../../../secret"}]})
of_index("a_digest_with_an_algorithm_that_escapes", {"manifests": [{**BLOB, "digest": "../../..:secret"}]})
of_index("an_unknown_media_type", {"manifests": [{**BLOB, "mediaType": "application/x-whatever"}]})
of_index("no_manifests", {"manifests": []})
of_index("many_manifests", {"manifests": [BLOB] * 20_000})


@case
def indexes_in_indexes(path: Path) -> str:
    blobs = Blobs()
    inner: object = BLOB
    for _ in range(50):
        inner = blobs.add({"manifests": [inner]}, f"{OCI}.index.v1+json")
    return write(path / "image", blobs.layout(inner))


@case
def indexes_that_multiply(path: Path) -> str:
    blobs = Blobs()
    inner: object = BLOB
    for _ in range(3):
        inner = blobs.add({"manifests": [inner] * 4000}, f"{OCI}.index.v1+json")
    return write(path / "image", blobs.layout(inner))


def of_image(name: str, **more: Any) -> None:
    def make(path: Path) -> str:
        blobs = Blobs()
        return write(path / "image", blobs.layout(blobs.image([tar(dict(BASE))], **more)))

    CASES[name] = make


of_image("an_encrypted_layer", layer_type=f"{LAYER}+gzip+encrypted")
of_image("an_unknown_layer", layer_type="application/vnd.sylabs.image.layer.v1.squashfs")
of_image("windows", os_name="windows")
of_image("an_environment_that_is_none", env=[1, 2])
of_image("an_environment_of_odd_lines", env=["", "=", "A", "A=b=c", "LD_LIBRARY_PATH=" + "x:" * 100_000, "PATH=\ud800"])
of_image("a_great_environment", env=["A=b"] * 5000)


@case
def a_blob_of_another_size(path: Path) -> str:
    files = oci_layout([tar(dict(BASE))])
    largest = max(files, key=lambda name: len(files[name]))
    return write(path / "image", {**files, largest: files[largest][:-1]})


@case
def many_layers(path: Path) -> str:
    return write(path / "image", oci_layout([tar({"/a": "a"})] * 3000, layer_type=LAYER))


@case
def blobs_that_are_links_out(path: Path) -> str:
    files = oci_layout([tar(dict(BASE))])
    root = write(path / "image", files)
    for name in files:
        if name.startswith("blobs"):
            os.unlink(f"{root}/{name}")
            os.symlink(path / "secret", f"{root}/{name}")
    return root


@case
def an_index_that_is_a_fifo(path: Path) -> str:
    root = write(path / "image", {"oci-layout": b"{}"})
    os.mkfifo(f"{root}/index.json")
    return f"oci:{root}"


@case
def an_index_that_is_a_device(path: Path) -> str:
    root = write(path / "image", {"oci-layout": b"{}"})
    os.symlink("/dev/zero", f"{root}/index.json")
    return f"oci:{root}"


def of_manifest(name: str, manifest: object, **files: bytes) -> None:
    data = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    of_file(name, archive({"manifest.json": data, **files}))


of_manifest("a_manifest_nested_deeply", b"[" * MIB)
of_manifest("a_manifest_that_is_none", {"a": 1})
of_manifest("a_manifest_without_images", [])
of_manifest("a_manifest_with_wrong_types", [{"Config": [], "Layers": {}}])
of_manifest("layers_outside", [{"Config": "../../../secret", "Layers": ["/etc/passwd", "../../secret"]}])
of_manifest("a_layer_that_is_the_manifest", [{"Config": "c", "Layers": ["manifest.json"]}], c=b"{}")
of_manifest("a_layer_that_is_missing", [{"Config": "c", "Layers": ["x"]}], c=b"{}")
of_manifest("the_same_layer_often", [{"Config": "c", "Layers": ["l"] * 4000}], c=b"{}", l=tar(dict(BASE)))
of_manifest("a_layer_with_nul_in_its_name", [{"Config": "c\0d", "Layers": ["\0"]}])
of_file("a_manifest_that_is_a_directory", tar({"/manifest.json": Dir(), "/index.json": Link("index.json")}))
of_file("a_manifest_that_is_a_device", tar({"/manifest.json": Node("char", 1, 5)}))
of_file("a_layer_that_is_a_link_out", tar({
    "/manifest.json": json.dumps([{"Config": "c", "Layers": ["l"]}]), "/c": "{}", "/l": Link("../../../../secret"),
}))  # fmt: skip
of_file("an_archive_in_itself", archive(docker_archive([archive(docker_archive([tar(dict(BASE))]))])))
of_file("a_truncated_archive", archive(docker_archive([tar(dict(BASE))]))[:-3000])
of_file("a_truncated_gzip_archive", archive(docker_archive([tar(dict(BASE))]), packed)[:-100])

# SIF and squashfs.

GOOD = squashfs(BASE)
of_file("sif_truncated", sif(SifObject(GOOD))[:9000])
of_file("sif_of_its_header_alone", sif(SifObject(GOOD))[:100])
of_file("sif_with_negative_offset", sif(SifObject(GOOD, offset=-4096)))
of_file("sif_with_huge_size", sif(SifObject(GOOD, size=1 << 62)))
of_file("sif_with_offset_and_size_that_overflow", sif(SifObject(GOOD, offset=(1 << 63) - 1, size=(1 << 63) - 1)))
of_file("sif_with_many_descriptors", sif(SifObject(GOOD), total=1 << 50, table_size=585 << 50))
of_file("sif_with_descriptors_in_its_header", sif(SifObject(GOOD), table=128))
of_file("sif_with_overlapping_objects", sif(SifObject(GOOD, part=1), SifObject(b"x", offset=8192, size=96)))
of_file("sif_that_is_its_own_partition", sif(SifObject(b"x", offset=128, size=8192)))
of_file("sif_with_two_systems", sif(SifObject(GOOD), SifObject(GOOD)))
of_file("sif_without_a_system", sif(SifObject(GOOD, part=1)))
of_file("sif_encrypted", sif(SifObject(os.urandom(5000), file_system=5)))
of_file("sif_of_ext3", sif(SifObject(bytes(5000), file_system=2)))
of_file("sif_of_oci_blobs", sif(SifObject(b"{}", data_type=0x4009), SifObject(b"{}", data_type=0x400A)))
of_file("sif_with_a_short_squashfs", sif(SifObject(GOOD[:200])))
of_file("sif_that_ends_behind_the_superblock", sif(SifObject(GOOD))[: 8192 + 96])

of_squashfs("squashfs_with_blocks_of_a_gigabyte", lambda s: s._replace(block_size=1 << 30, block_log=30))
of_squashfs("squashfs_with_blocks_of_nothing", lambda s: s._replace(block_size=0, block_log=0))
of_squashfs("squashfs_with_a_wrong_logarithm", lambda s: s._replace(block_log=65535))
of_squashfs("squashfs_of_an_unknown_compression", lambda s: s._replace(compression=9))
of_squashfs("squashfs_of_lzma", lambda s: s._replace(compression=2))
of_squashfs("squashfs_of_another_compression", lambda s: s._replace(compression=4))
of_squashfs("squashfs_of_zstd_that_is_none", lambda s: s._replace(compression=6))
of_squashfs("squashfs_of_lz4_that_is_none", lambda s: s._replace(compression=5))
of_squashfs("squashfs_3", lambda s: s._replace(major=3))
of_squashfs("squashfs_larger_than_its_file", lambda s: s._replace(bytes_used=1 << 40))
of_squashfs("squashfs_with_its_root_elsewhere", lambda s: s._replace(root=0xFFFFFFFFFFFF))
of_squashfs("squashfs_with_its_root_in_a_file", lambda s: s._replace(root=0))
of_squashfs("squashfs_with_tables_in_the_superblock", lambda s: s._replace(inode_table=0, directory_table=0))
of_squashfs("squashfs_with_tables_behind_the_end", lambda s: s._replace(inode_table=1 << 62, directory_table=1 << 63))
of_squashfs("squashfs_with_one_table_for_all", lambda s: s._replace(directory_table=s.inode_table))
of_squashfs("squashfs_without_ids", lambda s: s._replace(ids=0))
of_squashfs("squashfs_with_ids_elsewhere", lambda s: s._replace(id_table=(1 << 64) - 1))
of_squashfs("squashfs_with_checksums", lambda s: s._replace(flags=s.flags | 4))
of_file("squashfs_of_zeros", b"hsqs" + bytes(10_000))
of_file("squashfs_with_metadata_of_nothing", squashfs(BASE, pack=lambda data: zlib.compress(b"")))
of_file(
    "squashfs_truncated_blocks",
    squashfs({"/etc/ld.so.conf": "x" * 5000, **BASE}, pack=lambda data: zlib.compress(data)[:-6]),
)


def inode(kind: int, body: bytes, mode: int = 0o755) -> bytes:
    return struct.pack("<HHHHII", kind, mode, 0, 0, 0, 1) + body


def table(data: bytes) -> bytes:
    """Metadata blocks with *data*."""
    return b"".join(metadata(data[at : at + 8192]) for at in range(0, len(data), 8192))


def raw(inodes: bytes, directories: bytes = b"", root: int = 0, compression: int = 1) -> bytes:
    """squashfs with these inodes, the root first, and these directory entries."""
    tables = table(inodes), table(directories), metadata(bytes(4))
    return of_tables(*tables, root=root, compression=compression)


def of_tables(inodes: bytes, directories: bytes, ids: bytes, *, root: int = 0, compression: int = 1) -> bytes:
    """squashfs with these tables, of metadata blocks. Its fragments are where its ids are."""
    tables = inodes, directories, ids
    at = [96 + sum(map(len, tables[:number])) for number in range(4)]
    superblock = Squashfs(
        9, 131072, 1 << 20, compression, 17, 0x210, 1, 4, 0, root, at[3] + 16, at[3], (1 << 64) - 1, at[0], at[1],
        at[3] + 8, 0,
    )  # fmt: skip
    return superblock.pack() + b"".join(tables) + struct.pack("<QQ", at[2], at[2])


def directory(size: int, block: int = 0, offset: int = 0, mode: int = 0o755) -> bytes:
    return inode(8, struct.pack("<IIIIHHI", 2, size, block, 1, 0, offset, 0xFFFFFFFF), mode)


def entry(name: bytes, offset: int = 0, kind: int = 1, block: int = 0, count: int = 0) -> bytes:
    return struct.pack("<III", count, block, 1) + struct.pack("<HhHH", offset, 0, kind, len(name) - 1) + name


def of_names(name: str, *entries: bytes, more: bytes = b"", size: int = 0) -> None:
    listing = b"".join(entries)
    of_file(name, raw(directory(size or len(listing) + 3) + more, listing))


of_names(
    "squashfs_directory_of_itself", *(entry(name, 0) for name in (b"etc", b"lib", b"usr", b"bin", b"local", b"cuda"))
)
of_names("squashfs_names_that_climb", entry(b".."), entry(b"etc/passwd"))
of_names("squashfs_name_with_nul", entry(b"a\0b"))
of_names("squashfs_directory_of_four_gigabytes", entry(b"etc"), size=0xFFFFFFFF)
of_names("squashfs_directory_that_ends_early", entry(b"etc"), size=30 * MIB)
of_names("squashfs_directory_with_a_great_count", entry(b"etc", count=0xFFFFFFFF))
of_names("squashfs_inode_elsewhere", entry(b"etc", block=0xFFFFFFFF, offset=0xFFFF))
of_names("squashfs_inode_of_no_kind", entry(b"etc", offset=40), more=inode(99, bytes(100)))
of_file("squashfs_with_a_metadata_bomb", of_tables(metadata(directory(3) + bytes(8 * MIB)), b"", metadata(bytes(4))))
ROOM = len(directory(0))
of_names(
    "squashfs_file_of_an_exabyte", entry(b"lib", 0), entry(b"libc.so.6", ROOM),
    more=inode(9, struct.pack("<QQQIIIII", 96, 1 << 60, 0, 1, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0)),
)  # fmt: skip
of_names(
    "squashfs_file_of_holes", entry(b"lib", 0), entry(b"libc.so.6", ROOM),
    more=inode(9, struct.pack("<QQQIIII", 96, 1 << 37, 0, 1, 0xFFFFFFFF, 0, 0xFFFFFFFF)) + bytes(4 << 20),
)  # fmt: skip
of_names(
    "squashfs_fragment_elsewhere", entry(b"lib", 0), entry(b"libc.so.6", ROOM),
    more=inode(2, struct.pack("<IIII", 96, 0xFFFFF, 0xFFFFFFFF, 100)),
)  # fmt: skip
of_names(
    "squashfs_link_of_four_gigabytes", entry(b"lib", ROOM), more=inode(3, struct.pack("<II", 1, 0xFFFFFFFF) + b"x" * 99)
)
of_names("squashfs_link_of_megabytes", entry(b"lib", ROOM), more=inode(3, struct.pack("<II", 1, 3 * MIB) + bytes(99)))
of_names("squashfs_link_to_nothing", entry(b"lib", ROOM), more=inode(3, struct.pack("<II", 1, 0)))
of_names("squashfs_directory_with_the_mode_of_a_device", entry(b"etc", ROOM), more=directory(3, mode=0o020644))
of_names("squashfs_directories_of_two_bytes", entry(b"etc", ROOM), entry(b"lib", ROOM), more=directory(5))
of_names(
    "squashfs_file_that_starts_at_the_end_of_numbers", entry(b"lib", 0), entry(b"libc.so.6", ROOM),
    more=inode(9, struct.pack("<QQQIIII", (1 << 64) - 9, 1 << 20, 0, 1, 0xFFFFFFFF, 0, 0xFFFFFFFF)) + b"\xff" * 99,
)  # fmt: skip
of_names(
    "squashfs_tail_that_starts_behind_its_fragment", entry(b"lib", 0), entry(b"libc.so.6", ROOM),
    more=inode(2, struct.pack("<IIII", 96, 0, 0x7FFFFFFF, 100)),
)  # fmt: skip
NAMES = 900_000


def listing(count: int, length: int = 11) -> bytes:
    """*count* entries whose inode is the first one."""
    names = [b"%0*d" % (length, number) for number in range(count)]
    entries = [struct.pack("<HhHH", 0, 0, 1, len(name) - 1) + name for name in names]
    runs = [entries[at : at + 256] for at in range(0, count, 256)]
    return b"".join(struct.pack("<III", len(run) - 1, 0, 1) + b"".join(run) for run in runs)


def shared_listing(listed: bytes, directories: list[bytes], sizes: list[int]) -> bytes:
    """Directories whose listing is the same, or starts with the same; the root follows it."""
    room = len(directory(0))
    own = b"".join(entry(name, room * (number + 1)) for number, name in enumerate(sorted(directories)))
    inodes = b"".join(directory(size + 3) for size in sizes)
    end = len(table(listed[: len(listed) // 8192 * 8192]))
    root = directory(len(own) + 3, end, len(listed) % 8192)
    return raw(root + inodes, listed + own)


@cache
def listed() -> bytes:
    return listing(NAMES)


SEVEN = [b"bin", b"etc", b"lib", b"a", b"l", b"d", b"up"]
of_file(
    "squashfs_of_seven_directories_with_one_great_listing",
    lambda: shared_listing(listed(), SEVEN, [len(listed())] * 7),
)
of_file(
    "squashfs_of_seven_directories_with_parts_of_one_listing",
    lambda: shared_listing(
        listed(), SEVEN, [len(listed()) - part * (12 + 256 * 19) - (12 + NAMES % 256 * 19) for part in range(7)]
    ),
)
of_file("squashfs_of_one_great_directory", lambda: shared_listing(listed(), [b"etc"], [len(listed())]))
of_file(
    "squashfs_of_a_directory_of_long_names",
    lambda: shared_listing(listing(120_000, 250), [b"etc", b"lib"], [120_000 * 258 + 469 * 12] * 2),
)


@case
def squashfs_of_toolkits_that_share_a_listing(path: Path) -> str:
    """Each is listed for a pattern, /usr/local/cuda-*/compat."""
    listed = listing(4000)
    room = len(directory(0))
    toolkits = b"".join(entry(b"cuda-%d" % number, 3 * room) for number in range(3000))
    at = [0, len(listed)]
    places = []
    for part in (entry(b"compat", 4 * room), toolkits, entry(b"local", 2 * room), entry(b"usr", room)):
        places.append((len(part) + 3, at[-1]))
        at.append(at[-1] + len(part))
        listed += part
    blocks = [len(table(listed[: number * 8192])) for number in range(len(listed) // 8192 + 1)]
    inodes = [directory(size, blocks[start // 8192], start % 8192) for size, start in reversed(places)]
    (path / "image").write_bytes(raw(b"".join(inodes) + directory(at[1] + 3), listed))
    return str(path / "image")


@case
def squashfs_of_libraries_with_a_million_blocks(path: Path) -> str:
    """Their ELF header says that their sections are at the end."""
    head = bytearray(elf("libc.so.6")).ljust(131072, b"\0")
    size = (1 << 20) * 131072
    struct.pack_into("<Q", head, 40, size - 4096)  # e_shoff
    sonames = ("libc.so.6", "libstdc++.so.6", *DRIVER_SONAMES, *VENDOR_NEUTRAL_SONAMES)
    names = sorted(soname.encode() for soname in sonames)
    room = len(directory(0))
    listed = b"".join(entry(name, 2 * room) for name in names)
    own = entry(b"lib", room)
    block = zlib.compress(bytes(head))
    words = struct.pack("<I", len(block)) + bytes(4 * ((1 << 20) - 1))
    file = inode(9, struct.pack("<QQQIIII", 96, size, 0, 1, 0xFFFFFFFF, 0, 0xFFFFFFFF)) + words
    root = directory(len(own) + 3, 0, len(listed))
    image = raw(root + directory(len(listed) + 3) + file, listed + own)
    superblock = bytearray(image[:96])
    for at in (40, 48, 64, 72, 80):  # what follows the superblock is shifted
        struct.pack_into("<Q", superblock, at, struct.unpack_from("<Q", superblock, at)[0] + len(block))
    ids = struct.unpack_from("<Q", image, len(image) - 8)[0] + len(block)
    (path / "image").write_bytes(bytes(superblock) + block + image[96:-16] + struct.pack("<QQ", ids, ids))
    return str(path / "image")


def of_metadata(name: str, compression: int, packed: Data) -> None:
    """squashfs whose inodes are one block of another compression."""

    def tables() -> bytes:
        block = made(packed)
        return of_tables(struct.pack("<H", len(block)) + block, b"", metadata(bytes(4)), compression=compression)

    of_file(name, tables)


ALONE = bytes([0x5D])
of_metadata("squashfs_of_lzma_with_a_dictionary_of_gigabytes", 2, ALONE + b"\xff" * 4 + b"\xff" * 8 + bytes(99))
of_metadata("squashfs_of_lzma_of_an_exabyte", 2, ALONE + bytes([0, 0, 1, 0]) + bytes(7) + b"\x10" + bytes(99))
of_metadata("squashfs_of_lzma_that_is_a_bomb", 2, lambda: lzma.compress(bytes(MIB), lzma.FORMAT_ALONE))
of_metadata("squashfs_of_xz_that_is_a_bomb", 4, lambda: lzma.compress(bytes(64 * MIB)))
of_metadata("squashfs_of_xz_that_ends_early", 4, lzma.compress(bytes(8192))[:-9])
of_metadata("squashfs_of_zstd_that_is_a_bomb", 6, zstd(bytes(8 * MIB)))
of_metadata("squashfs_of_zstd_that_claims_an_exabyte", 6, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x0f" + bytes(99))
of_metadata(
    "squashfs_of_zstd_that_claims_nothing",
    6,
    zstandard.ZstdCompressor(write_content_size=False).compress(bytes(8 * MIB)),
)
of_metadata("squashfs_of_lz4_that_is_a_bomb", 5, b"\x1f\0\1\0" + b"\xff" * 30_000 + b"\0")
of_metadata("squashfs_of_lz4_that_points_back", 5, b"\x0f\xff\xff" + b"\xff" * 99)


@case
def squashfs_with_sections_in_every_block(path: Path) -> str:
    """An ELF file whose section headers make its reader unpack a megabyte each."""
    head = bytearray(elf("libc.so.6"))
    struct.pack_into("<Q", head, 40, MIB)  # e_shoff
    struct.pack_into("<HHH", head, 58, 0xFFFF, 0xFFFF, 0)  # e_shentsize, e_shnum, e_shstrndx
    data = bytes(head) + (b"\1" + bytes(99)) * (2 * MIB)
    (path / "image").write_bytes(squashfs({"/lib/libc.so.6": data}, block_size=MIB, pack=lambda d: zlib.compress(d, 1)))
    return str(path / "image")
