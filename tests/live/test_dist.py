"""What `make dist` makes."""

from __future__ import annotations

import filecmp
import glob
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from gpubind import __version__
from tests.live.machine import CHECKOUT, INSIDE_PYTHON, Bind, Machine, here

pytestmark = pytest.mark.live

OTHERS = sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.[19]*/bin/python3.*[0-9]")))
"""Pythons besides that of the tests."""
TOO_OLD = sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/[23].[678].*/bin/python[23].[0-9]")))
DATA = ("bash-completion/completions/gpubind", "fish/vendor_completions.d/gpubind.fish", "man/man1/gpubind.1")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist") / "made")


def version_of(file: Path) -> str:
    return here(sys.executable, str(file), "--version").split()[1]


def build(directory: Path, python: str = sys.executable) -> Path:
    directory.mkdir()
    here(python, f"{CHECKOUT}/packaging/pyz.py", f"{directory}/gpubind.pyz")
    return directory / "gpubind.pyz"


@pytest.fixture(scope="module")
def made() -> tuple[str, str]:
    """The wheel and the source archive."""
    here("make", "-C", CHECKOUT, "dist")
    (wheel,), (sources,) = glob.glob(f"{CHECKOUT}/dist/*.whl"), glob.glob(f"{CHECKOUT}/dist/*.tar.gz")
    return wheel, sources


def test_it_is_the_same_each_time_and_runs_where_only_python_is(
    file: Path, interpreters: dict[str, Machine], tmp_path: Path
) -> None:
    again = build(tmp_path / "again", next(iter(OTHERS), sys.executable))
    assert filecmp.cmp(file, again, shallow=False)
    words = ["plan", "--nv", "--host", "debian13-nvidia550", "--json"]
    expected = here(sys.executable, "-m", "gpubind", *words).replace(__version__, version_of(file))
    for machine in interpreters.values():
        binds = [Bind(os.path.dirname(file), INSIDE_PYTHON), Bind(f"{machine.root}/usr", "/usr")]
        assert machine.run([f"{INSIDE_PYTHON}/gpubind.pyz", *words], binds=binds).stdout == expected


WORDS = (
    ("plan", "--nv", "--host", "debian13-nvidia550", "--format", "table"),
    ("check", "--nv", "--host", "debian13-nvidia550", "--format", "html"),
    ("check", "--bogus"),
    ("fleet", "check", "-w", "n[1"),
    ("completion", "bash"),
    ("--help",),
)


def test_one_file_needs_no_package_of_the_machine(file: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "FORCE_COLOR": "1", "GPUBIND_MEMO": "off"}
    build = version_of(file).encode()
    for python in (sys.executable, *OTHERS):
        for words in WORDS:
            alone, installed = (
                subprocess.run([*command, *words], capture_output=True, env=environ, cwd=CHECKOUT)
                for command in ([python, "-I", "-S", str(file)], [sys.executable, "-m", "gpubind"])
            )
            assert (alone.returncode, alone.stderr) == (installed.returncode, installed.stderr)
            assert alone.stdout.replace(build, __version__.encode()) == installed.stdout


def test_both_name_the_commit_that_they_are_built_from(made: tuple[str, str]) -> None:
    commit = here("git", "-C", CHECKOUT, "rev-parse", "HEAD")[:10]
    assert version_of(Path(f"{CHECKOUT}/dist/gpubind.pyz")).removesuffix(".dirty") == f"{__version__}+g{commit}"


def test_a_python_that_is_too_old_is_named(file: Path) -> None:
    for python in TOO_OLD:
        done = subprocess.run([python, str(file), "check"], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (6, "")
        assert done.stderr.startswith(f"error: gpubind needs Python 3.9 or later\n  where: {python}")


def test_one_file_has_the_files_of_the_wheel(made: tuple[str, str]) -> None:
    with zipfile.ZipFile(made[0]) as wheel, zipfile.ZipFile(f"{CHECKOUT}/dist/gpubind.pyz") as file:
        own = [name for name in wheel.namelist() if name.startswith("gpubind/")]
        assert sorted(own) == [name for name in file.namelist() if name.startswith("gpubind/")]
        assert all(wheel.read(name) == file.read(name) for name in own)
        assert not {"pygments", "markdown_it"} & {name.split("/")[0] for name in file.namelist()}


def test_the_wheel_has_the_man_page_and_completions(made: tuple[str, str]) -> None:
    with zipfile.ZipFile(made[0]) as wheel:
        data = {name.partition(".data/data/share/")[2]: name for name in wheel.namelist() if ".data/data/" in name}
        assert sorted(data) == [*DATA, "zsh/site-functions/_gpubind"]
        assert wheel.read(data["man/man1/gpubind.1"]) == Path(f"{CHECKOUT}/dist/gpubind.1").read_bytes()


def test_the_source_archive_makes_the_same_wheel(made: tuple[str, str], tmp_path: Path) -> None:
    with tarfile.open(made[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (directory,) = tmp_path.iterdir()
    python = f"{CHECKOUT}/build/venv/bin/python"
    here(python, "-m", "pip", "-q", "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(directory))
    assert filecmp.cmp(made[0], tmp_path / os.path.basename(made[0]), shallow=False)
