"""The bounds of the readers: what is within one counts, and what is beyond it ends as docs/security.md says."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubind.cli.settings import SIZE_LIMIT, read_settings
from gpubind.errors import Format, FormatError, GpubindError
from gpubind.files.ldconfig import CONFIGURED_LIMIT, INCLUDES_LIMIT, LD_CACHE_LIMIT, read_ldcache, read_ldsoconf
from gpubind.formats.archive import oci
from gpubind.formats.archive import squashfs as reader
from gpubind.formats.archive.squashfs import Squashfs, SquashfsFile, parse_superblock
from gpubind.formats.archive.squashfs_blocks import unpacker
from gpubind.formats.driver.cdi import SIZE_LIMIT as CDI_LIMIT
from gpubind.formats.elf import ldcache
from gpubind.formats.elf.dynamic import NEEDED_LIMIT, VERSIONS_LIMIT
from gpubind.formats.elf.ldcache import ENTRIES_OF_A_NAME, parse_ldcache
from gpubind.formats.text import json as json_format
from gpubind.formats.text import shell, yaml
from gpubind.formats.text.toml import DOTS_LIMIT
from gpubind.host import record
from gpubind.image import facts
from gpubind.image.environment import BYTES_LIMIT, FILES_LIMIT
from gpubind.image.layers import STEPS_LIMIT
from gpubind.image.oci import LAYERS_LIMIT
from gpubind.image.open import open_image
from gpubind.inventory.cdi.specs import CONFLICTS_LIMIT, SPECS_LIMIT, read_registry, registry_findings
from gpubind.loader import container
from gpubind.loader.container import MISSING_LIMIT, OBJECTS_LIMIT, Container
from gpubind.model import Missing
from tests.support.driver import V, kernel, libraries
from tests.support.elf import elf
from tests.support.greedy import zlib_gzip
from tests.support.images import glibc, image
from tests.support.layers import Blobs, oci_layout, packed, tar, write
from tests.support.squashfs import squashfs
from tests.support.trees import Item, Spec, make_tree, recorded_host, recorded_tree


def why_not(act: Callable[[], object]) -> str:
    with pytest.raises(GpubindError) as caught:
        act()
    return f"{caught.value.code}: {caught.value.why}"


# The loader.


def cache_of(count: int) -> bytes:
    strings = b"liba.so.1\0/lib/liba.so.1\0"
    base = 48 + 24 * count
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", count, len(strings), 2, 0)
    return head + struct.pack("<iIIIQ", 0x303, base, base + 10, 0, 0) * count + strings


def test_an_ld_cache_of_more_entries_or_bytes_is_damaged() -> None:
    most = parse_ldcache(cache_of(ldcache.ENTRIES_LIMIT))
    assert len(most.entries_named("liba.so.1")) == ENTRIES_OF_A_NAME
    assert why_not(lambda: parse_ldcache(cache_of(ldcache.ENTRIES_LIMIT + 1))).startswith("bad-ldcache")
    large = read_ldcache(recorded_tree({"/etc/ld.so.cache": cache_of(1) + bytes(LD_CACHE_LIMIT)}))
    assert isinstance(large, Missing)


def test_directories_and_files_of_the_loaders_configuration_are_bounded() -> None:
    spec: Spec = {f"/c/{number:04}.conf": f"/d{number}\n" for number in range(INCLUDES_LIMIT + 10)}
    read = read_ldsoconf(recorded_tree({"/etc/ld.so.conf": "include /c/*.conf\n", **spec}))
    assert len(read.files) == INCLUDES_LIMIT - 1 - 1  # the two patterns count, too
    many = "".join(f"/d{number}\n" for number in range(CONFIGURED_LIMIT + 10))
    assert len(read_ldsoconf(recorded_tree({"/etc/ld.so.conf": many})).directories) == CONFIGURED_LIMIT


def loaded(program: bytes, inside: Spec) -> Container:
    made = image(glibc(), {"/opt/app": program, **inside})
    return Container(made.loader, recorded_tree({}), (), (), "")


def test_of_what_a_program_lacks_the_first_256_libraries_are_told() -> None:
    program = elf(kind=2, needed=[f"lib{number}.so" for number in range(MISSING_LIMIT + 10)])
    assert len(loaded(program, {}).failures("/opt/app")) == MISSING_LIMIT


def test_of_what_a_program_loads_no_more_is_looked_at_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "OBJECTS_LIMIT", OBJECTS_LIMIT // 64)
    names = [f"lib{number}.so" for number in range(OBJECTS_LIMIT // 64 - 10)]
    last = [f"last{number}.so" for number in range(20)]
    inside: Spec = {f"/usr/lib/{name}": elf(name) for name in (*names, *last)}
    inside = {**inside, "/usr/lib/first.so": elf("first.so", needed=[*last, "missing.so"])}
    for fewer, told in ((0, 0), (20, 1)):
        program = elf(kind=2, needed=[*names[fewer:], "first.so"])
        assert len(loaded(program, inside).failures("/opt/app")) == told


@pytest.mark.parametrize(("kind", "limit"), [("needed", NEEDED_LIMIT), ("defines", VERSIONS_LIMIT)])
def test_an_elf_file_with_more_names_or_versions_is_damaged(kind: str, limit: int) -> None:
    def made(count: int) -> object:
        names = [f"V{number}" for number in range(count)]
        data = elf("liba.so", needed=names) if kind == "needed" else elf("liba.so", defines=names)
        return recorded_tree({"/lib/liba.so": data}).elf("/lib/liba.so")

    assert not isinstance(made(limit), Missing)
    assert isinstance(made(limit + 100), Missing)  # names are counted some dozens at a time


# Images.


def undecided(**files: str) -> bool:
    """Whether it is not known what these environment files set."""
    spec: Spec = {f"/.singularity.d/env/{name}.sh": text for name, text in files.items()}
    return "LD_LIBRARY_PATH" in image(glibc(), {**spec}).facts.undecided


def test_environment_files_are_bounded_in_number_and_in_bytes() -> None:
    for number, said in ((FILES_LIMIT, False), (FILES_LIMIT + 1, True)):
        assert undecided(**{f"f{n}": "A=1\n" for n in range(number)}) is said
    for comment, said in (("#" * 1000, False), ("#" * (BYTES_LIMIT // 4), True)):
        assert undecided(**{f"f{n}": f"A=1\n{comment}\n" for n in range(4)}) is said


def test_a_value_of_an_environment_file_and_all_of_them_are_bounded() -> None:
    def known(text: str) -> object:
        return shell.parse_exports(text, shell.Exports({"A": None})).env.get("B")

    assert known("B=" + "x" * shell.VALUE_LIMIT) is not None
    assert known("B=" + "x" * (shell.VALUE_LIMIT + 1)) is None
    each = "x" * (1 << 15)
    most = shell.TOTAL_LIMIT >> 15
    assert known(f"A={each}\n" + "C=$A\n" * (most - 3) + "B=$A\n") == each
    assert known(f"A={each}\n" + "C=$A\n" * (most + 1) + "B=$A\n") is None


def test_compat_libraries_are_looked_for_at_64_paths() -> None:
    count = facts.COMPAT_LIMIT + 10
    spec: Spec = {f"/usr/local/cuda-{n:03}/compat/libcuda.so.1": elf("libcuda.so.1") for n in range(count)}
    assert len(image(glibc(), spec).facts.compat) == facts.COMPAT_LIMIT


def test_a_document_of_an_image_is_bounded_in_bytes_and_in_members() -> None:
    members: dict[str, list[object]] = {"manifests": [{"mediaType": "a", "digest": "sha256:00", "size": 1}]}
    assert oci.parse_oci_index(json.dumps(members).encode() + b" " * 1000)
    assert why_not(lambda: oci.parse_oci_index(b" " * (oci.DOCUMENT_LIMIT + 1))).startswith("bad-oci")
    members["manifests"] *= oci.MEMBERS_LIMIT
    assert len(oci.parse_oci_index(json.dumps(members).encode())) == oci.MEMBERS_LIMIT
    members["manifests"] *= 2
    assert why_not(lambda: oci.parse_oci_index(json.dumps(members).encode())).startswith("bad-oci")


def test_layers_and_the_names_in_their_paths_are_bounded(tmp_path: Path) -> None:
    blobs = Blobs()
    layer = tar({"/a": "a"})
    for count, code in ((LAYERS_LIMIT, ""), (LAYERS_LIMIT + 1, "bad-oci")):
        reference = write(tmp_path / str(count), blobs.layout(blobs.image([layer] * count)))
        if code:
            assert why_not(lambda reference=reference: open_image(reference)).startswith(code)  # type: ignore[misc]
        else:
            assert open_image(reference).tree.read("/a") == b"a"
    long = tar([("/".join(["d"] * 2000) + f"/{n}", "") for n in range(STEPS_LIMIT // 2000 + 10)], directories=False)
    reference = write(tmp_path / "long", oci_layout([packed(long)]))
    assert why_not(lambda: open_image(reference)) == "image-bomb: an index of them would take too much time"


@pytest.mark.parametrize(("zeros", "ends"), [(62, "facts"), (130, "image-bomb")])
def test_a_blob_unpacks_to_200_times_its_size_and_64_mib(tmp_path: Path, zeros: int, ends: str) -> None:
    layer = zlib_gzip(tar({"/a": bytes(zeros << 20), "/b": "b"}))
    reference = write(tmp_path / "image", oci_layout([layer]))
    if ends == "facts":
        assert open_image(reference).tree.read("/b") == b"b"
    else:
        assert why_not(lambda: open_image(reference)).startswith(ends)


def test_names_of_squashfs_and_what_one_look_unpacks_are_bounded() -> None:
    spec: Spec = {f"/d/{'n' * 200}{number:05}": "" for number in range(10_000)}
    data = squashfs({**spec, "/f": b"x" * (reader.FILE_UNPACKED_LIMIT + 1)}, block_size=1 << 20)
    superblock = parse_superblock(data[:96], len(data))
    unpack = unpacker(superblock.compression)
    assert unpack is not None
    made = Squashfs(superblock, lambda offset, size: data[offset : offset + size], unpack)
    root = made.listing(made.inode(made.superblock.root))
    directory = made.inode(root["d"])
    for _ in range(reader.ALL_LISTINGS_LIMIT // directory.size - 1):
        assert len(made.listing(directory)) == 10_000
    assert why_not(lambda: [made.listing(directory) for _ in range(3)]).startswith("image-bomb")
    file = SquashfsFile(made, made.inode(root["f"]))
    assert len(file.read_at(0, reader.FILE_UNPACKED_LIMIT)) == reader.FILE_UNPACKED_LIMIT
    assert why_not(lambda: file.read_at(reader.FILE_UNPACKED_LIMIT, 1)).startswith("image-bomb")


# Other documents.


def test_yaml_is_bounded_in_values_and_in_depth() -> None:
    def read(text: str) -> object:
        return yaml.parse_yaml(text.encode())

    assert read("a:\n" + "- 1\n" * (yaml.VALUES_LIMIT - 10))
    assert why_not(lambda: read("a:\n" + "- 1\n" * (yaml.VALUES_LIMIT + 1))).startswith("bad-yaml")
    assert read("a: " + "[" * (yaml.DEPTH_LIMIT - 2) + "]" * (yaml.DEPTH_LIMIT - 2))
    assert why_not(lambda: read("a: " + "[" * (yaml.DEPTH_LIMIT + 1))).startswith("bad-yaml")


def test_a_json_document_is_bounded_in_values() -> None:
    def read(count: int) -> object:
        return json_format.parse_json(b"[" + b"0," * (count - 1) + b"0]", 1 << 30, Format("x", "y"))

    assert read(json_format.VALUES_LIMIT)
    with pytest.raises(FormatError) as caught:
        read(json_format.VALUES_LIMIT + 1)
    assert caught.value.why == f"more than {json_format.VALUES_LIMIT} values"


def test_a_record_is_bounded_in_bytes() -> None:
    assert why_not(lambda: record.parse_record(b" " * (record.SIZE_LIMIT + 1))).startswith("bad-record")


def test_cdi_specs_are_bounded_each_and_in_all() -> None:
    device = {"name": "a", "containerEdits": {"env": ["A=b"]}}

    def broken(*sizes: int) -> list[str]:
        specs: dict[str, Item] = {}
        for number, size in enumerate(sizes):
            document = {"cdiVersion": "0.6.0", "kind": f"vendor{number}.com/gpu", "devices": [device]}
            specs[f"/etc/cdi/{number}.json"] = json.dumps(document).ljust(size)
        return list(read_registry(recorded_host({**libraries("/usr/lib64"), **kernel(V, 1), **specs})).ignored_files)

    assert broken(CDI_LIMIT, 100) == []
    assert broken(CDI_LIMIT + 1, 100) == ["/etc/cdi/0.json"]
    assert broken(*[CDI_LIMIT] * (SPECS_LIMIT // CDI_LIMIT), 300) == [f"/etc/cdi/{SPECS_LIMIT // CDI_LIMIT}.json"]


def test_of_cdi_devices_in_two_specs_the_first_100_are_told() -> None:
    devices = [{"name": f"a{number}", "containerEdits": {"env": ["A=b"]}} for number in range(CONFLICTS_LIMIT + 10)]
    text = json.dumps({"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "devices": devices})
    made = read_registry(recorded_host({"/etc/cdi/a.json": text, "/etc/cdi/b.json": text}))
    assert len(made.conflicts) == CONFLICTS_LIMIT + 10
    assert len(registry_findings(made)) == CONFLICTS_LIMIT


@pytest.mark.parametrize(("text", "why"), [
    ("# " + "x" * SIZE_LIMIT, "larger than"),
    (".".join("a" * (DOTS_LIMIT + 2)) + " = 1", f"line 1 has more than {DOTS_LIMIT} dots"),
])  # fmt: skip
def test_a_configuration_is_bounded_in_bytes_and_in_dots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    make_tree(tmp_path, {"/gpubind/config.toml": text})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert why in why_not(read_settings)
