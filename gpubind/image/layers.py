"""The files of tar layers, one over the other: an index of where everything is, without any of it.

Source: OCI image-spec `layer.md` (whiteouts, opaque directories, hard links); members below a link go where the link
leads inside the root, as in runtimes that unpack one layer over the other.
"""

from __future__ import annotations

from copy import copy
from posixpath import normpath
from typing import Optional

from gpubind.errors import FormatError
from gpubind.formats.elf import ElfIdent, parse_ident
from gpubind.formats.tar import TarHeader
from gpubind.image.archives import members
from gpubind.image.sources import Source
from gpubind.model import FileKind

ENTRIES_LIMIT = 400_000
"""In all layers together, also what a later one hides; about 350 bytes of memory each."""
STEPS_LIMIT = 10_000_000
"""Names in all the paths of all members, and what whiteouts walk over: one of 400,000 files has about 4 million."""
PATH_LIMIT = 4096  # PATH_MAX: nobody can unpack longer ones
NAME_LIMIT = 255
LINKS_LIMIT = 40
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
IDENT_SIZE = 20  # all that parse_ident wants of an ELF file


class Entry:
    """What is at one path."""

    __slots__ = (
        "children", "gid", "ident", "kind", "layer", "link", "major", "minor", "mode", "offset", "size", "source", "uid"
    )  # fmt: skip

    def __init__(self, kind: FileKind, layer: int) -> None:
        self.kind = kind
        self.layer = layer
        """The last layer that names it."""
        self.source = layer
        """The layer that its data is in: another one for a hard link to a lower layer's file."""
        self.mode = 0o755
        self.uid = self.gid = self.size = self.major = self.minor = 0
        self.link = ""
        self.offset = -1
        """Of the data in its layer; -1 if that is not what the file holds (a sparse file)."""
        self.ident: Optional[ElfIdent] = None
        """Of an ELF file: it is asked for often, and going back in a layer is slow."""
        self.children: Optional[dict[str, Entry]] = {} if kind == "dir" else None


