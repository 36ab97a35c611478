"""`plan --json`, and what takes its place where there is none: `gpubind.error/1` (data/error.schema.json)."""

from __future__ import annotations

from gpubind.errors import GpubindError
from gpubind.model import Plan
from gpubind.model.plain import text_of
from gpubind.version import __version__


def render_json(plan: Plan, *, verbose: bool = False) -> str:
    """Return the plan document as text. *verbose* changes nothing: what was left out is always in it."""
    return plan.to_json()


def render_error_json(error: GpubindError) -> str:
    """Return *error* as the document that a program gets in the place of the one that it asked for."""
    told = {name: getattr(error, name) or None for name in ("code", "what", "where", "why", "hint")}
    return text_of({"schema": "gpubind.error/1", "gpubind": __version__, **told, "exit": error.exit_code})
