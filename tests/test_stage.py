"""Generated files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpubind import plan
from gpubind.errors import OutputError
from gpubind.launch.stage import SKELETONS_LIMIT, stage, stage_in, stage_skeleton
from gpubind.model import ContainerPath, Request
from gpubind.model.digest import sha256_hex
from tests.support.driver import host, kernel, rhel
from tests.support.limits import file_size_limit

ICD = "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"
PLAN = plan(host(rhel(), kernel()), Request())


def test_content_is_written_once_and_named_by_its_hash(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    first, second = stage(PLAN.generated, environ), stage(PLAN.generated, environ)
    assert first == second
    assert list(first) == [ICD]
    content = next(mount.content for mount in PLAN.mounts if mount.target == ICD)
    assert [Path(path).read_text() for path in first.values()] == [content]
    assert len(os.listdir(tmp_path / "gpubind")) == 1


def test_a_plan_without_generated_files_writes_nothing(tmp_path: Path) -> None:
    made = plan(host(rhel(), kernel()), Request(caps=("utility",)))
    assert stage(made.generated, {"XDG_CACHE_HOME": str(tmp_path)}) == {}
    assert os.listdir(tmp_path) == []


def test_a_home_that_cannot_be_written_gives_way_to_tmpdir(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environ = {"HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path)}
    (path,) = stage(PLAN.generated, environ).values()
    assert path.startswith(f"{tmp_path}/gpubind-{os.geteuid()}/")


def test_a_full_home_gives_way_and_takes_nothing_away_that_is_there(tmp_path: Path) -> None:
    """As with a full disk, no byte of a new file can be written; what is there already is of use."""
    cache = tmp_path / "cache" / "gpubind"
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    (path,) = stage(PLAN.generated, environ).values()
    there = os.stat(path)
    assert stage(PLAN.generated, environ) == {ICD: path}
    assert os.stat(path) == there
    (other,) = stage(PLAN.generated, {"TMPDIR": str(tmp_path)}).values()
    os.remove(path)
    with file_size_limit(0):
        assert stage(PLAN.generated, environ) == {ICD: other}
    assert other.startswith(f"{tmp_path}/gpubind-{os.geteuid()}/")
    assert os.listdir(cache) == []


@pytest.mark.parametrize("room", [0, 10])
def test_a_full_disk_is_an_error_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr("gpubind.launch.stage.LAST_RESORT", str(tmp_path))
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    with file_size_limit(room), pytest.raises(OutputError) as caught:
        stage(PLAN.generated, environ)
    assert (caught.value.code, caught.value.why) == ("unwritable-file", os.strerror(errno.EFBIG))
    assert [file for _, _, files in os.walk(tmp_path) for file in files] == []
    (path,) = stage(PLAN.generated, environ).values()
    assert Path(path).read_text() == PLAN.generated[ContainerPath(ICD)]


def test_200_writers_in_one_process_write_one_file(tmp_path: Path) -> None:
    """Threads have one pid, as processes on two nodes with one home may have."""
    start = threading.Barrier(200)

    def write(number: int) -> tuple[str, int]:
        start.wait()
        (path,) = stage(PLAN.generated, {"XDG_CACHE_HOME": str(tmp_path)}).values()
        return path, os.stat(path).st_ino

    with ThreadPoolExecutor(200) as pool:
        seen = set(pool.map(write, range(200)))
    assert len(seen) == 1  # one name, and one file: nobody has written it anew
    (path, _) = seen.pop()
    assert os.listdir(tmp_path / "gpubind") == [os.path.basename(path)]


def test_40_processes_write_one_file(tmp_path: Path) -> None:
    ready, go = os.pipe(), os.pipe()
    children = []
    for _ in range(40):
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                os.close(go[1])
                os.write(ready[1], b"x")
                os.read(go[0], 1)  # all are released at once
                (path,) = stage(PLAN.generated, {"XDG_CACHE_HOME": str(tmp_path)}).values()
                code = 0 if Path(path).read_text() == PLAN.generated[ContainerPath(ICD)] else 2
            os._exit(code)
        children.append(child)
    waiting = 40
    while waiting:
        waiting -= len(os.read(ready[0], waiting))
    for end in (go[1], go[0], *ready):
        os.close(end)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 40
    assert len(os.listdir(tmp_path / "gpubind")) == 1


def test_the_directory_is_private_and_the_file_can_be_read_by_a_containers_user(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        (path,) = stage(PLAN.generated, {"XDG_CACHE_HOME": str(tmp_path)}).values()
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o444
    assert stat.S_IMODE(os.stat(tmp_path / "gpubind").st_mode) == 0o700


def test_no_link_is_followed_neither_to_a_directory_nor_to_a_file(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / "gpubind").symlink_to(elsewhere)
    (path,) = stage(PLAN.generated, {"XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}).values()
    assert path.startswith(f"{tmp_path}/gpubind-")
    assert os.listdir(elsewhere) == []
    prey = tmp_path / "prey"
    prey.write_text("mine")
    os.remove(path)
    os.symlink(prey, path)
    assert stage(PLAN.generated, {"TMPDIR": str(tmp_path)}) == {ICD: path}
    assert not os.path.islink(path)
    assert prey.read_text() == "mine"


@pytest.mark.parametrize("damage", [b"", b"other", b"longer" * 1000])
def test_a_damaged_file_is_mended(tmp_path: Path, damage: bytes) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    (path,) = stage(PLAN.generated, environ).values()
    os.chmod(path, 0o644)
    Path(path).write_bytes(damage)
    assert stage(PLAN.generated, environ) == {ICD: path}
    assert Path(path).read_text() == PLAN.generated[ContainerPath(ICD)]
    assert len(os.listdir(tmp_path / "gpubind")) == 1


def test_a_name_of_any_length_has_room(tmp_path: Path) -> None:
    target = ContainerPath(f"/etc/{'ä' * 127}")
    (path,) = stage({target: "{}"}, {"XDG_CACHE_HOME": str(tmp_path)}).values()
    assert Path(path).read_text() == "{}"


@pytest.fixture
def nobody_special(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules for an ordinary user, whoever runs the tests: root's containers rely on no directory below /tmp."""
    monkeypatch.setattr("gpubind.launch.stage.acts_as_root", lambda: False)


