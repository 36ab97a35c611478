"""The table of container runtimes, `RUNTIMES`. Each is an instance of a subclass of `runtime.Runtime`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpubind.errors import UsageError, suggest_known
from gpubind.frozen import NamedTuple

if TYPE_CHECKING:
    from gpubind.runtimes.cmdline.programs import RuntimeProgram
    from gpubind.runtimes.runtime import Runtime


class RuntimeEntry(NamedTuple):
    """The facts of a runtime that are needed before its module is loaded."""

    module: str
    """A module of this package. Its constant for the runtime has its name, in capitals and with `_` for `-`."""
    forms: tuple[str, ...] = ()
    """The suffixes of its formats whose names begin with the runtime's name: empty, or `-env`."""
    documents: tuple[str, ...] = ()
    """Its formats that do not begin with its name."""


_RUNTIMES_BY_NAME = {
    "apptainer": RuntimeEntry("apptainer.singularity", ("", "-env")),
    "singularity": RuntimeEntry("apptainer.singularity", ("", "-env")),
    "bwrap": RuntimeEntry("bubblewrap.bwrap"),
    "podman": RuntimeEntry("engines.engines", ("",)),
    "docker": RuntimeEntry("engines.engines", ("",)),
    "ch-run": RuntimeEntry("charliecloud", ("",)),
    "proot": RuntimeEntry("proot", ("",)),
    "udocker": RuntimeEntry("udocker", ("",)),
    "systemd-nspawn": RuntimeEntry("nspawn", ("",)),
    "enroot": RuntimeEntry("enroot", ("",)),
    "crun": RuntimeEntry("bundles", documents=("oci",)),
    "runc": RuntimeEntry("bundles", documents=("oci",)),
}


class _Table(Mapping[str, Any]):
    """A mapping from the names in *rows* to constants of modules. A module is imported when its row is first used."""

    def __init__(self, rows: Mapping[str, RuntimeEntry]) -> None:
        self._rows = rows

    def __getitem__(self, name: str) -> Any:
        module = import_module(f"{__name__}.{self._rows[name].module}")
        return getattr(module, name.replace("-", "_").upper())

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class _Programs(_Table):
    def __getitem__(self, name: str) -> RuntimeProgram:
        record = super().__getitem__(name)
        return record.program if name in WRAPPED else record  # type: ignore[no-any-return]


RUNTIMES: Mapping[str, Runtime] = _Table(_RUNTIMES_BY_NAME)
"""The values of `--backend`, in the order in which `--backend auto` tries them."""
_WRAPPED_ROWS = {**_RUNTIMES_BY_NAME, "nerdctl": RuntimeEntry("engines.engines")}
WRAPPED: Mapping[str, Runtime] = _Table(_WRAPPED_ROWS)
"""`RUNTIMES`, and nerdctl, which only `wrap` starts, because gpubind does not read its image store."""
_OTHER_ROWS = dict.fromkeys(
    ("nvidia-docker", "docker-compose", "podman-compose", "buildah"), RuntimeEntry("engines.programs")
)
PROGRAMS: Mapping[str, RuntimeProgram] = _Programs({**_WRAPPED_ROWS, **_OTHER_ROWS})
"""The command lines that `wrap` parses: those of the runtimes in `WRAPPED`, and those of other programs."""
DOCUMENT_FORMATS = tuple(dict.fromkeys(document for row in _RUNTIMES_BY_NAME.values() for document in row.documents))
"""The formats that are documents, which outlive the command."""
ENV_RUNTIMES = tuple(name for name, row in _RUNTIMES_BY_NAME.items() if "-env" in row.forms)
"""The runtimes that read options from variables, in the order of `RUNTIMES`."""
ARGUMENT_FORMATS = tuple(name for name, row in _RUNTIMES_BY_NAME.items() if "" in row.forms)
"""The formats that are arguments, which a shell may need quoted."""
PLAN_FORMATS = (*ARGUMENT_FORMATS, *(f"{name}-env" for name in ENV_RUNTIMES), *DOCUMENT_FORMATS)
"""The formats of `plan --format`."""


def get_runtime(name: str, *others: str) -> Runtime:
    """Return the runtime called *name*. Errors: `UsageError` (`unknown-backend`), whose hint also has *others*."""
    if name not in RUNTIMES:
        from gpubind.runtimes.cmdline.programs import PASTE_ONLY

        hint = suggest_known((*RUNTIMES, *others), name)
        if name in PASTE_ONLY:
            hint = f"docs/paste.md says what to paste for {name}"
        raise UsageError("unknown-backend", f"unknown runtime `{name}`", hint=hint)
    return RUNTIMES[name]


def runtime_of_format(plan_format: str) -> Runtime:
    """Return the first runtime that has the format *plan_format*, one of `PLAN_FORMATS`."""
    return RUNTIMES[next(name for name, row in _RUNTIMES_BY_NAME.items() if plan_format in _formats(name, row))]


def format_fits_runtime(name: str, plan_format: str) -> bool:
    """Return whether *plan_format* is a format of runtime *name*, or of another runtime of its module.

    A program called `singularity` may be Apptainer, so both formats fit it.
    """
    module, rows = _RUNTIMES_BY_NAME[name].module, _RUNTIMES_BY_NAME.items()
    return any(row.module == module and plan_format in _formats(candidate, row) for candidate, row in rows)


def _formats(name: str, entry: RuntimeEntry) -> tuple[str, ...]:
    return (*(name + form for form in entry.forms), *entry.documents)
