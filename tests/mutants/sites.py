"""The changes of one expression that a file of Python allows: each is a mutant."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Optional, Union, cast

_SWAPS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OF_TYPES = frozenset(
    (
        *("Annotated", "Callable", "Generic", "IO", "Iterable", "Iterator", "Literal", "Mapping", "Optional"),
        *("Sequence", "Union", "dict", "frozenset", "list", "set", "tuple", "type"),
    )
)
"""What stands before brackets in a type; in an alias of a type, nothing is changed."""
_NAMES_A_TYPE = frozenset(("cast", "NewType", "TypeVar"))
_NAMES_A_CODEC = frozenset(("encode", "decode"))
"""Python takes `utf-8~` for `utf-8`, and looks up an error handler only at an error."""


class Mutant(NamedTuple):
    """One changed expression."""

    file: str
    line: int
    """The line of the changed part; lines are drawn, so a table counts by its rows."""
    function: str
    """The qualified name of the function or class that contains it; empty at the top of a module."""
    text: str
    """The source of the line, without its indentation."""
    change: str
    """`before -> after`, or `before -> (removed)` for an element."""
    span: tuple[int, int]
    """The bytes of the source that *source* replaces."""
    source: str

    @property
    def key(self) -> str:
        """What names the mutant in a list, whatever its line has become."""
        return "\t".join((self.file, self.function, self.text, self.change))

    def applied(self, source: bytes) -> bytes:
        """Return *source* with the change."""
        start, end = self.span
        return source[:start] + self.source.encode() + source[end:]


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a file."""
    return [_mutant(file, source, change) for change in _changes(ast.parse(source), "")]


def drawn(sources: Mapping[str, bytes], seed: int, count: int) -> list[Mutant]:
    """Draw *count* lines that can be changed, and of each one change; a *seed* draws the same ones again."""
    by_line: dict[tuple[str, int], list[_Change]] = {}
    for file, source in sorted(sources.items()):
        for change in _changes(ast.parse(source), ""):
            by_line.setdefault((file, change.changed.lineno), []).append(change)
    chance = random.Random(seed)
    lines = chance.sample(sorted(by_line), min(count, len(by_line)))
    return [_mutant(file, sources[file], chance.choice(by_line[file, line])) for file, line in lines]


class _Change(NamedTuple):
    """What becomes of an expression."""

    scope: str
    node: ast.expr
    other: ast.expr
    element: Optional[ast.expr] = None
    """The element of *node* that *other* does not have."""
    is_returned: bool = False

    @property
    def changed(self) -> ast.expr:
        """What a reader sees as changed."""
        return self.element or self.node


def _mutant(file: str, source: bytes, change: _Change) -> Mutant:
    node, line = change.node, change.changed.lineno
    starts = [0]
    for each in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(each))
    text, word = ast.unparse(change.other), "return " if change.is_returned else ""
    return Mutant(
        file=file,
        line=line,
        function=change.scope,
        text=source[starts[line - 1] : starts[line]].decode().strip(),
        change=f"{word}{ast.unparse(change.changed)} -> {'(removed)' if change.element else word + text}",
        span=(
            starts[node.lineno - 1] + node.col_offset,
            starts[cast("int", node.end_lineno) - 1] + cast("int", node.end_col_offset),
        ),
        source=f"({text})",
    )


def _changes(node: ast.AST, scope: str) -> Iterator[_Change]:
    """Yield the changes of *node* and of what is in it: of what runs, so not of types, docstrings or imports."""
    for child in _run(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _changes(child, f"{scope}.{child.name}" if scope else child.name)
        else:
            yield from _of(child, scope)
            yield from _changes(child, scope)
    for test in _tests(node):
        if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            yield _Change(scope, test, ast.UnaryOp(ast.Not(), test))


def _of(node: ast.AST, scope: str) -> Iterator[_Change]:
    if isinstance(node, ast.Return):
        if node.value and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield _Change(scope, node.value, ast.Constant(None), is_returned=True)
    elif isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            ops = [*node.ops[:number], _SWAPS[type(operator)](), *node.ops[number + 1 :]]
            yield _Change(scope, node, ast.Compare(node.left, ops, node.comparators))
    elif isinstance(node, ast.BoolOp):
        yield _Change(scope, node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _Change(scope, node, node.operand)
    elif isinstance(node, ast.Constant):
        for value in _other_values(node.value):
            yield _Change(scope, node, ast.Constant(value))
    elif isinstance(node, (ast.Set, ast.Dict)) or (
        isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Load)
    ):
        yield from _fewer(node, scope)


def _fewer(node: Union[ast.Tuple, ast.List, ast.Set, ast.Dict], scope: str) -> Iterator[_Change]:
    elements = node.values if isinstance(node, ast.Dict) else node.elts
    for number, element in enumerate(elements):
        rest = [*elements[:number], *elements[number + 1 :]]
        fewer: ast.expr
        if isinstance(node, ast.Dict):
            fewer = ast.Dict([*node.keys[:number], *node.keys[number + 1 :]], rest)
            element = node.keys[number] or element
        elif isinstance(node, ast.Set):
            fewer = ast.Set(rest) if rest else ast.Call(ast.Name("set", ast.Load()), [], [])
        else:
            fewer = type(node)(rest, ast.Load())
        yield _Change(scope, node, fewer, element)


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of *node* in which something runs that can be changed.

    The parts of an f-string have no positions before Python 3.12, so nothing in one is changed.
    """
    if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return
    if isinstance(node, ast.Raise) and "AssertionError" in ast.unparse(node):  # no input reaches it
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body)
    elif isinstance(node, ast.Lambda):
        yield from (*node.args.defaults, node.body)
    elif isinstance(node, ast.ClassDef):
        yield from node.body
    elif isinstance(node, ast.AnnAssign):
        yield from filter(None, [node.value])
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        yield from node.orelse
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in _OF_TYPES:
        return
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMES_A_TYPE:
        yield from node.args[1:]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _NAMES_A_CODEC:
        yield node.func
    elif isinstance(node, ast.Assign) and any(
        isinstance(name, ast.Name) and name.id == "__all__" for name in node.targets
    ):
        return
    else:
        yield from ast.iter_child_nodes(node)


def _tests(node: ast.AST) -> Sequence[ast.expr]:
    """The conditions of *node* itself."""
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        return () if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else (node.test,)
    return node.ifs if isinstance(node, ast.comprehension) else ()


def _other_values(value: object) -> Sequence[Union[str, bytes, int, float]]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, (int, float)):
        return (value + 1, value - 1)
    if isinstance(value, str):
        return (f"{value}~", "") if value else ("~",)
    if isinstance(value, bytes):
        return (value + b"~", b"") if value else (b"~",)
    return ()
