"""The library: it asks the same questions as the command line."""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import gpubind
from gpubind.api.diff import DiffRequest, snapshots
from gpubind.api.links import LinksRequest, links
from gpubind.documents.diff.text import diff_document
from gpubind.documents.notebook import Findings
from gpubind.errors import FormatError, UsageError
from gpubind.machine.budget import BOUNDS
from gpubind.model import CAPABILITIES, DEFAULT_CAPABILITIES, ContainerPath, CudaNote, Request
from gpubind.model.data import BUNDLED_HOSTS, read_data
from gpubind.planner.planning import PlanQuery
from gpubind.planner.request import validate_request
from tests.support.commands import gpubind as command
from tests.support.driver import host, kernel, rhel
from tests.support.elf import elf
from tests.support.golden import GOLDEN, assert_fits, assert_golden
from tests.support.images import glibc, image
from tests.support.trees import File, Spec, make_tree

HOST = gpubind.open_host(BUNDLED_HOSTS[0])
NOTED: Spec = {"/usr/local/cuda/compat/libcuda.so.1": elf("libcuda.so.1", cuda_note=CudaNote("12.8", (535,)))}


def codes(*arguments: str, backend: str = "apptainer") -> list[str]:
    made = gpubind.plan(HOST, Request())
    return [finding.code for finding in gpubind.check(HOST, made, backend=backend, arguments=arguments)]


def test_a_check_with_a_runtime_asks_the_runtimes_own_questions() -> None:
    assert "devices-not-isolated" in codes()
    assert "no-dev" in codes("--no-mount", "dev")


def test_the_users_own_options_for_the_runtime_count_in_a_check() -> None:
    assert "devices-not-isolated" not in codes("--contain")


def test_a_runtime_that_only_rules_know_can_be_checked() -> None:
    assert "devices-not-isolated" not in codes(backend="podman")


@pytest.mark.parametrize("backend", ["apptainerr", "auto", ""])
def test_an_unknown_runtime_is_wrong_use(backend: str) -> None:
    with pytest.raises(UsageError, match="unknown-backend") as caught:
        codes(backend=backend)
    assert "auto" not in caught.value.hint


def test_arguments_that_end_in_the_middle_of_an_option_are_wrong_use() -> None:
    with pytest.raises(UsageError, match="incomplete-argument"):
        codes("--bind")


def test_a_plan_lands_where_its_runtime_has_things() -> None:
    on = host(rhel(), kernel())
    layouts = {name: gpubind.open_runtime(on, name) for name in ("apptainer", "bwrap")}
    libdirs = {name: gpubind.plan(on, Request(), start=start).libdir for name, start in layouts.items()}
    assert libdirs == {"apptainer": "/.singularity.d/libs", "bwrap": "/.gpubind/libs"}


def test_a_layout_that_is_given_wins_over_the_runtimes() -> None:
    from gpubind.planner.placement import GPUBIND_LAYOUT

    on = host(rhel(), kernel())
    made = gpubind.plan(on, Request(), layout=GPUBIND_LAYOUT, start=gpubind.open_runtime(on, "apptainer"))
    assert made.libdir == GPUBIND_LAYOUT.libdir


def test_words_name_generated_files_where_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on = host(rhel(), kernel())
    start = gpubind.open_runtime(on, "apptainer", ["--contain"])
    start = start._replace(caller=start.caller._replace(environ={"XDG_CACHE_HOME": str(tmp_path)}))
    made = gpubind.plan(on, Request(), start=start)
    words = gpubind.words(made, start)
    assert words is not None
    sources = {bind.target: bind.source for bind in words.binds}
    (generated,) = made.generated
    assert sources[generated].startswith(f"{tmp_path}/gpubind/")
    assert Path(sources[generated]).read_text() == made.generated[ContainerPath(generated)]
    assert "/dev/nvidia0" in sources


def test_a_runtime_that_builds_its_container_of_the_image_has_no_words_without_one() -> None:
    on = host(rhel(), kernel())
    start = gpubind.open_runtime(on, "bwrap")
    made = gpubind.plan(on, Request(caps=("compute",)), start=start)
    assert gpubind.words(made, start) is None
    opened = image(glibc(), {"/usr/bin/x": File(elf(kind=2), 0o755)})
    assert gpubind.words(made, start, opened) is not None


def test_a_plan_comes_back_from_its_document() -> None:
    for name in BUNDLED_HOSTS:
        document = gpubind.plan(gpubind.open_host(name), Request(), image=image(glibc(), NOTED)).to_dict()
        assert gpubind.Plan.from_dict(json.loads(json.dumps(document))).to_dict() == document


def test_what_comes_back_is_values_again() -> None:
    made = gpubind.plan(HOST, Request(caps=("compute",)))
    again = gpubind.Plan.from_dict(json.loads(made.to_json()))
    assert (again.mounts, again.devices, again.findings) == (made.mounts, made.devices, made.findings)
    assert (again.request.caps, gpubind.Plan.from_dict(gpubind.plan(HOST, Request()).to_dict()).request.caps) == (
        ("compute",),
        None,
    )


