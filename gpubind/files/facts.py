"""The facts of a regular file, read by `Tree.fact`. A record contains some of them instead of the file's bytes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar, Union

from gpubind.formats.elf.elf import HEAD_SIZE, STUB_LIMIT, ElfFacts, ElfIdent, NotElf, is_stub, parse_ident
from gpubind.frozen import NamedTuple
from gpubind.machine.budget import spend
from gpubind.model import Missing

if TYPE_CHECKING:
    from gpubind.formats.elf.named import DlopenNames
    from gpubind.model.gpucode import GpuCode

T_co = TypeVar("T_co", covariant=True)

_TEXT_STEP = 1 << 14
"""Bytes of text that cost one unit of the bound `facts`."""
FILE_COST, UNREADABLE_COST = 100, 1000
"""The cost of an ELF file in units of the bound `facts`. An unreadable file costs more, because it may have failed
late.
"""


class FileFact(NamedTuple, Generic[T_co]):
    """A kind of fact."""

    name: str
    parse: Callable[[Any], Union[T_co, Missing]]
    """Parses the first `head` bytes; if `head` is 0, a stream of the file."""
    cost: Callable[[Any], int]
    """The cost of an answer in units of the bound `facts`."""
    unreadable: int = UNREADABLE_COST
    """The cost of the answer that the file is unreadable."""
    head: int = 0
    is_buffered: bool = False
    """Whether the parser reads most of the file, from beginning to end."""
    is_kept: bool = False
    """Whether answers are cached until the tree is closed."""


def _parser(module: str, name: str) -> Callable[[BinaryIO], Any]:
    """Return the function *name* of the *module* of formats/elf, which is imported at the first call."""

    def parse(stream: BinaryIO) -> Any:
        return getattr(import_module(f"gpubind.formats.elf.{module}"), name)(stream)

    return parse


def _cost_of_elf(facts: ElfFacts) -> int:
    """Return the cost of *facts*. Reading a file costs as much as a hundred names and versions."""
    versions = sum(len(need.versions) for need in facts.version_needs)
    return FILE_COST + len(facts.needed) + len(facts.version_needs) + versions + len(facts.version_definitions)


def _parse_gpu_code(stream: BinaryIO) -> GpuCode:
    from gpubind.formats.gpucode.sections import parse_gpu_code

    return parse_gpu_code(stream, lambda cost: spend("codes", cost))


def _cost_of_bytes(data: bytes) -> int:
    return FILE_COST + len(data) // _TEXT_STEP


IDENT: FileFact[Union[ElfIdent, NotElf]] = FileFact("ident", parse_ident, lambda _: 0, 0, head=HEAD_SIZE, is_kept=True)
"""The ELF identification."""
ELF: FileFact[ElfFacts] = FileFact("elf", _parser("dynamic", "parse_elf"), _cost_of_elf, is_buffered=True, is_kept=True)
"""The dynamic facts of an ELF file."""
STUB: FileFact[bool] = FileFact("stub", is_stub, lambda _: 0, 0, head=STUB_LIMIT, is_kept=True)
"""Whether the content of a file of at most `STUB_LIMIT` bytes shows that it is a stub of libcuda or NVML."""
GPU_CODE: FileFact[GpuCode] = FileFact("gpu_code", _parse_gpu_code, lambda _: FILE_COST, FILE_COST, is_kept=True)
"""The GPU code in an ELF file."""
NAMED_LIBRARIES: FileFact[DlopenNames] = FileFact(
    "named_libraries", _parser("named", "parse_named_libraries"), lambda named: FILE_COST + named.size // _TEXT_STEP
)
"""The names of libraries in the texts of an ELF file, which it may open."""
CONSTANTS: FileFact[bytes] = FileFact("constants", _parser("named", "read_constants"), _cost_of_bytes)
"""The constants of an ELF file, its section `.rodata`."""
FIRST_CODE: FileFact[bytes] = FileFact("first_code", _parser("named", "read_first_code"), _cost_of_bytes)
"""The first megabytes of the machine code of an ELF file."""
RECORDED = (IDENT, ELF, STUB)
"""The facts that a record contains."""
