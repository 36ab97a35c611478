"""JSON documents, within bounds. `gpubind.model.plain.Decoder` makes frozen values from them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Union

from gpubind.errors import Format

_DIGITS_LIMIT = 20  # 64 bits; converting digits to a number takes quadratic time
_DIGITS_TO_KEEP = 4000
"""Maximum digits of a number that is written again unchanged. Python converts at most 4300."""

VALUES_LIMIT = 1_000_000
"""Maximum commas and brackets of a document: 16 MB of `{},` would take 400 MB. A record of a host has about 6,000."""

_INDENT = r"\s*\{\r?\n([ \t]+)\""
_SURROGATES = "[\ud800-\udfff]"
NON_ESCAPE_SURROGATES = "[\ud800-\udc7f\udd00-\udfff]"
"""`_SURROGATES`, except those by which Python represents bytes of names that are not UTF-8."""


def parse_json(data: bytes, limit: int, kind: Format, *, allow_surrogates: bool = False) -> Any:
    """Return the value of *data*, of at most *limit* bytes. Lone surrogates are replaced, unless *allow_surrogates*.

    Errors: those of *kind* if it is too large, has more than `VALUES_LIMIT` values, or is not UTF-8 or not JSON.
    """
    if len(data) > limit:
        raise kind.damaged(f"{len(data)} bytes; {limit} at most")
    if sum(map(data.count, (b",", b"[", b"{"))) > VALUES_LIMIT:
        raise kind.damaged(f"more than {VALUES_LIMIT} values")
    try:
        value = json.loads(data.decode("utf-8"), parse_int=_integer)
        return replace_surrogates(value) if b"\\u" in data and not allow_surrogates else value
    except RecursionError as error:
        raise kind.damaged("nested too deeply") from error
    except UnicodeDecodeError as error:
        raise kind.damaged("not UTF-8", f"byte {error.start}") from error
    except ValueError as error:
        raise kind.damaged(str(error), f"byte {getattr(error, 'pos', 0)}") from error


def parse_exact_json(data: bytes, limit: int, kind: Format) -> Any:
    """Return the value of *data*, a document that will be written again, so that nothing in it may be lost or
    ambiguous.

    Errors: those of `parse_json`; those of *kind* for a duplicate key, a lone surrogate, and a number that JSON cannot
    express.
    """

    def exact_integer(digits: str) -> int:
        if len(digits) > _DIGITS_TO_KEEP:
            raise kind.damaged(f"a number of {len(digits)} digits")
        return int(digits)

    def no_constant(constant: str) -> Any:
        raise kind.damaged(f"{constant} is not a number of JSON")

    parse_json(data, limit, kind)
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=reject_duplicate_keys(kind),
            parse_int=exact_integer,
            parse_constant=no_constant,
        )
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise kind.damaged("half of a surrogate pair in a string") from error
    except ValueError as error:
        raise kind.damaged(str(error)) from error
    return value


def written_like(document: Mapping[str, Any], like: str) -> str:
    """Return the JSON text of *document* with the indentation of the text *like*."""
    indent = re.match(_INDENT, like)
    end = like[len(like.rstrip()) :]
    separators = None if indent or like.find('": ') >= 0 else (",", ":")
    space = indent.group(1) if indent else None
    return json.dumps(document, ensure_ascii=False, indent=space, separators=separators) + end


def reject_duplicate_keys(kind: Format) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return an `object_pairs_hook` that raises the error of *kind* for a duplicate key of an object."""

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)[:60]
            raise kind.damaged(f"the key `{twice}` is there twice", f"key {twice}")
        return value

    return read


def replace_surrogates(value: Any, halves: str = _SURROGATES) -> Any:
    """Return *value* with lone surrogates (`\\ud800`), which no file name can have, replaced as Go does."""
    if isinstance(value, str):
        return re.sub(halves, "\ufffd", value)
    if isinstance(value, list):
        return [replace_surrogates(member, halves) for member in value]
    if isinstance(value, dict):
        return {re.sub(halves, "\ufffd", key): replace_surrogates(member, halves) for key, member in value.items()}
    return value


def _integer(digits: str) -> Union[int, float]:
    return int(digits) if len(digits) <= _DIGITS_LIMIT else float(digits)
