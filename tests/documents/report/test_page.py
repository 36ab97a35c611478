"""A page of the report: it is one file, it is the same each time, and what it shows is only ever text."""

from __future__ import annotations

import calendar
import os
import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubind import __version__
from gpubind.documents import CHECK_DOCUMENTS
from gpubind.documents.report.page import render, script_data, shown
from gpubind.errors import HostReadError
from gpubind.model.data import BUNDLED_HOSTS
from tests.documents.report.pages import HOSTILE, REPORT, hostile_report
from tests.support.commands import BARE, HOST, gpubind
from tests.support.html import Page

GIVEN = {"SOURCE_DATE_EPOCH": "1700000000"}
PAGE = CHECK_DOCUMENTS["html"].render(REPORT)
PLAIN = Page(CHECK_DOCUMENTS["html"].render(hostile_report("plain")))


def test_a_page_is_one_file_that_requests_nothing() -> None:
    page = Page(PAGE)
    assert [
        (element.tag, name) for element in page.elements for name in ("src", "href") if name in element.attributes
    ] == [("a", "href")]
    assert not re.search(r"url\(|@import|https?://", PAGE.replace("http-equiv", ""))


def test_only_the_style_and_the_script_of_the_page_have_its_leave() -> None:
    page = Page(PAGE)
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    allowed = dict(part.split(" ", 1) for part in (policy.attributes["content"] or "").split("; "))
    assert allowed["default-src"] == "'none'"
    assert all(re.fullmatch("'sha256-[A-Za-z0-9+/]{43}='", allowed[name]) for name in ("style-src", "script-src"))
    assert not [element for element in page.elements for name in element.attributes if name in ("style", "onclick")]


def test_a_page_is_the_same_whatever_the_hash_seed() -> None:
    words = [sys.executable, "-m", "gpubind", "check", "--nv", "--host", HOST, "--format", "html"]
    pages = {
        subprocess.run(words, check=True, capture_output=True, env={**BARE, **GIVEN, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }
    assert len(pages) == 1


COMMANDS = {
    "check": ("check", "--nv", "--host", HOST),
    "matrix": ("check", "--host", BUNDLED_HOSTS[0], "--host", BUNDLED_HOSTS[1]),
    "diff": ("diff", "--nv", HOST, HOST),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_page_names_the_time_this_machine_and_the_build_that_made_it(command: tuple[str, ...]) -> None:
    (made,) = Page(gpubind(*command, "--format=html", env=GIVEN).stdout).all("p", kind="made")
    assert made.text == f"made 2023-11-14 22:13 UTC on {os.uname().nodename} by gpubind {__version__}"


def test_without_a_given_time_a_page_has_that_of_the_clock() -> None:
    before = time.time() // 60 * 60
    (made,) = Page(gpubind(*COMMANDS["diff"], "--format=html").stdout).all("p", kind="made")
    shown = calendar.timegm(time.strptime(" ".join(made.text.split()[1:4]), "%Y-%m-%d %H:%M UTC"))
    assert before <= shown <= time.time()


@pytest.mark.parametrize("given", ["", "now", "-1", "1.5", "9" * 12])
def test_a_given_time_that_is_none_is_refused(given: str) -> None:
    done = gpubind(*COMMANDS["check"], "--format=html", env={"SOURCE_DATE_EPOCH": given})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: wrong-use: SOURCE_DATE_EPOCH is not a number of seconds: `{given}`\n")
    assert gpubind("check", "-q", "--host", HOST, env={"SOURCE_DATE_EPOCH": given}).returncode == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_wherever_it_stands(name: str) -> None:
    html = CHECK_DOCUMENTS["html"].render(hostile_report(name))
    page = Page(html)
    assert [(element.tag, sorted(element.attributes)) for element in page.elements] == [
        (element.tag, sorted(element.attributes)) for element in PLAIN.elements
    ]
    told = " ".join(shown(name).split())
    (article,) = page.all("article", kind="error")
    assert told in article.text
    assert any(shown(name) in part["title"] for part in page.data["parts"])
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", html)
    assert html.encode()


@given(st.text(st.integers(0, 0x10FFFF).map(chr) | st.sampled_from("<>&\"'/-!{}%\n"), min_size=1, max_size=30))
def test_no_name_changes_what_a_page_is_made_of(name: str) -> None:
    """A slash in it may put a file into another group, so the number of some elements may be another one."""
    page = Page(CHECK_DOCUMENTS["html"].render(hostile_report(name)))
    shapes = {(element.tag, *sorted(element.attributes)) for element in PLAIN.elements}
    assert {(element.tag, *sorted(element.attributes)) for element in page.elements} <= shapes
    for tag in ("script", "style", "svg", "article", "input"):
        number = sum(element.tag == tag for element in PLAIN.elements)
        assert sum(element.tag == tag for element in page.elements) == number


def test_no_text_ends_the_script_that_holds_it() -> None:
    data = script_data(["</script><!--<script>", "a&b", "\u2028", "\udcff"])
    assert not {*"<>&"} & {*data}
    assert data.isascii()
    (element,) = Page(f'<script type="application/json">{data}</script>').all("script")
    assert element.texts == [str(data)]


def test_a_template_that_names_an_unknown_value_is_a_mistake_in_gpubind() -> None:
    with pytest.raises(Exception, match="is undefined"):
        render("check.html")


def test_without_its_package_the_format_is_refused_before_anything_is_read() -> None:
    code = (
        "import sys; sys.modules['jinja2'] = None\n"
        "from gpubind.cli.main import main\n"
        "raise SystemExit(main(['check', '--host', '/does/not/exist', '--format', 'html']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=BARE)
    assert done.returncode == HostReadError.exit_code
    assert done.stderr.startswith("error: missing-package: ")
    assert "`pipx inject gpubind jinja2`" in done.stderr


def test_the_extra_is_loaded_only_for_a_page() -> None:
    code = (
        "import sys; from gpubind.cli.main import main\n"
        f"main(['check', '-q', '--host', '{HOST}']); raise SystemExit('jinja2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=BARE, stdout=subprocess.DEVNULL).returncode == 0
