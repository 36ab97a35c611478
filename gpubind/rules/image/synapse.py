"""SynapseAI in an image, the software for Gaudi accelerators, and the host's kernel driver: equal releases are tested.

Sources: Gaudi documentation, "Support Matrix"; optimum-habana `optimum/habana/utils.py` (check_synapse_version);
https://github.com/opea-project/GenAIExamples/issues/366 and https://github.com/containers/ai-lab-recipes/pull/587:
releases that do not work together.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.image.cuda import package_directories
from gpubind.image.synapse import HOME, parse_synapse_release, read_synapse
from gpubind.model import Finding, finding
from gpubind.rules.preflight import Preflight

VERSION = "/sys/module/habanalabs/version"
"""Of Habana's own driver; that of the Linux kernel has none."""


def synapse_mismatch(preflight: Preflight) -> Iterator[Finding]:
    """Yield a SynapseAI in the image of another release than the host's habanalabs; a note if one is not known."""
    image, mounts = preflight.image, preflight.own_mounts
    binds = () if mounts is None else mounts.binds
    if not any(gpu.is_gaudi and gpu.chosen for gpu in preflight.plan.gpus):
        return
    if any(f"{HOME}/".startswith(f"{bind.target}/") for bind in binds):
        return  # the libraries are not the image's
    synapse = read_synapse(image.tree, package_directories(image.tree, image.facts.env.get("PATH", "")))
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
