"""`--intel` with Debian's real Level Zero and OpenCL driver for Intel's GPUs, in images that have them and that do not.

The GPU is a made-up one on the PCI bus; its nodes belong to no driver, so that open() says ENXIO.
"""

from __future__ import annotations

import ast

import pytest

from tests.live.containers import CONTAINERS, Case, start
from tests.live.machine import PYTHON_ENV, RIG, Bind, Machine, document

pytestmark = pytest.mark.live

BUS = Bind(f"{RIG}/hosts/intel/pci", "/sys/bus/pci")
OWN, WITHOUT, OLDER = "sid-intel", "trixie", "bookworm"
UNINITIALIZED, FORBIDDEN = 0x78000001, 0x70010000
"""ZE_RESULT_ERROR_UNINITIALIZED: no driver has a device; ..._INSUFFICIENT_PERMISSIONS: its node is for a group."""
PROBE = """
import ctypes, os
def called(name, function, *arguments):
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return str(error)
    return getattr(library, function)(*arguments) & 0xffffffff if function else "loads"
nodes = sorted(os.path.join(at, name) for at, _, names in os.walk("/dev/dri") for name in names)
loaded = {name: called(name, None) for name in ("libze_intel_gpu.so.1", "libigdrcl.so", "libigc.so.2")}
print((called("libze_loader.so.1", "zeInit", 0), loaded, nodes))
"""
NODES = [
    *(f"/dev/dri/by-path/pci-0000:01:00.0-{name}" for name in ("card", "render")),
    *("/dev/dri/card0", "/dev/dri/renderD128"),
]
ALL = dict.fromkeys(("libze_intel_gpu.so.1", "libigdrcl.so", "libigc.so.2"), "loads")
STARTS = [
    Case("bwrap", OWN, False),
    Case("apptainer", OWN, False),
    Case("apptainer", OWN, False, ("--backend-arg=--contain",)),
    Case("apptainer", OWN, True, ("--backend-arg=--contain",)),
]


def look(machine: Machine, case: Case) -> tuple[object, dict[str, str], list[str]]:
    """What the probe says in the container of *case*."""
    case = case._replace(options=("--intel", *case.options))
    said = start(machine, case, "python3", "-c", PROBE, binds=[BUS], driver=False).stdout
    zeinit, loaded, nodes = ast.literal_eval(said.splitlines()[-1])
    return zeinit, loaded, nodes


@pytest.mark.parametrize("case", STARTS, ids=str)
def test_an_image_with_its_own_user_space_gets_nodes_and_finds_no_device_rather_than_no_library(
    trixie: Machine, case: Case
) -> None:
    zeinit, loaded, nodes = look(trixie, case)
    assert zeinit == (FORBIDDEN if case.user else UNINITIALIZED)
    assert {**ALL, "libigdrcl.so": loaded["libigdrcl.so"]} == loaded  # which is in a directory that no loader searches
    assert nodes == NODES
    words = Case(case.backend, case.image, case.user, ("--intel", *case.options))
    clinfo = start(trixie, words, "clinfo", binds=[BUS], driver=False).stdout
    assert clinfo.splitlines()[0].split() == ["Number", "of", "platforms", "0"]


def test_an_image_without_one_gets_the_hosts_as_far_as_it_can_load_them(trixie: Machine) -> None:
    root = ("--root", f"/srv/ct/{OWN}", "--dev-root", "/")
    zeinit, loaded, nodes = look(trixie, Case("bwrap", WITHOUT, False, root))
    assert zeinit == UNINITIALIZED
    assert {name for name, told in loaded.items() if told == "loads"} == {"libze_intel_gpu.so.1", "libigdrcl.so"}
    assert nodes == NODES
    assert look(trixie, Case("bwrap", WITHOUT, False, (*root, "--libc", "host")))[:2] == (UNINITIALIZED, ALL)


def test_an_older_image_gets_nothing_that_its_c_library_cannot_load(trixie: Machine) -> None:
    words = ("plan", "--intel", "--json", "--root", f"/srv/ct/{OWN}", "--dev-root", "/", "--image", f"/srv/ct/{OLDER}")
    plan = document(trixie.gpubind(*words, binds=[BUS, CONTAINERS]))
    assert [mount["target"] for mount in plan["mounts"]] == ["/dev/dri/by-path"]
    (left_out,) = (one for one in plan["findings"] if one["code"] == "userspace-left-out")
    assert left_out["severity"] == "error"
    assert "libze_intel_gpu.so.1" in left_out["what"]


def test_neither_image_nor_host_has_one(trixie: Machine) -> None:
    words = ("plan", "--intel", "--json", "--image", f"/srv/ct/{WITHOUT}")
    plan = document(trixie.gpubind(*words, binds=[BUS, CONTAINERS]))
    assert "userspace-missing" in [one["code"] for one in plan["findings"]]


def test_the_ordinary_user_is_told_the_group_of_the_render_node(trixie: Machine) -> None:
    words = ("check", "--intel", "--json", "--image", f"/srv/ct/{OWN}")
    report = document(trixie.gpubind(*words, user=True, binds=[BUS, CONTAINERS], status=1))
    errors = [one for one in report["findings"] if one["severity"] == "error"]
    assert [(one["code"], one["subject"], one["hint"]) for one in errors] == [
        ("device-permission", "/dev/dri/renderD128", "become a member of group `render`")
    ]


def test_a_record_of_it_plans_the_same(trixie: Machine) -> None:
    words = ("--root", f"/srv/ct/{OWN}", "--dev-root", "/")
    file, plan = "/tmp/intel-record.json", "python3 -m gpubind plan --intel --json"
    script = f"""
        python3 -m gpubind record {" ".join(words)} -o {file} && {plan} {" ".join(words)} && {plan} --host {file}
        s=$?; rm {file}; exit $s
    """
    said = trixie.run(["sh", "-c", script], binds=[*trixie.modules, BUS, CONTAINERS], env=PYTHON_ENV).stdout
    live, replayed = said.replace("}\n{", "}\n\0{").split("\0")
    assert document(live)["digest"] == document(replayed)["digest"]
    assert len(document(live)["mounts"]) > 8
