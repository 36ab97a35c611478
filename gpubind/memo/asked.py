"""What the rest of gpubind tells the recorder, if one is at work: what is printed, and what no trace can sign."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Optional, Union

from gpubind.memo.reading import ask_own_locale

if TYPE_CHECKING:
    from typing import Protocol

    class Listener(Protocol):
        """What is told: `gpubind.memo.trace.Recorder`."""

        printed: list[Union[str, bytes]]
        verbose: bool
        why: str
        command: Optional[tuple[str, ...]]
        looks_at_program: bool
        become: Optional[tuple[str, tuple[str, ...], Mapping[str, str]]]

        def refuse(self, why: str) -> None: ...
        def program(self, path: str) -> None: ...
        def own_locale(self) -> bool: ...
        def variable(self, name: str) -> None: ...
        def variables(self) -> None: ...
        def finish(self, status: int) -> None: ...


recorder: Optional[Listener] = None
"""What writes down this command's questions; None where nobody does."""


def wrote(text: Union[str, bytes]) -> None:
    """*text* was written: bytes to standard output, or a line to standard error."""
    if recorder is not None:
        recorder.printed.append(text)


def cannot_sign(why: str) -> None:
    """The answer depends on what no signature tells, or the command does more than to answer: it is not kept."""
    if recorder is not None:
        recorder.refuse(why)


def asked_program(path: str) -> None:
    """The program *path* was asked for its version, which it has in itself."""
    if recorder is not None:
        recorder.program(path)


def own_locale() -> bool:
    """Whether Python has set LC_CTYPE for itself (PEP 538), which no container is to inherit."""
    return ask_own_locale("") if recorder is None else recorder.own_locale()


def why_not_served() -> Optional[str]:
    """Why no memo has answered, for a user who wants to know: the answer then tells of itself next time, too."""
    if recorder is None:
        return None
    recorder.verbose = True
    return recorder.why


def has_command(command: tuple[str, ...], *, is_looked_at: bool) -> None:
    """The user's words end with *command*, for the container; the first word counts if *is_looked_at*."""
    if recorder is not None:
        recorder.command, recorder.looks_at_program = command, is_looked_at


def becomes(path: str, argv: tuple[str, ...], environ: Mapping[str, str]) -> None:
    """The process is about to be the program *path*: the last moment to keep the answer."""
    if recorder is not None:
        recorder.become = (path, argv, environ)
        recorder.finish(0)


class AskedEnviron(dict[str, str]):
    """The caller's environment, which tells what is asked of it. A copy of it tells the same.

    What a copy is to be without, or has more, is no question but part of an answer.
    """

    def __init__(self, values: Mapping[str, str], told: Listener) -> None:
        super().__init__(values)
        self._told = told
        self.changed: frozenset[str] = frozenset()
        """The names that are no longer the caller's own."""

    def _tell(self, name: object) -> None:
        if isinstance(name, str) and name not in self.changed:
            self._told.variable(name)

    def __getitem__(self, name: str) -> str:
        self._tell(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Optional[str] = None) -> Optional[str]:  # type: ignore[override]
        self._tell(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self._tell(name)
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self._told.variables()
        return super().__iter__()

    def keys(self) -> Collection[str]:  # type: ignore[override]
        return list(self)

    def items(self) -> Collection[tuple[str, str]]:  # type: ignore[override]
        return [(name, self[name]) for name in self]

    def values(self) -> Collection[str]:  # type: ignore[override]
        return [self[name] for name in self]

    def setdefault(self, name: str, default: str = "") -> str:
        if name not in self:
            self[name] = default
        return self[name]

    def __setitem__(self, name: str, value: str) -> None:
        self.changed |= {name}
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        self.changed |= {name}
        super().__delitem__(name)

    def copy(self) -> AskedEnviron:
        made = AskedEnviron({}, self._told)
        dict.update(made, self.untold())
        made.changed = self.changed
        return made

    def untold(self) -> dict[str, str]:
        """All of it, without telling."""
        return {name: dict.__getitem__(self, name) for name in dict.keys(self)}


def changed(
    environ: Mapping[str, str], *, unset: Collection[str] = (), values: Mapping[str, str] = MappingProxyType({})
) -> Mapping[str, str]:
    """*environ* without the names in *unset*, and with *values*. What goes on as it is has not been asked for."""
    if not isinstance(environ, AskedEnviron):
        return {**{name: value for name, value in environ.items() if name not in unset}, **values}
    made = environ.copy()
    made.changed |= frozenset(unset)
    for name in unset:
        dict.pop(made, name, None)
    for name, value in values.items():
        made[name] = value
    return made
