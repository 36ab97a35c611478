"""Where is it? Candidates for a name in the order of truth, and the rules that pass over the wrong ones.

The ld cache first, then the directory that holds libcuda, then the known driver directories and --library-path. Of one
name the first acceptable file is taken; the rest get a Decision each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Optional, Union

from gpubind.formats.elf import COMPAT32, NotElf
from gpubind.formats.ldcache import LdCache
from gpubind.model import Missing, RootedPath
from gpubind.sources.layouts import SUBDIRECTORIES
from gpubind.sources.table import driver_version_of
from gpubind.tree import Tree

LD_CACHE = "ld.so.cache"
LD_CACHE_PATH = "/etc/ld.so.cache"


class Candidate(NamedTuple):
    """A file that may be what a name stands for."""

    name: str
    """`libcuda.so.1`."""
    path: RootedPath
    """As found: often a link."""
    found_by: str
    """`ld.so.cache`, or the directory that holds it."""


class Accepted(NamedTuple):
    """A candidate's file, after the rules."""

    path: RootedPath
    """The resolved real file."""
    arch: str
    version: Optional[str]
    """The driver version that its name carries."""


class Refused(NamedTuple):
    """Why a candidate's file is passed over."""

    rule: str
    detail: str
    path: Optional[RootedPath] = None
    """The resolved real file, if it got that far."""
    version: Optional[str] = None


class Search:
    """The search for libraries in one tree, for one architecture; *version* is V once it is known."""

    def __init__(self, tree: Tree, arch: str, cache: Optional[LdCache], directories: Iterable[str]) -> None:
        self.tree = tree
        self.arch = arch
        self.compat32 = COMPAT32.get(arch)
        self.cache = cache
        self.version: Optional[str] = None
        self.directories: tuple[RootedPath, ...] = ()
        self._accepted: dict[str, Union[Accepted, Refused]] = {}
        self.look_in(directories)

    def look_in(self, directories: Iterable[str], first: bool = False) -> None:
        """Add *directories* and their vdpau/ and gbm/, resolved; absent ones and those already known are left out."""
        added: list[RootedPath] = []
        for directory in directories:
            for sub in SUBDIRECTORIES:
                here = self.tree.resolve(f"{directory.rstrip('/')}/{sub}" if sub else directory)
                if isinstance(here, Missing) or here in added or (here in self.directories and not first):
                    continue
                found = self.tree.stat(here)
                if not isinstance(found, Missing) and found.kind == "dir":
                    added.append(here)
        rest = tuple(d for d in self.directories if d not in added)
        self.directories = (*added, *rest) if first else (*rest, *added)

    def from_cache(self, prefixes: Iterable[str]) -> Iterator[Candidate]:
        """Cache entries whose name starts with one of *prefixes*, in cache order, which is ld.so's."""
        if self.cache is not None:
            for entry in self.cache.matching(tuple(prefixes)):
                if entry.path.startswith("/"):
                    yield Candidate(entry.name, RootedPath(entry.path), LD_CACHE)

    def from_directories(self) -> Iterator[Candidate]:
        """Everything that is named like a library in the search directories, in their order."""
        for directory in self.directories:
            names = self.tree.list(directory)
            if isinstance(names, Missing):
                continue
            prefix = directory.rstrip("/") + "/"
            for name in names:
                if ".so" in name:
                    yield Candidate(name, RootedPath(prefix + name), directory)

    def judge(self, candidate: Candidate) -> Union[Accepted, Refused]:
        """What the rules say of *candidate*: is it there, a library, for this machine, of this driver?"""
        real = self.tree.resolve(candidate.path)
        if isinstance(real, Missing):
            if real.why == "absent":
                return Refused("dangling", f"{candidate.found_by} names it, but it leads nowhere")
            return Refused(f"path-{real.why}", str(real))
        answer = self._accepted.get(real)
        if answer is None:
            answer = self._accepted[real] = self._judge_file(real)
        if isinstance(answer, Accepted) and "/stubs/" in candidate.path:
            return _stub(real)
        return answer

    def _judge_file(self, real: RootedPath) -> Union[Accepted, Refused]:
        if "/stubs/" in real:
            return _stub(real)
        ident = self.tree.ident(real)
        if isinstance(ident, Missing):
            return Refused("unreadable", str(ident), real)
        if isinstance(ident, NotElf):
            return Refused(ident.rule, ident.detail, real)
        arch = ident.arch
        if arch not in (self.arch, self.compat32):
            return Refused("wrong-machine", f"{arch}, {ident.bits}-bit; this host is {self.arch}", real)
        name = real.rpartition("/")[2]
        version = driver_version_of(name)
        if version and self.version and version != self.version:
            return Refused("other-driver-version", f"its name carries {version}, the driver is {self.version}", real, version)
        if "/compat/" in real and name.startswith("libcuda.so"):
            return Refused("cuda-compat", "a forward-compatibility library, not the driver's", real, version)
        return Accepted(real, arch, version)


def _stub(real: RootedPath) -> Refused:
    return Refused("stub", "a link-time stand-in from the CUDA toolkit, not a driver", real)
