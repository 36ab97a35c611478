"""Where things land in a container, by layout."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind.model import ContainerPath
from gpubind.planner.placement import (
    GPUBIND_LAYOUT,
    LIBRARY_SUBDIRECTORIES,
    SINGULARITY_LAYOUT,
    Layout,
    cdi_layout,
    with_libdir,
)

ELSEWHERE = ContainerPath("/opt/libs")


@pytest.mark.parametrize("layout", [GPUBIND_LAYOUT, SINGULARITY_LAYOUT], ids=["gpubind", "singularity"])
def test_libraries_of_two_architectures_never_share_a_directory(layout: Layout) -> None:
    assert not {*layout.directories()} & {*layout.directories(compat32=True)}
    assert not layout.libdir32.startswith(f"{layout.libdir}/")


@pytest.mark.parametrize("name", LIBRARY_SUBDIRECTORIES)
def test_modules_lie_below_only_where_loaders_search_anyway(name: str) -> None:
    assert GPUBIND_LAYOUT.place(GPUBIND_LAYOUT.libdir, name) == f"/.gpubind/libs/{name}"
    layout = cdi_layout("x86_64")
    assert layout.place(layout.libdir, name) == f"/usr/lib/x86_64-linux-gnu/{LIBRARY_SUBDIRECTORIES[name]}/{name}"


@pytest.mark.parametrize(
    ("searched", "directories"),
    [
        (None, ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")),
        (("/usr/lib64", "/lib64"), ("/usr/lib64",)),
        (("/lib/x86_64-linux-gnu",), ("/usr/lib/x86_64-linux-gnu",)),
        (("/nix/store/x/lib",), ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")),
    ],
    ids=["no-image", "rhel", "debian", "neither"],
)
def test_a_cdi_spec_puts_libraries_where_the_image_looks(
    searched: Optional[tuple[str, ...]], directories: tuple[str, ...]
) -> None:
    assert cdi_layout("x86_64", searched).directories() == directories


@pytest.mark.parametrize(
    ("searched", "directories"),
    [
        (None, ("/usr/lib/i386-linux-gnu", "/usr/lib")),
        (("/usr/lib",), ("/usr/lib",)),
        (("/usr/lib/i386-linux-gnu",), ("/usr/lib/i386-linux-gnu",)),
        (("/usr/lib64",), ("/usr/lib/i386-linux-gnu", "/usr/lib")),
    ],
    ids=["no-image", "rhel", "debian", "neither"],
)
def test_a_cdi_spec_puts_32_bit_libraries_where_the_image_looks(
    searched: Optional[tuple[str, ...]], directories: tuple[str, ...]
) -> None:
    assert cdi_layout("x86_64", searched).directories(compat32=True) == directories


def test_a_directory_of_the_users_is_the_only_one_and_no_loader_looks_there_by_itself() -> None:
    layout = with_libdir(cdi_layout("x86_64"), ELSEWHERE)
    assert layout.directories() == (ELSEWHERE,)
    assert not layout.searched
    assert with_libdir(GPUBIND_LAYOUT, None) == GPUBIND_LAYOUT
