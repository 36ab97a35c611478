"""What check says of CUDA versions where the image has a libcuda of its own for them."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind.model import CudaNote, Finding
from tests.image.cuda_trees import SITE, conda, torch
from tests.planner.cases_compat import COMPAT, NOTE, NOTE_13, built_for, package
from tests.rules.cases_host import on_the_bus
from tests.rules.situations import Situation, found
from tests.support.driver import kernel, rhel
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.trees import Item, Spec

FIRST = f"export LD_LIBRARY_PATH={COMPAT}"
NEWER = {**built_for("12.9.0"), **package()}
NEWER_13 = {**built_for("13.1.0"), **package("590.44.01", NOTE_13)}
PACKAGE = "NVIDIA's cuda-compat package"
CODES = ("compat-harmful", "compat-ignored", "compat-used", "cuda-minor-version", "cuda-too-new")


def said(
    spec: Spec, driver: str = "550.54.14", model: str = "", device: str = "", **request: Any
) -> dict[str, Finding]:
    side: dict[str, Item] = {**kernel(driver), **(on_the_bus(device, module="nvidia") if device else {})}
    for path, item in side.items():
        if model and isinstance(item, str):
            side[path] = item.replace("NVIDIA A100", model)
    situation = Situation((rhel(driver), side), image(spec), request)
    return {finding.code: finding for finding in found(situation) if finding.code in CODES}


def test_a_cuda_that_is_too_new_for_the_driver_is_not_with_the_compat_libcuda_in_use() -> None:
    assert set(said(NEWER_13)) == {"compat-used"}
    assert set(said(NEWER_13, cuda_compat="host")) == {"compat-ignored", "cuda-too-new"}


def test_a_compat_libcuda_that_is_in_use_and_too_old_itself_is_told() -> None:
    old = {**built_for("13.1.0", FIRST), **package("550.54.14", CudaNote("12.4", (470, 535, 550)))}
    finding = said(old, "535.54.03")["cuda-too-new"]
    assert "the image's compat libcuda supports up to 12.4" in finding.what
    assert finding.where == f"{COMPAT}/libcuda.so.550.54.14"


def test_the_note_in_the_hosts_libcuda_says_what_it_supports_not_the_table() -> None:
    noted: Spec = {"/usr/lib64/libcuda.so.550.54.14": elf("libcuda.so.1", cuda_note=CudaNote("12.2", (535, 550)))}
    situation = Situation((rhel(), kernel(), noted), image(built_for("12.9.0")), {})
    (finding,) = [each for each in found(situation) if each.code == "cuda-minor-version"]
    assert "12.2" in finding.what
    assert "the note in the host's libcuda" in f"{finding.why} {finding.where}"


def test_minor_versions_count_from_the_compat_libcuda_that_is_in_use() -> None:
    near = {**built_for("13.3.0"), **package("590.44.01", NOTE_13)}
    assert set(said(near)) == {"compat-used", "cuda-minor-version"}


def test_without_a_note_the_version_of_a_compat_libcuda_tells_what_it_serves() -> None:
    old = {**built_for("13.1.0", FIRST), **package("550.54.14", None)}
    assert "cuda-too-new" in said(old, "535.54.03")


@pytest.mark.parametrize(
    ("driver", "harmful"),
    [("575.10.10", False), ("570.211.01", False), ("575.57.08", False), ("575.99.99", True), ("590.44.01", True)],
)
def test_harmful_is_what_nvidias_toolkit_would_not_use(driver: str, harmful: bool) -> None:
    """Source: nvidia-container-toolkit, TestUseCompat; but for the driver's own version, which does no harm."""
    codes = said({**built_for("12.9.0"), **package("575.57.08", NOTE)}, driver, cuda_compat="image")
    assert ("compat-harmful" in codes, "compat-used" in codes) == (harmful, not harmful)


def test_an_image_that_puts_a_harmful_one_first_is_mended_by_the_plan() -> None:
    harmful = {**built_for("12.4.0", FIRST), **package()}
    assert set(said(harmful, "590.44.01")) == set()
    assert set(said(harmful, "590.44.01", cuda_compat="image")) == {"compat-harmful"}
    assert said(harmful, "590.44.01", cuda_compat="image")["compat-harmful"].hint == (
        "use the host's libcuda: --cuda-compat host"
    )


