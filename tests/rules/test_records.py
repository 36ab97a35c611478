"""A record answers whatever a plan or a check may ask of the host that it was made of."""

from __future__ import annotations

from typing import Any

import pytest

from gpubind import open_host, plan
from gpubind.errors import NothingToBindError
from gpubind.host import Host
from gpubind.host.record import dump_record, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.model import CAPABILITIES, Finding, Plan, Request
from gpubind.model.data import BUNDLED_HOSTS
from gpubind.rules.preflight import preflight
from gpubind.rules.table import check
from tests.support import intel
from tests.support.amd import debian as amds_debian
from tests.support.amd import kernel as amds_kernel
from tests.support.amd import opt
from tests.support.driver import debian, host, kernel, rhel, ubuntu
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.surveys import survey
from tests.support.trees import Spec

VENDORS: tuple[tuple[str, ...], ...] = ((), ("nvidia",), ("amd",), ("intel",), ("nvidia", "amd", "intel"))
INCLUDES: Spec = {
    "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\ninclude /opt/site/ld.conf\n",
    "/etc/ld.so.conf.d/libc.conf": "/usr/local/lib\n",
    "/opt/site/ld.conf": "/opt/site/lib\n",
    "/opt/site/lib/libsite.so.1": elf("libsite.so.1"),
    "/usr/local/lib/libmine.so.1": elf("libmine.so.1"),
}
BUILT = {
    "ubuntu": (ubuntu(), kernel()),
    "rhel": (rhel(), kernel()),
    "debian": (debian(), kernel()),
    "amd-opt": (opt(), amds_kernel()),
    "amd-debian": (amds_debian(), amds_kernel()),
    "both": (opt(), amds_kernel(), rhel(), kernel()),
    "intel": (
        intel.userspace(),
        intel.gpu("0000:03:00.0", 0, 128),
        intel.npu(),
        intel.gaudi("0000:90:00.0", 1, uverbs=2),
    ),
    "laptop": (rhel(), kernel(), intel.gpu("0000:00:02.0", 7, 135, intel.INTEGRATED)),
}


def asked(machine: Host, vendors: tuple[str, ...], **request: Any) -> tuple[Plan, tuple[Finding, ...]]:
    """All that can be asked for *vendors*: a plan for an image, and what check says of it."""
    wanted = Request(vendors=vendors, caps=CAPABILITIES, **request)  # type: ignore[arg-type]
    opened = image(glibc())
    made = plan(machine, wanted, image=opened)
    findings = check(preflight(machine, made, opened, backend="podman", program="/bin/sh"))
    return made, findings


@pytest.mark.parametrize("vendors", VENDORS, ids=lambda vendors: "+".join(vendors) or "all")
@pytest.mark.parametrize("userspace", ["auto", "host", "image"])
@pytest.mark.parametrize("name", BUNDLED_HOSTS)
def test_a_record_that_ships_answers_everything(name: str, vendors: tuple[str, ...], userspace: str) -> None:
    try:
        asked(open_host(name), vendors, userspace=userspace)
    except NothingToBindError:
        assert vendors


@pytest.mark.parametrize("vendors", VENDORS, ids=lambda vendors: "+".join(vendors) or "all")
@pytest.mark.parametrize("name", BUILT)
def test_a_record_answers_as_its_host_does_whatever_its_loader_is_told(name: str, vendors: tuple[str, ...]) -> None:
    machine = host(*BUILT[name], INCLUDES)
    again = RecordedHost(parse_record(dump_record(survey(machine), "1").encode()), "test")
    try:
        expected = asked(machine, vendors)
    except NothingToBindError:
        with pytest.raises(NothingToBindError):
            asked(again, vendors)
        return
    assert asked(again, vendors) == expected


def test_what_a_record_keeps_of_the_loader_is_what_its_configuration_names() -> None:
    kept = survey(host(*BUILT["rhel"], INCLUDES)).driver
    assert kept.directories["/opt/site"].entries["ld.conf"].body == b"/opt/site/lib\n"
    assert kept.directories["/opt/site/lib"].listed is True
