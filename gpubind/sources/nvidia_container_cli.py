"""`nvidia-container-cli list` as a source of names: what NVIDIA's own tool says that a container needs.

It names; which file a name is, and what else belongs to it, is decided as for every other source. It knows no links, no
manifests, no libraries that carry no version, and, where it is older than the driver, not all libraries
(libnvidia-container `src/nvc_info.c`); so completion adds those.
"""

from __future__ import annotations

from typing import Optional, Union

from gpubind.errors import FormatError
from gpubind.formats.nvidia_cli import PROGRAM, list_argv, parse_failure, parse_list
from gpubind.host import Host
from gpubind.model import Decision, Finding, Missing, PassedOver, Verdict
from gpubind.sources.printed import Printed, decision, present

SOURCE = PROGRAM
AT = "list"
TIMEOUT_S = 30.0  # the program itself gives the driver 10 s, and starting GPUs without persistence mode takes seconds


def ask(host: Host) -> Union[Printed, PassedOver]:
    """What `nvidia-container-cli list` names on *host*; or why it does not serve. It never raises.

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

    decisions: list[Decision] = []
    libraries = dict.fromkeys(present(host.driver, SOURCE, AT, listed.libraries, decisions).values())
    if not libraries:
        count = len(listed.libraries)
        why = f"none of the {count} libraries that it printed is on this host" if count else "it printed no library"
        return PassedOver(SOURCE, "no-library", why)
    others = dict.fromkeys(present(host.driver, SOURCE, AT, (*listed.others, *listed.firmware), decisions).values())
    devices = tuple(present(host.dev, SOURCE, AT, listed.devices, decisions))
    shown = "the kernel shows it in a container's own /proc"
    for path in present(host.dev, SOURCE, AT, listed.procs, decisions):
        decisions.append(decision(SOURCE, AT, path, "left-out", "host-only", path, shown))
    return Printed(SOURCE, AT, " ".join(argv), tuple(libraries), tuple(others), devices, tuple(decisions))


def decision_about(passed: PassedOver) -> Decision:
    """The Decision about a source that does not serve."""
    verdict: Verdict = "absent" if passed.code == "absent" else "rejected"
    detail = f"{passed.code}: {passed.why}"
    return Decision("nvidia", passed.source, verdict, "passed-over", "name", None, None, None, None, None, detail)


def finding_about(passed: PassedOver, instead: str, root: str) -> Finding:
    """The finding about a source that was asked for by name and does not serve."""
    import shlex

    hint = "install libnvidia-container-tools, or leave --source out"
    if passed.source != SOURCE:
        hint = "name the directory of the specs with --cdi-dir, or leave --source out"
        return _failed(passed, instead, hint, None)
    program, *arguments = list_argv(root)
    if passed.code == "absent":
        return _failed(passed, instead, hint, None)
    command = shlex.join((program, "--debug=/dev/stderr", *arguments))
    return _failed(passed, instead, "the program itself says more", command)


def _failed(passed: PassedOver, instead: str, hint: str, command: Optional[str]) -> Finding:
    what = f"the source that was asked for does not serve; {instead} takes its place"
    why = f"{passed.code}: {passed.why}"
    return Finding("source-failed", "warning", "nvidia", passed.source, what, None, why, hint, command)
