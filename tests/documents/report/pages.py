"""Reports whose pages the tests read and open."""

from __future__ import annotations

from typing import Optional

from gpubind.image.facts import Image
from gpubind.launch.preflight import make_preflight
from gpubind.loader.linkage import LinkUse
from gpubind.model import ContainerPath, Finding, HostPath, Request
from gpubind.planner.planning import PlanQuery
from gpubind.rules.linkage import linkage_of
from gpubind.rules.outcome import Checked, Report, checked_in, make_report
from gpubind.rules.table import check
from tests.support.driver import V, host, kernel, rhel
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.trees import File, Spec

LOADER = "/lib64/ld-linux-x86-64.so.2"
IMAGE = image(
    glibc("2.36"),
    {"/opt/app": File(elf(kind=2, needed=("libcuda.so.1", "libgone.so"), interpreter=LOADER), 0o755)},
)
NEWER: Spec = {
    f"/usr/lib64/libnvidia-ml.so.{V}": elf(
        "libnvidia-ml.so.1", needed=("libc.so.6",), needs={"libc.so.6": ("GLIBC_2.38",)}
    )
}

HOSTILE = (
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    "<!--",
    "-->]]></svg></title><svg onload=window.hacked=1>",
    '"><b onmouseover="window.hacked=1">',
    "{{ 7 * 7 }}{% raise %}",
    "a\x1b[31m\x07b",
    "a\u202egnp.so",
    "a\u2028b",
    "a\nb",
    "\udcff\udc80",
    "' onfocus='window.hacked=1' autofocus='",
    "&lt;b&gt;",
)
"""Names of files that a page must not take for anything else."""


def made(opened: Optional[Image], program: Optional[str], *parts: Spec) -> Report:
    """The report of a check on a small host with *parts*."""
    start = make_preflight(host(rhel(), kernel(), *parts), PlanQuery(Request(), None), opened, program=program)
    named = {"host": "gpu7", "image": "app.sif" if opened is not None else None, "program": program}
    rules = [("uvm-missing", "host")]
    checked = checked_in(opened, **named)
    return make_report(start.plan, check(start), {}, rules, checked=checked)._replace(linked=linkage_of(start))


REPORT = made(IMAGE, "/opt/app", NEWER)


def hostile_report(name: str) -> Report:
    """A report in which *name* is that of everything: a host, an image, a file, a library, a finding."""
    plan = REPORT.plan
    assert plan is not None
    first = plan.mounts[0]
    mount = first._replace(source=HostPath(f"/lib/{name}"), target=ContainerPath(f"/libs/{name}"), rule=name)
    gpu = plan.gpus[0]._replace(model=name, uuid=name)
    variable = plan.env[0]._replace(value=name)
    plan = plan._replace(mounts=(mount, *plan.mounts[1:]), gpus=(gpu, *plan.gpus[1:]), env=(variable, *plan.env[1:]))
    finding = Finding("library-missing", "error", None, name, name, name, name, name, f"echo '{name}'".split("\n")[0])
    linked = (REPORT.linked[0]._replace(path=mount.target, uses=(LinkUse(name, None, "missing", (name,)),)),)
    checked = Checked(host=name, image=name, program=name)
    return Report(plan, (finding,), ((finding, name),), (), checked, (finding,), linked)
