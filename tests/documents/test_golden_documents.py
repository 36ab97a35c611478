"""Every document of a few values that have a bit of everything, word for word."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import gpubind
from gpubind import plan
from gpubind.cli.tables import render_tables
from gpubind.documents import CHECK_DOCUMENTS, DIFF_DOCUMENTS, MATRIX_DOCUMENTS, NEEDS_DOCUMENTS, TREE_DOCUMENTS, Made
from gpubind.documents.cdi import cdi_table, render_cdi_json, stale_lines
from gpubind.documents.check.report import verdict_line
from gpubind.documents.check.several import (
    render_several,
    render_several_lines,
    render_several_text,
    render_unchecked,
    verdicts_table,
)
from gpubind.documents.check.text import render_check_text
from gpubind.documents.check.trial import trial_line, trial_table
from gpubind.documents.diff.snapshot import ImageOutcome, Snapshot, render_snapshot, snapshot_of_images
from gpubind.documents.expectation import render_expectation
from gpubind.documents.fleet import (
    AnswerGroups,
    CheckedNode,
    NodeAnswer,
    NodeDriver,
    NodeError,
    NodeRecord,
    answers_table,
    comparison_of,
    render_answer,
    render_group_findings,
    summary_of,
)
from gpubind.documents.gpus import gpus_table, render_gpus_json
from gpubind.documents.links import render_links, usage_text
from gpubind.documents.modules import render_lmod, render_taskprolog, render_tcl
from gpubind.documents.mounts.compose import render_compose
from gpubind.documents.mounts.kubernetes import render_kubernetes
from gpubind.documents.needs import needs_table
from gpubind.documents.notebook import Findings, plan_html
from gpubind.documents.report.fleet import render_fleet_html
from gpubind.documents.tables import Table, plan_tables
from gpubind.documents.text import render_tsv
from gpubind.documents.tree import LinkageTree
from gpubind.inventory.cdi.listing import list_cdi
from gpubind.model import ContainerPath, Finding, HostPath, Plan, Request, shorten_list
from gpubind.model.requirements import Expectation
from gpubind.model.trial import Prediction, Trial, TrialOutcome
from gpubind.planner import empty_plan
from gpubind.rules.outcome import Checked, Report, make_report
from tests.documents.printed import printed
from tests.documents.report.pages import REPORT
from tests.documents.test_diff import AMD, NVIDIA, changed, other_mode, snapshot, upgraded, without
from tests.documents.test_gpus_document import listed
from tests.documents.test_needs import TREE as NEEDS
from tests.documents.test_needs import of as needs_of
from tests.documents.test_tree import TREE
from tests.planner.gpus.hosts import HOSTS
from tests.support.driver import host, kernel, rhel
from tests.support.golden import GOLDEN, assert_golden, folded
from tests.support.images import glibc

MADE = Made("gpu7", "2026-11-26 13:05 UTC")
LOST = Finding(
    "uvm-missing", "error", "nvidia", "/dev/nvidia-uvm", "it is missing", "/dev", "why", "hint", "modprobe x"
)
OLD = Finding("cuda-minor-version", "note", "nvidia", "CUDA 12.6", "the driver is older", hint="update it")
NEW = Finding("cuda-too-new", "error", "nvidia", "CUDA 13.0", "the image is for CUDA 13.0", None, "it fails", "use 12")
WARNING = Finding("library-missing", "warning", "nvidia", "libx.so", "libx.so is missing", "a, b", None, None, "a\nb")
EXTRA = (LOST, LOST._replace(subject="/dev/nvidia0"), OLD, WARNING, WARNING._replace(subject="liby.so", where=None))
PLAN = REPORT.plan or empty_plan()
FULL = make_report(
    PLAN,
    [*REPORT.findings, *EXTRA],
    {(OLD.code, None): "ticket 7"},
    [("uvm-missing", "host"), ("cuda-too-new", "image")],
    checked=REPORT.checked._replace(runtime="apptainer", user="alice"),
    severities={("library-missing", "libx.so"): ("error", "/etc/gpubind/config.toml")},
)._replace(linked=REPORT.linked, expected=(Expectation(gpus=(("A", 1), ("B", 1))),))
ONLY = make_report(PLAN, EXTRA, {}, checked=Checked(host="gpu8", image="b.sif"), only=["library-missing"])
GOOD = make_report(PLAN, [], {}, checked=Checked(host="gpu9", image="app.sif"))
POLICY = Report(None, (NEW,), (), (), Checked(policy="policy.toml", image="podman:app:1"))
REPORTS = (FULL, ONLY, GOOD, POLICY)
GRID = [
    make_report(PLAN, found, {}, checked=Checked(host=name, image=image))
    for name, of_images in (("gpu7", ((NEW, OLD), EXTRA)), ("gpu8", ((NEW, OLD), EXTRA)), ("gpu9", ((OLD,), ())))
    for image, found in zip(("app.sif", "b.sif"), of_images)
]
"""Two images on three hosts, of which two are alike."""

TRIAL = Trial(
    "bwrap",
    (
        TrialOutcome(Prediction("loads", "/usr/lib/libcuda.so.1", (), True), True),
        TrialOutcome(Prediction("loads", "/usr/lib/liba.so", (), True), True),
        TrialOutcome(
            Prediction("loads", "/usr/lib/libb.so", (), True),
            False,
            "libc.so: cannot open shared object file: No such file or directory\nmore",
        ),
        TrialOutcome(
            Prediction("loads", "/usr/lib/libc.so", (), False, why="it is " + "long " * 20), False, "it is long"
        ),
        TrialOutcome(Prediction("program", "/opt/app", (), True), None, "no answer"),
        TrialOutcome(Prediction("driver", "cuInit", (), None), True, "2 devices"),
    ),
    untried=3,
)


def groups() -> list[NodeAnswer]:
    state = CheckedNode("d" * 64, (NodeDriver("nvidia", "550.1"),))
    bad = CheckedNode("e" * 64, (NodeDriver("nvidia"), NodeDriver("amd", "6.2")), EXTRA)
    many = tuple(LOST._replace(subject=f"/dev/nvidia{number}") for number in range(6))
    document = {"gpubind": "0.1.0+g1a2b3c4d5e"}
    return [
        NodeAnswer("n10", "answered", 0, "", document, state),
        NodeAnswer("n9", "answered", 0, "", document, state),
        NodeAnswer("n1", "answered", 1, "", {}, bad),
        NodeAnswer("n2", "answered", 1, "", {}, bad._replace(findings=EXTRA[:3])),
        NodeAnswer("n3", "answered", 1, "", {}, bad._replace(findings=many)),
        NodeAnswer("n4", "answered", 1, "", {}, bad._replace(findings=(), verdict="error")),
        NodeAnswer("n5", "answered", 4, "", {}, NodeError("unreadable-file", "a file", "/x", "why", "hint")),
        NodeAnswer("n6", "timed-out", None, "no answer within 60 s"),
        NodeAnswer("n7", "garbled", 0, "it printed `x`"),
        NodeAnswer("n8", "garbled", 0, "it printed `y`"),
        NodeAnswer("n11", "answered", 0, "", {}, NodeRecord("{}")),
        NodeAnswer("n12", "answered", 0, "", {}, snapshot("n12", NVIDIA)),
        NodeAnswer("n13", "answered", 0, "", {}, snapshot("n13", changed(NVIDIA, upgraded("535.261.03")))),
        NodeAnswer("n14", "failed", 3, "exit 3"),
    ]


def fleet() -> dict[str, str]:
    folded = AnswerGroups()
    for answer in groups():
        folded.add(answer)
    made = folded.groups()
    comparison = comparison_of(made)
    assert comparison is not None
    return {
        "table": laid_out(answers_table(made, shorten_list)),
        "findings": render_group_findings(made, shorten_list, verbose=False),
        "findings, verbose": render_group_findings(made, shorten_list, verbose=True),
        "summary": summary_of(made) + "\n",
        "answers": "".join(render_answer(answer._replace(document=None)) for answer in groups()),
        "html": without_script(render_fleet_html(made, "check", shorten_list, MADE)),
    }


def laid_out(*tables: Table) -> str:
    return render_tables(tables, 200)


def without_script(page: str) -> str:
    return re.sub(r"(?s)(<style>|<script>).*?(</style>|</script>)|sha256-[^']*", r"\1\2", page)


def check_of(report: Report) -> dict[str, str]:
    single = {name: each for name, each in CHECK_DOCUMENTS.items() if name not in ("html", "text")}
    texts = {name: each.render(report) for name, each in single.items()}
    texts["text"] = render_check_text(report)
    texts["text, verbose"] = render_check_text(report, verbose=True, width=60, colour=True)
    texts["line"] = verdict_line(report)
    if report is not ONLY:
        texts["html"] = without_script(CHECK_DOCUMENTS["html"].render(report, made=MADE))
    return texts


def several() -> dict[str, str]:
    forms = [name for name, each in CHECK_DOCUMENTS.items() if name not in ("html", "text") and not each.is_single]
    texts = {
        name: MATRIX_DOCUMENTS[name].render(REPORTS) if name in MATRIX_DOCUMENTS else render_several(name, REPORTS)
        for name in forms
    }
    texts["text"] = render_several_text(REPORTS, colour=True)
    texts["lines"] = render_several_lines(REPORTS)
    texts["unchecked"] = render_unchecked(REPORTS)
    texts["table"] = laid_out(verdicts_table(REPORTS))
    texts["table of a grid"] = laid_out(verdicts_table(GRID))
    texts["table of one image"] = laid_out(verdicts_table(GRID[::2]))
    texts["table of one host"] = laid_out(verdicts_table(GRID[:2]))
    texts["html"] = without_script(MATRIX_DOCUMENTS["html"].render(GRID, made=MADE))
    return texts


def plans() -> dict[str, str]:
    made = plan(host(rhel(), kernel()), Request())
    staged = {ContainerPath(target): HostPath(f"/staged{target}") for target in made.generated}
    prepared = printed()
    return {
        "tsv": render_tsv(made, verbose=True),
        "tables": laid_out(*plan_tables(made, verbose=True)),
        "links": render_links(made),
        "usage": usage_text(made, "/opt/my driver"),
        "compose": render_compose(made, staged),
        "compose without a GPU": render_compose(empty_plan(), {}),
        "kubernetes": render_kubernetes(made, staged),
        "lmod": render_lmod(prepared, {}),
        "tcl": render_tcl(prepared, {}),
        "taskprolog": render_taskprolog(prepared, {"APPTAINER_BIND": "/a:/b"}),
        "notebook": plan_html(made) + "\n" + Findings(EXTRA)._repr_html_() + "\n" + Findings()._repr_html_() + "\n",
        "cdi": cdi(made),
    }


def cdi(made: Plan) -> str:
    spec = '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "%s", "containerEdits": %s}]}'
    edits = '{"deviceNodes": [{"path": "/dev/nvidia9"}], "mounts": [{"hostPath": "/gone", "containerPath": "/gone"}]}'
    files = {
        "/etc/cdi/a.json": spec % ("all", edits),
        "/etc/cdi/b.yaml": spec % ("all", edits),
        "/var/run/cdi/c.json": spec % ("0", '{"env": ["A=b"]}'),
        "/var/run/cdi/d.json": "x",
    }
    listing = list_cdi(host(rhel(), kernel(), files), gpus=made.gpus)
    return laid_out(cdi_table(listing)) + stale_lines(listing) + render_cdi_json(listing)


def snapshots() -> list[Snapshot]:
    others = changed(
        NVIDIA, {**without("libnvidia-ml"), **other_mode("/dev/nvidia0", mode=0o640), "/dev/nvidia1": None}
    )
    return [
        snapshot("a", NVIDIA),
        snapshot("b", NVIDIA),
        snapshot("c", changed(NVIDIA, upgraded("535.261.03"))),
        snapshot("d", others),
        snapshot("e", AMD),
    ]


def diff() -> dict[str, str]:
    from gpubind.documents.diff.comparison import compare

    comparison = compare(snapshots())
    outcomes = [(), (OLD,), (NEW,)]
    images = compare(
        snapshot_of_images(name, PLAN, [WARNING], [ImageOutcome("a.sif", found), ImageOutcome("b.sif", ())])
        for name, found in zip("abc", outcomes)
    )
    texts: dict[str, str] = {}
    for name, each in DIFF_DOCUMENTS.items():
        options = {"made": MADE} if each.is_page else {}
        for title, compared in (("hosts", comparison), ("images", images)):
            texts[f"{name} of {title}"] = without_script(each.render(compared, shorten_list, **options))
    texts["snapshot of nvidia"] = render_snapshot(snapshot("a", NVIDIA))
    texts["snapshot of amd"] = render_snapshot(snapshot("a", AMD))
    return texts


def others() -> dict[str, str]:
    tree = LinkageTree(TREE.asked, ("script", *TREE.names), TREE.image, TREE.files)
    texts = {f"tree, {name}": each.render(tree) for name, each in TREE_DOCUMENTS.items()}
    for name in sorted(HOSTS):
        texts[f"gpus of {name}"] = laid_out(gpus_table(listed(name)))
    texts["gpus, json"] = render_gpus_json(listed("mig", "0:2/0"))
    texts["trial"] = laid_out(trial_table(TRIAL)) + trial_line(TRIAL) + "\n"
    texts["trial, verbose"] = laid_out(trial_table(TRIAL, verbose=True)) + trial_line(Trial("bwrap")) + "\n"
    expected = Expectation("", ("550.1",), (("A", 2), ("B", 1)), ("compute", "utility"), ("libcuda.so",), ("SPX/NPS1",))
    texts["expectation"] = render_expectation(expected, "a\nnode")
    unnamed = expected._replace(drivers=("550.1", "6.2"), gpus=(("", 2), ("B", 1)), partitions=("SPX", "CPX"))
    texts["expectation of unnamed GPUs"] = render_expectation(unnamed)
    return texts


PARTS: Mapping[str, Callable[[], dict[str, str]]] = {
    "check": lambda: check_of(FULL),
    "check_only": lambda: check_of(ONLY),
    "check_policy": lambda: check_of(POLICY),
    "several": several,
    "plans": plans,
    "diff": diff,
    "fleet": fleet,
    "others": others,
}


def assert_documents(part: str, texts: Mapping[str, str]) -> None:
    text = "".join(f"=== {name}\n{folded(text)}" for name, text in texts.items())
    shown = text.replace(gpubind.__version__, "VERSION")
    assert_golden(GOLDEN / "documents" / f"{part}.txt", shown.encode("utf-8", "backslashreplace").decode())


@pytest.mark.parametrize("part", PARTS)
def test_each_document_is_that_of_its_golden_file(part: str) -> None:
    assert_documents(part, PARTS[part]())


def test_each_document_of_needs_is_that_of_its_golden_file(tmp_path: Path) -> None:
    texts: dict[str, str] = {}
    for title, tree in (("everything", NEEDS), ("nothing", glibc()), ("empty", {})):
        needs = needs_of(tmp_path / title, tree)
        texts[f"table of {title}"] = laid_out(needs_table(needs))
        texts.update({f"{name} of {title}": each.render(needs, "app.sif") for name, each in NEEDS_DOCUMENTS.items()})
    assert_documents("needs", {name: text.replace(str(tmp_path), "DIRECTORY") for name, text in texts.items()})