@pytest.mark.usefixtures("nobody_special")
@pytest.mark.parametrize("umask", [0o022, 0o077])
@pytest.mark.parametrize("existed", [True, False])
def test_a_directory_for_documents_is_for_everybody_to_read(tmp_path: Path, existed: bool, umask: int) -> None:
    directory = tmp_path / "var" / "gpu"
    if existed:
        directory.mkdir(parents=True, mode=0o755)
    before = os.umask(umask)
    try:
        places = stage_in(PLAN.generated, str(directory))
    finally:
        os.umask(before)
    assert places == stage_in(PLAN.generated, str(directory))
    assert os.path.dirname(places[ContainerPath(ICD)]) == str(directory)
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o755


def test_nothing_generated_needs_no_directory_for_documents(tmp_path: Path) -> None:
    assert stage_in({}, str(tmp_path / "no")) == {}
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("nobody_special")
def test_a_directory_for_documents_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(OutputError) as caught:
        stage_in(PLAN.generated, str(tmp_path))
    assert (caught.value.code, caught.value.where) == ("unwritable-file", str(tmp_path))
    assert caught.value.why == "it belongs to another user, or others may write to it"


def test_root_stages_for_everybody_below_no_directory_that_others_may_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubind.launch.stage.acts_as_root", lambda: True)
    with pytest.raises(OutputError) as caught:
        stage_in(PLAN.generated, str(tmp_path / "new"))
    assert caught.value.why
    assert os.listdir(tmp_path) == []


def test_root_stages_in_no_place_that_others_could_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubind.launch.stage.is_trusted_path", lambda path: not path.startswith(f"{tmp_path}/theirs/"))
    (tmp_path / "theirs").mkdir()
    environ = {"HOME": str(tmp_path / "theirs"), "TMPDIR": str(tmp_path)}
    (path,) = stage(PLAN.generated, environ).values()
    assert path.startswith(f"{tmp_path}/gpubind-")
    assert os.listdir(tmp_path / "theirs") == []
    monkeypatch.setattr("gpubind.launch.stage.LAST_RESORT", str(tmp_path / "theirs"))
    with pytest.raises(OutputError) as caught:
        stage(PLAN.generated, {})
    assert caught.value.why == "users other than root could change what is there"


