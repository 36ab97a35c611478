"""What root's environment names, and root's command does not obey."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import gpubind
from gpubind.cli.declarations import PLAN_OPTIONS
from gpubind.errors import RuntimeLimitError
from gpubind.host import ListFile, directories, programs
from gpubind.host.directories import PATH_VARIABLES, active_list_file, untrusted, untrusted_variables
from gpubind.launch.execute import find_program, need_program
from gpubind.machine import regular as files
from gpubind.model import Missing, Request
from gpubind.planner.planning import trust_findings
from tests.support.driver import rhel
from tests.support.trees import Link, make_tree


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of somebody else's, in root's environment; whoever runs the tests is root here."""
    spec = {"/.config/gpubind/nvliblist.conf": "root:x:0:\n", "/.config/gpubind/config.toml": 'root = "/theirs"\n'}
    make_tree(tmp_path, {**spec, "/bin/apptainer": "#!/bin/sh\ntouch $0.was-run\n"})
    (tmp_path / "bin" / "apptainer").chmod(0o755)

    def writable_by_others(path: str, root: str = "") -> object:
        return str(tmp_path) if path.startswith(f"{tmp_path}/") else None

    for module in (directories, programs):
        monkeypatch.setattr(module, "acts_as_root", lambda: True)
        monkeypatch.setattr(module, "writable_by_others", writable_by_others)
    monkeypatch.setattr("gpubind.machine.trust.acts_as_root", lambda: True)
    monkeypatch.setattr("gpubind.machine.trust.writable_by_others", writable_by_others)
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin")
    return tmp_path


def test_root_reads_no_list_and_no_configuration_of_others(theirs: Path) -> None:
    from gpubind.cli.settings import read_settings

    found = active_list_file("nvliblist.conf")
    assert found is None or found.label.startswith("/etc/")
    assert read_settings().get("root") is None


