"""Pages of many machines: what hosts have otherwise, and a square for each machine."""

from __future__ import annotations

from gpubind.api.diff import take_snapshot
from gpubind.documents.diff.comparison import Comparison, Difference, EqualHosts, compare
from gpubind.documents.diff.snapshot import ImageOutcome, image_fact, sorted_snapshot
from gpubind.documents.report.diff import render_diff_html
from gpubind.documents.report.groups import SQUARES_MIN, Card, render_groups
from gpubind.documents.report.matrix import FindingLocations
from gpubind.model import Finding, Request
from gpubind.planner.planning import PlanQuery
from tests.documents.report.pages import HOSTILE
from tests.support.driver import host, kernel, rhel
from tests.support.html import Page

LOST = Finding("uvm-missing", "error", "nvidia", "/dev/nvidia-uvm", "it is missing")


def compared(*gpus: int) -> Page:
    """The page of hosts with so many GPUs each."""
    hosts = [host(rhel(), kernel(gpus=number)) for number in gpus]
    snapshots = [take_snapshot(f"n{at}", one, PlanQuery(Request())) for at, one in enumerate(hosts, 1)]
    return Page(render_diff_html(compare(snapshots)))


def test_the_reference_comes_first_and_each_other_group_says_what_it_has_otherwise() -> None:
    page = compared(2, 1, 2)
    assert page.all("h1")[0].text == "different 3 hosts"
    assert [card.text.split()[0] for card in page.all("h3")] == ["the", "different"]
    assert [cell.text for cell in page.all("td")] == ["gpus", "NVIDIA A100", "number", "2", "1"]
    assert "/dev/nvidia1" in page.all("details", kind="folded")[0].text


def test_equal_hosts_are_said_to_be_equal() -> None:
    page = compared(2, 2)
    assert page.all("h1")[0].text == "equal 2 hosts"
    assert page.all("td") == []


def test_a_group_has_its_drivers_and_an_image_whose_verdict_changes_its_sentence() -> None:
    outcomes = [(LOST,), (), ()]
    made = [
        sorted_snapshot(f"n{at}", [image_fact("app.sif", "x" if found else "ok"), image_fact("b.sif", "ok")])._replace(
            driver=f"nvidia 55{at}.1", images=(ImageOutcome("app.sif", found), ImageOutcome("b.sif", ()))
        )
        for at, found in enumerate(outcomes)
    ]
    page = Page(render_diff_html(compare(made)))
    cards = [card.text for card in page.all("article")]
    assert cards[0] == "the reference n1, n2 2 nvidia 551.1: n1 nvidia 552.1: n2"
    assert cards[1].startswith(
        "different n0 1 nvidia 550.1 app.sif full support -> error uvm-missing On n1, n2 it runs"
    )
    assert page.all("p", kind="what")[0].text.endswith("no verdict changes for 1 image: 1 full support")
    assert page.all("td") == []
    page = Page(render_diff_html(compare(made[1:])))
    assert (page.all("h1")[0].text, "equal" in page.all("header")[0].text) == ("unchanged 2 hosts", False)


def test_in_a_narrow_window_a_row_is_a_list_of_named_values() -> None:
    page = compared(2, 1)
    titles = ["what", "name", "of it", "reference", "here"]
    assert [cell.attributes["data-title"] for cell in page.all("td")] == titles
    assert "stacked" in (page.all("table")[0].attributes["class"] or "")


def test_few_machines_are_read_and_many_are_drawn() -> None:
    for number, squares in ((SQUARES_MIN - 1, 0), (SQUARES_MIN, SQUARES_MIN)):
        page = compared(*[1] * number)
        assert len(page.all("i")) == squares
        assert len(page.all("input")) == bool(squares)


def test_only_a_group_with_findings_offers_to_show_them() -> None:
    cards = [Card("g0", "error", "error", "a", ("a",)), Card("g1", "ok", "ok", "b", ("b",))]
    page = Page(render_groups("fleet", "error", "2 nodes", "", cards, [FindingLocations(LOST, ("a",), ("g0",))]))
    assert [
        button.attributes["data-cell"]
        for button in page.all("button", kind="trace")
        if "data-cell" in button.attributes
    ] == ["g0"]


def test_hostile_names_of_machines_and_things_are_text() -> None:
    def page(name: str) -> Page:
        difference = Difference("library", name, "size", name, None)
        follows = Difference("device", name, "presence", "present", "absent", "gpus")
        groups = (EqualHosts("0", (name,) * SQUARES_MIN, ()), EqualHosts("1", (name,), (difference, follows)))
        return Page(render_diff_html(Comparison(groups)))

    plain = [(element.tag, [*element.attributes]) for element in page("plain").elements]
    for name in HOSTILE:
        assert [(element.tag, [*element.attributes]) for element in page(name).elements] == plain
