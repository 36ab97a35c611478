"""Below which names the loader looks, by its version and the processor. The orders are what LD_DEBUG=libs prints."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind.loader.hwcaps import Cpu, hwcaps_subdirectories, parse_cpuinfo

V3 = "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"
OLD = ["tls/x86_64/x86_64", "tls/x86_64", "tls", "x86_64/x86_64", "x86_64"]


def cpu(flags: str, vendor: str = "AuthenticAMD") -> Cpu:
    return Cpu(vendor, frozenset(flags.split()))


def levels(*numbers: int) -> list[str]:
    return [f"glibc-hwcaps/x86-64-v{number}" for number in numbers]


@pytest.mark.parametrize(
    ("glibc", "flags", "names"),
    [
        ("2.31", V4, OLD),
        ("2.36", V4, [*levels(4, 3, 2), *OLD]),
        ("2.41", V4, levels(4, 3, 2)),
        ("2.41", V3, levels(3, 2)),
        ("2.41", "sse2", []),
        (None, V4, []),
    ],
)
def test_the_version_and_the_processor_decide(glibc: Optional[str], flags: str, names: list[str]) -> None:
    assert list(hwcaps_subdirectories("x86_64", glibc, cpu(flags))) == names


def test_old_loaders_know_intels_processors_by_name() -> None:
    names = hwcaps_subdirectories("x86_64", "2.31", cpu(V4, "GenuineIntel"))
    assert names[:4] == ("tls/haswell/avx512_1/x86_64", "tls/haswell/avx512_1", "tls/haswell/x86_64", "tls/haswell")
    assert names[-1] == "x86_64"
    assert len(names) == 15


def test_every_name_may_be_if_the_processor_is_not_known() -> None:
    names = hwcaps_subdirectories("x86_64", "2.36", None)
    assert {*levels(4, 3, 2), "haswell", "haswell/avx512_1", "xeon_phi", *OLD} <= {*names}
    assert len(names) < 40


def test_the_first_processor_of_cpuinfo_counts() -> None:
    text = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n"
    assert parse_cpuinfo(text) == cpu("fpu avx2", "GenuineIntel")
    assert parse_cpuinfo("processor\t: 0\nFeatures\t: fp asimd\n") is None
