"""What the hooks of CDI specs would do, and what becomes of it: gpubind runs none of them.

Sources: nvidia-container-toolkit `cmd/nvidia-cdi-hook/` (each hook's own directory).
"""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import basename, dirname, join, normpath
from typing import NamedTuple, Optional

from gpubind.findings import finding
from gpubind.formats.cdi import CdiHook
from gpubind.model import Decision, Finding, Vendor, Verdict
from gpubind.sources.cdi.registry import SOURCE, Applied
from gpubind.sources.claims import Claim

LINKS_LIMIT = 40
PROGRAMS = ("nvidia-cdi-hook", "nvidia-ctk", "nvidia-container-toolkit")

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
        """Where *path* leads by these links."""
        for _ in range(LINKS_LIMIT):
            if path not in self.links:
                break
            path = self.links[path]
        return path

    def library_names(self) -> dict[str, tuple[str, ...]]:
        """The last parts of the links to libraries, by where they lead."""
        names: dict[str, tuple[str, ...]] = {}
        for link in self.links:
            end, name = self.followed(link), basename(link)
            if ".so" in name:
                names[end] = (*names.get(end, ()), name)
        return names


def read_hooks(applied: Iterable[Applied], vendor: Vendor) -> Links:
    """What the hooks among *applied* mean. A hook that is not NVIDIA's, or not known, is a finding."""
    links: dict[str, str] = {}
    folders: dict[str, None] = {}
    decisions: list[Decision] = []
    findings: list[Finding] = []
    for part in applied:
        for number, hook in enumerate(part.edits.hooks):
            name = hook_name(hook)
            claim = Claim("file", name or basename(hook.path), SOURCE, f"{part.at}.hooks[{number}]", vendor)
            verdict: Verdict = "taken" if name in ("create-symlinks", "update-ldcache") else "left-out"
            rule = "cdi-hook" if verdict == "taken" else "cdi-hook-not-run"
            if name == "create-symlinks":
                made = dict(_links(hook))
                links.update(made)
                detail = f"{len(made)} links, each a bind under its own name"
            elif name == "update-ldcache":
                folders.update(dict.fromkeys(folder for folder in _values(hook, "--folder") if folder[:1] == "/"))
                detail = "the directory of the libraries is in LD_LIBRARY_PATH instead"
            elif name in NOT_NEEDED:
                detail = NOT_NEEDED[name]
            else:
                rule, detail = "cdi-hook-unknown", "what it does is not known, and it is not run"
                told = finding("cdi-hook", subject=claim.name, vendor=vendor, where=claim.at, program=hook.path)
                findings.append(told)
            decisions.append(claim.decision(verdict=verdict, rule=rule, step="name", path=hook.path, detail=detail))
    return Links(links, tuple(folders), tuple(decisions), tuple(findings))


def hook_name(hook: CdiHook) -> Optional[str]:
    """Which of NVIDIA's hooks it is: `nvidia-cdi-hook NAME ...`, `nvidia-ctk hook NAME ...`; None: somebody else's."""
    words = [word for word in hook.args[1:] if word != "hook"]
    return words[0] if basename(hook.path).partition(".")[0] in PROGRAMS and words else None


def _links(hook: CdiHook) -> Iterable[tuple[str, str]]:
    for value in _values(hook, "--link"):
        target, separator, link = value.partition("::")
        if separator and link.startswith("/") and target:
            yield normpath(link), normpath(join(dirname(link), target))


def _values(hook: CdiHook, option: str) -> list[str]:
    """The values of a repeatable option, spelled `--x V` or `--x=V`."""
    found = []
    words = iter(hook.args)
    for word in words:
        if word == option:
            found.append(next(words, ""))
        elif word.startswith(f"{option}="):
            found.append(word[len(option) + 1 :])
    return found
