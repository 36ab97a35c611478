"""Read, list and stat files inside a root, as a process that is chrooted into it: links and `..` never leave it."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import dirname
from typing import Any, NoReturn, Optional, TypeVar, Union

from gpubind.errors import closed
from gpubind.files.facts import ELF, IDENT, RECORDED, STUB, FileFact
from gpubind.formats.elf.elf import STUB_LIMIT, ElfFacts, ElfIdent, NotElf
from gpubind.machine.answers import ATTRIBUTES, OF_DEVICES
from gpubind.machine.budget import LINKS_LIMIT, spend
from gpubind.model import HostPath, Missing, ResolvedFile, RootedPath, Stat
from gpubind.model.files import ABSENT, LOOP, noun_of

T = TypeVar("T")

_SHORTCUTS = 2
"""Depth of links in links up to which the directory of a target is resolved as a whole, and cached."""
TEXT_LIMIT = 1 << 20


class _Closed(dict[str, Any]):
    """The cache of a closed tree: each lookup is an error."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root

    def get(self, path: str, default: object = None) -> NoReturn:
        raise closed(self._root)


class Tree:
    """A read-only view of the files below *root*, consistent for its lifetime: only bytes are read again each time."""

    root: HostPath
    restarts = False
    """Whether going back in a large file means to unpack all that precedes it again."""
    is_closed = False

    def __init__(self, root: HostPath) -> None:
        self.root = root
        self._stats: dict[str, Union[Stat, Missing]] = {"/": Stat("dir", 0o755, 0, 0, 0)}
        self._resolved: dict[str, Union[RootedPath, Missing]] = {"/": RootedPath("/")}
        self._facts: dict[str, dict[str, Any]] = {}
        self._listings: dict[str, Union[tuple[str, ...], Missing]] = {}
        self.globs: dict[str, tuple[RootedPath, ...]] = {}
        """The results of `gpubind.files.glob`, by pattern."""
        self.unseen: dict[str, str] = {}
        """Paths that could not be read and that a plan does not require, and why. A finding names each."""

    def close(self) -> None:
        """Close what is open. Any later question is a `UsageError` (code `closed`)."""
        self.is_closed = True
        self._stats = self._resolved = self.globs = _Closed(self.root)

    # What callers ask.

    @property
    def lenient(self) -> Tree:
        """This tree, with an answer (`unrecorded`) instead of an error for a path that a record does not cover."""
        return self

    def real(self, path: RootedPath) -> HostPath:
        """Return the real host path of *path*, which must be resolved."""
        return HostPath(self.root.rstrip("/") + path if path != "/" else self.root)

    def rooted(self, source: str) -> Optional[RootedPath]:
        """Return the real host path *source* as a path inside this root; None if it is outside."""
        root = self.root.rstrip("/")
        return RootedPath(source[len(root) :]) if source.startswith(f"{root}/") else None

    def resolve(self, path: str) -> Union[RootedPath, Missing]:
        """Return the absolute *path* with every link in it followed."""
        answer = self._resolved.get(path)
        if answer is None:
            if not path.startswith("/"):
                raise ValueError(f"not an absolute path: {path!r}")
            head, _, name = path.rpartition("/")
            parent = self._directory(head or "/")
            answer = parent if isinstance(parent, Missing) else self._walk(parent, name)
            self._resolved[path] = answer
        return answer

    def lstat(self, path: str) -> Union[Stat, Missing]:
        """Return the facts of *path*; a link at its end is not followed."""
        here = self._without_links_above(path)
        return here if isinstance(here, Missing) else self._stat(here)

    def stat(self, path: str) -> Union[Stat, Missing]:
        """Return the facts of *path*, with every link followed."""
        here = self.resolve(path)
        return here if isinstance(here, Missing) else self._stat(here)

    def find(self, path: str) -> Union[ResolvedFile, Missing]:
        """Return the resolved path of *path*, and its facts."""
        here = self.resolve(path)
        if isinstance(here, Missing):
            return here
        found = self._stat(here)
        return found if isinstance(found, Missing) else ResolvedFile(here, found)

    def has(self, path: str) -> bool:
        """Return whether *path* surely exists, with links followed."""
        return not isinstance(self.stat(path), Missing)

    def lacks(self, path: str) -> bool:
        """Return whether *path* surely does not exist. A forbidden path is neither there nor absent."""
        found = self.stat(path)
        return isinstance(found, Missing) and found.why == "absent"

    def readlink(self, path: str) -> Union[str, Missing]:
        """Return the target of the link *path*, as written; ABSENT if *path* is not a link."""
        here = self._without_links_above(path)
        if isinstance(here, Missing):
            return here
        found = self._stat(here)
        if isinstance(found, Missing):
            return found
        return self._readlink(here) if found.kind == "link" else ABSENT

    def list(self, path: str) -> Union[tuple[str, ...], Missing]:
        """Return the names in directory *path*, sorted; ABSENT if it is not a directory."""
        here = self.resolve(path)
        if isinstance(here, Missing):
            return here
        answer = self._listings.get(here)
        if answer is None:
            found = self._stat(here)
            if isinstance(found, Missing):
                answer = found
            elif found.kind != "dir":
                answer = ABSENT
            else:
                names = self._list(here)
                if not isinstance(names, Missing):
                    spend("texts", sum(map(len, names)))
                answer = names if isinstance(names, Missing) else tuple(sorted(names))
            self._listings[here] = answer
        return answer

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in directory *path*, sorted; none if it cannot be listed: `unseen` notes `OF_DEVICES`."""
        names = self.list(path)
        if not isinstance(names, Missing):
            return names
        if names.why == "forbidden" and path in OF_DEVICES:
            self.unseen[path] = names.detail
        return ()

    def has_nothing_in(self, path: str) -> bool:
        """Return whether directory *path* is surely absent, or surely empty."""
        names = self.list(path)
        return names.why == "absent" if isinstance(names, Missing) else not names

    def read(self, path: str, limit: int = TEXT_LIMIT) -> Union[bytes, Missing]:
        """Return the bytes of the regular file *path*; a file longer than *limit* is `unreadable`."""
        here = self._regular(path)
        if isinstance(here, Missing):
            return here
        data = self._read(here, limit)
        if isinstance(data, Missing) and data.why == "unreadable" and here.startswith(ATTRIBUTES):
            self.unseen[path] = data.detail
        return data

    def head(self, path: str, size: int) -> Union[bytes, Missing]:
        """Return the first *size* bytes of the regular file *path*; fewer only if it has no more."""
        here = self._regular(path)
        return here if isinstance(here, Missing) else self._head(here, size)

    def read_text(self, path: str) -> Union[str, Missing]:
        """As `read`, decoded; bytes that are not UTF-8 become surrogate escapes."""
        data = self.read(path)
        return data if isinstance(data, Missing) else data.decode("utf-8", "surrogateescape")

    def text(self, path: str) -> Optional[str]:
        """Return the text of a small file, without blanks around it; None if it cannot be read."""
        text = self.read_text(path)
        return None if isinstance(text, Missing) else text.strip()

    def fact(self, path: str, fact: FileFact[T]) -> Union[T, Missing]:
        """Return the *fact* of the regular file *path*; `unreadable` if the file is damaged, or not of that kind."""
        here = self._regular(path)
        if isinstance(here, Missing):
            return here
        known = self._facts.setdefault(fact.name, {})
        answer: Union[T, Missing, None] = known.get(here)
        if answer is None:
            answer = self._fact(here, fact)
            spend("facts", fact.unreadable if isinstance(answer, Missing) else fact.cost(answer))
            if fact.is_kept:
                known[here] = answer
        return answer

    def ident(self, path: str) -> Union[ElfIdent, NotElf, Missing]:
        """Return the ELF identification of the regular file *path*."""
        return self.fact(path, IDENT)

    def elf(self, path: str) -> Union[ElfFacts, Missing]:
        """Return the dynamic facts of the ELF file *path*; a damaged file is `unreadable`."""
        return self.fact(path, ELF)

    def is_stub(self, path: str) -> bool:
        """Return whether *path* is a stub of libcuda or NVML, or a small file in a directory called `stubs`."""
        found = self.find(path)
        if isinstance(found, Missing) or found.stat.kind != "file" or found.stat.size > STUB_LIMIT:
            return False
        return "/stubs/" in found.path or self.fact(found.path, STUB) is True

    # Subclasses answer for an absolute, normal *path* no parent of which is a link.

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        raise NotImplementedError

    def _readlink(self, path: str) -> Union[str, Missing]:
        raise NotImplementedError

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        raise NotImplementedError

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        raise NotImplementedError

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        raise NotImplementedError

    def _fact(self, path: str, fact: FileFact[Any]) -> Any:
        """Return the *fact* of the regular file *path*, or `Missing`."""
        raise NotImplementedError

    def _stat(self, path: str) -> Union[Stat, Missing]:
        answer = self._stats.get(path)
        if answer is None:
            spend("lookups")
            answer = self._stats[path] = self._lstat(path)
        return answer

    def _without_links_above(self, path: str) -> Union[RootedPath, Missing]:
        if not path.startswith("/"):
            raise ValueError(f"not an absolute path: {path!r}")
        head, _, name = path.rpartition("/")
        if name in ("", ".", ".."):  # it must be a directory, and a link to one is followed
            return self.resolve(path)
        parent = self._directory(head or "/")
        return parent if isinstance(parent, Missing) else RootedPath(parent.rstrip("/") + "/" + name)

    def _regular(self, path: str) -> Union[RootedPath, Missing]:
        found = self.find(path)
        if isinstance(found, Missing):
            return found
        kind = found.stat.kind
        return found.path if kind == "file" else Missing("unreadable", f"{noun_of(kind)}, not a regular file")

    def _walk(self, at: RootedPath, path: str, depth: int = 0) -> Union[RootedPath, Missing]:
        """Return where *path* leads from the resolved directory *at*; *depth* is that of links in links.

        `links.follow` does the same: this loop over cached facts is there because it is most of what planning costs.
        """
        stats = self._stats
        todo = path.split("/")[::-1]
        links = 0
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            if name == "..":
                at = RootedPath(dirname(at))
                continue
            here = RootedPath(f"{at}/{name}" if at != "/" else f"/{name}")
            found = stats.get(here)
            if found is None:
                spend("lookups")
                found = stats[here] = self._lstat(here)
            if isinstance(found, Missing):
                return found
            if found.kind == "link":
                links += 1
                target = self._readlink(here)
                if links > LINKS_LIMIT:
                    return LOOP
                if isinstance(target, Missing):
                    return target
                if not target:  # in a record: it could not be read
                    return ABSENT
                if target.startswith("/"):
                    at = RootedPath("/")
                    head, _, name = target.rpartition("/")
                    if head and depth < _SHORTCUTS:
                        directory = self._directory(head, depth + 1)
                        if isinstance(directory, Missing):
                            return directory
                        at, target = directory, name
                todo.extend(target.split("/")[::-1])
            elif found.kind != "dir" and todo:
                return ABSENT  # a file instead of a directory
            else:
                at = here
        return at

    def _directory(self, path: str, depth: int = 0) -> Union[RootedPath, Missing]:
        """As `resolve`, for a directory, which most paths share with others; ABSENT if it is not one."""
        answer = self._resolved.get(path)
        if answer is None:
            answer = self._resolved[path] = self._walk(RootedPath("/"), path, depth)
        if isinstance(answer, Missing):
            return answer
        found = self._stat(answer)
        return answer if not isinstance(found, Missing) and found.kind == "dir" else ABSENT


class FactsTree(Tree):
    """A tree of recorded facts: it has the texts of small files, and no bytes of large ones."""

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        data = self._read(path, TEXT_LIMIT)
        return data if isinstance(data, Missing) else data[:size]

    def _fact(self, path: str, fact: FileFact[Any]) -> Any:
        return self._recorded_fact(path, fact) if fact in RECORDED else Missing("unrecorded", f"{path} is in a record")

    def _recorded_fact(self, path: str, fact: FileFact[Any]) -> Any:
        raise NotImplementedError
