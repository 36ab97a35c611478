"""Answer questions about unchanging files from the answers to earlier commands.

An image in a store has an ID that identifies its content, and opening the image may take many seconds.
`RememberedTree` opens it only for a question that has no remembered answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from posixpath import dirname, join
from typing import TYPE_CHECKING, Any, Optional, Union

from gpubind.errors import GpubindError
from gpubind.files.tree import Tree
from gpubind.model import HostPath, Missing, Stat
from gpubind.model.files import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubind.files.facts import FileFact

Answers = dict[str, dict[Any, Any]]
"""Answers by the name of a question and by its subject. They are `packed`, so that they can be stored."""

BYTES_LIMIT = 128 << 10
"""The limit of one answer: larger texts are read again."""
_WHOLE_LIMIT = 4 << 20
"""The approximate limit of all answers about one image, in bytes."""
NAMES_LIMIT = 8_000
"""The maximum number of names whose facts are remembered although no question asked for them."""
_SHARED = "gpubind.formats.elf.elf"
_KINDS = {
    **dict.fromkeys(("ElfFacts", "ElfIdent", "NotElf", "VersionNeed"), _SHARED),
    **dict.fromkeys(("CodeModule", "GpuCode", "Ptx"), "gpubind.model.gpucode"),
    "CudaNote": "gpubind.model.image",
    "Missing": "gpubind.model.files",
    "Stat": "gpubind.model.files",
    "DlopenNames": "gpubind.formats.elf.named",
}
"""The modules of the frozen values in answers."""


def packed(value: Any) -> Any:
    """Return *value* in a form for `marshal`: a frozen value as a tuple, with its type first; a tuple as a list."""
    if not isinstance(value, tuple):
        return value
    fields = [packed(field) for field in value]
    kind = type(value).__name__
    return (kind, *fields) if hasattr(value, "_fields") else fields


def unpacked(value: Any) -> Any:
    """Return the original of *value*, which `packed` returned."""
    if isinstance(value, list):
        return tuple(map(unpacked, value))
    if not isinstance(value, tuple):
        return value
    kind, *fields = value
    instance = getattr(import_module(_KINDS[kind]), kind)(*map(unpacked, fields))
    return ABSENT if instance == ABSENT else instance


def packed_size(value: Any) -> int:
    """Return the approximate size of the packed *value* in bytes."""
    if isinstance(value, (list, tuple)):
        return 8 + sum(map(packed_size, value))
    return 8 + (len(value) if isinstance(value, (bytes, str)) else 0)


class RememberedTree(Tree):
    """The files of an image, with the *cached* answers. *load* opens the files; *keep* gets all answers at the end."""

    def __init__(
        self, root: HostPath, cached: Answers, load: Callable[[], Tree], keep: Callable[[Answers], None]
    ) -> None:
        super().__init__(root)
        self._known = cached
        self._load_full_tree = load
        self._keep = keep
        self._full_tree: Optional[Tree] = None
        self._size = sum(packed_size(value) for answers in cached.values() for value in answers.values())

    def close(self) -> None:
        """Close the files, if they are open. In that case there are new answers, which are kept."""
        if self._full_tree is not None and not self.is_closed:
            with suppress(GpubindError, OSError):  # the answers so far stay valid
                self._add_neighbours()
            self._keep(self._known)
            self._full_tree.close()
        super().close()

    @property
    def full_tree(self) -> Tree:
        """Return the tree of the files themselves."""
        if self._full_tree is None:
            self._full_tree = self._load_full_tree()
        return self._full_tree

    @property
    def restarts(self) -> bool:  # type: ignore[override]
        """Return the attribute of the files themselves."""
        return bool(self._ask("restarts", "", lambda: self.full_tree.restarts))

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        names = self._known.get("_list", {}).get(dirname(path))
        if isinstance(names, list) and path.rpartition("/")[2] not in names:
            return ABSENT
        return self._asked("_lstat", path)  # type: ignore[no-any-return]

    def _readlink(self, path: str) -> Union[str, Missing]:
        return self._asked("_readlink", path)  # type: ignore[no-any-return]

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        return self._asked("_list", path)  # type: ignore[no-any-return]

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        return self._asked("_read", path, limit)  # type: ignore[no-any-return]

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        return self._asked("_head", path, size)  # type: ignore[no-any-return]

    def _fact(self, path: str, fact: FileFact[Any]) -> Any:
        return self._ask(fact.name, path, lambda: self.full_tree._fact(path, fact))

    def _asked(self, question: str, *about: Any) -> Any:
        """Return the answer to the method *question*. If none is remembered, the files themselves answer."""
        key = about[0] if len(about) == 1 else about
        return self._ask(question, key, lambda: getattr(self.full_tree, question)(*about))

    def _ask(self, question: str, key: Any, answer: Callable[[], Any]) -> Any:
        answers = self._known.setdefault(question, {})
        if key in answers:
            return unpacked(answers[key])
        result = answer()
        # Other answers, such as `forbidden`, depend on the user and not on the image.
        if not isinstance(result, Missing) or result.why in ("absent", "unreadable"):
            encoded = packed(result)
            size = packed_size(encoded) + packed_size(key)
            if size <= BYTES_LIMIT and self._size + size <= _WHOLE_LIMIT:
                answers[key] = encoded
                self._size += size
        return result

    def _add_neighbours(self) -> None:
        """Remember also the facts of the siblings of each path in a question, because other command lines ask for
        them.
        """
        names_left = NAMES_LIMIT
        for directory in sorted({dirname(path) for path in self._known.get("_lstat", {})}):
            stat = self._stat(directory)
            names = self._list(directory) if isinstance(stat, Stat) and stat.kind == "dir" else ABSENT
            if isinstance(names, Missing) or len(names) > names_left:
                continue
            names_left -= len(names)
            for name in sorted(names):
                path = join(directory, name)
                stat = self._lstat(path)
                if isinstance(stat, Stat) and stat.kind == "link":
                    self._readlink(path)
