"""What is known of an image's environment: its files, in Apptainer's order, without Singularity's own."""

from __future__ import annotations

import pytest

from gpubind.image.environment import DEFAULT_PATH
from gpubind.model import ImageFacts
from tests.support.images import glibc, image
from tests.support.trees import File, Spec


def facts(**files: str) -> ImageFacts:
    """The facts of an image with these environment files; `_` stands for `-`."""
    spec: Spec = {f"/.singularity.d/env/{name.replace('_', '-').lstrip('n')}.sh": text for name, text in files.items()}
    return image(glibc(), spec).facts


def test_what_the_post_section_writes_counts() -> None:
    assert facts(n91_environment="export LD_LIBRARY_PATH=/own").env["LD_LIBRARY_PATH"] == "/own"


@pytest.mark.parametrize("name", ["n01_base", "n94_appsbase", "n95_apps", "n99_base", "n99_runtimevars"])
def test_singularitys_own_files_do_not_count(name: str) -> None:
    made = facts(**{name: "export CUDA_VERSION=1; if a; then b; fi"})
    assert (made.env, made.undecided) == ({}, ())


def test_files_count_in_the_order_of_their_bytes() -> None:
    made = facts(n9_b="export CUDA_VERSION=$CUDA_VERSION.9", n10_a="export CUDA_VERSION=10", B="export CUDA_VERSION=B")
    assert made.env["CUDA_VERSION"] == "B"
    assert facts(n9_b="export CUDA_VERSION=$CUDA_VERSION.9", n10_a="CUDA_VERSION=10").env["CUDA_VERSION"] == "10.9"


def test_a_condition_makes_no_fact() -> None:
    made = facts(n90_environment="if [ -d /opt/cuda13 ]; then\n  export CUDA_VERSION=13.0\nfi\n")
    assert (made.env, made.cuda) == ({}, None)
    assert made.undecided == ("CUDA_VERSION", "LD_LIBRARY_PATH", "PATH")


def test_what_is_not_exported_reaches_no_program_but_for_the_search_paths() -> None:
    made = facts(n90_environment="CUDA_VERSION=12.0\nLD_LIBRARY_PATH=/own\nPATH=/opt:$PATH\n")
    assert made.env == {"LD_LIBRARY_PATH": "/own", "PATH": f"/opt:{DEFAULT_PATH}"}


def test_the_path_of_a_docker_image_is_completed() -> None:
    made = facts(n10_docker2singularity="export PATH=/opt/bin:/bin")
    assert made.env["PATH"] == "/opt/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin"


def test_a_file_that_cannot_be_read_decides_nothing() -> None:
    spec: Spec = {
        "/.singularity.d/env/90-environment.sh": "export LD_LIBRARY_PATH=/own",
        "/.singularity.d/env/91-environment.sh": File(b"export LD_LIBRARY_PATH=/other\r\n"),
    }
    made = image(glibc(), spec).facts
    assert "LD_LIBRARY_PATH" not in made.env
    assert "LD_LIBRARY_PATH" in made.undecided


def test_the_default_path_is_apptainers() -> None:
    assert DEFAULT_PATH == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert "PATH" not in facts(n90_environment="export CUDA_VERSION=1").env


@pytest.mark.parametrize("name", ["n10_docker", "n10_docker2singularity"])
def test_both_files_of_docker_images_are_completed(name: str) -> None:
    assert facts(**{name: "export PATH=/opt"}).env["PATH"] == f"/opt:{DEFAULT_PATH}"
    assert facts(**{name: "export PATH="}).env.get("PATH") is None
    assert facts(n11_other="export PATH=/opt").env["PATH"] == "/opt"


@pytest.mark.parametrize(("count", "known"), [(64, True), (65, False)])
def test_files_are_read_up_to_a_number(count: int, known: bool) -> None:
    made = facts(**{f"n{number:02}_a": "export CUDA_VERSION=1" for number in range(11, 11 + count)})
    assert (made.env.get("CUDA_VERSION") == "1", "CUDA_VERSION" in made.undecided) == (known, not known)


@pytest.mark.parametrize(("more", "known"), [(0, True), (1, False)])
def test_files_are_read_up_to_a_size_in_all(more: int, known: bool) -> None:
    text = "export CUDA_VERSION=1\n".ljust(32768, "#")
    made = facts(n11_a=text + "#" * more, **{f"n{number:02}_a": text for number in range(12, 75)})
    assert "CUDA_VERSION" in (made.env if known else made.undecided)
