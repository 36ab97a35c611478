"""`gpubind cdi list`: each device with its file and line, and what keeps a runtime from giving it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpubind.documents.cdi import cdi_table, render_cdi_json, stale_lines
from gpubind.host.record import dump_record, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.inventory.cdi.listing import CdiListing, list_cdi
from gpubind.model import VENDORS, Vendor
from gpubind.model.vendors import CDI_KINDS
from tests.planner.gpus.hosts import HOSTS
from tests.rules.cases_host import cdi, healthy
from tests.support.driver import V, host
from tests.support.golden import assert_fits
from tests.support.surveys import survey
from tests.support.trees import Dir, Hidden, Item, Spec

YAML = """cdiVersion: 0.5.0
kind: vendor.com/net
# name: port0
devices:
  - containerEdits:
      env: [A=1]
    name: port0
  - name: "p.1"
    containerEdits: {deviceNodes: [{path: /dev/none}]}
"""


def listed(*parts: Spec, **more: Any) -> CdiListing:
    return list_cdi(host(*healthy(*parts)).lenient, **more)


def states(listing: CdiListing) -> dict[str, tuple[str, Any]]:
    return {f"{device.path}: {device.name}": (device.state, device.by or device.gone) for device in listing.devices}


def document(listing: CdiListing) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(render_cdi_json(listing))
    assert_fits(made, "cdi")
    return made


def test_each_device_has_its_file_and_line_and_the_files_format_and_version() -> None:
    made = document(listed({"/etc/cdi/net.yaml": YAML}))
    (file,) = made["files"]
    assert (file["format"], file["version"], file["kind"], file["devices"]) == ("yaml", "0.5.0", "vendor.com/net", 2)
    assert [(one["name"], one["line"]) for one in made["devices"]] == [
        ("vendor.com/net=port0", 7),
        ("vendor.com/net=p.1", 8),
    ]


def test_a_device_whose_paths_do_not_exist_is_stale_and_names_them() -> None:
    found = states(listed({"/etc/cdi/net.yaml": YAML}))
    assert found["/etc/cdi/net.yaml: vendor.com/net=p.1"] == ("stale", ("/dev/none",))
    assert found["/etc/cdi/net.yaml: vendor.com/net=port0"] == ("usable", ())


def test_what_every_device_brings_is_the_files_and_makes_each_stale() -> None:
    listing = listed(cdi(mounts=("/usr/lib64/gone.so",)))
    assert [file.gone for file in listing.files] == [("/usr/lib64/gone.so",)]
    assert [(device.state, device.gone) for device in listing.devices] == [("stale", ())] * 3
    assert {row[-1] for row in cdi_table(listing).rows} == {"stale: /usr/lib64/gone.so does not exist"}


def test_a_later_directory_shadows_and_a_second_file_is_a_conflict() -> None:
    (text,) = cdi().values()
    net: dict[str, Item] = {"/etc/cdi/net.yaml": YAML, "/etc/cdi/zz.yaml": YAML, "/var/run/cdi/net.yaml": YAML}
    found = states(listed({"/etc/cdi/a.json": text, "/var/run/cdi/b.json": text}, net))
    assert found["/etc/cdi/a.json: nvidia.com/gpu=0"] == ("shadowed", "/var/run/cdi/b.json")
    assert found["/var/run/cdi/b.json: nvidia.com/gpu=0"] == ("usable", ())
    assert found["/etc/cdi/net.yaml: vendor.com/net=port0"] == ("conflict", "/etc/cdi/zz.yaml")
    assert found["/etc/cdi/zz.yaml: vendor.com/net=port0"] == ("conflict", "/etc/cdi/net.yaml")
    assert found["/var/run/cdi/net.yaml: vendor.com/net=port0"][0] == "conflict"


@pytest.mark.parametrize(
    ("item", "fault"),
    [("cdiVersion: 9.9.9\n", "cdiVersion: invalid version `9.9.9`"), ("{", "line 2"), (Hidden(), "ermission")],
)
def test_a_file_that_cannot_be_used_is_listed_with_the_reason(item: Item, fault: str) -> None:
    listing = listed({"/etc/cdi/bad.json": item}, cdi())
    made = document(listing)
    (bad,) = [file for file in made["files"] if file["fault"] is not None]
    assert (bad["path"], bad["format"]) == ("/etc/cdi/bad.json", None)
    assert fault in bad["fault"]
    assert ["invalid" in row[-1] for row in cdi_table(listing).rows] == [True, False, False, False]


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_spec_of_each_vendor_is_listed_beside_its_gpus(vendor: Vendor) -> None:
    """Of other vendors than NVIDIA and AMD, the names of devices are no numbers."""
    edits = {"deviceNodes": [{"path": "/dev/null"}]}
    text = {"cdiVersion": "0.5.0", "kind": CDI_KINDS[vendor], "devices": [{"name": "card7", "containerEdits": edits}]}
    gpus = HOSTS[{"nvidia": "one", "amd": "amd", "intel": "intel"}[vendor]][0].gpus[:1]
    machine = host(*healthy({"/etc/cdi/x.json": json.dumps(text)}))
    (file,) = list_cdi(machine, gpus=gpus).files
    assert [one for one in file.stale if "GPU" in one] == (
        [f"the CDI spec {file.path} has no GPU node, but this host has 1 GPU"] if vendor != "intel" else []
    )


@pytest.mark.parametrize(("at", "is_new"), [(2, False), (0, True)], ids=["the-third", "the-first"])
def test_the_numbers_of_amds_devices_count_the_gpus_by_pci_address(at: int, is_new: bool) -> None:
    """Two devices have a number and one has the UUID of a GPU: the third by address has no number."""
    gpus = HOSTS["amd-backwards"][0].gpus
    uuid = sorted(gpus, key=lambda gpu: gpu.pci or "")[at].uuid
    edits = {"deviceNodes": [{"path": "/dev/dri/renderD128"}]}
    devices = [{"name": name, "containerEdits": edits} for name in ("0", "1", uuid)]
    text = json.dumps({"cdiVersion": "0.5.0", "kind": CDI_KINDS["amd"], "devices": devices})
    (file,) = list_cdi(host(*healthy({"/etc/cdi/x.json": text})), gpus=gpus).files
    lacking = f"the CDI spec {file.path} lacks 1 of this host's GPUs"
    assert [one for one in file.stale if "GPU" in one] == [lacking] * is_new


def test_what_is_stale_of_a_file_is_a_line_below_the_table() -> None:
    listing = listed(cdi(mounts=("/usr/lib64/libcuda.so.535.54.03",)), version=V)
    assert stale_lines(listing).splitlines() == [
        "stale: the CDI spec /etc/cdi/nvidia.json mounts a file that does not exist on this host",
        f"stale: the CDI spec /etc/cdi/nvidia.json is for driver 535.54.03, the kernel module is {V}",
    ]
    assert document(listing)["files"][0]["stale"] == [
        line.removeprefix("stale: ") for line in stale_lines(listing).splitlines()
    ]


def test_a_host_without_specs_has_no_rows_and_other_directories_are_those_that_are_named() -> None:
    assert listed().files == ()
    assert states(listed({"/srv/cdi/x.yaml": YAML}, directories=("/srv/cdi",))).keys() == {
        "/srv/cdi/x.yaml: vendor.com/net=port0",
        "/srv/cdi/x.yaml: vendor.com/net=p.1",
    }


def test_a_record_lists_what_its_host_lists() -> None:
    parts = healthy(cdi(), {"/var/run/cdi/net.yaml": YAML, "/etc/cdi/bad.json": "x: 1", "/etc/cdi/d.json": Dir()})
    machine = host(*parts)
    again = RecordedHost(parse_record(dump_record(survey(machine), "1").encode()), "test")
    assert list_cdi(again.lenient) == list_cdi(machine.lenient)
