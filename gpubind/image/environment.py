"""Read the environment files of an image as Apptainer and SingularityCE do, without running them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubind.files import Tree
from gpubind.model import Missing

if TYPE_CHECKING:
    from gpubind.formats.text.shell import Exports

ENVIRONMENT_DIRECTORY = "/.singularity.d/env"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH that Apptainer and SingularityCE set before they read an image's own files."""
_SINGULARITY_FILES = ("01-base.sh", "94-appsbase.sh", "95-apps.sh", "99-base.sh", "99-runtimevars.sh")
"""Environment files of Singularity itself. 91-environment.sh is the image's: `%post` writes to it."""
DOCKER_ENVIRONMENT_SCRIPTS = ("10-docker.sh", "10-docker2singularity.sh")
SEARCH_PATHS = frozenset(("PATH", "LD_LIBRARY_PATH"))
FILES_LIMIT, BYTES_LIMIT = 64, 2 << 20
"""Limits of the files that are read, and of their total size in bytes; beyond these, all values are unknown."""


def read_environment(tree: Tree) -> Exports:
    """Return the variables of the image's own files, in Apptainer's order and with its repairs to PATH."""
    from gpubind.formats.text.shell import Exports, parse_exports

    exports = Exports({"PATH": None})
    files, bytes_left = 0, BYTES_LIMIT
    for name in tree.names(ENVIRONMENT_DIRECTORY):
        path = f"{ENVIRONMENT_DIRECTORY}/{name}"
        entry = tree.stat(path)
        if not name.endswith(".sh") or name in _SINGULARITY_FILES or isinstance(entry, Missing) or entry.kind != "file":
            continue
        if name == "90-environment.sh" and exports.env.get("PATH", "") is None:
            exports = exports.with_value("PATH", DEFAULT_PATH)
        files, bytes_left = files + 1, bytes_left - entry.size
        if files > FILES_LIMIT or bytes_left < 0:
            return exports.with_all_unknown()
        text = tree.read_text(path)
        exports = exports.with_all_unknown() if isinstance(text, Missing) else parse_exports(text, exports)
        search_path = exports.env.get("PATH")
        if name in DOCKER_ENVIRONMENT_SCRIPTS and search_path is not None:
            directories = search_path.split(":") if search_path else []
            more = (directory for directory in DEFAULT_PATH.split(":") if directory not in directories)
            exports = exports.with_value("PATH", ":".join([*directories, *more]))
    return exports


def select_variables(exports: Exports) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the exported variables of *exports*, and the names of those whose values are unknown.

    Singularity's own files export PATH and LD_LIBRARY_PATH, wherever they are set.
    """
    env = {
        name: value
        for name, value in exports.env.items()
        if value is not None and (name in exports.exported or name in SEARCH_PATHS)
    }
    if env.get("PATH") == DEFAULT_PATH:
        del env["PATH"]
    names = exports.unknown | (SEARCH_PATHS if exports.is_unknown else frozenset())
    return env, tuple(sorted(name for name in names if name not in exports.env))
