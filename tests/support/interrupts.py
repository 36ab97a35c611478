"""Code that is interrupted (SIGINT) at 300 random moments, and the processes that it then leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import indent

# No thread sends them: Python before 3.9.8 may wait forever for one if it is interrupted there (bpo-45274). Python may
# also raise KeyboardInterrupt some instructions late, after the step that it belongs to.
_SCRIPT = """
import os, random, signal
{setup}
rng, left, step = random.Random(7), 0, 0
signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))

def run():
    global left, step
    while step < 600:
        try:
            if step % 2 == 0:
                step += 1
                signal.setitimer(signal.ITIMER_REAL, rng.random() * 0.004 + 1e-5)
{work}
            else:
                signal.setitimer(signal.ITIMER_REAL, 0)
                try:
                    os.waitpid(-1, os.WNOHANG)
                    left += 1
                except ChildProcessError:
                    pass
                step += 1
        except KeyboardInterrupt:
            pass

while step < 600:
    try:
        run()
    except KeyboardInterrupt:  # between two steps
        pass
print(left)
"""


def rounds_with_a_process_left(setup: str, work: str) -> int:
    """Return after how many of 300 interrupted runs of *work* a child was left; *setup* is run once before."""
    script = _SCRIPT.format(setup=setup, work=indent(work, 16 * " "))
    environ = {**os.environ, "GPUBIND_MEMO": "off"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, start_new_session=True, timeout=90)
    assert (done.returncode, done.stderr) == (0, "")
    return int(done.stdout)
