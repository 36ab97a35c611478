"""Whether a command line asks for no GPU, told from the look of its words: nothing else of gpubind is loaded for it.

An alias makes every command of a runtime go through `wrap`, and those that are not about GPUs shall not wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SINGULARITY = ("apptainer", "singularity")
_WITH_GPU_FLAGS = (*_SINGULARITY, "docker", "podman")
_BEGINNINGS = ("--nv", "--rocm", "--gpus", "--runtime", "--device")
"""Of every word that asks those programs for GPUs. None of them can be shortened, or share its word with others."""
VARIABLES = tuple(f"{prefix}_{name}" for prefix in ("APPTAINER", "SINGULARITY") for name in ("NV", "NVCCLI", "ROCM"))
"""Those that ask Apptainer and SingularityCE for GPUs, as the flags do."""
_ACTIONS = ("exec", "run", "shell", "test", "instance")


def asks_for_no_gpu(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether *words* ask for no GPU, however they are read. False says nothing: `parse_command` reads them.

    The site's configuration is left out: see `may_be_told_by_site`.
    """
    if not words or words[0].rpartition("/")[2] not in _WITH_GPU_FLAGS:
        return False
    return not any(word.startswith(_BEGINNINGS) for word in words) and not any(name in environ for name in VARIABLES)


def may_be_told_by_site(words: Sequence[str]) -> bool:
    """Return whether the site's configuration (`always use nv`) may ask for GPUs that *words* do not ask for."""
    names = {word.rpartition("/")[2] for word in words}
    return not names.isdisjoint(_SINGULARITY) and not names.isdisjoint(_ACTIONS)
