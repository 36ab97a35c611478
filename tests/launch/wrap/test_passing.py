"""Lines that ask for no GPU at a glance; that they ask for none when they are read is in test_any_words."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubind.launch.wrap import passing
from gpubind.launch.wrap.passing import VARIABLES, asks_for_no_gpu, site_switches
from gpubind.machine.mounts import text_of
from gpubind.runtimes import RUNTIMES, WRAPPED
from gpubind.runtimes.cmdline.programs import PROGRAMS


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
    assert site_switches(["srun", "/opt/bin/singularity", "exec", "img", "true"], text_of) == ("nv",)
    assert not site_switches(["singularity", "cache", "list"], text_of)
    assert not site_switches(["docker", "run", "img"], text_of)


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
