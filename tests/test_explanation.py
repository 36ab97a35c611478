"""Why a file is in the plan or not, and what a code means."""

from __future__ import annotations

import pytest
from build.driver import host, kernel, rhel

from gpubind.explanation import explain, explain_code
from gpubind.facade import plan
from gpubind.findings import texts
from gpubind.model import Request

PLAN = plan(host(rhel(), kernel()), Request())


def subjects(name: str) -> list[str]:
    return [subject for subject, _ in explain(PLAN, name).subjects]


def test_the_closest_kind_of_match_counts() -> None:
    assert subjects("libcuda.so.1") == ["libcuda.so.1"]
    starting = subjects("libcuda.so")
    assert starting
    assert all(subject.startswith("libcuda.so") for subject in starting)
    assert "libcuda.so.1" in subjects("uda.so")


def test_a_pattern_matches_as_in_a_shell() -> None:
    assert "libcuda.so.1" in subjects("libcuda.so*")
    assert subjects("libcuda.so.[2-9]") == []


def test_a_file_is_found_by_its_path_and_by_where_it_lands() -> None:
    (mount,) = [mount for mount in PLAN.mounts if mount.target.endswith("/libcuda.so.1")]
    assert "libcuda.so.1" in subjects(mount.target)


def test_every_subject_has_all_its_decisions() -> None:
    for subject, decisions in explain(PLAN, "*").subjects:
        assert decisions == tuple(one for one in PLAN.decisions if one.subject == subject)


@pytest.mark.parametrize("code", texts())
def test_every_finding_has_its_page(code: str) -> None:
    page = explain_code(code)
    assert page is not None
    assert page.startswith(f"{code}\n")


@pytest.mark.parametrize("name", ["libcuda.so.1", "no-such-code", "", "../findings"])
def test_what_is_no_code_has_no_page(name: str) -> None:
    assert explain_code(name) is None
