"""A plan, or the outcome of a check, as a document: everything that is not a runtime's words.

To add one: a module here with its renderer, and its row in PLAN_DOCUMENTS or CHECK_DOCUMENTS.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Document(NamedTuple):
    """A renderer, by its place: the module is loaded only when somebody asks for the document."""

    module: str
    function: str

    def render(self, *values: Any, **options: Any) -> str:
        """The document as text, by the renderer."""
        from importlib import import_module

        text: str = getattr(import_module(f"gpubind.documents.{self.module}"), self.function)(*values, **options)
        return text


PLAN_DOCUMENTS = {
    "text": Document("text", "render_text"),
    "json": Document("json", "render_json"),
    "paths": Document("text", "render_paths"),
}
"""Of a `Plan` and *verbose*: whether to show also what was left out."""
FORMATS = ("table", *PLAN_DOCUMENTS, "cdi")
"""The table is for people, in cli/render; a CDI spec has a layout of its own, and is planned for, in cli/cdi."""

CHECK_DOCUMENTS = {
    "text": Document("report", "render_check_text"),
    "json": Document("report", "render_check_json"),
    "junit": Document("junit", "render_junit"),
    "github": Document("report", "render_check_github"),
}
"""Of a `Report`."""
CHECK_FORMATS = ("table", *CHECK_DOCUMENTS)
