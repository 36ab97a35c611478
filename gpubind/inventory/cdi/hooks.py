"""What the hooks of CDI specs would do, and what becomes of it: gpubind runs none of them."""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import basename
from typing import NamedTuple

from gpubind.formats.driver.cdi_hook import parse_hook
from gpubind.inventory.cdi_specs import SOURCE, Applied
from gpubind.inventory.claims import Claim
from gpubind.model import Decision, Finding, Vendor, Verdict
from gpubind.model.budget import LINKS_LIMIT
from gpubind.model.findings import finding

NOT_NEEDED = {
    "chmod": "it changes modes of directories for users of the container; a bind keeps the host's",
    "disable-device-node-modification": "it keeps root in the container from making nodes anew; who starts without "
    "privileges cannot make any, and the nodes are the host's own",
    "enable-cuda-compat": "it prefers the image's own newer libcuda in /usr/local/cuda/compat; with an image, the plan "
    "decides that itself (--cuda-compat)",
    "update-application-profile": "it chooses the GPU for OpenGL where only some are visible",
}
"""Hooks that are not done, and why that is no loss."""


class Links(NamedTuple):
    """What hooks would add to the container's file system, and what is said about hooks."""

    links: dict[str, str]
    """Absolute paths in the container, and what they lead to there, absolute, too."""
    folders: tuple[str, ...]
    """Directories that the container's loader would search."""
    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]

    def followed(self, path: str) -> str:
        """Return where *path* leads by these links."""
        for _ in range(LINKS_LIMIT):
            if path not in self.links:
                break
            path = self.links[path]
        return path

    def library_names(self) -> dict[str, tuple[str, ...]]:
        """Return the last parts of the links to libraries, by where they lead."""
        names: dict[str, tuple[str, ...]] = {}
        for link in self.links:
            end, name = self.followed(link), basename(link)
            if ".so" in name:
                names[end] = (*names.get(end, ()), name)
        return names


def read_hooks(applied: Iterable[Applied], vendor: Vendor) -> Links:
    """Return what the hooks among *applied* mean. A hook that is not NVIDIA's, or not known, is a finding."""
    links: dict[str, str] = {}
    folders: dict[str, None] = {}
    decisions: list[Decision] = []
    findings: list[Finding] = []
    hooks = [(f"{part.at}.hooks[{n}]", hook) for part in applied for n, hook in enumerate(part.edits.hooks)]
    for at, hook in hooks:
        call = parse_hook(hook)
        subject = call.name or basename(hook.path)
        verdict: Verdict = "left-out"
        if call.name == "create-symlinks":
            links.update(call.links)
            verdict, rule, detail = "taken", "cdi-hook", f"{len(call.links)} links, each a bind under its own name"
        elif call.name == "update-ldcache":
            folders.update(dict.fromkeys(call.folders))
            verdict, rule, detail = "taken", "cdi-hook", "the directory of the libraries is in LD_LIBRARY_PATH instead"
        elif call.name in NOT_NEEDED:
            rule, detail = "cdi-hook-not-run", NOT_NEEDED[call.name]
        else:
            rule, detail = "cdi-hook-unknown", "what it does is not known, and it is not run"
            findings.append(finding("cdi-hook", subject=subject, vendor=vendor, where=at, program=hook.path))
        claim = Claim("file", subject, SOURCE, at, vendor)
        decisions.append(claim.decision(verdict=verdict, rule=rule, step="name", path=hook.path, detail=detail))
    return Links(links, tuple(folders), tuple(decisions), tuple(findings))
