"""`gpubind install-shims` as a process: files in PATH that start a runtime through `gpubind wrap`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Optional

import pytest

import gpubind
from gpubind.launch.execute import this_package, this_program
from gpubind.launch.wrap.passing import WITH_GPU_FLAGS
from gpubind.launch.wrap.unread import _STARTS
from gpubind.runtimes import PROGRAMS
from tests.launch.wrap.test_command_lines import wrapped_cases

RECORDER = """#!/bin/sh
printf '%s\\0' "$0" "$@" > "${0%/*}/started"
exit 42
"""


def program(directory: Path, name: str, text: str = RECORDER) -> Path:
    """An executable file *name* in *directory*."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(*arguments: str, cwd: Path, path: str) -> subprocess.CompletedProcess[str]:
    """`install-shims` as a process whose path is known."""
    environ = {"PATH": path, "PYTHONPATH": os.pathsep.join(sys.path), "GPUBIND_MEMO": "off"}
    words = (sys.executable, "-m", "gpubind", "install-shims", *arguments)
    return subprocess.run(words, check=False, capture_output=True, text=True, env=environ, cwd=cwd)


def installed(
    tmp_path: Path, *arguments: str, path: Optional[tuple[str, ...]] = None
) -> subprocess.CompletedProcess[str]:
    """`install-shims *arguments*`, with the directories *path* of *tmp_path* before those of the system in PATH."""
    places = [str(tmp_path / name) for name in (("real",) if path is None else path)]
    return run(*arguments, cwd=tmp_path, path=":".join((*places, "/usr/bin", "/bin")))


def started(real: Path) -> list[str]:
    return (real / "started").read_text().split("\0")[:-1]


@pytest.mark.parametrize("name", ["-c", "-m", "/opt/gpubind/__main__.py"])
def test_a_process_without_a_program_of_its_own_is_started_again_by_the_package(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    assert this_program() == this_package() == (sys.executable, str(Path(gpubind.__file__).with_name("__main__.py")))


def test_a_shim_starts_the_real_program_by_its_path(tmp_path: Path) -> None:
    real = program(tmp_path / "real", "apptainer")
    done = installed(tmp_path, "-q", "bin", "apptainer", path=("bin", "real"))
    assert (done.stdout, done.stderr) == (f"{tmp_path}/bin/apptainer starts {real}\n", "")
    ran = subprocess.run([tmp_path / "bin/apptainer", "cache", "a b"], check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr, started(real.parent)) == (42, "", [str(real), "cache", "a b"])


@pytest.mark.parametrize("name", ["apptainer", "docker", "podman"])
def test_a_line_without_a_container_does_not_wait_for_python(tmp_path: Path, name: str) -> None:
    real = program(tmp_path / "real", name)
    installed(tmp_path, "bin", name)
    shim = tmp_path / "bin" / name
    shim.write_text(shim.read_text().replace(" wrap -- ", " wrap --nonsense -- "))  # which ends with 2
    for line in (["--version"], ["info"], ["inspect", "a b"], ["instance", "list"], ["ps", "-a"]):
        assert subprocess.run([shim, *line], check=False).returncode == 42
        assert started(real.parent) == [str(real), *line]
    for line in (["run", "img"], ["-q", "run", "img"]):
        assert subprocess.run([shim, *line], check=False, capture_output=True).returncode == 2


def test_a_shim_hands_each_line_that_needs_a_plan_to_wrap() -> None:
    for case in wrapped_cases():
        words = PROGRAMS[os.path.basename(case.words[0])].start_subcommands if case.words[0] in PROGRAMS else ()
        assert not words or any(f" {word} " in f" {' '.join(case.words[1:])} " for word in words), case.words
    assert {*_STARTS, "build", "buildx"} <= set(PROGRAMS["docker"].start_subcommands)


def test_a_shim_starts_a_line_with_gpus_through_wrap(tmp_path: Path) -> None:
    version = '#!/bin/sh\n[ "$1" = --version ] && { echo "apptainer version 1.4.5"; exit; }\n'
    real = program(tmp_path / "real", "apptainer", version + RECORDER)
    installed(tmp_path, "bin", "apptainer")
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "GPUBIND_ROOT": str(tmp_path),
        "GPUBIND_DEV_ROOT": str(tmp_path),
    }
    line = (f"{tmp_path}/bin/apptainer", "exec", "--nv", "img.sif", "true")
    ran = subprocess.run(line, check=False, capture_output=True, text=True, env=environ)
    assert (ran.returncode, ran.stderr[:30]) == (42, "note: image-unknown: img.sif: ")
    assert started(real.parent)[1:] == ["exec", "--nv", "img.sif", "true"]


def test_a_shim_runs_no_module_of_the_working_directory(tmp_path: Path) -> None:
    program(tmp_path / "real", "docker")
    installed(tmp_path, "bin", "docker")
    (tmp_path / "here/gpubind").mkdir(parents=True)
    for module in ("gpubind/__init__", "gpubind/__main__", "typing", "json"):
        (tmp_path / f"here/{module}.py").write_text("raise SystemExit('a module of the working directory was run')")
    line = (f"{tmp_path}/bin/docker", "run", "--gpus", "all", "x")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(os.path.isabs, sys.path))}
    ran = subprocess.run(line, check=False, capture_output=True, text=True, env=environ, cwd=tmp_path / "here")
    assert "working directory" not in ran.stderr


