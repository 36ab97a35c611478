"""What the rules about hosts make of more than their two cases; and of hosts that are known in part only."""

from __future__ import annotations

from posixpath import basename
from typing import Any, Optional

import pytest

import gpubind
from gpubind import open_host, plan
from gpubind.errors import GpubindError
from gpubind.formats.driver.names import COMPANIONS, Companion
from gpubind.host import Host
from gpubind.host.record import dump_record, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.model import CAPABILITIES, Finding, Missing, Request
from gpubind.model.capability import chip_of
from gpubind.model.data import BUNDLED_HOSTS
from gpubind.rules.preflight import preflight
from gpubind.rules.table import RULES, check, functions_by_code
from gpubind.runtimes import RUNTIMES
from tests.rules.cases_host import (
    A100,
    CASES,
    GDS,
    IMEX,
    K80,
    NO_USERNS,
    NVSWITCH,
    P100,
    PCI_GPU,
    RTX_5090,
    RUNNING_MPS,
    STARTER,
    cached,
    healthy,
    information,
    lacking,
    mig,
    on_the_bus,
)
from tests.rules.situations import Situation, found, unplanned, without
from tests.support.driver import V, host, kernel, rhel
from tests.support.elf import elf
from tests.support.surveys import survey
from tests.support.trees import Dir, File, Hidden, Item, Link, Node, Spec, record

BACKENDS = (None, *RUNTIMES)


def severities(code: str, situation: Situation) -> list[str]:
    return [finding.severity for finding in found(situation) if finding.code == code]


def the(code: str, *parts: Spec, **more: Any) -> Finding:
    (finding,) = [finding for finding in found(Situation(parts, **more)) if finding.code == code]
    return finding


def checked(machine: Host, situation: Situation) -> tuple[Finding, ...]:
    try:
        made = plan(machine, Request(**situation.request), situation.listfile)
    except GpubindError as error:
        made = unplanned(error, situation)
    return check(preflight(machine, made, backend=situation.backend))


# Healthy hosts, and records of them.


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("euid", [0, 1000])
def test_a_healthy_host_has_no_error_and_no_warning_whatever_starts_the_container(
    backend: Optional[str], euid: int
) -> None:
    findings = found(Situation(healthy(), facts={"euid": euid}, backend=backend))
    ours = {rule.code for rule in RULES if rule.code in functions_by_code() and rule.needs in ("host", "runtime")}
    ours.remove("manifest-missing")  # the driver of these hosts has no manifests
    assert [f.code for f in findings if f.severity != "note" or f.code in ours] == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [name for name in BUNDLED_HOSTS if "nvidia" in name])
def test_every_shipped_record_can_be_checked_for_every_runtime(name: str, backend: Optional[str]) -> None:
    findings = checked(open_host(name), Situation((), backend=backend))
    assert [f.code for f in findings if f.severity == "error"] == []


ASKED = ("driver-of-module", "wsl")
"""The driver is where the host itself says: a record looks there because a plan does."""


@pytest.mark.parametrize("code", sorted(CASES))
@pytest.mark.parametrize("which", ["fires", "almost"])
def test_a_record_of_a_host_gives_the_findings_of_the_host(code: str, which: str) -> None:
    situation: Situation = getattr(CASES[code], which)
    machine = host(*situation.parts, **situation.facts)
    text = gpubind.record(machine) if code in ASKED else dump_record(survey(machine), "1")
    assert checked(RecordedHost(parse_record(text.encode()), "test"), situation) == checked(machine, situation)


def test_what_a_record_does_not_cover_is_neither_there_nor_absent() -> None:
    tree = RecordedHost(survey(host(rhel(), kernel())), "test").lenient.dev
    unknown = tree.stat("/etc/passwd")
    assert isinstance(unknown, Missing)
    assert unknown.why == "unrecorded"
    assert not tree.has("/etc/passwd")
    assert not tree.lacks("/etc/passwd")
    assert not tree.has_nothing_in("/etc")


def test_what_may_not_be_looked_at_is_neither_there_nor_absent() -> None:
    tree = RecordedHost(record({"/run/nvidia-fabricmanager": Hidden(directory=True)}), "test").dev
    assert not tree.has("/run/nvidia-fabricmanager/socket")
    assert not tree.lacks("/run/nvidia-fabricmanager/socket")
    hidden: Spec = {"/run/nvidia-fabricmanager": Hidden(directory=True)}
    assert severities("fabric-manager-missing", Situation(healthy(NVSWITCH, hidden))) == []


# The driver.


def test_a_gpu_that_another_driver_has_is_told_with_its_name() -> None:
    assert "0000:01:00.0 (bound to vfio-pci)" in (the("gpu-without-driver", PCI_GPU).where or "")


def test_a_gpu_without_its_driver_is_told_once_also_beside_the_libraries() -> None:
    codes = [f.code for f in found(Situation((rhel(), kernel(None), PCI_GPU)))]
    assert [c for c in codes if "driver" in c] == ["gpu-without-driver"]


