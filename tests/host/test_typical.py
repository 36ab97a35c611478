"""A typical host: `--host driver:535,gpu:a100x4`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubind import Request, open_host, plan
from gpubind.errors import NothingToBindError, UsageError
from gpubind.files.facts import ELF
from gpubind.formats.elf.ldcache import parse_ldcache
from gpubind.host.typical import TypicalHost
from gpubind.model import Missing, Plan, Vendor
from gpubind.model.data import table
from tests.support.branches import BRANCHES, files_of
from tests.support.typical import NVIDIA, findings_of, severe

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.sif"))


def plan_of(text: str, vendor: Vendor = "nvidia") -> Plan:
    return plan(open_host(text), Request(vendors=(vendor,)))


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_plan_has_each_library_of_the_branch_with_the_version_of_its_newest_release(branch: int) -> None:
    made = plan_of(f"driver:{branch},gpu:gtx1080x2")
    (driver,) = made.drivers
    assert driver.driver.version is not None and driver.driver.version.startswith(f"{branch}.")
    sources = {(mount.source or "").rpartition("/")[2] for mount in made.mounts}
    versioned = {name.replace("V", driver.driver.version) for name in files_of(branch) if name.endswith(".so.V")}
    on_the_host = {name for name in versioned if name.startswith(("libglx", "libEGL.so"))}
    assert versioned - on_the_host <= sources
    assert len(made.gpus) == 2 if branch < 590 else not made.gpus  # 580 is the last branch for Pascal


@pytest.mark.parametrize("branch", [branch for branch in BRANCHES if branch >= 418])
def test_a_typical_host_has_nothing_to_warn_of(branch: int) -> None:
    findings = findings_of(f"driver:{branch},gpu:t4")
    assert [finding.code for finding in findings if finding.severity != "note"] == []
    assert "typical-host" in [finding.code for finding in findings]


def test_a_typical_host_gives_a_container_what_the_recorded_one_gives() -> None:
    typical, recorded = plan_of("driver:550.163.01,gpu:t4x2"), plan_of("debian13-nvidia550")
    assert {device.target for device in recorded.devices} - {device.target for device in typical.devices} == {
        "/dev/nvidia-caps/nvidia-cap1",
        "/dev/nvidia-caps/nvidia-cap2",
    }
    libraries = [{mount.target for mount in made.mounts if mount.kind == "library"} for made in (typical, recorded)]
    of_other_packages = {"libnvidia-egl-wayland.so.1"}  # a package of its own since 545
    assert {target.rpartition("/")[2] for target in libraries[1] - libraries[0]} == of_other_packages


@pytest.mark.parametrize("image", EXAMPLES, ids=lambda path: path.name)
def test_a_typical_host_and_the_recorded_one_have_the_same_verdict_for_an_image(image: Path) -> None:
    typical, recorded = (findings_of(host, image) for host in ("driver:550.163.01,gpu:t4x2", "debian13-nvidia550"))
    assert severe(typical) == severe(recorded)


@pytest.mark.parametrize("model", table("typical")["models"])
def test_a_model_is_the_gpu_of_its_name(model: str) -> None:
    gpus = [gpu for branch in (390, 535, 580) for gpu in plan_of(f"driver:{branch},gpu:{model}").gpus]
    assert {gpu.model for gpu in gpus} == {table("typical")["models"][model][1]}


def test_a_gpu_that_the_driver_does_not_support_has_no_node_and_is_named() -> None:
    assert [gpu.model for gpu in plan_of("driver:550,gpu:b200,gpu:h100").gpus] == ["NVIDIA H100 80GB HBM3"]
    assert "gpu-unsupported" in [finding.code for finding in findings_of("driver:550,gpu:b200,gpu:h100")]


@pytest.mark.parametrize("branch", BRANCHES)
def test_no_file_of_a_branch_needs_a_driver_file_that_the_branch_lacks(branch: int) -> None:
    host = open_host(f"driver:{branch},gpu:t4")
    made = plan(host, NVIDIA)
    version = made.drivers[0].driver.version
    sources = sorted({mount.source for mount in made.mounts if mount.kind == "library" and mount.source})
    names = {source.rpartition("/")[2] for source in sources}
    for source in sources:
        facts = host.driver.fact(source, ELF)
        assert not isinstance(facts, Missing)
        needed = {*facts.needed, *(need.library for need in facts.version_needs)}
        assert {name for name in needed if name.endswith(f".so.{version}")} <= names, source


def test_a_typical_host_has_nothing_of_amds() -> None:
    with pytest.raises(NothingToBindError):
        plan_of("driver:535,gpu:t4", "amd")


def test_several_models_and_numbers_are_added() -> None:
    models = [gpu.model for gpu in plan_of("driver:580,gpu:a100x2,gpu:L4").gpus]
    assert models == ["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "NVIDIA L4"]


def test_a_release_may_be_named_instead_of_a_branch() -> None:
    assert plan_of("driver:535.54.03,gpu:t4").drivers[0].driver.version == "535.54.03"


def test_a_path_that_the_tables_do_not_have_is_absent() -> None:
    host = TypicalHost("driver:535,gpu:t4")
    assert not host.driver.has("/srv/no/such/file")
    assert not host.lenient.driver.has("/srv/no/such/file")


def test_the_ld_cache_names_the_driver_of_the_branch() -> None:
    cache = TypicalHost("driver:470,gpu:t4").driver.read("/etc/ld.so.cache")
    assert isinstance(cache, bytes)
    named = {entry.name: entry.path for entry in parse_ldcache(cache)}
    assert named["libcuda.so.1"] == "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    assert named["libc.so.6"] == "/lib/x86_64-linux-gnu/libc.so.6"
    assert "libnvidia-rtcore.so.470.256.02" in named


def test_a_file_with_the_name_of_a_typical_host_is_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "driver:535,gpu:t4").write_text("{}")
    with pytest.raises(Exception, match="bad-record"):
        open_host("driver:535,gpu:t4")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("driver:535", "a typical host has a driver and at least one GPU"),
        ("gpu:a100", "a typical host has a driver and at least one GPU"),
        ("driver:535,gpu:a100,", "`` is neither the driver nor a GPU"),
        ("driver:535,driver:550,gpu:a100", "`driver:550` is neither the driver nor a GPU"),
        ("driver:534,gpu:a100", "the driver `534` is unknown"),
        ("driver:535.,gpu:a100", "the driver `535.` is unknown"),
        ("driver:535.1.2.3,gpu:a100", "the driver `535.1.2.3` is unknown"),
        ("driver:535.54,gpu:a100", "branch 535 has no release `535.54`"),
        ("driver:535,gpu:a101", "the GPU `a101` is unknown"),
        ("driver:535,gpu:a100x0", "the GPU `a100x0` is unknown"),
        ("driver:535,gpu:a100x17", "a typical host has at most 16 GPUs"),
        ("driver:535,gpu:a100x8,gpu:t4x9", "a typical host has at most 16 GPUs"),
    ],
)
def test_a_wrong_description_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_host(text)
    assert (caught.value.code, caught.value.why) == ("bad-typical-host", why)


def test_sixteen_gpus_are_not_too_many() -> None:
    assert len(plan_of("driver:535,gpu:a100x16").gpus) == 16
