"""The options and variables of a command line that request GPUs, and their meaning for gpubind.

A function for each family of runtimes returns a `GpuRequest`; `with_image` completes it by the image's variables.

Sources: Apptainer 1.4.5 and podman 5.4.2, run (`--nvccli` implies `--nv`, `--no-nv` does not cancel it; podman's --gpus
X is --device nvidia.com/gpu=X); docker/cli `opts/gpus.go`; moby `daemon/nvidia_linux.go` (a count means the first GPUs,
and --gpus overrides -e); nerdctl 2.3.5 `pkg/cmd/container/run_gpus.go` (the same for its count); the user guide of
NVIDIA's Container Toolkit for its variables and its names of CDI devices; nvidia-docker 2; ch-run(1) 0.45; the guide of
AMD's Container Toolkit and `internal/oci/oci.go` for AMD_VISIBLE_DEVICES; ROCm's "Running ROCm Docker containers" for
--device=/dev/kfd.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from posixpath import basename
from typing import Optional, Union

from gpubind.errors import FormatError, UsageError
from gpubind.formats.driver.cdi import CdiName, parse_cdi_name
from gpubind.formats.driver.gpu_names import (
    CAPS_VARIABLE,
    TOOLKIT_VARIABLES,
    parse_gpu_id,
    split_amd_visible,
    split_nvidia_visible,
)
from gpubind.frozen import NamedTuple
from gpubind.model import CAPABILITIES, VENDORS, Capability, Vendor
from gpubind.model.vendors import CDI_KINDS
from gpubind.runtimes.apptainer.options import user_option_values
from gpubind.runtimes.cmdline.reader import ParsedCommandLine, ParsedOption, argument_location
from gpubind.runtimes.cmdline.values import parse_assignment, parse_bool, parse_list

_VENDOR_OF: dict[str, Vendor] = {"nv": "nvidia", "nvccli": "nvidia", "rocm": "amd"}
SWITCHES = tuple(_VENDOR_OF)
"""Apptainer's and SingularityCE's flags for GPUs."""
_COUNT_LIMIT = 1024
SHOWN = 80
"""The most characters of a value that a message repeats."""
_RUNTIMES: Mapping[Vendor, re.Pattern[str]] = {
    "nvidia": re.compile(r"nvidia(-container-runtime(\.(cdi|legacy|experimental))?|-cdi|-legacy|-experimental)?"),
    "amd": re.compile(r"amd(-container-runtime)?"),
}
_KFD, _DRI = "/dev/kfd", "/dev/dri"
_NVIDIA_NODE = re.compile(r"/dev/nvidia([0-9]{1,4})", re.ASCII)
_NVIDIACTL = "/dev/nvidiactl"
_RENDER = re.compile(rf"{_DRI}/(renderD[0-9]{{1,9}})", re.ASCII)
_TYPED = re.compile(r"(?:gpu|mig)([0-9]+(?::[0-9]+)?)")
"""Names of CDI devices by `nvidia-ctk cdi generate --device-name-strategy=type-index`."""
_GPU_KINDS: Mapping[str, Vendor] = {
    **{kind: vendor for vendor, kind in CDI_KINDS.items()},
    "runtime.nvidia.com/gpu": "nvidia",
    "management.nvidia.com/gpu": "nvidia",
}


class GpuRequest(NamedTuple):
    """The GPUs that a command line requests."""

    vendors: tuple[Vendor, ...] = ()
    """The vendors of the GPUs; empty for every vendor that is found."""
    gpus: Optional[str] = None
    """A value of `gpubind --gpus`; None if the environment, the image or a CDI spec chooses."""
    caps: Optional[tuple[Capability, ...]] = None
    """The requested capabilities; None if the default or the image chooses."""
    cdi: tuple[str, ...] = ()
    """The names of CDI devices. If `gpus` is None, only a CDI spec says which GPUs they are."""
    flags: tuple[ParsedOption, ...] = ()
    """The options to remove. Variables are not removed, because the command may read them."""
    chosen_by: str = ""
    """The variable that chooses `gpus`, with its value; empty if an option does."""
    by_count: bool = False
    """Whether the line gives a number of GPUs; `gpus` then names the first ones, as docker assigns them."""
    reads_image: bool = False
    """Whether the image's own variables apply, as NVIDIA's toolkit reads them."""
    image_decides: bool = False
    """Whether only the image's variable chooses the GPUs: the line has just `--runtime=nvidia` or `--runtime=amd`."""
    brings_nodes: bool = False
    """Whether the line's own options add the device nodes of the GPUs. They stay, and the line works without a plan."""
    is_requested: bool = True
    """Whether anything requests GPUs; False for a runtime without GPU options."""

    @property
    def is_optional(self) -> bool:
        """Whether the line also works without a plan, and starts unchanged if there is none."""
        return self.brings_nodes or not self.is_requested