def test_a_finding_comes_back_from_its_document() -> None:
    finding = gpubind.check(HOST, gpubind.plan(HOST, Request()))[0]
    assert gpubind.Finding.from_dict(finding.to_dict()) == finding


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"schema": "gpubind.plan/2"}, "schema"),
        ({"schema": "gpubind.check/1"}, "schema"),
        ({"request": None}, "request"),
        ({"drivers": [1]}, "drivers"),
        ({"mounts": [{}]}, "mounts[0].vendor"),
        ({"digest": 5}, "digest"),
        ({"image": {"kind": "tape"}}, "image.kind"),
        ({"image": []}, "image"),
        ({"image": "x"}, "image"),
        ({"image": {"libc": "glibc"}}, "image.libc"),
    ],
)
def test_a_document_that_is_no_plan_is_refused_with_the_place(change: dict[str, object], place: str) -> None:
    with pytest.raises(FormatError, match="bad-plan") as caught:
        gpubind.Plan.from_dict({**gpubind.plan(HOST, Request()).to_dict(), **change})
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("request_", "code", "says"),
    [
        (Request(caps=("compue",)), "unknown-capability", "compue"),  # type: ignore[arg-type]
        (Request(caps="compute"), "wrong-type", "caps wants a tuple of strings, not 'compute'"),  # type: ignore[arg-type]
        (Request(caps=()), "unknown-capability", "caps names no capability"),
        (Request(vendors=("AMD",)), "unknown-vendor", "AMD"),  # type: ignore[arg-type]
        (Request(vendors="nvidia"), "wrong-type", "vendors"),  # type: ignore[arg-type]
        (Request(source="foo"), "unknown-source", "foo"),
        (Request(vendor_neutral="foo"), "unknown-side", "foo"),  # type: ignore[arg-type]
        (Request(libdir=ContainerPath("usr/lib")), "not-absolute", "libdir wants an absolute path"),
        (Request(gpus=0), "wrong-type", "gpus wants a string, not 0"),  # type: ignore[arg-type]
        (Request(gpus=[0]), "wrong-type", "gpus"),  # type: ignore[arg-type]
        (Request(gpus="one"), "bad-gpus", "one"),
        (Request(completion=1), "wrong-type", "completion wants True or False"),  # type: ignore[arg-type]
        (Request(like="apptainer", gpus="0"), "like-with-option", "gpus cannot be used with like"),
        (Request(cdi_devices=("gpu0",)), "bad-cdi-name", "gpu0"),
        (Request(cdi_devices=("nvidia.com/gpu=0",), source="driver"), "cdi-with-source", "cdi_devices"),
        (Request(cdi_devices=("nvidia.com/gpu=0",), gpus="0"), "cdi-with-gpus", "cdi_devices and gpus"),
    ],
)
def test_a_request_that_the_command_line_refuses_is_refused(request_: Request, code: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        gpubind.plan(HOST, request_)
    assert caught.value.code == code
    assert says in f"{caught.value.what} {caught.value.why}"
    assert "--" not in caught.value.what or code == "bad-gpus"


def test_a_request_has_the_defaults_of_the_command_line() -> None:
    request = validate_request(Request())
    assert (request.vendors, request.caps_explicit, request.capabilities) == ((), False, DEFAULT_CAPABILITIES)
    assert Request(caps=("compute",)).caps_explicit
    assert Request(caps=("compute",)).caps_named
    assert validate_request(Request(cdi_devices=("nvidia.com/gpu=0",))).source == "cdi"


def test_lists_and_doubled_slashes_have_one_form() -> None:
    request = validate_request(Request(caps=["utility", "compute"], libdir=ContainerPath("//opt//lib/")))  # type: ignore[arg-type]
    assert (request.caps, request.libdir) == (("compute", "utility"), "/opt/lib")
    assert validate_request(request) == request


def test_a_plan_is_rendered_as_the_command_line_prints_it() -> None:
    start = gpubind.open_runtime(HOST, "apptainer")
    made = gpubind.plan(HOST, Request(caps=("utility",)), start=start)
    assert gpubind.render(made, "json") == made.to_json()
    said = gpubind.render(made, "apptainer", host=HOST)
    assert "--bind /usr/lib/" in said
    assert gpubind.render(made, "apptainer", start=start, host=HOST) == said


def test_a_plan_for_other_places_is_not_rendered_for_a_runtime() -> None:
    with pytest.raises(UsageError, match="other-layout"):
        gpubind.render(gpubind.plan(HOST, Request()), "apptainer", host=HOST)
    with pytest.raises(UsageError, match="unknown-format"):
        gpubind.render(gpubind.plan(HOST, Request()), "apptainerr", host=HOST)


def test_a_start_of_another_runtime_is_refused_and_one_of_the_same_kind_is_not() -> None:
    start = gpubind.open_runtime(HOST, "podman")
    made = gpubind.plan(HOST, Request(caps=("utility",)), start=start)
    for form in ("udocker", "apptainer", "oci"):
        with pytest.raises(UsageError, match="other-runtime"):
            gpubind.render(made, form, start=start, host=HOST)
    contained = gpubind.open_runtime(HOST, "apptainer")
    made = gpubind.plan(HOST, Request(caps=("utility",)), start=contained)
    assert "--bind" in gpubind.render(made, "singularity", start=contained, host=HOST)


@pytest.mark.parametrize("form", ["cdi", "compose", "kubernetes"])
def test_a_document_of_mounts_is_rendered_as_the_command_line_prints_it(form: str, tmp_path: Path) -> None:
    words = ("plan", "--nv", "--host", BUNDLED_HOSTS[0], "--format", form, "-q")
    layout = gpubind.open_layout(HOST, form)
    made = gpubind.plan(HOST, Request(vendors=("nvidia",), gpus="all"), layout=layout)
    assert gpubind.render(made, form) == command(*words).stdout
    with pytest.raises(UsageError, match="other-layout"):
        gpubind.render(gpubind.plan(HOST, Request()), form)
    with pytest.raises(UsageError, match="fixed-libdir"):
        gpubind.plan(HOST, Request(vendors=("nvidia",), libdir=ContainerPath("/opt/x")), layout=layout)


def test_a_document_that_is_kept_wants_a_place_for_its_files() -> None:
    manifest = json.dumps({"file_format_version": "1.0.1", "ICD": {"library_path": "/nix/lib/libGLX_nvidia.so.0"}})
    on = host(rhel(), kernel(), {"/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json": manifest})
    made = gpubind.plan(on, Request(vendors=("nvidia",)), layout=gpubind.open_layout(on, "cdi"))
    assert made.generated
    with pytest.raises(gpubind.RuntimeLimitError, match="no-stage-dir") as caught:
        gpubind.render(made, "cdi")
    what = "a directory that only you may write to, that everybody may read, and that stays"
    assert caught.value.hint == f"--stage-dir DIR: {what}"


@pytest.mark.parametrize("form", ["table", "lmod", "tcl", "taskprolog"])
def test_a_form_of_the_command_line_alone_is_refused_as_that(form: str) -> None:
    with pytest.raises(UsageError, match="unknown-format") as caught:
        gpubind.render(gpubind.plan(HOST, Request()), form)
    assert caught.value.what == f"`{form}` is printed only by the command line"
    is_table = form == "table"
    assert caught.value.hint == ("`tsv` has the same in columns" if is_table else f"`gpubind plan --format {form}`")
    assert caught.value.why == ("it is for people" if is_table else "it depends on the environment of the caller")
    with pytest.raises(UsageError, match="unknown-format"):
        gpubind.open_layout(HOST, form)


def test_the_document_of_a_check_is_that_of_the_command_line() -> None:
    reference = "docs/examples/cuda13.sif"
    opened = gpubind.open_image(Path(reference))
    start = gpubind.open_runtime(HOST, "apptainer")
    made = gpubind.plan(HOST, Request(vendors=("nvidia",)), image=opened, start=start)
    program = "/opt/app/solve"
    findings = gpubind.check(HOST, made, opened, backend="apptainer", program=program)
    named = {"host": BUNDLED_HOSTS[0], "reference": reference, "program": program, "backend": "apptainer"}
    words = ("--nv", "--host", BUNDLED_HOSTS[0], "--image", reference, "--program", program, "--backend", "apptainer")
    assert gpubind.check_document(made, findings, opened, **named) == json.loads(
        command("check", "--json", *words).stdout
    )


def test_the_report_of_a_check_is_that_of_the_command_line_with_what_a_site_changes(tmp_path: Path) -> None:
    reference, program, options = "docs/examples/cuda13.sif", "/opt/app/solve", ["--contain"]
    opened, start = gpubind.open_image(reference), gpubind.open_runtime(HOST, "apptainer", options)
    made = gpubind.plan(HOST, Request(vendors=("nvidia",)), image=opened, start=start)
    made_report = gpubind.report(
        HOST,
        made,
        opened,
        backend="apptainer",
        arguments=options,
        program=program,
        ignore={"image-libc": "--ignore"},
        severities={"cuda-too-new": "warning"},
    )
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind/config.toml").write_text('[severity]\ncuda-too-new = "warning"\n')
    words = ("--nv", "--host", BUNDLED_HOSTS[0], "--image", reference, "--program", program, "--backend", "apptainer")
    more = ("--backend-arg", "--contain", "--ignore", "image-libc")
    document = json.loads(command("check", "--json", *words, *more, env={"XDG_CONFIG_HOME": str(tmp_path)}).stdout)
    for changed in document["changed"]:
        assert changed["by"] == f"{tmp_path}/gpubind/config.toml"
        changed["by"] = "severities"
    assert made_report.to_dict() == document
    assert (made_report.rules, made_report.linked, made_report.host_name) == ((), (), BUNDLED_HOSTS[0])
    assert made_report.verdict == document["verdict"]
    assert [one["code"] for one in (*document["ignored"], *document["changed"])] == ["image-libc", "cuda-too-new"]


def test_a_code_or_a_severity_that_does_not_exist_is_wrong_use_in_a_report() -> None:
    made = gpubind.plan(HOST, Request())
    for named in ({"only": ["uvm-mising"]}, {"ignore": {"uvm-mising": ""}}, {"severities": {"uvm-mising": "note"}}):
        with pytest.raises(UsageError, match="unknown-code"):
            gpubind.report(HOST, made, **named)
    with pytest.raises(UsageError, match="wrong-type"):
        gpubind.report(HOST, made, severities={"uvm-missing": "grave"})


@pytest.mark.parametrize("document", [[], None, "plan"])
def test_what_is_no_plan_at_all_has_no_place_of_its_own(document: Any) -> None:
    with pytest.raises(gpubind.FormatError) as caught:
        gpubind.Plan.from_dict(document)
    assert caught.value.where == "the whole document"


def test_a_start_that_is_not_done_is_that_of_the_command_line() -> None:
    image = "docs/examples/cuda13.sif"
    made = gpubind.start(
        image, ["/opt/app/solve"], backend="apptainer", arguments=["--contain"], host=HOST, dry_run=True
    )
    words = ("--backend", "apptainer", "--backend-arg", "--contain", image, "/opt/app/solve")
    printed = command("exec", "--host", BUNDLED_HOSTS[0], "--dry-run", *words).stdout
    assert list(made.argv) == shlex.split(printed.replace("\\\n", ""))


LINE = ("apptainer", "exec", "--nv", "--contain", "docs/examples/cuda13.sif", "true")


def test_a_wrapped_line_is_that_of_the_command_line() -> None:
    made = gpubind.wrap(LINE, host=HOST, dry_run=True)
    document = json.loads(command("wrap", "--host", BUNDLED_HOSTS[0], "--dry-run", "--json", "--", *LINE).stdout)
    assert_fits(document, "command")
    assert (document["argv"], document["changed"], document["file"]) == (list(made.argv), made.changed, made.file)
    assert [found["code"] for found in document["findings"]] == [found.code for found in made.findings]
    assert "image-libc" in [found.code for found in made.findings]
    assert made.changed
    assert "--nv" not in made.argv


@pytest.mark.parametrize("action", ["exec", "run"])
def test_a_check_of_a_line_looks_for_the_command_of_exec_and_for_no_arguments_of_run(
    tmp_path: Path, action: str
) -> None:
    image = make_tree(tmp_path, glibc()).root
    made = gpubind.wrap(("apptainer", action, "--nv", image, "/nothing"), host=HOST, dry_run=True, check=True)
    assert ("program-missing" in [found.code for found in made.findings]) is (action == "exec")


def test_the_document_of_a_line_has_the_differences_of_the_environment() -> None:
    words = ("wrap", "--host", BUNDLED_HOSTS[0], "--dry-run", "--json", "--", *LINE)
    document = json.loads(command(*words, env={"APPTAINER_NV": "1"}).stdout)
    assert (document["set"], document["unset"]) == ({}, ["APPTAINER_NV"])


def test_the_json_of_a_line_is_not_for_a_start() -> None:
    done = command("wrap", "--json", "--", "docker", "ps")
    assert (done.returncode, json.loads(done.stdout)["hint"]) == (2, "add --dry-run")


@pytest.mark.parametrize("line", [("docker", "ps"), ("apptainer", "exec", "docs/examples/cuda13.sif", "true")])
def test_a_line_that_asks_for_no_gpu_stays_as_it_is(line: tuple[str, ...]) -> None:
    made = gpubind.wrap(list(line), host=HOST, dry_run=True)
    assert (made.argv, made.changed, made.findings) == (line, False, ())


def test_a_line_for_another_environment_is_planned_there() -> None:
    made = gpubind.wrap(("srun", *LINE), host=HOST, dry_run=True)
    package = str(Path(gpubind.__file__).with_name("__main__.py"))
    assert made.argv == ("srun", sys.executable, package, "wrap", "--", *LINE)
    with pytest.raises(UsageError, match="wrap-elsewhere"):
        gpubind.wrap(("srun", *LINE), host=HOST, check=True, dry_run=True)


def test_a_wrapped_line_is_for_one_environment_and_one_machine() -> None:
    with pytest.raises(UsageError, match="both a host and an environment"):
        gpubind.wrap(LINE, host=HOST, environ={}, dry_run=True)
    with pytest.raises(UsageError, match="host-to-start"):
        gpubind.wrap(LINE, host=HOST)


def test_the_environment_of_the_host_is_that_of_a_wrapped_line() -> None:
    host = gpubind.open_host(BUNDLED_HOSTS[0], environ={"CUDA_VISIBLE_DEVICES": "0", "APPTAINER_NV": "1"})
    made = gpubind.wrap(("apptainer", "exec", "-c", "docs/examples/cuda13.sif", "true"), host=host, dry_run=True)
    assert made.changed
    assert "APPTAINER_NV" not in made.environ


def test_a_start_without_a_command_runs_what_the_image_runs() -> None:
    made = gpubind.start("docs/examples/cuda13.sif", backend="apptainer", host=HOST, dry_run=True)
    assert made.argv[1] == "run"


def test_a_start_needs_a_machine_and_a_check_that_finds_no_error() -> None:
    with pytest.raises(UsageError, match="host-to-start"):
        gpubind.start("docs/examples/cuda13.sif", ["true"], host=HOST)
    with pytest.raises(gpubind.CheckError, match="check-failed") as caught:
        gpubind.start("docs/examples/cuda13.sif", ["true"], backend="apptainer", host=HOST, check=True, dry_run=True)
    assert [(one.code, one.severity) for one in caught.value.findings] == [("cuda-too-new", "error")]
    assert pickle.loads(pickle.dumps(caught.value)).findings == caught.value.findings


def test_a_gpu_that_is_required_fails_for_the_findings_of_the_error() -> None:
    broken = host(rhel())
    with pytest.raises(gpubind.CheckError, match="gpu-required") as caught:
        gpubind.start("docker://x", host=broken, backend="apptainer", require_gpu=True, dry_run=True)
    assert [one.code for one in caught.value.findings] == ["driver-not-loaded"]


def test_without_a_handler_the_findings_of_a_start_are_not_on_standard_error() -> None:
    start = "gpubind.start('docs/examples/cuda13.sif', backend='apptainer', host=host, check=True, dry_run=True)"
    opened = f"import gpubind\nhost = gpubind.open_host({BUNDLED_HOSTS[0]!r})\n"
    code = f"{opened}try: {start}\nexcept gpubind.CheckError: print('end')"
    for more, is_empty in (("", True), ("import logging; logging.basicConfig()\n", False)):
        done = subprocess.run([sys.executable, "-c", more + code], capture_output=True, text=True)
        assert (done.stdout, done.stderr == "") == ("end\n", is_empty)


def test_a_finding_is_shown_as_check_prints_it() -> None:
    finding = gpubind.Finding("a-code", "error", None, "it", "what\n", "/a", "why", "do", "one\ntwo")
    lines = [
        "error: a-code: what\\x0a",
        "  where: /a",
        "  why:   why",
        "  hint:  do",
        "         $ one",
        "         $ two",
    ]
    assert str(finding) == f"{finding}" == "\n".join(lines)
    assert str(gpubind.check(HOST, gpubind.plan(HOST, Request()))).startswith("note: vendor-neutral-left-out: ")


def test_what_a_console_shows_of_a_value_is_one_line_with_its_facts() -> None:
    plan = gpubind.plan(HOST, Request(vendors=("nvidia",)))
    assert repr(plan) == f"<Plan: {plan.summary}>"
    assert plan.summary.startswith("nvidia 550.163.01, CUDA 12.4; ")
    assert plan.summary.endswith(f"; digest {plan.digest[:12]}")
    assert repr(HOST) == "<RecordedHost 'debian13-nvidia550': x86_64>"
    assert repr(gpubind.open_host(root=Path("/usr"), dev_root="/")).endswith(", driver root '/usr'>")
    with gpubind.open_image("docs/examples/cuda13.sif") as opened:
        shown = "<Image 'docs/examples/cuda13.sif': sif, x86_64, glibc 2.36, CUDA 13.0.1"
        assert repr(opened) == f"{shown}>"
    assert repr(opened) == f"{shown}, closed>"
    hostile = plan._replace(libdir=None, request=plan.request._replace(like="a\x1b[31m\nb"))
    assert repr(hostile).isprintable()


def test_a_value_that_is_shown_shortly_is_equal_and_pickled_as_before() -> None:
    plan = gpubind.plan(HOST, Request())
    again = pickle.loads(pickle.dumps(plan))
    assert (again, hash(again.digest), again._asdict()) == (plan, hash(plan.digest), plan._asdict())
    found = gpubind.check(HOST, plan)
    assert pickle.loads(pickle.dumps(found)) == tuple(found) == found


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "a&b", "\"'", "\x1b[31m", "\udcff\udc80", "\u202e"])
def test_a_notebook_shows_tables_in_which_every_text_is_escaped(hostile: str) -> None:
    plan = gpubind.plan(HOST, Request(vendors=("nvidia",)))
    mount = plan.mounts[0]._replace(target=ContainerPath(f"/lib/{hostile}"), kind="file")
    variable = plan.env[0]._replace(value=hostile)
    shown = plan._replace(mounts=(mount, *plan.mounts[1:]), env=(variable,))._repr_html_()  # type: ignore[attr-defined]
    finding = gpubind.Finding("a-code", "error", None, hostile, hostile, hint=hostile, command=f"{hostile}\nb")
    for text in (shown, Findings((finding,))._repr_html_()):
        HTMLParser().feed(text)
        assert set(re.findall(r"</?([a-z]+)", text)) <= {"table", "caption", "tr", "th", "td", "p"}
        assert hostile not in text
        assert text.encode().decode().replace("\n", "").isprintable()
    assert f"<p>{plan.summary}</p>" in shown
    assert Findings(())._repr_html_() == "<p>no findings</p>"