def test_one_that_the_images_c_library_cannot_load_is_harmful_and_not_ignored() -> None:
    spec = {**built_for("13.1.0", libc="2.28"), **package("590.44.01", NOTE_13, needs={"libc.so.6": ("GLIBC_2.34",)})}
    finding = said(spec, cuda_compat="image")["compat-harmful"]
    assert "version `GLIBC_2.34' not found" in (finding.why or "")
    assert set(said(spec)) == {"cuda-too-new"}


def test_one_that_would_help_on_some_gpus_alone_is_ignored_with_the_option_that_uses_it() -> None:
    finding = said(NEWER, model="NVIDIA RTX A6000")["compat-ignored"]
    assert "--cuda-compat image (GPUBIND_CUDA_COMPAT=image)" in (finding.hint or "")
    assert f"LD_LIBRARY_PATH={COMPAT}" in (finding.hint or "")
    assert "compat-ignored" not in said(NEWER, model="NVIDIA GeForce RTX 4090")


def test_cuda_too_new_says_why_the_images_own_package_does_not_serve() -> None:
    hint = said(NEWER_13, model="NVIDIA GeForce RTX 4090")["cuda-too-new"].hint or ""
    assert f"{COMPAT}/libcuda.so.590.44.01" in hint
    assert "(804)" in hint
    assert PACKAGE not in hint


@pytest.mark.parametrize(
    ("cuda", "driver", "model", "device", "is_offered"),
    [
        pytest.param("13.1.0", "550.54.14", "NVIDIA A100-SXM4-40GB", "0x20b0", True, id="data-centre"),
        pytest.param("13.1.0", "550.54.14", "NVIDIA A100-SXM4-40GB", "", True, id="unknown-device"),
        pytest.param("13.1.0", "550.54.14", "Made-up GPU", "", True, id="unknown-model"),
        pytest.param("13.1.0", "550.54.14", "NVIDIA GeForce RTX 4090", "", False, id="consumer"),
        pytest.param("13.1.0", "550.54.14", "NVIDIA RTX A6000", "", False, id="workstation"),
        pytest.param("13.0.0", "535.261.03", "Tesla V100-SXM2-16GB", "0x1db1", True, id="volta-up-to-580"),
        pytest.param("13.0.0", "545.29.06", "NVIDIA H100 PCIe", "0x2331", False, id="branch-without-a-package"),
        pytest.param("13.0.0", "470.256.02", "Tesla V100-SXM2-16GB", "0x1db1", False, id="13-on-470"),
        pytest.param("12.4.0", "470.256.02", "Tesla P100-PCIE-16GB", "0x15f8", True, id="12-on-470"),
        pytest.param("12.4.0", "470.256.02", "Tesla K80", "0x102d", False, id="12-on-470-with-kepler"),
        pytest.param("12.4.0", "470.256.02", "NVIDIA GeForce GTX 1080", "0x1b80", False, id="12-on-470-with-geforce"),
        pytest.param("12.4.0", "510.108.03", "NVIDIA A100-SXM4-40GB", "0x20b0", False, id="12-on-510"),
        pytest.param("11.8.0", "390.157", "Tesla V100-SXM2-16GB", "0x1db1", False, id="11-on-390"),
        pytest.param("11.8.0", "418.226.00", "Tesla V100-SXM2-16GB", "0x1db1", True, id="11-on-418"),
        pytest.param("99.0.0", "550.54.14", "NVIDIA A100-SXM4-40GB", "0x20b0", False, id="unknown-cuda"),
    ],
)
def test_nvidias_compat_package_is_offered_where_it_works(
    cuda: str, driver: str, model: str, device: str, is_offered: bool
) -> None:
    for spec in (built_for(cuda), {**built_for(cuda, FIRST), **package("384.111", None)}):
        hint = said(spec, driver, model, device)["cuda-too-new"].hint or ""
        assert (PACKAGE in hint, ", or a host with" in hint) == (is_offered, not is_offered)


def test_a_driver_that_does_not_support_the_gpu_is_offered_with_another_gpu() -> None:
    hint = said(built_for("12.4.0"), "470.256.02", "Tesla K80", "0x102d")["cuda-too-new"].hint
    assert hint == (
        "use an image for CUDA 11.4 or older, or a host with driver 525.60.13 or newer, and a GPU that it supports"
    )


