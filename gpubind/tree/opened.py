"""OpenedTree: a tree whose files are opened, on this machine or in an image, as against a recorded one."""

from __future__ import annotations

from typing import BinaryIO, Union

from gpubind.errors import FormatError
from gpubind.formats.elf import HEAD_SIZE, ElfFacts, ElfIdent, NotElf, parse_elf, parse_ident
from gpubind.model import Missing
from gpubind.tree.base import Tree


class OpenedTree(Tree):
    """The one way from an open file to its bytes, its identification and its ELF facts.

    Subclasses give the first bytes of a regular file (`_head`) and a stream of all (`_stream`).
    """

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        """The first *size* bytes; fewer only if the file has no more."""
        raise NotImplementedError

    def _stream(self, path: str) -> Union[BinaryIO, Missing]:
        """The file as a seekable stream."""
        raise NotImplementedError

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        data = self._head(path, limit + 1)
        if isinstance(data, Missing) or len(data) <= limit:
            return data
        return Missing("unreadable", f"larger than {limit} bytes")

    def _ident(self, path: str) -> Union[ElfIdent, NotElf, Missing]:
        head = self._head(path, HEAD_SIZE)
        return head if isinstance(head, Missing) else parse_ident(head)

    def _elf(self, path: str) -> Union[ElfFacts, Missing]:
        stream = self._stream(path)
        if isinstance(stream, Missing):
            return stream
        try:
            with stream:
                return parse_elf(stream)
        except FormatError as error:
            if error.code != "bad-elf":  # the image is damaged, not the file alone
                raise
            return Missing("unreadable", f"{error.what}: {error.why}")
