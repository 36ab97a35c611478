"""Data files: the same bytes from a checkout, an unpacked wheel and a zip on sys.path."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gpubind
from gpubind.errors import UsageError
from gpubind.host.base import LIST_FILES
from gpubind.host.record import parse_record
from gpubind.model.data import BUNDLED_HOSTS, read_data

PACKAGE = os.path.dirname(os.path.abspath(gpubind.__file__))
ETC = os.path.join(os.path.dirname(PACKAGE), "etc")
NAMES = (*(f"etc/{name}" for name in LIST_FILES), *(f"model/data/hosts/{name}.json" for name in BUNDLED_HOSTS))


def wheel_files() -> list[tuple[str, str]]:
    """(file, name in the wheel), as pyproject.toml says: the package, and etc/ inside it."""
    files = [(os.path.join(ETC, name), f"gpubind/etc/{name}") for name in sorted(os.listdir(ETC))]
    for directory, _, names in os.walk(PACKAGE):
        inside = os.path.relpath(directory, os.path.dirname(PACKAGE))
        files += [(os.path.join(directory, name), f"{inside}/{name}") for name in names if not name.endswith(".pyc")]
    return files


@pytest.fixture(scope="session", params=["wheel", "zip"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory or a zip for sys.path."""
    top = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(top / "gpubind.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file, name in wheel_files():
            archive.write(file, name)
        if request.param == "wheel":
            archive.extractall(top / "site")
    return str(top / ("site" if request.param == "wheel" else "gpubind.zip"))


def ask(installed: str, code: str) -> bytes:
    """What *code* wrote, with gpubind taken from *installed*."""
    head = f"import sys; sys.path.insert(0, {installed!r}); import gpubind\n"
    head += f"assert gpubind.__file__.startswith({installed!r}), gpubind.__file__\n"
    done = subprocess.run([sys.executable, "-c", head + code], cwd="/", capture_output=True, check=True)
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_checkout_has_every_file(name: str) -> None:
    base = os.path.dirname(PACKAGE) if name.startswith("etc/") else PACKAGE
    assert read_data(name) == Path(base, name).read_bytes() != b""


@pytest.mark.parametrize("name", NAMES)
def test_an_installed_package_has_every_file(installed: str, name: str) -> None:
    code = f"from gpubind.model.data import read_data; sys.stdout.buffer.write(read_data({name!r}))"
    assert ask(installed, code) == read_data(name)


def test_a_plan_needs_no_file_beside_the_installed_package(installed: str) -> None:
    code = f"host = gpubind.open_host({BUNDLED_HOSTS[0]!r}); print(gpubind.plan(host, gpubind.Request()).digest)"
    from_checkout = gpubind.plan(gpubind.open_host(BUNDLED_HOSTS[0]), gpubind.Request()).digest
    assert ask(installed, code).decode().strip() == from_checkout


@pytest.mark.parametrize("name", ["etc/none.conf", "model/data/hosts/none.json", "etc", ""])
def test_what_does_not_ship_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_data(name)
    assert caught.value.code == "no-data"
    assert f"`{name}`" in caught.value.what
    assert caught.value.where


def test_what_does_not_ship_is_the_same_error_when_installed(installed: str) -> None:
    code = (
        "from gpubind.model.data import read_data\nfrom gpubind.errors import UsageError\n"
        "try: read_data('etc/none.conf')\nexcept UsageError as error: print(error.code)"
    )
    assert ask(installed, code) == b"no-data\n"


@pytest.mark.parametrize("name", BUNDLED_HOSTS)
def test_the_name_of_a_shipped_host_tells_its_driver(name: str) -> None:
    assert ("nvidia" in name) != ("rocm" in name)


@pytest.mark.parametrize("name", BUNDLED_HOSTS)
def test_every_shipped_record_names_no_machine_and_nobodys_home(name: str) -> None:
    record = parse_record(read_data(f"model/data/hosts/{name}.json"))
    assert record.hostname is None
    assert record.description
    assert not any(part in value for value in record.environ.values() for part in ("/home/", "/root"))