def test_a_compat_libcuda_that_no_longer_supports_the_gpu_does_not_help() -> None:
    image_with_one = {**built_for("12.4.0"), **package("550.54.14", CudaNote("12.4", (470, 535, 550)))}
    assert set(said(image_with_one, "470.256.02", "Tesla P100-PCIE-16GB", "0x15f8")) == {"compat-used"}
    with_kepler = said(image_with_one, "470.256.02", "Tesla K80", "0x102d")
    assert set(with_kepler) == {"compat-harmful", "cuda-too-new"}
    assert "branch 470 are the last for the GPU" in (with_kepler["compat-harmful"].why or "")
    assert PACKAGE not in (with_kepler["cuda-too-new"].hint or "")


def test_a_compat_libcuda_of_the_image_is_no_stand_in_of_the_hosts() -> None:
    assert "stub-libcuda" not in [f.code for f in found(Situation((rhel(), kernel()), image(NEWER_13)))]


def test_a_compat_libcuda_of_the_drivers_own_version_would_not_help() -> None:
    same = {**built_for("13.1.0"), **package("550.54.14", CudaNote("12.4", (535, 550)))}
    codes = said(same)
    assert set(codes) == {"cuda-too-new"}
    assert "libcuda.so.550.54.14 cannot be used here: it is too old" in (codes["cuda-too-new"].hint or "")


def test_where_no_driver_is_known_for_a_cuda_a_newer_one_is_what_it_takes() -> None:
    assert ", or a host with a newer driver" in (said(built_for("99.1.0"))["cuda-too-new"].hint or "")
    assert ", a host with driver 580.65.06 or newer, or" in (said(built_for("13.0.0"))["cuda-too-new"].hint or "")


@pytest.mark.parametrize(
    ("name", "value", "more", "code"),
    [
        ("NVIDIA_REQUIRE_CUDA", "cuda>=12,", "", None),
        ("NVIDIA_REQUIRE_CUDA", "CUDA>=99,", "", "require-unsatisfied"),
        ("NVIDIA_REQUIRE_SDK", "sdk>=1", "", "bad-require"),
        ("NVIDIA_REQUIRE_ARCH", "arch>=8.0", "", "require-undecided"),
        # nvidia-container-toolkit, cuda_image.go, GetRequirements: these are no requirements, and with this none is.
        ("NVIDIA_REQUIRE_JETPACK", "csv-mounts=all", "", None),
        ("NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS", "base-only", "", None),
        ("NVIDIA_REQUIRE_CUDA", "cuda>>99", "NVIDIA_DISABLE_REQUIRE=true", None),
        ("NVIDIA_REQUIRE_CUDA", "cuda>=99", "NVIDIA_DISABLE_REQUIRE=1", None),
        ("NVIDIA_REQUIRE_CUDA", "cuda>=99", "NVIDIA_DISABLE_REQUIRE=false", "require-unsatisfied"),
    ],
)
def test_a_requirement_of_the_image_is_told_once(name: str, value: str, more: str, code: Optional[str]) -> None:
    lines = [f'export {name}="{value}"', *([f"export {more}"] if more else [])]
    situation = Situation((rhel("550.54.14"), dict(kernel("550.54.14"))), image(built_for("12.4.0", "\n".join(lines))))
    assert [one.code for one in found(situation) if "require" in one.code] == ([code] if code else [])


def test_a_cuda_that_pip_put_in_and_that_is_too_new_is_an_error_that_names_its_file() -> None:
    finding = said({**glibc(), **torch(SITE, "2.9.1+cu130", "13.0")})["cuda-too-new"]
    assert finding.severity == "error"
    assert (
        finding.what
        == f"{SITE}/torch/version.py in the image is for CUDA 13.0, the driver 550.54.14 supports up to 12.4"
    )


def test_a_cuda_that_is_too_new_beside_one_that_works_is_a_warning() -> None:
    old = conda("/opt/conda", "cudatoolkit-11.8.0-h6a678d5_0")
    finding = said({**glibc(), **torch(SITE, "2.9.1+cu130", "13.0"), **old})["cuda-too-new"]
    assert finding.severity == "warning"
    assert "programs for CUDA 11.8" in finding.what


def test_the_newest_cuda_that_works_is_the_one_that_is_named() -> None:
    older = conda("/opt/conda", "cudatoolkit-11.8.0-h6a678d5_0", "cudatoolkit-12.9.0-h6a678d5_0")
    finding = said({**glibc(), **torch(SITE, "2.9.1+cu130", "13.0"), **older})["cuda-too-new"]
    assert "programs for CUDA 12.9" in finding.what
