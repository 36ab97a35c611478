"""The GPUs that a container of an engine requests, by its config.json. Pure.

Sources: nvidia-container-toolkit 1.20 `internal/config/image` (cuda_image.go: annotations, then mounts, then
variables; devices.go; privileged.go), `internal/info/auto.go`, `cmd/nvidia-container-runtime-hook` (MIG as a whole only
for privileged containers); moby `daemon/devices_nvidia_linux.go` and `devices_amd_linux.go`: `--gpus` and `gpus` of
Compose become the same variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from posixpath import normpath
from typing import Any, Optional

from gpubind.errors import UsageError
from gpubind.formats.archive.bundle import Bundle
from gpubind.formats.driver.engines import REQUEST_MOUNTS, TOOLKIT_FILE, RequestPolicy
from gpubind.formats.driver.gpu_names import AMD_VISIBLE_DEVICES, CAPS_VARIABLE, NVIDIA_VISIBLE_DEVICES
from gpubind.host.base import GPUDIRECT_VARIABLES, MIG_VARIABLES, REQUIRE_JETPACK
from gpubind.launch.wrap.gpus import (
    GpuRequest,
    assignment,
    capabilities_of,
    cdi_device,
    cdi_gpu,
    is_void,
    request_of_cdi,
    request_of_visible,
)
from gpubind.model import CAPABILITIES, Capability
from gpubind.runtimes.bundles import HOOKS

PREFIX = "cdi.k8s.io/"
"""The prefix of annotations with the names of CDI devices."""
_PLANNED = ("NVIDIA_IMEX_CHANNELS", REQUIRE_JETPACK, *GPUDIRECT_VARIABLES, *MIG_VARIABLES)
_LEGACY, _REQUIRE = "CUDA_VERSION", "NVIDIA_REQUIRE_CUDA"


def requested_gpus(bundle: Bundle, read_policy: Callable[[], RequestPolicy]) -> Optional[GpuRequest]:
    """Return the request of *bundle*, if it has one. *read_policy* returns what the site grants.

    Annotations take precedence over mounts, and mounts over variables. Errors: `UsageError` (code `wrap-gpus`), those
    of *read_policy*.
    """
    env = bundle.variables
    nvidia = _by_annotations(bundle.annotations or {}) or _by_site(bundle, env, read_policy)
    value = env.get(AMD_VISIBLE_DEVICES, "")
    chosen_by = assignment(AMD_VISIBLE_DEVICES, value)
    amd = None if is_void(value, "amd") else request_of_visible(value, "amd")._replace(chosen_by=chosen_by)
    requests = [candidate for candidate in (nvidia, amd) if candidate is not None and candidate.gpus != "none"]
    if len(requests) > 1 and any(candidate.gpus != "all" for candidate in requests):
        variables = " and ".join(f"`{candidate.chosen_by}`" for candidate in requests)
        hint = "set one of them to `void`"
        raise UsageError("wrap-gpus", f"{variables} choose GPUs of two vendors", hint=hint)
    request = requests[0] if requests else nvidia or amd
    if request is None or nvidia is None:
        return request
    if len(requests) > 1:
        request = request._replace(vendors=("nvidia", "amd"))
    name = next((name for name in MIG_VARIABLES if env.get(name)), None)
    if name is not None and not _is_privileged(bundle):  # rights over all of MIG
        problem, why = f"`{assignment(name, env[name])}` is not granted", "the container lacks CAP_SYS_ADMIN"
        raise UsageError("wrap-gpus", problem, why=why, hint="start it with --privileged, or leave the variable out")
    return request._replace(caps=_capabilities(env, read_policy().capabilities))


def _capabilities(env: Mapping[str, str], granted: Optional[tuple[str, ...]]) -> Optional[tuple[Capability, ...]]:
    """Return the requested capabilities, limited to *granted* of the site; None for the default of a plan.

    Errors: `UsageError` (code `wrap-gpus`) for an unknown capability, or one that is not granted.
    """
    text = env.get(CAPS_VARIABLE, "")
    is_legacy = _is_legacy(env) and CAPS_VARIABLE not in env
    caps = CAPABILITIES if is_legacy else capabilities_of(text, assignment(CAPS_VARIABLE, text))
    if granted is None or set(granted).issuperset(CAPABILITIES):
        return caps
    refused = [cap for cap in caps or () if cap not in granted]
    if refused and caps != CAPABILITIES:
        problem = f"`{assignment(CAPS_VARIABLE, text)}` is not granted"
        why = f"{TOOLKIT_FILE} grants {', '.join(granted)}"
        raise UsageError("wrap-gpus", problem, why=why, hint=f"leave out {', '.join(refused)}")
    return tuple(cap for cap in caps or CAPABILITIES if cap in granted and (caps is not None or cap != "compat32"))


def is_dockers(bundle: Bundle) -> bool:
    """Return whether docker's own option requests the GPUs: it adds NVIDIA's hook, also where the GPUs are AMD's."""
    return any(hook.name in HOOKS for hook in bundle.prestart)


