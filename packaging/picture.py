"""picture.py OUT   draw what `gpubind check` prints on a terminal, as an SVG file."""

from __future__ import annotations

import io
import os
import subprocess
import sys

from rich.console import Console
from rich.text import Text

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORDS = ("check", "--nv", "--caps", "compute,utility", "--host", "debian13-nvidia550")
IMAGE = ("--image", "docs/examples/cuda13.sif", "--program", "/opt/app/solve")
WIDTH = 100


def main(out: str) -> None:
    """Write the picture."""
    console = Console(record=True, file=io.StringIO(), width=WIDTH, force_terminal=True)
    console.print(Text(f"$ gpubind {' '.join((*WORDS, *IMAGE))}", style="bold"))
    console.print(Text.from_ansi(checked()))
    console.save_svg(out, title="gpubind check", unique_id="check")


def checked() -> str:
    """What the command prints, in colour."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": CHECKOUT, "FORCE_COLOR": "1"}
    command = [sys.executable, "-m", "gpubind", *WORDS, *IMAGE]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=CHECKOUT, env=environ).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