def test_a_notebook_needs_no_package_of_the_reports() -> None:
    code = f"""
import sys
import gpubind
sys.modules["jinja2"] = sys.modules["rich"] = None
host = gpubind.open_host({BUNDLED_HOSTS[0]!r})
plan = gpubind.plan(host, gpubind.Request())
print(plan._repr_html_()[:7], gpubind.check(host, plan)._repr_html_()[:7])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "<table> <table>\n"


def test_a_start_gives_its_findings_to_a_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "gpubind"):
        gpubind.start("docs/examples/cuda13.sif", ["true"], backend="apptainer", host=HOST, dry_run=True)
    assert "devices-not-isolated" in caplog.text


def test_a_start_becomes_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "apptainer").write_text('#!/bin/sh\necho "$0" "$1"; exit 7\n')
    (tmp_path / "apptainer").chmod(0o755)
    (tmp_path / "root").mkdir()
    host = f"gpubind.open_host(root={str(tmp_path / 'root')!r})"
    code = f"import gpubind; gpubind.start('docker://x', ['true'], host={host})"
    environ = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (7, f"{tmp_path}/apptainer exec"), done.stderr


def test_a_record_may_be_given_as_a_path(tmp_path: Path) -> None:
    record = tmp_path / "node.json"
    record.write_bytes(read_data(f"model/data/hosts/{BUNDLED_HOSTS[0]}.json"))
    assert gpubind.plan(gpubind.open_host(record), Request()).digest == gpubind.plan(HOST, Request()).digest
    with pytest.raises(gpubind.NothingToBindError):
        gpubind.plan(gpubind.open_host(root=tmp_path, dev_root=tmp_path), Request())


def test_all_capabilities_have_one_name() -> None:
    made = gpubind.plan(HOST, Request(vendors=("nvidia",), caps=("all",)))
    assert made.request.caps == CAPABILITIES


@pytest.mark.parametrize("document", [[], None, "{}"])
def test_what_is_no_object_is_no_plan(document: Any) -> None:
    with pytest.raises(FormatError, match="bad-plan"):
        gpubind.Plan.from_dict(document)


@pytest.mark.parametrize("runtime", ["proot", "ch-run", "apptainer"])
def test_a_plan_that_counts_gpus_otherwise_is_not_said_for_a_runtime(runtime: str) -> None:
    contained = gpubind.open_runtime(HOST, "apptainer", ["--contain"]) if runtime == "apptainer" else None
    made = gpubind.plan(HOST, Request(vendors=("nvidia",), gpus="1"), start=contained)
    start = gpubind.open_runtime(HOST, runtime)
    with pytest.raises(UsageError, match="other-layout"):
        gpubind.render(made, runtime, host=HOST)
    with pytest.raises(UsageError, match="other-layout"):
        gpubind.words(made, start)
    its_own = gpubind.plan(HOST, Request(vendors=("nvidia",), gpus="1"), start=start)
    assert ("CUDA_VISIBLE_DEVICES", "1") in [(variable.name, variable.value) for variable in its_own.env]
    gpubind.words(its_own, start)


def test_a_record_may_cost_more_than_another_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dozen releases of ROCm have more libraries than any image."""
    names = [f"librocblas{number}.so" for number in range(30)]
    make_tree(tmp_path, {f"/opt/rocm-6.1.0/lib/{name}": elf(name) for name in names})
    least = BOUNDS["facts"]._replace(amount=100 * len(names) - 1)
    monkeypatch.setitem(BOUNDS, "facts", least)
    record = gpubind.record(gpubind.open_host(root=str(tmp_path), dev_root=str(tmp_path)))
    assert names[-1] in record


