"""docs/paste.md: each command line on it was run, for a recorded host, and printed what the page shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpubind.runtimes.cmdline.programs import PASTE_ONLY
from tests.support.golden import assert_golden, assert_listed

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "paste.md"
HOST = "--host debian13-nvidia550 --caps utility"
SHOWN = 2
"""How many pieces of an output the page shows."""
RECIPE = re.compile(r"(?<=^```sh\n)(.*?)(\n```\n\n```text\n)(.*?)(?=\n```$)", re.MULTILINE | re.DOTALL)


def words_py(text: str) -> str:
    """The filter that recipes use, as the page has it."""
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return str(code)


def output(command: str, directory: Path) -> str:
    """What *command* prints, cut as on the page: lines, or what commas or spaces part."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GPUBIND_")}
    path = f"{directory}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    modules = os.pathsep.join(filter(None, (str(ROOT), inherited.get("PYTHONPATH"))))
    environ = {**inherited, "PATH": path, "PYTHONPATH": modules}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=directory, env=environ, check=True)
    text = done.stdout.rstrip("\n")
    separator = "\n" if "\n" in text else "," if text.startswith("--container-mounts") else " --mount="
    pieces = text.split(separator)
    return separator.join(pieces[:SHOWN]) + (f"{separator[0]}..." if len(pieces) > SHOWN else "")


def test_each_command_line_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = PAGE.read_text()
    (tmp_path / "words.py").write_text(words_py(page))
    program = tmp_path / "gpubind"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpubind "$@" {HOST}\n')
    program.chmod(0o755)
    made = RECIPE.sub(lambda match: match[1] + match[2] + output(match[1], tmp_path), page)
    assert_golden(PAGE, made)


def test_the_page_has_a_recipe_for_each_program_that_gpubind_does_not_start() -> None:
    sections = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)+)", PAGE.read_text(), re.MULTILINE))
    add = "docs/paste.md: add the section `{}`; PASTE_ONLY of gpubind/runtimes/cmdline/programs.py has it"
    remove = "gpubind/runtimes/cmdline/programs.py: add `{}` to PASTE_ONLY, or remove its section in docs/paste.md"
    assert_listed(map(str.lower, sections), PASTE_ONLY, add=add, remove=remove)
    for text in sections.values():
        assert RECIPE.search(text)


@pytest.mark.parametrize("name", ["a b", "a,b", "a:b", "a'b", "$a", "a\nb"])
def test_the_filter_ends_at_a_name_that_would_need_quotes(name: str) -> None:
    mount = {"hostPath": f"/{name}", "containerPath": "/x", "options": ["ro"]}
    spec = {"containerEdits": {"mounts": [mount]}, "devices": []}
    command = [sys.executable, "-c", words_py(PAGE.read_text()), "{source}:{target}", ","]
    done = subprocess.run(command, input=json.dumps(spec), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be said" in done.stderr
