"""SynapseAI in an image, the software for Gaudi accelerators, and the host's kernel driver: equal releases are tested.

Sources: Gaudi documentation, "Support Matrix"; optimum-habana `optimum/habana/utils.py` (check_synapse_version);
https://github.com/opea-project/GenAIExamples/issues/366 and https://github.com/containers/ai-lab-recipes/pull/587:
releases that do not work together.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.image.cuda import packages_of
from gpubind.image.needs import SYNAPSE, read_intel
from gpubind.image.synapse import HOME, read_synapse, release_of
from gpubind.model import Finding, finding
from gpubind.rules.preflight import ImagePreflight

VERSION = "/sys/module/habanalabs/version"
"""Of Habana's own driver; that of the Linux kernel has none."""


def for_gaudi_alone(preflight: ImagePreflight) -> Iterator[Finding]:
    """Yield an image that uses Intel's GPUs, and no SynapseAI, where the container gets only Gaudi accelerators."""
    gpus = [gpu for gpu in preflight.plan.gpus if gpu.chosen and gpu.index is not None]
    if not gpus or not all(gpu.is_gaudi for gpu in gpus) or preflight.container.tree.has(HOME):
        return
    ways = read_intel(preflight.image, preflight.gpu_code)
    if ways and not any(way.name == SYNAPSE for way in ways):
        names, where = " and ".join(way.name for way in ways), ", ".join(way.by for way in ways)
        yield finding(
            "image-of-other-vendor", subject="Intel's GPUs", case="gaudi", vendor="intel", where=where, names=names
        )


def synapse_mismatch(preflight: ImagePreflight) -> Iterator[Finding]:
    """Yield a SynapseAI in the image of another release than the host's habanalabs; a note if one is not known."""
    image, mounts = preflight.image, preflight.own_mounts
    binds = () if mounts is None else mounts.binds
    if not any(gpu.is_gaudi and gpu.chosen for gpu in preflight.plan.gpus):
        return
    if any(f"{HOME}/".startswith(f"{bind.target}/") for bind in binds):
        return  # the libraries are not the image's
    synapse = read_synapse(image.tree, packages_of(image.tree, image.facts.env.get("PATH", "")))
    if synapse is None:
        return
    kernel = preflight.host.lenient.dev.text(VERSION)
    of_kernel = release_of(kernel or "")
    subject, where = synapse.release or synapse.by, synapse.by
    if kernel is None:
        yield finding("synapse-mismatch", subject=subject, case="in-tree", severity="note", where=where)
    elif synapse.release is None:
        yield finding("synapse-mismatch", subject=subject, case="unknown", severity="note", where=where, kernel=kernel)
    elif of_kernel is not None and of_kernel != synapse.release:
        yield finding("synapse-mismatch", subject=subject, where=where, kernel=kernel, of_kernel=of_kernel)
