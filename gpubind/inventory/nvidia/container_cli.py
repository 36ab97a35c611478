"""`nvidia-container-cli list` as a source: the names that NVIDIA's own tool prints for a container.

It names; which file a name is, and what else belongs to it, is decided as for every other source. It knows no links, no
manifests, no libraries that carry no version, and, where it is older than the driver, not all libraries
(libnvidia-container `src/nvc_info.c`); so completion adds those.
"""

from __future__ import annotations

from typing import Union

from gpubind.errors import FormatError
from gpubind.formats.driver.nvidia_cli import PROGRAM, list_argv, parse_failure, parse_list
from gpubind.host import Host
from gpubind.inventory.claims import Claim, Serving
from gpubind.model import Decision, Finding, Missing, PassedOver, Verdict
from gpubind.model.findings import finding

SOURCE = PROGRAM
AT = "list"
_CASES = {"absent": "absent", "unreadable": "silent"}
TIMEOUT_S = 30.0  # the program itself gives the driver 10 s, and starting GPUs without persistence mode takes seconds


def claims(host: Host) -> Union[Serving, PassedOver]:
    """Return what `nvidia-container-cli list` names on *host*; or why it does not serve. It never raises.

    Codes of `PassedOver`: `absent`, `forbidden` (not safe to run as root), `unreadable` (it hung, or could not be run),
    `<class>-error` with the program's own class of error, `failed`, `bad-nvidia-cli`, `no-library`.
    """
    argv = list_argv(host.driver.root)
    answer = host.run(argv, TIMEOUT_S)
    if isinstance(answer, Missing):
        # A record says the same of a program that is not there as the live host does: the same plan.
        absent = answer.why == "absent"
        return PassedOver(SOURCE, answer.why, f"there is no `{PROGRAM}` to ask" if absent else answer.detail)
    if answer.status != 0:
        failure = parse_failure(answer.stderr)
        code = f"{failure.error_class}-error" if failure.error_class else "failed"
        return PassedOver(SOURCE, code, f"`{PROGRAM} list` ended with {answer.status}: {failure.message}")
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
        *(Claim("device", path, SOURCE, AT, stays=shown) for path in listed.procs),
    )
    return Serving(SOURCE, " ".join(argv), claims)


def decision_about(passed: PassedOver) -> Decision:
    """Return the Decision about a source that does not serve."""
    verdict: Verdict = "absent" if passed.code == "absent" else "rejected"
    return Decision("nvidia", passed.source, verdict, "passed-over", "name", detail=f"{passed.code}: {passed.why}")


def finding_about(passed: PassedOver, instead: str, root: str) -> Finding:
    """Return the finding about a source that was requested by name, or gave no answer, and does not serve."""
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
