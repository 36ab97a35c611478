"""The ROCm of an image: AMD's packages, conda's, and wheels of Python, none of which its loader finds."""

from __future__ import annotations

import pytest

from gpubind import plan
from gpubind.documents.needs import render_needs_tsv
from gpubind.image.gpucode import collect_gpu_code
from gpubind.image.needs import read_needs
from gpubind.model import Request
from tests.support.amd import alternatives, amd_host, core_sdk, kernel, opt
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.trees import Spec

SITE = "/opt/venv/lib/python3.12/site-packages"
RUNTIME = "libhsa-runtime64.so.1"


def built(hip: str) -> Spec:
    """What PyTorch says of its own build."""
    return {f"{SITE}/torch/version.py": f"cuda: Optional[str] = None\nhip: Optional[str] = {hip}\n"}


def library(path: str, *needed: str) -> Spec:
    return {path: elf(path.rpartition("/")[2], needed=(*needed, "libc.so.6"), runpath="$ORIGIN")}


TORCH: Spec = {
    **built("'6.2.41133-dd7f95766'"),
    **library(f"{SITE}/torch/lib/libtorch_hip.so", "libamdhip64.so"),
    **library(f"{SITE}/torch/lib/libamdhip64.so", "libhsa-runtime64.so"),
    **library(f"{SITE}/torch/lib/libhsa-runtime64.so"),
}
WHEELS: Spec = {
    **built("'7.13.61000'"),
    **library(f"{SITE}/torch/lib/libtorch_hip.so", "libamdhip64.so.7"),
    f"{SITE}/rocm_sdk_core-7.13.0.dist-info/METADATA": "",
    **{path: item for path, item in core_sdk(f"{SITE}/_rocm_sdk_core", "").items() if ".info" not in path},
}
CONDA: Spec = {**library(f"/opt/conda/lib/{RUNTIME}"), **library("/opt/conda/lib/libamdhip64.so.6", RUNTIME)}
CORE = "/opt/rocm/core-10.0"


@pytest.mark.parametrize(
    ("spec", "release", "directory"),
    [
        pytest.param(TORCH, "6.2", f"{SITE}/torch/lib", id="in-torch"),
        pytest.param(WHEELS, "7.13.0", f"{SITE}/_rocm_sdk_core/lib", id="rocm-sdk"),
        pytest.param(CONDA, None, "/opt/conda/lib", id="conda"),
        pytest.param({**core_sdk(CORE, "10.0.0"), **alternatives(CORE)}, "10.0.0", "/opt/rocm/lib", id="core-sdk"),
        pytest.param(core_sdk(CORE, "10.0.0"), "10.0.0", f"{CORE}/lib", id="core-sdk-without-links"),
        *(
            pytest.param(
                library(f"/opt/rocm-5.7.1/{name}/{RUNTIME}"), None, f"/opt/rocm-5.7.1/{name}", id=f"opt-{name}"
            )
            for name in ("lib", "lib64", "hsa/lib")
        ),
    ],
)
def test_an_image_with_rocm_of_its_own_gets_devices_and_none_of_the_hosts(
    spec: Spec, release: str, directory: str
) -> None:
    made = image(glibc("2.36"), spec)
    assert (made.facts.rocm, (made.facts.rocm_runtime or "").rpartition("/")[0]) == (release, directory)
    planned = plan(amd_host(opt(), kernel(2)), Request(vendors=("amd",)), image=made)
    assert [mount.kind for mount in planned.mounts if mount.kind == "library"] == []
    assert {"/dev/kfd", "/dev/dri/renderD128"} <= {node.target for node in planned.devices}
    assert [one.detail for one in planned.decisions if one.subject == RUNTIME and one.rule == "userspace"] == [
        f"the image brings its own: {made.facts.rocm_runtime}"
    ]
    needs = read_needs(made)
    assert needs.libraries == ()
    line = next(line for line in render_needs_tsv(needs, "image").splitlines() if line.startswith("ROCm"))
    assert line.split()[-1] == directory


def test_the_processors_of_rocblas_in_a_wheel_are_read_from_its_names() -> None:
    library = f"{SITE}/_rocm_sdk_libraries_gfx94X_dcgpu/lib/rocblas/library"
    made = image(glibc(), built("'7.13.61000'"), {f"{library}/Kernels.so-000-gfx942.hsaco": ""})
    assert [(one.path, one.gpu_code.code) for one in collect_gpu_code(made.tree, [SITE])] == [(library, ("gfx942",))]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(built("None"), id="torch-for-cuda"),
        pytest.param({f"{SITE}/torch/lib/libhsa-runtime64.so": "no library"}, id="no-library"),
        pytest.param(library(f"/opt/conda/lib/{RUNTIME}"), id="conda-without-hip"),
        pytest.param({f"{SITE}/_rocm_sdk_core/lib/libamd_comgr.so.3": elf("libamd_comgr.so.3")}, id="no-runtime"),
    ],
)
def test_an_image_without_a_runtime_has_no_rocm(spec: Spec) -> None:
    facts = image(glibc("2.36"), spec).facts
    assert (facts.rocm, facts.rocm_runtime) == (None, None)