def is_gpu_flag(family: str, option: ParsedOption) -> bool:
    """Return whether *option* requests GPUs from a runtime of that *family*."""
    if family == "singularity" and option.name in SWITCHES:
        return parse_bool(option.value) is True
    if option.name == "device":
        values = parse_list(option.value) if family in ("singularity", "nerdctl") else (option.value,)
        return any(cdi_gpu(value) for value in values)
    if family in ("docker", "nerdctl", "podman"):
        return option.name == "gpus" or (option.name == "runtime" and _runtime_vendor(option.value) is not None)
    return family == "ch-run" and option.name == "cdi"


def singularity_request(
    program: str, line: ParsedCommandLine, environ: Mapping[str, str], site: Collection[str] = ()
) -> Optional[GpuRequest]:
    """Return the request of an Apptainer or SingularityCE line; None for no GPUs. Errors: as `_devices`.

    *site* has the flags that the site's configuration always adds: only `--no-nv` and `--no-rocm` cancel them.
    """
    options = user_option_values(program, line, environ)
    on = {name for name in SWITCHES if options.has(name)}
    on |= {name for name in site if not options.has(f"no-{name}")}
    device_flags, names = _devices(line.options, lists=True)
    if not on and not names:
        return None
    request = request_of_cdi(names) if names else GpuRequest()
    return request._replace(
        vendors=_ordered({*request.vendors, *(_VENDOR_OF[name] for name in on)}),
        flags=(*(option for option in line.options if option.name in SWITCHES), *device_flags),
    )


def docker_request(
    options: Sequence[ParsedOption], environ: Mapping[str, str], *, nvidia: bool = False
) -> Optional[GpuRequest]:
    """Return the request of `docker run`; None for no GPUs. *nvidia*: whether the program is nvidia-docker.

    Errors: `UsageError` (code `wrap-gpus`) for requests that docker refuses or that a plan does not support.
    """
    flags = [option for option in options if option.name == "gpus"]
    if len(flags) > 1:
        where = argument_location(flags[1].position)
        raise UsageError("wrap-gpus", "--gpus is given twice", where=where, hint="keep one of them")
    env = _environment(options, environ)
    if nvidia and environ.get("NV_GPU", "").strip():
        env.setdefault(TOOLKIT_VARIABLES["nvidia"], ",".join(environ["NV_GPU"].split()))
    return _oci_request(options, [_request_of_docker(option) for option in flags], env, nvidia=nvidia)


def nerdctl_request(options: Sequence[ParsedOption], environ: Mapping[str, str]) -> Optional[GpuRequest]:
    """Return the request of `nerdctl run`, which adds up several --gpus; None for no GPUs.

    Errors: as `docker_request`.
    """
    requests = [_request_of_docker(option) for option in options if option.name == "gpus"]
    return _oci_request(options, requests, _environment(options, environ), has_lists=True)


