"""Intel's GPU code in programs of SYCL, which `icpx` and `clang++` with -fsycl-targets=spir64_gen,spir64 write."""

from __future__ import annotations

import io
import struct

import pytest
import zstandard

from gpubind.formats.gpucode import sycl
from gpubind.formats.gpucode.sections import parse_gpu_code
from gpubind.formats.text.requirements import parse_policy
from gpubind.model.gpucode import GpuCode, vendor_of
from tests.support.elf import elf


def archive(*names: str, size: int = 70_000) -> bytes:
    """What `ocloc` writes for several GPUs: an archive with padding between its files."""
    data = b"!<arch>\n"
    for at, name in enumerate(names):
        for member, body in ((f"pad_{at}/", bytes(8)), (f"{name}/", b"\x7fELF" + bytes(size))):
            data += struct.pack("16s12s6s6s8s10s2s", *(
                text.encode().ljust(width) for text, width in
                ((member, 16), ("0", 12), ("0", 6), ("0", 6), ("644", 8), (str(len(body)), 10))
            ), b"`\n") + body + b"\n" * (len(body) % 2)  # fmt: skip
    return data


def code(generated: bytes = b"", portable: bytes = b"") -> GpuCode:
    more = {name: data for name, data in ((sycl.GENERATED, generated), (sycl.PORTABLE, portable)) if data}
    return parse_gpu_code(io.BytesIO(elf("libx.so", more=more)))


PVC_AND_DG2, ODD = (archive("64.12.60.7", "64.12.55.8", size=size) for size in (70_000, 70_001))


@pytest.mark.parametrize("image", [PVC_AND_DG2, ODD, zstandard.compress(PVC_AND_DG2)], ids=["even", "odd", "packed"])
def test_the_gpus_of_an_archive_are_read(image: bytes) -> None:
    found = code(image + bytes(16) + image)
    assert (found.code, found.ptx, found.unread) == (("dg2", "pvc"), (), None)
    assert found.vendors == {"intel"}
    assert found.runs_on("dg2") and found.runs_on("pvc")
    assert not any(map(found.runs_on, ("bmg", "tgl", "sm_90", "gfx942")))


SPIRV = b"\x03\x02#\x07" + bytes(100)


def test_spirv_without_a_function_is_no_code() -> None:
    assert code(portable=SPIRV[:88]) == GpuCode()
    assert code(PVC_AND_DG2, SPIRV[:88]).ptx == ()


def test_spirv_runs_on_every_gpu_of_intels_and_on_no_other() -> None:
    for found in (code(portable=SPIRV), code(PVC_AND_DG2, SPIRV), code(archive("generic_ir"))):
        assert found.ptx == ("spir64",)
        assert all(map(found.runs_on, ("bmg", "skl")))
        assert not any(map(found.runs_on, ("sm_90", "gfx942")))


@pytest.mark.parametrize(
    ("name", "made_for", "also_runs_on", "others"),
    [
        ("64.12.70.4", "mtl", "arl", "lnl"),
        ("64.20.1.0", "bmg", "lnl", "ptl"),
        ("64.20.4.4", "lnl", "lnl", "bmg"),
        ("64.30.0.4", "ptl", "nvl-s", "nvl-p"),
        ("64.30.5.4", "nvl-s", "nvl-s", "ptl"),
        ("64.35.10.0", "nvl-p", "nvl-p", "nvl-s"),
        ("64.35.11.0", "cri", "cri", "pvc"),
    ],
)
def test_some_gpus_run_code_for_another_generation(name: str, made_for: str, also_runs_on: str, others: str) -> None:
    found = code(archive(name))
    assert (found.code, found.unread) == ((made_for,), None)
    assert found.runs_on(made_for) and found.runs_on(also_runs_on) and not found.runs_on(others)


PACKED = zstandard.compress(PVC_AND_DG2)
MANY = archive(*["64.12.60.7"] * (sycl.FILES_LIMIT // 2 + 1), size=0)
DAMAGED = (b"\x7fELF", PVC_AND_DG2[:100], *(PACKED[:end] for end in (4, 5, 18, 40)), MANY)


@pytest.mark.parametrize(
    ("image", "unread"),
    [
        *((archive(name), f"Intel GPU code for {name}, which is not known") for name in ("64.99.1.0", "x")),
        *((image, "Intel GPU code that cannot be read") for image in DAMAGED),
    ],
)
def test_what_is_not_understood_is_unread_unless_there_is_spirv(image: bytes, unread: str) -> None:
    assert code(image).unread == unread
    assert code(image, SPIRV).unread is None


def test_an_image_that_is_too_large_is_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sycl, "UNPACKED_LIMIT", 1000)
    assert code(zstandard.compress(PVC_AND_DG2)).unread


def test_a_policy_names_gpus_of_intels() -> None:
    assert parse_policy(b"gpus = ['pvc', 'bmg', 'adl-s']").gpus == ("bmg", "pvc", "adl-s")
    assert vendor_of("pvc") == "intel"
