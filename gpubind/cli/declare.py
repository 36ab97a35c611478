"""How commands declare what they take. `cli/quick.py` reads plain command lines by it; `cli/app.py` gives it to typer.

typer takes longer to load than a plan takes to make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Optional, Union

Kind = Literal["flag", "value", "list"]
Origin = Literal["line", "variable", "settings", "default"]
"""Where a value comes from: the command line, a GPUBIND_* variable, a configuration file, the option's own default."""


class Option:
    """An option: its names (the parameter's own if there is none), and what typer is told of it."""

    def __init__(
        self,
        *names: str,
        metavar: Optional[str] = None,
        envvar: Optional[str] = None,
        help: Optional[str] = None,  # noqa: A002 - as typer calls it
        autocompletion: Optional[Callable[..., Any]] = None,
        count: bool = False,
    ) -> None:
        self.names = names
        self.count = count
        self.metavar = metavar
        self.envvar = envvar
        self.help = help
        self.autocompletion = autocompletion


class Argument:
    """A word that a command takes by its place."""

    def __init__(
        self,
        *,
        metavar: str,
        help: str,  # noqa: A002 - as typer calls it
        autocompletion: Optional[Callable[..., Any]] = None,
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.autocompletion = autocompletion


class Parameter(NamedTuple):
    """A parameter of a command's function."""

    name: str
    type: Any
    default: Any
    """Ellipsis where a value must be given."""
    says: Union[Option, Argument]

    @property
    def kind(self) -> Kind:
        """What it takes: nothing, a value, or values."""
        if self.type in (bool, int):
            return "flag"
        return "value" if self.type in (str, Optional[str]) else "list"

    @property
    def spellings(self) -> dict[str, bool]:
        """Each name of the option, and what it says where the option is a flag."""
        if not isinstance(self.says, Option):
            return {}
        names = self.says.names or (f"--{self.name.replace('_', '-')}",)
        spelled = dict.fromkeys(names, True)
        if self.kind == "flag" and not self.says.names:
            spelled[f"--no-{self.name.replace('_', '-')}"] = False
        return spelled


class Subcommand(NamedTuple):
    """A command of gpubind."""

    name: str
    run: Callable[[dict[str, Any], Mapping[str, Origin]], None]
    """Do its work with values by the names of its parameters, and by the names of options where each comes from."""
    parameters: tuple[Parameter, ...]
    help: str
    ends_options: bool = False
    """Whether its first argument ends the options: what follows belongs to another program."""


def command(work: Callable[..., None]) -> Subcommand:
    """Return *work* as a command of the same name."""
    return Subcommand(work.__name__, lambda values, _: work(**values), parameters_of(work), work.__doc__ or "")


def parameters_of(work: Callable[..., None]) -> tuple[Parameter, ...]:
    """Return the parameters of the function *work*, but for one that is called `options`."""
    code = work.__code__
    names = code.co_varnames[: code.co_argcount]
    given = work.__defaults__ or ()
    annotations = {name: work.__annotations__[name] for name in names if name != "options"}
    return parameters(annotations, dict(zip(names[len(names) - len(given) :], given)))


def parameters(annotations: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Return the parameters that *annotations* declare, each `Annotated` with an `Option` or an `Argument`."""
    return tuple(
        Parameter(name, kind.__origin__, defaults.get(name, ...), kind.__metadata__[0])
        for name, kind in annotations.items()
    )