def test_a_document_of_a_later_gpubind_is_refused_as_that() -> None:
    document = gpubind.plan(HOST, Request()).to_dict()
    with pytest.raises(FormatError) as caught:
        gpubind.Plan.from_dict({**document, "schema": "gpubind.plan/2"})
    assert (caught.value.what, caught.value.hint) == ("a later gpubind made this document", "update gpubind")
    with pytest.raises(FormatError, match="gpubind did not make this document"):
        gpubind.Plan.from_dict({**document, "schema": "gpubind.plan/x"})


@pytest.mark.parametrize(
    ("member", "change"),
    [("mounts", {"target": "/bin/sh"}), ("devices", {"target": "/dev/sda"}), ("env", {"value": "/x"})],
)
def test_a_document_that_was_changed_is_refused_by_its_digest(member: str, change: dict[str, str]) -> None:
    document = gpubind.plan(HOST, Request()).to_dict()
    first, *others = document[member]
    changed = {**document, member: [{**first, **change}, *others]}
    with pytest.raises(FormatError, match="bad-plan") as caught:
        gpubind.Plan.from_dict(changed)
    assert caught.value.place == "digest"
    assert gpubind.Plan.from_dict({**changed, "gpubind": "0.0.1"})  # another version may hash other members


PLAN = gpubind.plan(HOST, Request())
START = gpubind.open_runtime(HOST, "apptainer")
ANY: Any = gpubind  # whose types nobody checks
MISUSE = {
    "plan of a name": lambda: ANY.plan("debian13-nvidia550", Request()),
    "plan of no request": lambda: ANY.plan(HOST, None),
    "plan of a dictionary": lambda: ANY.plan(HOST, {"caps": ["compute"]}),
    "plan for a path": lambda: ANY.plan(HOST, Request(), image="x.sif"),
    "plan with a listfile's path": lambda: ANY.plan(HOST, Request(), "nvliblist.conf"),
    "plan for a runtime's name": lambda: ANY.plan(HOST, Request(), start="apptainer"),
    "plan with a layout's name": lambda: ANY.plan(HOST, Request(), layout="cdi"),
    "runtime without a name": lambda: ANY.open_runtime(HOST, None),
    "runtime with one word": lambda: ANY.open_runtime(HOST, "apptainer", "--contain"),
    "runtime with numbers": lambda: ANY.open_runtime(HOST, "apptainer", [1]),
    "layout of no form": lambda: ANY.open_layout(HOST, None),
    "check in a path": lambda: ANY.check(HOST, PLAN, "x.sif"),
    "check of no plan": lambda: ANY.check(HOST, None),
    "check with one word": lambda: ANY.check(HOST, PLAN, backend="apptainer", arguments="--contain"),
    "document of words": lambda: ANY.check_document(PLAN, ["error"]),
    "differences of a list": lambda: ANY.diff([PLAN]),
    "differences of a document": lambda: ANY.diff({"a": PLAN, "b": PLAN.to_dict()}),
    "words for nothing": lambda: ANY.words(PLAN, None),
    "words of nothing": lambda: ANY.words(None, START),
    "render of nothing": lambda: ANY.render(None, "tsv"),
    "render as nothing": lambda: ANY.render(PLAN, None),
    "record of a name": lambda: ANY.record("debian13-nvidia550"),
    "explain nothing": lambda: ANY.explain(PLAN, None),
    "image without a name": lambda: ANY.open_image(None),
    "host by a number": lambda: ANY.open_host(5),
    "host with numbers": lambda: ANY.open_host(environ={"CUDA_VISIBLE_DEVICES": 0}),
}


