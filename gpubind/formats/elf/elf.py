"""ELF: what is known of a file, and its identification. `elf_dynamic` reads the rest.

Source: gABI chapter 4 (ELF header).
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, Optional, Union

from gpubind.model import CudaNote
from gpubind.model.arch import of_elf

EXECUTABLE = 2
"""e_type of a program with a fixed address."""
HEAD_SIZE = 256
"""Bytes that `parse_ident` needs; they also show a linker script."""


class ElfIdent(NamedTuple):
    """The facts in the first 20 bytes of an ELF file."""

    bits: Annotated[int, (32, 64)]
    order: Literal["little", "big"]
    machine: Annotated[int, range(1 << 16)]
    """e_machine, 62 for x86-64."""
    type: Annotated[int, range(1 << 16)]
    """e_type: 2 executable, 3 shared object."""

    @property
    def arch(self) -> str:
        """The name of its architecture (`gpubind.model.arch`): `x86_64`, `i386`, `aarch64`; `x32` for 32-bit x86-64."""
        return of_elf(self.machine, self.bits, self.order)


class NotElf(NamedTuple):
    """Why a file is not an ELF object."""

    rule: Literal["zero-byte", "linker-script", "truncated-elf", "not-elf"]
    detail: str


class VersionNeed(NamedTuple):
    """Symbol versions that a file wants from one library (.gnu.version_r)."""

    library: str
    versions: tuple[str, ...]


class ElfFacts(NamedTuple):
    """The dynamic facts of one ELF file. Orders are those of the file."""

    ident: ElfIdent
    soname: Optional[str] = None
    needed: tuple[str, ...] = ()
    rpath: Optional[str] = None
    runpath: Optional[str] = None
    interpreter: Optional[str] = None
    version_needs: tuple[VersionNeed, ...] = ()
    version_definitions: tuple[str, ...] = ()
    cuda_note: Optional[CudaNote] = None
    """libcuda's own word about the CUDA versions and kernel modules that it serves, where it has one."""
    executable_stack: bool = False
    """Whether it asks for a stack that may be executed (PT_GNU_STACK)."""
    no_default_directories: bool = False
    """Whether what it needs must not come from the default directories (DF_1_NODEFLIB)."""
    pie: bool = False
    """Whether it is a position-independent executable (DF_1_PIE), which dlopen refuses."""


def parse_ident(head: bytes) -> Union[ElfIdent, NotElf]:
    """Return the identification in the first `HEAD_SIZE` bytes of a file, or why there is none. Never raises."""
    if not head:
        return NotElf("zero-byte", "the file is empty")
    if not head.startswith(b"\x7fELF"):
        if b"GNU ld script" in head or head.lstrip().startswith((b"INPUT", b"GROUP", b"OUTPUT_FORMAT")):
            return NotElf("linker-script", "a text for the link editor; the loader cannot use it")
        return NotElf("not-elf", f"starts with {head[:4]!r}")
    if len(head) < 20:
        return NotElf("truncated-elf", f"{len(head)} bytes")
    bits = {1: 32, 2: 64}.get(head[4])
    order: Optional[Literal["little", "big"]] = {1: "little", 2: "big"}.get(head[5])  # type: ignore[assignment]
    if bits is None or order is None:
        return NotElf("not-elf", f"EI_CLASS {head[4]}, EI_DATA {head[5]}")
    return ElfIdent(bits, order, int.from_bytes(head[18:20], order), int.from_bytes(head[16:18], order))
