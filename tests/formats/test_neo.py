"""Which GPUs and kernel drivers a library of Intel's compute runtime knows."""

from __future__ import annotations

import pytest

from gpubind.formats.driver.neo import build_of, parse_runtime

PLATFORMS = ("skl", "tgllp", "adls", "dg2", "pvc", "mtl", "bmg")


def constants(*texts: str) -> bytes:
    return b"\0" + b"".join(text.encode() + b"\0" for text in texts)


def lacks(*texts: str) -> tuple[str, ...]:
    found = parse_runtime(constants("tgllp", "adls", "dg2", "pvc", *texts), PLATFORMS)
    assert found is not None
    return found.lacks


def test_a_platform_is_lacking_if_no_text_may_be_its_name() -> None:
    assert lacks() == ("skl", "mtl", "bmg")
    assert lacks("bmg") == lacks("bmg-g21") == lacks("xbmg") == ("skl", "mtl")
    assert lacks("bmgx", "a bmg") == ("skl", "mtl", "bmg")


def test_a_library_that_spells_them_in_another_way_says_nothing() -> None:
    assert parse_runtime(constants("tgllp", "adls", "dg2"), PLATFORMS) is None
    assert parse_runtime(b"", PLATFORMS) is None


def test_the_release_and_xe_are_read() -> None:
    known = constants("tgllp", "adls", "dg2", "pvc", "22.43.24595", "N3NEO11IoctlHelperE")
    found = parse_runtime(known, PLATFORMS)
    assert found is not None and (found.release, found.lacks_xe) == ("22.43", True)
    newer = parse_runtime(known + b"N3NEO13IoctlHelperXeE\0", PLATFORMS)
    assert newer is not None and not newer.lacks_xe
    unsaid = parse_runtime(constants("tgllp", "adls", "dg2", "pvc"), PLATFORMS)
    assert unsaid is not None and (unsaid.release, unsaid.lacks_xe) == (None, False)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("libze_intel_gpu.so.1.3.24595", 24595),
        ("libze_intel_gpu.so.1.6.3222.5", None),
        ("libze_intel_gpu.so.1", None),
    ],
)
def test_the_name_of_the_file_has_the_build(name: str, build: int) -> None:
    assert build_of(name) == build