def test_nouveau_is_told_instead_of_a_missing_driver() -> None:
    codes = [f.code for f in found(Situation((PCI_GPU, {"/sys/module/nouveau": Dir()})))]
    assert codes == ["nouveau"]


@pytest.mark.parametrize(
    ("device", "version", "modules", "refusal"),
    [
        pytest.param("0x1091", "390.157", None, None, id="fermi-on-its-last"),
        pytest.param("0x1091", "396.54", None, "driver-too-new", id="fermi"),
        pytest.param(K80, "470.256.02", None, None, id="kepler-on-its-last"),
        pytest.param(K80, "495.44", None, "driver-too-new", id="kepler"),
        pytest.param("0x17c2", "580.105.08", None, None, id="maxwell-on-its-last"),
        pytest.param("0x17c2", "590.48.01", None, "driver-too-new", id="maxwell"),
        pytest.param(P100, "590.48.01", None, "driver-too-new", id="pascal"),
        pytest.param(P100, "580.105.08", "open", "needs-proprietary", id="pascal-on-open-modules"),
        pytest.param(P100, "580.105.08", "proprietary", None, id="pascal-on-proprietary-modules"),
        pytest.param("0x1db1", "595.45.04", "open", "driver-too-new", id="volta"),
        pytest.param("0x1db1", "390.157", None, None, id="volta-on-390"),
        pytest.param("0x1eb8", "390.157", None, "driver-too-old", id="turing"),
        pytest.param("0x1eb8", "999.1", None, None, id="turing-on-a-driver-to-come"),
        pytest.param("0x1eb8", "595.45.04", "open", None, id="turing-on-open-modules"),
        pytest.param(A100, "440.118", None, "driver-too-old", id="ampere"),
        pytest.param("0x2204", "450.248.02", None, "driver-too-old", id="ampere-of-455"),
        pytest.param("0x2330", "515.105.01", None, "driver-too-old", id="hopper"),
        pytest.param("0x2330", "520.61.05", None, None, id="hopper-on-its-first"),
        pytest.param("0x2684", "515.105.01", None, "driver-too-old", id="ada"),
        pytest.param("0x2901", "550.163.01", None, "driver-too-old", id="blackwell"),
        pytest.param("0x2901", "565.57.01", None, None, id="blackwell-where-only-the-modules-know-it"),
        pytest.param(RTX_5090, "565.77", None, "driver-too-old", id="rtx-5090"),
        pytest.param(RTX_5090, "570.86.16", "open", None, id="rtx-5090-on-its-first"),
        pytest.param(RTX_5090, "570.86.16", None, None, id="rtx-5090-and-unknown-modules"),
        pytest.param(RTX_5090, "570.86.16", "proprietary", "needs-open", id="rtx-5090-on-proprietary-modules"),
    ],
)
def test_the_drivers_that_support_a_chip_are_those_of_nvidias_lists(
    device: str, version: str, modules: Any, refusal: Optional[str]
) -> None:
    chip = chip_of(device)
    assert chip is not None
    assert chip.refusal(version, modules) == refusal


@pytest.mark.parametrize(
    ("device", "title"),
    [
        *[("0x06c0", "GF100, Fermi"), ("0x1180", "GK104, Kepler"), ("0x1380", "GM107, Maxwell")],
        *[("0x15c2", "GP100, Pascal"), ("0x1db1", "GV100, Volta"), ("0x1eb8", "TU104, Turing")],
        *[(A100, "GA100, Ampere"), ("0x2684", "AD102, Ada"), ("0x2330", "GH100, Hopper")],
        ("0x2901", "GB100, Blackwell"),
    ],
)
def test_a_chip_is_named_with_its_generation(device: str, title: str) -> None:
    chip = chip_of(device)
    assert chip is not None
    assert chip.title == title


def unlisted(*more: Spec, version: Optional[str] = V, gpus: int = 0) -> Situation:
    """A host whose driver lists fewer GPUs than there are."""
    return Situation((rhel(version or V), kernel(version, gpus=gpus), *more))


OPEN_MODULES: Spec = {
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build\n"
}


@pytest.mark.parametrize(
    ("situation", "severity"),
    [
        pytest.param(unlisted(on_the_bus(RTX_5090), version=None), "error", id="not-loaded"),
        pytest.param(unlisted(on_the_bus(K80), on_the_bus(K80, 2), version=None), "error", id="two-of-two"),
        pytest.param(unlisted(on_the_bus(K80), {"/proc/driver/nvidia/gpus": Dir()}), "error", id="loaded-without-gpu"),
        pytest.param(
            unlisted(on_the_bus(A100, module="nvidia"), on_the_bus(K80, 2), gpus=1), "note", id="beside-another"
        ),
        pytest.param(unlisted(on_the_bus(A100), on_the_bus(K80, 2), version=None), "note", id="beside-one-not-loaded"),
        pytest.param(unlisted(on_the_bus(P100), OPEN_MODULES), "error", id="open-modules"),
    ],
)
def test_a_gpu_that_no_driver_has_and_that_this_one_does_not_support_is_told(
    situation: Situation, severity: str
) -> None:
    assert severities("gpu-unsupported", situation) == [severity]


