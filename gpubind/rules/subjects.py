"""Subjects that most starts do not have, such as CDI specs. A rule about a subject applies only to starts that have
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpubind.formats.driver.gpu_names import GPU_VARIABLES, SLURM_GPUS
from gpubind.formats.driver.require import requirements_of
from gpubind.inventory.cdi.specs import DIRECTORIES
from gpubind.inventory.nvidia.devices import GPUDIRECT_NODES, mps_directory, requested_nodes
from gpubind.rules.host import engines, platform, services
from gpubind.rules.preflight import Preflight


def _has_cdi(preflight: Preflight) -> bool:
    is_source = any(planned.source.served == "cdi" for planned in preflight.plan.drivers)
    return is_source or any(preflight.host.dev.names(path) for path in (*DIRECTORIES, engines.RUN_CDI))


def _has_gpudirect(preflight: Preflight) -> bool:
    host = preflight.host
    return any(True for name in GPUDIRECT_NODES for _ in requested_nodes(host, name)) or platform.has_storage(host)


def _is_any(*names: str) -> Callable[[Preflight], bool]:
    return lambda preflight: any(preflight.host.variable(name) for name in names)


def _is_of(kind: str) -> Callable[[Preflight], bool]:
    return lambda preflight: preflight.driver is not None and preflight.driver.kind == kind


SUBJECTS: Mapping[str, Callable[[Preflight], bool]] = {
    "cdi": _has_cdi,
    "compat": lambda preflight: preflight.has_image and bool(preflight.image.facts.compat),
    "engines": lambda preflight: bool(engines.installed(preflight)),
    "failure": lambda preflight: False,  # only what failed is reported
    "gpu-variables": _is_any(*GPU_VARIABLES),
    "gpudirect": _has_gpudirect,
    "imex": lambda preflight: preflight.host.dev.has(platform.IMEX_DOMAIN),
    "libc-host": lambda preflight: preflight.plan.request.libc != "image",
    "mig": lambda preflight: any(gpu.mig for gpu in preflight.plan.gpus),
    "mps": lambda preflight: preflight.host.dev.has(mps_directory(preflight.host)),
    "musl": lambda preflight: preflight.has_image and preflight.image.facts.libc_family == "musl",
    "nvswitch": lambda preflight: services.nvswitch(preflight.host) is not None,
    "require": lambda preflight: preflight.has_image and bool(requirements_of(preflight.image.facts.env)),
    "selinux": lambda preflight: preflight.host.dev.has(f"{engines.SELINUX}/enforce"),
    "slurm": _is_any(*SLURM_GPUS),
    "snap": lambda preflight: any(map(preflight.host.dev.has, engines.SNAPS)),
    "tegra": _is_of("tegra"),
    "wsl": _is_of("wsl"),
}
"""Functions that return whether a start has a subject, by the subject's name in `when` of data/findings.json."""
