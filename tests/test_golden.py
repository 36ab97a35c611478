"""Golden plans of each recorded host: the default one whole, byte for byte, and how the others differ from it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

import gpubind
from gpubind.documents.explanation import render_explanation
from gpubind.documents.mounts.cdi import render_cdi
from gpubind.documents.text import render_json, render_paths, render_tsv
from gpubind.model import CAPABILITIES, Plan, Request
from gpubind.model.data import BUNDLED_HOSTS, read_data
from gpubind.planner.placement import cdi_layout
from tests.support.golden import (
    GOLDEN,
    assert_fits,
    assert_golden,
    assert_listed,
    assert_rules_are_documented,
    differences,
    folded,
    spelled,
)

NVIDIA = {
    "default": Request(),
    "compute-utility": Request(caps=("compute", "utility")),
    "all": Request(caps=CAPABILITIES),
    "driver": Request(source="driver"),
    "no-completion": Request(completion=False),
    "like-apptainer": Request(like="apptainer"),
    "like-apptainer-1.5": Request(like="apptainer-1.5"),
    "like-singularity": Request(like="singularity"),
    "like-apptainer-nv-rocm": Request(vendors=("nvidia", "amd"), like="apptainer"),
}
AMD: dict[str, Request] = {
    "default": Request(vendors=("amd",)),
    "every-vendor": Request(vendors=()),
    "compute-utility": Request(vendors=("amd",), caps=("compute", "utility")),
    "utility": Request(vendors=("amd",), caps=("utility",)),
    "userspace-image": Request(vendors=("amd",), userspace="image"),
    "vendor-neutral-host": Request(vendors=("amd",), vendor_neutral="host"),
    "like-apptainer": Request(vendors=("amd",), like="apptainer"),
    "like-apptainer-1.5": Request(vendors=("amd",), like="apptainer-1.5"),
    "like-singularity": Request(vendors=("amd",), like="singularity"),
}
REQUESTS: dict[str, dict[str, Request]] = {host: NVIDIA if "nvidia" in host else AMD for host in BUNDLED_HOSTS}
CASES = [(host, name) for host in BUNDLED_HOSTS for name in REQUESTS[host]]


def make(host: str, name: str) -> Plan:
    return gpubind.plan(gpubind.open_host(host), REQUESTS[host][name])


def document(host: str, name: str) -> Any:
    return json.loads(render_json(make(host, name)))


@pytest.mark.parametrize("host", BUNDLED_HOSTS)
def test_the_default_plan_is_what_its_golden_file_says(host: str) -> None:
    text = render_json(make(host, "default")).replace(f'"gpubind": "{gpubind.__version__}"', '"gpubind": "VERSION"')
    assert_golden(GOLDEN / host / "default.json", text)


@pytest.mark.parametrize(("host", "name"), [case for case in CASES if case[1] != "default"])
def test_another_plan_differs_from_the_default_one_as_its_golden_file_says(host: str, name: str) -> None:
    """`like-apptainer-1.5` differs from `like-apptainer`. The digest has a test of its own."""
    less = max((other for other in REQUESTS[host] if name.startswith(f"{other}-")), key=len, default="default")
    found = differences(document(host, less), document(host, name))
    lines = [f"{path}: {spelled(made)}\n" for path, _, made in found if path != "digest"]
    assert_golden(GOLDEN / host / f"{name}.differs", "".join(lines))


@pytest.mark.parametrize(("host", "name"), CASES)
def test_a_plan_document_fits_the_schema(host: str, name: str) -> None:
    assert_fits(document(host, name), "plan")


@pytest.mark.parametrize(("host", "name"), CASES)
def test_every_rule_of_a_decision_is_documented_with_its_verdict(host: str, name: str) -> None:
    assert_rules_are_documented(make(host, name))


@pytest.mark.parametrize(("host", "name"), CASES)
def test_no_two_mounts_share_a_target_and_all_are_read_only_but_sockets(host: str, name: str) -> None:
    plan = make(host, name)
    targets = [mount.target for mount in plan.mounts]
    assert len(set(targets)) == len(targets)
    assert all("ro" in mount.options for mount in plan.mounts if mount.kind not in ("socket", "directory"))


@pytest.mark.parametrize("host", BUNDLED_HOSTS)
@pytest.mark.parametrize(
    ("form", "name"),
    [("text", "default"), ("paths", "default"), ("text", "like-apptainer"), ("explain", "default")],
)
def test_a_text_document_is_what_its_golden_file_says(host: str, form: str, name: str) -> None:
    plan = make(host, name)
    text = {
        "text": lambda: render_tsv(plan, verbose=True),
        "paths": lambda: render_paths(plan),
        "explain": lambda: render_explanation(
            gpubind.explain(plan, "libamd*" if REQUESTS[host] is AMD else "libnvidia-*")
        ),
    }[form]()
    assert_golden(GOLDEN / host / f"{name}.{form}", text)


@pytest.mark.parametrize("host", [host for host in BUNDLED_HOSTS if REQUESTS[host] is not AMD])
def test_the_digest_is_the_same_whichever_source_served(host: str) -> None:
    assert make(host, "default").digest == make(host, "driver").digest


@pytest.mark.parametrize("host", BUNDLED_HOSTS)
def test_the_digest_is_another_for_another_request(host: str) -> None:
    other = "utility" if REQUESTS[host] is AMD else "compute-utility"
    assert make(host, "default").digest != make(host, other).digest


def test_the_one_vendor_that_a_host_has_needs_no_name() -> None:
    named, found = make("mi300x-rocm62", "default"), make("mi300x-rocm62", "every-vendor")
    assert named == found


def test_the_schema_is_a_schema_and_knows_every_key() -> None:
    schema = json.loads(read_data("model/data/plan.schema.json"))
    jsonschema.Draft202012Validator.check_schema(schema)
    for part in ("properties", "required"):
        place = f"gpubind/model/data/plan.schema.json, `{part}`"
        add, remove = f"{place}: add `{{}}`", f"{place}: remove `{{}}`"
        assert_listed(schema[part], document(BUNDLED_HOSTS[0], "default"), add=add, remove=remove)


@pytest.mark.parametrize("host", BUNDLED_HOSTS)
def test_a_cdi_spec_is_what_its_golden_file_says(host: str) -> None:
    recorded = gpubind.open_host(host)
    text = render_cdi(gpubind.plan(recorded, Request(vendors=()), layout=cdi_layout(recorded.uname.machine)), {})
    assert_golden(GOLDEN / host / "default.cdi", folded(text))
