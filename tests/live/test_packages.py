"""What `make packages` makes: the same bytes each time; installed, run and removed in Debian, nothing is left."""

from __future__ import annotations

import filecmp
import glob
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.live.machine import CHECKOUT, here

pytestmark = pytest.mark.live

NAMES = ("gpubind_*_all.deb", "gpubind-*.noarch.rpm", "gpubind.cdx.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packages(tmp_path_factory.mktemp("packages"))


def packages(directory: Path) -> Path:
    for name in NAMES:
        for old in glob.glob(f"{CHECKOUT}/dist/{name}"):
            os.unlink(old)
    here("make", "-C", CHECKOUT, "packages", "PYTHONS=none")
    for name in NAMES:
        (file,) = glob.glob(f"{CHECKOUT}/dist/{name}")
        shutil.copy(file, directory)
    return directory


def test_the_packages_are_the_same_each_time(made: Path, tmp_path: Path) -> None:
    again = packages(tmp_path)
    names = os.listdir(made)
    assert filecmp.cmpfiles(made, again, names, shallow=False) == (names, [], [])


@pytest.mark.parametrize(("name", "suite"), [(NAMES[0], "bookworm"), (NAMES[0], "trixie"), (NAMES[1], "bookworm")])
def test_a_package_is_installed_and_run_and_leaves_nothing(rig: str, made: Path, name: str, suite: str) -> None:
    (package,) = made.glob(name)
    said = here(f"{CHECKOUT}/packaging/try_package", str(package), f"{rig}/ct/{suite}")
    assert "error: cuda-too-new: " in said
    assert said.endswith("nothing is left\n")


def test_the_bill_of_materials_has_what_is_packed_with_the_digests_that_pip_demands(made: Path) -> None:
    pinned = (Path(CHECKOUT) / "packaging/pyz.txt").read_text()
    parts = json.loads((made / NAMES[2]).read_text())["components"]
    assert len(parts) == pinned.count("--hash=sha256:")
    assert all(f"{part['version']} --hash=sha256:{part['hashes'][0]['content']}\n" in pinned for part in parts)
