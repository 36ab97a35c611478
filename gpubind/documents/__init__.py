"""Documents: a plan or the outcome of a check as text, by `Renderer.render`; runtimes render arguments themselves.

To add one, write a module with its renderer, and a row in PLAN_DOCUMENTS, PERSISTENT_DOCUMENTS or CHECK_DOCUMENTS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from gpubind.errors import missing_package
from gpubind.frozen import NamedTuple

_REPORT = ("jinja2", "markupsafe")
"""The packages that the extra `report` installs."""


class Made(NamedTuple):
    """Where and when a page is made. The caller supplies it: documents read no clock and no machine."""

    host: str
    date: str
    """In UTC: `2026-11-26 13:05 UTC`."""


class Renderer(NamedTuple):
    """A renderer, by module and name: the module is loaded when the document is requested."""

    module: str
    function: str
    is_single: bool = False
    """Whether only one check can have this format."""
    is_page: bool = False
    """Whether it shows where and when it was made. Its renderer then takes a `Made` as `made`."""

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


class PersistentDocument(NamedTuple):
    """A persistent document: it provides a plan to containers that gpubind does not start."""

    document: Renderer
    content: Literal["mounts", "variables"]
    """`mounts`: files and nodes, for a runtime without search paths; the renderer takes the plan and the paths of
    its generated files. `variables`: the environment of Apptainer or SingularityCE; the renderer takes a
    `PreparedStart` and the caller's environment.
    """
    outlives_command: bool = True
    """Whether it is still used after the command has ended, and so may not name a private or temporary file."""


PLAN_DOCUMENTS = {
    "tsv": Renderer("text", "render_tsv"),
    "json": Renderer("text", "render_json"),
    "paths": Renderer("text", "render_paths"),
    "links": Renderer("links", "render_links"),
}
"""Documents that are rendered from a `Plan`; with *verbose*, they also show what was left out."""

PERSISTENT_DOCUMENTS = {
    "cdi": PersistentDocument(Renderer("mounts.cdi", "render_cdi"), "mounts"),
    "compose": PersistentDocument(Renderer("mounts.compose", "render_compose"), "mounts"),
    "kubernetes": PersistentDocument(Renderer("mounts.kubernetes", "render_kubernetes"), "mounts"),
    "lmod": PersistentDocument(Renderer("modules", "render_lmod"), "variables"),
    "tcl": PersistentDocument(Renderer("modules", "render_tcl"), "variables"),
    "taskprolog": PersistentDocument(Renderer("modules", "render_taskprolog"), "variables", outlives_command=False),
}
"""Persistent documents. Each has its own layout; `gpubind/api/render.py` makes the plans for them."""

ALLOW_NONE_FORMATS = ("cdi", "compose")
"""Formats that can describe a host without a GPU, so that the same command works on all nodes."""

FORMATS = ("table", *PLAN_DOCUMENTS, *PERSISTENT_DOCUMENTS)
"""The table is for people, in tables.py."""

CHECK_DOCUMENTS = {
    "text": Renderer("check.text", "render_check_text"),
    "tsv": Renderer("check.report", "render_check_tsv"),
    "json": Renderer("check.report", "render_check_json"),
    "junit": Renderer("check.junit", "render_junit"),
    "github": Renderer("check.report", "render_check_github"),
    "sarif": Renderer("check.sarif", "render_sarif"),
    "markdown": Renderer("check.markdown", "render_markdown"),
    "slurm": Renderer("check.slurm", "render_slurm", is_single=True),
    "prometheus": Renderer("check.prometheus", "render_prometheus", is_single=True),
    "html": Renderer("report.check", "render_check_html", is_page=True),
}
"""Documents that are rendered from a `Report`."""
MATRIX_DOCUMENTS = {
    "html": Renderer("report.matrix", "render_matrix_html", is_page=True),
    "sarif": Renderer("check.sarif", "render_sarif_of"),
}
"""Documents that are rendered from a sequence of `Report`s. Other formats put the single documents together."""
NEEDS_DOCUMENTS = {
    "tsv": Renderer("needs", "render_needs_tsv"),
    "json": Renderer("needs", "render_needs_json"),
    "markdown": Renderer("needs", "render_needs_markdown"),
}
"""Documents that are rendered from an `ImageNeeds` and the name of the image. tables.py renders the table for
people.
"""
DIFF_DOCUMENTS = {
    "text": Renderer("diff.text", "render_diff_text"),
    "json": Renderer("diff.text", "render_diff_json"),
    "markdown": Renderer("diff.markdown", "render_diff_markdown"),
    "html": Renderer("report.diff", "render_diff_html", is_page=True),
}
"""Documents that are rendered from a `Comparison` and a `Fold`."""
TREE_DOCUMENTS = {
    "text": Renderer("tree", "render_tree_text"),
    "json": Renderer("tree", "render_tree_json"),
    "dot": Renderer("tree", "render_tree_dot"),
}
"""Documents that are rendered from a `LinkageTree`."""
FLEET_DOCUMENTS = {"html": Renderer("report.fleet", "render_fleet_html", is_page=True)}
"""Documents that are rendered from a sequence of `NodeGroup`s, the action of the nodes, and a `Fold`."""
