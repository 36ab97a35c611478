"""The pages of the report in a real browser: what they show, what they do, and what they never do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from gpubind.documents.fleet import AnswerGroups, CheckedNode, NodeAnswer, NodeDriver
from gpubind.documents.report.check import render_check_html
from gpubind.documents.report.fleet import render_fleet_html
from gpubind.fleet.nodes import fold_nodes
from gpubind.model import Finding
from tests.documents.report.pages import HOSTILE, hostile_report
from tests.live.browser import Browser, browser
from tests.support.commands import gpubind

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
IMAGE = ("--image", str(ROOT / "docs/examples/cuda13.sif"), "--program", "/opt/app/solve")
HOSTS = ("--host", "debian13-nvidia550", "--host", "mi300x-rocm62")
COMMANDS = {
    "check": ("check", "--nv", *HOSTS[:2], *IMAGE),
    "host": ("check", "--nv", *HOSTS[:2]),
    "amd": ("check", "--rocm", *HOSTS[2:]),
    "matrix": ("check", *HOSTS, *IMAGE),
    "diff": ("diff", "--nv", HOSTS[1], HOSTS[3], HOSTS[1]),
    "images": ("diff", *IMAGE[:2], HOSTS[3], HOSTS[1]),
}
WIDTHS = (60, 250, 400, 1000, 1600, 2000)
PICTURES = (400, 1000, 1600)
SCHEMES = ("light", "dark")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with each page as NAME.html."""
    made = tmp_path_factory.mktemp("pages")
    for name, command in COMMANDS.items():
        done = gpubind(*command, "--format", "html", "-o", str(made / f"{name}.html"))
        assert (done.returncode in (0, 1), done.stderr) == (True, "")
    (made / "many.html").write_text(many())
    for number, name in enumerate(HOSTILE):
        (made / f"hostile{number}.html").write_text(render_check_html(hostile_report(name)))
    return made


PAGES = (*COMMANDS, "many")
NODES = tuple(f"gpu{number:05}" for number in range(10_000))


def many() -> str:
    """The page of a fleet: most nodes are well, 20 have lost a node, 280 did not answer."""
    folding, driver = AnswerGroups(), (NodeDriver("nvidia", "550.163.01"),)
    lost = Finding("uvm-missing", "error", "nvidia", "/dev/nvidia-uvm", "it is missing", hint="load the module")
    for number, node in enumerate(NODES):
        if 20 <= number < 300:
            folding.add(NodeAnswer(node, "timed-out", None, "no answer within 60 s"))
        else:
            state = CheckedNode("0" * 64, driver, (lost,) if number < 20 else ())
            folding.add(NodeAnswer(node, "answered", 0, "", {}, state))
    return render_fleet_html(folding.groups(), "check", fold_nodes)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser of this module."""
    with browser() as opened:
        yield opened


@pytest.fixture
def check(chromium: Browser, pages: Path) -> Browser:
    """The page of a check, open."""
    return chromium.open(pages / "check.html")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_requests_nothing_else_and_nothing_complains(chromium: Browser, pages: Path, name: str) -> None:
    page = pages / f"{name}.html"
    chromium.requests()
    chromium.open(page)
    assert chromium.requests() == [page.as_uri()]
    assert chromium.complaints() == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_no_page_is_wider_than_the_window(
    chromium: Browser, pages: Path, name: str, scheme: str, tmp_path: Path
) -> None:
    chromium.open(pages / f"{name}.html", scheme=scheme)
    chromium.run("for (const one of document.querySelectorAll('details')) one.open = true")
    paper = chromium.run("return getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
    assert (sum(paper) < 3 * 64) == (scheme == "dark")
    for width in WIDTHS:
        chromium.resize(width)
        assert chromium.run("return document.documentElement.scrollWidth") == width
        if width in PICTURES:
            assert len(chromium.picture(tmp_path / f"{name}-{width}-{scheme}.png")) > 4000


OUTSIDE = """
return [...document.querySelectorAll("td, .cell, .image")]
  .filter((one) => one.getClientRects().length && one.getBoundingClientRect().right > innerWidth).length
