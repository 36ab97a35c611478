"""The lists of a Jetson: lines, and lines that are none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.formats.driver.engines import parse_mount_spec_path
from gpubind.formats.driver.tegra import ENTRIES_LIMIT, LINE_LIMIT, MountSpec, parse_mount_specs


def test_each_kind_of_line_is_read_with_its_number() -> None:
    specs, faults = parse_mount_specs(b"# A board.\n\n dev , /dev/nvmap \r\nlib,/usr/lib/a,b.so\nsym, /l\ndir, /d\n")
    assert specs == (
        MountSpec("dev", "/dev/nvmap", 3),
        MountSpec("lib", "/usr/lib/a,b.so", 4),
        MountSpec("sym", "/l", 5),
        MountSpec("dir", "/d", 6),
    )
    assert faults == ()


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("dev, nvhost-gpu", "/dev/nvhost-gpu"),
        ("lib, //lib/firmware/x.fw", "/lib/firmware/x.fw"),
        ("lib, /a//b.so", "/a/b.so"),
        ("dir, /usr/share/nv/", "/usr/share/nv"),
        ("lib, /a[^0-9]b[!cd]", "/a[!0-9]b[cd!]"),
    ],
)
def test_a_path_is_read_as_the_toolkit_cleans_and_matches_it(line: str, path: str) -> None:
    assert parse_mount_specs(line.encode())[0][0].path == path


@pytest.mark.parametrize(
    "line",
    ["lib", "lib /usr/lib/a.so", "lib,", "dev,", "file, /a", "LIB, /a", "lib, a.so", "lib, /a/../b", "lib, /a/./b",
     "lib, /", "lib, //", "lib, /a\0b", "sym, ", ", /a", f"lib, /{'a' * LINE_LIMIT}"],
)  # fmt: skip
def test_a_line_that_names_nothing_is_a_fault_and_the_others_count(line: str) -> None:
    specs, faults = parse_mount_specs(f"lib, /before.so\n{line}\nlib, /after.so\n".encode())
    assert [spec.path for spec in specs] == ["/before.so", "/after.so"]
    assert [fault.line for fault in faults] == [2]


def test_a_list_without_end_is_read_up_to_a_bound() -> None:
    specs, faults = parse_mount_specs(b"lib, /a.so\n" * (ENTRIES_LIMIT + 5))
    assert (len(specs), [fault.line for fault in faults]) == (ENTRIES_LIMIT, [ENTRIES_LIMIT + 1])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_lines_or_faults_with_clean_paths(data: bytes) -> None:
    specs, _ = parse_mount_specs(data)
    assert all(spec.path.startswith("/") and ".." not in spec.path.split("/") for spec in specs)


@pytest.mark.parametrize(
    ("config", "path"),
    [
        (b'[nvidia-container-runtime.modes.csv]\nmount-spec-path = "/srv/lists"\n', "/srv/lists"),
        (b'[nvidia-container-runtime.modes.csv]\nmount-spec-path = "lists"\n', None),
        (b"nvidia-container-runtime = 1\n", None),
        (b"", None),
    ],
)
def test_the_toolkits_configuration_tells_where_the_lists_are(config: bytes, path: str) -> None:
    assert parse_mount_spec_path(config) == path
