"""CDI devices that bring NVIDIA's driver, as a source: which file a name is, what completes it and where it lands is
decided as for every other source.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Union

from gpubind.formats.driver.cdi import CdiMount
from gpubind.host import Host
from gpubind.inventory.cdi.edits import read_edits
from gpubind.inventory.cdi_specs import SOURCE, CdiChoice, in_driver_root, registry_findings
from gpubind.inventory.claims import Claim, Serving, is_clean
from gpubind.model import ContainerPath, Missing, PassedOver
from gpubind.model.layouts import HOST_ONLY


def claims(host: Host, choice: CdiChoice) -> Union[Serving, PassedOver]:
    """What the edits of *choice* that bring the driver claim; `PassedOver` (code `no-library`) if no library of it is
    on *host*.

    Every mount, node, hook and variable gets a Decision, or is what a Decision of another step is about.
    """
    at = ", ".join(str(name) for name in choice.driver_names)
    edits = read_edits(host, choice.driver, "nvidia")
    mounts = {in_driver_root(host, mount.host_path) or mount.host_path: mount for mount in edits.mounts}
    links = edits.hooks.library_names()
    files = [_claim(host, path, mount, at, links.get(mount.container_path, ())) for path, mount in mounts.items()]
    if not any(claim.kind == "library-file" and claim.stays is None for claim in files):
        return PassedOver(SOURCE, "no-library", f"none of the {len(mounts)} files that {at} names is a library here")
    nodes = [node for part in choice.driver for node in part.edits.nodes if is_clean(node.source)]
    return Serving(
        name=SOURCE,
        detail=f"{at} ({edits.files})",
        claims=(*files, *(Claim("device", node.source, SOURCE, at) for node in nodes)),
        decisions=edits.decisions,
        findings=(*registry_findings(choice.registry, choice.names), *edits.findings),
        nodes=None if choice.whole else tuple(node.path for node in nodes),
        env=edits.env,
    )


def _claim(host: Host, path: str, mount: CdiMount, at: str, links: tuple[str, ...]) -> Claim:
    """Return what *mount* claims: a library, under whatever names the host has it; or a file, at its place."""
    found = host.driver.lenient.resolve(path)
    real = "" if isinstance(found, Missing) else found
    stays = next((only.why for only in HOST_ONLY if fnmatchcase(real, only.pattern)), None)
    if ".so" in real.rpartition("/")[2]:
        return Claim("library-file", path, SOURCE, at, stays=stays, links=links)
    return Claim("file", path, SOURCE, at, stays=stays, target=ContainerPath(mount.container_path))
