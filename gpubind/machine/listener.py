"""Reports of the rest of gpubind to the recorder, if one is at work: what is printed, and what no trace can sign."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any, Optional, Union

recorder: Any = None
"""The `gpubind.memo.recorder.Recorder` of this command's questions; None if there is none."""


def wrote(text: Union[str, bytes]) -> None:
    """Report that *text* was written: bytes to standard output, or a line to standard error."""
    if recorder is not None:
        recorder.printed.append(text)


def cannot_sign(why: str) -> None:
    """Report that the answer cannot be kept: it depends on what no signature covers, or the command has effects."""
    if recorder is not None:
        recorder.refuse(why)


def noted(kind: str, question: Any, answer: Any) -> None:
    """Report the *answer* to a *question* of that *kind*, which no recorded function has asked."""
    if recorder is not None:
        recorder.note(kind, question, answer)


def asked_program(path: str) -> None:
    """Report that the program *path* was asked for its version."""
    if recorder is not None:
        recorder.program(path)


def printed_by(
    program: str, words: tuple[str, ...], passed: tuple[str, ...], added: tuple[tuple[str, str], ...], text: bytes
) -> None:
    """Report that *program* printed *text* for *words*, and would print the same again until something changes.

    It got the caller's variables *passed*, and those *added*.
    """
    if recorder is not None:
        recorder.output((program, words, passed, added), text)


def why_not_served() -> Optional[str]:
    """Return why no memo has answered; the next answer from the memo then says that it is one."""
    if recorder is None:
        return None
    recorder.verbose = True
    why: str = recorder.why
    return why


def has_command(command: tuple[str, ...], *, is_looked_at: bool) -> None:
    """Report that the line ends with *command*, for the container; its first word matters if *is_looked_at*."""
    if recorder is not None:
        recorder.command, recorder.looks_at_program = command, is_looked_at


def becomes(path: str, argv: tuple[str, ...], environ: Mapping[str, str]) -> None:
    """Report that the process is about to become the program *path*, and keep the answer."""
    if recorder is not None:
        recorder.become = (path, argv, environ)
        recorder.finish(0)


class AskedEnviron(MutableMapping[str, str]):
    """The caller's environment, which reports what is asked of it. A copy reports the same.

    What is removed from a copy or added to it is part of an answer, and is not reported.
    """

    def __init__(self, values: Mapping[str, str], listener: Any, changed: frozenset[str] = frozenset()) -> None:
        self._values = dict(values)
        self._listener = listener
        """The `gpubind.memo.trace.Trace` that hears it."""
        self.changed = changed
        """The names whose values are not the caller's."""

    def __getitem__(self, name: str) -> str:
        if name not in self.changed:
            self._listener.variable(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        self._listener.variables()
        return iter([*self._values])

    def __len__(self) -> int:
        self._listener.variables()
        return len(self._values)

    def __setitem__(self, name: str, value: str) -> None:
        self.changed |= {name}
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        self.changed |= {name}
        self._values.pop(name, None)

    def copy(self) -> AskedEnviron:
        return AskedEnviron(self._values, self._listener, self.changed)

    def plain(self) -> dict[str, str]:
        """Return all of it, without a report."""
        return dict(self._values)


def changed(
    environ: Mapping[str, str], *, unset: Collection[str] = (), values: Mapping[str, str] = MappingProxyType({})
) -> Mapping[str, str]:
    """Return *environ* without the names in *unset*, and with *values*. The others are not asked for."""
    if not isinstance(environ, AskedEnviron):
        return {**{name: value for name, value in environ.items() if name not in unset}, **values}
    made = environ.copy()
    for name in unset:
        del made[name]
    for name, value in values.items():
        made[name] = value
    return made
