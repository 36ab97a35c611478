"""The whole error about each kind of damage of each format, and that what is just within a limit is read.

`tests/golden/damage/` has the texts. Messages of libraries (JSON, YAML, TOML) are not in them: they change.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from gpubind.errors import Format, GpubindError
from gpubind.formats.archive import oci, sif, squashfs, tar
from gpubind.formats.archive.bundle import parse_bundle
from gpubind.formats.archive.squashfs import MetadataReference, Squashfs, SquashfsFile
from gpubind.formats.driver import cdi, engines, filelist, gpu_names, icd, kernel, liblist, nvidia, require, tegra
from gpubind.formats.driver.registration import (
    Registration,
    out_of_containerd,
    register_in_containerd,
    register_in_docker,
)
from gpubind.formats.elf.dynamic import parse_elf
from gpubind.formats.elf.elf import parse_ident
from gpubind.formats.elf.ldcache import MAGIC, parse_ldcache
from gpubind.formats.text.json import parse_exact_json, parse_json
from gpubind.formats.text.requirements import parse_expectation, parse_policy
from gpubind.formats.text.toml import parse_toml
from gpubind.formats.text.yaml import parse_yaml
from tests.formats.test_cdi import REFUSED, written
from tests.formats.test_squashfs import CHANGES, RAW, SPEC, entry, run
from tests.formats.test_tar import info
from tests.support.elf import elf
from tests.support.golden import GOLDEN, assert_golden
from tests.support.squashfs import SifObject, opened
from tests.support.squashfs import sif as built_sif
from tests.support.squashfs import squashfs as built

Case = Callable[[], Any]
Cases = list[tuple[str, Case]]
FORMAT = Format("bad-x", "malformed x", "correct x")
PLACE = MetadataReference(96, 7)


def of(parse: Callable[[Any], Any], cases: dict[str, Any]) -> Cases:
    """The cases of one parser: a name, and what it parses."""
    return [(name, lambda data=data: parse(data)) for name, data in cases.items()]  # type: ignore[misc]


def image(data: bytes = RAW, **fields: Any) -> Squashfs:
    """The image *data*, with other *fields* of its superblock."""
    opened_image = opened(data)
    return Squashfs(opened_image.superblock._replace(**fields), opened_image._read_at, opened_image._unpack)


def inode_of(number: int, body: bytes, mode: int = 0o644) -> squashfs.Inode:
    header = struct.pack("<HHHHII", number, mode, 0, 0, 0, 1)
    size = squashfs.inode_body_size(header, PLACE)
    assert size == len(body)
    return squashfs.parse_inode(header, body, PLACE, PLACE)


def file_inode(start: int = 96, size: int = 1, fragment: int = 0xFFFFFFFF) -> squashfs.Inode:
    return inode_of(2, struct.pack("<IIII", start, fragment, 0, size))


def squashfs_cases() -> Cases:
    listings = {
        "a run without its last entry": run(entry(b"a"), more=1),
        "a run of 257 names": run(entry(b"a"), more=256),
        "a listing of 11 bytes": b"\0" * 11,
        "a name with a slash": run(entry(b"a/b")),
        "a name with a NUL byte": run(entry(b"a\0")),
        "a name `..`": run(entry(b"..")),
        "a name `.`": run(entry(b".")),
        "a name of 257 bytes": run(entry(b"n" * 257)),
        "eleven names, of ten": run(*(entry(b"%d" % number) for number in range(11))),
        "ten names, of ten": run(*(entry(b"%d" % number) for number in range(10))),
    }
    packed = (
        ("more", zlib.compress(bytes(4097))),
        ("no zlib", b"x" * 9),
        ("an early end", zlib.compress(bytes(9))[:-5]),
    )
    whole = image()
    cases: dict[str, Case] = {
        "no superblock": lambda: opened(b"hsqs".ljust(95, b"\0")),
        "another magic": lambda: opened(b"hsqt".ljust(96, b"\0")),
        **{
            name: lambda change=change: opened(built(SPEC, change=change))  # type: ignore[misc]
            for name, (change, _place) in CHANGES.items()
        },
        **{
            f"blocks of {size} bytes": lambda size=size: (
                opened(  # type: ignore[misc]
                    built({}, change=lambda s: s._replace(block_size=size, block_log=size.bit_length() - 1))
                ).superblock
            )
            for size in (2048, 4096, 1 << 20, 1 << 21)
        },
        "an inode of type 0": lambda: inode_of(0, b""),
        "an inode of type 15": lambda: inode_of(15, b""),
        "a directory with the mode of a pipe": lambda: inode_of(1, bytes(16), 0o010644),
        "a link of 4096 bytes": lambda: inode_of(3, struct.pack("<II", 1, 4096)),
        "a link of 4097 bytes": lambda: inode_of(3, struct.pack("<II", 1, 4097)),
        "a file of no block behind the end": lambda: SquashfsFile(whole, file_inode(1 << 31, 0)).size,
        "a file at the end": lambda: SquashfsFile(whole, file_inode(len(RAW))).size,
        "a file behind the end": lambda: SquashfsFile(whole, file_inode(len(RAW) + 1)),
        "an inode outside its table": lambda: whole.inode(1 << 40),
        "a directory of 24 MiB and a byte": lambda: whole.listing(
            file_inode()._replace(kind="dir", size=squashfs._LISTING_LIMIT + 1)
        ),
        "an id that is not in the table": lambda: whole.id(1),
        "a fragment that is not in the table": lambda: whole.fragment(0),
        "a table outside the image": lambda: image(id_table=len(RAW) - 4).id(0),
        "a block of more than a block": lambda: whole.block(96, 4097 | 1 << 24),
        "a block with other bits": lambda: whole.block(96, 1 << 25),
        "a block behind the end": lambda: whole.block(len(RAW), 9),
        "a block at the superblock": lambda: whole.block(95, 9),
        "a block cut off by the end": lambda: whole.block(len(RAW) - 1, 2 | 1 << 24),
        **{
            f"a block that unpacks to {name}": lambda data=data: image(RAW + data, bytes_used=len(RAW + data)).block(  # type: ignore[misc]
                len(RAW), len(data)
            )
            for name, data in packed
        },
        "metadata of no bytes": lambda: image(RAW + b"\0\x80", bytes_used=len(RAW) + 2).metadata(
            MetadataReference(len(RAW), 0), 1
        ),
        "metadata cut off by the end": lambda: image(RAW + b"\2\x80.", bytes_used=len(RAW) + 3).metadata(
            MetadataReference(len(RAW), 0), 1
        ),
        "metadata that unpacks to nothing": lambda: image(
            RAW + struct.pack("<H", 8) + zlib.compress(b""), bytes_used=len(RAW) + 10
        ).metadata(MetadataReference(len(RAW), 0), 1),
        "an offset behind its metadata": lambda: image(RAW + b"\1\x80.", bytes_used=len(RAW) + 3).metadata(
            MetadataReference(len(RAW), 2), 1
        ),
        "metadata that ends early": lambda: image(RAW + b"\1\x80.", bytes_used=len(RAW) + 3).metadata(
            MetadataReference(len(RAW), 0), 2
        ),
        "a block of a file that is too short": lambda: SquashfsFile(
            image(), whole.inode(reference(whole, "etc", "file"))._replace(size=99_999)
        ).read_at(14095, 9),
        "a file of too many blocks": lambda: SquashfsFile(whole, file_inode(96, 1)._replace(size=1 << 40)).read_at(
            4096 << 20, 1
        ),
    }
    return [*cases.items(), *of(lambda data: squashfs.parse_listing(data, PLACE, 10), listings)]


def reference(opened_image: Squashfs, *names: str) -> int:
    """The reference of the inode at a path."""
    found = opened_image.superblock.root
    for name in names:
        found = opened_image.listing(opened_image.inode(found))[name]
    return found


def sif_cases() -> Cases:
    def parse(data: bytes) -> Any:
        table, size = sif.parse_sif_header(data)
        descriptors = sif.parse_sif_descriptors(data[table:][:size], table, size, len(data))
        return sif.primary_partition(descriptors)

    whole = built_sif(SifObject(b"x" * 5000))
    cases = {
        "127 bytes": whole[:127],
        "a table that is cut off": whole[:5000],
        "another magic": built_sif(magic=b"SIF_MAGIK\0"),
        "-1 descriptors": built_sif(total=-1, table_size=-585),
        "4097 descriptors": built_sif(total=4097),
        "a table of another size": built_sif(table_size=17),
        "a table in the header": built_sif(table=127),
        "an object in the header": built_sif(SifObject(b"x", offset=127)),
        "an object of -1 bytes": built_sif(SifObject(b"x", size=-1)),
        "an object of no bytes": built_sif(SifObject(b"")),
        "an object that ends behind the file": built_sif(SifObject(bytes(4096), size=4097)),
        "two primary partitions": built_sif(SifObject(b"x"), SifObject(b"y")),
    }
    return of(parse, cases)


def tar_cases() -> Cases:
    block = info("x").tobuf()
    header = tar.parse_tar_header(block)
    assert header is not None
    headers = {
        "511 bytes": block[:511],
        "a checksum that is wrong": block[:-1] + b"x",
        "a checksum that is no number": block[:148] + b"9" * 8 + block[156:],
        "a size of -1": info("x", size=-1).tobuf(tarfile.GNU_FORMAT),
        "a size of 2^62": info("x", size=1 << 62).tobuf(tarfile.GNU_FORMAT),
        "a size of 2^62 - 1": info("x", size=(1 << 62) - 1).tobuf(tarfile.GNU_FORMAT),
    }
    attributes = {
        "no length": b"x",
        "a length of no digits": b" a=b\n",
        "a length of ten digits": b"0000000010 a=b\n",
        "a length of 8 digits": b"00000013 a=b\n",
        "a length behind the end": b"99 a=b\n",
        "a length of nothing": b"2 \n",
        "a length that ends elsewhere": b"5 a=b\n",
        "no equals sign": b"5 ab\n",
    }
    maps = {
        "no newline": b"1",
        "no number": b"x\n",
        "ten digits": b"0000000001\n1\n1\n",
        "one line of two": b"1\n5\n",
        "20 digits": b"1\n" + b"9" * 20 + b"\n1\n",
    }
    fields = {"mode": 100, "uid": 108, "gid": 116, "size": 124, "major": 329, "minor": 337}

    def with_field(at: int, flag: bytes = b"0", text: bytes = b"x") -> bytes:
        changed = bytearray(info("x", b"3" if at in (329, 337) else flag).tobuf())
        changed[at : at + len(text)] = text
        changed[148:156] = b"%06o\0 " % (sum(changed) - sum(changed[148:156]) + 256)
        return bytes(changed)

    headers.update((f"a {name} of no digits", with_field(at)) for name, at in fields.items())
    headers["a sparse size of no digits"] = with_field(483, b"S")
    headers["a sparse file with more of its map"] = with_field(482, b"S", b"\1")
    headers["a prefix"] = with_field(345, text=b"p")
    return [
        *of(tar.parse_tar_header, headers),
        *of(tar.parse_pax, attributes),
        *of(tar.parse_sparse_text, maps),
        *of(
            lambda size: tar.apply_pax(header, {"size": size}), {"20 digits of a size": "9" * 20, "19 digits": "9" * 19}
        ),
    ]


def elf_cases() -> Cases:
    def parse(data: bytes) -> Any:
        return parse_elf(io.BytesIO(data))

    def with_dynamic(*tags: tuple[int, int]) -> bytes:
        data = bytearray(elf(needed=["libc.so.6"]))
        struct.pack_into("<QQ", data, 64 + 56 + 8, len(data), len(data))  # where PT_DYNAMIC is, and is loaded
        data += b"".join(struct.pack("<QQ", *tag) for tag in tags)
        struct.pack_into("<Q", data, 64 + 32, len(data))  # PT_LOAD has it
        return bytes(data)

    def changed(form: str, at: int, *values: int) -> bytes:
        data = bytearray(elf("libx.so", needed=["libc.so.6"], interpreter="/lib/ld.so"))
        struct.pack_into(form, data, at, *values)
        return bytes(data)

    return of(
        parse,
        {
            "no bytes": b"",
            "a script": b"#!/bin/sh\n",
            "a linker script": b"GROUP ( libc.so.6 )",
            "19 bytes": elf()[:19],
            "another class": b"\x7fELF\3\1" + bytes(58),
            "another order": b"\x7fELF\2\3" + bytes(58),
            "half of a header": elf()[:40],
            "program headers of 57 bytes": changed("<H", 54, 57),
            "4097 program headers": changed("<H", 56, 4097),
            "program headers behind the end": changed("<Q", 32, 1 << 40),
            "program headers behind every end": changed("<Q", 32, 1 << 63),
            "5120 dynamic tags": with_dynamic(*5119 * [(30, 0)], (0, 0)),
            "5121 dynamic tags": with_dynamic(*5120 * [(30, 0)], (0, 0)),
            "4097 libraries": with_dynamic(*4097 * [(1, 1)]),
            "a section without end": with_dynamic((30, 0)),
            "no string table": with_dynamic((1, 1), (0, 0)),
            "a string table nowhere": with_dynamic((1, 1), (5, 1 << 40), (0, 0)),
            "a soname of 4096 characters": elf("x" * 4096),
            "a soname of 4097 characters": elf("x" * 4097),
            "a search path of 65536 characters": elf(runpath="x" * 65536),
            "a search path of 65537 characters": elf(runpath="x" * 65537),
            "an interpreter without end": elf(interpreter="x" * 4096),
            "an interpreter of 4095 characters": elf(interpreter="x" * 4095),
            "version needs nowhere": with_dynamic((0x6FFFFFFE, 1 << 40), (0, 0)),
        },
    )


def oci_cases() -> Cases:
    blob = {"digest": "sha256:ab", "size": 1}

    def manifest(**config: Any) -> bytes:
        return json.dumps({"config": {**blob, **config}, "layers": [blob]}).encode()

    return [
        *of(
            oci.parse_oci_manifest,
            {
                "a list": b"[]",
                "no configuration": b'{"layers": []}',
                "no layers": json.dumps({"config": blob}).encode(),
                "a digest with a slash": manifest(digest="sha256:../../x"),
                "a digest of 201 characters": manifest(digest="sha256:" + "a" * 194),
                "a digest of 200 characters": manifest(digest="sha256:" + "a" * 193),
                "a size of -1": manifest(size=-1),
                "a size of 2^64": manifest(size=1 << 64),
                "a type with a NUL byte": manifest(mediaType="\0"),
                "a system that is no text": manifest(platform={"os": 1}),
                "4 MiB and a byte": b" " * (4 << 20) + b"1",
            },
        ),
        *of(
            oci.parse_oci_index,
            {
                "4097 images": json.dumps({"manifests": [blob] * 4097}).encode(),
                "4096 images": json.dumps({"manifests": [blob] * 4096}).encode(),
            },
        ),
        *of(oci.parse_oci_config, {"no list of variables": b'{"config": {"Env": {}}}'}),
        *of(
            oci.parse_docker_manifest,
            {"no name of a configuration": b"[{}]", "tags as text": b'[{"Config": "x", "RepoTags": "a"}]'},
        ),
        *of(
            oci.parse_inspected,
            {
                "no image": b"[]",
                "two images": b"[{}, {}]",
                "a driver that is no text": b'[{"GraphDriver": {"Name": 1}}]',
                "a directory that is no text": b'[{"GraphDriver": {"Data": {"UpperDir": 1}}}]',
                "layers that are no text": b'[{"RootFS": {"Layers": [1]}}]',
                "an ID that is no text": b'[{"Id": 1}]',
                "an architecture that is no text": b'[{"Architecture": 1}]',
                "variables that are no text": b'[{"Config": {"Env": [1]}}]',
                "lower directories that are no text": b'[{"GraphDriver": {"Data": {"LowerDir": 1}}}]',
            },
        ),
    ]


def bundle_cases() -> Cases:
    plain = {"ociVersion": "1.2.0", "process": {}, "root": {"path": "rootfs"}}

    def text(**more: Any) -> bytes:
        return json.dumps({**plain, **more}).encode()

    return of(
        parse_bundle,
        {
            "a list": b"[]",
            "4 MiB and a byte": b" " * (4 << 20) + b"1",
            "nothing": b"{}",
            "an empty root": text(root={"path": ""}),
            "a NUL byte": text(process={"cwd": "\0"}),
            "process in another case": text(Process={}),
            "a member in another case": text(linux={"Devices": []}),
            "an element in another case": text(mounts=[{"destination": "/x", "Source": "x"}]),
            "a hook in another case": text(hooks={"prestart": [{"Path": "x"}]}),
            "a mount without a place": text(mounts=[{}]),
            "an annotation that is no text": text(annotations={"gpubind.edits": 1}),
            "an annotation of another": text(annotations={"gpubind.edits": "x"}),
            "an annotation of another form": text(annotations={"gpubind.edits": "{}"}),
            "a key twice": b'{"root": 1, "root": 2}',
            "a number of 4001 digits": text()[:-1] + b', "x": ' + b"9" * 4001 + b"}",
            "a number of 4000 digits": text()[:-1] + b', "x": ' + b"9" * 4000 + b"}",
            "no number": text(x=float("nan")),
            "half of a character": text(x="\ud800"),
        },
    )


def text_cases() -> Cases:
    deep = {
        f"{depth} {kind}": f"a: {start * depth}{end * depth}"
        for kind, start, end, depths in (("lists", "[", "]", (64, 65)), ("objects", "{b: ", "}", (63, 64)))
        for depth in depths
    }
    keys = {f"a key of {depth} lists": "{" + "? " + "[" * depth + "]" * depth + ": 1}" for depth in (64, 65)}
    alike = "[&a [" + "x," * 998 + "]" + ", *a" * 99
    values = {"100000 values": alike + "]", "100001 values": alike + ", x]"}
    return [
        *of(
            lambda text: len(str(parse_yaml(text.encode()))),
            {
                **deep,
                **keys,
                **values,
                "a key twice": "a: 1\na: 2",
                "a long key twice": "a" * 99 + ": 1\n" + "a" * 99 + ": 2",
                "a key twice in JSON": '{"a": {"b": 1, "b": 2}}',
                "an alias of nothing": "x: *nothing",
                "an unknown tag": "!" + "o" * 99 + " x",
                "a list as a key": "? [a]\n: 1",
                "an object as a key": "? {a: 1}\n: 1",
                "null as a key": "~: 1",
                "a merged text": "<<: x",
                "a merged list of texts": "<<: [x]",
                "JSON nested too deeply": "[" * 100_000,
            },
        ),
        *of(
            lambda data: parse_json(data, 12, FORMAT),
            {"13 bytes": b'"12345678901"', "12 bytes": b'"1234567890"', "not UTF-8": b'"ab\xff"'},
        ),
        *of(
            lambda data: bool(parse_json(data, 1 << 22, FORMAT)),
            {
                "a million values": b"[" + b"1," * 999_998 + b"1]",
                "more values": b"[" + b"1," * 1_000_000 + b"1]",
                "nested too deeply": b"[" * 100_000,
            },
        ),
        *of(
            lambda data: bool(parse_exact_json(data, 1 << 14, FORMAT)),
            {
                "a long key twice": b'{"%b": 1, "%b": 2}' % (b"k" * 99, b"k" * 99),
                "infinity": b"[Infinity]",
                "4001 digits": b"9" * 4001,
                "4000 digits": b"9" * 4000,
                "half of a pair": b'["\\ud800"]',
            },
        ),
        *of(
            lambda text: parse_toml(text.encode("utf-8", "surrogateescape"), "bad-x", "malformed x"),
            {
                "500 dots": "x = '" + "." * 500 + "'",
                "501 dots": "\nx = '" + "." * 501 + "'",
                "not UTF-8 in TOML": "ab\udcff",
            },
        ),
    ]


def requirements_cases() -> Cases:
    def models(count: int) -> str:
        return "[gpus]\n" + "".join(f"m{number} = 1\n" for number in range(count))

    return [
        *of(
            lambda text: len(str(parse_expectation(text.encode()))),
            {
                "4096 GPUs": "gpus = 4096",
                "4097 GPUs": "gpus = 4097",
                "-1 GPUs": "gpus = -1",
                "no number": "gpus = true",
                "4096 models": models(4096),
                "4097 models": models(4097),
                "4097 GPUs of a model": "[gpus]\na = 4097",
                "a model without a number": "[gpus]\na = 'x'",
                "an unknown key": "drivers = '550'",
                "the file itself": "source_file = 'x'",
                "libraries": "libraries = 1",
                "partitions": "partitions = 1",
                "256 KiB and a byte": "#" * (256 << 10 | 1),
                "256 KiB": "#" * (256 << 10),
                "a driver of letters": "driver = 'latest'",
                "a number for a driver": "driver = 550",
                "a mode that is none": "partition = 'spx'",
            },
        ),
        *of(
            lambda text: len(str(parse_policy(text.encode()))),
            {
                "nothing": "",
                "an unknown GPU": "gpus = ['sm_8']",
                "a GPU of AMD's and up": "gpus = ['gfx90a+']",
                "a GPU of Intel's and up": "gpus = ['pvc+']",
                "an unknown GPU and up": "gpus = ['sm_81+']",
                "a long name": f"gpus = ['{'x' * 200}']",
                "the file of a policy": "source_file = 'x'",
                "brings_driver": "brings_driver = true",
                "257 items": "arch = [" + "'x86_64'," * 257 + "]",
                "256 items": "arch = [" + "'x86_64'," * 256 + "]",
                "257 GPUs": "gpus = [" + "'sm_80'," * 257 + "]",
                "an unknown architecture": "arch = ['x']",
                "an unknown capability": "capabilities = ['x']",
            },
        ),
    ]


def driver_cases() -> Cases:
    def listed(**fields: Any) -> bytes:
        return json.dumps([{"name": "x", **fields}]).encode()

    long = "x" * 4097
    return [
        *of(
            filelist.parse_filelist,
            {
                "a list of text": b'["x"]',
                "an object": b"{}",
                "a file without a name": b"[{}]",
                "a type that is no text": listed(type=1),
                "10001 files": json.dumps([{"name": "x"}] * 10_001).encode(),
                "4 MiB and a byte": b" " * (4 << 20) + b"1",
            },
        ),
        *of(
            icd.parse_icd,
            {
                "no library": b'{"ICD": {}}',
                "a list as a manifest": b"[]",
                "an empty text": b"",
                "two lines": b"a.so\nb.so\n",
                "a NUL byte in a line": b"a\0.so",
                "1 MiB and a byte of text": b"x" * ((1 << 20) + 1),
                "1 MiB and a byte of JSON": b"{" * ((1 << 20) + 1),
                "no UTF-8": b"ab\xff",
            },
        ),
        *of(kernel.parse_driver_version, {"no version": "NVRM version: none\n"}),
        *of(kernel.parse_module_version, {"not a version": "x" * 99}),
        *of(
            kernel.parse_devices,
            {
                "a line without a name": "Character devices:\n 195\n",
                "a line without a number": "\nCharacter devices:\nx" + long,
            },
        ),
        *of(
            kernel.parse_properties,
            {
                "a property without a number": f"a 1\nb {long}",
                "21 digits": "a " + "1" * 21,
                "20 digits": "a " + "1" * 20,
            },
        ),
        *of(
            lambda text: len(liblist.parse_liblist(text.encode("utf-8", "surrogateescape"), "/x.conf").entries),
            {
                "a byte order mark": "\ufefflibcuda.so",
                "a NUL byte": "#\na\0",
                "4097 characters": long,
                "4096 characters": long[1:],
                "an unknown section": "\n[x]",
                "a section without its end": "[compute",
                "10001 entries": "x\n" * 10_001,
                "10000 entries": "x\n" * 10_000,
            },
        ),
        *of(
            lambda text: str(nvidia.parse_list(text))[:30],
            {
                "an empty answer": "",
                "one empty line": "\n",
                "a relative path": "/a\n" + long[:99],
                "a NUL byte in a path": "/a\0",
                "a path of 4097 characters": "/" + long[1:],
                "a path of 4096 characters": "/" + long[2:],
                "10001 lines": "/a\n" * 10_001,
                "10000 lines": "/a\n" * 10_000,
            },
        ),
        *of(
            lambda text: require.evaluate(text, {"cuda": "12.4", "driver": "550", "brand": "x"}),
            {
                "no comparison": "cuda" + long,
                "the second alternative": "cuda>13 cuda",
                "an unknown property": "x" * 99 + "=1",
                "a brand that is greater": "brand>x",
                "a value that is no version": "cuda>=" + "x" * 99,
                "20 digits of a version": "cuda>=" + "1" * 20,
                "19 digits of a version": "cuda>=" + "1" * 19,
                "65537 characters": " " * 65537,
                "65536 characters": " " * 65536,
            },
        ),
        *of(
            gpu_names.parse_gpus_option,
            {
                "16385 characters": "x" * 16385,
                "16384 characters": "x" * 16384,
                "an empty item": "0,",
                "an unknown name": "0, " + "x" * 99,
            },
        ),
        *of(
            lambda data: tegra.parse_mount_specs(data)[1] or "read",
            {
                "a line of 4097 characters": b"lib, /" + b"x" * 4091,
                "a line of 4096 characters": b"lib, /" + b"x" * 4090,
                "an unknown kind": b"#\nfile, /x",
                "no path": b"lib",
                "a path with dots": b"lib, /a/../b",
                "a NUL byte in a list": b"lib, /a\0b",
                "the root": b"dir, /",
                "10001 lines of a list": b"lib, /x\n" * 10_001,
                "10000 lines of a list": b"lib, /x\n" * 10_000,
            },
        ),
        *of(
            engines.parse_request_policy,
            {
                "a flag that is no boolean": b"accept-nvidia-visible-devices-envvar-when-unprivileged = 1",
                "a second flag": b"accept-nvidia-visible-devices-as-volume-mounts = 1",
                "a third flag": b"disable-require = 1",
                "variables that are no text": b"swarm-resource = 1",
                "capabilities that are no text": b"supported-driver-capabilities = 1",
                "a runtime that is no table": b"nvidia-container-runtime = 1",
            },
        ),
        *of(
            cdi.parse_cdi,
            {
                "a device without any name": b'{"cdiVersion": "1.1.0", "kind": "a/b", "devices": [{}]}',
                "nothing but a kind": b'{"kind": "a/b"}',
                "nothing but a version": b'{"cdiVersion": "1.1.0"}',
            },
        ),
        *of(
            cdi.parse_cdi_name,
            {
                "no equals sign": "a.b/c",
                "no class": "a.b=0",
                "a bad device": "a.b/c=?",
                "a bad vendor": "1/c=0",
                "a bad class": "a/1=0",
            },
        ),
    ]


def registration_cases() -> Cases:
    entry_of_docker = Registration("gpubind", "/usr/bin/g")
    containerd = b'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.gpubind]\n'
    return [
        *of(
            lambda data: register_in_docker(data, entry_of_docker),
            {
                "runtimes that are no object": b'{"runtimes": []}',
                "a list as daemon.json": b"[]",
                "a runtime of another": b'{"runtimes": {"gpubind": {"path": "/x"}}}',
            },
        ),
        *of(
            lambda data: register_in_containerd(data, entry_of_docker),
            {
                "version 1": b"x = 1",
                "version 2 as text": b"version = '2'",
                "a runtime of another in containerd": containerd,
                "a plugin that is no table": b'version = 2\n[plugins]\n"io.containerd.grpc.v1.cri" = 1\n',
                "the program in another table": b"version = 2\nx = {y = '/usr/bin/g'}\n",
            },
        ),
        *of(
            lambda data: out_of_containerd(data, None, "/usr/bin/g"),
            {"the program in another table at an undo": b"x = '/usr/bin/g'"},
        ),
    ]


OF_LIBRARIES = ("not closed", "not UTF-8", "a tab indents")
FORMATS: dict[str, Callable[[], Cases]] = {
    "squashfs": squashfs_cases,
    "sif": sif_cases,
    "tar": tar_cases,
    "elf": elf_cases,
    "oci": oci_cases,
    "bundle": bundle_cases,
    "text": text_cases,
    "requirements": requirements_cases,
    "driver": driver_cases,
    "registration": registration_cases,
    "cdi": lambda: of(
        cdi.parse_cdi, {name: written(case.text) for name, case in REFUSED.items() if name not in OF_LIBRARIES}
    ),
    "ldcache": lambda: of(
        lambda data: len(parse_ldcache(data)),
        {
            "another file": b"\x7fELF",
            "65536 entries": cache_of(65_536),
            "65537 entries": cache_of(65_537),
        },
    ),
    "ident": lambda: of(
        lambda data: tuple(parse_ident(data)),
        {
            "no bytes": b"",
            "a linker script": b" INPUT(x)",
            "text": b"text",
            "4 bytes": b"\x7fELF",
            "a class of 9": b"\x7fELF\t\1" + bytes(58),
        },
    ),
}


def cache_of(count: int) -> bytes:
    """A cache of *count* equal entries."""
    entries = struct.pack("<iIIIQ", 3, 0, 0, 0, 0) * count
    strings = struct.pack("<20sIIB3xI12x", MAGIC, count, 2, 2, 0)
    return strings + entries + b"a\0"


def outcome(case: Case) -> str:
    """What a case gives: the error with all its fields, or the start of the value."""
    try:
        return f"read: {case()!a:.250}"
    except GpubindError as error:
        text = "; ".join(filter(None, (str(error), error.why, error.hint)))
        return text.encode("ascii", "backslashreplace").decode()


@pytest.mark.parametrize("name", FORMATS)
def test_each_damage_has_its_text(name: str) -> None:
    lines = [f"{case}: {outcome(parse)}\n" for case, parse in FORMATS[name]()]
    assert_golden(GOLDEN / "damage" / f"{name}.txt", "".join(lines))
