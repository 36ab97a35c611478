"""Each rule fires where it should, and not where it almost should."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from gpubind.model import Finding
from gpubind.model.findings import finding_texts
from gpubind.rules.host import engines
from gpubind.rules.table import MODULES, RULES, functions_by_code
from tests.rules import cases_image
from tests.rules.followed import CASES
from tests.rules.followed import MODULES as CASE_MODULES
from tests.rules.situations import Situation, found, in_full, started, without
from tests.rules.variants import VARIANTS
from tests.support.driver import kernel, rhel
from tests.support.elf import elf, stub
from tests.support.golden import GOLDEN, assert_golden, assert_listed, assert_none
from tests.support.images import glibc, image
from tests.support.ldcache import build_ldcache, entry
from tests.support.starts import start
from tests.support.trees import Link, Spec

DATA = "gpubind/model/data/findings.json"


def test_every_rule_has_a_case_where_it_fires_and_one_where_it_is_almost_so() -> None:
    find = functions_by_code()
    for rule in RULES:
        vendor = finding_texts()[rule.code].get("vendor")
        is_about_engines = find.get(rule.code) in vars(engines).values()
        topic = vendor if vendor in ("amd", "intel") else "engines" if is_about_engines else rule.needs
        file = f"tests/rules/cases_{topic if topic in ('amd', 'intel', 'engines', 'host') else 'image'}.py"
        case = '`"{}": Case(fires=Situation(...), almost=Situation(...))`'
        assert_listed(CASES, [rule.code], add=f"{file}: add {case} to CASES: where it is so, and where it almost is")
    remove = f"{DATA}: add the row `{{}}`, or remove its case in tests/rules/cases_*.py"
    assert_listed(CASES, [rule.code for rule in RULES], add="", remove=remove)


def test_every_rule_has_its_case_in_one_file() -> None:
    files: dict[str, list[str]] = {}
    for module in CASE_MODULES:
        for code in module.CASES:
            files.setdefault(code, []).append(f"{module.__name__.replace('.', '/')}.py")
    twice = [f"`{code}` in {' and '.join(several)}" for code, several in files.items() if len(several) > 1]
    assert_none(twice, "{}: remove one of the two cases")


@pytest.mark.parametrize("name", [name for names in MODULES.values() for name in names])
def test_a_rule_is_called_as_a_code_and_takes_a_preflight(name: str) -> None:
    module = import_module(f"gpubind.rules.{name}")
    functions = [thing for name, thing in vars(module).items() if callable(thing) and not name.startswith("_")]
    hints = {thing: thing.__annotations__ for thing in functions if thing.__module__ == module.__name__}
    found = {thing: hint["preflight"] for thing, hint in hints.items() if hint.get("return") == "Iterator[Finding]"}
    needed = {find: "Preflight" for find in functions_by_code().values() if find.__module__ == module.__name__}
    file = f"{module.__name__.replace('.', '/')}.py"
    assert_listed(
        [f"{function.__name__}(preflight: {kind})" for function, kind in found.items()],
        [f"{function.__name__}(preflight: {kind})" for function, kind in needed.items()],
        add=f"{file}: write `def {{}} -> Iterator[Finding]`, or remove its code from {DATA}",
        remove=f"{file}: `{{}}` is not the rule of a code. Begin its name with `_` if it is a part of another rule; "
        f"otherwise add the row of its code (its name, with `-` for `_`) to {DATA}",
    )


@pytest.mark.parametrize("code", sorted(CASES))
def test_a_rule_fires_where_it_is_so_and_not_where_it_is_almost_so(code: str) -> None:
    others = found(CASES[code].fires)
    findings = [finding for finding in others if finding.code == code]
    assert findings, f"the case `{code}` of tests/rules/cases_*.py: `fires` gives only {[one.code for one in others]}"
    assert all(finding.hint for finding in findings), f"{DATA}, `{code}`: write `hint`"
    rule = next(rule for rule in RULES if rule.code == code)
    severities = sorted({finding.severity for finding in findings})
    assert_listed(rule.severities, severities, add=f"{DATA}, `{code}`: add `{{}}` to `severity`")
    told = [finding.what for finding in found(CASES[code].almost) if finding.code == code]
    assert_none(told, f"the case `{code}` of tests/rules/cases_*.py: `almost` must not give the finding: {{}}")
    assert_golden(GOLDEN / "findings.md", in_full(findings), part=code)


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_another_case_of_a_finding_has_its_own_texts(name: str) -> None:
    findings = [finding for finding in found(VARIANTS[name]) if finding.code == name.partition(":")[0]]
    assert findings, f"tests/rules/variants.py: `{name}` does not give the finding"
    assert_golden(GOLDEN / "findings.md", in_full(findings), part=name)


def test_the_facts_of_a_job_cannot_be_changed_after_it_was_made() -> None:
    job = started(Situation((rhel(), kernel())))
    with pytest.raises(AttributeError, match=r"^a Preflight is frozen, and backend cannot be set$"):
        job.backend = "docker"


def test_a_healthy_host_has_no_error() -> None:
    assert [f.code for f in found(Situation((rhel(), kernel()))) if f.severity != "note"] == []


def test_a_driver_in_the_image_is_an_error_if_the_plan_brings_none() -> None:
    opened = image(glibc(), {cases_image.LIBCUDA: elf("libcuda.so.1")})
    severities = [f.severity for f in found(Situation((kernel(),), opened)) if f.code == "driver-in-image"]
    assert severities == ["error"]


@pytest.mark.parametrize(
    ("parts", "soname", "severity"),
    [
        pytest.param((kernel(),), "libcuda.so.1", "error", id="programs-open-it"),
        pytest.param((kernel(),), "libnvidia-ml.so.1", "warning", id="nvml"),
        pytest.param((rhel(), kernel()), "libcuda.so.1", "note", id="behind-the-hosts"),
    ],
)
def test_a_stub_in_the_images_own_place_is_a_stub_and_no_driver(
    parts: tuple[Spec, ...], soname: str, severity: str
) -> None:
    opened = image(glibc(), {f"/usr/lib/{soname}": stub(soname)})
    told = [(f.code, f.severity) for f in found(Situation(parts, opened)) if f.code.endswith("-in-image")]
    assert told == [("stub-in-image", severity)]


def test_a_copy_of_a_stub_on_the_host_is_called_a_stub_and_no_collision() -> None:
    names = [entry("libcuda.so", "/usr/local/lib/libcuda.so"), entry("libcuda.so.1", "/lib64/libcuda.so.1")]
    cache = build_ldcache(names)
    copy: Spec = {"/usr/local/lib/libcuda.so": stub(), "/lib64": Link("usr/lib64"), "/etc/ld.so.cache": cache}
    codes = {f.code: f for f in found(Situation((without(rhel(), "/etc/ld.so.cache"), copy, kernel())))}
    assert "name-collision" not in codes
    assert codes["stub-libcuda"].severity == "warning"
    assert (codes["stub-libcuda"].where or "").startswith("/usr/local/lib/libcuda.so ")


@pytest.mark.parametrize(
    ("request_", "severity"),
    [
        pytest.param({"caps": ("graphics",)}, "warning", id="by-name"),
        pytest.param({}, "warning", id="compute-and-utility-are-among-them"),
    ],
)
def test_a_place_that_is_missing_matters_for_what_was_asked_for(request_: dict[str, Any], severity: str) -> None:
    text = '{"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0"}}'
    case = CASES["no-mount-point"].fires
    case = case._replace(parts=(*case.parts, {"/usr/share/glvnd/egl_vendor.d/10_nvidia.json": text}), request=request_)
    (finding,) = [finding for finding in found(case) if finding.code == "no-mount-point"]
    assert finding.severity == severity


def test_libraries_of_the_driver_without_a_place_are_an_error_and_do_not_come_first() -> None:
    stubs: Spec = {"/usr/lib64/libcuda.so.1": stub()}
    begun = start(site_config={"enable overlay": ("no",), "enable underlay": ("no",)})
    case = Situation((rhel(), kernel()), image(glibc(), stubs), backend="apptainer", start=begun)
    codes = {finding.code: finding for finding in found(case)}
    assert codes["no-mount-point"].severity == "error"
    assert codes["stub-in-image"].where == "/usr/lib64/libcuda.so.1"


def test_errors_come_first() -> None:
    findings = found(Situation((rhel("535.54.03"), without(kernel(), "/dev/nvidia-uvm"))))
    ranks = [("error", "warning", "note").index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("code", [code for code, case in CASES.items() if not case.fires.policy])
def test_a_check_without_an_image_tells_a_fault_of_the_host_from_one_of_the_image(code: str) -> None:
    """Its errors are about the host only, and they are the errors about the host with any image: docs/howto.md."""
    for situation in CASES[code]:
        host_alone = situation._replace(image=None, program=None, trial=None)
        about_host, about_host_alone = (
            {(finding.code, finding.subject) for finding in found(each) if is_error_about_host(finding)}
            for each in (situation, host_alone)
        )
        assert about_host == about_host_alone
        of_host = found(host_alone._replace(backend=None, start=None, usual=None))
        assert [finding.code for finding in of_host if finding.severity == "error"] == [
            finding.code for finding in of_host if is_error_about_host(finding)
        ]


def is_error_about_host(finding: Finding) -> bool:
    return finding.severity == "error" and finding_texts()[finding.code]["needs"] == "host"
