"""The image `-`: an archive on standard input, as `docker save IMAGE | gpubind check --image -` sends it."""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import pytest

from gpubind.errors import BoundError, FormatError, UnseenError
from gpubind.image.open import OpenImages, open_image
from gpubind.image.reference import parse_reference
from gpubind.machine.budget import BOUNDS, Bound, one_command
from tests.support.commands import BARE
from tests.support.images import glibc
from tests.support.layers import archive, docker_archive, oci_layout, packed, tar, zstd

INPUT = parse_reference("-")
HOST = "driver:535,gpu:a100x4"


def saved(cuda: str, kind: str = "docker-archive", pack: Any = bytes) -> bytes:
    layers = [tar({**glibc("2.36"), "/usr/local/cuda/version.json": json.dumps({"cuda": {"version": cuda}})})]
    return archive(docker_archive(layers, []) if kind == "docker-archive" else oci_layout(layers, []), pack)


def run(
    *arguments: str, data: bytes = b"", shell: str = "", memo: Optional[Path] = None
) -> subprocess.CompletedProcess[str]:
    """Run gpubind with *data* on standard input, in a shell that runs *shell* first."""
    environ = BARE if memo is None else {**BARE, "GPUBIND_MEMO": "on", "XDG_CACHE_HOME": str(memo), "HOME": str(memo)}
    line = f"{shell} exec {shlex.join([sys.executable, '-m', 'gpubind', *arguments])}"
    done = subprocess.run(["sh", "-c", line], input=data, capture_output=True, env=environ, timeout=60)
    return subprocess.CompletedProcess(arguments, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("pack", [bytes, packed, zstd], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("kind", ["docker-archive", "oci-archive"])
def test_an_archive_on_standard_input_has_the_facts_of_the_file(tmp_path: Path, kind: str, pack: object) -> None:
    data = saved("12.9.0", kind, pack)
    (tmp_path / "app.tar").write_bytes(data)
    expected = open_image(str(tmp_path / "app.tar")).facts
    with OpenImages(io.BytesIO(data)) as images:
        for machine in ("x86_64", "aarch64"):  # opened twice, read once
            assert images.image(INPUT, machine).facts._replace(label=expected.label) == expected
    assert (expected.cuda, expected.kind) == ("12.9.0", kind)


def test_a_check_finds_the_same_on_standard_input_as_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "app.tar"
    file.write_bytes(saved("13.0.1"))
    check = ("check", "--nv", "--host", HOST, "--host", "debian13-nvidia550", "--json", "--image")
    of_input, of_file = run(*check, "-", data=file.read_bytes()), run(*check, str(file))
    assert of_input.stdout == of_file.stdout.replace(json.dumps(str(file)), '"standard input"')
    assert (of_input.returncode, of_file.returncode) == (1, 1)
    needs = ("needs", "--format", "markdown")
    assert run(*needs, "-", data=file.read_bytes()).stdout == run(*needs, str(file)).stdout


def test_an_answer_about_standard_input_is_never_one_of_the_memo(tmp_path: Path) -> None:
    for cuda in ("12.9.0", "13.0.1", "12.9.0"):
        assert cuda in run("needs", "-", data=saved(cuda), memo=tmp_path).stdout
    assert "closed" in run("needs", "-", shell="exec <&-;", memo=tmp_path).stderr
    assert "12.9.0" in run("needs", "-", data=saved("12.9.0"), memo=tmp_path).stdout


class Endless(io.BytesIO):
    """A stream that begins with *head* and never ends."""

    def __init__(self, head: bytes) -> None:
        super().__init__()
        self.read_bytes = 0
        self._head = head

    def read(self, size: Optional[int] = -1) -> bytes:
        assert size is not None
        data = (self._head if not self.read_bytes else b"").ljust(size, b"\0")
        self.read_bytes += size
        return data


def test_a_stream_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOUNDS, "copied", Bound(4 << 20, "bytes are copied from standard input"))
    stream = Endless(saved("12.9.0")[:512])
    with one_command(), pytest.raises(BoundError, match="over-bounds") as caught:
        OpenImages(stream)
    assert "copied" in caught.value.where
    assert stream.read_bytes < 6 << 20


def test_of_a_stream_that_begins_like_no_image_only_the_beginning_is_read() -> None:
    stream = Endless(b"hello")
    with OpenImages(stream) as images, pytest.raises(FormatError, match="this is not an image"):
        images.image(INPUT, None)
    assert stream.read_bytes < 1 << 20


def test_a_stream_that_breaks_off_is_never_an_image_without_the_rest() -> None:
    class Broken(io.BytesIO):
        def read(self, size: Optional[int] = -1) -> bytes:
            if self.tell():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().read(size)

    with pytest.raises(UnseenError, match="cannot be read"):
        OpenImages(Broken(saved("12.9.0")))
    whole = saved("12.9.0")
    for size in range(512, len(whole.rstrip(b"\0")) - 512, 512):
        assert run_short(whole[:size])


def run_short(data: bytes) -> bool:
    with OpenImages(io.BytesIO(data)) as images:
        try:
            images.image(INPUT, None)
        except FormatError:
            return True
    return False


@pytest.mark.parametrize(
    ("arguments", "shell", "status", "words"),
    [
        (("check", "--nv", "--host", HOST, "--image", "-"), "", 4, "the program before the pipe has failed"),
        (("needs", "-"), "exec <&-;", 2, "which is closed"),
        (("check", "--nv", "--image", "-", "--image", "-"), "", 2, "only one image can come from standard input"),
        (("check", "--nv", "--image", "-", "--try"), "", 2, "no runtime starts an archive on standard input"),
        (("plan", "--nv", "--image", "-", "--host", HOST), "", 4, "`gpubind check --image -`"),
        (("exec", "--backend", "podman", "-", "true"), "", 125, "-"),
    ],
)
def test_standard_input_that_is_no_image_is_an_error(
    arguments: tuple[str, ...], shell: str, status: int, words: str
) -> None:
    done = run(*arguments, shell=shell)
    assert (done.returncode, words in done.stderr, done.stdout) == (status, True, ""), done.stderr


def test_a_terminal_is_no_image() -> None:
    ours, theirs = os.openpty()
    line = [sys.executable, "-m", "gpubind", "needs", "-"]
    done = subprocess.run(line, stdin=theirs, capture_output=True, text=True, env=BARE, timeout=60)
    os.close(ours)
    os.close(theirs)
    assert (done.returncode, "which is a terminal" in done.stderr) == (2, True)


def test_a_copy_that_cannot_be_written_is_an_error() -> None:
    done = run("needs", "-", data=saved("12.9.0"), shell="ulimit -f 1;")
    assert (done.returncode, "File too large" in done.stderr, "TMPDIR" in done.stderr) == (4, True, True)


def test_a_file_of_that_name_is_named_by_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "-").write_bytes(saved("12.9.0"))
    monkeypatch.chdir(tmp_path)
    assert open_image("./-").facts.cuda == "12.9.0"
