"""An interrupt, at any moment: exit 130 and silence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from gpubind.cli import main, reader

WORDS = ("plan", "--json", "--nv", "--host", "debian13-nvidia550")
BEGUN = """
import os, sys, gpubind.__main__ as started
os.write(2, b".")
started.run()
"""
"""As the console script; a byte tells when gpubind hears: before that, Python itself does not end silently."""
DELAYS_MS = [*range(0, 60, 3), *range(60, 240, 15)]


def interrupted(delay_s: float, *, ignored: bool = False) -> tuple[int, bytes, bytes]:
    """Exit code and outputs of a plan that is interrupted *delay_s* after its first line."""

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    with subprocess.Popen(
        [sys.executable, "-c", BEGUN, *WORDS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=ignore if ignored else None,  # noqa: PLW1509
    ) as process:
        assert process.stderr is not None
        assert os.read(process.stderr.fileno(), 1) == b"."
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    return process.returncode, out, err


def test_an_interrupt_ends_a_plan_silently_at_any_moment() -> None:
    for delay in DELAYS_MS:
        status, out, err = interrupted(delay / 1000)
        assert err == b"", delay
        assert (status == 130) or (status == 0 and out), delay  # a fast machine was done by then


def test_who_ignores_interrupts_goes_on() -> None:
    status, out, err = interrupted(0.02, ignored=True)
    assert (status, err) == (0, b"")
    assert out


@pytest.mark.parametrize("how", ["cause", "context"])
def test_an_interrupt_that_python_has_wrapped_is_one(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    """Python 3.11 makes a RuntimeError of it where a class is being made, as `enum` does in every import."""

    def interrupt(words: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            if how == "cause":
                raise RuntimeError("Error calling __set_name__") from error
            raise OSError("while it was handled")  # noqa: B904

    monkeypatch.setattr(reader, "run_line", interrupt)
    assert main.main(list(WORDS)) == 130
    assert capfd.readouterr() == ("", "")
