"""Rules about the plan's libraries and programs in the image: which of them the loader would refuse there, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from posixpath import basename
from typing import NamedTuple, Optional

from gpubind.formats.elf import ElfIdent
from gpubind.host.base import shipped_liblist
from gpubind.ldso.container import Container, Failure
from gpubind.model import Capability, Finding, Missing, Mount, Plan, Severity
from gpubind.planner.sides import is_minor
from gpubind.rules.preflight import Preflight
from gpubind.rules.unseen import softened, unseen_libraries
from gpubind.sources.liblist import NameTable, capability_of, driver_version_of, known, read_table


class Unloadable(NamedTuple):
    """A library or program of the plan that the container's loader refuses."""

    mount: Mount
    failures: tuple[Failure, ...]


def unloadable(container: Container, plan: Plan) -> tuple[Unloadable, ...]:
    """Every library and program of *plan* that cannot be loaded in *container*, by target."""
    refused = []
    for mount in plan.mounts:
        if not (mount.kind == "library" or _is_program(container, mount)):
            continue
        failures = container.failures(mount.target)
        if failures:
            refused.append(Unloadable(mount, failures))
    return tuple(refused)


def _is_program(container: Container, mount: Mount) -> bool:
    """Whether it is a program for the loader; a script is its interpreter's business."""
    located = container.locate(mount.target) if mount.kind == "binary" else None
    return located is not None and isinstance(located.tree.ident(located.at), ElfIdent)


def library_missing(preflight: Preflight) -> Iterator[Finding]:
    """A DT_NEEDED that neither the plan nor the image has. One finding for each name, with all that need it."""
    yield from _by_cause(preflight, "missing")


def library_version(preflight: Preflight) -> Iterator[Finding]:
    """A symbol version that the library in the container does not define: what bringing the wrong side's copy does."""
    yield from _by_cause(preflight, "version")


def library_unreadable(preflight: Preflight) -> Iterator[Finding]:
    """A library of the plan that is damaged, or may not be read."""
    assert preflight.container is not None
    for library in unloadable(preflight.container, preflight.plan):
        for failure in library.failures:
            if failure.kind == "unreadable":
                name = basename(library.mount.target)
                what = f"{name} cannot be read as a library"
                hint = "install the driver's package again; look at the file with `readelf -d`"
                yield Finding(
                    "library-unreadable",
                    "error",
                    library.mount.vendor,
                    name,
                    what,
                    library.mount.source,
                    failure.message,
                    hint,
                )


def executable_stack(preflight: Preflight) -> Iterator[Finding]:
    """A library of the plan that dlopen refuses, since glibc 2.41, for the executable stack that it asks for."""
    assert preflight.container is not None
    if _has_executable_stack(preflight):
        return
    causes: dict[str, tuple[Failure, list[Mount]]] = {}
    for library in unloadable(preflight.container, preflight.plan):
        for failure in library.failures:
            if failure.kind == "stack":
                causes.setdefault(failure.name, (failure, []))[1].append(library.mount)
    table = read_table(shipped_liblist("nvliblist.conf"))
    for name, (failure, mounts) in sorted(causes.items()):
        files = ", ".join(sorted({basename(mount.target) for mount in mounts}))
        severity = _worst(_severity(preflight, mount, table) for mount in mounts)
        what = f"{name} asks for an executable stack, and the image's glibc no longer gives one to dlopen"
        hint = "use an image with glibc before 2.41; or set GLIBC_TUNABLES=glibc.rtld.execstack=2 in the container"
        yield Finding("executable-stack", severity, mounts[0].vendor, name, what, files, failure.message, hint)


def _has_executable_stack(preflight: Preflight) -> bool:
    """Whether the program's stack is executable from its start: by itself, or by what it is linked with."""
    chain = preflight.chain
    if preflight.container is None or chain is None or chain.stop is not None or chain.file is None:
        return False
    facts = [file.tree.elf(file.at) for file in preflight.container.load(chain.file.path).files]
    return any(not isinstance(elf, Missing) and elf.executable_stack for elf in facts)


