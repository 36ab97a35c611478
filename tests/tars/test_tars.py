"""A sample of `make tars`."""

from __future__ import annotations

from argparse import Namespace

from tests.support.trials import Tally, search
from tests.tars.agree import opened

SAMPLE = 150


def test_generated_archives_are_read_as_tarfile_and_gnu_tar_read_them() -> None:
    with opened(Tally(), Namespace()) as kinds:
        search(kinds["archive"], "test", SAMPLE)
