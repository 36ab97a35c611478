"""Read, list and stat files inside a root, as a process that is chrooted into it: links and `..` never leave it."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import dirname
from typing import Any, NoReturn, Optional, TypeVar, Union

from gpubind.errors import closed_error
from gpubind.files.facts import ELF, IDENT, RECORDED, STUB, FileFact
from gpubind.formats.elf.elf import STUB_LIMIT, ElfFacts, ElfIdent, NotElf
from gpubind.machine.answers import ATTRIBUTES, OF_DEVICES
from gpubind.machine.budget import spend
from gpubind.model import HostPath, Missing, ResolvedFile, RootedPath, Stat
from gpubind.model.files import ABSENT, LINKS_LIMIT, LOOP, NOUNS

T = TypeVar("T")

_SHORTCUTS = 2
"""The depth of nested links up to which the directory of a link's target is resolved as a whole, and cached."""
TEXT_LIMIT = 1 << 20


class _Closed(dict[str, Any]):
    """The cache of a closed tree: each lookup is an error."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root

    def get(self, path: str, default: object = None) -> NoReturn:
        raise closed_error(self._root)


class Tree:
    """A read-only view of the files below *root*. It is consistent for its lifetime; only bytes are read again each
    time.
    """

    root: HostPath
    restarts = False
    """Whether going back in a large file unpacks everything before it again."""
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
        """Paths that could not be read but that a plan does not require, with the reason. A finding names each."""

    def close(self) -> None:
        """Close all open files. Any later question is a `UsageError` (code `closed`)."""
        self.is_closed = True
        self._stats = self._resolved = self.globs = _Closed(self.root)

    # The interface for callers.

    @property
    def lenient(self) -> Tree:
        """Return this tree with the answer `unrecorded` instead of an error for a path that a record does not cover."""
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
        resolved = self._without_links_above(path)
        return resolved if isinstance(resolved, Missing) else self._stat(resolved)

    def stat(self, path: str) -> Union[Stat, Missing]:
        """Return the facts of *path*, with every link followed."""
        resolved = self.resolve(path)
        return resolved if isinstance(resolved, Missing) else self._stat(resolved)

    def find(self, path: str) -> Union[ResolvedFile, Missing]:
        """Return the resolved path of *path*, and its facts."""
        resolved = self.resolve(path)
        if isinstance(resolved, Missing):
            return resolved
        stat = self._stat(resolved)
        return stat if isinstance(stat, Missing) else ResolvedFile(resolved, stat)

    def has(self, path: str) -> bool:
        """Return whether *path* certainly exists, with links followed."""
        return not isinstance(self.stat(path), Missing)

    def lacks(self, path: str) -> bool:
        """Return whether *path* certainly does not exist. For a forbidden path both `has` and `lacks` are false."""
        stat = self.stat(path)
        return isinstance(stat, Missing) and stat.why == "absent"

    def readlink(self, path: str) -> Union[str, Missing]:
        """Return the target of the link *path*, as written; ABSENT if *path* is not a link."""
        resolved = self._without_links_above(path)
        if isinstance(resolved, Missing):
            return resolved
        stat = self._stat(resolved)
        if isinstance(stat, Missing):
            return stat
        return self._readlink(resolved) if stat.kind == "link" else ABSENT

    def list(self, path: str) -> Union[tuple[str, ...], Missing]:
        """Return the names in directory *path*, sorted; ABSENT if it is not a directory."""
        resolved = self.resolve(path)
        if isinstance(resolved, Missing):
            return resolved
        answer = self._listings.get(resolved)
        if answer is None:
            stat = self._stat(resolved)
            if isinstance(stat, Missing):
                answer = stat
            elif stat.kind != "dir":
                answer = ABSENT
            else:
                names = self._list(resolved)
                if not isinstance(names, Missing):
                    spend("texts", sum(map(len, names)))
                answer = names if isinstance(names, Missing) else tuple(sorted(names))
            self._listings[resolved] = answer
        return answer

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in directory *path*, sorted; none if it cannot be listed. `unseen` notes that for
        `OF_DEVICES`.
        """
        names = self.list(path)
        if not isinstance(names, Missing):
            return names
        if names.why == "forbidden" and path in OF_DEVICES:
            self.unseen[path] = names.detail
        return ()

    def has_nothing_in(self, path: str) -> bool:
        """Return whether directory *path* is certainly absent or empty."""
        names = self.list(path)
        return names.why == "absent" if isinstance(names, Missing) else not names

    def read(self, path: str, limit: int = TEXT_LIMIT) -> Union[bytes, Missing]:
        """Return the bytes of the regular file *path*; a file longer than *limit* is `unreadable`."""
        resolved = self._regular(path)
        if isinstance(resolved, Missing):
            return resolved
        data = self._read(resolved, limit)
        if isinstance(data, Missing) and data.why == "unreadable" and resolved.startswith(ATTRIBUTES):
            self.unseen[path] = data.detail
        return data

    def head(self, path: str, size: int) -> Union[bytes, Missing]:
        """Return the first *size* bytes of the regular file *path*; fewer only if it has no more."""
        resolved = self._regular(path)
        return resolved if isinstance(resolved, Missing) else self._head(resolved, size)

    def read_text(self, path: str) -> Union[str, Missing]:
        """As `read`, decoded; bytes that are not UTF-8 become surrogate escapes."""
        data = self.read(path)
        return data if isinstance(data, Missing) else data.decode("utf-8", "surrogateescape")

    def text(self, path: str) -> Optional[str]:
        """Return the text of a small file, without surrounding white space; None if it cannot be read."""
        text = self.read_text(path)
        return None if isinstance(text, Missing) else text.strip()

    def fact(self, path: str, fact: FileFact[T]) -> Union[T, Missing]:
        """Return the *fact* of the regular file *path*; `unreadable` if the file is damaged, or of another kind."""
        resolved = self._regular(path)
        if isinstance(resolved, Missing):
            return resolved
        cached = self._facts.setdefault(fact.name, {})
        answer: Union[T, Missing, None] = cached.get(resolved)
        if answer is None:
            answer = self._fact(resolved, fact)
            spend("facts", fact.unreadable if isinstance(answer, Missing) else fact.cost(answer))
            if fact.is_kept:
                cached[resolved] = answer
        return answer

    def ident(self, path: str) -> Union[ElfIdent, NotElf, Missing]:
        """Return the ELF identification of the regular file *path*."""
        return self.fact(path, IDENT)

    def elf(self, path: str) -> Union[ElfFacts, Missing]:
        """Return the dynamic facts of the ELF file *path*; a damaged file is `unreadable`."""
        return self.fact(path, ELF)

    def is_stub(self, path: str) -> bool:
        """Return whether *path* is a stub of libcuda or NVML, or a small file in a directory called `stubs`."""
        file = self.find(path)
        if isinstance(file, Missing) or file.stat.kind != "file" or file.stat.size > STUB_LIMIT:
            return False
        return "/stubs/" in file.path or self.fact(file.path, STUB) is True

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
        resolved = self.resolve(path)
        if isinstance(resolved, Missing):
            return resolved
        stat = self._stat(resolved)
        if isinstance(stat, Missing):
            return stat
        return resolved if stat.kind == "file" else Missing("unreadable", f"{NOUNS[stat.kind]}, not a regular file")

    def _walk(self, at: RootedPath, path: str, depth: int = 0) -> Union[RootedPath, Missing]:
        """Return where *path* leads from the resolved directory *at*; *depth* is the depth of nested links.

        `model.files.walk_path` does the same. This loop over cached facts is the main cost of planning.
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
            entry_path = RootedPath(f"{at}/{name}" if at != "/" else f"/{name}")
            stat = stats.get(entry_path)
            if stat is None:
                spend("lookups")
                stat = stats[entry_path] = self._lstat(entry_path)
            if isinstance(stat, Missing):
                return stat
            if stat.kind == "link":
                links += 1
                target = self._readlink(entry_path)
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
            elif stat.kind != "dir" and todo:
                return ABSENT  # a file instead of a directory
            else:
                at = entry_path
        return at

    def _directory(self, path: str, depth: int = 0) -> Union[RootedPath, Missing]:
        """As `resolve`, for a directory, which most paths share with others; ABSENT if it is not one."""
        answer = self._resolved.get(path)
        if answer is None:
            answer = self._resolved[path] = self._walk(RootedPath("/"), path, depth)
        if isinstance(answer, Missing):
            return answer
        stat = self._stat(answer)
        return answer if not isinstance(stat, Missing) and stat.kind == "dir" else ABSENT


class FactsTree(Tree):
    """A tree of recorded facts: it has the texts of small files, and no bytes of large ones."""

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        data = self._read(path, TEXT_LIMIT)
        return data if isinstance(data, Missing) else data[:size]

    def _fact(self, path: str, fact: FileFact[Any]) -> Any:
        return self._recorded_fact(path, fact) if fact in RECORDED else Missing("unrecorded", f"{path} is in a record")

    def _recorded_fact(self, path: str, fact: FileFact[Any]) -> Any:
        raise NotImplementedError
