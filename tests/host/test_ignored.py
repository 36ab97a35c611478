"""What root's environment names, and root's command does not obey."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from build.trees import make_tree

import gpubind
from gpubind.errors import RuntimeLimitError
from gpubind.execute import find_program, need_program
from gpubind.host import directories, files, programs
from gpubind.host.directories import ignored, list_file_in_force
from gpubind.model import Missing


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of somebody else's, in root's environment; whoever runs the tests is root here."""
    spec = {"/.config/gpubind/nvliblist.conf": "root:x:0:\n", "/.config/gpubind/config.toml": 'root = "/theirs"\n'}
    make_tree(tmp_path, {**spec, "/bin/apptainer": "#!/bin/sh\ntouch $0.was-run\n"})
    (tmp_path / "bin" / "apptainer").chmod(0o755)

    def writable_by_others(path: str) -> object:
        return str(tmp_path) if path.startswith(f"{tmp_path}/") else None

    for module in (directories, programs):
        monkeypatch.setattr(module, "acts_as_root", lambda: True)
        monkeypatch.setattr(module, "writable_by_others", writable_by_others)
    monkeypatch.setattr("gpubind.host.trust.acts_as_root", lambda: True)
    monkeypatch.setattr("gpubind.host.trust.writable_by_others", writable_by_others)
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin")
    return tmp_path


def test_root_reads_no_list_and_no_configuration_of_others(theirs: Path) -> None:
    from gpubind.cli.settings import read_settings

    found = list_file_in_force("nvliblist.conf")
    assert found is None or found.label.startswith("/etc/")
    assert read_settings().get("root") is None


def test_a_link_of_others_to_a_file_of_roots_is_not_read(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (theirs / ".config" / "gpubind" / "nvliblist.conf").unlink()
    (theirs / ".config" / "gpubind" / "nvliblist.conf").symlink_to("/etc/shadow")
    opened = []
    monkeypatch.setattr(files, "read_regular", lambda path, limit: opened.append(path))
    list_file_in_force("nvliblist.conf")
    assert opened == ["/etc/gpubind/nvliblist.conf"]


def test_root_starts_no_program_that_others_could_change(theirs: Path) -> None:
    assert find_program("apptainer", os.environ) != f"{theirs}/bin/apptainer"
    with pytest.raises(RuntimeLimitError) as caught:
        need_program("apptainer", {"PATH": f"{theirs}/bin"})
    assert (caught.value.code, caught.value.where) == ("no-runtime", f"{theirs}/bin/apptainer")
    assert "users other than root" in caught.value.why
    assert not (theirs / "bin" / "apptainer.was-run").exists()


def test_root_asks_no_helper_that_others_could_change(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "PROGRAM_DIRECTORIES", (f"{theirs}/bin",))
    answer = programs.find_program("apptainer")
    assert isinstance(answer, Missing)
    assert answer.why == "forbidden"


def test_all_that_does_not_count_is_told(theirs: Path) -> None:
    config = f"{theirs}/.config/gpubind"
    assert [(one.kind, one.path) for one in ignored(os.environ)] == [
        ("file", f"{config}/config.toml"),
        ("file", f"{config}/nvliblist.conf"),
        ("cache", f"{theirs}/.cache/gpubind"),
        ("programs", f"{theirs}/bin"),
    ]
    host = gpubind.open_host("debian13-nvidia550")
    host.ignored = lambda: tuple(ignored(os.environ))  # type: ignore[method-assign]
    for like in (None, "apptainer"):
        plan = gpubind.plan(host, gpubind.Request(like=like))
        found = {one.subject: one for one in plan.findings if one.code == "writable-by-others"}
        assert {one.severity for one in found.values()} == {"warning", "note"}
        assert f"users other than root may write to {theirs}" in (found[f"{config}/config.toml"].why or "")


def test_an_ordinary_users_own_words_count(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "acts_as_root", lambda: False)
    monkeypatch.setattr("gpubind.host.trust.acts_as_root", lambda: False)
    found = list_file_in_force("nvliblist.conf")
    assert found is not None
    assert found.data == b"root:x:0:\n"
    assert find_program("apptainer", os.environ) == f"{theirs}/bin/apptainer"
    assert list(ignored(os.environ)) == []
