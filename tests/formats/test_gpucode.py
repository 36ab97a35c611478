"""The architectures in NVIDIA's fatbins and AMD's bundles, by their headers; damage, and what reading them costs."""

from __future__ import annotations

import io
import struct

import pytest

from gpubind.errors import FormatError
from gpubind.formats.gpucode import fatbin, hip
from gpubind.formats.gpucode.hip import arch_in_name, parse_names
from gpubind.formats.gpucode.sections import parse_gpu_code
from gpubind.model.gpucode import CodeModule, GpuCode
from tests.support.elf import elf
from tests.support.gpucode import bundle, compressed, container, library, module

BOTH = ("sm_80", "sm_90a", "sm_100f", "compute_100f@9.0", "compute_120@8.8")


class Counted:
    """The bytes of a file, and the reads of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0
        self.size = 0

    def __call__(self, offset: int, size: int) -> bytes:
        assert offset >= 0
        assert size > 0
        self.reads += 1
        self.size += size
        return self.data[offset : offset + size]


def free(_: int) -> None:
    """Of an endless budget."""


def code_in(data: bytes) -> GpuCode:
    return parse_gpu_code(io.BytesIO(data))


def of_section(data: bytes, section: str = ".nv_fatbin") -> GpuCode:
    return code_in(elf("libx.so", more={section: data}))


@pytest.mark.parametrize("packed", [False, True], ids=["alone", "packed"])
def test_machine_code_and_ptx_are_told_apart_with_their_suffixes(packed: bool) -> None:
    code = of_section(container(*BOTH, packed=packed))
    assert code == ((module(*BOTH),), None)


def test_every_container_counts_also_after_padding() -> None:
    data = container("sm_100", "sm_90") + container("sm_70") + bytes(24) + container("sm_70", packed=True)
    assert of_section(data).modules == (module("sm_70", alike=2), module("sm_90", "sm_100"))


def test_what_is_still_to_be_linked_counts_where_there_is_nothing_else() -> None:
    assert of_section(container("sm_70"), "__nv_relfatbin").code == ("sm_70",)
    both = {"__nv_relfatbin": container("sm_70"), ".nv_fatbin": container("sm_80")}
    assert code_in(elf("libx.so", more=both)).code == ("sm_80",)


def test_a_library_without_gpu_code_has_none() -> None:
    assert not code_in(elf("libx.so"))
    assert not code_in(library())


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("bits", [32, 64])
def test_sections_are_found_in_files_of_every_class(bits: int, order: str) -> None:
    data = elf("libx.so", bits=bits, order=order, more={".nv_fatbin": container("sm_80")})  # type: ignore[arg-type]
    assert code_in(data).code == ("sm_80",)


@pytest.mark.parametrize("cut", [1, 17, 40, 70])
def test_code_that_ends_early_tells_what_was_read_before(cut: int) -> None:
    whole = container("sm_70")
    code = of_section(whole + container("sm_80")[:-cut])
    assert code.code[:1] == ("sm_70",)
    assert code.unread is not None
    assert "at byte" in code.unread


@pytest.mark.parametrize("at", [0, 4, 6, 8, 16 + 4, 16 + 8])
def test_damaged_numbers_end_the_reading(at: int) -> None:
    data = bytearray(container("sm_70", "sm_80"))
    struct.pack_into("<I", data, at, 0xFFFFFFFF)
    code = of_section(bytes(data))
    assert code.unread is not None or at == 4  # the version says nothing


def test_entries_without_end_cost_a_bounded_number_of_reads() -> None:
    one = struct.pack("<HHIQIIIIQQQQ", 2, 0x101, 64, 0, 0, 0, 8, 80, 0, 0x11, 0, 0)
    entries = one * (2 * fatbin.ENTRIES_LIMIT)
    read = Counted(struct.pack("<IHHQ", fatbin.MAGIC, 1, 16, len(entries)) + entries)
    code = fatbin.parse_fatbins(read, 0, len(read.data), free)
    assert code.code == ("sm_80",)
    assert "over 65536 entries" in (code.unread or "")
    assert read.reads <= fatbin.ENTRIES_LIMIT + 1


def test_architectures_and_kinds_of_modules_are_bounded() -> None:
    many = "".join(f" sm_{number}" for number in range(1, 3000)).split()
    code = of_section(container(*many))
    assert len(code.code) == fatbin.ARCHITECTURES_LIMIT + 1
    assert code.unread == "over 128 architectures and versions of PTX"
    few = [f"sm_{number}" for number in range(10, 90)]
    kinds = b"".join(container(one, other) for at, one in enumerate(few) for other in few[at + 1 :][:3])
    code = of_section(kinds)
    assert (len(code.modules), code.unread) == (fatbin.ARCHITECTURES_LIMIT, "over 128 kinds of modules")


def test_zeros_cost_a_bounded_number_of_reads() -> None:
    read = Counted(bytes(1 << 20))
    assert fatbin.parse_fatbins(read, 0, 1 << 20, free).unread is not None
    read = Counted(bytes(1 << 20))
    assert not hip.parse_bundles(read, 0, 1 << 20, free)
    assert read.reads <= (1 << 20) // hip.ALIGNMENT


def test_a_packed_entry_of_many_names_is_read_as_far_as_its_header_goes() -> None:
    data = bytearray(container("sm_80", "sm_90", packed=True))
    struct.pack_into("<I", data, 16 + 64, 0xFFFFFFFF)
    code = of_section(bytes(data))
    assert code.code == ("sm_80", "sm_90")
    assert code.unread is not None


def test_packed_entries_of_all_containers_together_are_bounded() -> None:
    inner = struct.pack("<HHIQIIIIQQQQ", 2, 0x101, 0, 0, 0, 0, 8, 80, 0, 0x11, 0, 0) * 1000
    fixed = struct.pack("<HHIQIIIIQQQQ", 256, 0x101, 72 + len(inner), 0, 0, 64, 1, 0, 0, 0x8011, 0, 0)
    entry = fixed + struct.pack("<II", 1000, len(inner) + 8) + inner
    data = (struct.pack("<IHHQ", fatbin.MAGIC, 1, 16, len(entry)) + entry) * 80
    spent: list[int] = []
    code = fatbin.parse_fatbins(Counted(data), 0, len(data), spent.append)
    assert (code.code, code.unread) == (("sm_80",), "over 65536 entries")
    assert sum(spent) < 1.1 * fatbin.ENTRIES_LIMIT


def test_no_payload_is_read() -> None:
    big = container(*[f"sm_{number}" for number in (50, 60, 70, 80, 90)])
    read = Counted(big)
    fatbin.parse_fatbins(read, 0, len(big), free)
    assert read.reads == 6
    assert read.size == 16 + 5 * 64


# AMD.

PROCESSORS = ("gfx90a:xnack-", "gfx942:sramecc+:xnack-", "gfx1030", "gfx11-generic")


@pytest.mark.parametrize(
    "data",
    [
        bundle(*PROCESSORS),
        *(compressed(bundle(*PROCESSORS), version) for version in (1, 2, 3)),
        compressed(bundle(*PROCESSORS), 3, method=1),
    ],
    ids=["plain", "v1", "v2", "v3", "zstd"],
)
def test_processors_are_read_of_plain_and_of_compressed_bundles(data: bytes) -> None:
    assert of_section(data, ".hip_fatbin").code == PROCESSORS


def test_every_bundle_of_a_section_counts() -> None:
    def aligned(data: bytes) -> bytes:
        return data + bytes(-len(data) % 4096)

    parts = (
        bundle("gfx900"),
        bytes(4096),
        compressed(bundle("gfx906"), 1),
        compressed(bundle("gfx908")),
        bundle("gfx1100"),
    )
    assert of_section(b"".join(map(aligned, parts)), ".hip_fatbin").code == ("gfx900", "gfx906", "gfx908", "gfx1100")


@pytest.mark.parametrize(
    "data",
    [
        compressed(bundle("gfx900"))[:30],
        b"CCOB" + bytes(64),
        b"CCOB\x02\x00\x01\x00" + b"\xff" * 64,
        b"__CLANG_OFFLOAD_BUNDLE__" + b"\xff" * 64,
        b"__CLANG_OFFLOAD_BUNDLE__",
    ],
)
def test_a_damaged_bundle_is_told_as_unread(data: bytes) -> None:
    code = of_section(data, ".hip_fatbin")
    assert code.code == ()
    assert code.unread is not None


def test_an_entry_without_code_does_not_count_nor_do_other_kinds() -> None:
    data = bundle("gfx900", "gfx906").replace(b"hipv4-amdgcn-amd-amdhsa--gfx906", b"openmp-amdgcn-amd-amdhs--gfx906")
    assert of_section(data, ".hip_fatbin").code == ("gfx900",)


def plain(*entries: tuple[bytes, int]) -> bytes:
    """A page that begins with a bundle of *entries*: IDs, and the size of the code."""
    fixed = (struct.pack("<QQQ", 4096, size, len(name)) + name for name, size in entries)
    return (hip.MAGIC + struct.pack("<Q", len(entries)) + b"".join(fixed)).ljust(4096, b"\0")


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (hip.MAGIC + struct.pack("<Q", 512), "over 65536 entries of bundles"),
        (plain((b"host-x86_64-unknown-linux-gnu-", 0)), "the first 1001 bundles are for no processor"),
        (plain((b"hipv4-amdgcn-amd-amdhsa--gfx900", 0)), "the first 1001 bundles are for no processor"),
        (hip.MAGIC + struct.pack("<QQQQ", 1 << 40, 0, 0, 999), "the first 1001 bundles are for no processor"),
        (b"CCOB" + struct.pack("<HHI", 2, 1, 100) + b"\1" * 64, "the first 1001 bundles are for no processor"),
    ],
)
def test_thousands_of_bundles_without_a_processor_are_unread(page: bytes, why: str) -> None:
    data = page.ljust(4096, b"\0") * 5000
    spent: list[int] = []
    code = hip.parse_bundles(Counted(data), 0, len(data), spent.append)
    assert code == ((), why)
    assert 4000 < sum(spent) < 1.2 * hip.ALL_ENTRIES_LIMIT


def test_thousands_of_bundles_with_a_processor_are_read() -> None:
    data = plain((b"host-x86_64-unknown-linux-gnu-", 0), (b"hipv4-amdgcn-amd-amdhsa--gfx90a", 64)) * 5000
    assert hip.parse_bundles(Counted(data), 0, len(data), free) == ((CodeModule(("gfx90a",)),), None)


def test_names_of_tensiles_files_tell_the_processor() -> None:
    names = {
        "Kernels.so-000-gfx90a-xnack+.hsaco": "gfx90a:xnack+",
        "TensileLibrary_Type_HH_Contraction_l_Ailk_Bjlk_Cijk_Dijk_fallback_gfx1030.hsaco": "gfx1030",
        "TensileLibrary_lazy_gfx942.dat": "gfx942",
        "TensileManifest.txt": None,
        "Kernels.so-000-gfx10-3-generic.hsaco": "gfx10-3-generic",
    }
    assert {name: arch_in_name(name) for name in names} == names
    assert set(parse_names(names).code) == {name for name in names.values() if name}


def test_a_file_that_is_no_elf_object_is_an_error() -> None:
    with pytest.raises(FormatError):
        code_in(b"!<arch>\n")