@pytest.mark.parametrize("misuse", MISUSE)
def test_an_argument_of_another_type_is_wrong_use(misuse: str) -> None:
    with pytest.raises(UsageError) as caught:
        MISUSE[misuse]()
    assert caught.value.code == "wrong-type"
    assert " wants a" in caught.value.what
    assert_golden(GOLDEN / "library_errors.md", in_full(caught.value), part=misuse)


CHOSEN = gpubind.plan(HOST, Request(vendors=("nvidia",), gpus="0"), start=START)
ISOLATED = gpubind.open_runtime(HOST, "apptainer", ["--contain"])
IN_RECORD = "debian13-nvidia550"
REFUSED: dict[str, Callable[[], object]] = {
    "check of a program without an image": lambda: gpubind.check(HOST, PLAN, program="/bin/sh"),
    "report on an unknown code": lambda: gpubind.report(HOST, PLAN, only=["uvm-mising"]),
    "report with an unknown severity": lambda: gpubind.report(HOST, PLAN, severities={"uvm-missing": "warnin"}),
    "trial on a record": lambda: gpubind.check(HOST, PLAN, try_=True, backend="apptainer"),
    "render for another layout": lambda: gpubind.render(PLAN, "apptainer", host=HOST),
    "render as a document for another layout": lambda: gpubind.render(PLAN, "cdi"),
    "render for another runtime": lambda: gpubind.render(PLAN, "podman", start=START, host=HOST),
    "render as an unknown form": lambda: gpubind.render(PLAN, "apptainerr", host=HOST),
    "render as a misspelt document": lambda: gpubind.render(PLAN, "kubernetess"),
    "words for another layout": lambda: gpubind.words(PLAN, START),
    "words for a choice in another dev": lambda: gpubind.words(CHOSEN, ISOLATED),
    "start on a record": lambda: gpubind.start("x.sif", host=HOST),
    "wrap with a host and an environment": lambda: gpubind.wrap(["apptainer"], host=HOST, environ={}),
    "links of no program": lambda: links(LinksRequest(" ", HOST)),
    "links of a program that a record lacks": lambda: links(LinksRequest("/usr/bin/nosuch", HOST)),
    "links of a library that a record lacks": lambda: links(LinksRequest("libnosuch.so.1", HOST)),
    "links of a directory": lambda: links(LinksRequest("/usr/bin", HOST)),
    "links in an image": lambda: links(LinksRequest("nosuch", HOST, PlanQuery(), image(glibc()), "x.sif")),
    "diff of one host": lambda: snapshots(DiffRequest((IN_RECORD,))),
    "layout of an unknown form": lambda: gpubind.open_layout(HOST, "apptainer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_library_refuses_has_a_whole_error(name: str) -> None:
    with pytest.raises(gpubind.GpubindError) as caught:
        REFUSED[name]()
    assert_golden(GOLDEN / "library_errors.md", in_full(caught.value), part=name)


def in_full(error: gpubind.GpubindError) -> str:
    """Every text of *error*, for a golden file."""
    texts = {name: getattr(error, name) for name in ("what", "where", "why", "hint")}
    return f"\n{error.code}\n\n" + "".join(f"- {name}: {text}\n" for name, text in texts.items() if text)


def test_every_function_of_the_library_is_held_to_its_types() -> None:
    functions = [getattr(gpubind, name) for name in gpubind.__all__ if name.islower() and not name.startswith("_")]
    assert [function.__name__ for function in functions if not hasattr(function, "__wrapped__")] == []


def test_a_value_too_many_is_a_type_error_as_for_any_function() -> None:
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
        ANY.needs(image(glibc()), "sh", "more")


@pytest.mark.parametrize(
    ("misuse", "what", "hint"),
    [
        (lambda: ANY.plan("x", Request()), "host wants a Host", "`open_host()` returns one"),
        (lambda: ANY.plan(HOST, "x"), "request wants a Request", "`Request()` is one"),
        (lambda: ANY.plan(HOST, Request(), image="x"), "image wants an Image", "`open_image(REFERENCE)` returns one"),
        (
            lambda: ANY.plan(HOST, Request(), layout="x"),
            "layout wants a Layout",
            "`open_layout(host, FORM)` returns one",
        ),
        (
            lambda: ANY.plan(HOST, Request(), start="x"),
            "start wants a Start",
            "`open_runtime(host, BACKEND)` returns one",
        ),
        (
            lambda: ANY.render("x", "json"),
            "plan wants a Plan",
            "`plan(host, request)` and `Plan.from_dict(document)` return one",
        ),
    ],
)
def test_where_a_value_is_wanted_the_error_says_what_returns_one(
    misuse: Callable[[], object], what: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        misuse()
    assert (caught.value.what, caught.value.hint) == (f"{what}, not 'x'", hint)


@pytest.mark.parametrize("runtime", ["apptainer", "podman", "docker"])
def test_words_and_render_refuse_a_plan_of_another_layout(runtime: str) -> None:
    start = gpubind.open_runtime(HOST, runtime)
    for use in (lambda: gpubind.words(PLAN, start), lambda: gpubind.render(PLAN, runtime, start=start, host=HOST)):
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.code == "other-layout"
        assert caught.value.hint == f"plan with start=open_runtime(host, {runtime!r})"
    made = gpubind.plan(HOST, Request(), start=start)
    assert gpubind.words(made, start) is not None


def test_a_plan_of_another_host_is_not_checked() -> None:
    other = host(rhel(), kernel())
    with pytest.raises(UsageError, match="other-host") as caught:
        gpubind.check(other, gpubind.plan(HOST, Request()))
    assert "550.163.01" in caught.value.where
    assert gpubind.check(other, gpubind.plan(other, Request())) is not None


def test_two_environments_in_one_process_give_two_plans(tmp_path: Path) -> None:
    spec = {**rhel(), **kernel()}
    make_tree(tmp_path / "root", {name: item for name, item in spec.items() if not name.startswith("/dev/")})
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind" / "nvliblist.conf").write_text("libcuda.so\n")
    tasks = ({"PATH": "/usr/bin"}, {"PATH": "/bin", "XDG_CONFIG_HOME": str(tmp_path), "APPTAINERENV_A": "b"})
    plans, starts = [], []
    for task in tasks:
        with gpubind.open_host(root=tmp_path / "root", dev_root=tmp_path / "root", environ=task) as on:
            plans.append(gpubind.plan(on, Request(vendors=("nvidia",))))
            starts.append(gpubind.open_runtime(on, "apptainer"))
    names = [{mount.soname for mount in made.mounts if mount.kind == "library"} for made in plans]
    assert names[1] == {"libcuda.so.1"} < names[0]
    assert [start.caller.environ for start in starts] == list(tasks)


def test_plans_are_compared_by_name() -> None:
    smaller = gpubind.plan(HOST, Request(gpus="0", caps=("compute",)))
    compared = gpubind.diff({"a": PLAN, "b": smaller, "c": PLAN})
    assert [group.hosts for group in compared.groups] == [("a", "c"), ("b",)]
    assert not compared.is_equal
    lost = {one.name for one in compared.groups[1].differences if one.field == "presence"}
    assert "libnvoptix.so.1" in lost
    assert "libcuda.so.1" not in lost


def test_what_an_image_needs_is_what_the_command_line_prints() -> None:
    reference = "docs/examples/cuda13.sif"
    document = json.loads(command("needs", reference, "--json").stdout)
    with gpubind.open_image(reference) as opened:
        made = json.loads(json.dumps(gpubind.needs(opened).to_dict()))
    assert made.items() <= document.items()


def test_an_explanation_has_the_decisions_that_the_command_line_prints() -> None:
    document = json.loads(command("explain", "libcuda.so.1", "--nv", "--host", BUNDLED_HOSTS[0], "--json").stdout)
    made = gpubind.explain(gpubind.plan(HOST, Request(vendors=("nvidia",))), "libcuda.so.1")
    assert [subject["subject"] for subject in document["subjects"]] == [subject for subject, _ in made.subjects]
    decisions = [decision for subject in document["subjects"] for decision in subject["decisions"]]
    assert decisions == [json.loads(json.dumps(one._asdict())) for _, several in made.subjects for one in several]
    assert document["searched"] == list(made.searched)


def test_a_comparison_of_plans_is_that_of_the_command_line(tmp_path: Path) -> None:
    plans = {f"{number}": gpubind.plan(HOST, Request(gpus=gpus)) for number, gpus in enumerate(("all", "all", "1"))}
    for name, made in plans.items():
        (tmp_path / f"{name}.json").write_text(made.to_json())
    document = json.loads(command("diff", "--json", *(f"{tmp_path}/{name}.json" for name in plans)).stdout)
    assert diff_document(gpubind.diff(plans)) == document
    assert [group["hosts"] for group in document["groups"]] == [["0", "1"], ["2"]]


def test_an_old_name_works_for_one_release_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="gpubind.TrialOutcome now"):
        assert gpubind.Tried is gpubind.TrialOutcome  # type: ignore[attr-defined]
    outcome = gpubind.TrialOutcome(gpubind.Prediction("loads", "x", (), False, "", ("libx.so",)), False, "liby.so")
    with pytest.warns(DeprecationWarning, match="TrialOutcome.fails_differently now"):
        assert outcome.has_other_reason is outcome.fails_differently is True
    with pytest.warns(DeprecationWarning, match="Expectation.source_file now"):
        assert gpubind.Expectation("node.toml").origin == "node.toml"
