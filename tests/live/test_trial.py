"""`check --try`: what `check` predicts of a container is what its own loader and the driver say there."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from tests.live.containers import CONTAINERS
from tests.live.machine import INSIDE_CONTAINERS, PYTHON_ENV, Bind, Machine
from tests.live.trials import SOME, Pair, need_right, tried
from tests.support.golden import DOCS, assert_golden

pytestmark = pytest.mark.live

BWRAP = Pair("trixie", "bwrap", "bookworm", True)


@pytest.mark.parametrize("pair", SOME, ids=str)
def test_what_is_predicted_is_seen(trixie: Machine, bookworm: Machine, pair: Pair) -> None:
    counts = need_right(tried({"trixie": trixie, "bookworm": bookworm}[pair.machine], pair))
    assert sum(counts.values()) > (15 if pair.way == "rocm" else 25)


def test_an_image_without_a_loader_is_not_started(trixie: Machine) -> None:
    assert not need_right(tried(trixie, BWRAP._replace(image="busybox")))


@pytest.fixture
def without_shell(rig: str) -> Iterator[Bind]:
    """The container `bookworm` without its shells."""
    base = tempfile.mkdtemp(prefix="trial-", dir=rig)
    try:
        os.chmod(base, 0o755)
        subprocess.run(["cp", "-al", f"{rig}/ct/bookworm", f"{base}/bookworm"], check=True)
        for name in ("sh", "bash", "dash"):
            os.remove(f"{base}/bookworm/bin/{name}")
        yield Bind(base, "/without-shell")
    finally:
        shutil.rmtree(base)


def test_an_image_without_a_shell_gives_the_same_answers(trixie: Machine, without_shell: Bind) -> None:
    command = ["python3", "-m", "gpubind", "check", "--nv", "--try", "--json", "--backend", "bwrap"]
    command += ["--image", f"{without_shell.target}/bookworm"]
    done = trixie.run(command, user=True, driver=True, binds=[*trixie.modules, without_shell], env=PYTHON_ENV)
    assert need_right(json.loads(done.stdout)) == need_right(tried(trixie, BWRAP))


def test_a_program_and_what_it_lacks_are_predicted(trixie: Machine) -> None:
    for name, answers in (
        ("/bin/bash", [("program", True, True), ("loads", True, True)]),
        ("bash", [("program", True, True), ("loads", True, True)]),
        ("/etc/passwd", [("program", False, False)]),
        ("none", [("program", False, False)]),
    ):
        document = tried(trixie, BWRAP, "--program", name)
        need_right(document)
        seen = [one for one in document["tried"]["answers"] if one["subject"].endswith(name.rpartition("/")[2])]
        assert [(one["kind"], one["predicted"], one["seen"]) for one in seen] == answers


def test_cuda_fails_as_predicted_where_the_driver_is_not_loaded(trixie: Machine) -> None:
    """The rig has no GPU: where CUDA is to work, its answer is not compared."""
    for driver, answer in ((True, (True, None)), (False, (False, False))):
        document = tried(trixie, BWRAP, driver=driver)
        need_right(document)
        (cuda,) = [one for one in document["tried"]["answers"] if one["subject"] == "cuInit"]
        assert (cuda["predicted"], cuda["seen"]) == answer
        assert cuda["said"] == "100 CUDA_ERROR_NO_DEVICE\nopening /dev/nvidiactl: No such device or address"


def test_no_answer_of_a_trial_is_kept(trixie: Machine) -> None:
    plain = shlex.join(["python3", "-m", "gpubind", "check", "-vv", "--nv", "--backend", "bwrap"])
    line = f"{plain} --image {INSIDE_CONTAINERS}/bookworm"
    script = f"{line} > /dev/null; {line} > /dev/null; {line} --try > /dev/null; {line} --try > /dev/null"
    binds = [*trixie.modules, CONTAINERS]
    done = trixie.run(["sh", "-ec", script], user=True, driver=True, binds=binds, env=PYTHON_ENV)
    lines = [one for one in done.stderr.splitlines() if one.startswith("memo: ")]
    assert "memo: served" in lines[:2]
    assert [one for one in lines if "a container was started" in one] == ["memo: not kept: a container was started"] * 2


def test_the_page_shows_what_is_printed(trixie: Machine) -> None:
    line = "check --nv --image bullseye --backend bwrap --try"
    script = f"cd {INSIDE_CONTAINERS}; exec python3 -m gpubind {line}"
    binds = [*trixie.modules, CONTAINERS]
    done = trixie.run(["sh", "-c", script], user=True, driver=True, binds=binds, env=PYTHON_ENV)
    assert_golden(DOCS / "check.md", f"```text\n$ gpubind {line}\n{done.stdout}```\n", part="tried")