def podman_request(options: Sequence[ParsedOption], environ: Mapping[str, str]) -> Optional[GpuRequest]:
    """Return the request of `podman run`; None for no GPUs. Errors: as `docker_request`."""
    flags = [option for option in options if option.name == "gpus"]
    names = [name for option in flags for name in parse_list(option.value)]
    for name in names:
        if name != "all" and parse_gpu_id(name) is None:
            hint = 'podman takes `all` or a list of indexes and UUIDs; `"device=..."` is docker\'s'
            problem, where = f"--gpus: podman has no GPU `{name}`", argument_location(flags[0].position)
            raise UsageError("wrap-gpus", problem, where=where, hint=hint)
    # On a host without NVIDIA GPUs, the same options of podman give AMD GPUs.
    requests = [GpuRequest(gpus="all" if "all" in names else ",".join(names))] if names else []
    return _oci_request(options, requests, _environment(options, environ), is_cdi=True)


def _oci_request(
    options: Sequence[ParsedOption],
    requests: Sequence[GpuRequest],
    env: Mapping[str, str],
    *,
    nvidia: bool = False,
    has_lists: bool = False,
    is_cdi: bool = False,
) -> Optional[GpuRequest]:
    """Return the request that docker and podman share: CDI devices, a vendor's runtime, and its variables in *env*.

    *requests* are those of --gpus. These and CDI devices take precedence over variables. *has_lists*: whether a value
    of --device is a list. *is_cdi*: whether --gpus names CDI devices, of which no variable can choose only some.
    """
    runtimes = [option for option in options if option.name == "runtime"]
    vendor = "nvidia" if nvidia else _runtime_vendor(runtimes[-1].value) if runtimes else None
    device_flags, names = _devices(options, lists=has_lists)
    has_part = not (requests or names) if is_cdi else bool(requests) or not names
    requests = [*requests, *([request_of_cdi(names)] if names else [])]
    image_decides, chosen_by = False, ""
    if vendor is not None and not requests:
        visible = env.get(TOOLKIT_VARIABLES[vendor])
        image_decides = visible is None
        if visible is not None and not is_void(visible, vendor):
            requests, chosen_by = [request_of_visible(visible, vendor)], assignment(TOOLKIT_VARIABLES[vendor], visible)
    if not requests and not image_decides:
        return _request_of_nodes(options)
    lists = [request.gpus for request in requests]
    listed = dict.fromkeys(name for gpu_list in lists for name in (gpu_list or "").split(","))
    # The capabilities of --gpus take precedence over the variable.
    caps = next((request.caps for request in requests if request.caps is not None), None)
    if caps is None and has_part:
        value = env.get(CAPS_VARIABLE, "")
        caps = capabilities_of(value, assignment(CAPS_VARIABLE, value))
    vendors = {vendor for request in requests for vendor in request.vendors}
    return GpuRequest(
        vendors=_ordered(vendors | {vendor} if vendor else vendors),
        gpus="all" if "all" in lists else None if None in lists or not lists else ",".join(listed),
        caps=caps,
        cdi=names or tuple(name for request in requests for name in request.cdi),
        flags=(
            *(option for option in options if option.name == "gpus"),
            *(option for option in runtimes if _runtime_vendor(option.value) is not None),
            *device_flags,
        ),
        chosen_by=chosen_by,
        by_count=len(set(lists)) == 1 and requests[0].by_count,
        reads_image=has_part,
        image_decides=image_decides,
    )


def _request_of_nodes(options: Sequence[ParsedOption]) -> Optional[GpuRequest]:
    """Return the request that device nodes make. A node that is renamed in the container requests no GPU.

    AMD's GPUs are requested by /dev/kfd together with /dev/dri or nodes in it, as AMD documents it; NVIDIA's by
    /dev/nvidiactl together with the nodes of GPUs.
    """
    nodes = [option.value.split(":") for option in options if option.name == "device"]
    paths = [path.rstrip("/") for path, *_ in nodes]
    is_renamed = any(target.startswith("/") and target != path for path, *fields in nodes for target in fields)
    renders = dict.fromkeys(match[1] for match in map(_RENDER.fullmatch, paths) if match)
    minors = dict.fromkeys(f"minor:{match[1]}" for match in map(_NVIDIA_NODE.fullmatch, paths) if match)
    is_amds = _KFD in paths and (_DRI in paths or renders)
    is_nvidias = _NVIDIACTL in paths and minors
    if is_renamed or bool(is_amds) == bool(is_nvidias):
        return None
    is_privileged = any(option.name == "privileged" and parse_bool(option.value) for option in options)
    if is_nvidias:
        by = " ".join(f"--device={path}" for path in paths if _NVIDIA_NODE.fullmatch(path))
        return GpuRequest(("nvidia",), "all" if is_privileged else ",".join(minors), chosen_by=by, brings_nodes=True)
    gpus = "all" if _DRI in paths or is_privileged else ",".join(renders)
    return GpuRequest(("amd",), gpus, brings_nodes=True)


