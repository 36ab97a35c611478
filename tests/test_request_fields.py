"""Each field of `Request` changes what each consumer does, or is refused by it: none is ignored in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import gpubind
from gpubind import Request
from gpubind.cli.commands import command_of
from gpubind.cli.options import _plan_options, query_of
from gpubind.cli.reader import read_line
from gpubind.errors import UsageError
from gpubind.host import Host
from gpubind.image.facts import Image
from gpubind.launch.start import prepare_start
from gpubind.launch.target import StartRequest, StartTarget
from gpubind.launch.wrap.gpus import GpuRequest
from gpubind.launch.wrap.start import prepare_gpus
from gpubind.model import Plan
from gpubind.planner.planning import PlanQuery
from gpubind.runtimes import RUNTIMES
from tests.support.amd import mi300x
from tests.support.changes import CDI
from tests.support.commands import gpubind as gpubind_command
from tests.support.driver import V, host, kernel, rhel
from tests.support.elf import elf
from tests.support.golden import assert_listed
from tests.support.images import glibc, image

HERE = "tests/test_request_fields.py"


class Field(NamedTuple):
    """Two requests that differ in one field, and the option of the second."""

    other: Any
    option: tuple[str, ...]
    request: Request = Request()
    host: Callable[[], Host] = lambda: NVIDIAS


NVIDIAS: Host = host(
    rhel(V),
    kernel(V),
    {
        f"/usr/lib64/libnvidia-of-no-list.so.{V}": elf("libnvidia-of-no-list.so.1"),
        f"/opt/more/libnvidia-opticalflow.so.{V}": elf("libnvidia-opticalflow.so.1"),
        "/etc/cdi/a.json": CDI.replace("NUMBER", "1"),
        "/srv/cdi/a.json": CDI.replace("NUMBER", "2"),
    },
    environ={"PATH": "/usr/bin"},
)
FIELDS: dict[str, Field] = {
    "vendors": Field(("nvidia", "amd"), ("--nv", "--rocm")),
    "caps": Field(("utility",), ("--caps=utility",)),
    "source": Field("driver", ("--source=driver",)),
    "completion": Field(False, ("--no-completion",)),
    "library_path": Field(("/opt/more",), ("--library-path=/opt/more",)),
    "like": Field("apptainer-1.5", ("--like=apptainer-1.5",), Request(like="apptainer-1.6")),
    "libdir": Field("/opt/libs", ("--libdir=/opt/libs",)),
    "vendor_neutral": Field("host", ("--vendor-neutral=host",), host=lambda: gpubind.open_host("debian13-nvidia550")),
    "gpus": Field("0", ("--gpus=0",)),
    "cdi_directories": Field(("/srv/cdi",), ("--cdi-dir=/srv/cdi",), Request(source="cdi")),
    "cdi_devices": Field(("nvidia.com/gpu=all",), ("--cdi-device=nvidia.com/gpu=all",)),
    "userspace": Field("image", ("--userspace=image",), host=mi300x),
    "cuda_compat": Field("image", ("--cuda-compat=image",)),
    "libc": Field("host", ("--libc=host",)),
}
HONOURED = "vendors", "like"
LIKE = {field: "like-with-option" for field in FIELDS if field not in HONOURED}
START = {"like": "like-in-words"}


def _other(field: str) -> Request:
    return FIELDS[field].request._replace(**{field: FIELDS[field].other})


@pytest.fixture(scope="module")
def opened() -> Image:
    return image(glibc("2.36"))


def _plan(on: Host, request: Request, image: Image) -> Plan:
    return gpubind.plan(on, request, image=image)


def _target(on: Host, request: Request, image: Image) -> tuple[StartRequest, StartTarget]:
    asked = StartRequest(lambda: on, PlanQuery(request), on.environ, elsewhere=True, dry_run=True)
    return asked, StartTarget(RUNTIMES["bwrap"], "bwrap", on, image)


def _start(on: Host, request: Request, image: Image) -> Plan:
    return prepare_start(*_target(on, request, image)).plan


def _wrap(on: Host, request: Request, image: Image) -> Plan:
    return prepare_gpus(*_target(on, request, image), GpuRequest())[1].plan


def _like(on: Host, request: Request, image: Image) -> Plan:
    return gpubind.plan(on, request._replace(like=request.like or "apptainer-1.4"))


CONSUMERS: dict[str, tuple[Callable[[Host, Request, Image], Plan], dict[str, str]]] = {
    "a plan": (_plan, {}),
    "a plan with --like": (_like, LIKE),
    "a start": (_start, START),
    "wrap": (_wrap, START),
}
"""How each makes a plan, and the codes by which it refuses fields."""


def test_each_field_is_tried() -> None:
    assert_listed(
        FIELDS,
        Request._fields,
        add=f"{HERE}: add `{{}}` to FIELDS: two requests that differ in it, and whose plans differ",
        remove=f"{HERE}: remove `{{}}` from FIELDS: `Request` does not have it",
    )


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_field_changes_the_answer_or_is_refused(consumer: str, field: str, opened: Image) -> None:
    ask, refused = CONSUMERS[consumer]
    on, requests = FIELDS[field].host(), (FIELDS[field].request, _other(field))
    if field in refused:
        with pytest.raises(UsageError) as caught:
            ask(on, requests[1], opened)
        assert caught.value.code == refused[field]
        return
    before, after = (ask(on, request, opened).to_dict() for request in requests)
    del before["request"], after["request"]
    assert before != after, f"{consumer} ignores `{field}`: honour or refuse it, or correct FIELDS in {HERE}"


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_has_an_option_that_changes_it_alone(field: str) -> None:
    made = _read(*FIELDS[field].option)
    assert made == _read()._replace(**{field: getattr(made, field)}), (
        "correct `field` of options in gpubind/cli/declarations.py"
    )
    assert made != _read(), f'gpubind/cli/declarations.py: `field="{field}"` for the option that sets it'


def _read(*words: str) -> Request:
    line = read_line(command_of("plan"), words, {})
    return query_of(_plan_options(line.values, line.origins), line.values["like"]).request


def test_what_a_site_sets_for_gpubinds_own_plan_is_not_asked_of_another_program() -> None:
    words = ("plan", "--host", "debian13-nvidia550", "--like", "apptainer", "--json")
    environ = {"GPUBIND_GPUS": "0", "GPUBIND_LIST": "/nonexistent", "GPUBIND_LIBRARY_PATH": "/opt/more"}
    assert gpubind_command(*words, env=environ).stdout == gpubind_command(*words).stdout
    refused = gpubind_command(*words, "--list", "/nonexistent")
    assert refused.stderr.startswith("error: like-with-option: --list cannot be used with --like apptainer\n")


def test_diff_gives_options_to_gpubinds_own_plan_and_refuses_them_where_none_is_compared() -> None:
    host, caps = "debian13-nvidia550", "--caps=utility"
    both = gpubind_command("diff", "--like", "apptainer", caps, host)
    assert (both.returncode, "libcuda.so.1" in both.stdout) == (1, True)
    others = gpubind_command("diff", "--like", "apptainer", "--like", "singularity", caps, host)
    assert others.stderr.startswith("error: like-with-option: --caps cannot be used with --like apptainer\n")
