"""The files of a container as one tree: an image's, and over them what is mounted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from gpubind.files import Tree
from gpubind.formats.elf.elf import ElfFacts, ElfIdent, NotElf
from gpubind.loader.namespace import Namespace, Place
from gpubind.model import HostPath, Missing, Stat
from gpubind.model.answers import ABSENT


class MountedTree(Tree):
    """The tree that a process in the container of *namespace* sees. It has no place of its own on the host."""

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(HostPath("/"))
        self._namespace = namespace

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        found = self._namespace.entry(path)
        if isinstance(found, str):
            return Stat("link", 0o777, 0, 0, len(found))
        if isinstance(found, Missing):
            return found
        return Stat(found.kind, 0o755, 0, 0, 0) if found.tree is None else found.tree.lenient.lstat(found.at)

    def _readlink(self, path: str) -> Union[str, Missing]:
        found = self._namespace.entry(path)
        return found if isinstance(found, str) else ABSENT

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        found = self._namespace.look(path)
        if isinstance(found, Missing):
            return found
        names = () if found.tree is None else found.tree.lenient.list(found.at)
        mounted = self._namespace.mounted_in(found.path)
        return tuple(dict.fromkeys((*(() if isinstance(names, Missing) else names), *mounted))) or names

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        found = self._file(path)
        return found if isinstance(found, Missing) else found[0].read(found[1], limit)

    def _ident(self, path: str) -> Union[ElfIdent, NotElf, Missing]:
        found = self._file(path)
        return found if isinstance(found, Missing) else found[0].ident(found[1])

    def _elf(self, path: str) -> Union[ElfFacts, Missing]:
        found = self._file(path)
        return found if isinstance(found, Missing) else found[0].elf(found[1])

    def _file(self, path: str) -> Union[tuple[Tree, str], Missing]:
        found: Union[Place, Missing] = self._namespace.look(path)
        if isinstance(found, Missing):
            return found
        return ABSENT if found.tree is None else (found.tree.lenient, found.at)
