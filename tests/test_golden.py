"""Golden plans: each recorded host x each request, byte for byte. `pytest --update-golden` rewrites them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import gpubind
from gpubind.documents.explanation import render_explanation
from gpubind.documents.mounts.cdi import render_cdi
from gpubind.documents.text import render_json, render_paths, render_tsv
from gpubind.model import CAPABILITIES, Plan, Request
from gpubind.model.data import HOSTS, read_data
from gpubind.planner.placement import cdi_layout

GOLDEN = Path(__file__).parent / "golden"

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
REQUESTS: dict[str, dict[str, Request]] = {host: NVIDIA if "nvidia" in host else AMD for host in HOSTS}
CASES = [(host, name) for host in HOSTS for name in REQUESTS[host]]


def make(host: str, name: str) -> Plan:
    return gpubind.plan(gpubind.open_host(host), REQUESTS[host][name])


def schema() -> Any:
    return json.loads(read_data("model/data/plan.schema.json"))


@pytest.mark.parametrize(("host", "name"), CASES)
def test_a_plan_is_what_its_golden_file_says(host: str, name: str, update_golden: bool) -> None:
    path = GOLDEN / host / f"{name}.json"
    text = render_json(make(host, name)).replace(f'"gpubind": "{gpubind.__version__}"', '"gpubind": "VERSION"')
    if update_golden:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize(("host", "name"), CASES)
def test_a_plan_document_fits_the_schema(host: str, name: str) -> None:
    jsonschema.Draft202012Validator(schema()).validate(json.loads(render_json(make(host, name))))


@pytest.mark.parametrize(("host", "name"), CASES)
def test_no_two_mounts_share_a_target_and_all_are_read_only_but_sockets(host: str, name: str) -> None:
    plan = make(host, name)
    targets = [mount.target for mount in plan.mounts]
    assert len(set(targets)) == len(targets)
    assert all("ro" in mount.options for mount in plan.mounts if mount.kind not in ("socket", "directory"))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("document", "name"),
    [("text", "default"), ("paths", "default"), ("text", "like-apptainer"), ("explain", "default")],
)
def test_a_text_document_is_what_its_golden_file_says(host: str, document: str, name: str, update_golden: bool) -> None:
    plan = make(host, name)
    text = {
        "text": lambda: render_tsv(plan, verbose=True),
        "paths": lambda: render_paths(plan),
        "explain": lambda: render_explanation(
            gpubind.explain(plan, "libamd*" if REQUESTS[host] is AMD else "libnvidia-*")
        ),
    }[document]()
    path = GOLDEN / host / f"{name}.{document}"
    if update_golden:
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("host", [host for host in HOSTS if REQUESTS[host] is not AMD])
def test_the_digest_is_the_same_whichever_source_served(host: str) -> None:
    assert make(host, "default").digest == make(host, "driver").digest


@pytest.mark.parametrize("host", HOSTS)
def test_the_digest_is_another_for_another_request(host: str) -> None:
    other = "utility" if REQUESTS[host] is AMD else "compute-utility"
    assert make(host, "default").digest != make(host, other).digest


def test_the_one_vendor_that_a_host_has_needs_no_name() -> None:
    named, found = make("mi300x-rocm62", "default"), make("mi300x-rocm62", "every-vendor")
    assert named == found


def test_the_schema_is_a_schema_and_knows_every_key() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    document = json.loads(render_json(make(HOSTS[0], "default")))
    assert set(schema()["properties"]) == set(document) == set(schema()["required"])


@pytest.mark.parametrize("host", HOSTS)
def test_a_cdi_spec_is_what_its_golden_file_says(host: str, update_golden: bool) -> None:
    recorded = gpubind.open_host(host)
    text = render_cdi(gpubind.plan(recorded, Request(vendors=()), layout=cdi_layout(recorded.uname.machine)), {})
    path = GOLDEN / host / "default.cdi"
    if update_golden:
        path.write_text(text)
    assert text == path.read_text()