@pytest.mark.parametrize(
    "situation",
    [
        pytest.param(unlisted(on_the_bus(A100)), id="supported"),
        pytest.param(unlisted(on_the_bus("0xffff")), id="unknown"),
        pytest.param(unlisted(on_the_bus(K80), gpus=1), id="listed-by-the-driver"),
        pytest.param(unlisted(on_the_bus(K80, module="nvidia")), id="listed-in-hidden-files"),
        pytest.param(unlisted(on_the_bus(K80, module="vfio-pci"), version=None), id="given-to-a-virtual-machine"),
        pytest.param(unlisted(on_the_bus(P100)), id="modules-of-an-unknown-kind"),
        pytest.param(Situation((on_the_bus(K80),)), id="no-driver-of-nvidias"),
        pytest.param(Situation((rhel(), kernel(None), on_the_bus(K80)), request={"vendors": ("amd",)}), id="not-asked"),
    ],
)
def test_a_gpu_that_a_driver_has_is_supported_whatever_the_table_says(situation: Situation) -> None:
    assert severities("gpu-unsupported", situation) == []


def test_a_gpu_that_the_driver_left_and_that_no_table_refuses_is_a_warning_where_there_are_others() -> None:
    assert severities("gpu-unserved", unlisted(on_the_bus("0xffff"), gpus=1)) == []  # the driver lists it
    assert severities("gpu-unserved", unlisted(on_the_bus("0xffff", 9), gpus=1)) == ["warning"]
    assert severities("gpu-unserved", unlisted(on_the_bus("0xffff", 9, module="vfio-pci"), gpus=1)) == []
    assert severities("gpu-unserved", unlisted(on_the_bus(K80, 9), gpus=1)) == []


def test_a_note_about_a_gpu_explains_no_error_about_the_others() -> None:
    loaded = unlisted(on_the_bus(A100), on_the_bus(K80, 2), version=None)
    assert {one.code for one in found(loaded) if one.severity == "error"} == {"gpu-without-driver"}


def test_gpus_of_one_chip_are_one_finding_with_the_driver_to_install() -> None:
    two = the("gpu-unsupported", rhel(), kernel(None, gpus=0), on_the_bus(K80), on_the_bus(K80, 2))
    assert two.subject == "0000:01:00.0, 0000:02:00.0"
    assert two.what == "the driver 550.54.14 does not support 2 GPUs of this host (GK210, Kepler)"
    assert two.hint == "install a driver of branch 470, or use another host"
    new = the("gpu-unsupported", rhel(), kernel(None, gpus=0), on_the_bus(RTX_5090))
    assert new.hint == "install a driver of branch 570 or newer"


@pytest.mark.parametrize("excluded", [1, 2])
def test_excluded_gpus_are_an_error_if_there_is_no_other(excluded: int) -> None:
    parts = healthy(information(excluded="Yes"), gpus=2 if excluded == 1 else 1)
    assert severities("gpu-excluded", Situation(parts)) == (["note"] if excluded == 1 else ["error"])


def test_nvml_that_was_asked_for_by_name_and_is_missing_is_an_error() -> None:
    parts = lacking("/usr/lib64/libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.550.54.14")
    assert severities("no-nvml", Situation(parts)) == ["warning"]
    by_name = {"caps": ("compute", "utility")}
    assert severities("no-nvml", Situation(parts, request=by_name)) == ["error"]


@pytest.mark.parametrize("data", [b"", b"text", b"\x7fELF\2\1\1"], ids=["empty", "text", "header"])
def test_a_damaged_nvml_is_an_error_as_any_damaged_library_is(data: bytes) -> None:
    parts = healthy({"/usr/lib64/libnvidia-ml.so.550.54.14": data})
    assert severities("no-nvml", Situation(parts)) == ["error"]
    assert severities("no-nvml", Situation(parts, request={"caps": ("compute",)})) == []


@pytest.mark.parametrize("companion", COMPANIONS, ids=lambda companion: f"{companion.library}-{companion.name}")
def test_a_companion_is_missed_in_the_branches_that_open_it_and_in_no_other(companion: Companion) -> None:
    until = companion.until or 990
    missed = {}
    for branch in (companion.since - 1, companion.since, until, until + 1):
        lib = f"/usr/lib64/{companion.library.partition('.so')[0]}.so.{branch}.10"
        own: Spec = {lib: elf(companion.library), f"/usr/lib64/{companion.library}": Link(basename(lib))}
        driver: Spec = {**rhel(f"{branch}.10"), **own}
        gone = [path for path in driver if basename(path).startswith(companion.name.partition(".so")[0])]
        parts = (without(driver, *gone, "/etc/ld.so.cache"), kernel(f"{branch}.10"))
        findings = found(Situation(parts, request={"caps": CAPABILITIES}))
        reported = [one for one in findings if one.code == "companion-missing" and companion.library in one.what]
        missed[branch] = [one.severity for one in reported if one.subject.startswith(companion.name)]
    due = [companion.severity]
    after = [] if companion.until else due
    assert missed == {companion.since - 1: [], companion.since: due, until: due, until + 1: after}