class Layers:
    """The merged index. `add` takes the layers from the lowest to the uppermost."""

    def __init__(self, *, whiteouts: bool = True) -> None:
        self.root = Entry("dir", 0)
        self.sources: list[Source] = []
        self._whiteouts = whiteouts
        self._count = 0
        self._steps = 0
        self._idents: dict[bytes, Optional[ElfIdent]] = {}
        self._parents: dict[str, Optional[Entry]] = {}

    def add(self, source: Source) -> None:
        """Put the layer in *source* over the others. Errors: `FormatError` (`bad-archive`, `image-bomb`)."""
        number = len(self.sources)
        self.sources.append(source)
        self._parents.clear()
        for header, offset in members(source):
            self._counted(1, header.name.count("/") + header.link.count("/"))
            if header.kind is None or len(header.name) > PATH_LIMIT or len(header.link) > PATH_LIMIT:
                continue
            path = normpath("/" + header.name.lstrip("/"))  # `..` stops at the root
            head, _, name = path.rpartition("/")
            if "\0" in path or len(name) > NAME_LIMIT:
                continue
            if self._whiteouts and WHITEOUT in path and (f"/{WHITEOUT}" in head or name.startswith(WHITEOUT)):
                if f"/{WHITEOUT}" not in head:  # what is below is another storage driver's
                    self._hide(head, name, number)
                continue
            if not name:
                if header.kind == "dir":
                    self._describe(self.root, header, number)
                continue
            parent = self._parent(head, number)
            if parent is None:
                continue
            self._put(parent, name, header, offset, number)

    def find(self, path: str) -> Optional[Entry]:
        """What is at *path*, no parent of which is a link."""
        entry: Optional[Entry] = self.root
        for name in path.split("/"):
            if name:
                entry = entry.children.get(name) if entry is not None and entry.children is not None else None
        return entry

    def _put(self, parent: Entry, name: str, header: TarHeader, offset: int, number: int) -> None:
        assert parent.children is not None
        old = parent.children.get(name)
        if header.kind == "hardlink":
            target = self._linked(header.link)
            if target is None or target.kind == "dir" or target is old:
                return
            new = copy(target)
            new.layer = number
        elif header.kind == "dir" and old is not None and old.kind == "dir":
            self._describe(old, header, number)
            return
        else:
            assert header.kind is not None
            new = Entry(header.kind, number)
            self._describe(new, header, number)
            new.size = header.size if header.kind == "file" else 0
            new.major, new.minor = header.major, header.minor
            new.link = header.link
            new.offset = -1 if header.sparse else offset
            if header.kind == "file" and new.size >= IDENT_SIZE and not header.sparse:
                new.ident = self._ident(self.sources[number].read_at(offset, IDENT_SIZE))
        if old is not None and old.kind in ("dir", "link"):
            self._parents.clear()
        parent.children[name] = new

    def _describe(self, entry: Entry, header: TarHeader, number: int) -> None:
        entry.mode, entry.uid, entry.gid, entry.layer = header.mode, header.uid, header.gid, number

    def _ident(self, head: bytes) -> Optional[ElfIdent]:
        if head[:4] != b"\x7fELF":
            return None
        if head not in self._idents:
            ident = parse_ident(head)
            if len(self._idents) > 1024:  # there are about five
                self._idents.clear()
            self._idents[head] = ident if isinstance(ident, ElfIdent) else None
        return self._idents[head]

    def _hide(self, head: str, name: str, number: int) -> None:
        """Take away what layers below number *number* have there; what this one has stays, in whatever order."""
        parent = self._parent(head, number, make=False)
        if parent is None or parent.children is None:
            return
        self._parents.clear()
        if name == OPAQUE:
            self._steps += _prune(parent, number)
            return
        name = name[len(WHITEOUT) :]
        hidden = parent.children.get(name)
        if hidden is None:
            return
        if hidden.kind == "dir":
            self._steps += _prune(hidden, number)
        if hidden.layer < number and not hidden.children:
            del parent.children[name]

    def _linked(self, target: str) -> Optional[Entry]:
        path = normpath("/" + target.lstrip("/"))
        head, _, name = path.rpartition("/")
        parent = self._parent(head, 0, make=False)
        return parent.children.get(name) if parent is not None and parent.children is not None else None

    def _parent(self, path: str, number: int, *, make: bool = True) -> Optional[Entry]:
        """The directory *path*, links followed inside the root; made where it is missing. None where links loop."""
        if path in self._parents:
            return self._parents[path]
        found = self._walk(path, number, make)
        if found is not None or make:
            if len(self._parents) > 4096:
                self._parents.clear()
            self._parents[path] = found
        return found

    def _walk(self, path: str, number: int, make: bool) -> Optional[Entry]:
        todo = path.split("/")[::-1]
        stack = [self.root]
        links = 0
        while todo:
            name = todo.pop()
            self._steps += 1
            if name in ("", "."):
                continue
            if name == "..":
                if len(stack) > 1:
                    stack.pop()
                continue
            children = stack[-1].children
            assert children is not None
            entry = children.get(name)
            if entry is not None and entry.kind == "link":
                links += 1
                if links > LINKS_LIMIT or not entry.link:
                    return None
                if entry.link.startswith("/"):
                    del stack[1:]
                todo.extend(entry.link.split("/")[::-1])
                continue
            if entry is None or entry.children is None:
                if not make or len(name) > NAME_LIMIT:
                    return None
                self._counted(1)
                if entry is not None:
                    self._parents.clear()
                entry = children[name] = Entry("dir", number)  # a file gives way: the later word counts
            stack.append(entry)
        return stack[-1]

    def _counted(self, entries: int, steps: int = 0) -> None:
        self._count += entries
        self._steps += steps
        if self._count > ENTRIES_LIMIT or self._steps > STEPS_LIMIT:
            many = f"{ENTRIES_LIMIT} entries" if self._count > ENTRIES_LIMIT else f"{STEPS_LIMIT} names in their paths"
            raise FormatError(
                "image-bomb",
                "the image has far more files, or far longer paths, than images do",
                place=f"more than {many}",
                why="an index of them would take too much memory or time",
            ).in_file(self.sources[-1].label)


def _prune(directory: Entry, number: int) -> int:
    """Take away what is below *directory* and not of layer *number*; how many steps that took."""
    found: list[tuple[Entry, str, Entry]] = []
    todo = [directory]
    while todo:
        entry = todo.pop()
        assert entry.children is not None
        for name, child in entry.children.items():
            found.append((entry, name, child))
            if child.children is not None:
                todo.append(child)
    for parent, name, child in reversed(found):  # the deepest first: a directory stays for what is left in it
        if child.layer < number and not child.children:
            assert parent.children is not None
            del parent.children[name]
    return 2 * len(found)
