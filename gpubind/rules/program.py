"""Rules about the program that will run: is it in the container, and does its loader find everything it needs?

What execve would start is in execve.py; for the rest: ld.so(8).
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname

from gpubind.formats.elf import ElfIdent
from gpubind.image.facts import DRIVER_SONAMES
from gpubind.ldso.container import Located
from gpubind.model import Finding, Missing, Severity
from gpubind.rules.execve import Chain
from gpubind.rules.libraries import package_of
from gpubind.rules.preflight import Preflight, search_path
from gpubind.rules.unseen import softened, unseen_libraries, unseen_programs

FROM_THE_HOST = ("/tmp/", "/home/", "/root/", "/scratch/", "/var/tmp/")
"""Directories that runtimes and sites bind from the host: where the runtime is not known, so is what is there."""


def program_missing(preflight: Preflight) -> Iterator[Finding]:
    """The program, or the interpreter of a script, is not in the container."""
    chain = _chain(preflight)
    if chain.stop is None or chain.stop.kind != "missing":
        return
    name = chain.names[-1]
    if _is_uncounted(preflight, name):
        return
    script = len(chain.names) > 1
    what = f"{name} is not in the container" + (f"; the script {chain.names[-2]} asks for it" if script else "")
    hint = "look with `gpubind shell IMAGE`; install it in the image, or give its full path"
    left = [d for d in preflight.plan.decisions if d.subject == name and d.rule == "capability"]
    if left and left[0].detail:
        hint = f"it {left[0].detail}: name that capability with --caps, too"
    here = _is_here(preflight, name)
    if here:
        hint = f"it is on this host, and nothing brings it in: bind {dirname(name)}"
    is_known = preflight.backend is not None and preflight.brought is not None
    severity: Severity = "error"
    if not is_known and (here or name.startswith(FROM_THE_HOST)):
        severity = "warning"
        hint = "if the runtime binds that directory from the host, this does not count; --backend tells which runtime"
    where = search_path(preflight.image, preflight.plan, preflight.brought)
    found = Finding("program-missing", severity, None, name, what, where, chain.stop.why, hint)
    yield softened(found, unseen_programs(preflight, name))


def program_on_host(preflight: Preflight) -> Iterator[Finding]:
    """The program is a file of this host, and no runtime is named: it is checked where runtimes mostly bring it."""
    chain = _chain(preflight)
    if preflight.backend is None and chain.file is not None and chain.file.bind is not None:
        name = chain.names[-1]
        yield Finding(
            "program-on-host",
            "note",
            None,
            name,
            f"{name} is a file of this host, {chain.file.at}; it is checked as if the runtime binds it",
            f"{chain.file.bind.source}, bound to {chain.file.bind.target}",
            "no runtime is named; Apptainer, SingularityCE and `gpubind exec` bind home, working directory and /tmp",
            "name the runtime with --backend: then its configuration, your variables and your options count",
        )


def program_not_executable(preflight: Preflight) -> Iterator[Finding]:
    """It is there, but may not be executed, or it is for another machine, or no program at all."""
    chain = _chain(preflight)
    if chain.stop is None or chain.stop.kind not in ("mode", "format", "architecture", "empty"):
        return
    name = chain.names[-1]
    what = {
        "mode": f"{name} is in the container, but may not be executed",
        "format": f"{name} is neither a program nor a script that starts one",
        "architecture": f"{name} is for another machine than this host",
        "empty": f"{name} is an empty file: starting it does nothing",
    }[chain.stop.kind]
    hint = {
        "mode": "make it executable for its users in the image: `chmod a+rx`",
        "format": "look with `file` in the image, it may be truncated; or at the first line of the script",
        "architecture": "use programs and an image for one architecture",
        "empty": "copy it again",
    }[chain.stop.kind]
    where = chain.file.path if chain.file else None
    severity: Severity = "warning" if chain.stop.kind == "empty" else "error"
    found = Finding("program-not-executable", severity, None, name, what, where, chain.stop.why, hint)
    yield softened(found, unseen_programs(preflight, name))


def program_unreadable(preflight: Preflight) -> Iterator[Finding]:
    """It is there and may well run, but could not be looked at: nothing is known of what it needs."""
    chain = _chain(preflight)
    if chain.stop is not None and _is_uncounted(preflight, chain.names[-1]):
        name = chain.names[-1]
        what = f"{name} is not checked: the directory that it counts from is not known"
        yield Finding("program-unreadable", "note", None, name, what, None, None, "give its full path in the container")
        return
    why = chain.stop.why if chain.stop is not None and chain.stop.kind == "unreadable" else None
    if why is None and chain.stop is None and chain.file is not None:
        elf = chain.file.tree.elf(chain.file.at)
        why = str(elf) if isinstance(elf, Missing) else None
    if why is not None:
        name = chain.names[-1]
        what = f"{name} could not be looked at; nothing is known of what it needs"
        hint = "try it: `gpubind exec IMAGE CMD`; look with `readelf -d` in the image"
        where = chain.file.path if chain.file else None
        yield Finding("program-unreadable", "warning", None, name, what, where, why, hint)


def program_interpreter(preflight: Preflight) -> Iterator[Finding]:
    """The loader that a program names (PT_INTERP) is not in the container: the kernel says that the program is not."""
    chain = _chain(preflight)
    assert preflight.container is not None
    if chain.stop is not None or chain.file is None:
        return
    elf = chain.file.tree.elf(chain.file.at)
    loader = None if isinstance(elf, Missing) else elf.interpreter
    if isinstance(elf, Missing) or not loader or not loader.startswith("/"):
        return  # static, or from the working directory
    found = preflight.container.locate(loader)
    ident = None if found is None else found.tree.ident(found.at)
    name = chain.names[-1]
    things: tuple[str, ...] = ()
    if found is None:
        things = preflight.container.unseen
        what = f"the loader of {name}, {loader}, is not in the container"
        why = f"{name}: No such file or directory, though it is there"
    elif not isinstance(ident, ElfIdent) or (ident.bits, ident.machine) != (elf.ident.bits, elf.ident.machine):
        what = f"the loader that {name} names, {loader}, is no program for its machine"
        why = f"{name}: Accessing a corrupted shared library (ELIBBAD), or Exec format error"
    else:
        return
    hint = "the program was built for another C library (musl, glibc) or distribution than the image has"
    yield softened(Finding("program-interpreter", "error", None, name, what, chain.file.path, why, hint), things)


def program_library_missing(preflight: Preflight) -> Iterator[Finding]:
    """A library that the program is linked with is not found, with the plan in place."""
    for name, message, path, needed_by in _failures(preflight, "missing"):
        what = f"{name} is neither in the image nor in the plan; {path} does not start without it"
        hint = f"install {name} in the image{package_of(name)}, or name its directory in the image's LD_LIBRARY_PATH"
        if "Permission denied" in message:
            what = f"{name} of the image may not be read; {path} does not start without it"
            hint = "mend the permissions in the image"
        where = f"needed by {needed_by}"
        why = f"error while loading shared libraries: {message}"
        found = Finding("program-library-missing", "error", None, name, what, where, why, hint)
        yield softened(found, unseen_libraries(preflight))


def program_library_version(preflight: Preflight) -> Iterator[Finding]:
    """A library in the container is too old for the program, or for what it is linked with."""
    for name, message, path, needed_by in _failures(preflight, "version"):
        what = f"no library in the container defines {name}; {path} does not start without it"
        hint = "use a newer base image, or build the program for this one"
        where = f"needed by {needed_by}"
        found = Finding("program-library-version", "error", None, name, what, where, message, hint)
        yield softened(found, unseen_libraries(preflight))


def program_driver(preflight: Preflight) -> Iterator[Finding]:
    """A search path of the program's own leads to a driver's library in the image, past the plan's."""
    chain = _chain(preflight)
    assert preflight.container is not None
    if chain.stop is not None or chain.file is None:
        return
    planned = {basename(mount.target): mount.source for mount in preflight.plan.mounts if mount.kind == "library"}
    for file in preflight.container.load(chain.file.path).files:
        soname = basename(file.path)
        is_planned = file.tree.real(file.at) == planned.get(soname)
        if file.mount is None and soname in planned and soname in DRIVER_SONAMES and not is_planned:
            # What the user puts in front is the user's to answer for; compat libraries have rules of their own.
            is_users = dirname(file.path) in preflight.container.users_path
            if is_users and "/compat/" in file.at:
                continue
            whose = "the image's own" if file.bind is None else "another"
            what = f"{chain.names[-1]} loads {whose} {soname}, {file.path}, not the host's"
            why = "`Driver/library version mismatch`, or CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"
            severity: Severity = "warning" if is_users else "error"
            hint = _way_out(preflight, file)
            yield Finding("program-driver", severity, "nvidia", soname, what, file.path, why, hint)


