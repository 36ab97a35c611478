"""Options and fixtures shared by all tests."""

from __future__ import annotations

import compileall
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support import golden

if TYPE_CHECKING:
    from tests.support.memo import Bench

os.environ["GPUBIND_MEMO"] = "off"  # a test tells what a command does, not what one did before

# A busy machine is slow, and that is no fault of what is tested.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


gc.disable()  # collecting garbage while tests are collected doubles the time of that, and finds none


def pytest_collection_finish() -> None:
    """Look for cycles again, and never among the tests themselves."""
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Compile gpubind once: where Python may not write what it compiles, each command of a test would do it again."""
    golden.is_updating = config.getoption("--update-golden")
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(__file__).parent.parent / "gpubind", quiet=2)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files; review the diff")


if sys.version_info < (3, 10):

    def pytest_runtest_setup() -> None:
        """Remove hypothesis' callback of the collector, which measures its time.

        Python 3.9 aborts with "Cannot recover from stack overflow" where a callback runs near the recursion limit.
        """
        gc.callbacks.clear()


@pytest.fixture
def roots_own(tmp_path: Path) -> Iterator[Path]:
    """A directory that everybody may read and only its owner may change; root's is below /run, outside of /tmp."""
    directory = Path(tempfile.mkdtemp(prefix="gpubind-test-", dir="/run" if os.geteuid() == 0 else tmp_path))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A machine for the memo: commands on it give the same answers with a memo and without."""
    from tests.support.memo import bench_in

    with bench_in(tmp_path / "b") as made:
        yield made
