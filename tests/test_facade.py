"""The library: it asks the same questions as the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build.driver import host, kernel, rhel
from build.elf import elf
from build.images import glibc, image
from build.trees import File

import gpubind
from gpubind.data import HOSTS
from gpubind.errors import UsageError
from gpubind.model import ContainerPath, Request

HOST = gpubind.open_host(HOSTS[0])


def codes(*arguments: str, backend: str = "apptainer") -> list[str]:
    made = gpubind.plan(HOST, Request())
    return [finding.code for finding in gpubind.check(HOST, made, backend=backend, arguments=arguments)]


def test_a_check_with_a_runtime_asks_the_runtimes_own_questions() -> None:
    assert "devices-not-isolated" in codes()
    assert "no-dev" in codes("--no-mount", "dev")


def test_the_users_own_options_for_the_runtime_count_in_a_check() -> None:
    assert "devices-not-isolated" not in codes("--contain")


def test_a_runtime_that_only_rules_know_can_be_checked() -> None:
    assert "devices-not-isolated" not in codes(backend="podman")


@pytest.mark.parametrize("backend", ["apptainerr", "auto", ""])
def test_an_unknown_runtime_is_wrong_use(backend: str) -> None:
    with pytest.raises(UsageError, match="unknown-backend"):
        codes(backend=backend)


def test_arguments_that_end_in_the_middle_of_an_option_are_wrong_use() -> None:
    with pytest.raises(UsageError, match="incomplete-argument"):
        codes("--bind")


def test_a_plan_lands_where_its_runtime_has_things() -> None:
    on = host(rhel(), kernel())
    layouts = {name: gpubind.open_runtime(on, name) for name in ("apptainer", "bwrap")}
    libdirs = {name: gpubind.plan(on, Request(), start=start).libdir for name, start in layouts.items()}
    assert libdirs == {"apptainer": "/.singularity.d/libs", "bwrap": "/.gpubind/libs"}


def test_a_layout_that_is_given_wins_over_the_runtimes() -> None:
    from gpubind.planner.placement import GPUBIND

    on = host(rhel(), kernel())
    made = gpubind.plan(on, Request(), layout=GPUBIND, start=gpubind.open_runtime(on, "apptainer"))
    assert made.libdir == GPUBIND.libdir


def test_words_name_generated_files_where_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on = host(rhel(), kernel())
    start = gpubind.open_runtime(on, "apptainer", ["--contain"])._replace(environ={"XDG_CACHE_HOME": str(tmp_path)})
    made = gpubind.plan(on, Request(), start=start)
    words = gpubind.words(made, start)
    assert words is not None
    sources = {bind.target: bind.source for bind in words.binds}
    (generated,) = made.generated
    assert sources[generated].startswith(f"{tmp_path}/gpubind/")
    assert Path(sources[generated]).read_text() == made.generated[ContainerPath(generated)]
    assert "/dev/nvidia0" in sources


def test_a_runtime_that_builds_its_container_of_the_image_has_no_words_without_one() -> None:
    on = host(rhel(), kernel())
    start = gpubind.open_runtime(on, "bwrap")
    made = gpubind.plan(on, Request(caps=("compute",)), start=start)
    assert gpubind.words(made, start) is None
    opened = image(glibc(), {"/usr/bin/x": File(elf(kind=2), 0o755)})
    assert gpubind.words(made, start, opened) is not None


def test_json_is_the_plan_document() -> None:
    assert json.loads(gpubind.plan_json(gpubind.plan(HOST, Request())))["schema"] == "gpubind.plan/1"
