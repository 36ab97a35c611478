"""Documents: a plan or the outcome of a check as text, by `Document.render`; runtimes render arguments themselves.

To add one: a module here with its renderer, and its row in PLAN_DOCUMENTS, LASTING or CHECK_DOCUMENTS.
"""

from __future__ import annotations

from typing import Any, Literal

from gpubind.frozen import NamedTuple


class Document(NamedTuple):
    """A renderer, by module and name: the module is loaded when the document is requested."""

    module: str
    function: str
    of_one: bool = False
    """Whether it is the form of one check: several have no place in it."""

    def render(self, *values: Any, **options: Any) -> str:
        """Return the document as text."""
        from importlib import import_module

        text: str = getattr(import_module(f"gpubind.documents.{self.module}"), self.function)(*values, **options)
        return text


class Lasting(NamedTuple):
    """A persistent document: it provides a plan to containers that gpubind does not start."""

    document: Document
    says: Literal["mounts", "variables"]
    """`mounts`: files and nodes, for a runtime without search paths; its renderer takes the plan and the places of
    generated files. `variables`: the environment of Apptainer or SingularityCE; its renderer takes a `Printed` and the
    caller's environment."""
    is_kept: bool = True
    """Set if it outlives the command: then it may name no private and no temporary file."""


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
    "lmod": Lasting(Document("modules", "render_lmod"), "variables"),
    "tcl": Lasting(Document("modules", "render_tcl"), "variables"),
    "taskprolog": Lasting(Document("modules", "render_taskprolog"), "variables", is_kept=False),
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
    "markdown": Document("check.markdown", "render_markdown"),
    "slurm": Document("check.slurm", "render_slurm", of_one=True),
    "prometheus": Document("check.prometheus", "render_prometheus", of_one=True),
}
"""Of a `Report`."""
CHECK_FORMATS = tuple(CHECK_DOCUMENTS)
