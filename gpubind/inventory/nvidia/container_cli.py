"""`nvidia-container-cli list`: the files that NVIDIA's own tool names for a container, and the names of MIG devices.

The locator resolves its names as those of any other source. The program omits links, manifests, libraries without a
version and, if it is older than the driver, some libraries (libnvidia-container `src/nvc_info.c`, `src/cli/list.c`).
Completion adds those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional, Union

from gpubind.errors import FormatError
from gpubind.formats.driver.gpu_names import CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES, parse_gpu_id, split_visible
from gpubind.formats.driver.kernel import PROC_CAPABILITIES
from gpubind.formats.driver.nvidia import PROGRAM, list_argv, parse_failure, parse_list
from gpubind.host import Host
from gpubind.inventory.claims import Claim, SourceResult
from gpubind.model import Finding, MigName, MigNode, Missing, PassedOver, Request, finding

SOURCE = PROGRAM
AT = "list"
MIG_VARIABLES = (CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES)
NAMES_LIMIT = 64
_ACCESS = rf"{PROC_CAPABILITIES}/gpu([0-9]{{1,6}})/mig/gi([0-9]{{1,6}})/ci([0-9]{{1,6}})/access"
_CASES = {"absent": "absent", "unreadable": "silent"}
TIMEOUT_S = 30.0  # the program waits 10 s for the driver, and starting GPUs without persistence mode takes seconds


def list_files(host: Host) -> Union[SourceResult, PassedOver]:
    """Return the claims of `nvidia-container-cli list` on *host*, or the reason why it does not serve; never raise.

    Codes of `PassedOver`: `absent`, `forbidden` (not safe to run as root), `unreadable` (it hung, or could not be run),
    `<class>-error` with the program's own class of error, `failed`, `bad-nvidia-cli`, `no-library`.
    """
    argv = list_argv(host.driver.root)
    answer = host.run(argv, TIMEOUT_S)
    if isinstance(answer, Missing):
        # One text for records and live hosts, so that both give the same plan.
        absent = answer.why == "absent"
        return PassedOver(SOURCE, answer.why, f"there is no `{PROGRAM}` to ask" if absent else answer.detail)
    if answer.status != 0:
        code, message = parse_failure(answer.stderr)
        return PassedOver(SOURCE, code, f"`{PROGRAM} list` ended with {answer.status}: {message}")
    try:
        listed = parse_list(answer.stdout)
    except FormatError as error:
        return PassedOver(SOURCE, error.code, f"{error.place}: {error.why}")

    if not any(host.driver.lenient.has(path) for path in listed.libraries):
        count = len(listed.libraries)
        why = f"none of the {count} libraries that it printed is on this host" if count else "it printed no library"
        return PassedOver(SOURCE, "no-library", why)
    shown = "the kernel shows it in a container's own /proc"
    claims = (
        *(Claim("library-file", path, SOURCE, AT) for path in listed.libraries),
        *(Claim("file", path, SOURCE, AT) for path in (*listed.others, *listed.firmware)),
        *(Claim("device", path, SOURCE, AT) for path in listed.devices),
        *(Claim("device", path, SOURCE, AT, host_only_reason=shown) for path in listed.procs),
    )
    return SourceResult(SOURCE, " ".join(argv), claims)


def source_failed_finding(passed: PassedOver, instead: str, root: str) -> Finding:
    """Return the finding about a source that does not serve, although it was requested by name or should answer."""
    import shlex

    program, *arguments = list_argv(root)
    return finding(
        "source-failed",
        case="cdi" if passed.source != SOURCE else _CASES.get(passed.code, "failed"),
        subject=passed.source,
        instead=instead,
        failure=passed.code,
        why=passed.why,
        command=shlex.join((program, "--debug=/dev/stderr", *arguments)),
    )


def find_mig_names(host: Host, request: Request, mig_nodes: Iterable[MigNode], *, use_cli: bool) -> tuple[MigName, ...]:
    """Return the MIG devices that *request*, or else the environment, names by UUID or number. No file has these names.

    `nvidia-container-cli` resolves the names if it may run (*use_cli*), else the CDI specs of *host* that have one of
    *mig_nodes*. A name that is unknown or ambiguous is left out.
    """
    values = (request.gpus,) if request.gpus is not None else (host.variable(name) for name in MIG_VARIABLES)
    tokens = (token for value in values if ":" in value or "MIG-" in value.upper() for token in split_visible(value))
    ids = ((token, parse_gpu_id(token)) for token in tokens)
    meant = (token for token, gpu_id in ids if gpu_id is not None and gpu_id.spelling in ("mig-uuid", "mig-index"))
    names = list(dict.fromkeys(meant))[:NAMES_LIMIT]
    mig_names = {name: part for name in names if use_cli and (part := _query_mig_name(host, name)) is not None}
    unknown = [name for name in names if name not in mig_names]
    if unknown:
        mig_names.update(_mig_names_in_specs(host, request, unknown, mig_nodes))
    return tuple(mig_names[name] for name in names if name in mig_names)


def _query_mig_name(host: Host, name: str) -> Optional[MigName]:
    """Return the answer of `nvidia-container-cli` for one *name*: with several, an unknown one would fail all."""
    answer = host.run((*list_argv(host.driver.root), f"--device={name}"), TIMEOUT_S)
    if isinstance(answer, Missing) or answer.status != 0:
        return None
    try:
        matches = [re.fullmatch(_ACCESS, path, re.ASCII) for path in parse_list(answer.stdout).procs]
    except FormatError:
        return None
    parts = [tuple(map(int, match.groups())) for match in matches if match]
    return MigName(name, *parts[0]) if len(parts) == 1 else None


def _mig_names_in_specs(
    host: Host, request: Request, names: list[str], mig_nodes: Iterable[MigNode]
) -> dict[str, MigName]:
    from gpubind.inventory.cdi.specs import NVIDIA, read_registry  # few users name MIG devices

    devices = read_registry(host.lenient, request.cdi_directories).devices
    mig_names: dict[str, MigName] = {}
    for name in names:
        entry = devices.get(f"{NVIDIA}={name}")
        paths = [node.path for node in entry[1].edits.nodes] if entry else []
        parts = [(at.minor, at.gi, at.ci) for at in mig_nodes if at.ci is not None and at.target in paths]
        if len(parts) == 1:
            mig_names[name] = MigName(name, *parts[0])
    return mig_names
