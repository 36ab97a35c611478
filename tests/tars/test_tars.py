"""A sample of `make tars`."""

from __future__ import annotations

from pathlib import Path

from tests.tars.agree import case_of, difference

SAMPLE = 150


def test_generated_archives_are_read_as_tarfile_and_gnu_tar_read_them(tmp_path: Path) -> None:
    found = {number: difference(case_of("test", number), str(tmp_path / "a.tar")) for number in range(SAMPLE)}
    assert {number: said for number, said in found.items() if said is not None} == {}
