"""Every sentence that a user may be told: help, findings, messages, errors."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from gpubind.explanation.messages import messages
from gpubind.model.data import read_data
from tests.support.sources import nodes
from tests.test_help import pages

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gpubind"
IDENTIFIER = re.compile(r"[a-z0-9_.-]*")


@cache
def sentences() -> tuple[tuple[str, str], ...]:
    """(where it stands, the sentence)."""
    return tuple(_sentences())


def _sentences() -> Iterator[tuple[str, str]]:
    for command, page in pages().items():
        texts = (*page.text, *(text for _, rows in page.sections for _, text in rows), page.end)
        for text in (*texts, *(text for text, _ in page.examples), *(text for _, text in page.exit_codes)):
            yield f"gpubind {command} --help", text
    for name in ("findings", "pages", "names", "errors", "variables"):
        yield from _of_json(f"data/{name}.json", json.loads(read_data(f"model/data/{name}.json")))
    for row in messages():  # their lines are what other programs say
        for text in (row.group, row.means, row.do):
            yield f"data/messages.json: {row.name}", text
    for module in sorted(PACKAGE.rglob("*.py")):
        yield from _of_module(module)


def _of_json(place: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if not IDENTIFIER.fullmatch(value):
            yield place, value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from _of_json(f"{place}: {name}", member)
    elif isinstance(value, list):
        for member in value:
            yield from _of_json(place, member)


def _of_module(module: Path) -> Iterator[tuple[str, str]]:
    """The texts in the calls that make an error or a finding, and in names like `what`, `why`, `hint`, `detail`."""
    for node in nodes(module):
        parts: list[ast.AST] = []
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name.endswith(MAKERS):
                parts = [*node.args, *(keyword.value for keyword in node.keywords)]
            else:
                parts = [keyword.value for keyword in node.keywords if keyword.arg in TOLD]
        elif isinstance(node, ast.Assign) and {getattr(target, "id", "") for target in node.targets} & TOLD:
            parts = [node.value]
        for part in parts:
            place = f"{module.relative_to(ROOT)}:{getattr(part, 'lineno', 0)}"
            for constant in ast.walk(part):
                value = constant.value if isinstance(constant, ast.Constant) else None
                if isinstance(value, str) and not IDENTIFIER.fullmatch(value):
                    yield place, value


MAKERS = ("Error", "Stop", "PassedOver", "Missing", "finding", "_no_image", "malformed", "damaged")
"""How what makes an error or a finding is called, at the end."""
TOLD = {"what", "why", "hint", "detail", "where"}