def test_the_command_for_a_stale_cache_names_the_root() -> None:
    situation = CASES["stale-ldcache"].fires
    assert the("stale-ldcache", *situation.parts).command == "ldconfig"
    machine = host(*situation.parts, root="/mnt/my driver")
    (finding,) = [f for f in checked(machine, situation) if f.code == "stale-ldcache"]
    assert finding.command == "ldconfig -r '/mnt/my driver'"


def test_a_compat_library_in_the_cache_is_told_as_one() -> None:
    compat = "/usr/local/cuda/compat/libcuda.so.560.35.05"
    parts = healthy(cached(("libcuda.so.1", compat)), {compat: elf("libcuda.so.1")})
    finding = the("stub-libcuda", *parts)
    assert (finding.severity, "803" in (finding.why or "")) == ("warning", True)
    assert "other-driver-version" not in [f.code for f in found(Situation(parts))]


# Nodes.


def test_missing_nodes_are_an_error_if_no_gpu_has_one() -> None:
    assert severities("gpu-node-missing", Situation(lacking("/dev/nvidia1"))) == ["warning"]
    assert severities("gpu-node-missing", Situation(lacking("/dev/nvidia0", "/dev/nvidia1"))) == ["error", "error"]


@pytest.mark.parametrize(
    ("request_", "environ", "severity"),
    [
        pytest.param({}, {}, "warning", id="nobody-chose"),
        pytest.param({"gpus": "all"}, {}, "error", id="all-by-option"),
        pytest.param({"gpus": "1,2"}, {}, "error", id="by-option"),
        pytest.param({}, {"SLURM_JOB_GPUS": "1,2"}, "error", id="some-by-slurm"),
        pytest.param({}, {"SLURM_JOB_GPUS": "0,1,2"}, "error", id="all-by-slurm"),
        pytest.param({}, {"CUDA_VISIBLE_DEVICES": "0,1,2"}, "warning", id="numbers-that-count-others"),
        pytest.param({}, {"NVIDIA_VISIBLE_DEVICES": "all"}, "warning", id="what-images-set"),
        pytest.param({"gpus": "0,2"}, {}, None, id="others"),
    ],
)
def test_a_chosen_gpu_without_its_node_is_an_error(
    request_: dict[str, Any], environ: dict[str, str], severity: Optional[str]
) -> None:
    situation = Situation(lacking("/dev/nvidia1", gpus=3), request=request_, facts={"environ": environ})
    assert severities("gpu-node-missing", situation) == ([severity] if severity else [])


def test_a_node_of_another_gpu_is_an_error_whoever_chose() -> None:
    assert severities("gpu-node-missing", Situation(healthy({"/dev/nvidia1": Node("char", 195, 7)}))) == ["error"]


@pytest.mark.parametrize(
    ("name", "major", "minor"), [("nvidiactl", 195, 7), ("nvidia-uvm", 235, 1), ("nvidia-modeset", 195, 1)]
)
def test_a_node_with_another_minor_number_than_its_name_means_is_an_error(name: str, major: int, minor: int) -> None:
    finding = the("device-number", *healthy({f"/dev/{name}": Node("char", major, minor)}))
    assert (finding.severity, finding.subject) == ("error", f"/dev/{name}")
    assert f"minor number {minor}" in finding.what
    assert finding.command


def test_a_node_that_is_another_gpus_is_no_node() -> None:
    finding = the("gpu-node-missing", *healthy({"/dev/nvidia1": Node("char", 195, 0)}))
    assert "minor number 0" in finding.what
    assert finding.command == "nvidia-modprobe -c=1"


def test_the_drivers_own_mode_explains_a_forbidden_node() -> None:
    finding = the("device-file-mode", *CASES["device-file-mode"].fires.parts)
    assert "mode 0660 and group video" in finding.what
    assert "`video`" in (finding.hint or "")


def test_mode_and_group_are_no_explanation_where_the_driver_does_not_set_them() -> None:
    params: Spec = {
        "/dev/nvidia0": Node("char", 195, 0, 0o660, 0, 44),
        "/proc/driver/nvidia/params": "ModifyDeviceFiles: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\n",
    }
    assert severities("device-file-mode", Situation(healthy(params))) == []


# MIG.


def test_a_part_without_its_nodes_is_an_error_if_nothing_else_is_there() -> None:
    assert severities("mig-node-missing", Situation(healthy(mig(nodes=(12,)), gpus=1))) == ["error"]
    assert severities("mig-node-missing", Situation(healthy(mig(nodes=(12,)), gpus=2))) == ["warning"]
    assert severities("mig-node-missing", Situation(healthy(mig(nodes=()), gpus=1))) == ["error", "error"]


