"""The claims on programs and paths: which file each is."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Optional

from gpubind.errors import FormatError
from gpubind.files import Tree, glob
from gpubind.formats.driver.icd import parse_icd
from gpubind.formats.driver.liblist import library_stem
from gpubind.formats.driver.names import RUN_DIRECTORY, driver_version_of
from gpubind.formats.elf.elf import ElfIdent
from gpubind.inventory.claims import Answer, Claim, is_clean
from gpubind.inventory.liblist import NameTable, capability_of
from gpubind.inventory.search import Candidate, Search
from gpubind.model import Capability, ContainerPath, Decision, Found, Missing, RootedPath
from gpubind.model.layouts import SYSTEM_DIRECTORIES

SHARE, LOCAL_SHARE = "/usr/share/", "/usr/local/share/"


def find_program(search: Search, table: NameTable, claim: Claim) -> Answer:
    """Return the program that *claim* names, from the program directories, then PATH."""
    if "/" in claim.name:
        return claim.rejected("relative-path", "a relative path would depend on the current directory")
    tree = search.tree
    for directory in search.programs:
        found = tree.find(f"{directory.rstrip('/')}/{claim.name}")
        if isinstance(found, Missing) or found.stat.kind != "file":
            continue
        if claim.group == "rocm" and not isinstance(tree.ident(found.path), ElfIdent):
            # ROCm's scripts need Python and modules in their directory.
            detail = "a script, which needs the files beside it and an interpreter: it has to come with the image"
            return claim.decision("left-out", "script", detail, path=found.path, found_by=directory, step="name")
        capability = capability_of(table.section_of(claim), None)
        return program(search, claim, found, directory, capability)
    return claim.absent("in none of the program directories")


def program(search: Search, claim: Claim, found: Found, found_by: str, capability: Optional[Capability]) -> Answer:
    """Return *found* as the program that *claim* names, if it is for this machine; a script is for any."""
    ident = search.tree.ident(found.path)
    if isinstance(ident, ElfIdent) and ident.arch != search.arch:
        return claim.rejected("wrong-machine", f"{ident.arch}; this host is {search.arch}", found.path)
    file = claim.file(search.tree, found, kind="binary", found_by=found_by, capability=capability)
    return file._replace(names=(claim.name,), arch=search.arch)


def find_files(search: Search, table: NameTable, claim: Claim) -> list[Answer]:
    """Return the files that an absolute *claim* names: at their own path, or at the top of an extracted .run directory.

    A manifest in /usr/share may be in /usr/local/share on this host. Of a container, only Vulkan's loader would look
    there, so its place is /usr/share. Source: nvidia-container-toolkit `internal/discover/graphics.go` (XDG_DATA_DIRS).
    """
    if not is_clean(claim.name):
        why = "a path in a list is written without `.`, `..` and doubled or trailing slashes"
        return [claim.rejected("unclean-path", why, claim.name)]
    places: dict[str, str] = {path: path for path in glob(search.tree, claim.name)}
    if claim.name.startswith(SHARE) and claim.name.endswith(".json"):
        local = glob(search.tree.lenient, LOCAL_SHARE + claim.name[len(SHARE) :])
        moved = ((path, SHARE + path[len(LOCAL_SHARE) :]) for path in local)
        places.update((path, target) for path, target in moved if target not in places)
    if not places:
        known = (name for name in search.tree.names("/") if name in RUN_DIRECTORY)
        places = {f"/{name}": RUN_DIRECTORY[name] for name in known if fnmatchcase(RUN_DIRECTORY[name], claim.name)}
    if not places:
        return [claim.absent("nothing matches" if set(claim.name) & set("*?[") else "it is not there")]
    capability = capability_of(table.section_of(claim), None)
    return [
        _file(search, claim._replace(name=target, target=ContainerPath(target)), path, capability)
        for path, target in places.items()
    ]


def _file(search: Search, claim: Claim, path: str, capability: Optional[Capability]) -> Answer:
    """Return *path* as a file to be bound at the place that *claim* names."""
    found = search.tree.find(path)
    if isinstance(found, Missing):
        return claim.lost(found, path)
    carried = driver_version_of(path)
    if carried and search.version and carried != search.version:
        detail = f"its name carries {carried}, the driver is {search.version}"
        return claim.rejected("other-driver-version", detail, path)
    if found.stat.kind == "dir" and claim.name in SYSTEM_DIRECTORIES:
        return claim.rejected("system-directory", "binding it would hide the container's own", path)
    file = claim.bindable(search.tree, found, found_by=path, capability=capability)
    if isinstance(file, Decision):
        return file
    file = file._replace(version=carried)
    if file.kind != "file" or not path.endswith((".json", ".icd")):
        return file._replace(group=None)  # data is the host's in any case; manifests go with the libraries
    content = search.tree.read(found.path)
    if isinstance(content, Missing):
        return claim.rejected("unreadable", str(content), path)
    try:
        parse_icd(content)
    except FormatError as error:
        return claim.rejected("bad-icd", f"{error.where}: {error.why}", path)
    return file._replace(kind="manifest", content=content)


def library_candidates(tree: Tree, pattern: str) -> list[Candidate]:
    """Return the libraries that an absolute *pattern* names, each with the links in its directory that lead to it."""
    candidates: list[Candidate] = []
    if ".so" not in pattern or {"..", "."} & set(pattern.split("/")):
        return []
    for path in glob(tree, pattern):
        directory, _, name = path.rpartition("/")
        real = tree.resolve(path)
        names = [
            other for other in tree.names(directory or "/") if other != name and other.startswith(library_stem(name))
        ]
        beside = [(other, RootedPath(f"{directory}/{other}")) for other in names]
        same = [(other, place) for other, place in beside if tree.resolve(place) == real]
        candidates += [Candidate(other, place, directory or "/") for other, place in ((name, path), *same)]
    return candidates
