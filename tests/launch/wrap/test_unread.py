"""Lines that are passed through: which of them may give GPUs without a plan."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from gpubind.launch.wrap.command import parse_command
from gpubind.launch.wrap.passing import asks_for_no_gpu
from gpubind.launch.wrap.unread import without_plan
from tests.support.commands import gpubind

GPU = (
    "services:\n  train:\n    image: img\n    deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}\n"
)
NO_GPU = "services:\n  web:\n    image: nginx\n    devices: [/dev/ttyUSB0]\n"
WARNED = (
    "docker compose up -d",
    "docker --debug compose -p name --profile a run train",
    "docker-compose up",
    "docker-compose --unknown value up",
    "/usr/bin/podman-compose create",
    "podman compose watch",
    "nerdctl compose up",
    "time docker compose up",
)
SILENT = ("docker compose ps", "docker compose logs up", "docker-compose down", "docker compose up --help", "docker ps")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    return tmp_path


def place_of(line: str, **environ: str) -> str | None:
    """The file that the warning about *line* names; None without a warning."""
    words = shlex.split(line)
    assert parse_command(words) is None
    warning = without_plan(words, environ)
    assert warning is None or not asks_for_no_gpu(words, environ)
    assert warning is None or "gpubind plan --format c" in warning.hint
    return None if warning is None else warning.where


@pytest.mark.parametrize("line", WARNED)
def test_compose_is_warned_about_where_its_file_may_ask_for_gpus(project: Path, line: str) -> None:
    assert place_of(line) is None  # there is no file
    (project / "compose.yaml").write_text(NO_GPU)
    assert place_of(line) is None
    (project / "compose.override.yaml").write_text(GPU)
    assert place_of(line) == f"{project}/compose.override.yaml"


@pytest.mark.parametrize("line", SILENT)
def test_a_command_of_compose_that_makes_no_container_is_not_warned_about(project: Path, line: str) -> None:
    (project / "compose.yaml").write_text(GPU)
    assert place_of(line) is None


@pytest.mark.parametrize(
    "text",
    [
        "services: {a: {runtime: nvidia}}",
        "services: {a: {devices: [nvidia.com/gpu=all]}}",
        "services: {a: {gpus: all}}",
        "services: {a: {devices: [/dev/kfd, /dev/dri]}}",
        "services:\n  a:\n    extends: {file: b.yaml, service: a}",
        "include:\n  - other.yaml",
        "x" * (1 << 20) + "x",
    ],
    ids=lambda text: text[:40],
)
def test_what_a_compose_file_says_of_gpus_or_of_other_files_is_found(project: Path, text: str) -> None:
    (project / "below/docker-compose.yml").write_text(text)
    assert place_of("docker compose up") == f"{project}/below/docker-compose.yml"


def test_the_files_that_the_line_or_a_variable_names_count_and_no_other(project: Path) -> None:
    (project / "compose.yaml").write_text(GPU)
    (project / "below/a.yml").write_text(NO_GPU)
    (project / "below/b.yml").write_text(GPU)
    assert place_of("docker compose -f a.yml up") is None
    assert place_of("docker compose -f a.yml --file=b.yml up") == "b.yml"
    assert place_of("docker compose up", COMPOSE_FILE="a.yml") is None
    assert place_of("docker compose up", COMPOSE_FILE="a.yml:b.yml") == "b.yml"
    assert place_of("docker compose -f missing.yml up") is None  # Compose itself reports it
    assert place_of("docker compose -f - up") == "-"
    assert place_of("docker compose -f oci://host/app up") == "oci://host/app"
    assert place_of("docker compose --project-directory .. up") == f"{project}/compose.yaml"


NAMES = [
    f"{name}{part}.{ending}"
    for name in ("compose", "docker-compose", "podman-compose", "container-compose")
    for part in ("", ".override")
    for ending in ("yaml", "yml")
]


def test_each_default_file_of_compose_is_read_in_order(project: Path) -> None:
    assert len(NAMES) == 16
    for name in reversed(NAMES):
        (project / name).write_text(GPU)
        assert place_of("docker compose up") == f"{project}/{name}"
    (project / "below/compose.yml").write_text(NO_GPU)
    assert place_of("docker compose up") is None  # the files of the nearest directory only


@pytest.mark.parametrize("text", [
    *("a GPU", "NVIDIA", "amd.com/x", "habana", "/dev/dri", "/dev/dxg", "/dev/kfd"),
    *("extends:", "- include :", " include:"),
])  # fmt: skip
def test_each_word_of_gpus_in_a_compose_file_is_found(project: Path, text: str) -> None:
    (project / "compose.yaml").write_text(f"a: 1\n{text}\n")
    assert place_of("docker compose up") == f"{project}/compose.yaml"


@pytest.mark.parametrize("text", ["/dev/null", "amdXcom/", "x include:", "extends", "# a"])
def test_other_words_in_a_compose_file_are_not(project: Path, text: str) -> None:
    (project / "compose.yaml").write_text(f"a: 1\n{text}\n")
    assert place_of("docker compose up") is None


def test_a_compose_file_may_be_a_mebibyte_long(project: Path) -> None:
    (project / "compose.yaml").write_text("x" * (1 << 20))
    assert place_of("docker compose up") is None
    (project / "compose.yaml").write_text("x" * ((1 << 20) + 1))
    assert place_of("docker compose up") == f"{project}/compose.yaml"


def test_a_warning_says_why_and_what_to_do(project: Path) -> None:
    (project / "compose.yaml").write_text(GPU)
    warning = without_plan(["docker", "compose", "up"], {})
    assert warning is not None
    assert (warning.code, warning.what, warning.where, warning.why, warning.hint) == (
        "wrap-without-plan",
        "`docker compose` starts services without a plan, and their Compose file may ask for GPUs",
        f"{project}/compose.yaml",
        "gpubind does not read Compose files",
        "`gpubind plan --format compose -o gpu.yaml` writes a service that yours can extend; or name a CDI device in "
        "`devices`, from a spec of `gpubind plan --format cdi`; or `gpubind setup docker`",
    )
    warning = without_plan(["time", "/bin/podman", "build", "--device=nvidia.com/gpu=0"], {})
    assert warning is not None
    assert (warning.code, warning.what, warning.where, warning.why, warning.hint) == (
        "wrap-without-plan",
        "`/bin/podman` gives a build the GPUs of a CDI spec, and gpubind adds no plan to it",
        "",
        "",
        "`gpubind plan --format cdi` writes a CDI spec",
    )


@pytest.mark.parametrize("line", [
    *(f"{program} {build} --x nvidia.com/gpu=0" for program in ("docker", "podman", "nerdctl") for build in ("build",)),
    *(f"docker {build} --x amd.com/gpu=0" for build in ("buildx", "builder", "image")),
])  # fmt: skip
def test_each_command_that_builds_is_warned_about(line: str) -> None:
    assert place_of(line) == ""


@pytest.mark.parametrize(
    "line",
    ["docker pull nvidia.com/gpu", "docker build xnvidia.com/gpu", "docker build amd.com/gpus", "runc list", "docker",
     "docker build --help nvidia.com/gpu", "apptainer build nvidia.com/gpu x", "docker ps up", "docker -D ps"],
)  # fmt: skip
def test_a_line_that_builds_nothing_with_a_gpu_is_not(project: Path, line: str) -> None:
    (project / "compose.yaml").write_text(GPU)
    assert without_plan(line.split(), {}) is None


def test_a_file_that_is_none_may_say_anything(project: Path) -> None:
    os.mkfifo(project / "below/compose.yaml")
    assert place_of("docker compose up") == f"{project}/below/compose.yaml"


def test_a_build_with_a_gpu_of_cdi_is_warned_about() -> None:
    lines = ("docker buildx build --allow device=nvidia.com/gpu=all .", "podman build --device amd.com/gpu=0 .")
    for line in (*lines, "buildah bud --device nvidia.com/gpu=all .", "buildah from --device nvidia.com/gpu=0 img"):
        assert place_of(line) == ""
    assert place_of("docker buildx build -t img .") is None
    assert place_of("buildah bud -t img .") is None
    assert place_of("docker image ls") is None


@pytest.mark.parametrize("words", ["docker compose up", "docker-compose up", "podman compose up"])
def test_both_spellings_start_and_are_warned_about_alike(project: Path, words: str) -> None:
    (project / "compose.yaml").write_text(GPU)
    program = project / words.split(maxsplit=1)[0]
    program.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    program.chmod(0o755)
    environ = {"PATH": f"{project}:{os.environ['PATH']}", "HOME": str(project)}
    done = gpubind("wrap", "--", *words.split(), env=environ, cwd=project)
    assert (done.returncode, done.stdout) == (7, " ".join(words.split()[1:]) + "\n")
    name = words.rpartition(" ")[0]
    assert done.stderr.startswith(f"warning: wrap-without-plan: `{name}` starts services without a plan")
    assert gpubind("wrap", "-q", "--", *words.split(), env=environ, cwd=project).stderr == ""
