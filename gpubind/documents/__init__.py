"""Documents: a plan or the outcome of a check as text, by `Document.render`; runtimes render arguments themselves.

To add one: a module here with its renderer, and its row in PLAN_DOCUMENTS, LASTING or CHECK_DOCUMENTS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from gpubind.errors import missing_package
from gpubind.frozen import NamedTuple

_REPORT = ("jinja2", "markupsafe")
"""The packages of the extra `report`."""


class Made(NamedTuple):
    """Where and when a page is made. The caller knows it: documents have no clock, and no machine."""

    host: str
    date: str
    """In UTC: `2026-11-26 13:05 UTC`."""


class Document(NamedTuple):
    """A renderer, by module and name: the module is loaded when the document is requested."""

    module: str
    function: str
    of_one: bool = False
    """Whether it is the form of one check: several have no place in it."""
    is_page: bool = False
    """Whether it shows where and when it was made: its renderer takes a `Made` by the name `made`."""

    def load(self) -> Callable[..., str]:
        """Return the renderer. Errors: `HostReadError` (code `missing-package`) where a package is not installed."""
        from importlib import import_module

        try:
            module = import_module(f"gpubind.documents.{self.module}")
        except ModuleNotFoundError as error:
            if error.name not in _REPORT:
                raise
            raise missing_package(error.name, "a page") from error
        renderer: Callable[..., str] = getattr(module, self.function)
        return renderer

    def render(self, *values: Any, **options: Any) -> str:
        """Return the document as text. Errors: as `load`."""
        return self.load()(*values, **options)


class Lasting(NamedTuple):
    """A persistent document: it provides a plan to containers that gpubind does not start."""

    document: Document
    says: Literal["mounts", "variables"]
    """`mounts`: files and nodes, for a runtime without search paths; its renderer takes the plan and the places of
    generated files. `variables`: the environment of Apptainer or SingularityCE; its renderer takes a `Prepared` and the
    caller's environment."""
    is_kept: bool = True
    """Set if it outlives the command: then it may name no private and no temporary file."""


PLAN_DOCUMENTS = {
    "tsv": Document("text", "render_tsv"),
    "json": Document("text", "render_json"),
    "paths": Document("text", "render_paths"),
    "links": Document("links", "render_links"),
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
"""Each has its own layout, and is planned for in `gpubind/api/render.py`."""

WITH_NONE = ("cdi", "compose")
"""Those that can be of a host without a GPU, so that one command serves all nodes."""

FORMATS = ("table", *PLAN_DOCUMENTS, *LASTING)
"""The table is for people, in tables.py."""

CHECK_DOCUMENTS = {
    "text": Document("check.text", "render_check_text"),
    "tsv": Document("check.report", "render_check_tsv"),
    "json": Document("check.report", "render_check_json"),
    "junit": Document("check.junit", "render_junit"),
    "github": Document("check.report", "render_check_github"),
    "sarif": Document("check.sarif", "render_sarif"),
    "markdown": Document("check.markdown", "render_markdown"),
    "slurm": Document("check.slurm", "render_slurm", of_one=True),
    "prometheus": Document("check.prometheus", "render_prometheus", of_one=True),
    "html": Document("report.check", "render_check_html", is_page=True),
}
"""Of a `Report`."""
SEVERAL_DOCUMENTS = {
    "html": Document("report.matrix", "render_matrix_html", is_page=True),
    "sarif": Document("check.sarif", "render_sarif_of"),
}
"""Of a sequence of `Report`s, where the form of several is not made of those of one."""
NEEDS_DOCUMENTS = {
    "tsv": Document("needs", "render_needs_tsv"),
    "json": Document("needs", "render_needs_json"),
    "markdown": Document("needs", "render_needs_markdown"),
}
"""Of an `ImageNeeds` and the name of the image; the table is for people."""
DIFF_DOCUMENTS = {
    "text": Document("diff.text", "render_diff_text"),
    "json": Document("diff.text", "render_diff_json"),
    "markdown": Document("diff.markdown", "render_diff_markdown"),
    "html": Document("report.diff", "render_diff_html", is_page=True),
}
"""Of a `Comparison`, and a function that writes several hosts as one set."""
TREE_DOCUMENTS = {
    "text": Document("tree", "render_tree_text"),
    "json": Document("tree", "render_tree_json"),
    "dot": Document("tree", "render_tree_dot"),
}
"""Of a `LinkageTree`."""
FLEET_DOCUMENTS = {"html": Document("report.fleet", "render_fleet_html", is_page=True)}
"""Of a sequence of `NodeGroup`s, what they were asked, and a function that writes several nodes as one set."""
