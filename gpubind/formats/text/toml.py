"""TOML within bounds: configuration files and the expectations of nodes."""

from __future__ import annotations

import sys
from typing import Any

from gpubind.errors import FormatError

DOTS_LIMIT = 500
"""Maximum dots in a line. Parsing a key of many parts (`a.a.a`) takes quadratic time."""


def parse_toml(data: bytes, code: str, what: str) -> dict[str, Any]:
    """Return the tables of *data*. Errors: `FormatError` with *code* and *what*."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    dotted = next((n for n, line in enumerate(data.split(b"\n"), 1) if line.count(b".") > DOTS_LIMIT), None)
    if dotted is not None:
        raise FormatError(code, what, why=f"line {dotted} has more than {DOTS_LIMIT} dots")
    try:
        tables: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError(code, what, why=f"not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(code, what, why=str(error)) from error
    return tables
