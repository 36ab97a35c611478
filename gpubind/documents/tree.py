"""`gpubind explain --tree`: what a program is linked with, as a tree, as JSON (data/tree.schema.json), or for Graphviz.

The text follows libtree: a file's libraries are listed below it where the loader first meets the file. Everywhere else
it is only named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from gpubind.documents.text import escape_for_quotes, printable, render_document
from gpubind.frozen import NamedTuple
from gpubind.model.findings import with_count

if TYPE_CHECKING:
    from gpubind.loader.linkage import LinkedFile, LinkUse

DEPTH_LIMIT = 64
"""The number of levels below the program that the text shows. A crafted chain of libraries could have thousands."""
_RULES = {
    "interpreter": "PT_INTERP",
    "path": "its path",
    "rpath": "DT_RPATH",
    "library-path": "LD_LIBRARY_PATH",
    "runpath": "DT_RUNPATH",
    "cache": "ld.so.cache",
    "default": "default directory",
    None: "LD_PRELOAD",
}
_STATES = {"missing": "not found", "unknown": "not known"}
_FILLS = {"plan": "palegreen", "image": "lightblue", "user": "khaki", "host": "lightgrey", "left-out": "white"}


class LinkageTree(NamedTuple):
    """A program, and everything that it is linked with."""

    asked: str
    names: tuple[str, ...]
    """The names of the program, and of the interpreters that run it if it is a script."""
    image: Optional[str]
    """The image that it is in; None for this host."""
    files: tuple[LinkedFile, ...]
    """In the loader's order; the first is the program."""


_TreeLine = tuple[str, str]
"""A text, and the file that is expanded below it; empty if none is."""


def render_tree_text(tree: LinkageTree) -> str:
    """Return the tree for people: a line for each library of each file, then how many there are and what is missing."""
    branches, first = _branches(tree), tree.files[0]
    lines = [" -> ".join((*tree.names[:-1], f"{first.path} ({first.origin}){_more(first)}"))]
    stack: list[tuple[str, Iterator[_TreeLine], int]] = [("", iter(branches[first.path]), len(branches[first.path]))]
    while stack:  # a crafted chain is deeper than Python recurses
        indent, siblings, remaining = stack.pop()
        branch = next(siblings, None)
        if branch is None:
            continue
        stack.append((indent, siblings, remaining - 1))
        text, below = branch[0], branches.get(branch[1], [])
        if below and len(stack) > DEPTH_LIMIT:
            text += f" (deeper than {DEPTH_LIMIT} levels: see --format json)"
        elif below:
            stack.append((f"{indent}{'|   ' if remaining > 1 else '    '}", iter(below), len(below)))
        lines.append(f"{indent}{'|-- ' if remaining > 1 else '`-- '}{text}")
    return "".join(printable(line) + "\n" for line in (*lines, *_summary(tree)))


def _branches(tree: LinkageTree) -> dict[str, list[_TreeLine]]:
    """Return the lines below each file. A file is expanded only below the first file that needs it."""
    files = {file.path: file for file in tree.files}
    seen = {tree.files[0].path}
    branches: dict[str, list[_TreeLine]] = {}
    for file in tree.files:
        lines = branches.setdefault(file.path, [])
        for use in file.uses:
            if use.path is None or use.path in seen:
                fault = f": {use.fault}" if use.fault else ""
                rest = f"(repeated){_lacking(use)}" if use.state == "found" else f"{_STATES[use.state]}{fault}"
                lines.append((f"{use.name} {rest}", ""))
            else:
                seen.add(use.path)
                lines.append((_expanded(use.name, use, files.get(use.path)), use.path))
    first = branches[tree.files[0].path]
    for path, file in files.items():
        if path not in seen:
            first.append((_expanded(path.rpartition("/")[2], None, file), path))
    return branches


def _expanded(name: str, use: Optional[LinkUse], file: Optional[LinkedFile]) -> str:
    rule = _RULES[use.found_by if use is not None else None]
    return f"{name} [{rule}]" + (f" {file.origin}: {file.path}{_more(file)}" if file else "") + _lacking(use)


def _more(file: LinkedFile) -> str:
    """Return which file of the host is mounted at this path, and why the loader refuses the file."""
    return (f" <- {file.source}" if file.source is not None else "") + (f": {file.fault}" if file.fault else "")


def _lacking(use: Optional[LinkUse]) -> str:
    return f", lacks {', '.join(use.lacking)}" if use is not None and use.lacking else ""


def _missing(tree: LinkageTree) -> list[str]:
    return sorted({use.name for file in tree.files for use in file.uses if use.state == "missing"})


def _summary(tree: LinkageTree) -> Iterator[str]:
    whose = Counter(file.origin for file in tree.files)
    origins = ", ".join(f"{number} {origin}" for origin, number in sorted(whose.items()))
    yield f"{with_count(len(tree.files), 'file')}: {origins}"
    missing = _missing(tree)
    if missing:
        yield f"not found: {', '.join(missing)}"


def render_tree_json(tree: LinkageTree) -> str:
    """Return the tree as the document `gpubind.tree/1`: its files with what each of them needs."""
    return render_document("gpubind.tree/1", {**tree._asdict(), "missing": _missing(tree)})


def render_tree_dot(tree: LinkageTree) -> str:
    """Return the tree as a graph in Graphviz's language."""
    lines = ["digraph linkage {", "  rankdir=LR;", "  node [shape=box, style=filled, fillcolor=white];"]
    for file in tree.files:
        label = _quoted(*filter(None, (file.path, file.source)))
        lines.append(f"  {_quoted(file.path)} [label={label}, fillcolor={_FILLS[file.origin]}];")
    unfound = {use.name: use.state for file in tree.files for use in file.uses if use.path is None}
    for name, state in unfound.items():
        lines.append(f"  {_quoted(name)} [label={_quoted(name, _STATES[state])}, color=red, style=dashed];")
    for file in tree.files:
        for use in file.uses:
            labels = [_RULES[use.found_by]] if use.found_by is not None else []
            labels += [f"lacks {version}" for version in use.lacking]
            style = ", color=red" if use.is_broken else ""
            edge = f"{_quoted(file.path)} -> {_quoted(use.path or use.name)}"
            lines.append(f"  {edge} [label={_quoted(', '.join(labels))}{style}];")
    return "\n".join((*lines, "}")) + "\n"


def _quoted(*lines: str) -> str:
    """Return *lines* as a string of DOT, in which `\\n` ends a line of a label."""
    return '"' + "\\n".join(map(escape_for_quotes, lines)) + '"'
