"""The commands as typer builds them, with help of our own: its modules are loaded where it is asked for."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command of gpubind."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of this command."""
        from gpubind.cli.help import page_of, render_page
        from gpubind.cli.output import help_width

        formatter.write(render_page(page_of(self, ctx), help_width()))


class Group(TyperGroup):
    """gpubind itself."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of gpubind: its commands."""
        from gpubind.cli.help import overview_of, render_page
        from gpubind.cli.output import help_width

        formatter.write(render_page(overview_of(self, ctx), help_width()))
