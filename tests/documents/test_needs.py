"""`gpubind needs` in each of its forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gpubind
from gpubind.documents.needs import render_needs_json, render_needs_markdown, render_needs_tsv
from gpubind.image.needs import ImageNeeds, read_needs
from gpubind.image.open import open_image
from tests.image.cuda_trees import SITE
from tests.image.test_needs import AVCODEC, FABRIC, PYTORCH
from tests.support.commands import gpubind as command
from tests.support.elf import elf
from tests.support.golden import assert_fits
from tests.support.gpucode import library, library_of, module
from tests.support.images import glibc, sandbox
from tests.support.intel import synapse
from tests.support.trees import Spec, make_tree

REQUIRES = sandbox("export NVIDIA_REQUIRE_CUDA='cuda>=12.4 brand=tesla'")
TREE: Spec = {**glibc(), **PYTORCH, **AVCODEC, **FABRIC, **REQUIRES}
NAMED = ("525.60.13", "550.54.14", "libnvidia-encode.so.1", "video", "2.21.5", "libibverbs", "NVIDIA_REQUIRE_CUDA")
HOSTILE = "/usr/lib/x86_64-linux-gnu/libavcodec.so.1|`\x1b[31m\n<b>"


def of(tmp_path: Path, tree: Spec) -> ImageNeeds:
    make_tree(tmp_path / "image", tree).close()
    with open_image(str(tmp_path / "image")) as image:
        return read_needs(image)


@pytest.mark.parametrize("tree", [TREE, glibc(), {}], ids=["everything", "nothing", "empty"])
def test_the_document_is_as_its_schema_says(tmp_path: Path, tree: Spec) -> None:
    document = json.loads(render_needs_json(of(tmp_path, tree), "app.sif"))
    assert_fits(document, "needs")


def test_names_of_files_are_shown_as_they_are_and_change_no_table(tmp_path: Path) -> None:
    found = of(tmp_path, {**glibc(), HOSTILE: elf(needed=("libcuda.so.1",))})
    markdown, tsv = render_needs_markdown(found, "x"), render_needs_tsv(found, "x")
    assert "\x1b" not in markdown + tsv
    assert all(line.startswith("| ") and line.endswith(" |") for line in markdown.splitlines())
    assert {line.count("\t") for line in tsv.splitlines()} == {2}


@pytest.mark.parametrize("form", ["text", "tsv", "markdown", "json"])
def test_every_form_has_every_need(tmp_path: Path, form: str) -> None:
    of(tmp_path, TREE)
    done = command("needs", str(tmp_path / "image"), "--format", form)
    assert done.returncode == 0, done.stderr
    for word in NAMED:
        assert word in done.stdout
    assert command("needs", str(tmp_path / "image"), "--format", form).stdout == done.stdout


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("libSynapse.so.1", "Gaudi accelerators with habanalabs of its release, which is not known"),
        ("", "1.24.0: Gaudi accelerators with habanalabs 1.24.0"),
    ],
)
def test_synapseai_needs_the_kernel_driver_of_its_release_even_where_that_is_not_known(
    tmp_path: Path, name: str, says: str
) -> None:
    spec: Spec = {f"/usr/lib/habanalabs/{name}": elf(name)} if name else synapse()
    lines = render_needs_tsv(of(tmp_path, {**glibc(), **spec}), "x").splitlines()
    assert [line.split("\t")[1] for line in lines if "Gaudi" in line] == [says]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    of(tmp_path, TREE)
    done = command("needs", str(tmp_path / "image"), "--json", "-o", str(tmp_path / "needs.json"))
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads((tmp_path / "needs.json").read_text())["schema"] == "gpubind.needs/1"


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("--format", "yaml"), 2, "unknown-format"),
        (("--program", ""), 2, "no-program"),
        (("--program", "none"), 4, "program-not-found"),
        (("--host", "debian13-nvidia550"), 2, "unknown-option"),
    ],
)
def test_wrong_use_is_told(tmp_path: Path, words: tuple[str, ...], status: int, code: str) -> None:
    of(tmp_path, glibc())
    done = command("needs", str(tmp_path / "image"), *words)
    assert (done.returncode, done.stderr.split(":")[1].strip()) == (status, code)


def test_an_image_that_cannot_be_read_is_told_in_json_too(tmp_path: Path) -> None:
    done = command("needs", str(tmp_path / "none"), "--json")
    assert done.returncode == 4
    assert json.loads(done.stdout)["schema"] == "gpubind.error/1"


def test_the_library_gives_the_same(tmp_path: Path) -> None:
    expected = of(tmp_path, TREE)
    with gpubind.open_image(tmp_path / "image") as image:
        assert gpubind.needs(image) == expected


def test_architectures_of_a_few_modules_are_by_themselves_with_the_number_of_these(tmp_path: Path) -> None:
    code = library_of(module("sm_61", "sm_86", "compute_86", alike=9), module("sm_35", "sm_61", "sm_90", "sm_90a"))
    tree = {**glibc(), f"{SITE}/paddle/libs/libphi.so": code}
    (row,) = (line for line in render_needs_tsv(of(tmp_path, tree), "x").splitlines() if "PaddlePaddle" in line)
    assert row.split("\t")[1] == "sm_61 sm_86 sm_90 sm_90a; PTX compute_86; only 1 of 10 modules: sm_35"


def test_amds_architectures_that_differ_between_the_files_of_a_framework_have_rows(tmp_path: Path) -> None:
    spec: Spec = {
        f"{SITE}/jax_plugins/xla_rocm60/xla_rocm_plugin.so": library("gfx90a", "gfx1101"),
        f"{SITE}/jax_rocm60_plugin/_linalg.so": library("gfx90a", "gfx1101"),
        f"{SITE}/jax_rocm60_plugin/_prng.so": library("gfx90a"),
    }
    lines = [line.split("\t") for line in render_needs_tsv(of(tmp_path, spec), "x").splitlines()]
    assert [line[:2] for line in lines if "gfx90a" in line[1]] == [
        ["GPU code: JAX", "gfx90a gfx1101"],
        ["... in _prng.so", "gfx90a"],
    ]


def test_code_for_each_vendor_is_in_a_row_with_its_own_file(tmp_path: Path) -> None:
    kinds = {"cuda128": ("sm_90",), "rocm64": ("gfx90a",), "rocm70": ("gfx90a", "gfx950")}
    tree = {f"{SITE}/bitsandbytes/libbitsandbytes_{kind}.so": library(*archs) for kind, archs in kinds.items()}
    rows = [line.split("\t") for line in render_needs_tsv(of(tmp_path, {**glibc(), **tree}), "x").splitlines()]
    place = f"{SITE}/bitsandbytes/libbitsandbytes"
    assert [row for row in rows if row[0].startswith(("GPU code", "..."))] == [
        ["GPU code: bitsandbytes", "sm_90", f"{place}_cuda128.so"],
        ["GPU code: bitsandbytes", "gfx90a gfx950", f"{place}_rocm64.so and 1 other file"],
        ["... in libbitsandbytes_rocm64.so", "gfx90a", f"{place}_rocm64.so"],
    ]