def with_image(request: GpuRequest, env: Optional[Mapping[str, str]]) -> Optional[GpuRequest]:
    """Return *request* for an image with the environment *env*; None if it then requests no GPU.

    With only a vendor's runtime, the image's NVIDIA_VISIBLE_DEVICES or AMD_VISIBLE_DEVICES chooses; if the image is
    unknown (*env* is None), all GPUs are chosen. The image's NVIDIA_DRIVER_CAPABILITIES applies if the line names none.
    Errors: `UsageError` (code `wrap-gpus`).
    """
    if not request.reads_image:
        return request
    if request.image_decides:
        vendor = request.vendors[0]
        visible = env.get(TOOLKIT_VARIABLES[vendor], "").strip() if env is not None else "all"
        if is_void(visible, vendor):
            return None
        chosen = request_of_visible(visible, vendor)
        chosen_by = f"{assignment(TOOLKIT_VARIABLES[vendor], visible)} of the image"
        request = request._replace(gpus=chosen.gpus, cdi=chosen.cdi, image_decides=False, chosen_by=chosen_by)
    caps = env.get(CAPS_VARIABLE, "") if env is not None else ""
    if request.caps is None and caps.strip():
        request = request._replace(caps=capabilities_of(caps, f"{assignment(CAPS_VARIABLE, caps)} of the image"))
    return request


def as_written(error: UsageError, request: GpuRequest, runtime: str) -> UsageError:
    """Return *error*, reworded: instead of `--gpus`, it names the options of *request* on *runtime*'s line."""
    if error.code not in ("unknown-gpu", "ambiguous-gpu", "inseparable-gpus"):
        return error
    source = request.chosen_by or " ".join(arg for option in request.flags[:1] for arg in option.args)
    is_unknown = error.code == "unknown-gpu"
    problem = "this host has fewer GPUs" if request.by_count and is_unknown else error.what.partition(": ")[2]
    is_index = is_unknown and all(name.isdigit() for name in (request.gpus or "").split(","))
    why = "" if is_index else error.why  # an index: this is about gpubind's own `--gpus`, which takes no count
    is_podmans = is_index and runtime == "podman" and any(option.name == "gpus" for option in request.flags[:1])
    reads = "podman reads a number as the GPU with that index, and docker as a count; " if is_podmans else ""
    return UsageError(error.code, f"`{source}`: {problem}", why=why, hint=reads + error.hint)


def charliecloud_request(options: Sequence[ParsedOption]) -> GpuRequest:
    """Return the request of ch-run. Errors: `UsageError` (`wrap-gpus`) for --cdi with a file, which is not read."""
    flags = tuple(option for option in options if option.name == "cdi")
    for option in flags:
        if option.value and option.value not in _GPU_KINDS:
            hint = "leave it out, or plan from it: `gpubind exec --source cdi`"
            problem = f"`{' '.join(option.args)}` names a file, or not a kind of GPU"
            raise UsageError("wrap-gpus", problem, where=argument_location(option.position), hint=hint)
    kinds = {option.value for option in flags}
    vendors = tuple(dict.fromkeys(vendor for kind, vendor in _GPU_KINDS.items() if kind in kinds))
    return GpuRequest(() if "" in kinds else vendors, flags=flags, is_requested=bool(flags))


