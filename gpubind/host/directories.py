"""Find the gpubind files of a user or a site on this machine, and the paths that root's command ignores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Literal, Optional

from gpubind.host.base import LIST_FILES, ROCM_PATH, ListFile, Untrusted
from gpubind.machine import system
from gpubind.machine.answers import exists, inspection_error
from gpubind.machine.regular import read_if_there
from gpubind.machine.trust import acts_as_root, unreadable_by_others, writable_by_others

SITE_DIRECTORY = "/etc/gpubind"
LIST_LIMIT = 1 << 20


def xdg_directory(environ: Mapping[str, str], variable: str, below_home: str) -> str:
    """Return gpubind's directory below `$XDG_...`, else below the home; empty if neither variable is set.

    Source: XDG Base Directory Specification; relative values are ignored.
    """
    base = environ.get(variable, "")
    if not base.startswith("/"):
        home = environ.get("HOME", "")
        base = f"{home}/{below_home}" if home.startswith("/") else ""
    return f"{base}/gpubind" if base else ""


def list_file_paths(name: str, environ: Optional[Mapping[str, str]] = None) -> tuple[tuple[str, str], ...]:
    """Return the paths of the user's and the site's list file *name*, with their labels."""
    places = [(f"{SITE_DIRECTORY}/{name}", f"{SITE_DIRECTORY}/{name}")]
    users = xdg_directory(system.environ() if environ is None else environ, "XDG_CONFIG_HOME", ".config")
    if users:
        places.insert(0, (f"{users}/{name}", f"$XDG_CONFIG_HOME/gpubind/{name}"))
    return tuple(places)


PATH_VARIABLES = {
    "GPUBIND_ROOT": False,
    "GPUBIND_DEV_ROOT": False,
    "GPUBIND_LIST": False,
    "GPUBIND_LIBRARY_PATH": True,
    "GPUBIND_CDI_DIR": True,
    ROCM_PATH: True,
}
"""The variables that name inputs of a plan, with whether their paths are inside the host's roots."""
_LISTS = ("GPUBIND_LIBRARY_PATH", "GPUBIND_CDI_DIR")
"""The variables with several paths, separated by white space."""


def untrusted_variables(environ: Mapping[str, str], *roots: str) -> Iterator[Untrusted]:
    """Yield the paths in `PATH_VARIABLES` that a command of root ignores. *roots*: the driver root and the dev root.

    With `sudo -E` and `env_keep`, a command of root gets its caller's variables. A file that they name is used only if
    others cannot change it, and all can read it, because the answer quotes it.
    """
    values = {name: environ.get(name, "") for name in PATH_VARIABLES}
    paths = [(n, path) for n, value in values.items() for path in (value.split() if n in _LISTS else [value]) if path]
    if not paths or not acts_as_root():
        return
    for name, path in paths:
        places = dict.fromkeys(("", *(root.rstrip("/") for root in roots))) if PATH_VARIABLES[name] else ("",)
        ignored = (distrusted(name, path, place) for place in places)
        yield from islice(filter(None, ignored), 1)


def distrusted(variable: str, path: str, root: str) -> Optional[Untrusted]:
    """Return why root's command ignores *path* below *root*, named by *variable*; None if it does not."""
    root = root.rstrip("/")
    changed = writable_by_others(_absolute(path), root, within=True)
    hidden = unreadable_by_others(_absolute(path), root)
    if not changed and not hidden:
        return None
    return Untrusted("variable", path, changed or hidden or "", variable, is_secret=changed is None)


def untrusted(
    environ: Mapping[str, str], roots: Iterable[str], below: Iterable[str], files: Iterable[str]
) -> Iterator[Untrusted]:
    """Yield the paths in HOME, XDG_*, TMPDIR and PATH that a command of root ignores, because others could change them.

    Then yield such paths that it uses because options name them: *roots*, the paths *below* them, and *files*.
    """
    if not acts_as_root():
        return
    configured = [path for name in ("config.toml", *LIST_FILES) for path, _ in list_file_paths(name, environ)]
    caches = (xdg_directory(environ, "XDG_CACHE_HOME", ".cache"), environ.get("TMPDIR", ""))
    programs = environ.get("PATH", "").split(":")
    roots = tuple(roots)
    named = (*roots, *(f"{root.rstrip('/')}{path}" for root in roots for path in below), *map(_absolute, files))
    kinds: dict[Literal["file", "cache", "programs", "named"], Iterable[str]]
    kinds = {"file": configured, "cache": caches, "programs": programs, "named": named}
    for kind, path in dict.fromkeys((kind, path) for kind, paths in kinds.items() for path in paths):
        part = writable_by_others(path) if path.startswith("/") and (exists(path) or kind == "cache") else None
        if part is not None:
            yield Untrusted(kind, path, part)


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"{system.current_directory()}/{path}"


def active_list_file(name: str, environ: Optional[Mapping[str, str]] = None) -> Optional[ListFile]:
    """Return the user's list file *name*, else the site's; None if neither may be used.

    Errors: `HostReadError` (code `unreadable-file`) for one that cannot be read, or is too large.
    """
    for path, label in list_file_paths(name, environ):
        try:
            data = read_if_there(path, LIST_LIMIT)
        except OSError as error:
            raise inspection_error(path, error, "a list file cannot be read") from error
        if data is not None:
            return ListFile(label, data, shipped=False)
    return None
