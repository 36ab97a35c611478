"""The commands as typer builds them, with help of our own: its modules are loaded where it is asked for."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from gpubind.errors import UsageError, one_of


class OwnCommand(TyperCommand):
    """A command of gpubind."""

    def make_parser(self, ctx: Any) -> Any:
        """A parser that refuses an option with a value that is given twice: it would be the last, without a word."""
        parser: Any = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(args: list[str]) -> tuple[Any, Any, list[Any]]:
            values, rest, order = parse(args)
            said = [param for param in order if param.param_type_name == "option" and not param.multiple]
            for at, param in enumerate(said):
                if not param.is_flag and param in said[:at]:
                    raise _twice(param)
            return values, rest, order

        parser.parse_args = parse_once
        return parser

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of this command."""
        from gpubind.cli.help import page_of, render_page
        from gpubind.cli.output import help_width

        formatter.write(render_page(page_of(self, ctx), help_width()))


class OwnGroup(TyperGroup):
    """gpubind itself."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that *args* begin with. Errors: `UsageError` (code `unknown-command`)."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            hint = one_of(known, args[0])
            raise UsageError("unknown-command", f"unknown command `{args[0]}`", hint=hint)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of gpubind: its commands."""
        from gpubind.cli.help import overview_of, render_page
        from gpubind.cli.output import help_width

        formatter.write(render_page(overview_of(self, ctx), help_width()))


def _twice(param: Any) -> UsageError:
    name = max(param.opts, key=len)
    hint = "`check` takes --image and --host several times" if name in ("--image", "--host") else ""
    return UsageError("given-twice", f"{name} is given twice, and can have one value", hint=hint)
