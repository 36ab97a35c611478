"""The functions of gpubind/machine/system.py that are not one call of the operating system."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from gpubind.machine import system
from tests.support.commands import gpubind

NAMES = ("a", "b", "c", "d")
TARGETS = (*NAMES, "a/b", "../a", "../../b", "./c/.", "missing/x", "a/../c", "..", "/", "//")


def crosses_a_loop(path: str) -> bool:
    real = Path(os.path.realpath(path))
    for place in (Path(path), *Path(path).parents):
        try:
            place.stat()
        except OSError as error:
            if error.errno == errno.ELOOP:
                return True
    return any(place.is_symlink() for place in (real, *real.parents))


@pytest.mark.parametrize("seed", range(40))
def test_a_real_path_is_that_of_the_library_for_links_of_all_kinds(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    places = [tmp_path]
    for place in places:  # grows
        for name in NAMES:
            kind = rng.choice(("file", "directory", "link", "link", "missing"))
            if kind == "directory" and len(places) < 8:
                (place / name).mkdir()
                places.append(place / name)
            elif kind == "link":
                target = rng.choice(TARGETS)
                (place / name).symlink_to(f"{tmp_path}{target}" if target == "/" else target)
            elif kind == "file":
                (place / name).touch()
    paths = ["/".join(rng.choice((*NAMES, "..", ".")) for _ in range(rng.randrange(1, 6))) for _ in range(50)]
    # Where a path crosses a link that leads back to itself, versions of Python differ.
    whole = [path for path in (f"{tmp_path}/{one}" for one in paths) if not crosses_a_loop(path)]
    assert {path: system.real_path(path) for path in whole} == {path: os.path.realpath(path) for path in whole}


def test_a_link_that_leads_back_to_itself_stays(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert system.real_path(f"{tmp_path}/a/x") in (f"{tmp_path}/a/x", f"{tmp_path}/b/x")


@pytest.mark.parametrize("path", ["a", "./a", "a/../b", "", ".", "//", "/..", "/tmp/"])
def test_a_relative_path_is_below_the_working_directory(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert system.real_path(path) == os.path.realpath(path)


def test_an_open_file_is_closed_at_the_end_of_its_context(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("abc")
    with system.open_file(f"{tmp_path}/file") as file:
        assert (file.read(1), file.read_at(2, 5), file.facts().st_size) == (b"a", b"c", 3)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(1)
    with system.open_file(f"{tmp_path}/file").stream() as stream:
        assert stream.read() == b"abc"


def test_a_file_that_is_made_has_all_rights_but_those_that_the_process_masks(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        system.open_file(f"{tmp_path}/file", os.O_WRONLY | os.O_CREAT).close()
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o7777 == 0o777


def test_a_chain_of_links_that_the_kernel_does_not_follow_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    for number in range(3000):
        (tmp_path / str(number + 1)).symlink_to(str(number))
    assert system.real_path(f"{tmp_path}/3000").startswith(f"{tmp_path}/")
    done = gpubind("plan", "--root", f"{tmp_path}/3000")
    assert done.stderr.startswith("error: no-root: ")


@pytest.mark.parametrize(("links", "is_whole"), [(200, True), (201, False)])
def test_a_real_path_follows_two_hundred_links(links: int, is_whole: bool, tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    for number in range(links):
        (tmp_path / str(number + 1)).symlink_to(str(number))
    assert (system.real_path(f"{tmp_path}/{links}") == f"{tmp_path}/0") is is_whole


def test_below_an_open_directory_links_are_named_and_renamed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    with system.open_directory(str(tmp_path)) as place:
        place.link("link", "other")
        assert (os.readlink(tmp_path / "other"), place.readlink("other")) == ("file", "file")
        with pytest.raises(FileExistsError):
            place.link("file", "other")
        with pytest.raises(OSError) as caught:
            place.open("link", os.O_RDONLY)
        assert caught.value.errno == errno.ELOOP
        with place.open("link", os.O_WRONLY, follow=True) as file:
            file.write(b"yz")
        assert (tmp_path / "file").read_text() == "yz"
        with place.open("new", os.O_WRONLY | os.O_CREAT, 0o640) as file:
            file.set_mode(0o604)
        assert place.lstat("new").st_mode & 0o777 == 0o604
        place.rename("new", "other")
        assert sorted(place.names()) == sorted(entry.name for entry in place.entries()) == ["file", "link", "other"]
        place.unlink("other")
        assert (place.at("x"), system.OpenDirectory("/", -1).at("x")) == (f"{tmp_path}/x", "/x")
    assert not (tmp_path / "other").exists()


def test_what_does_not_exist_or_cannot_be_inspected_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("none")
    paths = [f"{tmp_path}", f"{tmp_path}/file", f"{tmp_path}/link", f"{tmp_path}/file/x", "\0"]
    assert [system.exists(path) for path in paths] == [True, True, False, False, False]
    assert [system.exists(path, follow=False) for path in paths] == [True, True, True, False, False]
    assert [system.is_file(path) for path in paths] == [False, True, False, False, False]
    assert [system.is_directory(path) for path in paths] == [True, False, False, False, False]


def test_a_terminal_that_reports_no_columns_has_eighty(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.columns(99) == 80
    for columns, expected in ((0, 80), (132, 132)):
        size = os.terminal_size((columns, 24))
        monkeypatch.setattr(os, "get_terminal_size", lambda descriptor, size=size: size)
        assert system.columns(0) == expected


def test_names_of_files_are_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: b"\xab" * size)
    assert system.random_name() == "ab" * 16
    assert system.token() == f"{os.getpid()}-{'ab' * 4}"


def test_a_variable_is_set_and_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBIND_TEST", "a")
    system.set_variable("GPUBIND_TEST", "b")
    assert os.environ["GPUBIND_TEST"] == "b"
    for _ in range(2):
        system.set_variable("GPUBIND_TEST", None)
        assert "GPUBIND_TEST" not in os.environ