def test_without_gpubind_a_shim_starts_the_real_program_alone(tmp_path: Path) -> None:
    real = program(tmp_path / "real", "docker")
    installed(tmp_path, "bin", "docker")
    shim = tmp_path / "bin/docker"
    shim.write_text(shim.read_text().replace("[ -x /", "[ -x /removed/"))
    assert subprocess.run([shim, "run", "--gpus", "all", "x"], check=False).returncode == 42
    assert started(real.parent) == [str(real), "run", "--gpus", "all", "x"]


def test_without_names_each_installed_runtime_with_gpu_flags_gets_a_shim(tmp_path: Path) -> None:
    for name in (*WITH_GPU_FLAGS, "ch-run"):
        program(tmp_path / "real", name)
    installed(tmp_path, "bin")
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == sorted(WITH_GPU_FLAGS)


def test_a_shim_never_starts_a_shim(tmp_path: Path) -> None:
    real = program(tmp_path / "real", "docker")
    for place in ("one", "two", "one"):
        done = installed(tmp_path, "-q", place, path=("one", "two", "real"))
        assert done.stdout.startswith(f"{tmp_path}/{place}/docker starts {real}\n")


def test_the_output_says_how_path_finds_the_shims(tmp_path: Path) -> None:
    program(tmp_path / "real", "docker")
    advice = f"put it first in PATH: export PATH={tmp_path}/bin:$PATH"
    assert installed(tmp_path, "bin").stdout.splitlines()[-1] == advice
    assert advice not in installed(tmp_path, "bin", path=("bin", "real")).stdout


def test_a_program_is_never_overwritten(tmp_path: Path) -> None:
    real = program(tmp_path / "real", "docker")
    done = installed(tmp_path, "real")
    assert (done.returncode, "other-file" in done.stderr, real.read_text()) == (4, True, RECORDER)
    program(tmp_path / "real", "apptainer")
    program(tmp_path / "bin", "docker", "mine")
    assert installed(tmp_path, "bin").returncode == 4
    assert [path.name for path in (tmp_path / "bin").iterdir()] == ["docker"]


@pytest.mark.parametrize("names, status, code", [(("git",), 2, "unknown-backend"), (("podman",), 6, "no-runtime")])
def test_what_wrap_does_not_read_or_path_lacks_gets_no_shim(
    tmp_path: Path, names: tuple[str, ...], status: int, code: str
) -> None:
    program(tmp_path / "real", "docker")
    done = run("bin", "docker", *names, cwd=tmp_path, path=f"{tmp_path}/real")
    assert (done.returncode, code in done.stderr, (tmp_path / "bin").exists()) == (status, True, False)


def test_remove_removes_shims_alone(tmp_path: Path) -> None:
    for name in ("docker", "apptainer", "nerdctl"):
        program(tmp_path / "real", name)
    installed(tmp_path, "bin")
    mine = program(tmp_path / "bin", "podman", "mine")
    assert installed(tmp_path, "--remove", "bin", "podman").returncode == 4
    assert installed(tmp_path, "--remove", "bin", "docker").stdout == f"removed {tmp_path}/bin/docker\n"
    removed = "".join(f"removed {tmp_path}/bin/{name}\n" for name in ("apptainer", "nerdctl"))
    assert installed(tmp_path, "--remove", "bin").stdout == removed
    assert list((tmp_path / "bin").iterdir()) == [mine]


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    program(tmp_path / "real", "docker")
    done = installed(tmp_path, "real/docker/bin")
    assert (done.returncode, "unwritable-file" in done.stderr) == (4, True)


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("nowhere")], ids=["file", "dangling link"])
def test_what_is_no_directory_is_called_that(tmp_path: Path, make: Callable[[Path], None]) -> None:
    program(tmp_path / "real", "docker")
    make(tmp_path / "bin")
    done = installed(tmp_path, "bin")
    assert (done.returncode, "why:   it is not a directory\n" in done.stderr) == (4, True), done.stderr


@pytest.mark.parametrize("directory", ["", "a:b", "a\nb", "a:b/../c:d"])
@pytest.mark.parametrize("options", [(), ("--remove",)], ids=["install", "remove"])
def test_a_directory_that_path_cannot_name_is_wrong_use(
    tmp_path: Path, directory: str, options: tuple[str, ...]
) -> None:
    program(tmp_path / "real", "docker")
    done = installed(tmp_path, *options, directory)
    assert (done.returncode, "error: wrong-use: " in done.stderr) == (2, True), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["real"]


def test_a_path_in_the_place_of_a_name_is_told_as_one(tmp_path: Path) -> None:
    real = program(tmp_path / "real", "docker")
    done = installed(tmp_path, "bin", str(real))
    assert (done.returncode, "hint:  give a name, not a path: docker\n" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("names", [(), ("docker",)])
def test_that_there_is_nothing_to_remove_is_told(tmp_path: Path, names: tuple[str, ...]) -> None:
    done = installed(tmp_path, "--remove", "bin", *names)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "nothing to remove: `install-shims` made no file in bin\n"
