"""The commands as typer builds them, with help of our own: its modules are loaded where it is asked for."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand, TyperGroup

from gpubind.errors import UsageError, one_of


class OwnCommand(TyperCommand):
    """A command of gpubind."""

    def get_help_option(self, ctx: Any) -> Any:
        """--help, which ends as every command does where nobody reads what it prints."""
        return _written(super().get_help_option(ctx))

    def make_parser(self, ctx: Any) -> Any:
        """A parser that refuses an option with a value that is given twice: it would be the last, without a word."""
        parser: Any = super().make_parser(ctx)
        if ctx.resilient_parsing:  # a shell asks for completions
            return parser
        parse = parser.parse_args

        def parse_once(args: list[str]) -> tuple[Any, Any, list[Any]]:
            values, rest, order = parse(args)
            said = [param for param in order if param.param_type_name == "option" and not param.multiple]
            for at, param in enumerate(said):
                if not param.is_flag and not param.count and param in said[:at]:
                    raise _twice(param)
            return values, rest, order

        parser.parse_args = parse_once
        return parser

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """The options that begin with *incomplete*, each with the first sentence of its help: a shell shows a line.

        None in a command line for the container: those are another program's.
        """
        arguments = [param for param in self.get_params(ctx) if param.param_type_name == "argument"]
        if not ctx.allow_interspersed_args and any(ctx.params.get(param.name) for param in arguments):
            return []
        items = super().shell_complete(ctx, incomplete)
        for item in items:
            item.help = re.split(r"\.( |$)| \[|: ", item.help or "", maxsplit=1)[0]
        return items

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of this command."""
        from gpubind.cli.help import page_of, render_page
        from gpubind.cli.output import help_width

        formatter.write(render_page(page_of(self, ctx), help_width()))


class OwnGroup(TyperGroup):
    """gpubind itself."""

    def get_help_option(self, ctx: Any) -> Any:
        """As `OwnCommand.get_help_option`."""
        return _written(super().get_help_option(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that *args* begin with. Errors: `UsageError` (code `unknown-command`)."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            from gpubind.cli.meant import meant

            hint = meant(args).rstrip()
            unknown = args[1] if args[0] == "help" and len(args) > 1 and not hint else args[0]
            raise UsageError("unknown-command", f"unknown command `{unknown}`", hint=hint or one_of(known, unknown))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of gpubind: its commands."""
        from gpubind.cli.help import overview_of, render_page
        from gpubind.cli.output import help_width

        formatter.write(render_page(overview_of(self, ctx), help_width()))


def _written(option: Any) -> Any:
    """The *option* --help, written by `write_document`: typer says nothing of a standard output that is closed."""

    def show(ctx: Any, param: Any, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            from gpubind.cli.output import write_document

            write_document(f"{ctx.get_help()}\n", None)
            ctx.exit()

    if option is not None:
        option.callback = show
    return option


def _twice(param: Any) -> UsageError:
    name = max(param.opts, key=len)
    hint = "`check` takes --image and --host several times" if name in ("--image", "--host") else ""
    return UsageError("given-twice", f"{name} is given twice, and can have one value", hint=hint)
