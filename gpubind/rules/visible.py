"""What the caller's environment says about GPUs: a name that this host does not know hides more than it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from gpubind.model import Finding, Gpu
from gpubind.rules.looking import counted, is_linux_driver
from gpubind.rules.preflight import Preflight

CUDA = "CUDA_VISIBLE_DEVICES"
NVIDIA = "NVIDIA_VISIBLE_DEVICES"
_HIDE_ALL = ("", "-1", "NoDevFiles")
"""Slurm says NoDevFiles in a job that asked for no GPU."""
_NOT_A_LIST = ("", "all", "none", "void")
_MIG = re.compile(r"MIG-(GPU-[0-9a-f-]+)/([0-9]{1,6})/([0-9]{1,6})", re.IGNORECASE)


def visible_devices_none(preflight: Preflight) -> Iterator[Finding]:
    """The caller has told CUDA to see no GPU, mostly without knowing: a job that did not ask for one."""
    value = preflight.host.environ.get(CUDA)
    if value is not None and is_linux_driver(preflight.plan) and _tokens(value)[0] in _HIDE_ALL:
        yield Finding(
            "visible-devices-none",
            "warning",
            "nvidia",
            CUDA,
            f"{CUDA} is `{value}`: CUDA will see no GPU",
            f"the environment: {CUDA}={value}",
            "most runtimes pass it on; CUDA answers 100 (CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected)",
            "ask the scheduler for a GPU (`--gpus`, `--gres=gpu:1`), or take the variable away",
            f"unset {CUDA}",
        )


def visible_devices_unknown(preflight: Preflight) -> Iterator[Finding]:
    """An index or UUID that this host has not. CUDA's list ends there.

    Source: CUDA Programming Guide, "CUDA Environment Variables"; for NVIDIA_VISIBLE_DEVICES nvidia-container-toolkit.
    """
    gpus = tuple(gpu for gpu in preflight.plan.gpus if gpu.vendor == "nvidia" and gpu.index is not None)
    if not gpus or not is_linux_driver(preflight.plan):
        return
    value = preflight.host.environ.get(CUDA, "")
    tokens = _tokens(value)
    unknown = next((number for number, token in enumerate(tokens) if _is_known(token, gpus) is False), None)
    if unknown is not None and tokens[0] not in _HIDE_ALL:
        seen = f"only {counted(unknown, 'device')}" if unknown else "no GPU"
        yield Finding(
            "visible-devices-unknown",
            "warning" if unknown else "error",
            "nvidia",
            CUDA,
            f"{CUDA} names `{tokens[unknown]}`, which this host has not: CUDA will see {seen}",
            f"the environment: {CUDA}={value}",
            "CUDA's list ends at the first name that it does not know; an empty one gives CUDA_ERROR_NO_DEVICE (100)",
            _known(gpus),
            "nvidia-smi -L",
        )
    value = preflight.host.environ.get(NVIDIA, "")
    named = [] if value.strip() in _NOT_A_LIST else _tokens(value)
    for token in named:
        if _is_plain(token) and _is_known(token, gpus) is False:
            yield Finding(
                "visible-devices-unknown",
                "note",
                "nvidia",
                NVIDIA,
                f"{NVIDIA} names `{token}`, which this host has not",
                f"the environment: {NVIDIA}={value}",
                f"gpubind does not read it; nvidia-container-cli would say `device error: {token}: unknown device`",
                _known(gpus),
                "nvidia-smi -L",
            )
            return


def _tokens(value: str) -> list[str]:
    """The names in *value*; a comma at its end names nothing."""
    return [token.strip() for token in value.strip().rstrip(",").split(",")]


def _is_plain(token: str) -> bool:
    """Whether *token* is an index or a UUID, and not one of the toolkit's other ways to name a device."""
    return re.fullmatch(r"[0-9]+|GPU-.*|MIG-.*", token) is not None


def _is_known(token: str, gpus: tuple[Gpu, ...]) -> Optional[bool]:
    """Whether *token* names one of *gpus*; None if files do not tell."""
    if token.isascii() and token.isdigit():
        return len(token) < 10 and int(token) < len(gpus)
    part = _MIG.fullmatch(token)
    if part is not None:
        owner = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.lower() == part.group(1).lower()]
        wanted = (int(part.group(2)), int(part.group(3)))
        return any((device.gi, device.ci) == wanted for gpu in owner for device in gpu.mig)
    if token.startswith("MIG-"):
        return None if any(gpu.mig for gpu in gpus) else False  # UUIDs of MIG devices are in no file
    if token.startswith("GPU-"):
        if any(gpu.uuid is None for gpu in gpus):
            return None
        return any((gpu.uuid or "").lower().startswith(token.lower()) for gpu in gpus)  # CUDA takes beginnings, too
    return False


def _known(gpus: tuple[Gpu, ...]) -> str:
    named = ", ".join(f"{gpu.index}" + (f" ({gpu.uuid})" if gpu.uuid else "") for gpu in gpus)
    return f"name one of this host's: {named}"
