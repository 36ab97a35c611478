"""The page of a fleet: groups of nodes, what each has otherwise, and no node is missing."""

from __future__ import annotations

import pytest

from gpubind.api.diff import take_snapshot
from gpubind.documents.diff.snapshot import ImageOutcome, Snapshot, image_fact, sorted_snapshot
from gpubind.documents.fleet import AnswerGroups, CheckedNode, NodeAnswer, NodeDriver, NodeError
from gpubind.documents.report.fleet import render_fleet_html
from gpubind.model import Finding, Request, shorten_list
from gpubind.planner.planning import PlanQuery
from tests.documents.report.pages import HOSTILE
from tests.support.driver import host, kernel, rhel
from tests.support.html import Page

LOST = Finding("uvm-missing", "error", "nvidia", "/dev/nvidia-uvm", "it is missing", hint="load the module")
OLD = CheckedNode("d1", (NodeDriver("nvidia", "535.1"),), (LOST,))
GOOD = CheckedNode("d0", (NodeDriver("nvidia", "550.1"),))


IMAGES = (ImageOutcome("a.sif", ()),)


def page(*answers: NodeAnswer, action: str = "check") -> Page:
    folding = AnswerGroups()
    for answer in answers:
        folding.add(answer)
    return Page(render_fleet_html(folding.groups(), action, shorten_list))


def said(node: str, state: CheckedNode) -> NodeAnswer:
    return NodeAnswer(node, "answered", int(bool(state.findings)), "", {}, state)


def test_the_worst_come_first_and_each_group_says_what_it_has_otherwise_than_most() -> None:
    found = page(said("n1", GOOD), said("n2", OLD), said("n3", GOOD), NodeAnswer("n4", "timed-out", None, "late"))
    assert found.all("h1")[0].text == "error 4 nodes"
    groups = [card.text for card in found.all("h3")]
    assert groups[:3] == ["error n2 1", "timed out n4 1", "ok n1, n3 2"]
    assert [cell.text for cell in found.all("td")] == [
        *("driver", "nvidia 550.1", "nvidia 535.1"),
        *("digest of the plan", "d0", "d1"),
        *("uvm-missing (/dev/nvidia-uvm)", "none", "error"),
    ]
    assert "late" in found.all("article", kind="lost")[0].text


def test_each_group_has_its_driver_and_the_digest_of_its_plan() -> None:
    found = page(said("n1", GOOD), said("n2", GOOD), said("n3", OLD))
    cards = [card.text for card in found.all("article", kind="group")]
    assert cards[1] == "ok n1, n2 2 nvidia 550.1 digest of the plan d0"
    assert cards[0].startswith("error n3 1 nvidia 535.1 digest of the plan d1")
    (card,) = page(said("n1", GOOD)._replace(document={"gpubind": "0.1.0+g1a2b3c4d5e"})).all("article")
    assert card.text == "ok n1 1 nvidia 550.1 digest of the plan d0 gpubind 0.1.0+g1a2b3c4d5e"


def test_nodes_with_another_driver_and_the_same_verdicts_are_one_group_that_names_both() -> None:
    def told(driver: str) -> Snapshot:
        return sorted_snapshot("", [image_fact("a.sif", "ok")])._replace(driver=driver, images=IMAGES)

    answers = [NodeAnswer(f"n{at}", "answered", 0, "", None, told(f"nvidia {at % 2}")) for at in range(4)]
    (card,) = page(*answers, action="diff").all("article")
    assert card.text == "the reference n0, n2, n1, n3 4 nvidia 0: n0, n2 nvidia 1: n1, n3"


def test_the_findings_are_there_once_with_their_nodes() -> None:
    found = page(said("n1", OLD), said("n2", OLD), said("n3", GOOD))
    (article,) = found.all("article", kind="finding")
    assert "n1, n2" in article.text
    assert [element.attributes["data-in"] for element in found.elements if "data-in" in element.attributes] == ["n0"]


def test_an_error_of_a_node_has_its_hint_and_several_garbled_nodes_an_example() -> None:
    failed = NodeError("unreadable-file", "a file cannot be read", "/dev/x", "I/O error", "replace it")
    answers = [NodeAnswer(name, "garbled", 0, f"it prints `{name}`") for name in ("n2", "n3")]
    found = page(NodeAnswer("n1", "answered", 4, "", {}, failed), *answers)
    told = [card.text for card in found.all("article", kind="group")]
    assert told[0].startswith("exit 4 n1 1 unreadable-file: a file cannot be read")
    assert told[0].endswith("replace it")
    assert told[1] == "garbled n2, n3 2 n2, for example: it prints `n2`"


def test_a_verdict_of_an_error_is_one_and_an_answer_that_failed_does_not_count() -> None:
    unknown = NodeAnswer("n1", "answered", 1, "", {}, CheckedNode("d0", verdict="error"))
    failed = NodeAnswer("n2", "failed", 137, "exit 137 after its answer: ok", {})
    found = page(unknown, failed, said("n3", GOOD))
    assert "error, by its verdict: no finding says so" in found.all("article", kind="error")[0].text
    assert [card.text for card in found.all("h3")] == ["error n1 1", "failed n2 1", "ok n3 1"]
    assert found.all("h1")[0].text == "error 3 nodes"


@pytest.mark.parametrize(
    ("of_most", "other"), [("0.1.0+gaaa", "0.1.0+gbbb"), ("0.1.0+gaaa", "none"), ("none", "0.1.0+gbbb")]
)
def test_a_card_names_the_build_of_gpubind_that_is_not_that_of_most(of_most: str, other: str) -> None:
    documents = [{} if build == "none" else {"gpubind": build} for build in (of_most, of_most, other)]
    found = page(*(said(f"n{at}", GOOD)._replace(document=one) for at, one in enumerate(documents)))
    assert [cell.text for cell in found.all("td")] == ["gpubind", of_most, other]


def test_a_comparison_shows_what_differs_and_who_did_not_answer() -> None:
    snapshots = [take_snapshot("x", host(rhel(), kernel(gpus=gpus)), PlanQuery(Request())) for gpus in (2, 1, 2)]
    answers = [NodeAnswer(f"n{at}", "answered", 0, "", None, one) for at, one in enumerate(snapshots)]
    found = page(*answers, NodeAnswer("n9", "unreachable", None, "no route"), action="diff")
    assert [card.text for card in found.all("h3")] == ["unreachable n9 1", "different n1 1", "the reference n0, n2 2"]
    assert [cell.text for cell in found.all("td")] == ["gpus", "NVIDIA A100", "number", "2", "1"]


def test_hostile_answers_are_text() -> None:
    def made(name: str) -> Page:
        state = CheckedNode(name, (NodeDriver(name, name),), (LOST._replace(subject=name, what=name),))
        error = NodeError(name, name, name, name, name)
        lost = NodeAnswer(name, "garbled", None, name)
        return page(said("n1", GOOD), said("n2", state), NodeAnswer("n3", "answered", 1, "", {}, error), lost)

    plain = [(element.tag, [*element.attributes]) for element in made("plain").elements]
    for name in HOSTILE:
        assert [(element.tag, [*element.attributes]) for element in made(name).elements] == plain
