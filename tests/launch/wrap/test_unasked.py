"""Lines that ask for no GPU at a glance; that they ask for none when they are read is in test_any_words."""

from __future__ import annotations

import pytest

from gpubind.launch.wrap.unasked import VARIABLES, asks_for_no_gpu, may_be_told_by_site

PROGRAMS = ("apptainer", "/usr/bin/singularity", "docker", "podman")


@pytest.mark.parametrize("words", ["build img.sif def", "pull docker://x", "cache list", "--version", "exec img true"])
def test_an_alias_costs_next_to_nothing(words: str) -> None:
    assert asks_for_no_gpu(["singularity", *words.split()], {})


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_for_gpus_has_the_line_read(name: str) -> None:
    assert not asks_for_no_gpu(["apptainer", "exec", "img", "true"], {name: "1"})


def test_the_site_counts_where_a_container_is_started() -> None:
    assert may_be_told_by_site(["srun", "/opt/bin/singularity", "exec", "img", "true"])
    assert not may_be_told_by_site(["singularity", "cache", "list"])
    assert not may_be_told_by_site(["docker", "run", "img"])
