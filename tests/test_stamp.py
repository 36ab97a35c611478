"""The build that `gpubind.__version__` names: the commit of the sources, where it is known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "packaging"))

from stamp import stamped  # packaging is no package

PLAIN = b'"""A package."""\n\n__version__ = "0.1.0"\n'


def git(directory: Path, *args: str) -> str:
    settings = ("-c", "user.name=name", "-c", "user.email=name@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *settings, *args], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def sources(directory: Path, text: bytes = PLAIN) -> Path:
    (directory / "gpubind").mkdir(parents=True)
    (directory / "gpubind/__init__.py").write_bytes(text)
    return directory


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    directory = sources(tmp_path / "checkout")
    git(directory, "init", "-q")
    git(directory, "add", "gpubind")
    git(directory, "commit", "-q", "-m", "first")
    return directory


def test_a_build_from_a_checkout_names_its_commit(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    assert stamped(str(checkout)) == PLAIN.replace(b"0.1.0", f"0.1.0+g{commit[:10]}".encode())


@pytest.mark.parametrize("name", ["gpubind/__init__.py", "gpubind/new.py"])
def test_a_build_with_changes_that_are_packed_is_dirty(checkout: Path, name: str) -> None:
    (checkout / name).write_bytes(PLAIN + b"CHANGED = True\n")
    assert b'.dirty"\n' in stamped(str(checkout))


def test_a_file_that_is_not_packed_makes_no_build_dirty(checkout: Path) -> None:
    (checkout / "notes.txt").write_text("none of it\n")
    assert b"dirty" not in stamped(str(checkout))


def test_sources_outside_a_checkout_do_not_name_the_commit_of_a_checkout_around_them(checkout: Path) -> None:
    assert stamped(str(sources(checkout / "unpacked"))) == PLAIN


def test_a_source_archive_keeps_the_commit_that_it_names(checkout: Path) -> None:
    named = PLAIN.replace(b"0.1.0", b"0.1.0+g0123456789")
    (checkout / "gpubind/__init__.py").write_bytes(named)
    assert stamped(str(checkout)) == named


def test_without_a_commit_the_version_stands_alone(tmp_path: Path) -> None:
    directory = sources(tmp_path / "checkout")
    git(directory, "init", "-q")
    assert stamped(str(directory)) == PLAIN
