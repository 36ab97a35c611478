"""Container runtimes: the table of them, `RUNTIMES`; each is a class (`runtime.Runtime`) in a module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gpubind.errors import UsageError, one_of
from gpubind.frozen import NamedTuple

if TYPE_CHECKING:
    from gpubind.runtimes.runtime import Runtime

__all__ = [
    "BY_VARIABLES",
    "KEPT",
    "PLAN_FORMATS",
    "QUOTABLE",
    "RUNTIMES",
    "WRAPPED",
    "is_of_kind",
    "known_runtime",
    "runtime_of_format",
]


class Row(NamedTuple):
    """The facts of a runtime that are needed before its module is loaded."""

    module: str
    """Of this package. The record is called there as the runtime, in capitals, with `_` for `-`."""
    forms: tuple[str, ...] = ()
    """The endings of its formats, after its name: nothing, `-env`."""
    documents: tuple[str, ...] = ()
    """Its formats of another name."""


_ROWS = {
    "apptainer": Row("apptainer.singularity", ("", "-env")),
    "singularity": Row("apptainer.singularity", ("", "-env")),
    "bwrap": Row("bubblewrap.bwrap"),
    "podman": Row("engines.engines", ("",)),
    "docker": Row("engines.engines", ("",)),
    "ch-run": Row("charliecloud", ("",)),
    "proot": Row("proot", ("",)),
    "udocker": Row("udocker", ("",)),
    "systemd-nspawn": Row("nspawn", ("",)),
    "enroot": Row("enroot", ("",)),
    "crun": Row("bundles", documents=("oci",)),
    "runc": Row("bundles", documents=("oci",)),
}


class _Runtimes(Mapping[str, "Runtime"]):
    """The runtimes of *rows* by name; a module is loaded when one of its runtimes is asked for."""

    def __init__(self, rows: Mapping[str, Row]) -> None:
        self._rows = rows

    def __getitem__(self, name: str) -> Runtime:
        from importlib import import_module

        module = import_module(f"{__name__}.{self._rows[name].module}")
        record: Runtime = getattr(module, name.replace("-", "_").upper())
        return record

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


RUNTIMES: Mapping[str, Runtime] = _Runtimes(_ROWS)
"""All that `--backend` takes, in the order in which `--backend auto` looks for them."""
WRAPPED: Mapping[str, Runtime] = _Runtimes({**_ROWS, "nerdctl": Row("engines.engines")})
"""Those, and one that only `wrap` starts: gpubind does not read its store of images."""
KEPT = tuple(dict.fromkeys(document for row in _ROWS.values() for document in row.documents))
"""The formats that are documents, which outlive the command."""
PLAN_FORMATS = (
    *(
        name + form
        for form in dict.fromkeys(form for row in _ROWS.values() for form in row.forms)
        for name, row in _ROWS.items()
        if form in row.forms
    ),
    *KEPT,
)
"""The formats of `plan --format`."""
BY_VARIABLES = tuple(name for name, row in _ROWS.items() if "-env" in row.forms)
"""The runtimes that read options from variables, in the same order."""
QUOTABLE = tuple(name for name, row in _ROWS.items() if "" in row.forms)
"""The formats that are arguments, which a shell may need quoted."""


def known_runtime(name: str, *others: str) -> Runtime:
    """Return the runtime called *name*; the caller also takes *others*. Errors: `UsageError` (`unknown-backend`)."""
    if name not in RUNTIMES:
        from gpubind.runtimes.cmdline.programs import PASTED

        hint = one_of((*RUNTIMES, *others), name)
        if name in PASTED:
            hint = f"docs/paste.md says what to paste for {name}"
        raise UsageError("unknown-backend", f"unknown runtime `{name}`", hint=hint)
    return RUNTIMES[name]


def runtime_of_format(chosen: str) -> Runtime:
    """Return the runtime that the format *chosen*, one of `PLAN_FORMATS`, is of: the first of several."""
    return RUNTIMES[next(name for name, row in _ROWS.items() if chosen in _formats(name, row))]


def is_of_kind(name: str, chosen: str) -> bool:
    """Return whether the format *chosen* is one for the runtime *name*, or for another of its kind: Apptainer may be
    called `singularity`.
    """
    return any(row.module == _ROWS[name].module for other, row in _ROWS.items() if chosen in _formats(other, row))


def _formats(name: str, row: Row) -> tuple[str, ...]:
    return (*(name + form for form in row.forms), *row.documents)
