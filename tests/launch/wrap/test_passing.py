"""Lines that ask for no GPU at a glance; that they ask for none when they are read is in test_any_words."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubind.launch.wrap import passing
from gpubind.launch.wrap.passing import VARIABLES, asks_for_no_gpu, site_switches
from gpubind.machine.mounts import read_unrecorded
from gpubind.runtimes import PROGRAMS, RUNTIMES, WRAPPED


@pytest.mark.parametrize("words", ["build img.sif def", "pull docker://x", "cache list", "--version", "exec img true"])
def test_an_alias_costs_next_to_nothing(words: str) -> None:
    assert asks_for_no_gpu(["singularity", *words.split()], {})


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_for_gpus_has_a_line_read_that_may_start_a_container(name: str) -> None:
    assert not asks_for_no_gpu(["apptainer", "exec", "img", "true"], {name: "1"})
    assert asks_for_no_gpu(["apptainer", "--version"], {name: "1"})


def test_the_site_counts_where_a_container_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apptainer.conf").write_text("# always use rocm = yes\nalways use nv = yes\n")
    monkeypatch.setattr(passing, "SITES", (str(tmp_path / "apptainer.conf"), str(tmp_path / "none")))
    assert site_switches(["srun", "/opt/bin/singularity", "exec", "img", "true"], read_unrecorded) == ("nv",)
    assert not site_switches(["singularity", "cache", "list"], read_unrecorded)
    assert not site_switches(["docker", "run", "img"], read_unrecorded)


def test_the_glance_knows_every_program_with_flags_or_a_configuration() -> None:
    with_site = {
        name: runtime.site_config_path for name, runtime in RUNTIMES.items() if runtime.site_config_path is not None
    }
    assert (tuple(with_site), tuple(with_site.values())) == (passing.WITH_SITE, passing.SITES)
    with_flags = {name for name in WRAPPED if PROGRAMS[name].requests_gpus_by_flag}
    assert with_flags == set(passing.WITH_GPU_FLAGS)


@pytest.mark.parametrize("name", passing.WITH_SITE)
def test_the_glance_knows_every_word_with_which_a_container_is_started(name: str) -> None:
    assert {words[0] for words in PROGRAMS[name].subcommands} == set(passing.ACTIONS)


WRAPPED_LINE = ("docker", "ps")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("wrap docker ps", WRAPPED_LINE),
        ("wrap -- docker ps", WRAPPED_LINE),
        *((f"wrap {switch} docker ps", WRAPPED_LINE) for switch in ("--check", "--no-check", "--quiet", "-q", "-qv")),
        *((f"wrap {switch} docker ps", WRAPPED_LINE) for switch in ("--require-gpu", "--verbose", "-v", "-vq", "-vv")),
        ("wrap -q --check -- docker ps", WRAPPED_LINE),
        ("wrap --gpus 0 docker ps", None),
        ("wrap -q --gpus=0 -- docker ps", None),
        ("wrap -- --check docker", ("--check", "docker")),
        ("wrap", None),
        ("wrap --", None),
        ("wrap -q", None),
    ],
)
def test_the_line_after_the_switches_of_wrap_is_found(words: str, line: tuple[str, ...] | None) -> None:
    assert passing._line(words.split()) == line


@pytest.mark.parametrize(
    ("words", "asks_for_none"),
    [
        *((f"{program} ps", True) for program in ("apptainer", "singularity", "docker", "nerdctl", "podman")),
        *((f"/usr/bin/{program} exec", True) for program in ("apptainer", "podman")),
        *((f"docker run {flag} x", False) for flag in ("--gpus", "--gpus=1", "--runtime=x", "--device=/dev/null")),
        *((f"apptainer exec {flag} x", False) for flag in ("--nv", "--nvccli", "--rocm", "--nv=false")),
        *((f"docker compose {command}", False) for command in ("create", "run", "up", "watch")),
        *((f"docker compose {command}", True) for command in ("ps", "down", "logs")),
        ("podman up", True),
        ("docker build --allow nvidia.com/gpu=0 .", False),
        ("docker build --allow vendor.com/net=0 .", True),
        *((f"{program} ps", False) for program in ("runc", "crun", "ch-run", "srun", "docker-compose", "buildah")),
        ("", False),
    ],
)
def test_only_words_decide_what_is_passed_through_at_a_glance(words: str, asks_for_none: bool) -> None:
    assert asks_for_no_gpu(words.split(), {}) is asks_for_none


@pytest.mark.parametrize(
    ("text", "switches"),
    [
        ("always use nv = yes\nalways use rocm = yes\n", ("nv", "rocm")),
        ("always use nv=yes", ("nv",)),
        ("  always use rocm\t= yes ", ("rocm",)),
        ("always use nv = no\nalways use rocm = YES\n", ()),
        ("always use nv = yes\nalways use nv = no\n", ("nv",)),
        ("use nv = yes\nalways use nvccli = yes\n", ()),
    ],
)
def test_a_directive_of_the_site_adds_its_flag(text: str, switches: tuple[str, ...]) -> None:
    line = ["apptainer", "run", "img"]
    assert site_switches(line, lambda path: text.encode() if path == passing.SITES[1] else b"") == switches
    assert site_switches(line, lambda path: text.encode() if path == passing.SITES[0] else b"") == switches


def test_a_configuration_that_cannot_be_read_adds_nothing() -> None:
    def refused(path: str) -> bytes:
        raise PermissionError(path)

    assert site_switches(["apptainer", "run", "img"], refused) == ()


def test_of_a_configuration_one_mebibyte_is_read() -> None:
    assert passing.SITE_LIMIT == 1 << 20