def _runtime_vendor(value: str) -> Optional[Vendor]:
    return next((vendor for vendor, names in _RUNTIMES.items() if names.fullmatch(basename(value))), None)


def cdi_device(text: str) -> Optional[CdiName]:
    """Return *text* as a qualified name of a CDI device; None if it is not one."""
    try:
        return parse_cdi_name(text)
    except FormatError:
        return None


def cdi_gpu(text: str) -> Optional[CdiName]:
    """Return *text* as a qualified name of a CDI device; None if it is not one, or if its kind is not that of a GPU."""
    name = cdi_device(text)
    return name if name is not None and name.kind in _GPU_KINDS else None


def _devices(
    options: Iterable[ParsedOption], *, lists: bool = False
) -> tuple[tuple[ParsedOption, ...], tuple[str, ...]]:
    """Return the --device options that name GPUs by CDI, and those names. *lists*: whether a value is a list.

    Errors: `UsageError` (code `wrap-gpus`) for a list that names both GPUs and other devices, whose option cannot be
    removed.
    """
    flags: list[ParsedOption] = []
    names: list[str] = []
    for option in options:
        values = () if option.name != "device" else parse_list(option.value) if lists else (option.value,)
        cdi_names = [value for value in values if cdi_gpu(value) is not None]
        if cdi_names and len(cdi_names) < len(values):
            problem = f"`{' '.join(option.args)}` names GPUs and other devices"
            where, hint = argument_location(option.position), "give the others an option of their own"
            raise UsageError("wrap-gpus", problem, where=where, hint=hint)
        if cdi_names:
            flags.append(option)
            names += cdi_names
    return tuple(flags), tuple(dict.fromkeys(names))


def request_of_cdi(names: Sequence[str]) -> GpuRequest:
    """Return the request of the CDI devices *names*, by their indexes or UUIDs. Only a spec can resolve other names."""
    cdi_names = [name for name in map(cdi_gpu, names) if name is not None]
    vendors = tuple(dict.fromkeys(_GPU_KINDS[name.kind] for name in cdi_names))
    ids = [_id_of(name.device) for name in cdi_names]
    is_known = set(ids) == {"all"} or (len(vendors) == 1 and None not in ids)
    gpus = None if not is_known else "all" if "all" in ids else ",".join(filter(None, ids))
    return GpuRequest(vendors, gpus, cdi=tuple(names))


def _id_of(device: str) -> Optional[str]:
    """Return a CDI device as a value of `--gpus`, if its name is `all`, an index or a UUID."""
    typed = _TYPED.fullmatch(device)
    text = typed[1] if typed else device
    return text if text == "all" or parse_gpu_id(text) is not None else None


def _request_of_docker(option: ParsedOption) -> GpuRequest:
    fields: dict[str, str] = {}
    for field in parse_list(option.value):
        key, equals, value = field.partition("=")
        key, value = (key, value) if equals else ("count", key)
        if key in fields or key not in ("driver", "count", "device", "capabilities", "options"):
            why = "a key is given twice" if key in fields else f"docker has no key `{key}`"
            raise _bad_gpus(option, why)
        fields[key] = value
    if not fields:
        raise _bad_gpus(option, "it is empty, or not a line of CSV")
    driver = fields.get("driver", "")
    if driver not in ("", "nvidia", "amd", "cdi") or "options" in fields:
        raise _bad_gpus(option, f"gpubind does not support {'options' if 'options' in fields else f'driver={driver}'}")
    keywords = {driver, *fields.get("capabilities", "").split(",")}  # a driver's name is also one of its capabilities
    vendors = tuple(vendor for vendor in _RUNTIMES if vendor in keywords)[:1]
    request = GpuRequest(vendors, "all", capabilities_of(fields.get("capabilities", ""), option))
    if "device" in fields:
        if "count" in fields:
            raise _bad_gpus(option, "it gives both a count and a list of devices")
        names = fields["device"].split(",")
        if any(cdi_gpu(name) for name in names):
            if not all(map(cdi_gpu, names)):
                raise _bad_gpus(option, "some of its devices are CDI's, others are not")
            return request_of_cdi(names)._replace(caps=request.caps)
        return request._replace(gpus=_list(names, option))
    count = fields.get("count", "1")
    if count == "all":
        return request
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", count, re.ASCII) or int(count) > _COUNT_LIMIT:
        raise _bad_gpus(option, f"`{count}` is not a count")
    if int(count) < 0:
        return request
    return request._replace(gpus=",".join(map(str, range(int(count)))) or "none", by_count=True)


