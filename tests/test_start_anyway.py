"""What the runtime itself starts is started, also where looking at it costs too much or finds damage."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpubind.errors import EXIT_NOT_STARTED
from gpubind.image.open import open_image
from gpubind.machine.budget import BOUNDS, current, one_command
from tests.support.bounded import Cost, run_bounded
from tests.support.driver import rhel
from tests.support.forked import run_forked
from tests.support.greedy import GREEDY
from tests.support.images import glibc
from tests.support.trees import make_tree


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A directory with runtimes and a driver."""
    (tmp_path / "image").mkdir()
    make_tree(tmp_path / "driver", rhel())
    for name in ("apptainer", "bwrap"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} version 1.4.5"\n')
        (tmp_path / name).chmod(0o755)
    return tmp_path


def start(machine: Path, *words: str) -> Cost:
    root = str(machine / "driver")
    path = f"{machine}:{os.environ['PATH']}"
    return run_bounded(*words[:1], "--dry-run", "--root", root, "--dev-root", root, *words[1:], PATH=path)


def test_an_image_that_costs_too_much_to_look_at_is_started_with_a_warning(machine: Path) -> None:
    place = GREEDY["links_of_4_kb_each"](machine / "image").rpartition(":")[2]
    image = f"oci:{place}" if os.path.isdir(place) else f"docker-archive:{place}"
    for words in (
        ("exec", "--backend", "apptainer", image, "true"),
        ("wrap", "--", "apptainer", "exec", "--nv", image, "true"),
    ):
        done = start(machine, *words)
        assert (done.status, "warning: over-bounds" in done.stderr) == (0, True), done.stderr
        assert "libcuda.so.1" in done.stdout
    done = start(machine, "exec", "--check", "--backend", "apptainer", image, "true")
    assert (done.status, "error: over-bounds" in done.stderr) == (EXIT_NOT_STARTED, True)


def test_what_costs_too_much_only_after_it_was_opened_is_started_too(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Blindly by who finds images by itself; who starts directories alone has as much as it takes."""
    from gpubind.cli import main as cli

    directory = str(make_tree(machine / "image", glibc("2.36")).root)
    root = str(machine / "driver")
    with one_command():
        open_image(directory)
        budget = current()
        assert budget is not None
        taken = BOUNDS["lookups"].amount - budget.left("lookups")
    monkeypatch.setitem(BOUNDS, "lookups", BOUNDS["lookups"]._replace(amount=taken + 60))
    monkeypatch.setenv("PATH", f"{machine}:{os.environ['PATH']}")
    for backend in ("apptainer", "bwrap"):
        words = ("--nv", "--root", root, "--dev-root", root, "--dry-run", "--backend", backend, directory, "/bin/sh")
        assert cli.main(["exec", *words]) == 0, capfd.readouterr().err
        made = capfd.readouterr()
        assert "libcuda.so.1" in made.out
        assert ("warning: over-bounds" in made.err) == (backend == "apptainer")


@pytest.mark.parametrize("line", [("exec", "--backend", "apptainer"), ("wrap", "--", "apptainer", "exec", "--nv")])
def test_a_second_try_reports_a_finding_once(
    machine: Path, line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Wherever the image costs too much: the plan, which is empty, is made before that, or after it."""
    from gpubind.cli import main as cli

    directory = str(make_tree(machine / "image", glibc("2.36")).root)
    (machine / "none").mkdir()
    with one_command():
        open_image(directory)
        budget = current()
        assert budget is not None
        taken = BOUNDS["lookups"].amount - budget.left("lookups")
    monkeypatch.setenv("PATH", f"{machine}:{os.environ['PATH']}")
    root = ("--root", str(machine / "none"), "--dev-root", str(machine / "none"), "--dry-run")
    for more in range(0, 60, 10):
        monkeypatch.setitem(BOUNDS, "lookups", BOUNDS["lookups"]._replace(amount=taken + more))
        assert cli.main([line[0], *root, *line[1:], directory, "/bin/sh"]) == 0
        err = capfd.readouterr().err
        assert (more, err.count("nothing-to-bind")) == (more, 1), err


def begin(machine: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """As `start`, and it is really started."""
    root = ("--root", str(machine / "driver"), "--dev-root", str(machine / "driver"))
    environ = {**os.environ, "PATH": f"{machine}:{os.environ['PATH']}"}
    return run_forked([words[0], *root, *words[1:]], environ)


def test_a_mistyped_path_is_refused_with_the_nearest_name_before_anything_is_started(machine: Path) -> None:
    (machine / "bookworm.sif").write_text("")
    done = begin(machine, "exec", "--backend", "apptainer", f"{machine}/bookwrm.sif", "true")
    assert done.returncode == EXIT_NOT_STARTED
    assert "error: no-image" in done.stderr
    assert "did you mean `bookworm.sif`?" in done.stderr
    assert done.stdout == ""


def test_a_mistyped_path_on_the_users_own_line_is_left_to_its_runtime(machine: Path) -> None:
    done = begin(machine, "wrap", "--", "apptainer", "exec", "--nv", f"{machine}/bookwrm.sif", "true")
    assert done.stderr.startswith("note: image-unknown: ")
    assert done.stdout == "apptainer version 1.4.5\n"


@pytest.mark.parametrize("image", ["docker://debian", "instance://job", "docker-archive:gone.tar", "b:c", "loop.sif"])
def test_what_may_be_no_path_or_is_there_is_left_to_the_runtime(machine: Path, image: str) -> None:
    (machine / "loop.sif").symlink_to("loop.sif")
    image = f"{machine}/{image}" if image == "loop.sif" else image
    done = begin(machine, "exec", "--backend", "apptainer", image, "true")
    assert (done.returncode, "apptainer version" in done.stdout) == (0, True), done.stderr


def test_a_command_that_is_only_printed_may_be_for_an_image_of_another_machine(machine: Path) -> None:
    assert (
        begin(machine, "exec", "--dry-run", "--backend", "apptainer", "/of/another/machine.sif", "true").returncode == 0
    )
