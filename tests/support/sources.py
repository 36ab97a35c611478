"""The sources of gpubind, for tests that read them: each is parsed once in a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import gpubind

PACKAGE = Path(gpubind.__file__).parent


@cache
def modules() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def nodes(module: Path) -> tuple[ast.AST, ...]:
    """Every node of *module*; tests share them, so none may change one."""
    return tuple(ast.walk(ast.parse(module.read_text())))
