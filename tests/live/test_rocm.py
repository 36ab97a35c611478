"""`--rocm` with Debian's real ROCm: the programs' own flags, and what gpubind brings into images of several ages."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.live.apptainers import FILE, LIBRARY, MOUNTED
from tests.live.containers import CONTAINERS, Case, image, privileges, start
from tests.live.machine import Machine, document, pairs

pytestmark = pytest.mark.live

FLAGS = [("--rocm",), ("--nv", "--rocm")]
COUNTS: dict[tuple[str, ...], int] = {("--rocm",): 10, ("--nv", "--rocm"): 53}
"""For the ordinary user; root has nvidia-cuda-mps-server in PATH, too."""
WHO = pytest.mark.parametrize("user", [False, True], ids=["root", "user"])

PROBE = """
import ctypes, json, subprocess
def called(name, function, *arguments):
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return str(error)
    return getattr(library, function)(*arguments) if function else "loads"
def run(*command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError:
        return [127, ""]
    return [done.returncode, done.stdout]
print(json.dumps({
    "hipInit": called("libamdhip64.so.5", "hipInit", 0),
    "hsa_init": called("libhsa-runtime64.so.1", "hsa_init"),
    "rsmi_init": called("librocm_smi64.so.1", "rsmi_init", ctypes.c_uint64(0)),
    "libamdocl64": called("libamdocl64.so", None),
    "libamd_smi": called("libamd_smi.so.0", None),
    "rocminfo": run("rocminfo"),
    "bash": run("bash", "-c", "echo works"),
    "perl": run("perl", "-e", "print qq(works\\n)"),
    "python3": run("python3", "-c", "import lzma, zlib; print('works')"),
    "apt-get": run("apt-get", "--version"),
}))
"""
PROGRAMS = ("bash", "perl", "python3", "apt-get")
STARTS = [Case("bwrap", suite, user, ("--rocm",)) for suite in ("bookworm", "bullseye") for user in (True, False)]


def look(machine: Machine, case: Case) -> tuple[dict[str, Any], str]:
    """What the probe says in the container of *case*, and what gpubind says before."""
    done = start(machine, case, "python3", "-c", PROBE, driver=False)
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@WHO
@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_binds_what_apptainer_binds(trixie: Machine, flags: tuple[str, ...], user: bool) -> None:
    command = ["apptainer", "-d", "exec", *privileges("apptainer", user=user), *flags, image("bookworm-sb"), "true"]
    debug = re.sub(r"\x1b\[[0-9;]*m", "", trixie.run(command, user=user, driver=True, binds=[CONTAINERS]).stderr)
    real = {(path, f"/.singularity.d/libs/{path.rpartition('/')[2]}") for path in LIBRARY.findall(debug)}
    real |= {(source, target or source) for source, target in FILE.findall(debug)}
    assert {source for source, _ in real} <= set(MOUNTED.findall(debug))
    assert not user or len(real) == COUNTS[flags]
    plan = document(trixie.gpubind("plan", *flags, "--like", "apptainer", "--json", user=user, driver=True))
    assert pairs(plan) == real


@pytest.mark.parametrize("user", [True, False], ids=["user", "root"])
def test_rocm_starts_in_an_image_of_the_hosts_age(trixie: Machine, user: bool) -> None:
    report, _ = look(trixie, Case("bwrap", "trixie", user, ("--rocm",)))
    assert [report[name] for name in ("hipInit", "hsa_init", "rsmi_init")] == [101, 0x1008, 8]
    assert (report["libamdocl64"], report["libamd_smi"]) == ("loads", "loads")
    status, said = report["rocminfo"]
    assert status == 1
    assert "ROCk module is NOT loaded" in said
    assert {name: report[name][0] for name in PROGRAMS} == dict.fromkeys(PROGRAMS, 0)


@pytest.mark.parametrize("case", STARTS, ids=str)
def test_what_an_older_image_cannot_load_is_named_and_left_out_and_its_programs_work(
    trixie: Machine, case: Case
) -> None:
    report, said = look(trixie, case)
    assert {name: report[name][0] for name in PROGRAMS} == dict.fromkeys(PROGRAMS, 0)
    finding = next(line for line in said.splitlines() if "userspace-left-out" in line)
    for name in ("libamdhip64.so.5", "libhsa-runtime64.so.1", "librocm_smi64.so.1", "libamdocl64.so", "rocminfo"):
        assert name in finding
    # Not there is not the same as there and broken.
    assert all("cannot open shared object file" in report[name] for name in ("hipInit", "hsa_init", "rsmi_init"))
    assert report["rocminfo"][0] == 127


def test_a_plan_for_an_image_brings_nothing_that_its_loader_refuses(trixie: Machine) -> None:
    for suite in ("trixie", "bookworm", "bullseye"):
        checked = ["check", "--rocm", "--image", image(suite), "--json"]
        report = json.loads(trixie.tried(*checked, binds=[CONTAINERS], status=1).stdout)
        codes = {finding["code"] for finding in report["findings"] if finding["severity"] != "note"}
        assert codes <= {"driver-not-loaded", "userspace-left-out", "device-permission"}


def test_both_vendors_go_into_one_plan_and_both_work(trixie: Machine) -> None:
    script = (
        "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0), ctypes.CDLL('libamdhip64.so.5').hipInit(0), "
        "ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
    )
    case = Case("bwrap", "trixie", True, ("--nv", "--rocm"))
    assert start(trixie, case, "python3", "-c", script).stdout.split() == ["100", "101", "9"]


def test_rocm_starts_with_apptainer_too(trixie: Machine) -> None:
    report, _ = look(trixie, Case("apptainer", "trixie", True, ("--rocm",)))
    assert [report[name] for name in ("hipInit", "hsa_init", "rsmi_init")] == [101, 0x1008, 8]


def test_libraries_that_the_image_has_are_its_own(trixie: Machine) -> None:
    plan = document(trixie.gpubind("plan", "--rocm", "--image", image("trixie"), "--json", binds=[CONTAINERS]))
    names = {mount["target"].rpartition("/")[2] for mount in plan["mounts"]}
    assert {"libLLVM-17.so.1", "libelf.so.1", "libz3.so.4", "libhsakmt.so.1", "libdrm_amdgpu.so.1"} <= names
    assert not {"libstdc++.so.6", "libtinfo.so.6", "libz.so.1", "libzstd.so.1", "libgcc_s.so.1", "libc.so.6"} & names
    assert "amdgpu.ids" in names
