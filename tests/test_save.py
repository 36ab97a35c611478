"""The file of -o: what is there already, what lies in wait, and what is left when it cannot be written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Optional

import pytest

from gpubind.cli import save
from gpubind.cli.save import write_file
from gpubind.machine.system import OpenDirectory
from tests.support.limits import file_size_limit

DATA = b"a document\n"
OTHER = 65534
NOBODYS_FILE = os.stat_result((stat.S_IFREG | 0o666, 0, 0, 1, OTHER, OTHER, 0, 0, 0, 0))
NOBODYS_LINK = os.stat_result((stat.S_IFLNK | 0o777, 0, 0, 1, OTHER, OTHER, 0, 0, 0, 0))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def as_somebody_elses(monkeypatch: pytest.MonkeyPatch, path: Path, facts: os.stat_result) -> None:
    """Let *path* look as if another user had made it: no test needs to be root for that."""
    see = save._facts

    def seen(name: str, place: Optional[OpenDirectory] = None) -> object:
        return facts if os.path.basename(name) == path.name else see(name, place)

    monkeypatch.setattr(save, "_facts", seen)


@pytest.mark.parametrize("path", ["/", "//", "/..", "/tmp", "/tmp/", "."])
def test_a_directory_is_called_one(path: str) -> None:
    with pytest.raises(IsADirectoryError):
        write_file(path, DATA)


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(f"{tmp_path}/plan.json", DATA)
    finally:
        os.umask(before)
    assert (tmp_path / "plan.json").read_bytes() == DATA
    assert mode_of(tmp_path / "plan.json") == 0o640


def test_a_file_that_is_replaced_keeps_its_permissions_and_loses_setuid(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b"old")
    path.chmod(0o6750)
    write_file(str(path), DATA)
    assert (path.read_bytes(), mode_of(path)) == (DATA, 0o750)
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b"old")
    with file_size_limit(1000), pytest.raises(OSError, match="too large"):
        write_file(str(path), bytes(2000))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_name_as_long_as_names_may_be_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_file(str(path), DATA)
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("there", [True, False])
def test_the_callers_own_link_leads_to_its_file_and_stays(tmp_path: Path, there: bool) -> None:
    (tmp_path / "d").mkdir()
    if there:
        (tmp_path / "d" / "real").write_bytes(b"old")
    (tmp_path / "plan.json").symlink_to("d/../d/real")
    (tmp_path / "up").symlink_to(tmp_path / "plan.json")
    write_file(f"{tmp_path}/up", DATA)
    assert (tmp_path / "up").is_symlink()
    assert (tmp_path / "plan.json").is_symlink()
    assert (tmp_path / "d" / "real").read_bytes() == DATA


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o755])
def test_a_link_of_somebody_elses_in_a_sticky_directory_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    prey = tmp_path / "prey"
    prey.write_bytes(b"mine")
    trap = tmp_path / "tmp"
    trap.mkdir()
    trap.chmod(mode)
    (trap / "plan.json").symlink_to(prey)
    as_somebody_elses(monkeypatch, trap / "plan.json", NOBODYS_LINK)
    monkeypatch.setattr(save, "acts_as_root", lambda: False)
    if mode == 0o1777:
        with pytest.raises(PermissionError, match="somebody else"):
            write_file(f"{trap}/plan.json", DATA)
        assert prey.read_bytes() == b"mine"
    else:  # as the kernel: whoever may write to the directory is believed
        write_file(f"{trap}/plan.json", DATA)
        assert prey.read_bytes() == DATA


def test_root_follows_no_link_of_anybody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "prey")
    as_somebody_elses(monkeypatch, tmp_path / "link", NOBODYS_LINK)
    monkeypatch.setattr(save, "acts_as_root", lambda: True)
    for path in ("link", "link/plan.json"):
        with pytest.raises(PermissionError, match="somebody else"):
            write_file(f"{tmp_path}/{path}", DATA)
    assert not (tmp_path / "prey").exists()


def test_a_file_that_somebody_else_has_put_into_a_sticky_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "plan.json").write_bytes(b"theirs")
    as_somebody_elses(monkeypatch, tmp_path / "plan.json", NOBODYS_FILE)
    with pytest.raises(PermissionError, match="everybody may write"):
        write_file(f"{tmp_path}/plan.json", DATA)
    assert (tmp_path / "plan.json").read_bytes() == b"theirs"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.symlink_to(path), "Too many levels"),
    ],
    ids=["directory", "loop"],
)
def test_what_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    make(tmp_path / "x")
    with pytest.raises(OSError, match=why):
        write_file(f"{tmp_path}/x", DATA)


@pytest.mark.parametrize("path", ["x/", "x/.", "x/..", "..", ""])
def test_a_path_that_ends_in_a_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError):
        write_file(path, DATA)


def test_what_is_open_already_is_written_as_it_is(tmp_path: Path) -> None:
    """A file that the shell has opened cannot be replaced: the shell goes on writing to it."""
    code = "import sys; from gpubind.cli.save import write_file; write_file(sys.argv[1], b'a document\\n')"
    for path in ("/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"):
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True)
        assert (done.stdout, done.stderr) == (DATA, b"")
    with (tmp_path / "all").open("ab") as file:
        for _ in range(2):
            subprocess.run([sys.executable, "-c", code, "/dev/stdout"], stdout=file, check=True)
    assert (tmp_path / "all").read_bytes() == 2 * DATA
    write_file("/dev/null", DATA)


def test_a_working_directory_is_where_a_relative_path_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    write_file("d//./plan.json", DATA)
    assert (tmp_path / "d" / "plan.json").read_bytes() == DATA


def test_a_fifo_of_ones_own_is_written_as_it_is_once_somebody_reads_it(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = subprocess.Popen(["cat", str(fifo)], stdout=subprocess.PIPE)
    write_file(str(fifo), b"a plan")
    assert reader.communicate()[0] == b"a plan"
    assert stat.S_ISFIFO(fifo.stat().st_mode)
