"""`gpubind check` for people: short where all is well, the same words everywhere."""

from __future__ import annotations

from gpubind import open_host, plan
from gpubind.documents.check.markdown import render_markdown
from gpubind.documents.check.report import fold_findings, render_check_json
from gpubind.documents.check.text import render_check_text
from gpubind.model import Finding, Request
from gpubind.model.findings import finding
from gpubind.rules.outcome import Checked, make_report
from tests.rules.situations import Situation, found
from tests.support.driver import kernel, rhel
from tests.support.images import glibc, image

PLAN = plan(open_host("debian13-nvidia550"), Request(vendors=("nvidia",)))
LIBRARIES = ("libX11.so.6", "libXext.so.6", "libdrm.so.2", "libgbm.so.1", "libxcb.so.1")


def lacks(name: str, severity: str = "note") -> Finding:
    return Finding("library-missing", severity, "nvidia", name, f"{name} is not there", hint="install it")  # type: ignore[arg-type]


def test_notes_of_a_theme_are_one_sentence_and_in_full_when_asked_for() -> None:
    report = make_report(PLAN, map(lacks, LIBRARIES), {})
    lines = render_check_text(report, width=200).splitlines()
    assert lines == [
        "ok: nvidia 550.163.01 (CUDA 12.4), 2 GPUs",
        "note: missing, or not usable in the container: libX11.so.6, libXext.so.6, libdrm.so.2, libgbm.so.1, "
        "libxcb.so.1; most jobs do not need them",
        "5 notes in full with -v",
    ]
    full = render_check_text(report, verbose=True)
    assert full.count("note: library-missing: ") == full.count("hint:  install it") == 5


def test_a_user_space_that_is_missing_is_told_in_the_words_of_the_image() -> None:
    note = finding("userspace-missing", subject="userspace", case="video", severity="note", vendor="intel", name="it")
    lines = render_check_text(make_report(PLAN, [note], {}), width=200).splitlines()
    assert lines[1] == "note: the image: the image has VA-API, but neither the image nor the host has it"


def test_an_error_is_told_in_full_before_the_notes() -> None:
    report = make_report(PLAN, (lacks("liba.so", "error"), lacks("libb.so")), {}, checked=Checked(runtime="apptainer"))
    lines = render_check_text(report).splitlines()
    assert lines[0] == "error: nvidia 550.163.01 (CUDA 12.4), 2 GPUs, by apptainer"
    assert lines[1:3] == ["error: library-missing: liba.so is not there", "  hint:  install it"]
    assert lines[3].startswith("note: missing, or not usable in the container: libb.so")


def test_of_a_healthy_host_and_image_there_are_six_lines_at_most() -> None:
    findings = found(Situation((rhel(), kernel()), image(glibc())))
    lines = render_check_text(make_report(PLAN, findings, {})).splitlines()
    assert lines[0].startswith("ok: ")
    assert len(lines) <= 6


def test_a_line_is_no_wider_than_asked_for() -> None:
    report = make_report(PLAN, [finding("uvm-missing", subject="/dev/nvidia-uvm")], {})
    for width in (60, 100):
        text = render_check_text(report, width=width)
        assert all(len(line) <= width or line.lstrip().startswith("$ ") for line in text.splitlines())


def test_each_note_about_a_runtime_that_is_named_is_shown_and_a_missing_option_comes_last() -> None:
    notes = (
        finding("image-unknown", subject="image"),
        finding("toolkit-missing", subject="docker", case="none"),
    )
    about = [note.what for note in notes]
    named = render_check_text(make_report(PLAN, notes, {}, checked=Checked(runtime="docker"))).splitlines()
    assert named[1:3] == [f"note: the runtime: {what}" for what in about[::-1]]
    unnamed = render_check_text(make_report(PLAN, notes, {})).splitlines()
    assert unnamed[1:] == [f"note: the runtime: {about[1]}; and 1 other note", "2 notes in full with -v"]


def in_image(name: str) -> Finding:
    path = f"/lib/{name}"
    return finding(
        "driver-in-image", subject=name, case="behind", severity="warning", where=path, path=path, version=""
    )


DRIVERS = ("liba.so", "libb.so", "libc.so", "libd.so", "libe.so", "libf.so")


def test_findings_with_one_remedy_are_one_with_every_subject_and_in_full_when_asked_for() -> None:
    findings = [*map(in_image, DRIVERS), in_image("libg.so")._replace(hint="another")]
    report = make_report(PLAN, findings, {})
    text = render_check_text(report, width=200)
    lines = text.splitlines()
    assert text.count("warning: driver-in-image: ") == 2
    assert lines[1].endswith("the image contains a driver library, /lib/liba.so; also " + ", ".join(DRIVERS[1:]))
    assert lines[2] == "  where: /lib/liba.so, /lib/libb.so, /lib/libc.so, /lib/libd.so and 2 others"
    hints = [line for line in lines if line.startswith("  hint:")]
    assert hints == [
        f"  hint:  {findings[0].hint}",
        "  hint:  another",
    ]
    full = render_check_text(report, verbose=True, width=200)
    assert all(f"\n  where: /lib/{name}\n" in full for name in DRIVERS)
    assert render_check_json(report).count('"code": "driver-in-image"') == 7


def test_a_finding_without_a_remedy_or_with_another_reason_or_severity_stays_alone() -> None:
    others = ({"severity": "error"}, {"why": ""}, {"what": "another sentence"})
    alone = [in_image("liba.so"), *(in_image("libb.so")._replace(**other) for other in others)]  # type: ignore[arg-type]
    assert fold_findings(alone) == alone
    plain = [one._replace(hint=None) for one in map(in_image, DRIVERS)]
    assert fold_findings(plain) == plain


def test_a_ticket_names_all_places_of_what_is_one_finding() -> None:
    text = render_markdown(make_report(PLAN, map(in_image, DRIVERS), {}))
    assert text.count("### warning: `driver-in-image`") == 1
    assert all(f"/lib/{name}" in text for name in DRIVERS)