def assignment(name: str, value: str) -> str:
    """Return `NAME=VALUE` of the variable *name* for a message, shortened if it is long."""
    return f"{name}={value}" if len(value) <= SHOWN else f"{name}={value[:SHOWN]}..."


def is_void(value: str, vendor: Vendor) -> bool:
    """Return whether *value*, of NVIDIA_VISIBLE_DEVICES or AMD_VISIBLE_DEVICES, requests nothing."""
    return value.strip() in ("", "void") or (vendor == "nvidia" and not split_nvidia_visible(value))


def request_of_visible(value: str, vendor: Vendor) -> GpuRequest:
    """Return the request of NVIDIA_VISIBLE_DEVICES or AMD_VISIBLE_DEVICES with a *value* that names GPUs.

    Errors: `UsageError` (code `wrap-gpus`).
    """
    names = list((split_amd_visible if vendor == "amd" else split_nvidia_visible)(value))
    if names in (["all"], ["none"]):
        return GpuRequest((vendor,), names[0])
    if any(cdi_gpu(name) for name in names) and all(map(cdi_gpu, names)):
        return request_of_cdi(names)
    if vendor == "amd":  # AMD's toolkit ignores unknown GPUs
        return GpuRequest((vendor,), ",".join(names))
    return GpuRequest((vendor,), _list(names, assignment(TOOLKIT_VARIABLES[vendor], value)))


def _list(names: Sequence[str], source: Union[ParsedOption, str]) -> str:
    names = [name.strip() for name in names]
    if "all" in names:
        return "all"
    unknown = [name for name in names if parse_gpu_id(name) is None]
    if unknown:
        raise _bad_gpus(source, f"`{unknown[0][:SHOWN]}` is not the name of a GPU")
    return ",".join(names)


def capabilities_of(text: str, source: Union[ParsedOption, str]) -> Optional[tuple[Capability, ...]]:
    """Return the driver capabilities in *text*; None if it has none.

    `gpu` and the names of vendors are skipped: they are docker's capabilities, not the driver's.
    """
    names = [name.strip() for name in text.split(",") if name.strip() not in ("", "gpu", *_RUNTIMES)]
    if not names:
        return None
    if "all" in names:
        return CAPABILITIES
    unknown = [name for name in names if name not in CAPABILITIES]
    if unknown:
        raise _bad_gpus(source, f"`{unknown[0][:SHOWN]}` is not a capability of the driver")
    return tuple(capability for capability in CAPABILITIES if capability in names)


def _environment(options: Iterable[ParsedOption], environ: Mapping[str, str]) -> dict[str, str]:
    env: dict[str, str] = {}
    for option in options:
        env.update(parse_assignment(option.value, environ) if option.name == "env" else {})
    return env


def _ordered(vendors: Collection[Vendor]) -> tuple[Vendor, ...]:
    return tuple(vendor for vendor in VENDORS if vendor in vendors)


def _bad_gpus(source: Union[ParsedOption, str], why: str) -> UsageError:
    text, where, hint = source, "", "name GPUs by index or UUID, and capabilities as NVIDIA does"
    if isinstance(source, ParsedOption):
        text, where = " ".join(source.args), argument_location(source.position)
        hint = "as docker reads it, a list needs its own quotes: --gpus '\"device=0,1\"'"
    return UsageError("wrap-gpus", f"`{text}` cannot be understood", where=where, why=why, hint=hint)
