"""Every file that a branch of NVIDIA's driver ships is in our list; docs/drivers.md says who else names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from fnmatch import fnmatchcase

import pytest

from gpubind.formats.driver.liblist import parse_liblist
from gpubind.formats.driver.names import COMPANIONS, Companion
from gpubind.host.base import shipped_liblist
from gpubind.model.data import read_data
from tests.support.branches import BRANCHES, CONTAINER_CLI, RANGES, SOURCES, TOOLKIT, branches_of, files_of
from tests.support.golden import DOCS, assert_golden, assert_none

OURS = tuple(entry.text for entry in parse_liblist(shipped_liblist("nvliblist.conf").data, "").entries)
LIKE = json.loads(read_data("model/data/like.json"))["names"]
INSTALLED = {"nvidia_icd_vksc.json": "/usr/share/vulkansc/icd.d/nvidia_icd.json"}
"""Where a file is that has another name in the .run file."""
STAYS = (
    "libglx.so.V",
    "libglxserver_nvidia.so.V",
    "nvidia_drv.so",
    "sandboxutils-filelist.json",
)
"""Modules of the X server, and the list that tools on the host read: no container gets them."""


def is_named(file: str, entries: tuple[str, ...]) -> bool:
    """Return whether a list with these *entries* names *file*: a library by its beginning, another file by its name."""
    if file in INSTALLED:
        return matches(INSTALLED[file], entries)
    libraries = tuple(one for one in entries if ".so" in one)
    return file.startswith(libraries) or matches(file, tuple(one.rpartition("/")[2] for one in entries))


def matches(file: str, patterns: tuple[str, ...]) -> bool:
    """Return whether *file* fits one of *patterns*."""
    return any(fnmatchcase(file, pattern) for pattern in patterns)


PEERS: dict[str, Callable[[str], bool]] = {
    "Apptainer 1.4, 1.5, main": lambda file: is_named(file, tuple(LIKE["apptainer"]["nvidia"])),
    "SingularityCE 4.5": lambda file: is_named(file, tuple(LIKE["singularity"]["nvidia"])),
    "nvidia-container-cli": lambda file: matches(file, CONTAINER_CLI),
    "nvidia-ctk cdi": lambda file: matches(file, TOOLKIT),
}


@pytest.mark.parametrize("branch", BRANCHES)
def test_every_file_of_a_branch_is_in_our_list_or_stays_on_the_host(branch: int) -> None:
    missing = (file for file in files_of(branch) if not is_named(file, OURS) and file not in STAYS)
    assert_none(
        missing, "etc/nvliblist.conf: add `{}`; or to `host_only` of gpubind/model/data/names.json, with the reason"
    )


@pytest.mark.parametrize("companion", COMPANIONS, ids=lambda companion: companion.name)
def test_a_companion_is_missed_only_of_branches_that_have_it(companion: Companion) -> None:
    start = companion.name.partition(".so")[0]
    has = {branch for file in RANGES if file.partition(".so")[0] == start for branch in branches_of(file)}
    due = {branch for branch in BRANCHES if companion.since <= branch <= (companion.until or branch)}
    assert due <= has, f"COMPANIONS: branches {sorted(due - has)} have no {companion.name}: correct `since` or `until`"


def test_the_page_says_who_names_which_file() -> None:
    head = f"| file | branches | gpubind | {' | '.join(PEERS)} |"
    lines = [head, f"| --- | --- | --- |{' --- |' * len(PEERS)}"]
    for file, branches in RANGES.items():
        ours = "stays on the host" if file in STAYS else "yes"
        cells = (f"`{file}`", branches, ours, *("yes" if names(file) else "-" for names in PEERS.values()))
        lines.append(f"| {' | '.join(cells)} |")
    assert_golden(DOCS / "drivers.md", "\n".join((*lines, "")), part="files")


def test_the_page_says_how_many_files_of_a_branch_are_not_named() -> None:
    lines = [f"| branch | files | {' | '.join(PEERS)} | lists |", f"| --- | --- |{' --- |' * len(PEERS)} --- |"]
    for branch in BRANCHES:
        files = [file for file in files_of(branch) if file not in STAYS]
        missed = (sum(not names(file) for file in files) for names in PEERS.values())
        lines.append(f"| {' | '.join(map(str, (branch, len(files), *missed, ', '.join(SOURCES[branch]))))} |")
    assert_golden(DOCS / "drivers.md", "\n".join((*lines, "")), part="branches")