def _by_cause(preflight: Preflight, kind: str) -> Iterator[Finding]:
    assert preflight.container is not None
    causes: dict[tuple[str, str], list[tuple[Mount, Failure]]] = {}
    for library in unloadable(preflight.container, preflight.plan):
        for failure in library.failures:
            if failure.kind == kind:
                causes.setdefault((failure.provider or "", failure.name), []).append((library.mount, failure))
    table = read_table(shipped_liblist("nvliblist.conf"))
    for (provider, name), refused in sorted(causes.items()):
        severity = _worst(_severity(preflight, mount, table) for mount, _ in refused)
        files = sorted({basename(mount.target) for mount, _ in refused})
        names = ", ".join(files)
        these = f"{len(files)} files of the plan do not load" if len(files) > 2 else f"{names} cannot be loaded"
        message = refused[0][1].message
        if kind == "missing":
            what = f"{name} is neither in the image nor in the plan; without it {these}"
            hint = f"install {name} in the image{package_of(name)}{_special(files)}"
            found = Finding("library-missing", severity, refused[0][0].vendor, name, what, names, message, hint)
        else:
            what = f"{provider} of the container does not define {name}; without it {these}"
            hint = "plan with --image (and without --like), so that what the image cannot load is left out"
            found = Finding("library-version", severity, refused[0][0].vendor, name, what, names, message, hint)
        yield softened(found, unseen_libraries(preflight))


def _severity(preflight: Preflight, mount: Mount, table: NameTable) -> Severity:
    """An error for what was asked for by name and for CUDA itself; a note for what came by default."""
    name = basename(mount.target)
    capability = _capability(mount, table)
    request = preflight.plan.request
    by_name = request.caps_explicit and capability in request.caps
    if is_minor(name):
        return "warning" if by_name and not name.startswith(("libnvidia-pkcs11", "libcudadebugger", "nv")) else "note"
    if mount.required or name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        return "error"
    if by_name:
        return "error"
    assert preflight.image is not None
    hides = preflight.image.loader.of(mount.arch).find(name) is not None
    if hides or capability in ("compute", "utility"):
        return "warning"
    return "note"


def _capability(mount: Mount, table: NameTable) -> Optional[Capability]:
    if mount.capability not in (None, "compat32"):  # which a 32-bit library has beside its own
        return mount.capability
    name = basename(mount.target)
    return capability_of(table.section(name, mount.target), driver_version_of(name))


def _worst(severities: Iterable[Severity]) -> Severity:
    found = frozenset(severities)
    return "error" if "error" in found else "warning" if "warning" in found else "note"


def _special(files: list[str]) -> str:
    """What the files are for, if they are all for the same that few jobs need."""
    uses = {about.use if (about := known(name)) else "" for name in files}
    use = uses.pop() if len(uses) == 1 else ""
    return f"; {use}" if use else ""


PACKAGES = {
    "libX11.so.6": "libx11-6, libX11",
    "libXext.so.6": "libxext6, libXext",
    "libX11-xcb.so.1": "libx11-xcb1, libX11-xcb",
    "libcrypto.so.1.1": "libssl1.1, compat-openssl11",
    "libcrypto.so.3": "libssl3, openssl-libs",
    "libdrm.so.2": "libdrm2, libdrm",
    "libgbm.so.1": "libgbm1, mesa-libgbm",
    "libgcc_s.so.1": "libgcc-s1, libgcc",
    "libwayland-client.so.0": "libwayland-client0, libwayland-client",
    "libwayland-server.so.0": "libwayland-server0, libwayland-server",
    "libxcb.so.1": "libxcb1, libxcb",
    "libxcb-dri3.so.0": "libxcb-dri3-0, libxcb",
    "libxcb-present.so.0": "libxcb-present0, libxcb",
}
"""What Debian's and Red Hat's distributions call the packages of what the driver needs of others."""


def package_of(name: str) -> str:
    return f": {PACKAGES[name]} in Debian's and Red Hat's words" if name in PACKAGES else ""
