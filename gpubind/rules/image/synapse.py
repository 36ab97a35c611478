"""SynapseAI (the software for Gaudi) in an image, and the host's kernel driver: only equal releases are tested.

Sources: Gaudi documentation, "Support Matrix"; optimum-habana `optimum/habana/utils.py` (check_synapse_version);
https://github.com/opea-project/GenAIExamples/issues/366 and https://github.com/containers/ai-lab-recipes/pull/587:
releases that do not work together.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.image.cuda import site_package_directories
from gpubind.image.synapse import HOME, parse_synapse_release, read_synapse
from gpubind.model import Finding, finding
from gpubind.rules.preflight import Preflight

VERSION = "/sys/module/habanalabs/version"
"""The release of Habana's own driver; the Linux kernel's driver has no such file."""


def synapse_mismatch(preflight: Preflight) -> Iterator[Finding]:
    """Report a SynapseAI whose release differs from that of the host's habanalabs. It is a note if a release is
    unknown.
    """
    image, mounts = preflight.image, preflight.own_mounts
    binds = () if mounts is None else mounts.binds
    if not any(gpu.is_gaudi and gpu.chosen for gpu in preflight.plan.gpus):
        return
    if any(f"{HOME}/".startswith(f"{bind.target}/") for bind in binds):
        return  # the libraries are the user's
    synapse = read_synapse(image.tree, site_package_directories(image.tree, image.facts.env.get("PATH", "")))
    if synapse is None:
        return
    kernel = preflight.host.lenient.dev.text(VERSION)
    of_kernel = parse_synapse_release(kernel or "")
    subject, where = synapse.release or synapse.by, synapse.by
    if kernel is None:
        yield finding("synapse-mismatch", subject=subject, case="in-tree", severity="note", where=where)
    elif synapse.release is None:
        yield finding("synapse-mismatch", subject=subject, case="unknown", severity="note", where=where, kernel=kernel)
    elif of_kernel is not None and of_kernel != synapse.release:
        yield finding("synapse-mismatch", subject=subject, where=where, kernel=kernel, of_kernel=of_kernel)
