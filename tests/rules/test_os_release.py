"""What a distribution calls itself."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind.rules.outcome import parse_os_release


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('NAME="Debian GNU/Linux"\nVERSION_ID="12"\n', "Debian 12"),
        ("NAME='Rocky Linux'\nVERSION_ID=9.4", "Rocky Linux 9.4"),
        ('# NAME="no"\nNAME=Fedora\n', "Fedora"),
        ('VERSION_ID="12"\n', None),
        ('NAME="open\nVERSION_ID=1\n', None),
        ("", None),
    ],
)
def test_a_distribution_is_its_name_and_version(text: str, name: Optional[str]) -> None:
    assert parse_os_release(text) == name
