"""Every transcript in the docs is real output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from build.example import example

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TRANSCRIPT = re.compile(r"^```console\n\$ gpubind (.*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TRANSCRIPTS = [
    pytest.param(command, output, id=f"{page.name}:{command}")
    for page in PAGES
    for command, output in TRANSCRIPT.findall(page.read_text())
]


@pytest.mark.parametrize(("command", "output"), TRANSCRIPTS)
def test_a_transcript_is_what_the_command_prints(command: str, output: str) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GPUBIND_")}
    environ["GPUBIND_MEMO"] = "off"
    done = subprocess.run(
        [sys.executable, "-m", "gpubind", *shlex.split(command)], capture_output=True, text=True, cwd=ROOT, env=environ
    )
    assert (done.stdout + done.stderr).rstrip() == output.rstrip()


def test_the_example_image_is_what_its_builder_makes() -> None:
    assert (ROOT / "docs/examples/cuda13.sif").read_bytes() == example()


def test_the_readme_has_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_between_pages_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readme_leads_to_every_page() -> None:
    linked = re.findall(r"\]\((docs/[^)#]+)", (ROOT / "README.md").read_text().partition("## More")[2])
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= set(linked)


def test_the_python_example_of_the_readme_runs() -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    done = subprocess.run([sys.executable, "-c", code.group(1)], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "/.gpubind/libs/libcuda.so.1 ('ro', 'nosuid', 'nodev')" in done.stdout