def test_a_node_of_a_part_that_may_not_be_read_is_told_with_its_mode() -> None:
    finding = the("mig-node-missing", *healthy(mig(nodes=(12,)), {"/dev/nvidia-caps/nvidia-cap13": SECRET}))
    assert "mode 0400" in finding.what
    assert finding.command == "chmod a+r /dev/nvidia-caps/nvidia-cap13"


SECRET = Node("char", 234, 13, 0o400)


def test_a_parts_own_file_names_its_node_before_the_table() -> None:
    own: Spec = {"/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access": "DeviceFileMinor: 99\n"}
    finding = the("mig-node-missing", *healthy(mig(), own))
    assert finding.subject == "/dev/nvidia-caps/nvidia-cap99"
    assert finding.command == "nvidia-modprobe -f /proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access"


def test_without_device_nodes_for_capabilities_none_is_missed() -> None:
    numbers: Spec = {"/proc/devices": "Character devices:\n195 nvidia\n235 nvidia-uvm\n"}
    assert severities("mig-node-missing", Situation(healthy(mig(nodes=()), numbers))) == []


@pytest.mark.parametrize(("gpus", "severity"), [(1, "note"), (2, "warning")])
def test_whole_gpus_beside_divided_ones_are_lost_to_cuda(gpus: int, severity: str) -> None:
    assert severities("mig-mode", Situation(healthy(mig(), gpus=gpus))) == [severity]


def test_every_divided_gpu_is_told_with_its_directory() -> None:
    directories = ["/proc/driver/nvidia/capabilities/gpu0/mig", "/proc/driver/nvidia/capabilities/gpu1/mig"]
    second: Spec = {f"{directories[1]}/gi1/ci0/access": ""}
    finding = the("mig-mode", *healthy(mig(), second))
    assert (finding.subject, finding.where) == ("0000:01:00.0, 0000:02:00.0", ", ".join(directories))


@pytest.mark.parametrize(("gpus", "severity"), [(1, "error"), (2, "warning")])
def test_a_divided_gpu_without_a_part_that_computes_is_lost(gpus: int, severity: str) -> None:
    finding = the("mig-mode", *healthy(mig(("gi1",), ()), gpus=gpus))
    assert (finding.severity, finding.command) == (severity, "nvidia-smi mig -i 0000:01:00.0 -cci")


# Services.


@pytest.mark.parametrize(
    "sign",
    [
        {"/dev/nvidia-nvswitchctl": Node("char", 237, 255)},
        {"/proc/driver/nvidia-nvswitch/devices/0000:c1:00.0/information": ""},
    ],
)
def test_a_switch_shows_in_dev_or_in_proc(sign: Spec) -> None:
    assert severities("fabric-manager-missing", Situation(healthy(sign))) == ["warning"]


def test_few_gpus_wake_fast_enough() -> None:
    assert severities("persistence-missing", Situation(healthy(gpus=3))) == []


def test_another_users_mps_may_be_hidden() -> None:
    hidden: Spec = {"/tmp/nvidia-mps": Hidden(directory=True)}
    assert severities("mps-other-user", Situation(healthy(hidden))) == ["warning"]


def test_mps_may_have_a_directory_of_its_own() -> None:
    spec: Spec = {path.replace("/tmp/nvidia-mps", "/scratch/mps"): item for path, item in RUNNING_MPS.items()}
    facts = {"euid": 0, "environ": {"CUDA_MPS_PIPE_DIRECTORY": "/scratch/mps"}}
    assert severities("mps-active", Situation(healthy(spec), facts=facts)) == ["note"]


# The platform.


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("apptainer", ["warning"]),
        ("singularity", ["warning"]),
        ("bwrap", ["error"]),
        ("podman", ["error"]),
        ("docker", []),
    ],
)
def test_user_namespaces_matter_to_who_needs_them(backend: str, expected: list[str]) -> None:
    assert severities("user-namespaces-off", Situation(healthy(NO_USERNS), backend=backend)) == expected
    as_root = Situation(healthy(NO_USERNS), backend=backend, facts={"euid": 0})
    assert severities("user-namespaces-off", as_root) == []


@pytest.mark.parametrize(
    ("sysctl", "value", "off"),
    [
        ("/proc/sys/user/max_user_namespaces", "0", True),
        ("/proc/sys/user/max_user_namespaces", "63422", False),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", True),
        ("/proc/sys/kernel/unprivileged_userns_clone", "1", False),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", True),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0", False),
    ],
)
def test_three_sysctls_forbid_user_namespaces(sysctl: str, value: str, off: bool) -> None:
    situation = Situation(healthy({sysctl: f"{value}\n"}), backend="bwrap")
    assert severities("user-namespaces-off", situation) == (["error"] if off else [])