def _way_out(preflight: Preflight, file: Located) -> str:
    """What makes a program load the plan's library, not *file*."""
    assert preflight.container is not None
    directory = dirname(file.path)
    if directory in preflight.container.users_path:
        return f"take {directory} out of the LD_LIBRARY_PATH that you set for the container"
    if file.bind is not None:
        return f"leave out the bind of {file.bind.source}, or link without the RPATH that leads to {directory}"
    return "its RPATH comes before LD_LIBRARY_PATH: take the driver out of the image, or link without that RPATH"


def _is_uncounted(preflight: Preflight, name: str) -> bool:
    """Whether *name* counts from a working directory that is not known."""
    assert preflight.container is not None
    return "/" in name and not name.startswith("/") and preflight.container.working_directory is None


def _is_here(preflight: Preflight, name: str) -> bool:
    """Whether the file *name* is on this machine."""
    local = preflight.host.local
    found = Missing("absent") if local is None or not name.startswith("/") else local.stat(name)
    return not isinstance(found, Missing) and found.kind == "file"


def _failures(preflight: Preflight, kind: str) -> Iterator[tuple[str, str, str, str]]:
    chain = _chain(preflight)
    assert preflight.container is not None
    if chain.stop is None and chain.file is not None:
        for failure in preflight.container.failures(chain.file.path):
            if failure.kind == kind:
                yield failure.name, failure.message, chain.file.path, failure.needed_by


def _chain(preflight: Preflight) -> Chain:
    assert preflight.chain is not None
    return preflight.chain
