"""The GPU code of the frameworks in an image, wherever the image is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional

import pytest

from gpubind import check, check_document, open_host, plan, report
from gpubind.files.facts import GPU_CODE, NAMED_LIBRARIES
from gpubind.files.opened import PACKED
from gpubind.formats.gpucode.hip import IN_ARCHIVES
from gpubind.image.gpucode import LEAST_SIZE, collect_gpu_code, gpu_code_of_program, read_gpu_code, with_code
from gpubind.image.open import open_image
from gpubind.machine.budget import current, one_command
from gpubind.model import Missing, Request
from gpubind.model.gpucode import CodeFile, GpuCode
from tests.support.commands import gpubind
from tests.support.elf import elf
from tests.support.golden import assert_fits
from tests.support.gpucode import bundle, container, library, module
from tests.support.images import glibc, image, image_with_bytes
from tests.support.layers import archive, docker_archive, packed, tar, zstd
from tests.support.squashfs import SifObject, sif, squashfs
from tests.support.trees import Link, Spec, make_tree

SITE = "/usr/local/lib/python3.11/site-packages"
TORCH: Spec = {
    **glibc(),
    f"{SITE}/torch/lib/libtorch_cuda.so": library("sm_80", "sm_90", "compute_90"),
    f"{SITE}/torch/lib/libtorch_cuda_linalg.so": library("sm_80"),
    f"{SITE}/torch/lib/libtorch_cpu.so": elf("libtorch_cpu.so"),
    f"{SITE}/torch/lib/libtorch_cuda_cu.so": Link("libtorch_cuda.so"),
}
FOUND = (
    CodeFile(f"{SITE}/torch/lib/libtorch_cuda.so", "PyTorch", True, GpuCode((module("sm_80", "sm_90", "compute_90"),))),
    CodeFile(f"{SITE}/torch/lib/libtorch_cuda_linalg.so", "PyTorch", False, GpuCode((module("sm_80"),))),
)


def of_directory(tmp_path: Path, spec: Spec) -> tuple[CodeFile, ...]:
    make_tree(tmp_path / "image", {**glibc(), **spec}).close()
    with open_image(str(tmp_path / "image")) as opened:
        return read_gpu_code(opened)


def test_a_frameworks_files_are_found_by_name_each_once(tmp_path: Path) -> None:
    assert of_directory(tmp_path, TORCH) == FOUND


DEBIAN = "/usr/lib/x86_64-linux-gnu"
SYSTEM: Spec = {
    f"{DEBIAN}/ggml/backends0/libggml-hip.so": library("gfx90a", "gfx1030"),
    f"{DEBIAN}/librocblas.so.4": Link("librocblas.so.4.4"),
    f"{DEBIAN}/librocblas.so.4.4": library("gfx803", "gfx90a"),
    f"{DEBIAN}/rocblas/4.4.0/library/Kernels.so-000-gfx906.hsaco": "",
    f"{DEBIAN}/libMIOpen.so.1": library("gfx90a"),
    f"{DEBIAN}/librocfft.so.0": library("gfx90a"),
    "/opt/rocm-7.0.0/lib/hipblaslt/library/Kernels.so-000-gfx942.hsaco": "",
    "/opt/rocm-7.0.0/lib/librocblas.so.5": library("gfx942"),
}
"""Debian's llama.cpp and librocblas4 6.4, and AMD's packages."""


def test_code_outside_of_python_is_found_in_a_distributions_directories_and_amds(tmp_path: Path) -> None:
    found = of_directory(tmp_path, SYSTEM)
    assert [(file.framework, file.path.rpartition("/")[2], file.gpu_code.code) for file in found] == [
        ("llama.cpp", "libggml-hip.so", ("gfx90a", "gfx1030")),
        ("rocBLAS", "library", ("gfx906",)),
        ("rocBLAS", "librocblas.so.5", ("gfx942",)),
        ("rocBLAS", "librocblas.so.4", ("gfx803", "gfx90a")),
        ("hipBLASLt", "library", ("gfx942",)),
        ("MIOpen", "libMIOpen.so.1", ("gfx90a",)),
        ("rocFFT", "librocfft.so.0", ("gfx90a",)),
    ]


def test_a_systems_library_is_not_that_of_a_python_package(tmp_path: Path) -> None:
    path = f"{DEBIAN}/ggml/backends0/libggml-hip.so"
    make_tree(tmp_path / "image", {**glibc(), **SYSTEM}).close()
    with open_image(str(tmp_path / "image")) as opened:
        assert [one.framework for one in gpu_code_of_program([path], opened.tree)] == ["llama.cpp"]


def test_helpers_of_jax_and_cupy_for_rocm_are_read(tmp_path: Path) -> None:
    spec: Spec = {
        f"{SITE}/jax_plugins/xla_rocm60/xla_rocm_plugin.so": library("gfx90a", "gfx1101"),
        f"{SITE}/jax_rocm60_plugin/_prng.so": library("gfx90a"),
        f"{SITE}/cupy_backends/__init__.py": "",
        f"{SITE}/cupy/random/_generator_api.cpython-311-x86_64-linux-gnu.so": library("gfx90a"),
    }
    assert {(one.framework, one.path.rpartition("/")[2]) for one in of_directory(tmp_path, spec)} == {
        ("JAX", "xla_rocm_plugin.so"),
        ("JAX", "_prng.so"),
        ("CuPy", "_generator_api.cpython-311-x86_64-linux-gnu.so"),
    }


IN_ARCHIVE = elf("libtorch_hip.so", more={".rocm_kpack_ref": b"\x81\xb2kpack_search_paths\x91"})
"""Its code is in archives: rocm-kpack leaves this section."""


@pytest.mark.parametrize(
    ("archives", "expected"),
    [
        (("gfx1201", "gfx942"), GpuCode((module("gfx942", "gfx1201"),))),
        (("gfx1201", "gfx110X"), GpuCode(unread=IN_ARCHIVES)),
        ((), GpuCode(unread=IN_ARCHIVES)),
    ],
    ids=["beside", "of-a-family", "absent"],
)
def test_code_in_archives_is_that_of_their_names_or_is_said_to_be_unread(
    tmp_path: Path, archives: tuple[str, ...], expected: GpuCode
) -> None:
    files: Spec = {f"{SITE}/torch/.kpack/torch_{arch}.kpack": "" for arch in archives}
    (found,) = of_directory(tmp_path, {f"{SITE}/torch/lib/libtorch_hip.so": IN_ARCHIVE, **files})
    assert found.gpu_code == expected


BITSANDBYTES: Spec = {
    f"{SITE}/bitsandbytes/libbitsandbytes_cuda124.so": library("sm_80"),
    f"{SITE}/bitsandbytes/libbitsandbytes_cuda128.so": library("sm_80", "sm_100"),
    f"{SITE}/bitsandbytes/libbitsandbytes_rocm64.so": library("gfx90a"),
    f"{SITE}/bitsandbytes/libbitsandbytes_rocm70.so": library("gfx90a", "gfx950"),
    f"{SITE}/bitsandbytes/libbitsandbytes_rocm714.so": library("gfx90a", "gfx950", "gfx1031"),
}


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("cuda: Optional[str] = '12.6'\nhip = None\n", ["cuda124"]),
        ("cuda = '12.1'\n", ["cuda124"]),
        ("cuda = '12.8'\n", ["cuda128"]),
        ("cuda = None\nhip: Optional[str] = '6.4.43484'\n", ["rocm64"]),
        ("hip = '7.2.26015'\n", ["rocm70"]),
        ("hip = '7.14.0'\n", ["rocm714"]),
        ("hip = '5.7.0'\n", []),
        ("version = '2.9'\n", ["cuda124", "cuda128", "rocm64", "rocm70", "rocm714"]),
    ],
)
def test_of_bitsandbytes_the_library_for_pytorchs_cuda_or_rocm_is_read(
    tmp_path: Path, text: str, opened: list[str]
) -> None:
    found = of_directory(tmp_path, {**BITSANDBYTES, f"{SITE}/torch/version.py": text})
    assert [file.path.rpartition("_")[2][:-3] for file in found] == opened


@pytest.mark.parametrize("kind", ["sif", "plain layer", "gzip layer", "zstd layer"])
def test_the_code_of_every_kind_of_image_is_the_same(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "image"
    layer = tar(dict(TORCH))
    layers = {"plain layer": layer, "gzip layer": packed(layer), "zstd layer": zstd(layer)}
    if kind == "sif":
        file.write_bytes(sif(SifObject(squashfs(TORCH))))
    else:
        file.write_bytes(archive(docker_archive([layers[kind]])))
    with open_image(str(file)) as opened:
        found = read_gpu_code(opened)
    if kind == "zstd layer":
        assert [one.path for one in found][:2] == [one.path for one in FOUND]
        assert all(one.gpu_code == GpuCode(unread=PACKED) for one in found)
    else:
        assert found == FOUND


def test_a_file_that_is_too_large_for_a_copy_is_read_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubind.image.layers.ELF_LIMIT", 256)
    monkeypatch.setattr("gpubind.files.opened.COPY_LIMIT", 512)
    (tmp_path / "image").write_bytes(archive(docker_archive([packed(tar(dict(TORCH)))])))
    with open_image(str(tmp_path / "image")) as opened:
        assert read_gpu_code(opened) == FOUND


def test_a_large_file_in_a_gzip_layer_is_unpacked_once_for_all_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubind.files.compressed.CHUNK", 256)
    monkeypatch.setattr("gpubind.files.opened.COPY_MEMORY", 512)
    large = f"{SITE}/torch/lib/libtorch_cuda.so"
    (tmp_path / "image").write_bytes(archive(docker_archive([packed(tar(dict(TORCH)))])))
    with one_command(), open_image(str(tmp_path / "image")) as opened:
        budget = current()
        assert budget is not None
        opened.tree.fact(large, GPU_CODE)
        left = budget.left("unpacked")
        assert not isinstance(opened.tree.elf(large), Missing)
        assert not isinstance(opened.tree.fact(large, NAMED_LIBRARIES), Missing)
        assert budget.left("unpacked") == left


def test_copies_are_within_their_bound_and_the_oldest_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: Spec = {f"/opt/lib{n}.so": library("sm_80", "sm_90") for n in range(3)}
    size = len(library("sm_80", "sm_90"))
    monkeypatch.setattr("gpubind.files.compressed.CHUNK", 256)
    monkeypatch.setattr("gpubind.files.opened.COPY_MEMORY", 16)
    monkeypatch.setattr("gpubind.files.opened.COPY_LIMIT", 2 * size)
    (tmp_path / "image").write_bytes(archive(docker_archive([packed(tar({**glibc(), **files}))])))
    with one_command(), open_image(str(tmp_path / "image")) as opened:
        budget = current()
        assert budget is not None
        for path in files:
            assert opened.tree.fact(path, GPU_CODE) == GpuCode((module("sm_80", "sm_90"),))
        left = budget.left("unpacked")
        opened.tree.fact("/opt/lib1.so", NAMED_LIBRARIES)
        opened.tree.fact("/opt/lib2.so", NAMED_LIBRARIES)
        assert budget.left("unpacked") == left
        opened.tree.fact("/opt/lib0.so", NAMED_LIBRARIES)
        assert budget.left("unpacked") < left


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    (found,) = of_directory(tmp_path, {f"{SITE}/torch/lib/libtorch_cuda.so": b"\x7fELF and nothing else"})
    assert found.gpu_code.code == ()
    assert "not an ELF file" in (found.gpu_code.unread or "")


def test_processors_of_rocblas_are_those_in_the_names_of_its_files(tmp_path: Path) -> None:
    directory = "/opt/rocm-6.2.0/lib/rocblas/library"
    files: Spec = {f"{directory}/TensileLibrary_lazy_gfx{n}.dat": "" for n in ("942", "90a")}
    (found,) = of_directory(tmp_path, {**files, "/opt/rocm": Link("rocm-6.2.0")})
    assert (found.framework, found.is_main, found.gpu_code.code) == ("rocBLAS", False, ("gfx90a", "gfx942"))


def test_programs_outside_of_python_have_places_of_their_own(tmp_path: Path) -> None:
    cuda, hip = library("sm_75", "compute_80"), library("gfx1100")
    files: Spec = {
        "/usr/lib/ollama/cuda_v12/libggml-cuda.so": cuda,
        "/usr/lib/ollama/rocm/libggml-hip.so": hip,
        "/app/libggml-cuda.so": cuda,
    }
    found = of_directory(tmp_path, files)
    assert [(one.framework, one.gpu_code.code) for one in found] == [
        ("llama.cpp", ("sm_75",)),
        ("Ollama", ("sm_75",)),
        ("Ollama", ("gfx1100",)),
    ]
    with open_image(str(tmp_path / "image")) as machine:
        assert collect_gpu_code(machine.tree, (), is_machine=True) == ()  # only installed: it shows no use by a program


def test_a_path_that_is_not_in_the_image_has_no_gpu_code() -> None:
    opened = image_with_bytes(glibc())
    assert gpu_code_of_program(("/opt/none", "/opt/neither"), opened.tree) == ()


def test_a_record_has_no_bytes_and_tells_nothing() -> None:
    assert read_gpu_code(image(TORCH)) == ()


def test_the_document_of_a_check_lists_them(tmp_path: Path) -> None:
    make_tree(tmp_path / "image", TORCH).close()
    words = ["check", "--nv", "--host", "debian13-nvidia550", "--image", str(tmp_path / "image"), "--json"]
    document = json.loads(gpubind(*words).stdout)
    assert_fits(document, "check")
    assert document["gpu_code"] == [one.to_dict() for one in FOUND]
    assert json.loads(gpubind(*words, "--no-gpu-code").stdout)["gpu_code"] == []
    with open_image(str(tmp_path / "image")) as opened:
        host = open_host("debian13-nvidia550")
        made = plan(host, Request(vendors=("nvidia",)), image=opened)
        assert check_document(made, check(host, made, opened), opened)["gpu_code"] == document["gpu_code"]
        assert report(host, made, opened).to_dict()["gpu_code"] == document["gpu_code"]
        assert report(host, made, opened, gpu_code=False).gpu_code == ()


def test_of_frameworks_in_very_many_directories_the_first_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubind.image.gpucode.FILES_LIMIT", 3)
    places = [f"/opt/env{number}/lib/python3.11/site-packages" for number in range(6)]
    spec: Spec = {f"{place}/torch/lib/libtorch_cuda.so": library("sm_80") for place in places}
    found = of_directory(tmp_path, spec)
    assert [one.gpu_code.code for one in found] == [("sm_80",), ("sm_80",), ("sm_80",), ()]
    assert found[-1].gpu_code.unread == "only 3 files are read"


def test_code_that_is_all_over_a_file_is_read_of_packed_blocks_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubind.formats.archive.squashfs.FILE_UNPACKED_LIMIT", 1 << 18)
    section = b"".join(container(name, code=b"x" * (1 << 20)) for name in ("sm_70", "sm_80", "sm_90"))
    spec: Spec = {f"{SITE}/torch/lib/libtorch_cuda.so": elf("libtorch_cuda.so", more={".nv_fatbin": section})}
    (tmp_path / "image").write_bytes(sif(SifObject(squashfs({**glibc(), **spec}))))
    with open_image(str(tmp_path / "image")) as opened:
        (found,) = read_gpu_code(opened)
    assert found.gpu_code == ((module("sm_70"), module("sm_80"), module("sm_90")), None)


# Packages that data/cuda.json lacks.


def installed(name: str, files: dict[str, bytes], sizes: Optional[dict[str, int]] = None) -> Spec:
    """The package *name* with *files*, and its RECORD, which gives each file its size, or one of *sizes*."""
    lines = [f"{path},sha256=x,{(sizes or {}).get(path, 1 << 20)}\n" for path in files]
    lines.append(f"{name}-1.0.dist-info/RECORD,,\n")
    record = {f"{SITE}/{name}-1.0.dist-info/RECORD": "".join(lines)}
    return {**{f"{SITE}/{path}": data for path, data in files.items()}, **record}


def codes(*parts: Spec) -> dict[str, Optional[str]]:
    return {
        one.path.removeprefix(f"{SITE}/"): one.framework for one in read_gpu_code(image_with_bytes(glibc(), *parts))
    }


def test_libraries_with_gpu_code_are_found_in_packages_that_nobody_listed() -> None:
    files = {
        "solver/deep/down/_c.so": library("sm_80"),
        "solver.libs/libk.so.3.1": library("sm_90"),
        "solver/_p.so": elf(),
    }
    assert codes(installed("solver", files)) == {
        "solver.libs/libk.so.3.1": "solver",
        "solver/deep/down/_c.so": "solver",
    }


def test_small_libraries_nvidias_packages_and_paths_outside_are_not_searched() -> None:
    code = library("sm_80")
    files = {"solver/_c.so": code, "nvidia/cublas/lib/libcublas.so.12": code, "../../../lib/x.so": code}
    assert codes(installed("solver", files, {"solver/_c.so": LEAST_SIZE - 1})) == {}


def test_the_files_of_a_listed_framework_are_those_of_the_list() -> None:
    files = {"torch/lib/libtorch_cuda.so": library("sm_80"), "torch/lib/libother.so": library("sm_90")}
    assert codes(installed("torch", files)) == {"torch/lib/libtorch_cuda.so": "PyTorch"}
    cupy = {"cupy_backends/x.py": b"", "cupy/cuda/cub.x.so": library("sm_80"), "cupy/random/_api.so": library("sm_90")}
    assert codes(installed("cupy_cuda12x", cupy)) == {"cupy/cuda/cub.x.so": "CuPy"}


def test_the_cuda_of_code_is_that_of_its_ptx_or_of_the_libraries_that_it_needs() -> None:
    def versions(data: bytes) -> list[tuple[str, str]]:
        opened = image_with_bytes(glibc(), installed("solver", {"solver/_c.so": data}))
        return [(one.version, one.origin) for one in with_code(opened.tree, (), read_gpu_code(opened))]

    needed = ("libcudart.so.12", "libcublas.so.11", "libm.so.6")
    assert versions(elf("x.so", needed=needed, more={".nv_fatbin": container("sm_80")})) == [("12", "code")]
    both = elf("x.so", needed=needed, more={".nv_fatbin": container("sm_80", "compute_80@8.2")})
    assert versions(both) == [("12.2", "code")]
    assert versions(elf("x.so", more={".nv_fatbin": container("sm_80")})) == []
    assert versions(elf("x.so", needed=needed, more={".hip_fatbin": bundle("gfx90a")})) == []


def test_a_program_depends_on_its_own_code_and_without_any_on_all_the_rest() -> None:
    files: Spec = {f"/a/{name}": library("sm_80") for name in ("program", "libx.so", "libtorch_cuda.so")}
    tree = image_with_bytes(glibc(), files, {"/a/plain": elf(kind=2)}).tree
    libraries = ("/a/libx.so", "/a/libtorch_cuda.so")

    def mains(*paths: str) -> list[tuple[str, Optional[str], bool]]:
        return [(one.path, one.framework, one.is_main) for one in gpu_code_of_program(paths, tree)]

    of_torch = ("/a/libtorch_cuda.so", "PyTorch", True)
    assert mains("/a/program", *libraries) == [("/a/program", None, True), ("/a/libx.so", None, False), of_torch]
    assert mains("/a/plain", *libraries) == [("/a/libx.so", None, True), of_torch]
    assert mains() == []


def test_a_list_of_files_that_is_too_long_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubind.image.gpucode.RECORD_LIMIT", 10)
    (found,) = read_gpu_code(image_with_bytes(glibc(), installed("solver", {"solver/_c.so": library("sm_80")})))
    assert found.path.endswith("solver-1.0.dist-info/RECORD")
    assert found.gpu_code.unread == "larger than 10 bytes"


def test_of_very_many_libraries_the_largest_are_examined_and_the_rest_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpubind.image.gpucode.LIBRARIES_LIMIT", 1)
    files = {"solver/small.so": library("sm_80"), "solver/large.so": library("sm_90")}
    found = read_gpu_code(image_with_bytes(glibc(), installed("solver", files, {"solver/large.so": 1 << 21})))
    assert [(one.path, one.gpu_code.unread) for one in found] == [
        (f"{SITE}/solver/large.so", None),
        (SITE, "1 libraries of packages are examined, not the 1 smallest"),
    ]
    tree = image_with_bytes(glibc(), installed("solver", files)).tree
    assert [one.path for one in collect_gpu_code(tree, (SITE, "/opt/other"))][-1] == SITE
