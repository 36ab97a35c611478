"""Every transcript in the docs is real output."""

from __future__ import annotations

import html
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpubind.cli.commands import MODULES, command_of
from gpubind.explanation.codes import codes
from gpubind.model.findings import page_of
from tests.support.example import example
from tests.support.golden import assert_golden, assert_listed

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "packaging"))

import picture  # noqa: E402 - packaging is no package

PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
TRANSCRIPT = re.compile(r"^```console\n\$ gpubind (.*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TRANSCRIPTS = [
    pytest.param(page, command, output, id=f"{page.name}:{command}")
    for page in PAGES
    for command, output in TRANSCRIPT.findall(page.read_text())
]


@pytest.mark.parametrize(("page", "command", "output"), TRANSCRIPTS)
def test_a_transcript_is_what_the_command_prints(page: Path, command: str, output: str) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GPUBIND_")}
    environ["GPUBIND_MEMO"] = "off"
    done = subprocess.run(
        [sys.executable, "-m", "gpubind", *shlex.split(command)], capture_output=True, text=True, cwd=ROOT, env=environ
    )
    printed = (done.stdout + done.stderr).rstrip()
    if printed != output.rstrip():
        shown = f"$ gpubind {command}\n"
        assert_golden(page, page.read_text().replace(f"{shown}{output}", f"{shown}{printed}\n"))


def test_the_example_image_is_what_its_builder_makes() -> None:
    is_made = (ROOT / "docs/examples/cuda13.sif").read_bytes() == example()
    assert is_made, "run python -m tests.support.example docs/examples/cuda13.sif"


def test_the_readme_has_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_between_pages_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page}: {target} does not exist"


def test_the_picture_shows_what_check_prints() -> None:
    texts = re.findall(r"<text [^>]*>(.*?)</text>", (ROOT / "docs/check.svg").read_text())
    shown = "".join(html.unescape(text).replace("\xa0", " ") for text in texts)
    for word in re.sub(r"\x1b\[[0-9;]*m", "", picture.checked()).split():
        assert word in shown, word


def test_a_sites_list_begins_as_the_shipped_one() -> None:
    line = next(line for line in (ROOT / "docs/howto.md").read_text().splitlines() if "read_data" in line)
    done = subprocess.run(["sh", "-c", line.partition(" > ")[0]], capture_output=True, check=True, env=with_python())
    assert done.stdout == (ROOT / "etc/nvliblist.conf").read_bytes()


def with_python() -> dict[str, str]:
    """An environment in which python3 is the interpreter that runs the tests."""
    return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def test_every_page_is_linked_from_the_first_page_of_the_docs() -> None:
    assert "](docs/README.md" in (ROOT / "README.md").read_text()
    linked = re.findall(r"\]\(([^)#/]+\.md)", (ROOT / "docs/README.md").read_text())
    pages = sorted({page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"})
    assert_listed(linked, pages, add="docs/README.md: link the page {}")


def test_the_python_example_of_the_readme_runs() -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    done = subprocess.run([sys.executable, "-c", code.group(1)], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("error cuda-too-new ")


def test_every_code_has_an_address_of_its_own() -> None:
    """The heading of a section is its anchor, as on every site that shows Markdown."""
    addresses = [page_of(code) for code, _ in codes()]
    assert len(set(addresses)) == len(addresses)
    for address in addresses:
        page, _, code = address.partition("#")
        text = (ROOT / page).read_text()
        assert len(re.findall(rf'^## {code}$|<a id="{code}"></a>', text, re.MULTILINE)) == 1, address


def test_the_address_of_the_pages_is_the_one_that_the_project_gives() -> None:
    project = (ROOT / "pyproject.toml").read_text().partition("[project.urls]")[2].partition("\n[")[0]
    given = re.search(r'^Documentation = "(.*)"$', project, re.MULTILINE)
    assert page_of("closed") == (given[1] if given else "docs/") + "errors.md#closed"


def test_each_option_is_in_a_page_of_the_docs() -> None:
    options = {option.name: option for command in MODULES for option in command_of(command).options}
    text = "\n".join(page.read_text() for page in PAGES)
    named = [
        name
        for name, option in options.items()
        if any(re.search(rf"{word}(?![\w-])", text) for word in option.spellings)
    ]
    assert_listed(named, options, add="docs: name the option {} in the page of what it changes")
