"""Which tests run which lines: a table of bytes that all processes of a test share, one byte for each block.

A block is a piece of a function that runs as a whole. In a copy of gpubind each block first marks its byte of a mapped
file, so that marks outlive what ends a process without warning: exec, `_exit`, a signal. A test that clears the
environment or runs as another user is seen as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

MARK = "_block_runs"
_TABLE = f"""import mmap as _mmap
try:
    with open({{path!r}}, "r+b") as _file:
        {MARK} = _mmap.mmap(_file.fileno(), {{size}})
except OSError:
    {MARK} = bytearray({{size}})
"""


class Blocks(NamedTuple):
    """The blocks of a file."""

    first: int
    """The number of its first block among those of all files."""
    starts: list[tuple[int, int]]
    """Of each block the line before which it is marked, and its indentation."""
    of_line: dict[int, int]
    """The number of the block of each line in a function."""


def blocks_of(source: bytes, first: int = 0) -> Blocks:
    """Divide the functions of a file into blocks."""
    blocks = Blocks(first, [], {})
    for node in ast.walk(ast.parse(source)):  # the outer function first: an inner one takes its lines from it
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.body[0].lineno > node.lineno:
            _divide(node.body, blocks)
    return blocks


def _divide(suite: Sequence[ast.stmt], blocks: Blocks) -> None:
    """Give each statement of *suite* a block: a new one at its start, and after each statement that has a suite."""
    is_new = True
    for number, statement in enumerate(suite):
        if number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if is_new:
            decorators = getattr(statement, "decorator_list", ())
            blocks.starts.append(
                (min((statement, *decorators), key=lambda node: node.lineno).lineno, statement.col_offset)
            )
            is_new = False
        block = blocks.first + len(blocks.starts) - 1
        blocks.of_line.update((line, block) for line in range(statement.lineno, (statement.end_lineno or 0) + 1))
        for inner in _suites(statement):
            _divide(inner, blocks)
            is_new = True


def _suites(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the suites of a statement that runs in its function."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    for name in ("body", "orelse", "finalbody"):
        suite = getattr(statement, name, [])
        if name == "orelse" and len(suite) == 1 and suite[0].col_offset == statement.col_offset:  # elif
            yield from _suites(suite[0])
        elif suite:
            yield suite
    for handler in getattr(statement, "handlers", ()):
        yield handler.body


def marked(source: bytes, blocks: Blocks) -> bytes:
    """Return *source* with a mark at the start of each block."""
    lines = source.splitlines(keepends=True)
    for number, (line, indent) in sorted(enumerate(blocks.starts, blocks.first), key=lambda row: row[1], reverse=True):
        lines.insert(line - 1, f"{' ' * indent}{MARK}[{number}] = 1\n".encode())
    body = ast.parse(source).body
    top = 0
    for statement in body:
        if isinstance(statement, ast.Expr) or (
            isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        ):
            top = statement.end_lineno or 0
        else:
            break
    lines.insert(top, f"from gpubind.{MARK} import {MARK}\n".encode())
    return b"".join(lines)


def table_module(path: str, size: int) -> str:
    """Return the module that maps the table."""
    return _TABLE.format(path=path, size=size)


def users(file: str, line: int, sources: Mapping[str, bytes], blocks: Mapping[str, Blocks]) -> set[int]:
    """Return the blocks that name what a line outside of functions defines, here and where this file is imported."""
    tree = ast.parse(sources[file])
    names = _defined(tree, line)
    for _round in range(3):  # what is made of it at the top of the module
        for statement in tree.body:
            if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and _mentions(ast.unparse(statement), names):
                names |= _targets(statement)
    module = file[:-3].rsplit("/", 2)
    where = module[-2] if module[-1] == "__init__" else module[-1]
    used: set[int] = set()
    for other, source in sources.items():
        if other == file or re.search(rf"\b{where}\b", source.decode()):
            texts = source.decode().splitlines()
            used |= {block for at, block in blocks[other].of_line.items() if _mentions(texts[at - 1], names)}
    return used


def _defined(tree: ast.Module, line: int) -> set[str]:
    """The names of the statement at *line*: its targets, or the function or class around it, with its attribute."""
    for statement in tree.body:
        if statement.lineno <= line <= (statement.end_lineno or 0):
            names = _targets(statement)
            for inner in ast.walk(statement) if isinstance(statement, ast.ClassDef) else ():
                if isinstance(inner, ast.stmt) and inner.lineno <= line <= (inner.end_lineno or 0):
                    names |= _targets(inner)
            return names
    return set()


def _targets(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _mentions(text: str, names: set[str]) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", text) for name in names)
