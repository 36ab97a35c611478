"""`plan --format links`: the links of a plan, and what programs need to find them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpubind import plan
from gpubind.documents.links import links_of, render_links, usage_text
from gpubind.errors import OutputError
from gpubind.host.open import open_host
from gpubind.launch.links import put_links
from gpubind.model import HostPath, Request
from tests.support.commands import HOST, gpubind
from tests.support.driver import V, host, kernel, libraries, ubuntu
from tests.support.elf import I386

PLAN = plan(open_host(HOST), Request())
LINKS = {
    "libcuda.so.1": HostPath("/usr/lib/libcuda.so.550"),
    "lib32/libcuda.so.1": HostPath("/usr/lib32/libcuda.so.550"),
}


def shown(directory: Path) -> dict[str, str]:
    links = (path for path in directory.glob("**/*") if path.is_symlink())
    return {str(path.relative_to(directory)): os.readlink(path) for path in links}


def test_every_name_of_a_driver_library_is_a_link_to_the_hosts_file() -> None:
    libraries = {mount.target.rpartition("/")[2]: mount.source for mount in PLAN.mounts if mount.kind == "library"}
    assert links_of(PLAN) == libraries
    assert "libcuda.so.1\t/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.163.01\n" in render_links(PLAN)


def test_what_the_drivers_libraries_need_of_others_is_the_stacks() -> None:
    rocm = links_of(plan(open_host("mi300x-rocm62"), Request()))
    assert "libhsa-runtime64.so.1" in rocm
    assert not {"libstdc++.so.6", "libgcc_s.so.1", "libz.so.1", "libelf.so.1"} & set(rocm)


def test_32_bit_libraries_have_a_directory_of_their_own() -> None:
    directory = "/usr/lib/i386-linux-gnu"
    both = host(ubuntu(), libraries(directory, machine=I386, bits=32), kernel())
    assert not any("/" in name for name in links_of(plan(both, Request())))
    links = links_of(plan(both, Request(caps=("compute", "compat32"))))
    assert links["lib32/libcuda.so.1"] == f"{directory}/libcuda.so.{V}"
    assert links["libcuda.so.1"] != links["lib32/libcuda.so.1"]


def test_the_advice_is_for_the_directory_as_a_shell_reads_it() -> None:
    text = usage_text(PLAN, "/opt/my driver")
    assert "-rpath,'/opt/my driver'\n" in text
    assert "for a program that is linked:\n  patchelf --force-rpath --add-rpath '/opt/my driver' PROGRAM\n" in text
    assert "export LD_LIBRARY_PATH='/opt/my driver'${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n" in text
    assert "export __EGL_VENDOR_LIBRARY_FILENAMES=/usr/share/glvnd/egl_vendor.d/10_nvidia.json\n" in text
    platforms = "/usr/share/egl/egl_external_platform.d"
    assert (
        f"export __EGL_EXTERNAL_PLATFORM_CONFIG_FILENAMES={platforms}/10_nvidia_wayland.json:"
        f"{platforms}/15_nvidia_gbm.json\n"
    ) in text
    assert "export VK_ADD_DRIVER_FILES=/usr/share/vulkan/icd.d/nvidia_icd.json\n" in text
    assert "manifests" not in usage_text(plan(open_host(HOST), Request(caps=("compute",))), "/opt")


def test_a_directory_has_the_links_and_is_replaced_as_a_whole(tmp_path: Path) -> None:
    directory = tmp_path / "driver"
    assert put_links(LINKS, str(directory))
    assert shown(directory) == LINKS
    before = os.readlink(directory)
    assert not put_links(LINKS, str(directory))
    assert put_links({"libcuda.so.1": HostPath("/usr/lib/libcuda.so.570")}, str(directory))
    assert shown(directory) == {"libcuda.so.1": "/usr/lib/libcuda.so.570"}
    assert sorted(os.listdir(tmp_path)) == sorted(["driver", os.readlink(directory)])
    put_links(LINKS, str(directory))
    assert os.readlink(directory) == before


def test_runs_at_the_same_time_leave_the_links_of_one_of_them(tmp_path: Path) -> None:
    others = {"libcuda.so.1": HostPath("/usr/lib/libcuda.so.570")}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: put_links((LINKS, others)[at % 2], str(tmp_path / "driver")), range(40)))
    assert shown(tmp_path / "driver") in (LINKS, others)
    assert sorted(os.listdir(tmp_path)) == sorted(["driver", os.readlink(tmp_path / "driver")])


def test_an_empty_directory_becomes_one_of_links(tmp_path: Path) -> None:
    put_links(LINKS, str(tmp_path / "first"))
    (tmp_path / "driver").mkdir()
    put_links(LINKS, str(tmp_path / "driver"))
    assert shown(tmp_path / "driver") == LINKS


@pytest.mark.parametrize("what", ["file", "directory", "link", "added", "changed", "removed", "prepared"])
def test_what_gpubind_did_not_make_is_left_as_it_is(tmp_path: Path, what: str) -> None:
    directory = tmp_path / "driver"
    if what == "file":
        directory.write_text("mine")
    elif what == "directory":
        directory.mkdir()
        (directory / "mine").write_text("mine")
    elif what == "link":
        (tmp_path / "else").mkdir()
        directory.symlink_to("else")
    else:
        put_links(LINKS, str(directory))
    if what == "added":
        (directory / "mine").write_text("mine")
    elif what in ("changed", "removed"):
        (directory / "libcuda.so.1").unlink()
    elif what == "prepared":
        made = os.readlink(directory)
        directory.unlink()
        (tmp_path / made / "libevil.so").symlink_to("/tmp/evil")
    if what == "changed":
        (directory / "libcuda.so.1").symlink_to("/opt/mine")
    before = {path: os.lstat(path).st_mtime_ns for path in tmp_path.glob("**/*")}
    with pytest.raises(OutputError) as error:
        put_links(LINKS if what == "prepared" else {"libcuda.so.1": HostPath("/new")}, str(directory))
    assert error.value.code == "other-directory"
    assert {path: os.lstat(path).st_mtime_ns for path in tmp_path.glob("**/*")} == before


def test_a_directory_that_others_may_write_to_is_not_gpubinds(tmp_path: Path) -> None:
    put_links(LINKS, str(tmp_path / "driver"))
    (tmp_path / os.readlink(tmp_path / "driver")).chmod(0o777)
    with pytest.raises(OutputError, match="other-directory"):
        put_links({}, str(tmp_path / "driver"))


def test_nothing_is_left_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="unwritable-file"):
        put_links(LINKS, str(tmp_path / "gone" / "driver"))
    with pytest.raises(OutputError, match="unwritable-file"):
        put_links({**LINKS, "x" * 300: HostPath("/x")}, str(tmp_path / "driver"))
    assert os.listdir(tmp_path) == []


def test_the_command_writes_them_and_says_what_to_do(tmp_path: Path) -> None:
    words = ("plan", "--format", "links", "--host", HOST)
    listed, done = gpubind(*words), gpubind(*words, "-o", str(tmp_path / "driver"))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"{tmp_path}/driver: 39 links\n")
    assert {line.split("\t")[0] for line in listed.stdout.splitlines()[:-1]} == set(os.listdir(tmp_path / "driver"))
    assert gpubind(*words, "-q", "-o", str(tmp_path / "driver")).stderr == ""


def test_the_working_directory_may_be_named_and_an_empty_name_is_none(tmp_path: Path) -> None:
    (tmp_path / "driver").mkdir()
    words = ("plan", "--format", "links", "--host", HOST, "-o")
    unnamed = gpubind(*words, "", cwd=tmp_path / "driver")
    assert (unnamed.returncode, unnamed.stderr[:24]) == (4, "error: unwritable-file: ")
    done = gpubind(*words, ".", cwd=tmp_path / "driver")
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, f"{tmp_path}/driver: 39 links")


@pytest.mark.parametrize("call", ["symlink", "rename"])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    put_links(LINKS, str(tmp_path / "driver"))
    before = sorted(os.listdir(tmp_path))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, call, interrupt)
    with pytest.raises(KeyboardInterrupt):
        put_links({"libcuda.so.1": HostPath("/usr/lib/libcuda.so.570")}, str(tmp_path / "driver"))
    assert sorted(os.listdir(tmp_path)) == before


def test_a_plan_without_libraries_is_no_reason_to_replace_links(tmp_path: Path) -> None:
    put_links(LINKS, str(tmp_path / "driver"))
    (tmp_path / "list").write_text("")
    named = ("--list", str(tmp_path / "list"), "--no-completion")
    done = gpubind("plan", "--format", "links", "-o", str(tmp_path / "driver"), "--host", HOST, *named)
    assert done.returncode == 3
    assert "error: nothing-to-bind: the plan has no library, so the directory is not changed" in done.stderr
    assert shown(tmp_path / "driver") == LINKS


def test_no_driver_no_links_and_what_was_there_stays(tmp_path: Path) -> None:
    put_links(LINKS, str(tmp_path / "driver"))
    (tmp_path / "root").mkdir()
    root = str(tmp_path / "root")
    done = gpubind("plan", "--format", "links", "-o", str(tmp_path / "driver"), "--root", root, "--dev-root", root)
    assert done.returncode == 3
    assert shown(tmp_path / "driver") == LINKS
