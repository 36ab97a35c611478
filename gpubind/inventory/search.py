"""Candidates for a name, in the order of their precedence, and the rules that reject the wrong ones.

Order: the libraries of a container around this process, the ld cache, the directory of libcuda, the known driver
directories, --library-path. The first acceptable file of a name is taken; each other one gets a Decision.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Optional, Union

from gpubind.files import Tree
from gpubind.files.ldconfig import LD_CACHE_PATH, matching, read_ldcache
from gpubind.formats.driver.names import STUB_PREFIXES, driver_version_of
from gpubind.formats.elf.elf import NotElf
from gpubind.formats.elf.ldcache import LdCache
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.model import Decision, Finding, Vendor, architecture, finding, layouts
from gpubind.model.files import Missing, ResolvedFile, RootedPath, Stat

LD_CACHE = "ld.so.cache"


class Candidate(NamedTuple):
    """A file that a name may mean."""

    name: str
    """`libcuda.so.1`."""
    path: RootedPath
    """The path as it was found, often that of a link."""
    found_by: str
    """`ld.so.cache`, or the directory that holds it."""


class Accepted(NamedTuple):
    """A candidate's file, after the rules."""

    path: RootedPath
    """The resolved real file."""
    stat: Stat
    arch: str
    version: Optional[str]
    """The driver version in its name."""


class Rejected(NamedTuple):
    """The reason why a candidate's file is rejected."""

    rule: str
    detail: str
    path: Optional[RootedPath] = None
    """The resolved real file, if it could be resolved."""


class Search:
    """The search for a driver's files on one host. If the driver's version is known, only that version is accepted."""

    def __init__(
        self,
        host: Host,
        cache: Optional[LdCache],
        directories: tuple[RootedPath, ...],
        version: Optional[str] = None,
        *,
        compat32: bool = False,
        first: tuple[RootedPath, ...] = (),
        beside: tuple[RootedPath, ...] = (),
        others: tuple[RootedPath, ...] = (),
        programs: tuple[str, ...] = layouts.BINARY_DIRECTORIES,
        is_windows: bool = False,
    ) -> None:
        """Prepare a search.

        *first*: directories that are searched before the ld cache. *others*: directories below which no file is
        accepted. *compat32*: accept 32-bit libraries. *programs* precede PATH. *beside*: the directories of libcuda,
        near which the driver's programs and data may be. *is_windows*: the driver is that of Windows, whose files carry
        no version.
        """
        self.host = host
        self.tree = host.driver
        self.arch = architecture(host.uname.machine).name
        self.arch32 = architecture(self.arch).compat32
        self.compat32 = compat32
        self.cache = cache
        self.preferred_directories = first
        self.directories = directories
        self.excluded_directories = others
        on_path = (directory for directory in host.variable("PATH").split(":") if directory.startswith("/"))
        self.libcuda_directories = beside
        standard = layouts.STANDARD_PROGRAMS
        places = (place for directory in beside for place in layouts.program_directories_of(directory))
        near = [place for place in places if place not in standard and self.tree.lenient.names(place)]
        self.programs = tuple(dict.fromkeys((*(standard if near else ()), *near, *programs, *on_path)))
        self.version = version
        self.is_windows = is_windows
        self._judged: dict[str, Union[Accepted, Rejected]] = {}

    @property
    def searched(self) -> tuple[str, ...]:
        """The searched places of libraries, in order."""
        return (*self.preferred_directories, *((LD_CACHE,) if self.cache else ()), *self.directories)

    @property
    def search_summary(self) -> tuple[str, ...]:
        """The searched places for an error message: the state of the ld cache, and the directories."""
        cache = "no usable ld.so.cache" if self.cache is None else f"{LD_CACHE} ({len(self.cache)} entries)"
        return tuple(dict.fromkeys((cache, *self.preferred_directories, *self.directories)))

    def candidates(self, stems: frozenset[str]) -> Iterator[Candidate]:
        """Yield the candidates for *stems* (`libcuda.so`), and in directories those whose names carry the version.

        The ld cache has the order of ld.so; names within a directory are sorted.
        """
        yield from self._candidates_in(self.preferred_directories, stems)
        if self.cache is not None:
            for entry in matching(self.cache, sorted(stems)):
                if entry.path.startswith("/"):
                    yield Candidate(entry.name, RootedPath(entry.path), LD_CACHE)
        yield from self._candidates_in(self.directories, stems)

    def _candidates_in(self, directories: Iterable[RootedPath], stems: frozenset[str]) -> Iterator[Candidate]:
        suffix = f".so.{self.version}" if self.version else None
        for directory in directories:
            prefix = directory.rstrip("/") + "/"
            for name in self.tree.names(directory):
                end = name.find(".so") + 3
                if end > 2 and (name[:end] in stems or (suffix and name.endswith(suffix))):
                    yield Candidate(name, RootedPath(prefix + name), directory)

    def judge(self, candidate: Candidate) -> Union[Accepted, Rejected]:
        """Return the file of *candidate* if it is a library for this machine and of this driver, else the reason."""
        if candidate.found_by != LD_CACHE and candidate.name.partition(".so")[2].strip(".0123456789"):
            detail = "no program opens a library by this name: behind `.so` there are only numbers"
            return Rejected("backup-name", detail)
        resolved = self.tree.find(candidate.path)
        if isinstance(resolved, Missing):
            if resolved.why == "absent":
                return Rejected("dangling", f"{candidate.found_by} names it, but it leads nowhere")
            return Rejected(f"path-{resolved.why}", str(resolved))
        real_path = resolved.path
        if (candidate.name.startswith(STUB_PREFIXES) or "/stubs/" in real_path) and self.tree.is_stub(real_path):
            return Rejected("stub", "a stand-in from the CUDA toolkit, for linking programs only; no driver", real_path)
        answer = self._judged.get(real_path)
        if answer is None:
            answer = self._judged[real_path] = self._judge_file(*resolved)
        return answer

    def _judge_file(self, real_path: RootedPath, stat: Stat) -> Union[Accepted, Rejected]:
        ident = self.tree.ident(real_path)
        if isinstance(ident, Missing):
            return Rejected("unreadable", str(ident), real_path)
        if isinstance(ident, NotElf):
            return Rejected(ident.rule, ident.detail, real_path)
        arch = ident.arch
        if arch not in (self.arch, self.arch32):
            return Rejected("wrong-machine", f"{arch}, {ident.bits}-bit; this host is {self.arch}", real_path)
        name = real_path.rpartition("/")[2]
        version = driver_version_of(name)
        # A compat library carries another version, but is not a second driver: check this before the version.
        if "/compat/" in real_path and name.startswith("libcuda.so"):
            return Rejected("cuda-compat", "a forward-compatibility library, not the driver's", real_path)
        if version and (self.version or self.is_windows) and version != self.version:
            driver = self.version or "that of Windows"
            return Rejected("other-driver-version", f"its name carries {version}, the driver is {driver}", real_path)
        release = self.other_release(real_path)
        if release:
            return Rejected("other-rocm", f"of {release}, and another ROCm serves", real_path)
        return Accepted(real_path, stat, arch, version)

    def other_release(self, real_path: RootedPath) -> Optional[RootedPath]:
        """Return the directory of another release, if *real_path* is in one."""
        return next((path for path in self.excluded_directories if real_path.startswith(path + "/")), None)


