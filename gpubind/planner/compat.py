"""Forward compatibility: whether a container uses the libcuda of CUDA's compat package in its image, or the host's.

`planner/cuda_compat.py` contains the requirements of a compat libcuda; this module decides which one comes first, if
any. The hook `enable-cuda-compat` of nvidia-container-toolkit ignores the GPU and the image's own search path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import dirname
from typing import Optional

from gpubind.image.cuda import needed_cuda
from gpubind.loader.verdict import ImageFit
from gpubind.model import Decision, EnvVar, ImageFacts, ImageLibrary, Request, Verdict
from gpubind.model.cuda import is_minor_compatible
from gpubind.planner.cuda_compat import CompatHost, is_data_centre, is_newer, predicted_error, supported_cuda
from gpubind.planner.placement import Layout

ENV_RULE = "cuda-compat"
COMPAT_RULE = "forward-compatibility"
"""The rule of the Decisions."""

_PLAIN_DIRECTORY = re.compile(r"/[A-Za-z0-9._+/-]+")


def cuda_compat(
    request: Request, node: Optional[CompatHost], fit: ImageFit, layout: Layout
) -> tuple[tuple[EnvVar, ...], tuple[Decision, ...]]:
    """Return the variable that puts a compat libcuda of the image first, if any, and a Decision about each."""
    if node is None:
        return (), ()
    if not fit.facts.compat and request.cuda_compat == "image":
        return (), (_decision(None, "absent", "the image has no compat libcuda"),)
    env: list[EnvVar] = []
    decisions = []
    for library, is_taken, why in _judge_all(request, node, fit):
        is_fixed = layout.searched and not layout.adds_variables
        if is_taken and is_fixed and not _puts_first(fit.facts, library):
            is_taken, why = (
                False,
                "this layout adds to no search path: set LD_LIBRARY_PATH when the container is started",
            )
        elif is_taken and not is_fixed:
            env.append(EnvVar("LD_LIBRARY_PATH", "prepend", dirname(library.path), ":", ENV_RULE))
        decisions.append(_decision(library, "taken" if is_taken else "left-out", why))
    return tuple(env), tuple(decisions)


def _judge_all(request: Request, node: CompatHost, fit: ImageFit) -> Iterator[tuple[ImageLibrary, bool, str]]:
    """Yield each compat libcuda, the image's choice first, whether the container uses it (one at most), and why."""
    cuda = needed_cuda(fit.facts.every_cuda)

    def rank(library: ImageLibrary) -> tuple[bool, bool]:
        return not _puts_first(fit.facts, library), cuda is not None and is_newer(cuda, supported_cuda(library))

    any_taken = False
    for library in sorted(fit.facts.compat, key=rank):
        is_taken, why = _judge(library, request, node, fit)
        yield (
            (library, False, "another compat libcuda comes first")
            if is_taken and any_taken
            else (library, is_taken, why)
        )
        any_taken = any_taken or is_taken


def _judge(library: ImageLibrary, request: Request, node: CompatHost, fit: ImageFit) -> tuple[bool, str]:
    if request.cuda_compat == "host":
        return False, "the host's libcuda was asked for"
    if not _PLAIN_DIRECTORY.fullmatch(dirname(library.path)):
        return False, "its directory has a name that LD_LIBRARY_PATH cannot hold"
    if request.cuda_compat == "image":
        return True, "it was asked for"
    unfit = fit.unfit_compat.get(library.path)
    why = unfit.message if unfit is not None else predicted_error(library, node) or _no_gain(library, node)
    if why is not None:
        return False, why
    if _puts_first(fit.facts, library):
        return True, "the image's own LD_LIBRARY_PATH puts it first, and nothing tells that it does not fit"
    if library.note is None and library.version is None:
        return False, "neither its note nor its name tells which drivers it is for"
    return _helps(fit.facts, node)


def _no_gain(library: ImageLibrary, node: CompatHost) -> Optional[str]:
    if library.version == node.driver:
        return "it is of the host driver's own version"
    served = supported_cuda(library)
    if library.version is None and served is not None and not is_newer(served, node.serves):
        return f"it serves CUDA {served}, the host's libcuda {node.serves or 'an unknown one'}"
    return None


def _helps(facts: ImageFacts, node: CompatHost) -> tuple[bool, str]:
    """Return whether a compat libcuda that fits, and that the image does not put first, should come first.

    The host's libcuda runs CUDA of the driver's own major version on every GPU. A compat libcuda would fail on GPUs
    without forward compatibility, so it replaces the host's only for GPUs that are known to support it.
    """
    cuda = needed_cuda(facts.every_cuda)
    if cuda is None:
        return False, "the image does not say which CUDA it is for, and does not put it first"
    if not is_newer(cuda, node.serves):
        return False, f"the image is for CUDA {cuda}, the driver serves {node.serves or 'an unknown one'}"
    other_models = [model for model in node.models or ("unknown",) if not is_data_centre(model)]
    if other_models and is_minor_compatible(node.driver, cuda):
        return False, (
            f"the host's libcuda runs CUDA {cuda} by minor-version compatibility, and whether the GPU "
            f"({other_models[0]}) takes part in forward compatibility is not known"
        )
    return True, f"the image is for CUDA {cuda}, the driver serves {node.serves}"


def _puts_first(facts: ImageFacts, library: ImageLibrary) -> bool:
    return library.path == facts.own_libcuda and "LD_LIBRARY_PATH" not in facts.undecided


def _decision(library: Optional[ImageLibrary], verdict: Verdict, why: str) -> Decision:
    path = None if library is None else library.path
    return Decision("nvidia", "libcuda.so.1", verdict, COMPAT_RULE, "place", named_by="image", path=path, detail=why)
