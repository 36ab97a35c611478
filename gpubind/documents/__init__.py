"""A plan, or the outcome of a check, as a document: everything that is not a runtime's words.

To add one: a module here with its renderer, and its row in PLAN_DOCUMENTS, LASTING or CHECK_DOCUMENTS.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple


class Document(NamedTuple):
    """A renderer, by its place: the module is loaded only when somebody asks for the document."""

    module: str
    function: str

    def render(self, *values: Any, **options: Any) -> str:
        """Return the document as text, by the renderer."""
        from importlib import import_module

        text: str = getattr(import_module(f"gpubind.documents.{self.module}"), self.function)(*values, **options)
        return text


class Lasting(NamedTuple):
    """A document that somebody reads later: it brings a plan into containers that gpubind does not start."""

    document: Document
    says: Literal["mounts", "variables"]
    """`mounts`: files and nodes, for a runtime that is told no search path; its renderer takes the plan and where
    generated files are. `variables`: what Apptainer or SingularityCE reads from its caller's environment; its renderer
    takes a `Printed` and the caller's environment."""
    is_kept: bool = True
    """Whether it outlives the command: then it may point to nothing that is somebody's own, or that is cleaned up."""


PLAN_DOCUMENTS = {
    "tsv": Document("text", "render_tsv"),
    "json": Document("text", "render_json"),
    "paths": Document("text", "render_paths"),
}
"""Of a `Plan` and *verbose*: whether to show also what was left out."""

LASTING = {
    "cdi": Lasting(Document("mounts.cdi", "render_cdi"), "mounts"),
    "compose": Lasting(Document("mounts.compose", "render_compose"), "mounts"),
    "kubernetes": Lasting(Document("mounts.kubernetes", "render_kubernetes"), "mounts"),
    "lmod": Lasting(Document("modules.modules", "render_lmod"), "variables"),
    "tcl": Lasting(Document("modules.modules", "render_tcl"), "variables"),
    "taskprolog": Lasting(Document("modules.taskprolog", "render_taskprolog"), "variables", is_kept=False),
}
"""Each has its own layout, and is planned for in `gpubind/launch/render.py`."""

FORMATS = ("table", *PLAN_DOCUMENTS, *LASTING)
"""The table is for people, in tables.py."""

CHECK_DOCUMENTS = {
    "text": Document("check.text", "render_check_text"),
    "tsv": Document("check.report", "render_check_tsv"),
    "json": Document("check.report", "render_check_json"),
    "junit": Document("check.junit", "render_junit"),
    "github": Document("check.report", "render_check_github"),
}
"""Of a `Report`."""
CHECK_FORMATS = tuple(CHECK_DOCUMENTS)
