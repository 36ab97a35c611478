"""Findings about a program that runs on this machine without a container.

The rules are those for images. Their texts in findings.json are about images, so `reworded` replaces each phrase about
an image by its counterpart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpubind.model import Finding
from gpubind.model.findings import Sentence, finding_texts

RULES = (
    "compat-harmful",
    "compat-used",
    "cuda-minor-version",
    "cuda-too-new",
    "executable-stack",
    "framework-library",
    "gpu-code-missing",
    "gpu-code-unread",
    "hsa-override",
    "imports-not-checked",
    "program-interpreter",
    "program-library-missing",
    "program-library-version",
    "program-missing",
    "program-not-executable",
    "program-unreadable",
    "ptx-too-new",
    "rocm-untested",
    "stub-in-image",
    "synapse-mismatch",
)
"""The rules about images and programs that also apply without a container. The other rules compare image and plan."""

_COUNTERPARTS = (
    ("neither in the image nor in the plan", "not on this machine"),
    ("is not in the container", "is not on this machine"),
    ("is in the container", "is on this machine"),
    ("which is also in the image", "which is also installed"),
    ("look with `gpubind shell IMAGE`; install it in the image", "install it"),
    ("try it with `gpubind exec IMAGE CMD`, or inspect it", "inspect it"),
    ("`gpubind check --image IMAGE --program FILE.so`", "`gpubind check --program FILE.so`"),
    ("check an unpacked image, or a SIF file made from it", "unpack it"),
    ("programs and an image for one architecture", "programs for this architecture"),
    ("use a newer base image", "use a newer system"),
    ("use an image with", "use packages for"),
    ("an image for", "packages for"),
    ("an image in which", "packages in which"),
    ("--cuda-compat image (GPUBIND_CUDA_COMPAT=image), or LD_LIBRARY_PATH", "LD_LIBRARY_PATH"),
    (" in the image is for", " is for"),
    (" in the image has", " has"),
    ("the image is for", "the program is for"),
    ("of the image to its LD_LIBRARY_PATH", "to LD_LIBRARY_PATH"),
    ("the image's LD_LIBRARY_PATH", "LD_LIBRARY_PATH"),
    ("the image's GPU code", "GPU code"),
    ("on the host, never in the image", "on this machine"),
    (" in the image", ""),
    (" of the image", ""),
    (" in the container", ""),
    ("the container's ", "this machine's "),
    ("the image", "this machine"),
)
_THEMES_OF_CONTAINERS = ("extras", "runtime")
"""Themes of the notes about what containers get and about their runtimes."""


def applies_to_machine(code: str, needs: str) -> bool:
    """Return whether the rule of *code* applies to this machine, or to a program on it."""
    return needs == "host" or code in RULES


def reworded(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield *findings* with texts about this machine instead of an image. Notes about containers are left out."""
    for finding in findings:
        is_about_containers = finding_texts()[finding.code].get("theme") in _THEMES_OF_CONTAINERS
        if finding.severity != "note" or not is_about_containers:
            yield finding._replace(
                what=_reworded(finding.what),
                why=finding.why and _reworded(finding.why),
                hint=finding.hint and _reworded(finding.hint),
            )


def _reworded(text: str) -> str:
    """Return *text* with another template; its facts, such as paths and names, stay as they are."""
    if not isinstance(text, Sentence):
        return text
    template = text.template
    for phrase, counterpart in _COUNTERPARTS:
        template = template.replace(phrase, counterpart)
    return template.format_map(text.facts)
