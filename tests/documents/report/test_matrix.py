"""Images by hosts as a page: equal hosts are one column, each finding is there once."""

from __future__ import annotations

from gpubind.documents.report.matrix import render_matrix_html
from gpubind.model import Finding, finding
from gpubind.rules.outcome import Checked, Report
from tests.documents.report.pages import HOSTILE, REPORT
from tests.support.html import Page

OLD = Finding("cuda-too-new", "error", "nvidia", "CUDA", "the driver is too old", hint="update it")
LOST = Finding("gpu-node-missing", "warning", "nvidia", "/dev/nvidia1", "it is missing")


def matrix(*hosts: tuple[str, tuple[Finding, ...]], images: tuple[str, ...] = ("a.sif", "b.sif")) -> Page:
    """The page of *images* on *hosts*; the first image has no findings."""
    reports = [
        Report(None, findings if image != images[0] else (), (), (), Checked(host, image))
        for image in images
        for host, findings in hosts
    ]
    return Page(render_matrix_html(reports))


def test_hosts_with_the_same_outcomes_are_one_column() -> None:
    page = matrix(("n1", (OLD,)), ("n2", (OLD,)), ("n3", (OLD, LOST)), ("n4", ()))
    assert [head.text for head in page.all("th", scope="col")] == ["image", "n1, n2", "n3", "n4"]
    assert [head.text for head in page.all("th", scope="row")] == ["a.sif", "b.sif"]
    assert [cell.text for cell in page.all("button", kind="cell")][3:] == ["error cuda-too-new"] * 2 + ["ok"]


def test_a_column_has_the_name_and_the_driver_of_its_hosts_and_so_has_each_cell() -> None:
    reports = [
        REPORT._replace(checked=Checked(given, "a.sif"), host_name=name, findings=findings)
        for given, name, findings in (("records/1.json", "gpu1", (OLD,)), ("records/2.json", "gpu2", ()))
    ]
    page = Page(render_matrix_html(reports))
    driver = reports[0].drivers[0].title_with_cuda
    assert [head.text for head in page.all("th", scope="col")] == ["image", f"gpu1 {driver}", f"gpu2 {driver}"]
    assert [cell.attributes["data-title"] for cell in page.all("td")] == [f"gpu1; {driver}", f"gpu2; {driver}"]
    assert page.all("div", kind="at")[0].text == "ata.sif on gpu1"


def test_a_cell_without_a_fault_says_if_the_support_is_not_full() -> None:
    minor = finding(
        "cuda-minor-version", subject="12.4", libcuda="the driver", serves="12.2", driver="driver 550.54.14"
    )
    page = matrix(("n1", (minor,)), ("n2", ()))
    assert [cell.text for cell in page.all("button", kind="cell")][2:] == ["ok minor-version compatibility", "ok"]


def test_each_finding_is_there_once_with_its_cells() -> None:
    page = matrix(("n1", (OLD,)), ("n2", (OLD,)), ("n3", (OLD, LOST)))
    assert [article.text.split()[1] for article in page.all("article")] == ["cuda-too-new", "gpu-node-missing"]
    places = [element.attributes["data-in"] for element in page.elements if "data-in" in element.attributes]
    assert places == ["c1-0 c1-1", "c1-1"]
    cells = {cell.attributes["data-cell"] for cell in page.all("button", kind="cell")}
    assert {"c1-0", "c1-1"} <= cells


def test_findings_with_one_remedy_are_one_and_each_of_its_subjects_has_its_places() -> None:
    images = {f"{version}.sif": OLD._replace(subject=version, what=f"for CUDA {version}") for version in ("12", "13")}
    reports = [
        Report(None, (found,), (), (), Checked(host, image)) for image, found in images.items() for host in ("n1", "n2")
    ]
    page = Page(render_matrix_html(reports))
    (article,) = page.all("article")
    assert "for CUDA 12; also 13" in article.text
    lines = [element.text for element in page.elements if element.tag == "dd"]
    assert lines == ["update it", "12: 12.sif on n1, n2", "13: 13.sif on n1, n2"]
    places = [element.attributes["data-in"] for element in page.elements if "data-in" in element.attributes]
    assert places == ["c0-0 c1-0"]


def test_many_equal_hosts_are_counted() -> None:
    page = matrix(*((f"n{number}", (OLD,)) for number in range(30)))
    assert page.all("th", scope="col")[1].text == "n0, n1, n2, n3 and 26 others"
    assert page.all("h1")[0].text == "error 2 images on 30 hosts"


def test_hostile_names_of_hosts_and_images_are_text() -> None:
    plain = [element.tag for element in matrix(("n1", (OLD,))).elements]
    for name in HOSTILE:
        hostile = OLD._replace(subject=name, what=name)
        assert [element.tag for element in matrix((name, (hostile,)), images=("a", name)).elements] == plain