def test_a_link_of_others_to_a_file_of_roots_is_not_read(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (theirs / ".config" / "gpubind" / "nvliblist.conf").unlink()
    (theirs / ".config" / "gpubind" / "nvliblist.conf").symlink_to("/etc/shadow")
    opened = []
    monkeypatch.setattr(files, "read_regular", lambda path, limit: opened.append(path))
    active_list_file("nvliblist.conf")
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
    assert [(one.kind, one.path) for one in untrusted(os.environ, (), (), ())] == [
        ("file", f"{config}/config.toml"),
        ("file", f"{config}/nvliblist.conf"),
        ("cache", f"{theirs}/.cache/gpubind"),
        ("programs", f"{theirs}/bin"),
    ]
    host = gpubind.open_host("debian13-nvidia550")
    host.untrusted = lambda *_: tuple(untrusted(os.environ, (), (), ()))  # type: ignore[method-assign]
    for like in (None, "apptainer"):
        plan = gpubind.plan(host, gpubind.Request(like=like))
        found = {one.subject: one for one in plan.findings if one.code == "writable-by-others"}
        assert {one.severity for one in found.values()} == {"warning", "note"}
        assert f"users other than root may write to {theirs}" in (found[f"{config}/config.toml"].why or "")


def test_an_ordinary_users_own_words_count(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "acts_as_root", lambda: False)
    monkeypatch.setattr("gpubind.machine.trust.acts_as_root", lambda: False)
    found = active_list_file("nvliblist.conf")
    assert found is not None
    assert found.data == b"root:x:0:\n"
    assert find_program("apptainer", os.environ) == f"{theirs}/bin/apptainer"
    assert list(untrusted(os.environ, (), (), ())) == []


# What variables name: nothing here stands in for anything, so only root can run it.

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root's command alone distrusts variables")
OTHER = 1234
"""A user who is not root; no such account has to exist."""


def named(environ: dict[str, str], *roots: str) -> list[tuple[str, str, bool]]:
    return [(one.variable, one.part, one.is_secret) for one in untrusted_variables(environ, *roots)]


def test_every_option_that_names_a_place_by_a_variable_is_held_against_trust() -> None:
    by_variable = {option.variable for option in PLAN_OPTIONS if option.metavar in ("FILE", "DIR") and option.variable}
    in_the_container = {"GPUBIND_LIBDIR"}
    assert by_variable - in_the_container <= set(PATH_VARIABLES)


@as_root
@pytest.mark.parametrize("variable", PATH_VARIABLES)
def test_a_variable_of_roots_that_names_what_others_could_change_is_ignored(roots_own: Path, variable: str) -> None:
    theirs = roots_own / "theirs"
    theirs.mkdir()
    assert named({variable: str(theirs)}) == []
    os.chown(theirs, OTHER, OTHER)
    assert named({variable: str(theirs)}) == [(variable, str(theirs), False)]
    assert named({variable: f"{theirs}/not-there"}) == [(variable, str(theirs), False)]


@as_root
@pytest.mark.parametrize("variable", PATH_VARIABLES)
def test_a_variable_of_roots_that_names_a_sticky_directory_is_ignored(roots_own: Path, variable: str) -> None:
    shared, own = roots_own / "shared", roots_own / "shared" / "own"
    own.mkdir(parents=True)
    shared.chmod(0o1777)
    assert named({variable: str(own)}) == []
    for path in (shared, f"{own}/.."):
        assert named({variable: str(path)}) == [(variable, str(shared), False)]


@as_root
@pytest.mark.parametrize("variable", PATH_VARIABLES)
def test_a_variable_of_roots_that_names_what_not_everybody_may_read_is_ignored(roots_own: Path, variable: str) -> None:
    secret = roots_own / "secret"
    secret.write_text("password\n")
    secret.chmod(0o600)
    assert named({variable: str(secret)}) == [(variable, str(secret), True)]
    secret.chmod(0o644)
    assert named({variable: str(secret)}) == []
    roots_own.chmod(0o700)
    assert named({variable: str(secret)}) == [(variable, str(roots_own), True)]


@as_root
def test_a_path_inside_a_root_is_held_against_trust_there_and_links_are_followed_there(roots_own: Path) -> None:
    root = roots_own / "root"
    make_tree(root, {"/opt/theirs/libcuda.so.1": "", "/opt/link": Link("/opt/theirs")})
    os.chown(root / "opt" / "theirs", OTHER, OTHER)
    environ = {"GPUBIND_LIBRARY_PATH": "/opt/link"}
    assert named(environ, "/") == []
    assert named(environ, str(root)) == [("GPUBIND_LIBRARY_PATH", f"{root}/opt/theirs", False)]


@as_root
def test_root_uses_what_an_option_names_and_says_who_can_change_it(roots_own: Path) -> None:
    theirs = roots_own / "theirs"
    theirs.mkdir()
    os.chown(theirs, OTHER, OTHER)
    host = gpubind.open_host(root=theirs, dev_root="/")
    assert [(one.kind, one.path) for one in host.untrusted() if one.kind == "named"] == [("named", str(theirs))]
    below = [one.path for one in gpubind.open_host().untrusted(files=(f"{theirs}/list",)) if one.kind == "named"]
    assert below == []  # it does not exist
    (theirs / "list").write_text("libcuda.so\n")
    found = [one for one in gpubind.open_host().untrusted(files=(f"{theirs}/list",)) if one.kind == "named"]
    assert [(one.path, one.part) for one in found] == [(f"{theirs}/list", str(theirs))]
    listfile = ListFile(f"{theirs}/list", b"libcuda.so\n", shipped=False)
    host = gpubind.open_host()
    added = {*trust_findings(host, Request(), listfile)} - {*trust_findings(host, Request())}
    assert [(one.code, one.subject) for one in added] == [("writable-by-others", f"{theirs}/list")]


@as_root
def test_rocm_path_of_others_is_not_in_roots_environment(roots_own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_PATH", str(roots_own))
    assert gpubind.open_host().environ["ROCM_PATH"] == str(roots_own)
    os.chown(roots_own, OTHER, OTHER)
    assert "ROCM_PATH" not in gpubind.open_host().environ


def planned(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpubind", "plan", *words]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


@as_root
@pytest.mark.parametrize("reader", [("--json",), ("--json", "-qv")], ids=["json", "json-verbose"])
def test_an_ignored_variable_is_no_part_of_the_answer_and_is_reported(roots_own: Path, reader: tuple[str, ...]) -> None:
    """A secret list file, and a driver root and CDI specs of others, as `sudo -E` would bring them."""
    secret, theirs, mine = (roots_own / name for name in ("secret", "theirs", "mine"))
    secret.write_text("password-of-root\n")
    secret.chmod(0o600)
    for tree in (theirs, mine):
        make_tree(tree, rhel())
    os.chown(theirs, OTHER, OTHER)
    root = ("--root", str(mine), "--dev-root", str(mine))
    plain = json.loads(planned(*root, *reader).stdout)
    done = planned(*root, *reader, GPUBIND_LIST=str(secret), GPUBIND_CDI_DIR=str(theirs), GPUBIND_ROOT=str(theirs))
    assert "password-of-root" not in done.stdout + done.stderr
    answer = json.loads(done.stdout)
    reported = {one["subject"] for one in answer["findings"] if one["code"] == "writable-by-others"}
    assert reported == {str(secret), str(theirs)}
    assert {key: answer[key] for key in ("mounts", "digest")} == {key: plain[key] for key in ("mounts", "digest")}


@as_root
def test_where_nothing_is_found_the_ignored_variable_is_named(roots_own: Path) -> None:
    os.chown(roots_own, OTHER, OTHER)
    empty = tempfile.mkdtemp(dir="/run")
    done = planned("--dev-root", empty, "--nv", GPUBIND_ROOT=str(roots_own))
    os.rmdir(empty)
    if done.returncode:  # but for a machine with a driver
        assert f"GPUBIND_ROOT={roots_own} is ignored" in done.stderr


@as_root
def test_for_a_recorded_host_the_ignored_variable_is_reported_too(roots_own: Path) -> None:
    os.chown(roots_own, OTHER, OTHER)
    (roots_own / "list").write_text("libevil.so\n")
    done = planned("--host", "debian13-nvidia550", "--json", GPUBIND_LIST=f"{roots_own}/list")
    assert "libevil.so" not in done.stdout
    assert f"GPUBIND_LIST={roots_own}/list is ignored" in done.stderr
