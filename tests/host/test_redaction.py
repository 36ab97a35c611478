"""Stand-ins for the names of people, machines and GPUs in a record: every kind of field, one name one stand-in."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest

import gpubind
from gpubind.api.record import redaction_of
from gpubind.formats.elf.elf import ElfFacts, ElfIdent, VersionNeed
from gpubind.host.record import (
    Record,
    RecordedDirectory,
    RecordedEntry,
    RecordedList,
    RecordedRoot,
    RecordedRun,
    dump_record,
    parse_record,
)
from gpubind.host.recorded import RecordedHost
from gpubind.host.redaction import Redaction
from gpubind.host.surveyed import is_in_a_home
from gpubind.model import HostPath, Missing, Request, Stat
from gpubind.model.data import BUNDLED_HOSTS
from tests.support import amd
from tests.support.driver import cache, host, kernel, libraries, rhel
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Item, Link, record

UUID, MIG = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "5a5a5a5a-1b2c-3d4e-5f60-718293a4b5c6"
HOST, DOMAIN = "kestrel17", "cluster.example.org"
SERIAL, UNIQUE = "1654922006536", 9106008083389042176
ELF = ElfFacts(
    ElfIdent(64, "little", 62, 3),
    "libalice.so.1",
    ("libbob.so.2",),
    "/home/alice/lib",
    "/gpfs/users/bob/lib",
    "/home/alice/ld.so",
    (VersionNeed("libalice.so.1", ("BOB_1",)),),
    ("libalice.so.1",),
)


def file(body: str) -> RecordedEntry:
    return RecordedEntry(Stat("file", 0o644, 1000, 0, len(body)), body=body.encode())


def full() -> Record:
    """A record with the name of a user, a machine or a GPU in every kind of field."""
    ldcache = build_ldcache([entry("libcuda.so.1", "/home/alice/lib/libcuda.so.1")]) + b"\xff"
    names = {
        "plain": file(f"alice on {HOST}.{DOMAIN}, also called {HOST}; alices and kestrel170 are others"),
        "information": file(f"GPU UUID: \t GPU-{UUID}\nSerial Number: {SERIAL}\n"),
        "spec.json": file(f'{{"devices": ["GPU-{UUID.upper()}", "MIG-{MIG}"], "serial": "{SERIAL}"}}'),
        "properties": file(f"simd_count 4\nunique_id {UNIQUE}\n"),
        "ld.so.cache": RecordedEntry(Stat("file", 0o644, 0, 0, len(ldcache)), body=ldcache),
        "link": RecordedEntry(Stat("link", 0o777, 0, 0, 0), link="/home/bob/target"),
        "alice.conf": RecordedEntry(Missing("forbidden")),
        "libalice.so": RecordedEntry(Stat("file", 0o755, 0, 0, 9), ident=ELF.ident, elf=ELF),
    }
    groups = {"group": file("video:x:44:\nteam-alice:x:1000:\nrender:x:105:\n")}
    directories = {
        "/home/alice/data": RecordedDirectory(names, ("bob.txt", f"{HOST}.log"), True),
        f"/var/lib/{HOST}": RecordedDirectory({}, (), True),
        "/etc": RecordedDirectory(groups, (), True),
    }
    return Record(
        driver=RecordedRoot(HostPath("/home/alice/root"), directories),
        dev=RecordedRoot(HostPath("/Users/bob"), {"/dev": RecordedDirectory({}, (HOST,), True)}),
        environ={"PATH": "/gpfs/home/bob/bin:/usr/bin", "CUDA_VISIBLE_DEVICES": f"GPU-{UUID[:11]},MIG-GPU-{UUID}/1/0"},
        release="6.1.0",
        machine="x86_64",
        euid=1000,
        groups=(1000,),
        description=f"node {HOST} of alice",
        hostname=f"{HOST}.{DOMAIN}",
        lists=(RecordedList("nvliblist.conf", "/home/alice/nvliblist.conf", "# bob's\n/home/bob/lib/*\nlibcuda.so\n"),),
        runs=(RecordedRun(("nvidia-smi", "-L"), 0, f"GPU 0: X (UUID: GPU-{UUID})\n", f"{HOST}: warning\n"),),
    )


def redaction(made: Record, common: str = "") -> Redaction:
    return Redaction(made, (HOST, f"{HOST}.{DOMAIN}"), ("alice",), common)


def told(made: Record) -> str:
    """What is in *made*, those of its bodies too that are no text."""
    dumped = dump_record(made, "test")
    encoded = re.findall(r'"base64": "([^"]*)"', dumped)
    return dumped + "".join(base64.b64decode(body).decode("latin-1") for body in encoded)


def test_no_name_is_left_in_any_kind_of_field() -> None:
    for planted in ("alice", "bob", HOST, UUID, MIG, SERIAL, str(UNIQUE), "team-"):
        assert planted in told(full())
    left = re.sub("alices|kestrel170", "", told(redaction(full()).record(full())))
    names = (r"(?<![a-z])alice", r"(?<![a-z])bob", HOST, DOMAIN, UUID, UUID[:11], MIG, SERIAL, str(UNIQUE), "team-")
    assert [name for name in names if re.search(name, left, re.IGNORECASE)] == []


def test_a_name_has_one_stand_in_of_its_length_everywhere() -> None:
    made = redaction(full()).record(full())
    names = made.driver.directories[next(path for path in made.driver.directories if path.startswith("/home/"))].entries
    assert made.driver.root == "/home/u0001/root"
    assert str(names["plain"].body).startswith("b'u0001 on h000000000000000000000000000")
    assert made.description.split()[1] in str(names["plain"].body)
    assert names["link"].link == "/home/u03/target"
    assert "u03.txt" in next(iter(made.driver.directories.values())).others
    data = full().driver.directories["/home/alice/data"].entries["ld.so.cache"].body
    assert len(str(names["ld.so.cache"].body)) == len(str(data))
    assert "/home/u0001/lib/libcuda.so.1\\x00" in str(names["ld.so.cache"].body)
    assert "video:x:44:" in str(made.driver.directories["/etc"].entries["group"].body)


@pytest.mark.parametrize(
    ("fields", "planted"),
    [
        ({"environ": {"PATH": "/home/carol/bin"}}, "carol"),
        ({"lists": (RecordedList("nvliblist.conf", "/home/carol/nvliblist.conf", ""),)}, "carol"),
        ({"runs": (RecordedRun(("nvidia-smi", "-q"), 0, "Serial Number: 77123456\n", ""),)}, "77123456"),
        ({"runs": (RecordedRun(("nvidia-smi", "-L"), 0, "", f"UUID: GPU-beef{UUID[4:]}\n"),)}, "GPU-beef"),
    ],
)
def test_a_name_that_no_file_has_is_replaced_in_all_fields(fields: dict[str, Any], planted: str) -> None:
    made = full()._replace(**fields, description=f"of {planted}, again {planted}")
    assert planted not in redaction(made).record(made).description


def test_gpus_keep_their_spellings_and_beginnings_still_mean_them() -> None:
    made = redaction(full()).record(full())
    uuid = "00000001-0000-0000-0000-000000000000"
    assert f"GPU-{uuid})" in made.runs[0].stdout
    assert made.environ["CUDA_VISIBLE_DEVICES"] == f"GPU-00000001,MIG-GPU-{uuid}/1/0"
    assert redaction(full()).text(f"GPU-{UNIQUE:016x}") == f"GPU-{1:016x}"
    assert redaction(full()).text("GPU-A100 and GPU-bad") == "GPU-A100 and GPU-bad"


def test_the_same_record_has_the_same_stand_ins_and_a_redacted_one_is_left_alone() -> None:
    once = redaction(full()).record(full())
    assert redaction(full()).record(full()) == once
    assert Redaction(once, (str(once.hostname),), ("u0001",), "").record(once) == once


def test_a_word_of_gpubinds_own_is_replaced_only_below_a_directory_of_homes() -> None:
    made = redaction(full(), common="the alice driver")
    assert made.text("alice of /home/alice/x, bob") == "alice of /home/u0001/x, u03"


def test_the_directory_of_gkes_driver_is_no_home_and_one_of_a_similar_name_is() -> None:
    made = redaction(full())
    assert made.text("/home/kubernetes/bin/nvidia:/home/kubernetes") == "/home/kubernetes/bin/nvidia:/home/kubernetes"
    assert "kubernetes" not in made.text("/home/kubernetes-x/bin")
    assert not is_in_a_home("/home/kubernetes/bin/nvidia/lib64")
    assert is_in_a_home("/home/kubernetes2/lib")
    assert is_in_a_home("/srv/users/kubernetes/home/anna")


def test_a_redacted_record_can_be_read_again() -> None:
    made = redaction(full()).record(full())
    dumped = dump_record(made, "test")
    assert dump_record(parse_record(dumped.encode()), "test") == dumped


SHIPPED = [pytest.param(gpubind.open_host(name), id=name) for name in BUNDLED_HOSTS]
SITE = "/home/alice/driver/lib"
SPEC = (
    '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "GPU-00000000-1111-2222-3333-444444444444",'
    ' "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}]}'
)


def hostile() -> RecordedHost:
    """A host whose driver lies in a home and whose CDI spec names GPUs by UUID."""
    spec: dict[str, Item] = {**libraries(SITE), **kernel(), "/etc/cdi/nvidia.json": SPEC}
    public = {
        f"/usr/lib64/{path.rpartition('/')[2]}": Link(path) for path, item in spec.items() if isinstance(item, Link)
    }
    spec = {**spec, **public}
    made = record({**spec, "/etc/ld.so.cache": cache(spec, [SITE])}, environ={"CUDA_VISIBLE_DEVICES": "GPU-00000001"})
    return RecordedHost(made._replace(hostname="nvidia"), "test")


GKE = host({**libraries("/home/kubernetes/bin/nvidia/lib64"), **kernel()})
MADE = [
    pytest.param(host({**rhel(), **kernel()}), id="rhel"),
    pytest.param(amd.mi300x(), id="amd"),
    pytest.param(GKE, id="gke"),
]


@pytest.mark.parametrize("machine", [*SHIPPED, *MADE, pytest.param(hostile(), id="hostile")])
def test_a_redacted_record_plans_as_its_host(machine: RecordedHost) -> None:
    dumped = gpubind.record(machine, f"of {machine.hostname}", machine.hostname, redact=True)
    again = RecordedHost(parse_record(dumped.encode()), "test")
    for request in (Request(), Request(gpus="all", caps=("all",)), Request(gpus="0"), Request(like="apptainer")):
        made, expected = gpubind.plan(again, request), gpubind.plan(machine, request)
        assert made.digest == expected.digest
        assert [one.code for one in gpubind.check(again, made)] == [
            one.code for one in gpubind.check(machine, expected)
        ]
    assert "alice" not in told(parse_record(dumped.encode()))
    assert parse_record(dumped.encode()).hostname in (None, "h00001")
    assert not re.search("(?:GPU|MIG)-(?!0000000)", dumped)


def test_names_of_owners_are_asked_of_this_machine() -> None:
    class Named(RecordedHost):
        def user_name(self, uid: int) -> str:
            return f"name{uid}"

    made = full()._replace(description="for name1000 and name0")
    found = redaction_of(Named(made, "test"), made).record(made)
    assert re.fullmatch("for u[0-9]{7} and name0", found.description)


def test_the_command_writes_stand_ins(tmp_path: Path) -> None:
    from tests.support.commands import gpubind as command

    path = tmp_path / "r.json"
    done = command("record", "--redact", "--hostname", "--description", "x", "-o", str(path))
    assert done.returncode == 0
    assert re.fullmatch("h[0-9]*", str(parse_record(path.read_bytes()).hostname))