def read_cache(tree: Tree, vendor: Vendor) -> tuple[Optional[LdCache], list[Finding], list[Decision]]:
    """Return the ld cache of *tree*, or None with a Decision and, on systems that need a cache, a finding."""
    cache = read_ldcache(tree)
    if isinstance(cache, LdCache):
        return cache, [], []
    if isinstance(cache, Missing):
        code, why = "no-ldcache", str(cache)
    else:
        code, why = cache.code, f"{cache.where}: {cache.why}" if cache.where else cache.why
    rejected = Decision(vendor, LD_CACHE_PATH, "rejected", code, "search", path=LD_CACHE_PATH, detail=why)
    if isinstance(cache, Missing) and cache.why == "absent" and os_release_id(tree) in layouts.SYSTEMS_WITHOUT_LD_CACHE:
        return None, [], [rejected]
    where, ldconfig = tree.root.rstrip("/") + LD_CACHE_PATH, ldconfig_command(tree.root)
    unusable = finding(code, subject=LD_CACHE_PATH, vendor=vendor, where=where, why=why, ldconfig=ldconfig)
    return None, [unusable], [rejected]


_ID = r"(?m)^ID=[\"']?([a-z0-9._-]+)"


def os_release_id(tree: Tree) -> str:
    """Return the system's ID in os-release(5), `debian`; empty if it has none."""
    match = re.search(_ID, tree.lenient.text("/etc/os-release") or "")
    return "" if match is None else match.group(1)


def ldconfig_command(root: str) -> str:
    """Return the command that recreates the ld cache of *root*."""
    from shlex import quote  # few hosts need it

    return "ldconfig" if root == "/" else f"ldconfig -r {quote(root)}"


def existing_directories(
    tree: Tree, directories: Iterable[str], below: tuple[str, ...] = layouts.SUBDIRECTORIES
) -> tuple[RootedPath, ...]:
    """Return those of *directories* that exist, and the existing ones of the subdirectories *below* each. All are
    resolved.

    Use a lenient *tree* for known directories: an older record does not cover those of later versions.
    """
    existing = (directory.rstrip("/") for directory in directories if tree.has(directory))
    places = (tree.find(f"{directory}/{sub}".rstrip("/") or "/") for directory in existing for sub in below)
    return tuple(dict.fromkeys(at.path for at in places if isinstance(at, ResolvedFile) and at.stat.kind == "dir"))