@pytest.mark.parametrize(
    "prefix", ["usr/libexec", "usr/local/libexec", "usr/lib", "usr/local/lib", "usr/lib/x86_64-linux-gnu"]
)
@pytest.mark.parametrize(("mode", "expected"), [(0o4755, []), (0o755, ["warning"])])
def test_a_set_user_id_helper_is_found_where_packages_and_make_install_put_it(
    prefix: str, mode: int, expected: list[str]
) -> None:
    helper: Spec = {f"/{prefix}/singularity/bin/starter-suid": File(elf(kind=2), mode)}
    assert severities("user-namespaces-off", Situation(healthy(NO_USERNS, helper), backend="singularity")) == expected


@pytest.mark.parametrize(("profile", "off"), [("bwrap-userns-restrict", False), ("bwrapper", True), ("podman", True)])
def test_apparmor_lets_a_program_with_a_profile_have_them(profile: str, off: bool) -> None:
    spec: dict[str, Item] = {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}
    spec[f"/etc/apparmor.d/{profile}"] = ""
    situation = Situation(healthy(spec), backend="bwrap")
    assert severities("user-namespaces-off", situation) == (["error"] if off else [])


@pytest.mark.parametrize(
    ("backend", "lacks"),
    [
        ("podman", ""),
        ("bwrap", "; no set-user-id /usr/bin/bwrap or /usr/local/bin/bwrap"),
    ],
)
def test_only_a_runtime_that_may_have_a_set_user_id_helper_is_told_that_there_is_none(backend: str, lacks: str) -> None:
    finding = the("user-namespaces-off", *healthy(NO_USERNS), backend=backend)
    assert finding.where == f"/proc/sys/user/max_user_namespaces = 0{lacks}"


def test_a_helper_without_the_bit_is_no_help() -> None:
    plain: Spec = {STARTER: File(elf(kind=2), 0o755)}
    assert severities("user-namespaces-off", Situation(healthy(NO_USERNS, plain), backend="apptainer")) == ["warning"]


@pytest.mark.parametrize(
    ("interpreter", "foreign"),
    [
        ("/lib64/ld-linux-x86-64.so.2", False),
        ("/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", False),
        ("/lib/ld-linux-aarch64.so.1", False),
        ("/usr/lib/ld-linux-x86-64.so.2", False),
        ("/usr/local/glibc/usr/lib/ld-linux-x86-64.so.2", True),
        ("/gnu/store/x/lib/ld-linux-x86-64.so.2", True),
    ],
)
def test_a_loader_is_foreign_where_no_distribution_has_it(interpreter: str, foreign: bool) -> None:
    smi: Spec = {"/usr/bin/nvidia-smi": File(elf(kind=2, interpreter=interpreter), 0o755)}
    assert bool(severities("foreign-interpreter", Situation(healthy(smi)))) is foreign


def test_a_program_below_another_root_is_read_there() -> None:
    situation = CASES["foreign-interpreter"].fires
    machine = host(*situation.parts, root="/run/nvidia/driver")
    assert "foreign-interpreter" in [f.code for f in checked(machine, situation)]


def test_a_channel_that_a_job_asks_for_is_missed_without_a_domain() -> None:
    parts = healthy(without(IMEX, "/etc/nvidia-imex/nodes_config.cfg"))
    facts = {"environ": {"NVIDIA_IMEX_CHANNELS": "0"}}
    assert severities("imex-channel-missing", Situation(parts, facts=facts)) == ["note"]
    there: Spec = {"/dev/nvidia-caps-imex-channels/channel0": Node("char", 236, 0)}
    assert severities("imex-channel-missing", Situation((*parts, there), facts=facts)) == []


def test_gds_needs_udevs_database_too() -> None:
    node: Spec = {"/dev/nvidia-fs0": Node("char", 511, 0), "/run": Dir()}
    finding = the("gds-incomplete", *healthy(without(GDS, "/run/udev"), node))
    assert "/run/udev" in finding.what
    assert "/dev/nvidia-fs*" not in finding.what


def test_a_module_of_gds_shows_in_sys_too() -> None:
    assert severities("gds-incomplete", Situation(healthy({"/sys/module/nvidia_fs": Dir()}))) == ["note"]


def test_links_of_dev_char_may_be_unknown() -> None:
    hidden: Spec = {**without(kernel(), *(f"/dev/char/{n}" for n in NUMBERS)), "/dev/char": Hidden(directory=True)}
    assert severities("dev-char-links-missing", Situation((rhel(), hidden), backend="docker")) == []


NUMBERS = ("195:0", "195:1", "195:254", "195:255", "235:0")


# Graphics.


def test_what_graphics_lacks_matters_to_who_asked_for_it() -> None:
    situation = CASES["gbm-backend-missing"].fires
    assert severities("gbm-backend-missing", situation) == ["warning"]
    assert severities("gbm-backend-missing", situation._replace(request={})) == ["note"]


