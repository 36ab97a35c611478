"""Find the GPU code of an ELF file by its sections."""

from __future__ import annotations

from typing import BinaryIO

from gpubind.formats.elf.dynamic import OFFSET_LIMIT, SHT_NOBITS, find_sections
from gpubind.formats.gpucode import fatbin, hip, sycl
from gpubind.model.gpucode import SPIR64, GpuCode, Ptx, gpu_code

_NAMES = (*fatbin.SECTIONS, hip.SECTION, hip.ARCHIVE_SECTION, sycl.GENERATED, sycl.PORTABLE)


def parse_gpu_code(stream: BinaryIO, charge: fatbin.Charge = lambda _: None) -> GpuCode:
    """Return the GPU code in the ELF file in *stream* (binary, seekable, without a buffer). Only headers are read.

    *charge* gets the number of entries that are about to be read.
    Errors: as `parse_elf`.
    """

    def read(offset: int, size: int) -> bytes:
        if offset >= OFFSET_LIMIT:
            return b""
        stream.seek(offset)
        return stream.read(size) or b""  # None: no bytes for now

    found = {name: one for name, one in find_sections(stream, _NAMES).items() if one.size and one.kind != SHT_NOBITS}
    for name in fatbin.SECTIONS:
        if name in found:
            return fatbin.parse_fatbins(read, found[name].offset, found[name].size, charge)
    if hip.ARCHIVE_SECTION in found:
        return GpuCode(unread=hip.IN_ARCHIVES)
    if hip.SECTION in found:
        return hip.parse_bundles(read, found[hip.SECTION].offset, found[hip.SECTION].size, charge)
    has_portable = sycl.PORTABLE in found and found[sycl.PORTABLE].size > sycl.EMPTY
    if sycl.GENERATED in found:
        section = found[sycl.GENERATED]
        return sycl.parse_generated(read, section.offset, section.size, charge, has_portable=has_portable)
    return gpu_code([((), [Ptx(SPIR64)])]) if has_portable else GpuCode()
