"""Find the GPU code of an ELF file by its sections."""

from __future__ import annotations

from typing import BinaryIO

from gpubind.formats.elf.dynamic import OFFSET_LIMIT, SHT_NOBITS, find_sections
from gpubind.formats.gpucode import fatbin, hip, sycl
from gpubind.model.gpucode import SPIR64, GpuCode, Ptx, gpu_code

_NAMES = (*fatbin.SECTIONS, hip.SECTION, hip.ARCHIVE_SECTION, sycl.GENERATED, sycl.PORTABLE)


def parse_gpu_code(stream: BinaryIO, charge: fatbin.Charge = lambda _: None) -> GpuCode:
    """Return the GPU code in the ELF file in *stream* (binary, seekable, without a buffer). Only headers are read.

    *charge* gets the number of entries before they are read. Errors: as `parse_elf`.
    """

    def read(offset: int, size: int) -> bytes:
        if offset >= OFFSET_LIMIT:
            return b""
        stream.seek(offset)
        return stream.read(size) or b""  # None: no bytes yet

    sections = {
        name: header
        for name, header in find_sections(stream, _NAMES).items()
        if header.size and header.kind != SHT_NOBITS
    }
    for name in fatbin.SECTIONS:
        if name in sections:
            return fatbin.parse_fatbins(read, sections[name].offset, sections[name].size, charge)
    if hip.ARCHIVE_SECTION in sections:
        return GpuCode(unread=hip.IN_ARCHIVES)
    if hip.SECTION in sections:
        return hip.parse_bundles(read, sections[hip.SECTION].offset, sections[hip.SECTION].size, charge)
    has_portable = sycl.PORTABLE in sections and sections[sycl.PORTABLE].size > sycl.EMPTY
    if sycl.GENERATED in sections:
        section = sections[sycl.GENERATED]
        return sycl.parse_generated(read, section.offset, section.size, charge, has_portable=has_portable)
    return gpu_code([((), [Ptx(SPIR64)])]) if has_portable else GpuCode()
