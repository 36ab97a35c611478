"""Images of a few megabytes that once cost gpubind minutes or gigabytes: each is a function that writes one."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from gpubind.formats.gpucode import hip
from tests.support import hostile
from tests.support.elf import elf
from tests.support.gpucode import bundle, compressed, container
from tests.support.images import glibc
from tests.support.layers import LAYER, Blobs, docker_archive, oci_layout, packed, tar, write, zstd
from tests.support.layers import archive as archived
from tests.support.squashfs import SifObject, sif, squashfs
from tests.support.trees import Dir, File, Item, Link, Spec, make_tree

GREEDY: dict[str, Callable[[Path], str]] = {}
PROGRAM = "/opt/app"
"""What each image is asked to run."""
BASE: Spec = {**glibc("2.36"), PROGRAM: File(elf(kind=2, needed=("libc.so.6",)), 0o755)}
LIBRARIES = "/usr/lib/x86_64-linux-gnu"

_pack = lru_cache(maxsize=64)(lambda data: zlib.compress(data, 6))


def greedy(make: Callable[[Path], str]) -> Callable[[Path], str]:
    GREEDY[make.__name__] = make
    return make


def of_sif(path: Path, spec: Spec) -> str:
    (path / "image.sif").write_bytes(sif(SifObject(squashfs({**BASE, **spec}, pack=_pack))))
    return str(path / "image.sif")


def of_directory(path: Path, spec: Spec) -> str:
    make_tree(path / "image", {**BASE, **spec})
    return str(path / "image")


@greedy
def one_environment_file_of_110_000_exports(path: Path) -> str:
    exports = "export " + " ".join(f"A{number}=1" for number in range(110_000))
    return of_directory(path, {"/.singularity.d/env/10-a.sh": exports[: (1 << 20) - 1]})


@greedy
def one_environment_file_of_60_000_statements(path: Path) -> str:
    exports = "".join(f"export A{number}=1\n" for number in range(60_000))
    return of_directory(path, {"/.singularity.d/env/10-a.sh": exports[: (1 << 20) - 1]})


@greedy
def a_variable_that_everything_is_appended_to(path: Path) -> str:
    return of_directory(path, {"/.singularity.d/env/10-a.sh": "export A=x\n" + 'A="${A}b"\n' * 95_000})


@greedy
def environment_that_only_a_shell_knows(path: Path) -> str:
    names = "".join(f"A{number}=1\n" for number in range(40_000))
    return of_directory(path, {"/.singularity.d/env/10-a.sh": names + "date\n" * 60_000})


@greedy
def backquotes_that_are_never_closed(path: Path) -> str:
    return of_directory(path, {"/.singularity.d/env/10-a.sh": "A=$(" * 250_000})


@greedy
def parentheses_that_are_searched_again(path: Path) -> str:
    return of_directory(path, {"/.singularity.d/env/10-a.sh": 'A="$(' + '"$(' * 6 + "x " * 400_000})


@greedy
def environment_files_of_300_mb(path: Path) -> str:
    exports = "export " + " ".join(f"A{number}=1" for number in range(110_000))
    reference = of_directory(path, {"/.singularity.d/env/000.sh": exports[: (1 << 20) - 1]})
    for number in range(1, 300):
        os.link(f"{reference}/.singularity.d/env/000.sh", f"{reference}/.singularity.d/env/{number:03}.sh")
    return reference


@greedy
def environment_files_in_great_number(path: Path) -> str:
    spec: dict[str, Item] = {f"/.singularity.d/env/{n:05}.sh": f"export A{n}=1\n" * 3 for n in range(20_000)}
    return of_sif(path, {"/.singularity.d/env/0.sh": "".join(f"export B{n}=1\n" for n in range(70_000)), **spec})


@greedy
def an_ld_cache_of_2_500_000_entries_of_one_name(path: Path) -> str:
    return of_sif(path, {"/etc/ld.so.cache": ld_cache(2_500_000, b"libcuda.so.1\0/nothing/x\0", 13)})


@greedy
def an_ld_cache_of_2_500_000_entries_that_nobody_asks_for(path: Path) -> str:
    return of_sif(path, {"/etc/ld.so.cache": ld_cache(2_500_000, b"liba.so.1\0/nothing/x\0", 10)})


def ld_cache(count: int, strings: bytes, value: int) -> bytes:
    base = 48 + 24 * count
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", count, len(strings), 2, 0)
    return head + struct.pack("<iIIIQ", 0x303, base, base + value, 0, 0) * count + strings


@greedy
def a_program_that_needs_4_000_missing_libraries(path: Path) -> str:
    needed = [f"lib{number}.so" for number in range(4000)]
    runpath = ":".join(f"/r{number}" for number in range(600))
    return of_sif(
        path,
        {
            PROGRAM: File(elf(kind=2, needed=needed, runpath=runpath), 0o755),
            "/etc/ld.so.conf": "".join(f"/d/{number}\n" for number in range(1000)),
            **{f"/d/{number}": Dir() for number in range(1000)},
        },
    )


@greedy
def libraries_that_need_each_other(path: Path) -> str:
    names = [f"lib{number}.so" for number in range(400)]
    spec: dict[str, Item] = {PROGRAM: File(elf(kind=2, needed=names), 0o755)}
    for name in names:
        missing = [f"{name}.{number}" for number in range(300)]
        spec[f"{LIBRARIES}/{name}"] = elf(name, needed=names + missing)
    return of_directory(path, spec)


@greedy
def a_search_path_of_60_000_directories(path: Path) -> str:
    needed = [f"lib{number}.so" for number in range(4000)]
    runpath = ":".join(f"/r{number}" for number in range(700))
    return of_sif(path, {
        PROGRAM: File(elf(kind=2, needed=needed, runpath=runpath[:4000]), 0o755),
        "/.singularity.d/env/10-a.sh": "export LD_LIBRARY_PATH=" + ":".join(f"/a{n}" for n in range(9000)) + "\n",
    })  # fmt: skip


@greedy
def links_of_4_kb_each(path: Path) -> str:
    record = tar([("x", Link("t" * 4000))], directories=False, end=False)[:-512]  # one says where each leads
    members = (record + _link(f"{number}") for number in range(40_000))
    layer = zlib.compressobj(1, wbits=31)
    packed = b"".join(map(layer.compress, members)) + layer.flush()
    return write(path / "image", oci_layout([packed], layer_type=LAYER))


def _link(name: str) -> bytes:
    header = bytearray(_LINK)
    header[: len(name)] = name.encode()
    header[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 8 * 32)
    return bytes(header)


_LINK = tar([("x", Link("t"))], directories=False, end=False)


@greedy
def one_dense_layer_listed_500_times(path: Path) -> str:
    layer = zlib_gzip(tar({**BASE, "/data": bytes(30 << 20)}))
    blobs = Blobs()
    return write(path / "image", blobs.layout(blobs.image([layer] * 500)))


def _listed(path: Path, layer: bytes, times: int) -> str:
    """A docker archive with *layer*, which its manifest lists so many *times*."""
    import json

    files = docker_archive([layer])
    manifest = json.loads(files["manifest.json"])
    manifest[0]["Layers"] *= times
    files["manifest.json"] = json.dumps(manifest).encode()
    (path / "image.tar").write_bytes(archived(files))
    return str(path / "image.tar")


def zlib_gzip(data: bytes) -> bytes:
    import gzip

    return gzip.compress(data, 9, mtime=0)


@greedy
def one_layer_listed_500_times_in_an_archive(path: Path) -> str:
    layer = zlib_gzip(tar({**BASE, "/data": (b"0123456789" * 8 + bytes(80)) * 20_000}))
    return _listed(path, layer, 500)


@greedy
def four_thousand_compat_libraries(path: Path) -> str:
    library = elf("libcuda.so.1")
    spec: dict[str, Item] = {
        f"/usr/local/cuda-{number}/compat/libcuda.so.1": library + b"%d" % number for number in range(4000)
    }
    return of_sif(path, spec)


@greedy
def a_program_of_60_mb_of_zeros(path: Path) -> str:
    return of_sif(path, {PROGRAM: File(elf(kind=2, needed=("libc.so.6",)) + bytes(60 << 20), 0o755)})


@greedy
def a_script_whose_first_line_has_60_mb(path: Path) -> str:
    return of_sif(path, {PROGRAM: File(b"#!/bin/x " + b" " * (60 << 20), 0o755)})


@greedy
def libraries_that_want_4_000_versions_of_each_other(path: Path) -> str:
    names = [f"lib{number}.so" for number in range(100)]
    spec: dict[str, Item] = {PROGRAM: File(elf(kind=2, needed=names), 0o755)}
    for name in names:
        needs = {other: [f"V_{other}_{number}" for number in range(40)] for other in names}
        defines = [name, *(f"V_{name}_{number}" for number in range(40))]
        spec[f"{LIBRARIES}/{name}"] = elf(name, needed=names, needs=needs, defines=defines)
    return of_sif(path, spec)


@greedy
def directories_behind_40_links_each(path: Path) -> str:
    links: dict[str, Item] = {f"/l{number}": Link(f"l{number + 1}") for number in range(39)}
    named = "".join(f"/l0/../l0/../l0/{number}\n" for number in range(1000))
    needed = [f"lib{number}.so" for number in range(4000)]
    return of_sif(path, {
        **links, "/l39": Dir(), "/etc/ld.so.conf": named, PROGRAM: File(elf(kind=2, needed=needed), 0o755),
    })  # fmt: skip


@greedy
def python_packages_of_300_prefixes(path: Path) -> str:
    package = "/opt/p{}/lib/python3.{}/site-packages/nvidia_cuda_runtime_cu12-12.{}.0.dist-info"
    return of_sif(path, {package.format(prefix, minor, minor): Dir() for prefix in range(300) for minor in range(20)})


@greedy
def one_variable_of_4_mb_in_a_configuration(path: Path) -> str:
    env = ["LD_LIBRARY_PATH=" + ":".join(f"/a{number}" for number in range(400_000))]
    (path / "image.tar").write_bytes(archived(docker_archive([tar(BASE)], env)))
    return str(path / "image.tar")


@greedy
def a_configuration_of_lists_in_lists(path: Path) -> str:
    files = docker_archive([tar(BASE)])
    import json

    name = json.loads(files["manifest.json"])[0]["Config"]
    files[name] = b'{"config": {"x": ' + b"[" * 2_000_000 + b"]" * 2_000_000 + b"}}"
    (path / "image.tar").write_bytes(archived(files))
    return str(path / "image.tar")


@greedy
def five_hundred_layers_that_empty_a_directory(path: Path) -> str:
    base = tar({**BASE, **{f"/d/{number}": "" for number in range(20_000)}})
    layer = tar({"/d/.wh..wh..opq": "", **{f"/d/{number}": "" for number in range(500)}})
    return write(path / "image", oci_layout([packed(base), *[packed(layer)] * 500]))


@greedy
def three_hundred_layers_of_zstd_with_a_library_each(path: Path) -> str:
    names = [f"lib{number}.so" for number in range(300)]
    program = tar({**BASE, PROGRAM: File(elf(kind=2, needed=names), 0o755)})
    return write(path / "image", oci_layout([zstd(program), *(zstd(tar({f"/lib/{n}": elf(n)})) for n in names)]))


@greedy
def maps_of_sparse_files_in_512_layers(path: Path) -> str:
    import tarfile

    info = tarfile.TarInfo("a")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482] = 1
    header[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 8 * 32)
    block = bytes(504) + b"\1" + bytes(7)
    member = bytes(header) + block * 4000 + bytes(512)
    return _listed(path, tar(BASE, end=False) + member * 7, 512)


@greedy
def records_before_members_in_512_layers(path: Path) -> str:
    record = hostile.pax(b"%d a=%s\n" % (1 << 20, b"x" * ((1 << 20) - 11)))
    return _listed(path, tar(BASE, end=False) + record * 14 + tar({"/a": "a"}), 512)


def _with_code(path: Path, section: str, code: bytes) -> str:
    """A program whose 32 libraries each have the GPU *code*."""
    names = [f"lib{number}.so" for number in range(32)]
    spec: dict[str, Item] = {PROGRAM: File(elf(kind=2, needed=(*names, "libc.so.6"), more={section: code}), 0o755)}
    spec.update({f"{LIBRARIES}/{name}": elf(name, more={section: code}) for name in names})
    return of_sif(path, spec)


@greedy
def amd_bundles_of_512_entries_without_a_name(path: Path) -> str:
    return _with_code(path, ".hip_fatbin", (hip.MAGIC + struct.pack("<Q", 512)).ljust(4096, b"\0") * 2048)


@greedy
def amd_bundles_that_are_compressed(path: Path) -> str:
    return _with_code(path, ".hip_fatbin", compressed(bundle("gfx90a")).ljust(4096, b"\0") * 2048)


@greedy
def nvidia_entries_that_are_packed_by_the_thousand(path: Path) -> str:
    return _with_code(path, ".nv_fatbin", container(*["sm_80"] * 1000, packed=True) * 128)


for name in (
    "squashfs_of_one_great_directory",
    "squashfs_of_seven_directories_with_one_great_listing",
    "a_million_small_files",
    "long_paths_in_great_number",
    "links_in_great_number",
    "whiteouts_in_great_number",
    "json_of_many_lists_in_a_layout",
):
    GREEDY[name] = hostile.CASES[name]