def test_graphics_alone_brings_the_gbm_backend_though_it_is_a_library_of_compute() -> None:
    request = {"caps": ("graphics",)}
    parts = lacking("/usr/lib64/gbm/nvidia-drm_gbm.so")
    assert "gbm-backend-missing" not in [f.code for f in found(Situation(parts, request=request))]


def test_a_render_node_is_found_by_udevs_link() -> None:
    spec: Spec = {
        "/dev/dri/by-path/pci-0000:01:00.0-render": Link("../renderD128"),
        "/dev/dri/renderD128": Node("char", 226, 128),
    }
    request = CASES["render-node-missing"].fires.request
    assert the("render-node-missing", *healthy(spec), request=request).subject == "0000:02:00.0"


# The environment.


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0,1", []),
        ("1, 0", []),
        ("0,", []),
        ("2", ["error"]),
        ("0,2", ["warning"]),
        ("0,2,1", ["warning"]),
        ("GPU-00000001", []),
        ("gpu-00000001", ["error"]),
        ("GPU-0000000A", ["error"]),
        ("MIG-1111", ["error"]),
        ("GPU-00000000-1111-2222-3333-444444444444,GPU-dead", ["warning"]),
        ("99999999999999999999", ["error"]),
        ("all", ["error"]),
        ("0,-1", ["warning"]),
        ("-1", []),
        ("", []),
        ("NoDevFiles", []),
    ],
)
def test_cudas_list_ends_at_what_it_does_not_know(value: str, expected: list[str]) -> None:
    situation = Situation(healthy(), facts={"environ": {"CUDA_VISIBLE_DEVICES": value}})
    assert severities("visible-devices-unknown", situation) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("MIG-1111", []),
        ("MIG-GPU-00000000-1111-2222-3333-444444444444/1/0", []),
        ("MIG-GPU-00000000-1111-2222-3333-444444444444/2/0", ["error"]),
        ("MIG-GPU-00000001-1111-2222-3333-444444444444/1/0", ["error"]),
    ],
)
def test_parts_of_gpus_are_known_by_their_numbers_only(value: str, expected: list[str]) -> None:
    situation = Situation(healthy(mig()), facts={"environ": {"CUDA_VISIBLE_DEVICES": value}})
    assert severities("visible-devices-unknown", situation) == expected


def test_a_uuid_is_not_judged_while_the_driver_does_not_know_its_own() -> None:
    facts = {"environ": {"CUDA_VISIBLE_DEVICES": "GPU-dead"}}
    parts = healthy(information("GPU-????????-????-????-????-????????????"))
    assert severities("visible-devices-unknown", Situation(parts, facts=facts)) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("all", []),
        ("none", []),
        ("void", []),
        ("", []),
        ("0,1", []),
        ("0:1", []),
        ("nvidia.com/gpu=7", []),
        ("7,8", ["note"]),
    ],
)
def test_the_toolkits_variable_has_more_words(value: str, expected: list[str]) -> None:
    situation = Situation(healthy(), facts={"environ": {"NVIDIA_VISIBLE_DEVICES": value}})
    assert severities("visible-devices-unknown", situation) == expected


@pytest.mark.parametrize(
    ("value", "hides"), [("", True), ("-1", True), ("NoDevFiles", True), ("0", False), (None, False)]
)
def test_a_list_that_hides_all_gpus_is_told(value: Optional[str], hides: bool) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert bool(severities("visible-devices-none", Situation(healthy(), facts={"environ": environ}))) is hides


# What was chosen.


def test_only_the_parts_that_were_chosen_need_their_nodes() -> None:
    parts = healthy(mig(("gi1/ci0", "gi2/ci0")))  # the nodes of the second are missing
    asked = "mig-node-missing", "mig-mode"
    assert [severities(code, Situation(parts, request={"gpus": "0:1/0"})) for code in asked] == [[], []]
    spec = {"/proc/driver/nvidia-caps/mig-minors": "gpu0/gi2/access 21\ngpu0/gi2/ci0/access 22\n"}
    missing = Situation(healthy(mig(("gi1/ci0", "gi2/ci0")), spec), request={"gpus": "0:2/0"})
    assert severities("mig-node-missing", missing) == ["error", "error"]


