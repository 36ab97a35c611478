"""Find the directories from which a Python interpreter in a container imports.

Source: CPython `Modules/getpath.py` (prefixes, pyvenv.cfg), `Lib/site.py` (site-packages, the user's own, .pth files);
Debian's python3 (`dist-packages`, /usr/local and /usr).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from posixpath import basename, dirname, normpath
from typing import Optional

from gpubind.files import Tree
from gpubind.frozen import NamedTuple
from gpubind.loader.search import ContainerFile

PYTHON = re.compile(r"(?:python|pypy)(?:[23](?:\.([0-9]{1,3}))?t?)?")
_PTH_LIMIT = 64
"""The number of .pth files that are read in one directory, and of lines in each."""


class PythonPaths(NamedTuple):
    """The directories from which an interpreter imports."""

    interpreter: str
    """Its path in the container."""
    prefixes: tuple[str, ...]
    """sys.prefix, and the base prefix if its packages are used."""
    packages: tuple[str, ...]
    """The directories of sys.path that are not empty, in order."""


def is_python(file: ContainerFile) -> bool:
    """Return whether *file* is an interpreter of Python."""
    return any(PYTHON.fullmatch(basename(path)) for path in (file.path, file.resolved_path))


def find_python_paths(tree: Tree, file: ContainerFile, env: Mapping[str, str]) -> PythonPaths:
    """Return the directories from which the interpreter *file* imports, with the variables *env*.

    *tree*: the files of the container.
    """
    environment = _environment(tree, file.path)
    prefixes, own_only = environment if environment is not None else (_installed(file, env), False)
    version = _version(tree, file, prefixes)
    places = [place for place in env.get("PYTHONPATH", "").split(":") if place.startswith("/")]
    if version and not own_only and not env.get("PYTHONNOUSERSITE"):  # where `pip install --user` installs
        base = env.get("PYTHONUSERBASE") or (f"{env['HOME']}/.local" if env.get("HOME", "").startswith("/") else "")
        places += [f"{base}/lib/python{version}/site-packages"] if base.startswith("/") else []
    for prefix in prefixes:
        places += site_packages(tree, prefix, version)
    by_real_path: dict[object, str] = {}
    for place in map(normpath, places):
        if tree.names(place):
            by_real_path.setdefault(tree.resolve(place), place)  # lib64 of a virtual environment is a link to lib
    directories = dict.fromkeys(by_real_path.values())
    more = dict.fromkeys(path for place in directories for path in _named_by_pth(tree, place))
    return PythonPaths(file.path, prefixes, tuple({**directories, **more}))


def site_packages(tree: Tree, prefix: str, version: Optional[str] = None) -> Iterator[str]:
    """Yield the directories of packages in *prefix*, of one Python *version* or of all."""
    for library in ("lib", "lib64"):
        for name in tree.names(f"{prefix}/{library}"):
            if name.startswith("python3") and (version is None or name in ("python3", f"python{version}")):
                yield from (f"{prefix}/{library}/{name}/{kind}-packages" for kind in ("site", "dist"))


def _environment(tree: Tree, path: str) -> Optional[tuple[tuple[str, ...], bool]]:
    """Return the prefixes of a virtual environment, and whether only its own packages are used."""
    for directory in (dirname(dirname(path)), dirname(path)):
        text = tree.text(f"{directory}/pyvenv.cfg")
        if text is not None:
            lines = (line.partition("=") for line in text.splitlines())
            settings = {name.strip().lower(): value.strip() for name, _, value in lines}
            has_base = settings.get("include-system-site-packages", "").lower() == "true"
            home = settings.get("home", "") if has_base else ""
            return (directory, *_of_prefix(dirname(home) if home.startswith("/") else None)), not has_base
    return None


def _installed(file: ContainerFile, env: Mapping[str, str]) -> tuple[str, ...]:
    python_home = env.get("PYTHONHOME", "").split(":")[0]
    directories = map(dirname, (file.path, file.resolved_path))
    prefixes = [python_home] if python_home else [dirname(at) for at in directories if basename(at) == "bin"]
    return tuple(dict.fromkeys(more for prefix in prefixes for more in _of_prefix(prefix)))


def _of_prefix(prefix: Optional[str]) -> tuple[str, ...]:
    # A system's Python also has packages in /usr/local.
    return () if prefix is None else ("/usr/local", "/usr") if prefix in ("", "/", "/usr") else (prefix,)


def _version(tree: Tree, file: ContainerFile, prefixes: tuple[str, ...]) -> Optional[str]:
    """Return the version, `3.11`, in the interpreter's name, else in the name of its only directory of libraries."""
    match = PYTHON.fullmatch(basename(file.resolved_path))
    if match and match.group(1):
        return f"3.{match.group(1)}"
    names = (name for prefix in prefixes for name in tree.names(f"{prefix}/lib"))
    versions = {match.group(1) for name in names if (match := re.fullmatch(r"python(3\.[0-9]{1,3})t?", name))}
    return versions.pop() if len(versions) == 1 else None


def _named_by_pth(tree: Tree, packages: str) -> Iterator[str]:
    for name in [name for name in tree.names(packages) if name.endswith(".pth")][:_PTH_LIMIT]:
        for line in (tree.text(f"{packages}/{name}") or "").splitlines()[:_PTH_LIMIT]:
            if line and not line.startswith(("#", "import ", "import\t")):
                place = normpath(line if line.startswith("/") else f"{packages}/{line}")
                if tree.names(place):
                    yield place