"""


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["diff", "images", "matrix", "many"])
def test_in_400_pixels_every_verdict_is_seen_without_scrolling(
    chromium: Browser, pages: Path, name: str, scheme: str
) -> None:
    chromium.open(pages / f"{name}.html", 400, scheme)
    assert chromium.run(OUTSIDE) == 0
    assert chromium.run("return document.querySelectorAll('td, .image').length")


CONTRAST = """
const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const numbers = (text) => text.match(/[0-9.]+/g).map(Number);
function paper(element) {
  for (let here = element; here; here = here.parentElement) {
    const found = numbers(getComputedStyle(here).backgroundColor);
    if (found.length === 3 || found[3] > 0) return found;
  }
}
const poor = [];
for (const element of document.querySelectorAll("body *")) {
  const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
  if (!text || element.closest("script, style, title") || !element.getClientRects().length) continue;
  const style = getComputedStyle(element), drawn = element.namespaceURI.endsWith("svg");
  const [a, b] = [light(numbers(drawn ? style.fill : style.color)), light(paper(element))].sort().reverse();
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) poor.push(`${element.tagName} ${text.slice(0, 20)} ${ratio.toFixed(2)}`);
}
return poor;
"""
"""WCAG 2.1, 1.4.3: what has less than 4.5 to 1."""


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_every_text_has_enough_contrast(chromium: Browser, pages: Path, name: str, scheme: str) -> None:
    chromium.open(pages / f"{name}.html", 1000, scheme)
    chromium.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert chromium.run(CONTRAST) == []


def part(page: Browser, label: str) -> str:
    """The id of the part of the picture that begins with *label*."""
    found = page.run(
        "return JSON.parse(document.getElementById('data').textContent).parts"
        ".filter((one) => one.label.startsWith(arguments[0])).map((one) => one.id)[0]",
        label,
    )
    return str(found)


def traced(page: Browser) -> set[str]:
    """The ids of what is not dimmed."""
    return set(page.run("return [...document.querySelectorAll('.part.on')].map((one) => one.dataset.part)"))


def click(page: Browser, name: str) -> None:
    found = page.driver.find_element(By.CSS_SELECTOR, f'[data-part="{name}"]')
    page.run("arguments[0].scrollIntoView({block: 'center'})", found)
    found.click()


def panel(page: Browser) -> str:
    found = page.driver.find_element(By.ID, "trace")
    return found.text if found.is_displayed() else ""


def test_a_click_traces_a_file_to_what_it_needs_and_to_what_needs_it(check: Browser) -> None:
    program, cuda, lost, libc = (part(check, label) for label in ("/opt/app", "libcuda.so", "libcudnn", "libc.so.6"))
    click(check, program)
    assert {program, cuda, lost, libc} <= traced(check)
    assert part(check, "libnvidia-ml") not in traced(check)
    assert "libcudnn.so.9 missing" in panel(check)
    click(check, lost)
    assert traced(check) == {lost, program}
    assert "is needed by\n/opt/app/solve" in panel(check)
    click(check, lost)
    assert (traced(check), panel(check)) == (set(), "")


def test_the_symbol_version_that_is_missing_is_reached_from_the_file_that_needs_it(check: Browser) -> None:
    click(check, part(check, "libnvidia-egl-wayland"))
    assert part(check, "GLIBC_2.38") in traced(check)
    assert "GLIBC_2.38, which is not defined" in panel(check)


def test_a_pointer_traces_while_it_is_there(check: Browser) -> None:
    lost = part(check, "libcudnn")
    fire = "document.querySelector(`[data-part='${arguments[0]}']`).dispatchEvent(new MouseEvent(arguments[1]))"
    check.run(fire, lost, "mouseenter")
    assert traced(check) == {lost, part(check, "/opt/app")}
    check.run(fire, lost, "mouseleave")
    assert traced(check) == set()


def test_a_search_marks_what_has_the_text_and_enter_goes_there(check: Browser) -> None:
    box = check.driver.find_element(By.ID, "search")
    box.send_keys("libcuda.so.550")
    hits = "return [...document.querySelectorAll('.part.hit')].map((one) => one.dataset.part)"
    assert check.run(hits) == [part(check, "libcuda.so")]
    assert check.driver.find_element(By.ID, "hits").text.startswith("1 of ")
    box.send_keys(Keys.ENTER)
    assert "on the host" in panel(check)
    box.send_keys(Keys.ESCAPE)
    assert check.run(hits) == []


def test_everything_can_be_reached_with_keys(check: Browser) -> None:
    active = "return document.activeElement.dataset.part || document.activeElement.id"
    check.driver.find_element(By.ID, "search").send_keys(Keys.TAB)
    first = check.run(active)
    assert first == part(check, "/opt/app")
    for key, wanted in ((Keys.ARROW_DOWN, None), (Keys.END, None), (Keys.HOME, first)):
        before = check.run(active)
        check.driver.switch_to.active_element.send_keys(key)
        now = check.run(active)
        assert now == wanted if wanted else now != before
    check.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert "libcudnn.so.9 missing" in panel(check)
    check.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert panel(check) == ""


def test_a_finding_leads_to_its_part_of_the_plan(check: Browser) -> None:
    found = check.driver.find_elements(By.CSS_SELECTOR, "button.trace")
    shown = [button for button in found if button.is_displayed()]
    assert [button.get_attribute("data-subject") for button in shown] == ["libcudnn.so.9"]
    shown[0].click()
    assert part(check, "libcudnn") in traced(check)


def test_a_cell_of_a_matrix_shows_its_findings_only(chromium: Browser, pages: Path) -> None:
    page = chromium.open(pages / "matrix.html")
    shown = "return [...document.querySelectorAll('[data-in]')].filter((one) => !one.hidden).length"
    every = page.run(shown)
    cell = page.driver.find_element(By.CSS_SELECTOR, '[data-cell="c0-1"]')
    cell.click()
    assert 0 < page.run(shown) < every
    assert cell.get_attribute("aria-pressed") == "true"
    assert page.driver.find_element(By.ID, "chosen").is_displayed()
    cell.click()
    assert page.run(shown) == every


@pytest.mark.parametrize("name", PAGES)
def test_a_page_prints_whole_and_closes_again_what_was_closed(chromium: Browser, pages: Path, name: str) -> None:
    page = chromium.open(pages / f"{name}.html", scheme="dark")
    closed = "return document.querySelectorAll('details:not([open])').length"
    before = page.run(closed)
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run(closed) == 0
    page.run("dispatchEvent(new Event('afterprint'))")
    assert page.run(closed) == before
    printed = page.printed()
    assert printed.startswith(b"%PDF-")
    assert 1 <= printed.count(b"/Type /Page\n") <= 16  # 13 at most when this was written


def test_a_node_among_ten_thousand_is_found_with_its_group(chromium: Browser, pages: Path) -> None:
    page = chromium.open(pages / "many.html")
    page.driver.find_element(By.ID, "search").send_keys("gpu00271")
    assert page.run("return [...document.querySelectorAll('.nodes .hit')].map((one) => one.title)") == ["gpu00271"]
    assert page.driver.find_element(By.ID, "hits").text == "1 of 10000; gpu00271: timed out"


def test_a_page_of_ten_thousand_nodes_opens_within_three_seconds(chromium: Browser, pages: Path) -> None:
    took = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
    assert min(chromium.open(pages / "many.html").run(took) for _ in range(3)) < 3000


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_names_are_inert_and_shown(chromium: Browser, pages: Path, number: int) -> None:
    chromium.requests()
    page = chromium.open(pages / f"hostile{number}.html")
    click(page, part(page, page.run("return JSON.parse(document.getElementById('data').textContent).parts[1].label")))
    assert page.run("return window.hacked") is None
    assert page.run("return document.querySelectorAll('img, iframe, [onload], [onerror], [onfocus]').length") == 0
    assert page.run("return document.querySelectorAll('script').length") == 2
    assert page.complaints() == []
    assert page.requests() == [(pages / f"hostile{number}.html").as_uri()]
