"""`plan --format links`: links to the driver's libraries, for programs without a container.

Libraries that are in the plan by the rule `closure` (libstdc++, libelf) are left out: programs of the host have their
own.
"""

from __future__ import annotations

from gpubind.documents.text import printable
from gpubind.model import HostPath, Plan
from gpubind.model.findings import with_count

_LIBRARIES_32 = "lib32"
"""The subdirectory of 32-bit libraries. A loader ignores libraries of another architecture, but must open them to
find out.
"""
_MANIFESTS = {
    "/egl_vendor.d/": "__EGL_VENDOR_LIBRARY_FILENAMES",
    "/egl_external_platform.d/": "__EGL_EXTERNAL_PLATFORM_CONFIG_FILENAMES",
    "/vulkan/icd.d/": "VK_ADD_DRIVER_FILES",
}
"""Directories of manifests, and the variable that names single manifests to their loader."""


def links_of(plan: Plan) -> dict[str, HostPath]:
    """Return the links for *plan*: for each name of a library, the file of the host."""
    links: dict[str, HostPath] = {}
    for mount in plan.mounts:
        if mount.kind == "library" and mount.source is not None and mount.rule != "closure":
            name = mount.target.rpartition("/")[2]
            links[f"{_LIBRARIES_32}/{name}" if mount.capability == "compat32" else name] = mount.source
    return dict(sorted(links.items()))


def render_links(plan: Plan, *, verbose: bool = False) -> str:
    """Return a line for each link: its name and its target, separated by a tab; then `# ` and the number of links."""
    links = links_of(plan)
    lines = "".join(f"{printable(name)}\t{printable(target)}\n" for name, target in links.items())
    return f"{lines}# {with_count(len(links), 'link')}\n"


def usage_text(plan: Plan, directory: str) -> str:
    """Return how programs find the libraries in *directory*: options of a linker, and variables for a shell."""
    from shlex import quote

    lines = [
        f"{directory}: {with_count(len(links_of(plan)), 'link')}",
        "when you link a program (libraries that the driver itself opens are found by DT_RPATH, not by DT_RUNPATH):",
        f"  -Wl,--disable-new-dtags,-rpath,{quote(directory)}",
        "for a program that is linked:",
        f"  patchelf --force-rpath --add-rpath {quote(directory)} PROGRAM",
        "or for all programs, and their children:",
        f"  export LD_LIBRARY_PATH={quote(directory)}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}",
    ]
    directories = {plan.libdir: directory, plan.libdir32: f"{directory}/{_LIBRARIES_32}"}
    for variable in plan.env:
        elements = (variable.value or "").split(":")
        if elements[0] == plan.libdir and variable.name != "LD_LIBRARY_PATH":
            value = ":".join(quote(directories.get(element, element)) for element in elements)  # type: ignore[call-overload]
            lines.append(f"  export {variable.name}={value}")
    manifests = []
    for part, name in _MANIFESTS.items():
        mounts = (mount for mount in plan.mounts if mount.kind == "manifest" and part in mount.target)
        files = ":".join(mount.source for mount in mounts if mount.source is not None)
        manifests += [f"  export {name}={quote(files)}"] if files else []
    if manifests:
        lines.append(
            "where the loaders of EGL and Vulkan do not read the host's manifests (libEGL then reads no other):"
        )
        lines += manifests
    return "".join(printable(line) + "\n" for line in lines)
