"""What an image asks of a host, from its files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import pytest

from gpubind.documents.needs import needs_table
from gpubind.errors import HostReadError
from gpubind.formats.gpucode.sycl import GENERATED
from gpubind.image import needs as needs_module
from gpubind.image.needs import DriverLibrary, ImageNeeds, IntelRuntime, Requirement, read_needs
from gpubind.image.open import OpenImages, open_image
from gpubind.image.reference import parse_reference
from gpubind.model import ImageCuda
from gpubind.model.gpucode import CodeFile, GpuCode
from tests.formats.test_sycl import archive as sycl_archive
from tests.image.cuda_trees import SITE, torch
from tests.support.elf import elf
from tests.support.gpucode import bundle, library
from tests.support.images import glibc, sandbox
from tests.support.layers import archive, docker_archive, packed, tar
from tests.support.squashfs import SifObject, sif, squashfs
from tests.support.trees import File, Link, Spec, make_tree

LIB = "/usr/lib/x86_64-linux-gnu"
AVCODEC: Spec = {f"{LIB}/libavcodec.so.59": elf("libavcodec.so.59", more={".rodata": b"\0libnvidia-encode.so.1\0"})}
PYTORCH: Spec = {
    **torch(SITE, "2.6.0", "12.4"),
    f"{SITE}/torch/lib/libtorch_cuda.so": elf(
        "libtorch_cuda.so",
        needs={"libc.so.6": ("GLIBC_2.17", "GLIBC_2.28"), "libstdc++.so.6": ("GLIBCXX_3.4.20",)},
        more={".rodata": b"\0libnvidia-ml.so.1\0"},
    ),
}


def of(tmp_path: Path, *parts: Spec, program: Optional[str] = None) -> ImageNeeds:
    tree: Spec = {}
    for part in (glibc(), *parts):
        tree = {**tree, **part}
    make_tree(tmp_path / "image", tree).close()
    with open_image(str(tmp_path / "image")) as image:
        return read_needs(image, program)


def test_an_image_without_anything_of_gpus_asks_for_nothing(tmp_path: Path) -> None:
    found = of(tmp_path)
    assert not found.is_for_gpus
    assert (found.driver, found.capabilities, found.libraries, found.fabric, found.unread) == (None, (), (), (), ())


@pytest.mark.parametrize(
    "changed",
    [
        {"cuda": (ImageCuda("12.4", "pip", "/a"),)},
        {"rocm": ("6", "libamdhip64.so.6", "/a")},
        {"gpu_code": (CodeFile("/a", None, True, GpuCode()),)},
        {"libraries": (DriverLibrary("libcuda.so.1", "nvidia", "compute", "opened", (), ("/a",)),)},
        {"requires": (Requirement("NVIDIA_REQUIRE_CUDA", "cuda>=12.4", "550.54.14", None),)},
        {"intel": (IntelRuntime("Level Zero", "/a", None),)},
        {"facts": {"rocm": "6.2"}},
        {"facts": {"rocm_runtime": "/opt/rocm/lib/libhsa-runtime64.so.1"}},
    ],
    ids=str,
)
def test_each_use_of_a_gpu_alone_makes_an_image_one_for_gpus(tmp_path: Path, changed: dict[str, Any]) -> None:
    nothing = of(tmp_path)
    if "facts" in changed:
        changed = {"facts": nothing.facts._replace(**changed["facts"])}
    assert nothing._replace(**changed).is_for_gpus


def test_a_library_that_is_linked_and_opened_is_used_once(tmp_path: Path) -> None:
    file = elf("libavcodec.so.59", needed=("libcuda.so.1",), more={".rodata": b"\0libcuda.so.1\0"})
    assert [(one.name, one.use) for one in of(tmp_path, {f"{LIB}/libavcodec.so.59": file}).libraries] == [
        ("libcuda.so.1", "linked")
    ]


def test_cuda_has_an_oldest_driver_and_one_that_serves_it_by_itself(tmp_path: Path) -> None:
    found = of(tmp_path, PYTORCH)
    assert (found.driver, found.native, found.ptx) == ("525.60.13", "550.54.14", None)
    assert (found.glibc, found.libstdcxx) == ("2.28", "3.4.20")


def test_code_that_is_only_ptx_needs_the_driver_that_compiles_it(tmp_path: Path) -> None:
    found = of(tmp_path, PYTORCH, {f"{SITE}/torch/lib/libtorch_cuda.so": library("compute_90@8.3")})
    assert (found.driver, found.ptx, found.only_ptx) == ("545.23.06", "545.23.06", ("PyTorch",))


def test_the_driver_for_ptx_follows_from_the_version_of_the_ptx(tmp_path: Path) -> None:
    found = of(tmp_path, PYTORCH, {f"{SITE}/torch/lib/libtorch_cuda.so": library("sm_80", "compute_80@8.1")})
    assert (found.driver, found.ptx, found.only_ptx) == ("525.60.13", "530.30.02", ())


def test_a_library_without_a_known_cuda_has_the_one_that_its_code_needs(tmp_path: Path) -> None:
    path = f"{SITE}/ctranslate2.libs/libctranslate2-1.so.4"
    found = of(tmp_path, {f"{SITE}/ctranslate2/__init__.py": "", path: library("sm_80", "compute_80@8.2")})
    assert found.cuda == (ImageCuda("12.2", "code", path),)
    assert (found.driver, found.native) == ("525.60.13", "535.54.03")


def test_a_library_that_is_opened_by_name_is_not_sure(tmp_path: Path) -> None:
    found = of(tmp_path, PYTORCH, AVCODEC)
    assert found.capabilities == (
        ("compute", True, "CUDA 12.4"),
        ("utility", False, "libnvidia-ml.so.1"),
        ("video", False, "libnvidia-encode.so.1"),
    )


def test_what_is_linked_with_a_driver_needs_it_and_its_versions(tmp_path: Path) -> None:
    linked = elf("libavcodec.so.59", needed=("libcuda.so.1",), needs={"libcuda.so.1": ("libcuda.so.1_12",)})
    (used,) = of(tmp_path, {f"{LIB}/libavcodec.so.59": linked}).libraries
    path = f"{LIB}/libavcodec.so.59"
    assert used == DriverLibrary("libcuda.so.1", "nvidia", "compute", "linked", ("libcuda.so.1_12",), (path,))


def test_a_library_that_all_vendors_share_is_never_sure(tmp_path: Path) -> None:
    (used,) = of(tmp_path, {"/usr/bin/glxinfo": elf(kind=2, needed=("libGL.so.1",))}).libraries
    assert (used.name, used.vendor, used.capability, used.use) == ("libGL.so.1", "any", "graphics", "opened")


def test_rocm_is_asked_of_the_host_only_if_the_image_lacks_it(tmp_path: Path) -> None:
    user: Spec = {f"{LIB}/libavcodec.so.59": elf(needed=("libamdhip64.so.6",))}
    (tmp_path / "other").mkdir()
    assert [one.vendor for one in of(tmp_path, user).libraries] == ["amd"]
    assert of(tmp_path / "other", user, {f"{LIB}/libamdhip64.so.6": elf("libamdhip64.so.6")}).libraries == ()


JAX7: Spec = {
    f"{SITE}/jax_plugins/xla_rocm7/xla_rocm_plugin.so": elf(
        "xla_rocm_plugin.so",
        needed=("librocprofiler-sdk.so.1", "librccl.so.1", "libamdhip64.so.7"),
        more={".hip_fatbin": bundle("gfx90a", "gfx1101")},
    ),
    f"{SITE}/jax_rocm7_plugin/_prng.so": library("gfx90a"),
}
"""Of jax-rocm7-pjrt 0.12.0."""


def test_the_release_of_rocm_follows_from_what_a_framework_is_linked_with(tmp_path: Path) -> None:
    found = of(tmp_path, JAX7)
    plugin = f"{SITE}/jax_plugins/xla_rocm7/xla_rocm_plugin.so"
    assert found.rocm == ("7", "libamdhip64.so.7", plugin)
    assert found.lacking == (("librccl.so.1", plugin), ("librocprofiler-sdk.so.1", plugin))
    assert [(one.name, one.use) for one in found.libraries] == [("libamdhip64.so.7", "linked")]
    assert found.is_for_gpus


def test_libraries_of_rocm_that_parts_of_a_framework_need_are_missing_too(tmp_path: Path) -> None:
    part = elf("_solver.so", needed=("librocsolver.so.0",), more={".hip_fatbin": bundle("gfx90a")})
    path = f"{SITE}/jax_rocm7_plugin/_solver.so"
    assert ("librocsolver.so.0", path) in of(tmp_path, JAX7, {path: part}).lacking


def test_of_bitsandbytes_without_pytorch_each_library_is_looked_at(tmp_path: Path) -> None:
    tree: Spec = {
        f"{SITE}/bitsandbytes/libbitsandbytes_rocm{name}.so": elf(
            needed=(needed,), more={".hip_fatbin": bundle("gfx90a")}
        )
        for name, needed in (("64", "libhipblas.so.2"), ("70", "libhipblas.so.3"))
    }
    assert [name for name, _ in of(tmp_path, tree).lacking] == ["libhipblas.so.2", "libhipblas.so.3"]


def test_triton_opens_hip_and_an_image_for_cuda_needs_none(tmp_path: Path) -> None:
    triton: Spec = {f"{SITE}/triton/backends/{vendor}/driver.py": "" for vendor in ("amd", "nvidia")}
    (tmp_path / "cuda").mkdir()
    assert [one.name for one in of(tmp_path, triton).libraries] == ["libamdhip64.so", "libcuda.so.1"]
    assert [one.name for one in of(tmp_path / "cuda", triton, torch(SITE, "2.6.0", "12.4")).libraries] == [
        "libcuda.so.1"
    ]


def test_libgl_that_hip_opens_is_no_need_of_the_image(tmp_path: Path) -> None:
    hip = elf("libamdhip64.so.6", more={".rodata": b"\0libGL.so.1\0"})
    solve = File(elf(needed=("libamdhip64.so.6",), kind=2), 0o755)
    found = of(tmp_path, {f"{LIB}/libamdhip64.so.6": hip, "/usr/bin/solve": solve}, program="/usr/bin/solve")
    assert found.libraries == ()
    assert found.rocm == ("6", "libamdhip64.so.6", "/usr/bin/solve")


def test_a_module_of_python_that_opens_a_library_is_known_by_its_name(tmp_path: Path) -> None:
    (used,) = of(tmp_path, {f"{SITE}/pynvml.py": ""}).libraries
    assert (used.name, used.use, used.by) == ("libnvidia-ml.so.1", "opened", (f"{SITE}/pynvml.py",))


def test_the_images_own_word_about_capabilities_and_drivers_counts(tmp_path: Path) -> None:
    env = sandbox("export NVIDIA_DRIVER_CAPABILITIES=compute,video\nexport NVIDIA_REQUIRE_CUDA='cuda>=12.4'")
    found = of(tmp_path, env)
    assert [(name, sure) for name, sure, _ in found.capabilities] == [("compute", True), ("video", True)]
    assert found.requires == (Requirement("NVIDIA_REQUIRE_CUDA", "cuda>=12.4", "550.54.14", None),)


def test_a_requirement_that_nobody_can_read_says_why(tmp_path: Path) -> None:
    (one,) = of(tmp_path, sandbox("export NVIDIA_REQUIRE_CUDA='what=1'")).requires
    assert (one.name, one.text, one.driver) == ("NVIDIA_REQUIRE_CUDA", "what=1", None)
    assert one.fault is not None
    assert one.fault.endswith(")")


PROGRAM: Spec = {
    "/opt/app/solve": File(elf(kind=2, needed=("libapp.so", "libgone.so.1", "libcuda.so.1")), 0o755),
    f"{LIB}/libapp.so": elf("libapp.so", more={".rodata": b"\0libnvcuvid.so.1\0"}),
}


def test_a_program_asks_what_it_is_linked_with_asks(tmp_path: Path) -> None:
    found = of(tmp_path, PYTORCH, AVCODEC, PROGRAM, program="/opt/app/solve")
    assert [one.name for one in found.libraries] == ["libcuda.so.1", "libnvcuvid.so.1"]
    assert found.missing == ("libgone.so.1",)
    assert found.gpu_code == ()


def test_a_library_for_dlopen_needs_no_right_to_be_executed(tmp_path: Path) -> None:
    plugin = elf(needed=("libcuda.so.1",), more={".rodata": b"\0libvulkan.so.1\0"})
    found = of(tmp_path, {"/opt/plugin.so": File(plugin, 0o644)}, program="/opt/plugin.so")
    assert [one.name for one in found.libraries] == ["libcuda.so.1", "libvulkan.so.1"]


@pytest.mark.parametrize(
    ("path", "names", "uses"),
    [
        ("drjit/libdrjit-core.so", b"\0libnvoptix.so.1\0", "libnvoptix.so.1"),
        ("glcontext/egl.cpython-311-x86_64-linux-gnu.so", b"\0libEGL.so\0", "libEGL.so"),
        ("taichi/_lib/core/taichi_python.cpython-311-x86_64-linux-gnu.so", b"\0libvulkan.so.1\0", "libvulkan.so.1"),
        ("wgpu/backends/wgpu_native/__init__.py", None, "libvulkan.so.1"),
        ("pyrender/platforms/egl.py", None, "libEGL.so.1"),
        ("mujoco/egl/egl_ext.py", None, "libEGL.so.1"),
    ],
)
def test_packages_that_draw_ask_for_graphics(tmp_path: Path, path: str, names: Optional[bytes], uses: str) -> None:
    content = "" if names is None else elf(more={".rodata": names})
    found = of(tmp_path, {"/usr/bin/python3": File(elf(kind=2), 0o755), f"{SITE}/{path}": content})
    assert [one.name for one in found.libraries] == [uses]
    assert [name for name, _, _ in found.capabilities] == ["graphics"]


def test_pythons_program_may_import_everything(tmp_path: Path) -> None:
    python: Spec = {"/usr/bin/python3": File(elf(kind=2), 0o755)}
    names = [one.name for one in of(tmp_path, PYTORCH, AVCODEC, python, program="python3").libraries]
    assert names == ["libnvidia-encode.so.1", "libnvidia-ml.so.1"]


@pytest.mark.parametrize("program", ["/opt/none", "none", "/etc/passwd", "/opt"])
def test_a_program_that_does_not_run_is_an_error(tmp_path: Path, program: str) -> None:
    with pytest.raises(HostReadError, match="program-not-found") as caught:
        of(tmp_path, PROGRAM, program=program)
    assert (caught.value.what, caught.value.where) == ("the program does not run in the image", program)


FABRIC: Spec = {
    f"{LIB}/libibverbs.so.1": elf("libibverbs.so.1"),
    f"{LIB}/libibverbs/libefa-rdmav34.so": elf(),
    f"{SITE}/nvidia/nccl/lib/libnccl.so.2": elf("libnccl.so.2", more={".rodata": b"\0NCCL version 2.21.5+cuda12.4\0"}),
    f"{LIB}/libmpi.so.40": elf("libmpi.so.40"),
}


def test_libraries_for_rdma_are_named_with_what_they_use_of_the_host(tmp_path: Path) -> None:
    found = [(one.name, one.version) for one in of(tmp_path, FABRIC).fabric]
    assert found == [
        ("libibverbs", None),
        ("libibverbs of AWS' (EFA)", None),
        ("NCCL", "2.21.5"),
        ("Open MPI", None),
    ]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("libmpi.so.40", None),
        ("libmpi.so.40.30", "40.30"),
        ("libmpi.so.40.30.1.2", "40.30.1.2"),
        ("libmpi.so.40.30.1.2.3", None),
        ("libmpi.so.40.30.old", None),
    ],
)
def test_the_version_of_a_library_for_rdma_is_in_the_name_of_its_file(
    tmp_path: Path, name: str, version: Optional[str]
) -> None:
    files: Spec = {f"{LIB}/libmpi.so.40": Link("x/" + name), f"{LIB}/x/{name}": elf("libmpi.so.40")}
    assert [(one.name, one.version) for one in of(tmp_path, files).fabric] == [("Open MPI", version)]


@pytest.mark.parametrize("separator", [":", ";"])
def test_libraries_are_found_in_each_directory_of_the_library_path(tmp_path: Path, separator: str) -> None:
    env = sandbox(f'export LD_LIBRARY_PATH="/opt/a{separator}/opt/b"')
    found = of(tmp_path, env, {"/opt/b/libibverbs.so.1": elf("libibverbs.so.1")}).fabric
    assert [(one.name, one.path) for one in found] == [("libibverbs", "/opt/b/libibverbs.so.1")]


def test_a_library_for_rdma_that_is_only_opened_by_name_is_named_with_the_file_that_does(tmp_path: Path) -> None:
    nccl = f"{LIB}/libnccl.so.2"
    found = of(tmp_path, {nccl: elf("libnccl.so.2", more={".rodata": b"\0libibverbs.so.1\0"})}).fabric
    assert [(one.name, one.path, one.is_there) for one in found] == [("libibverbs", nccl, False), ("NCCL", nccl, True)]


def test_a_file_that_is_damaged_is_named_as_not_looked_at(tmp_path: Path) -> None:
    whole = AVCODEC[f"{LIB}/libavcodec.so.59"]
    assert isinstance(whole, bytes)
    found = of(tmp_path, {f"{LIB}/libavcodec.so.59": whole[:100]})
    assert [path for path, _ in found.unread] == [f"{LIB}/libavcodec.so.59"]
    assert found.to_dict()["unread"] == [{"path": path, "why": why} for path, why in found.unread]


def test_the_document_has_every_need(tmp_path: Path) -> None:
    found = of(tmp_path, JAX7, AVCODEC, FABRIC, sandbox("export NVIDIA_REQUIRE_CUDA='cuda>=12.4'"))
    plugin = f"{SITE}/jax_plugins/xla_rocm7/xla_rocm_plugin.so"
    made = found.to_dict()
    assert list(made) == [
        *("image", "program", "cuda", "driver", "requires", "gpu_code", "glibc", "libstdcxx", "capabilities"),
        *("libraries", "missing", "lacking", "rocm", "intel", "fabric", "unread"),
    ]
    assert made["driver"] == {"oldest": None, "native": None, "ptx": None, "only_ptx": []}
    assert made["rocm"] == {"release": "7", "library": "libamdhip64.so.7", "by": plugin}
    assert made["lacking"] == [
        {"name": "librccl.so.1", "by": plugin},
        {"name": "librocprofiler-sdk.so.1", "by": plugin},
    ]
    assert made["capabilities"] == [
        {"name": "compute", "sure": True, "by": "GPU code"},
        {"name": "video", "sure": False, "by": "libnvidia-encode.so.1"},
    ]
    assert made["requires"] == [
        {"name": "NVIDIA_REQUIRE_CUDA", "text": "cuda>=12.4", "driver": "550.54.14", "fault": None}
    ]
    assert [one["framework"] for one in made["gpu_code"]] == ["JAX", "JAX"]
    assert (made["missing"], made["intel"], made["unread"], made["program"]) == ([], [], [], None)
    assert [one["is_there"] for one in made["fabric"]] == [True, True, True, True]


@pytest.mark.parametrize(
    ("only", "text"),
    [((), ""), (("PyTorch",), ", as PyTorch has only PTX"), (("A", "B"), ", as A, B have only PTX")],
)
def test_ptx_alone_is_a_reason_for_a_newer_driver(tmp_path: Path, only: tuple[str, ...], text: str) -> None:
    assert of(tmp_path)._replace(only_ptx=only).because_of_ptx == text


def test_more_files_than_any_image_has_are_not_all_looked_at_and_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs_module, "FILES_LIMIT", 3)
    many: Spec = {f"{LIB}/libavcodec.so.{number}": elf(needed=(f"libcuda.so.{number}",)) for number in range(9)}
    found = of(tmp_path, many)
    assert len(found.libraries) == 3
    assert found.unread[0][1] == "more than 3 files may use a driver"


@pytest.mark.parametrize("kind", ["sif", "plain layer", "gzip layer"])
def test_every_kind_of_image_asks_the_same(tmp_path: Path, kind: str) -> None:
    tree = {**glibc(), **PYTORCH, **AVCODEC, **FABRIC}
    expected = of(tmp_path, PYTORCH, AVCODEC, FABRIC).to_dict()
    layer = tar(dict(tree))
    data = sif(SifObject(squashfs(tree))) if kind == "sif" else archive(
        docker_archive([packed(layer) if kind == "gzip layer" else layer])
    )  # fmt: skip
    (tmp_path / "file").write_bytes(data)
    with open_image(str(tmp_path / "file")) as image:
        found = read_needs(image).to_dict()
    expected.pop("image")
    found.pop("image")
    assert found == expected


def test_an_image_says_how_it_uses_intels_gpus_and_whether_it_has_the_driver(tmp_path: Path) -> None:
    lib = "/usr/lib/x86_64-linux-gnu"
    names = ("libze_loader.so.1", "libze_intel_gpu.so.1", "dri/iHD_drv_video.so")
    found = of(tmp_path, {f"{lib}/{name}": elf(name) for name in names}, {f"{lib}/libva.so.2": elf("libva.so.2")})
    assert found.is_for_gpus
    assert [(one.name, one.by, one.driver) for one in found.intel] == [
        ("Level Zero", f"{lib}/{names[0]}", f"{lib}/{names[1]}"),
        ("VA-API on Intel's GPUs", f"{lib}/{names[2]}", f"{lib}/{names[2]}"),
    ]


def test_a_package_of_openvino_uses_opencl_without_a_driver_of_its_own(tmp_path: Path) -> None:
    plugin = f"{SITE}/openvino/libs/libopenvino_intel_gpu_plugin.so"
    (found,) = of(tmp_path, PYTORCH, {plugin: elf("x.so")}).intel
    assert (found.name, found.by, found.driver) == ("OpenCL on Intel's GPUs", plugin, None)


SYCL: Spec = {
    f"{SITE}/dpnp/_ufunc_impl.so": elf(
        "x.so", needed=("libsycl.so.8", "libimf.so"), more={GENERATED: sycl_archive("64.12.55.8")}
    ),
    f"{SITE}/dpnp-0.17.0.dist-info/RECORD": "dpnp/_ufunc_impl.so,sha256=x,999999\n",
}
"""Of dpnp 0.17.0, without the runtime of SYCL."""


def test_code_of_sycl_uses_level_zero_and_what_it_lacks_is_missing(tmp_path: Path) -> None:
    found = of(tmp_path, SYCL)
    path = f"{SITE}/dpnp/_ufunc_impl.so"
    assert [(one.name, one.by, one.driver) for one in found.intel] == [("Level Zero", path, None)]
    assert found.lacking == (("libimf.so", path), ("libsycl.so.8", path))
    (tmp_path / "whole").mkdir()
    own = ("/usr/local/lib/libsycl.so.8", f"{SITE}/dpctl/libimf.so")
    assert of(tmp_path / "whole", SYCL, {file: elf(file.rpartition("/")[2]) for file in own}).lacking == ()


NUMBA_DPEX: Spec = {
    f"{SITE}/numba_dpex/core/runtime/_dpexrt_python.so": elf("x.so", needed=("libDPCTLSyclInterface.so.0",))
}
"""Of numba-dpex 0.23.0."""


def test_what_uses_intels_gpus_is_looked_at(tmp_path: Path) -> None:
    plugin = f"{SITE}/openvino/libs/libopenvino_intel_gpu_plugin.so"
    versions = {"libc.so.6": ("GLIBC_2.31",)}
    found = of(tmp_path, {plugin: elf("x.so", needed=("libOpenCL.so.1",), needs=versions)})
    assert [(one.name, one.by) for one in found.libraries] == [("libOpenCL.so.1", (plugin,))]
    assert found.glibc == "2.31"
    (tmp_path / "numba").mkdir()
    assert [one.name for one in of(tmp_path / "numba", NUMBA_DPEX).intel] == ["Level Zero"]


def of_environment(directory: Path, program: Optional[str] = None) -> ImageNeeds:
    with OpenImages() as images:
        return read_needs(images.image_or_environment(parse_reference(str(directory))), program)


@pytest.mark.parametrize("marker", ["pyvenv.cfg", "conda-meta/history"])
def test_an_environment_of_python_asks_what_its_own_packages_ask(tmp_path: Path, marker: str) -> None:
    site = {path.replace(SITE, "/lib/python3.11/site-packages"): item for path, item in PYTORCH.items()}
    codec = {"/lib/libavcodec.so.59": AVCODEC[f"{LIB}/libavcodec.so.59"]}
    make_tree(
        tmp_path / "env", {**site, **codec, f"/{marker}": "home = /usr/bin\n", "/bin/python3": Link("python3.11")}
    ).close()
    make_tree(tmp_path / "other", {**torch("/lib/python3.11/site-packages", "2.9.0", "13.0")}).close()
    (tmp_path / "env" / "bin" / "python3.11").write_bytes(elf(kind=2, needed=("libc.so.6",)))
    needs = of_environment(tmp_path / "env")
    assert [(cuda.version, cuda.where.startswith(f"{tmp_path}/env/")) for cuda in needs.cuda] == [("12.4", True)]
    assert (needs.driver, needs.glibc, needs.facts.libc_family) == ("525.60.13", "2.28", "none")
    assert {library.name for library in needs.libraries} == {"libnvidia-ml.so.1", "libnvidia-encode.so.1"}
    assert (needs.facts.driver, needs.facts.compat, needs.program) == ((), (), None)
    environment = ("environment", "of Python, on this machine: not an image", f"{tmp_path}/env")
    assert environment in list(needs_table(needs).rows)


def test_an_environment_without_python_asks_what_its_records_say(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/conda-meta/cuda-version-12.6-h7480c83_3.json": "{}"}).close()
    needs = of_environment(tmp_path)
    assert [cuda.version for cuda in needs.cuda] == ["12.6"]


def test_a_program_of_an_environment_is_found_in_it(tmp_path: Path) -> None:
    solve = elf(kind=2, needs={"libc.so.6": ("GLIBC_2.30",)}, needed=("libcuda.so.1",))
    make_tree(tmp_path, {"/pyvenv.cfg": "", "/bin/solve": File(solve, 0o755)}).close()
    needs = of_environment(tmp_path, "solve")
    assert [(library.name, library.use) for library in needs.libraries] == [("libcuda.so.1", "linked")]
