"""Fill in a template of the report. Every text is escaped.

A page contains its style, its script and the script's data. Its Content Security Policy allows only these, by their
digests: no injected element or handler runs, and nothing is requested.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from typing import Any, Optional

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from gpubind import __version__
from gpubind.documents import Made
from gpubind.documents.report.picture import truncate_middle
from gpubind.documents.text import printable
from gpubind.model.data import read_data

_TEMPLATES = "documents/report/templates/"
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def render(template: str, data: object = None, made: Optional[Made] = None, **values: Any) -> str:
    """Return the page of *template* with *values*; *data* is for the script, as JSON."""
    style, script = (Markup(_source(name)) for name in ("style.css", "script.js"))
    page = _environment().get_template(template)
    digests = {"style_digest": _digest(style), "script_digest": _digest(script)}
    texts = {"style": style, "script": script, "data": script_data(data), "version": __version__, **digests}
    return page.render(made=made, **texts, **values)


def script_data(data: object) -> Markup:
    """Return *data* as JSON for a script element, in which no text can end the element or open a comment."""
    return Markup(json.dumps(_shown(data), separators=(",", ":")).translate(_IN_SCRIPT))


def _shown(data: object) -> object:
    if isinstance(data, str):
        return shown(data)
    if isinstance(data, dict):
        return {shown(name): _shown(value) for name, value in data.items()}
    return [_shown(value) for value in data] if isinstance(data, (list, tuple)) else data


def shown(text: str) -> str:
    """Return *text* as `printable`, with every byte that is not UTF-8 escaped."""
    return printable(text).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["truncate_middle"] = truncate_middle
    return environment


def _finalized(value: object) -> object:
    if value is None:
        return ""
    return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _source(name: str) -> str:
    return read_data(_TEMPLATES + name).decode()


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
