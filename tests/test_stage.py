"""Generated files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from build.driver import host, kernel, rhel

from gpubind.errors import OutputError
from gpubind.facade import plan
from gpubind.model import ContainerPath, Request
from gpubind.stage import stage, stage_skeleton

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
    cache = tmp_path / "cache" / "gpubind"
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    (path,) = stage(PLAN.generated, environ).values()
    there = os.stat(path)
    assert stage(PLAN.generated, environ) == {ICD: path}
    assert os.stat(path) == there
    os.remove(path)
    (cache / f"{os.path.basename(path)}.{os.getpid()}.part").mkdir()  # nothing can be written under that name
    (other,) = stage(PLAN.generated, environ).values()
    assert other.startswith(f"{tmp_path}/gpubind-{os.geteuid()}/")


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
    monkeypatch.setattr("gpubind.stage.LAST_RESORT", str(tmp_path / "file"))
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
    made = stage_skeleton(PLACES, environ)
    assert [Path(made + place).read_bytes() for place in PLACES] == [b"", b""]
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
