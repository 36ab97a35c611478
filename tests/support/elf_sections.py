"""The facts of an ELF file as pyelftools tells them, by its section headers: the other reader, to compare with."""

from __future__ import annotations

from typing import Any, BinaryIO, Optional

from elftools.elf.elffile import ELFFile

from gpubind.formats.elf.dynamic import DF_1_NODEFLIB, DF_1_PIE, PF_X, VER_FLG_WEAK, parse_cuda_note
from gpubind.formats.elf.elf import HEAD_SIZE, ElfFacts, ElfIdent, VersionNeed, parse_ident
from gpubind.model.arch import architecture


def by_sections(stream: BinaryIO) -> ElfFacts:
    """What pyelftools says of the ELF file in *stream*."""
    ident = parse_ident(stream.read(HEAD_SIZE))
    assert isinstance(ident, ElfIdent)
    file: Any = ELFFile(stream)
    segments = list(file.iter_segments())
    tags = [tag for s in segments if s["p_type"] == "PT_DYNAMIC" and s["p_filesz"] for tag in s.iter_tags()]
    stacks = [s["p_flags"] for s in segments if s["p_type"] == "PT_GNU_STACK"]
    flags = [tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS_1"]
    interpreters = [s.get_interp_name() for s in segments if s["p_type"] == "PT_INTERP"]
    note = file.get_section_by_name(".note.cuda.fwd_compatibility")

    def last(name: str) -> Optional[str]:
        return next((getattr(t, name) for t in reversed(tags) if t.entry.d_tag == f"DT_{name.upper()}"), None)

    return ElfFacts(
        ident=ident,
        soname=last("soname"),
        needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        rpath=last("rpath"),
        runpath=last("runpath"),
        interpreter=interpreters[0] if interpreters else None,
        version_needs=_needs(file),
        version_definitions=_definitions(file),
        cuda_note=parse_cuda_note(note.data(), ident.order) if note else None,
        executable_stack=bool(stacks[-1] & PF_X) if stacks else architecture(ident.arch).executable_stack,
        no_default_directories=bool(flags and flags[-1] & DF_1_NODEFLIB),
        pie=bool(flags and flags[-1] & DF_1_PIE),
    )


def _needs(file: Any) -> tuple[VersionNeed, ...]:
    section = file.get_section_by_name(".gnu.version_r")
    needs = section.iter_versions() if section else ()
    return tuple(
        VersionNeed(need.name, tuple(aux.name for aux in every if not aux["vna_flags"] & VER_FLG_WEAK))
        for need, every in needs
    )


def _definitions(file: Any) -> tuple[str, ...]:
    section = file.get_section_by_name(".gnu.version_d")
    return tuple(next(iter(names)).name for _, names in section.iter_versions()) if section else ()