@pytest.mark.parametrize("variable", ["HOME", "TMPDIR"])
def test_a_home_or_tmpdir_that_does_not_exist_is_not_made(tmp_path: Path, variable: str) -> None:
    (path,) = stage(PLAN.generated, {variable: str(tmp_path / "none")}).values()
    assert path.startswith("/tmp/gpubind-")
    assert os.listdir(tmp_path) == []


def test_directories_above_the_cache_are_made_private(tmp_path: Path) -> None:
    stage(PLAN.generated, {"XDG_CACHE_HOME": str(tmp_path / "a" / "b")})
    assert [stat.S_IMODE(os.stat(tmp_path / made).st_mode) for made in ("a", "a/b")] == [0o700, 0o700]


@pytest.mark.parametrize("tmpdir", ["", "relative", "/dev/null"])
def test_a_tmpdir_that_is_of_no_use_gives_way_to_tmp(tmpdir: str) -> None:
    (path,) = stage(PLAN.generated, {"TMPDIR": tmpdir}).values()
    assert path.startswith(f"/tmp/gpubind-{os.geteuid()}/")


def test_a_directory_that_others_may_write_to_is_not_trusted(tmp_path: Path) -> None:
    trap = tmp_path / f"gpubind-{os.geteuid()}"
    trap.mkdir()
    trap.chmod(0o777)
    (path,) = stage(PLAN.generated, {"TMPDIR": str(tmp_path)}).values()
    assert not path.startswith(str(tmp_path))


def test_without_a_place_the_error_names_all_that_were_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubind.launch.stage.LAST_RESORT", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    environ = {"HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "none" / "file")}
    (tmp_path / "none").write_text("")
    with pytest.raises(OutputError) as caught:
        stage(PLAN.generated, environ)
    assert caught.value.code == "unwritable-file"
    assert caught.value.where.count(", ") == 2


PLACES = [ContainerPath("/.gpubind/libs/libcuda.so.1"), ContainerPath("/usr/share/vulkan/icd.d/x y.json")]


def test_a_skeleton_has_an_empty_file_at_each_place_and_is_made_once(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    before = os.umask(0o022)
    try:
        made = stage_skeleton(PLACES, environ)
    finally:
        os.umask(before)
    assert [Path(made + place).read_bytes() for place in PLACES] == [b"", b""]
    assert {stat.S_IMODE(os.stat(directory).st_mode) for directory, _, _ in os.walk(made)} == {0o755}
    assert [stat.S_IMODE(os.stat(made + place).st_mode) for place in PLACES] == [0o444, 0o444]
    inode = os.stat(made).st_ino
    assert stage_skeleton(reversed(PLACES), environ) == made
    assert os.stat(made).st_ino == inode
    assert len(os.listdir(os.path.dirname(made))) == 1


def test_a_skeleton_that_somebody_wrote_into_is_left_alone_for_another(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    made = stage_skeleton(PLACES, environ)
    Path(made, ".gpubind/libs/more").write_text("x")
    other = stage_skeleton(PLACES, environ)
    assert other != made
    assert not Path(other, ".gpubind/libs/more").exists()
    assert stage_skeleton(PLACES, environ) == other
    assert len(os.listdir(os.path.dirname(made))) == 2


def test_no_more_skeletons_are_made_than_anybody_could_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    for _ in range(SKELETONS_LIMIT):
        Path(stage_skeleton(PLACES, environ), "more").write_text("x")
    name = sha256_hex("\0".join(sorted(PLACES))) + "-skeleton"
    monkeypatch.setattr("gpubind.launch.stage.LAST_RESORT", "relative")
    with pytest.raises(OutputError) as caught:
        stage_skeleton(PLACES, environ)
    assert caught.value.why == f"16 directories {name} are there, and all were changed"
    names = [name, *(f"{name}-{number}" for number in range(1, SKELETONS_LIMIT))]
    assert sorted(os.listdir(tmp_path / "gpubind")) == sorted(names)


def test_a_skeleton_that_cannot_be_made_whole_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubind.launch.stage.LAST_RESORT", str(tmp_path))
    make = os.makedirs
    full = OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    def makedirs(path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        make(path, mode, exist_ok)
        raise full

    monkeypatch.setattr(os, "makedirs", makedirs)
    with pytest.raises(OutputError) as caught:
        stage_skeleton(PLACES, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert caught.value.why == full.strerror
    assert os.listdir(tmp_path / "cache" / "gpubind") == []