def test_nothing_is_missing_where_no_gpu_is_to_be_had() -> None:
    parts = lacking("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
    assert [f.code for f in found(Situation(parts, request={"gpus": "none"})) if f.severity != "note"] == []


ROOTS_ALONE: list[tuple[Node, list[str]]] = [
    (Node("char", 195, 0, 0o000), ["warning"]),
    (Node("char", 195, 0, 0o600), ["warning"]),
    (Node("char", 195, 0, 0o660, 0, 0), ["warning"]),
    (Node("char", 195, 0, 0o664, 0, 0), ["warning"]),
    (Node("char", 195, 0, 0o660, 0, 44), []),
    (Node("char", 195, 0, 0o600, 1000, 1000), []),
    (Node("char", 195, 0, 0o666), []),
    (Node("char", 195, 0, 0o660, 0, 0, "user::rw-,user:1000:rw-,group::---,mask::rw-,other::---"), []),
    (Node("char", 195, 0, 0o660, 0, 0, "user::rw-,user:0:rw-,group::rw-,mask::rw-,other::---"), ["warning"]),
]


@pytest.mark.parametrize(("node", "wanted"), ROOTS_ALONE)
def test_a_node_that_nobody_else_may_open_is_a_warning_for_root(node: Node, wanted: list[str]) -> None:
    parts = healthy({"/dev/nvidia0": node})
    assert severities("device-permission", Situation(parts, facts={"euid": 0})) == wanted
    assert severities("device-permission", Situation(parts, facts={"euid": 0}, backend="apptainer")) == []


def test_to_root_a_node_for_graphics_matters_where_graphics_is_asked_for() -> None:
    parts = healthy({"/dev/nvidia-modeset": Node("char", 195, 254, 0o600), "/dev/nvidia-caps/nvidia-cap1": CAPABILITY})
    for caps, wanted in ((("compute",), []), (("compute", "graphics"), ["warning"])):
        situation = Situation(parts, facts={"euid": 0}, request={"caps": caps})
        assert severities("device-permission", situation) == wanted


@pytest.mark.parametrize("euid", [0, 1000])
@pytest.mark.parametrize(
    ("forbidden", "wanted"),
    [
        pytest.param(("/dev/nvidia0",), {}, id="another-jobs-gpu"),
        pytest.param(("/dev/nvidia0", "/dev/nvidia1"), {"gpu-forbidden": "warning"}, id="all-gpus"),
        pytest.param(("/dev/nvidiactl",), {"device-permission": "error"}, id="what-all-gpus-need"),
        pytest.param(("/dev/nvidia-modeset",), {"device-permission": "note"}, id="what-graphics-needs"),
    ],
)
def test_a_device_cgroup_is_reported_where_it_takes_what_the_job_needs(
    forbidden: tuple[str, ...], wanted: dict[str, str], euid: int
) -> None:
    asked = ("device-permission", "gpu-forbidden", "device-file-mode")
    all_found = found(Situation(healthy(), facts={"euid": euid}, forbidden=forbidden))
    assert {one.code: one.severity for one in all_found if one.code in asked} == wanted
    assert all("device cgroup" in (one.what + (one.why or "")) for one in all_found if one.code in wanted)


def test_other_jobs_parts_of_a_gpu_are_not_reported_where_a_cgroup_forbids_them() -> None:
    parts = healthy(mig(("gi1/ci0", "gi2/ci0")))
    others = Situation(parts, forbidden=("/dev/nvidia-caps/nvidia-cap12",))
    for code in ("device-permission", "mig-node-missing"):
        assert severities(code, others) == severities(code, Situation(parts))


CAPABILITY = Node("char", 235, 1, 0o400)
"""MIG's management, which is root's by design."""


def test_what_is_wrong_with_other_gpus_does_not_count() -> None:
    parts = healthy({"/dev/nvidia0": Node("char", 195, 0, 0o600)})
    assert severities("device-permission", Situation(parts)) == ["error"]
    assert severities("device-permission", Situation(parts, request={"gpus": "1"})) == []


NO_DRI: Spec = {
    "/dev/dri/by-path/pci-0000:01:00.0-render": Link("../renderD128"),
    "/dev/dri/renderD128": Node("char", 226, 128, 0o660, 0, 105),
    "/dev/nvidia-modeset": Node("char", 195, 254, 0o660, 0, 44),
}


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        pytest.param({}, ["note", "note"], id="by-default"),
        pytest.param({"caps": ("compute", "utility")}, [], id="not-planned"),
        pytest.param({"caps": ("compute", "graphics")}, ["warning", "warning"], id="by-name"),
        pytest.param({"caps": ("compute", "display")}, ["warning", "warning"], id="implied"),
    ],
)
def test_nodes_of_graphics_matter_to_whoever_asked_for_graphics(request_: dict[str, Any], wanted: list[str]) -> None:
    assert severities("device-permission", Situation(healthy(NO_DRI), request=request_)) == wanted


def test_a_forbidden_gpu_is_an_error_whatever_is_asked_for() -> None:
    parts = healthy({"/dev/nvidia0": Node("char", 195, 0, 0o600)})
    for caps in (("compute",), ("graphics",), ("utility",)):
        request = {"caps": caps}
        assert severities("device-permission", Situation(parts, request=request)) == ["error"]


def test_a_wrong_number_of_a_node_that_nobody_wants_does_not_count() -> None:
    parts = healthy({"/dev/nvidia-uvm": Node("char", 510, 0)})
    assert severities("device-number", Situation(parts)) == ["error"]
    utility = {"caps": ("utility",)}
    assert severities("device-number", Situation(parts, request=utility)) == []


# The page.
