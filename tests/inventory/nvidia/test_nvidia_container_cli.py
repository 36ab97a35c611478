"""`nvidia-container-cli list` as a source: what it names, what it cannot change, and what happens when it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal, Optional, Union

import pytest

from gpubind.documents.text import render_json
from gpubind.host import Host, ListFile
from gpubind.host.base import RunResult
from gpubind.host.live import LiveHost
from gpubind.host.record import RecordedList, RecordedRun, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.inventory.claims import SourceResult
from gpubind.inventory.nvidia.container_cli import list_files
from gpubind.inventory.nvidia.inventory import read_inventory
from gpubind.model import CAPABILITIES, HostFile, Inventory, Missing, PassedOver, Plan, Request, SourceUsed
from gpubind.model.data import BUNDLED_HOSTS, read_data
from gpubind.planner import make_plan
from tests.support.driver import SONAMES, V, debian, host, kernel, libraries, rhel, run_directory, ubuntu
from tests.support.elf import elf
from tests.support.golden import assert_fits
from tests.support.surveys import survey
from tests.support.trees import Dir, Fifo, File, Hidden, Item, Link, Node, Socket, Spec, record

CLI = "nvidia-container-cli"
LIST = (CLI, "list")
DATA = Path(__file__).parent.parent.parent / "data" / CLI
LAYOUTS = {"ubuntu": ubuntu, "rhel": rhel, "debian": debian, "run": run_directory}
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so." + V


def run(stdout: str = "", status: int = 0, stderr: str = "", argv: tuple[str, ...] = LIST) -> RecordedRun:
    return RecordedRun(argv, status, stdout, stderr)


def lines(*paths: str) -> str:
    return "".join(f"{path}\n" for path in paths)


def printed_of(spec: Spec) -> list[str]:
    """What the program would print of *spec*: nodes, real programs, real libraries that carry the version."""
    nodes = [path for path, item in spec.items() if isinstance(item, Node)]
    programs = [path for path in spec if path.endswith("/nvidia-smi")]
    return [*nodes, *programs, *(path for path, item in spec.items() if path.endswith(V) and isinstance(item, bytes))]


def with_answer(*parts: Spec, more: tuple[str, ...] = (), **facts: object) -> RecordedHost:
    """A host whose program prints everything in *parts* that it knows of, and *more*."""
    spec: dict[str, Item] = {path: item for part in parts for path, item in part.items()}
    return host(spec, runs=(run(lines(*printed_of(spec), *more)),), **facts)  # type: ignore[arg-type]


def failing(answer: Optional[RecordedRun], **facts: object) -> RecordedHost:
    return host(ubuntu(), kernel(), runs=(answer,) if answer else (), **facts)  # type: ignore[arg-type]


def made(on: Host, source: str, caps: tuple[str, ...] = CAPABILITIES) -> Plan:
    request = Request(("nvidia",), source=source, caps=caps)  # type: ignore[arg-type]
    return make_plan([read_inventory(on, request)], request)


def named(found: Inventory, name: str) -> HostFile:
    """The one file that is called *name* in a container."""
    (file,) = [f for f in found.files if name in f.names or f.target == name]
    return file


def decided(found: Inventory, subject: str) -> list[tuple[str, str]]:
    return [(d.verdict, d.rule) for d in found.decisions if d.subject == subject]


# The same container.


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("module", [V, None], ids=["module", "no-module"])
@pytest.mark.parametrize("age", ["new", "old"])
def test_the_digest_is_the_same_whichever_source_served(layout: str, module: Optional[str], age: str) -> None:
    """An old program knows fewer libraries than the driver has."""
    spec = {**LAYOUTS[layout](), **kernel(module)}
    paths = [path for path in printed_of(spec) if age == "new" or "libcuda" in path]
    on = host(spec, runs=(run(lines(*paths)),))
    plans = [made(on, source) for source in ("auto", CLI, "liblist", "driver")]
    assert [plan.drivers[0].source.served for plan in plans] == [CLI, CLI, "liblist", "driver"]
    assert len({plan.digest for plan in plans}) == 1
    assert [[m.source for m in plan.mounts] for plan in plans] == [[m.source for m in plans[0].mounts]] * 4


@pytest.mark.parametrize("name", ["list.mig0.txt", "list.mig1.txt"])
@pytest.mark.parametrize("shipped", ["debian13-nvidia550"])
def test_a_real_answer_on_a_real_host_gives_the_digest_of_every_source(shipped: str, name: str) -> None:
    bundled = parse_record(read_data(f"model/data/hosts/{shipped}.json"))
    on = RecordedHost(bundled._replace(runs=(run((DATA / name).read_text()),)), shipped)
    plans = {source: made(on, source) for source in (CLI, "liblist", "driver")}
    assert plans[CLI].drivers[0].source.served == CLI
    assert len({plan.digest for plan in plans.values()}) == 1
    rules = {mount.target.rpartition("/")[2]: mount.rule for mount in plans[CLI].mounts}
    assert {rules[name] for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libGLX_nvidia.so.0", "nvidia-smi")} == {CLI}
    assert rules["nvidia_icd.json"] == "completion"


@pytest.mark.parametrize("state", ["serves", "fails", "absent"])
def test_a_plan_that_asked_the_program_fits_the_schema(state: str) -> None:
    on = {"serves": with_answer(ubuntu(), kernel()), "fails": failing(run(status=1)), "absent": failing(None)}[state]
    assert_fits(json.loads(render_json(made(on, CLI))), "plan")


# What it names.


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_name_that_leads_to_a_printed_file_is_named_by_the_program(layout: str) -> None:
    found = read_inventory(with_answer(LAYOUTS[layout](), kernel()), Request())
    for soname in SONAMES.values():
        assert (named(found, soname).named_by, named(found, soname).named_at) == (CLI, "list")
    assert {file.named_by for file in found.files if file.kind == "binary"} <= {CLI}
    assert found.source == SourceUsed(CLI, "nvidia-container-cli list")


def test_what_the_program_does_not_print_is_completed() -> None:
    more: Spec = {"/usr/lib64/libnvidia-api.so.1": elf("libnvidia-api.so.1")}
    found = read_inventory(with_answer(rhel(), kernel(), more), Request())
    for name in ("libnvidia-api.so.1", "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"):
        assert named(found, name).named_by == "completion"


def test_without_completion_only_what_is_printed_counts() -> None:
    program: Spec = {"/usr/bin/nvidia-smi": File(elf(kind=2), 0o755)}
    spec: Spec = {**rhel(), **kernel(), **program}
    answer = lines(LIBRARY.replace("/usr/lib/x86_64-linux-gnu", "/usr/lib64"), "/usr/bin/nvidia-smi")
    found = read_inventory(host(spec, runs=(run(answer),)), Request(completion=False))
    assert {name for file in found.files for name in file.names} == {"libcuda.so", "libcuda.so.1", "nvidia-smi"}
    assert named(found, "nvidia-smi").capability == "utility"
    assert ("left-out", "not-in-list") in decided(found, "libnvidia-ml.so.1")


def test_a_socket_that_the_program_prints_is_confirmed() -> None:
    spec: Spec = {"/run/nvidia-persistenced/socket": Socket(), "/var/run": Link("/run")}
    for printed in ("/run/nvidia-persistenced/socket", "/var/run/nvidia-persistenced/socket"):
        found = read_inventory(with_answer(ubuntu(), kernel(), spec, more=(printed,)), Request())
        assert named(found, "/run/nvidia-persistenced/socket").named_by == CLI


def test_an_unknown_library_that_is_printed_is_taken_for_any_capability() -> None:
    more: Spec = {"/opt/odd/libnvodd.so.7": elf("libnvodd.so.7")}
    found = read_inventory(with_answer(ubuntu(), kernel(), more, more=("/opt/odd/libnvodd.so.7",)), Request())
    file = named(found, "libnvodd.so.7")
    assert (file.named_by, file.capability, file.path) == (CLI, None, "/opt/odd/libnvodd.so.7")


def test_an_unknown_program_file_or_socket_that_is_printed_is_taken_for_any_capability() -> None:
    more: Spec = {
        "/opt/odd/nv-odd": File(elf(kind=2), 0o755),
        "/opt/odd/nv.dat": b"data",
        "/run/nv-odd/socket": Socket(),
        "/run/nv-odd/pipes": Dir(),
    }
    found = read_inventory(with_answer(ubuntu(), kernel(), more, more=tuple(more)), Request())
    names = ("nv-odd", "/opt/odd/nv.dat", "/run/nv-odd/socket", "/run/nv-odd/pipes")
    assert [named(found, name).kind for name in names] == ["binary", "file", "socket", "directory"]
    assert {(named(found, name).named_by, named(found, name).capability) for name in names} == {(CLI, None)}


def test_a_printed_program_of_another_machine_or_beside_a_better_one_is_not_taken() -> None:
    more: Spec = {
        "/opt/arm/nv-arm": File(elf(kind=2, machine=183), 0o755),
        "/opt/two/nvidia-smi": File(elf(kind=2), 0o755),
        "/run/nv.fifo": Fifo(),
    }
    found = read_inventory(with_answer(ubuntu(), kernel(), more, more=tuple(more)), Request())
    assert named(found, "nvidia-smi").path == "/usr/bin/nvidia-smi"
    assert decided(found, "nv-arm") == [("rejected", "wrong-machine")]
    assert decided(found, "nvidia-smi") == [("left-out", "shadowed")]
    assert decided(found, "/run/nv.fifo") == [("rejected", "special-file")]
    assert [one.detail for one in found.decisions if one.subject == "/run/nv.fifo"] == ["a FIFO"]


def test_another_users_mps_directory_stays_out_though_it_is_printed() -> None:
    found = read_inventory(
        with_answer(ubuntu(), kernel(), {"/tmp/nvidia-mps": Dir()}, more=("/tmp/nvidia-mps",)), Request()
    )
    assert decided(found, "/tmp/nvidia-mps") == [("left-out", "not-yours")]


def test_firmware_and_what_guards_mig_stay_on_the_host() -> None:
    more: Spec = {
        f"/usr/lib/firmware/nvidia/{V}/gsp_ga10x.bin": b"gsp",
        "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access": "DeviceFileMinor: 12\n",
    }
    paths = (f"/lib/firmware/nvidia/{V}/gsp_ga10x.bin", "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access")
    for completion in (True, False):
        on = with_answer(ubuntu(), kernel(), more, more=paths)
        found = read_inventory(on, Request(completion=completion))
        about = [d for d in found.decisions if d.path in more]
        assert [(d.verdict, d.rule) for d in about] == [("left-out", "host-only")] * 2
        shown = "the kernel shows it in a container's own /proc"
        assert {d.detail for d in about} == {"firmware: the kernel reads it, not a process", shown}


def test_a_device_that_nobody_else_knows_has_a_decision() -> None:
    found = read_inventory(with_answer(ubuntu(), kernel(), {"/dev/gdrdrv": Node("char", 10, 63)}), Request())
    assert decided(found, "/dev/gdrdrv") == [("left-out", "unknown-device")]


def test_what_is_printed_but_not_there_is_dangling() -> None:
    gone = ("/dev/nvidia-uvm-tools", "/usr/bin/nv-gone", f"/usr/lib64/libnvgone.so.{V}", "/proc/driver/nvidia/gone")
    found = read_inventory(with_answer(ubuntu(), kernel(), more=gone), Request())
    for path in gone:
        assert decided(found, path) == [("rejected", "dangling")]
    assert found.source.served == CLI


def test_what_is_printed_but_may_not_be_looked_at_has_its_own_rule() -> None:
    hidden: Spec = {"/opt/hidden": Hidden(directory=True)}
    found = read_inventory(with_answer(ubuntu(), kernel(), hidden, more=("/opt/hidden/nv",)), Request())
    assert decided(found, "/opt/hidden/nv") == [("rejected", "path-forbidden")]


def test_what_is_printed_but_was_not_recorded_has_a_decision() -> None:
    bundled = parse_record(read_data(f"model/data/hosts/{BUNDLED_HOSTS[0]}.json"))
    text = (DATA / "list.mig0.txt").read_text() + "/srv/unseen/nv-tool\n"
    found = read_inventory(RecordedHost(bundled._replace(runs=(run(text),)), BUNDLED_HOSTS[0]), Request())
    assert decided(found, "/srv/unseen/nv-tool") == [("rejected", "unreadable")]


def test_the_file_of_a_printed_name_is_chosen_as_for_every_source() -> None:
    """The program takes the last fitting file of the ld cache, ld.so the first; and it may print another version."""
    second = libraries("/opt/second")
    old = libraries("/usr/lib64", "535.54.03")
    more = (f"/opt/second/libcuda.so.{V}", "/usr/lib64/libcuda.so.535.54.03")
    on = with_answer(ubuntu(), second, old, kernel(), more=more)
    found = read_inventory(on, Request())
    assert named(found, "libcuda.so.1").path == LIBRARY
    assert ("rejected", "other-driver-version") in decided(found, "libcuda.so.1")
    assert made(on, CLI).digest == made(on, "liblist").digest


# When it does not serve.

FAILURES: dict[str, tuple[Optional[RecordedRun], str]] = {
    "absent": (None, "absent"),
    "not loaded": (run(status=1, stderr=(DATA / "fail9.txt").read_text()), "initialization-error"),
    "mismatch": (run(status=1, stderr=(DATA / "fail18.txt").read_text()), "initialization-error"),
    "ldcache": (run(status=1, stderr="nvidia-container-cli: ldcache error: x\n"), "ldcache-error"),
    "silent": (run(status=1), "failed"),
    "killed": (run(lines(LIBRARY), status=-9), "failed"),
    "garbage": (run("(null)\n"), "bad-nvidia-cli"),
    "empty": (run(""), "bad-nvidia-cli"),
    "nul": (run("/dev/nvidia\0\n"), "bad-nvidia-cli"),
    "devices": (run(lines("/dev/nvidiactl", "/dev/nvidia0")), "no-library"),
    "elsewhere": (run(lines("/opt/gone/libcuda.so.550.54.14")), "no-library"),
}


ENDED = "`nvidia-container-cli list` ended with"
WHY = {
    "absent": "there is no `nvidia-container-cli` to ask",
    "not loaded": f"{ENDED} 1: nvml error: driver not loaded",
    "mismatch": f"{ENDED} 1: nvml error: driver/library version mismatch",
    "ldcache": f"{ENDED} 1: x",
    "silent": f"{ENDED} 1: no message",
    "killed": f"{ENDED} -9: no message",
    "garbage": "line 1: '(null)' is not an absolute path",
    "empty": "line 1: an empty answer",
    "nul": "line 1: a NUL byte",
    "devices": "it printed no library",
    "elsewhere": "none of the 1 libraries that it printed is on this host",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_program_that_fails_is_passed_over_with_its_reason_and_the_list_serves(failure: str) -> None:
    answer, code = FAILURES[failure]
    found = read_inventory(failing(answer), Request())
    (passed,) = found.source.passed_over
    assert (found.source.served, passed.source, passed.code) == ("liblist", CLI, code)
    assert passed.why == WHY[failure]
    verdict = "absent" if failure == "absent" else "rejected"
    assert [(d.vendor, d.verdict, d.rule, d.step, d.detail) for d in found.decisions if d.subject == CLI] == [
        ("nvidia", verdict, "passed-over", "name", f"{code}: {passed.why}")
    ]
    assert "source-failed" not in {finding.code for finding in found.findings}
    assert made(failing(answer), "auto").digest == made(failing(answer), "liblist").digest


@pytest.mark.parametrize("failure", FAILURES)
def test_a_program_that_was_asked_for_by_name_and_fails_is_a_warning(failure: str) -> None:
    answer, code = FAILURES[failure]
    found = read_inventory(failing(answer), Request(source=CLI))
    (finding,) = [finding for finding in found.findings if finding.code == "source-failed"]
    assert (finding.severity, finding.subject, found.source.served) == ("warning", CLI, "liblist")
    assert finding.what == "the requested source failed; etc/nvliblist.conf is used instead"
    assert finding.why == f"{code}: {WHY[failure]}"
    told = None if failure == "absent" else "nvidia-container-cli --debug=/dev/stderr list"
    assert finding.command == told


def test_the_programs_own_words_are_the_reason() -> None:
    passed = list_files(failing(FAILURES["mismatch"][0]))
    assert isinstance(passed, PassedOver)
    assert "nvml error: driver/library version mismatch" in passed.why


class Unsafe(RecordedHost):
    """A host that runs nothing: its program could be changed by others than root, or hangs."""

    missing = Missing("forbidden", "`/usr/bin` can be written by others than root; not run as root")

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Union[RunResult, Missing]:
        assert timeout_s == 30
        return self.missing


@pytest.mark.parametrize("why", ["forbidden", "unreadable"])
def test_a_program_that_is_unsafe_or_hangs_is_passed_over(why: Literal["forbidden", "unreadable"]) -> None:
    on = Unsafe(record({**ubuntu(), **kernel()}), "test")
    on.missing = Missing(why, "because")
    assert list_files(on) == PassedOver(CLI, why, "because")
    found = read_inventory(on, Request())
    assert found.source.served == "liblist"
    told = [(one.severity, one.subject, one.why) for one in found.findings if one.code == "source-failed"]
    assert told == ([("warning", CLI, "unreadable: because")] if why == "unreadable" else [])


# Who is asked, and how.


@pytest.mark.parametrize("source", ["liblist", "driver"])
def test_another_source_by_name_asks_nobody(source: str) -> None:
    found = read_inventory(with_answer(ubuntu(), kernel()), Request(source=source))
    assert (found.source.served, found.source.passed_over) == (source, ())


def test_a_sites_list_is_the_law_and_the_program_is_not_asked() -> None:
    site = RecordedList("nvliblist.conf", "/etc/gpubind/nvliblist.conf", "libcuda.so\n")
    on = with_answer(ubuntu(), kernel(), lists=(site,))
    found = read_inventory(on, Request())
    assert (found.source.served, found.source.passed_over) == ("liblist", ())
    given = ListFile("mine.conf", b"libcuda.so\n", shipped=False)
    assert read_inventory(with_answer(ubuntu(), kernel()), Request(), given).source.detail == "mine.conf"
    assert read_inventory(on, Request(source=CLI)).source.served == CLI


def test_another_driver_root_is_told_to_the_program() -> None:
    argv = (CLI, "--root=/run/nvidia/driver", "list")
    spec = {**ubuntu(), **kernel()}
    answer = run(lines(*printed_of(spec)), argv=argv)
    on = host(spec, root="/run/nvidia/driver", runs=(answer,))
    plans = [made(on, source) for source in (CLI, "liblist")]
    assert plans[0].drivers[0].source == SourceUsed(CLI, "nvidia-container-cli --root=/run/nvidia/driver list")
    assert plans[0].digest == plans[1].digest
    assert isinstance(list_files(host(spec, root="/run/nvidia/driver", runs=(run(answer.stdout),))), PassedOver)


def test_of_a_root_without_devices_the_program_is_asked_only_by_name() -> None:
    answer = run(lines(*printed_of(ubuntu())), argv=(CLI, "--root=/run/nvidia/driver", "list"))
    on = host(ubuntu(), dev=kernel(), root="/run/nvidia/driver", runs=(answer,))
    by_name, by_itself = (made(on, source).drivers[0].source for source in (CLI, "auto"))
    assert (by_name.served, by_name.passed_over) == (CLI, ())
    why = "not asked unless by name: the driver root holds no devices, and the program would run its libraries"
    assert (by_itself.served, by_itself.passed_over) == ("liblist", (PassedOver(CLI, "other-root", why),))
    assert made(on, "driver").drivers[0].source.passed_over == ()


@pytest.mark.parametrize("root", ["/", "/run/nvidia/driver"])
def test_a_record_keeps_the_answer_that_a_plan_asks_for(root: str) -> None:
    argv = LIST if root == "/" else (CLI, f"--root={root}", "list")
    spec = {**ubuntu(), **kernel()}
    on = host(spec, root=root, runs=(run(lines(*printed_of(spec)), argv=argv),))
    assert [kept.argv for kept in survey(on).runs] == [argv]
    assert isinstance(list_files(RecordedHost(survey(on), "again")), SourceResult)


def test_a_live_host_without_the_program_says_what_its_record_says(tmp_path: Path) -> None:
    """On a machine that has the program it is asked about an empty root, and fails."""
    live, recorded = list_files(LiveHost(str(tmp_path))), list_files(host(ubuntu(), kernel()))
    assert isinstance(live, PassedOver)
    if live.code == "absent":
        assert live == recorded


def test_a_program_that_is_not_there_costs_no_subprocess() -> None:
    code = (
        "import sys; from gpubind.host.live import LiveHost\n"
        "from gpubind.inventory.nvidia.container_cli import list_files\n"
        "answer = list_files(LiveHost()); print(getattr(answer, 'code', 'served'), 'subprocess' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, loaded = done.stdout.split()
    assert loaded == str(said != "absent")
