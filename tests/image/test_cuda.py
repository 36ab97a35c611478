"""The CUDA of an image: of its toolkit, its configuration, and what pip, conda, Spack and EasyBuild put in."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind.image.cuda import DIRECTORIES_LIMIT, directories_for, needed_cuda, prefixes_of, wheel_directory_of
from gpubind.model import ImageCuda
from gpubind.model.cuda import frameworks
from tests.image.cuda_trees import SITE, TREES, Installed, conda, torch, wheels
from tests.support.images import glibc, image, sandbox
from tests.support.trees import Dir, Link, Spec


def every_cuda(*parts: Spec) -> tuple[ImageCuda, ...]:
    return image(glibc(), *parts).facts.every_cuda


@pytest.mark.parametrize("installed", TREES, ids=lambda installed: installed.how.strip("`"))
def test_the_cuda_that_a_package_manager_put_in_is_found(installed: Installed) -> None:
    found = every_cuda(installed.tree)
    told = (found[0].version, found[0].where) if found else ("", "")
    assert told == (installed.cuda, installed.where)
    assert {one.origin for one in found} <= {"pip", "conda", "spack", "easybuild"}


def test_the_newest_of_several_is_the_images_and_all_are_known() -> None:
    spec = {
        **sandbox("export CUDA_VERSION=12.2.0"),
        **torch(SITE, "2.9.1+cu130", "13.0"),
        **conda("/opt/conda", "cudatoolkit-11.8.0-h6a678d5_0"),
    }
    assert [(cuda.version, cuda.origin) for cuda in every_cuda(spec)] == [
        ("13.0", "pip"),
        ("12.2.0", "variable"),
        ("11.8", "conda"),
    ]
    assert image(glibc(), spec).facts.cuda == "13.0"


def test_an_environment_that_path_names_is_found_wherever_it_lies() -> None:
    spec = {
        **sandbox("export PATH=/data/env/bin:/usr/bin:/bin"),
        **wheels("/data/env/lib/python3.12/site-packages", "nvidia_cuda_runtime_cu12-12.4.127"),
    }
    assert [cuda.version for cuda in every_cuda(spec)] == ["12.4"]


def test_lib64_that_is_a_link_to_lib_tells_nothing_new() -> None:
    spec = {**wheels("/venv/lib/python3.11/site-packages", "cupy_cuda12x-14.2.0"), "/venv/lib64": Link("lib")}
    assert len(every_cuda(spec)) == 1


def test_packages_that_only_look_alike_tell_nothing() -> None:
    site = wheels(SITE, "nvidia_cuda_nvrtc_cu12-12.4.127", "cupy-13.3.0", "torch-2.4.1", "scu-1.0+cucumber")
    records = conda("/opt/conda", "cuda-nvcc-13.0.1-0", "cudatoolkit-dev-11.7.0-h1de0b5d_6")
    spack: Spec = {"/opt/software/linux-zen3/cuda-samples-12.4-l7hh5stwqzmqkwfn": Dir(), "/software/CUDA/all": Dir()}
    assert every_cuda(site, records, spack) == ()


def test_no_more_directories_are_listed_than_the_limit() -> None:
    many: Spec = {f"/opt/{number:04}/conda-meta/cudatoolkit-11.8.0-0.json": "{}" for number in range(600)}
    last = conda("/opt/zz", "cuda-cudart-13.0.48-0")
    assert DIRECTORIES_LIMIT < 600
    assert [cuda.version for cuda in every_cuda(many, last)] == ["11.8"]


def test_the_directory_of_a_wheel_that_has_a_library_is_found() -> None:
    tree = image(glibc(), wheels(SITE, "nvidia_cudnn_cu12-9.1.0.70")).tree
    assert wheel_directory_of(tree, "", "libcudnn.so.9") == f"{SITE}/nvidia/cudnn/lib"
    assert wheel_directory_of(tree, "", "libcudnn.so.8") is None


@pytest.mark.parametrize(
    "spec",
    [
        {"/usr/local/cuda/version.txt": "CUDA Version " + "1" * 5000 + ".2\n"},
        {"/usr/local/cuda/version.json": '{"cuda": {"version": "' + "1" * 5000 + '.2"}}'},
        {f"{SITE}/torch/version.py": "cuda = '" + "1" * 5000 + ".2'\n"},
    ],
    ids=["text", "json", "torch"],
)
def test_a_version_of_thousands_of_digits_is_none(spec: Spec) -> None:
    assert image(glibc(), spec).facts.cuda is None


def test_the_version_of_a_toolkit_without_its_version_files_is_that_of_its_directory() -> None:
    tree: Spec = {"/usr/local/cuda": Link("cuda-13.0"), "/usr/local/cuda-13.0/lib64/libcudart.so.13": b""}
    assert every_cuda(tree) == (ImageCuda("13.0", "toolkit", "/usr/local/cuda"),)
    assert every_cuda({"/usr/local/cuda": Link("cuda-old"), "/usr/local/cuda-old/x": ""}) == ()


PREFIXES = (
    *("/usr", "/usr/local", "/opt", "/conda", "/miniconda3", "/venv", "/.venv", "/app/.venv", "/app/venv"),
    *("/workspace/.venv", "/workspace/venv", "/root/.venv", "/root/miniconda3", "/root/micromamba", "/app/.pixi"),
    *("/opt/other", "/opt/other/envs/one", "/conda/envs/one"),
)


def test_conda_is_found_in_each_usual_prefix() -> None:
    tree = image(glibc()).tree
    for prefix in PREFIXES:
        found = every_cuda(conda(prefix, "cudatoolkit-11.8.0-h6a678d5_0"))
        assert [(cuda.version, cuda.origin) for cuda in found] == [("11.8", "conda")], prefix
    assert list(prefixes_of(tree, "relative/bin:/usr/sbin:/x/bin")) == ["/usr"]  # the others do not exist


@pytest.mark.parametrize("root", ["/opt/software", "/opt/spack/opt/spack", "/spack/opt/spack"])
@pytest.mark.parametrize("below", ["linux-zen3", "linux-ubuntu22.04-zen3/gcc-12.3.0"])
def test_spack_installs_below_a_platform_or_a_compiler(root: str, below: str) -> None:
    (found,) = every_cuda({f"{root}/{below}/cuda-12.4.0-l7hh5stwqzmqkwfnl7hh5stwqzmqkwfn": Dir()})
    assert (found.version, found.origin) == ("12.4.0", "spack")


@pytest.mark.parametrize(
    "root", ["/opt/easybuild/software", "/easybuild/software", "/app/software", "/apps/software", "/software"]
)
def test_easybuild_has_a_directory_for_each_version(root: str) -> None:
    (found,) = every_cuda({f"{root}/CUDA/12.4.0": Dir()})
    assert (found.version, found.origin, found.where) == ("12.4.0", "easybuild", f"{root}/CUDA/12.4.0")


@pytest.mark.parametrize(
    "text",
    ["{}", "null", "[]", "no JSON", "[" * 60_000, '{"cuda": {}}', '{"cuda": {"version": 12}}'],
    ids=lambda text: text[:30],
)
def test_a_toolkit_whose_document_is_another_has_the_version_of_its_text(text: str) -> None:
    files: Spec = {"/usr/local/cuda/version.json": text, "/usr/local/cuda/version.txt": "CUDA Version 10.2.89\n"}
    assert [(one.version, one.origin, one.where) for one in every_cuda(files)] == [
        ("10.2.89", "toolkit", "/usr/local/cuda")
    ]


def test_a_framework_finds_libraries_beside_it_and_in_fixed_directories() -> None:
    packages = "/venv/lib/python3.11/site-packages"
    by_name = {framework.name: framework for framework in frameworks().values()}
    assert directories_for(by_name["CuPy"], packages, ("/w",)) == (
        "/usr/local/cuda/lib64",
        "/w",
        "/venv/lib",
    )
    assert directories_for(by_name["xFormers"], packages, ()) == (f"{packages}/torch/lib", "/venv/lib")


@pytest.mark.parametrize(
    ("versions", "needed"), [((), None), (("12.6.1", "11.8"), "12.6"), (("13",), "13"), (("1234.1",), None)]
)
def test_an_image_needs_the_first_of_its_cudas(versions: tuple[str, ...], needed: Optional[str]) -> None:
    assert needed_cuda([ImageCuda(version, "pip", "/a") for version in versions]) == needed
