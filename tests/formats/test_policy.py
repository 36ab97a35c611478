"""What every host has on which an image is to run: a few lines of TOML."""

from __future__ import annotations

import pytest

from gpubind.errors import FormatError
from gpubind.formats.text.requirements import KEYS, parse_policy
from gpubind.model.requirements import Policy

WHOLE = b"""
driver = "525"
cuda = "12"
rocm = "6.2"
glibc = "2.28"
gpus = ["gfx90a", "sm_90", "sm_80"]
arch = "x86_64"
capabilities = ["utility", "compute", "utility"]
brings-driver = false
"""


def test_each_key_is_read() -> None:
    gpus = ("sm_80", "sm_90", "gfx90a")
    made = Policy("", "525", "12", "6.2", "2.28", gpus, ("x86_64",), ("compute", "utility"), False)
    assert parse_policy(WHOLE) == made
    assert {line.partition(" =")[0] for line in WHOLE.decode().split("\n")} == {"", *KEYS}


def test_what_is_absent_requires_nothing() -> None:
    assert parse_policy(b"capabilities = []") == Policy(capabilities=())
    assert parse_policy(b'driver = "525.60.13"') == Policy(driver="525.60.13")


def test_an_architecture_with_a_plus_stands_for_all_that_are_known_from_there_up() -> None:
    gpus = parse_policy(b'gpus = ["sm_90+"]').gpus
    assert gpus[:2] == ("sm_90", "sm_100")
    assert "sm_120" in gpus
    assert parse_policy(b'gpus = ["sm_100+", "sm_90", "sm_90"]').gpus == gpus


def test_boards_are_meant_only_by_name() -> None:
    assert "sm_110" not in parse_policy(b'gpus = ["sm_80+"]').gpus
    assert parse_policy(b'gpus = "sm_110"').gpus == ("sm_110",)


def test_amds_processors_may_have_features() -> None:
    assert parse_policy(b'gpus = ["gfx1030", "gfx942:xnack+"]').gpus == ("gfx942:xnack+", "gfx1030")


@pytest.mark.parametrize(
    ("text", "why", "hint"),
    [
        ("", "it requires nothing", "brings-driver"),
        ("drivers = '525'", "unknown key `drivers`", "did you mean `driver`"),
        ("driver = 525", "driver: a string is wanted, not a number", 'driver = "525"'),
        ("driver = true", "driver: a string is wanted, not a boolean", ""),
        ("driver = '>=525'", "driver: `>=525` is not a version", ""),
        ("cuda = '12.x'", "cuda: `12.x` is not a version", ""),
        ("glibc = ''", "glibc: `` is not a version", ""),
        ("rocm = ['6']", "rocm: a string is wanted, not a list", ""),
        ("gpus = 8", "gpus: a string is wanted, not a number", ""),
        ("gpus = ['']", "gpus: `` is not a GPU's architecture", ""),
        ("gpus = 'sm80'", "gpus: `sm80` is not a GPU's architecture", "sm_80"),
        ("gpus = 'sm_90a'", "`sm_90a` is not a GPU's architecture", "sm_90"),
        ("gpus = 'gfx90a+'", "`gfx90a+` is not a GPU's architecture", "no order"),
        ("gpus = [" + "'sm_80'," * 300 + "]", "300 members; 256 at most", ""),
        ("arch = 'amd64'", "arch: `amd64` is not one of x86_64, i386", ""),
        ("capabilities = 'computer'", "`computer` is not one of compute, utility", "did you mean `compute`"),
        ("brings-driver = 'no'", "brings-driver: a boolean is wanted, not a string", ""),
        ("[", "", ""),
        ("\udcff", "not UTF-8 at byte 0", ""),
        ("#" * (256 << 10 | 1), "262144 at most", ""),
    ],
)
def test_what_is_not_understood_is_an_error_that_names_it(text: str, why: str, hint: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_policy(text.encode("utf-8", "surrogateescape"))
    assert caught.value.code == "bad-policy"
    assert why in f"{caught.value.where}: {caught.value.why}"
    assert hint in caught.value.hint
