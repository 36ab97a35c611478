"""An image in a directory: a root file system, or a sandbox of Apptainer's or SingularityCE's."""

from __future__ import annotations

import os
import re
from typing import Literal, NamedTuple, Optional

from gpubind.errors import HostReadError
from gpubind.formats.elf import ElfIdent
from gpubind.ldso.fit import newest
from gpubind.ldso.loader import Loader
from gpubind.model import ImageFacts, Missing
from gpubind.tree import LiveTree, Tree, glob

ENVIRONMENT = "/.singularity.d/env"
VARIABLES = ("LD_LIBRARY_PATH", "PATH")
SHELLS = ("/bin/sh", "/usr/bin/env", "/bin/busybox")

_ASSIGNMENT = re.compile(
    r"^\s*(?:export\s+)?(LD_LIBRARY_PATH|PATH)="
    # "${NAME:-"/value"}": how builders write a value that the user may override.
    r"(?:\"?\$\{\w+:-\"?([^\"}]*)\"?\}\"?|\"([^\"`]*)\"|'([^']*)'|([^\s\"'`;$]*))\s*;?\s*$"
)


class Image(NamedTuple):
    """An open image."""

    tree: Tree
    loader: Loader
    facts: ImageFacts


def open_image(reference: str) -> Image:
    """The image that *reference* names: a directory.

    Errors: `HostReadError` (code `no-image`) if it is none.
    """
    if not os.path.isdir(reference):
        why = "it is no directory" if os.path.lexists(reference) else "it does not exist"
        hint = "only images in a directory can be looked at: `apptainer build --sandbox DIR IMAGE` makes one"
        raise HostReadError("no-image", "the image cannot be read", where=reference, why=why, hint=hint)
    return read_image(LiveTree(reference), reference)


def read_image(tree: Tree, label: str) -> Image:
    """The facts of the image in *tree*."""
    loader = Loader(tree)
    family, version, arch = _libc(tree, loader)
    loader.arch = arch
    libstdcxx = loader.facts("libstdc++.so.6")
    facts = ImageFacts(
        kind="directory",
        label=label,
        arch=arch,
        libc_family=family,
        libc_version=version,
        libstdcxx=newest(libstdcxx.version_definitions, "GLIBCXX") if libstdcxx else None,
        loader_directories=loader.directories,
        singularity=not isinstance(tree.list(ENVIRONMENT), Missing),
        env=_environment(tree),
    )
    return Image(tree, loader, facts)


def _libc(tree: Tree, loader: Loader) -> tuple[Literal["glibc", "musl", "none"], Optional[str], Optional[str]]:
    """The C library of an image: family, version, architecture."""
    facts = loader.facts("libc.so.6")
    if facts is not None and (version := newest(facts.version_definitions, "GLIBC")):
        return "glibc", version, facts.ident.arch
    for path in glob(tree, "/lib/ld-musl-*.so.1"):
        ident = tree.ident(path)
        return "musl", None, ident.arch if isinstance(ident, ElfIdent) else None
    for shell in SHELLS:
        ident = tree.ident(shell)
        if isinstance(ident, ElfIdent):
            return "none", None, ident.arch
    return "none", None, None


def _environment(tree: Tree) -> dict[str, str]:
    """What the image's environment files set, of `VARIABLES`: plain assignments, read and never run; the last wins.

    90-environment.sh and the Docker files before it are the image's own; 99-base.sh and what starts with 9[5-9] is
    Singularity's.
    """
    env: dict[str, str] = {}
    names = tree.list(ENVIRONMENT)
    for name in () if isinstance(names, Missing) else names:
        if not name.endswith(".sh") or name >= "91":
            continue
        text = tree.read_text(f"{ENVIRONMENT}/{name}")
        for line in () if isinstance(text, Missing) else text.split("\n"):
            match = _ASSIGNMENT.match(line)
            if match:
                value = next(group for group in match.groups()[1:] if group is not None)
                env[match.group(1)] = value
    return dict(sorted(env.items()))
