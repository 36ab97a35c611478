"""A long read is told on a terminal, and nowhere else; the terminal is clean afterwards."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Callable, Optional

import pytest

from gpubind.cli.progress import format_progress
from gpubind.machine.budget import report_progress, report_progress_to
from gpubind.model.data import BUNDLED_HOSTS
from tests.support.images import glibc
from tests.support.trees import make_tree

AT_ONCE = """
import sys, gpubind.cli.progress as progress
progress.PATIENCE_S = progress.EVERY_S = 0.0
from gpubind.cli.main import main
raise SystemExit(main(sys.argv[1:]))
"""
"""gpubind, for which every read is long."""
ERASE = b"\r\x1b[K"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An OCI archive, made by hand: a layer in a tar, both of them packed."""
    place = tmp_path_factory.mktemp("archive")
    layer = place / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(make_tree(place / "root", glibc()).root, arcname=".")
    manifest, config = place / "manifest.json", place / "config.json"
    manifest.write_text('[{"Config": "config.json", "RepoTags": [], "Layers": ["layer.tar"]}]')
    config.write_text('{"architecture": "amd64", "os": "linux", "config": {}}')
    plain = place / "app.tar"
    with tarfile.open(plain, "w") as tar:
        for file in (manifest, config, layer):
            tar.add(file, arcname=file.name)
    packed = place / "app.tar.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    return str(packed)


def shown(*words: str, terminal: bool = True, **environ: str) -> tuple[int, bytes]:
    """The exit code of `gpubind WORDS`, and what is on standard error, which is a terminal or a pipe."""
    outer, inner = os.openpty() if terminal else os.pipe()
    said = b""

    def listen() -> None:
        nonlocal said
        try:
            while more := os.read(outer, 65536):
                said += more
        except OSError:  # as a terminal ends
            pass

    listener = threading.Thread(target=listen)
    listener.start()
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE, *words],
        stdout=subprocess.DEVNULL,
        stderr=inner,
        env={**os.environ, "TERM": "xterm", **environ},
        check=False,
    )
    os.close(inner)
    listener.join()
    os.close(outer)
    return done.returncode, said


def test_a_long_read_is_told_on_a_terminal_and_the_line_is_taken_away(archive: str) -> None:
    _, said = shown("check", "--image", archive, "--host", BUNDLED_HOSTS[0])
    size = f" of {os.path.getsize(archive) / 2**20:.1f} MiB"
    assert said.startswith(ERASE + b"reading ")
    assert size.encode() in said
    assert said.endswith(ERASE)
    assert b"\n" not in said


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "--json"),
        ("plan", "--format", "podman"),
        ("plan", "--format", "cdi"),
        ("explain", "libcuda.so.1"),
        ("exec", "--dry-run", "--backend", "apptainer"),
    ],
)
def test_each_command_that_reads_an_image_tells_it(archive: str, words: tuple[str, ...]) -> None:
    image = (archive, "true") if words[0] == "exec" else ("--image", archive)
    _, said = shown(*words, "--host", BUNDLED_HOSTS[0], *image)
    assert said.startswith(ERASE + b"reading ")
    last = said.rpartition(ERASE)[2]
    assert b"reading" not in last


@pytest.mark.parametrize(
    ("words", "terminal", "term"),
    [(("-q",), True, "xterm"), ((), False, "xterm"), ((), True, "dumb")],
    ids=["quiet", "log", "dumb"],
)
def test_nobody_else_is_told(archive: str, words: tuple[str, ...], terminal: bool, term: str) -> None:
    _, said = shown("check", "--image", archive, "--host", BUNDLED_HOSTS[0], *words, terminal=terminal, TERM=term)
    assert said == b""


def test_an_error_stands_on_a_clean_line(archive: str, tmp_path: Path) -> None:
    torn = tmp_path / "torn.tar.gz"
    torn.write_bytes(Path(archive).read_bytes()[:-100])
    status, said = shown("check", "--image", str(torn), "--host", BUNDLED_HOSTS[0])
    assert status == 5
    assert ERASE + b"error: bad-archive: " in said
    assert b"reading" not in said.rpartition(ERASE)[2]


def test_an_interrupt_leaves_a_clean_line() -> None:
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job of a shell ignores it
        "from gpubind.machine.budget import report_progress\n"
        "from gpubind.cli import output, progress\n"
        "progress.PATIENCE_S = 0.0\n"
        "with output.progress(quiet=False):\n"
        "    report_progress('app.tar', 1, 2)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
    )
    outer, inner = os.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stderr=inner, env={**os.environ, "TERM": "xterm"}) as process:
        assert process.wait() in (-signal.SIGINT, 1)
    said = os.read(outer, 65536)
    os.close(inner)
    os.close(outer)
    assert said.startswith(ERASE + b"reading app.tar: 0.0 of 0.0 MiB" + ERASE)


@pytest.mark.parametrize("width", range(0, 60, 7))
@pytest.mark.parametrize("whole", [None, 20 << 30])
def test_a_line_has_room_for_what_is_read_and_how_much_first(width: int, whole: Optional[int]) -> None:
    line = format_progress("/scratch/someone/images/app.tar", 6 << 30, whole, width)
    assert len(line) <= width
    if width >= 40:
        assert line.endswith(": 6.0 of 20.0 GiB" if whole else ": 6.0 GiB")
        assert line.startswith("reading ..." if width < (56 if whole else 49) else "reading ")


def test_a_name_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in format_progress("a\x1b[2J.tar", 1, 2, 80)


def test_who_does_not_listen_is_told_nothing() -> None:
    told: list[tuple[str, int, Optional[int]]] = []

    def listen(*what: object) -> None:
        told.append(what)  # type: ignore[arg-type]

    heard: Callable[[str, int, Optional[int]], None] = listen
    with report_progress_to(heard):
        report_progress("a", 1, 2)
    report_progress("b", 1, 2)
    assert told == [("a", 1, 2)]
