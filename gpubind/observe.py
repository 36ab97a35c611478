"""What the rest of gpubind tells the recorder, if one is at work: what is printed, and what no trace can sign."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Optional, Union

if TYPE_CHECKING:
    from typing import Protocol

    class EnvironmentListener(Protocol):
        """Who is told which variables are asked for: `gpubind.memo.trace.Trace`."""

        def variable(self, name: str) -> None: ...
        def variables(self) -> None: ...

    class Listener(EnvironmentListener, Protocol):
        """Who is told everything: `gpubind.memo.recorder.Recorder`."""

        printed: list[Union[str, bytes]]
        verbose: bool
        why: str
        command: Optional[tuple[str, ...]]
        looks_at_program: bool
        become: Optional[tuple[str, tuple[str, ...], Mapping[str, str]]]

        def refuse(self, why: str) -> None: ...
        def opened(self, path: str) -> None: ...
        def program(self, path: str) -> None: ...
        def own_locale(self) -> bool: ...
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


def reads(path: str) -> None:
    """The file *path* is about to be read by no function that the recorder stands for."""
    if recorder is not None:
        recorder.opened(os.path.realpath(path))


def asked_program(path: str) -> None:
    """The program *path* was asked for its version, which it has in itself."""
    if recorder is not None:
        recorder.program(path)


def why_not_served() -> Optional[str]:
    """Return why no memo has answered, for a user who wants to know: the answer then tells of itself next time, too."""
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


class AskedEnviron(MutableMapping[str, str]):
    """The caller's environment, which tells what is asked of it. A copy of it tells the same.

    What a copy is to be without, or has more, is no question but part of an answer.
    """

    def __init__(
        self, values: Mapping[str, str], told: EnvironmentListener, changed: frozenset[str] = frozenset()
    ) -> None:
        self._values = dict(values)
        self._told = told
        self.changed = changed
        """The names that are no longer the caller's own."""

    def __getitem__(self, name: str) -> str:
        if name not in self.changed:
            self._told.variable(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        self._told.variables()
        return iter([*self._values])

    def __len__(self) -> int:
        self._told.variables()
        return len(self._values)

    def __setitem__(self, name: str, value: str) -> None:
        self.changed |= {name}
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        self.changed |= {name}
        self._values.pop(name, None)

    def copy(self) -> AskedEnviron:
        return AskedEnviron(self._values, self._told, self.changed)

    def untold(self) -> dict[str, str]:
        """Return all of it, without telling."""
        return dict(self._values)


def changed(
    environ: Mapping[str, str], *, unset: Collection[str] = (), values: Mapping[str, str] = MappingProxyType({})
) -> Mapping[str, str]:
    """*environ* without the names in *unset*, and with *values*. What goes on as it is has not been asked for."""
    if not isinstance(environ, AskedEnviron):
        return {**{name: value for name, value in environ.items() if name not in unset}, **values}
    made = environ.copy()
    for name in unset:
        del made[name]
    for name, value in values.items():
        made[name] = value
    return made
