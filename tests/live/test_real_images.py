"""CuPy from PyPI as an image, in GNU tar's own two formats: read file by file as GNU tar reads it.

PyTorch and JAX take gigabytes: `python -m tests.live.stacks` does the same with them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.stacks import Format, differences, install, pack, slashed

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def cupy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("cupy"), ["cupy-cuda12x==13.6.0"])


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_a_real_image_is_read_file_by_file_as_gnu_tar_reads_it(cupy: Path, tmp_path: Path, form: Format) -> None:
    stack = pack(cupy, tmp_path / form, form)
    assert slashed(stack) > 20
    assert differences(stack) == []
