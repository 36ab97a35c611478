"""A plan as what a TaskProlog prints: read as slurmstepd reads it, with the user's own variables kept."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpubind import plan
from gpubind.documents.modules import LINE_LENGTH, render_taskprolog
from gpubind.errors import RuntimeLimitError
from gpubind.model import EnvVar, Finding, HostPath, Request
from gpubind.planner.placement import SINGULARITY_LAYOUT
from tests.documents.printed import HOST, PLAN, after_exports, printed
from tests.support.hostile_names import HOSTILE, IN_A_LIST, UNSAYABLE


def after(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """*environ* once slurmstepd has done the lines of *text*, none of which it cuts."""
    made = dict(environ)
    for line in text.encode().split(b"\n")[:-1]:
        assert len(line) + 1 <= 4096 - 2
        word, _, rest = line.decode().partition(" ")
        if word == "export":
            name, _, value = rest.partition("=")
            made[name] = value
        elif word == "unset":
            del made[rest]
        else:
            assert word == "print"
    return made


OWN = "/.singularity.d/libs:${LD_LIBRARY_PATH:-/.singularity.d/libs}"


@pytest.mark.parametrize("program", ["apptainer"])
@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"APPTAINER_NV": "1", "SINGULARITY_ROCM": "1"},
        {"APPTAINER_BIND": "/mine:/there", "APPTAINERENV_LD_LIBRARY_PATH": "/my/lib"},
        {"SINGULARITY_BIND": "/mine:/there", "SINGULARITYENV_LD_LIBRARY_PATH": "/my/lib"},
        {"APPTAINERENV_LD_LIBRARY_PATH": "/my/lib:$LD_LIBRARY_PATH"},
        {"APPTAINERENV_LD_LIBRARY_PATH": f"/my/lib:{OWN}"},
        {"APPTAINERENV_LD_LIBRARY_PATH": "/a:${LD_LIBRARY_PATH}:/b"},
    ],
    ids=str,
)
def test_a_task_gets_what_the_lines_for_a_shell_give(program: str, environ: dict[str, str]) -> None:
    item = printed(program=program)
    once = after(render_taskprolog(item, environ), environ)
    assert once == after_exports(environ, item)
    assert after(render_taskprolog(item, once), once) == once


def test_a_task_that_has_it_all_gets_no_line() -> None:
    item = printed()
    once = after(render_taskprolog(item, {}), {})
    assert render_taskprolog(item, once) == ""


def test_an_error_is_told_in_the_tasks_output_for_there_is_no_other_place() -> None:
    error = Finding("no-libcuda", "error", "nvidia", "libcuda.so.1", "it is\nmissing")
    lines = render_taskprolog(printed(PLAN._replace(findings=(error,))), {}).splitlines()
    assert lines[-1] == "print gpubind: error: no-libcuda: it is\\x0amissing"


@pytest.mark.parametrize("name", IN_A_LIST)
def test_a_hostile_name_arrives(name: str) -> None:
    binary = next(mount for mount in PLAN.mounts if mount.kind == "binary")
    mounts = (binary._replace(source=HostPath(f"/{name}/x"), content=None),)
    item = printed(PLAN._replace(mounts=mounts))
    got = after(render_taskprolog(item, {}), {})
    assert got == after_exports({}, item)
    assert any(f"/{name}/x" in value for value in got.values())


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_arrives(value: str) -> None:
    item = printed(PLAN._replace(env=(EnvVar("A", "set", value, None, "cdi"),)))
    assert after(render_taskprolog(item, {}), {}) == after_exports({}, item)


@pytest.mark.parametrize("name", [*UNSAYABLE, *(name for name in HOSTILE if name not in IN_A_LIST)])
def test_a_name_that_cannot_be_said_is_refused_by_name(name: str) -> None:
    mounts = (PLAN.mounts[0]._replace(source=HostPath(f"/{name}"), content=None),)
    with pytest.raises(RuntimeLimitError) as caught:
        render_taskprolog(printed(PLAN._replace(mounts=mounts)), {})
    assert (caught.value.code, caught.value.where) == ("unsupported-path", f"/{name}")


def test_a_line_that_slurm_would_cut_is_refused_and_one_that_just_fits_is_not() -> None:
    made = plan(HOST, Request(caps=("utility",)), layout=SINGULARITY_LAYOUT._replace(isolated=False))
    head = len("export APPTAINERENV_A=") + 1
    fits = printed(made._replace(env=(EnvVar("A", "set", "x" * (LINE_LENGTH - head), None, "cdi"),)))
    assert after(render_taskprolog(fits, {}), {})["APPTAINERENV_A"] == "x" * (LINE_LENGTH - head)
    long = printed(made._replace(env=(EnvVar("A", "set", "x" * (LINE_LENGTH - head + 1), None, "cdi"),)))
    with pytest.raises(RuntimeLimitError) as caught:
        render_taskprolog(long, {})
    assert (caught.value.code, caught.value.where) == ("long-line", "APPTAINERENV_A")