def variables_of(bundle: Bundle) -> dict[str, str]:
    """Return the variables of the container that a plan reads."""
    env = bundle.variables
    return {name: env[name] for name in _PLANNED if name in env}


def _by_annotations(annotations: Mapping[str, Any]) -> Optional[GpuRequest]:
    """Return the request of annotations that name only CDI devices. Other devices are left to the engine."""
    keys = sorted(key for key in annotations if key.startswith(PREFIX))
    names = [name for key in keys for name in str(annotations[key]).split(",")]
    if not names or not all(map(cdi_device, names)):
        return None
    gpus = tuple(dict.fromkeys(name for name in names if cdi_gpu(name) is not None))
    return request_of_cdi(gpus)._replace(chosen_by=", ".join(keys)) if gpus else None


def _by_site(bundle: Bundle, env: Mapping[str, str], read_policy: Callable[[], RequestPolicy]) -> Optional[GpuRequest]:
    mounted = list(dict.fromkeys(_mounted(bundle)))
    names = [name for name in env if name == NVIDIA_VISIBLE_DEVICES or name.startswith("DOCKER_RESOURCE_")]
    if not (mounted or names or _is_legacy(env)):
        return None
    policy = read_policy()
    if mounted and policy.by_mounts:
        return _request_of_visible(",".join(mounted), f"mounts below {REQUEST_MOUNTS}")
    if not (policy.by_variable or _is_privileged(bundle)):
        return None
    names = [name for name in policy.variables if name in env] or [NVIDIA_VISIBLE_DEVICES]
    if not any(name in env for name in names):
        return _request_of_visible("all", assignment(_LEGACY, env[_LEGACY])) if _is_legacy(env) else None
    value = ",".join(env.get(name, "") for name in names)
    return _request_of_visible(value, assignment(",".join(names), value))


def _request_of_visible(value: str, chosen_by: str) -> Optional[GpuRequest]:
    return None if is_void(value, "nvidia") else request_of_visible(value, "nvidia")._replace(chosen_by=chosen_by)


def _mounted(bundle: Bundle) -> Iterator[str]:
    """Yield the names of GPUs in the targets of /dev/null mounts, with which Kubernetes device plugins request GPUs."""
    for mount in bundle.mounts:
        path = normpath(mount.destination)
        name = path[len(REQUEST_MOUNTS) :].strip("/")
        if not name or not path.startswith(REQUEST_MOUNTS) or normpath(mount.source or ".") != "/dev/null":
            continue
        if name.startswith("cdi/"):
            name = name[len("cdi/") :]
            yield name if "=" in name else "=".join(("/".join(name.split("/")[:2]), *name.split("/")[2:]))
        elif not name.startswith("imex/"):
            yield name


def _is_legacy(env: Mapping[str, str]) -> bool:
    """Return whether the image has the variables of early CUDA images, which request all GPUs but name none."""
    return bool(env.get(_LEGACY)) and not env.get(_REQUIRE)


def _is_privileged(bundle: Bundle) -> bool:
    capabilities = bundle.process.get("capabilities")
    bounding = capabilities.get("bounding") if isinstance(capabilities, dict) else None
    return isinstance(bounding, list) and "CAP_SYS_ADMIN" in bounding
