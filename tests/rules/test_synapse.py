"""SynapseAI in an image: its release against the kernel driver's, and whether PyTorch for Gaudi loads."""

from __future__ import annotations

from typing import Optional

import pytest

import gpubind
from gpubind.image.needs import read_needs
from gpubind.image.synapse import parse_synapse_release
from gpubind.model import Finding
from tests.rules.situations import Situation, found
from tests.support.amd import LIB, RENDER, VIDEO
from tests.support.driver import debian, kernel
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.intel import BASE, gaudi, gpu, habanalabs, intel_host, synapse, userspace
from tests.support.starts import bringing
from tests.support.trees import Dir, Spec, recorded_tree

HL = (BASE, gaudi("0000:19:00.0", 0))
IMAGE = synapse()
DPKG = "/var/lib/dpkg/status"
REMOVED = "Package: habanalabs-graph\nStatus: deinstall ok config-files\nVersion: 1.20.0-543\n\n"
PACKAGES = "/usr/lib/python3/dist-packages"


def without(text: str, spec: Spec = IMAGE) -> Spec:
    return {path: item for path, item in spec.items() if text not in path}


def told(*parts: Spec, spec: Spec = IMAGE, code: str = "synapse-mismatch", **more: object) -> list[Finding]:
    situation = Situation((*HL, *parts), image(glibc("2.36"), spec), {"vendors": ("intel",)}, **more)  # type: ignore[arg-type]
    return [one for one in found(situation) if one.code == code]


@pytest.mark.parametrize(
    ("driver", "spec", "severity"),
    [
        ("1.24.0-ee698fb", IMAGE, None),
        ("1.24.0", IMAGE, None),
        ("1.22.1-a", IMAGE, "warning"),
        ("1.24.1-482", IMAGE, "warning"),
        ("1.24.0-ee698fb", synapse("1.16.0"), "warning"),
        ("1.22.1-a", without("dpkg"), "warning"),
        ("1.22.1-a", without("dist-info"), "warning"),
        ("1.22.1-a", without("dist-info", without("dpkg")), "note"),
        ("1.22.1-a", without("habana", without("dpkg")), None),
        ("development", IMAGE, None),
        ("1.22.1-a", {**without("dist-info"), DPKG: REMOVED}, "note"),
        ("1.24.0-a", {**without("dist-info"), DPKG: REMOVED + str(IMAGE[DPKG])}, None),
        (None, IMAGE, "note"),
        (None, {}, None),
    ],
)
def test_the_release_of_the_images_synapseai_is_that_of_the_kernel_driver(
    driver: Optional[str], spec: Spec, severity: Optional[str]
) -> None:
    parts = (habanalabs(driver),) if driver else ()
    assert [one.severity for one in told(*parts, spec=spec)] == ([severity] if severity else [])


def test_the_finding_names_both_releases_and_the_file_that_tells() -> None:
    (one,) = told(habanalabs("1.22.1-a"), spec=without("dpkg"))
    assert (one.subject, one.where) == ("1.24.0", f"{PACKAGES}/habana_torch_plugin-1.24.0.482.dist-info")
    assert "1.22.1-a" in one.what
    assert "SynapseAI 1.22.1," in (one.hint or "")


def test_libraries_that_the_user_mounts_are_not_judged_by_the_images_packages() -> None:
    begun, local = bringing("/usr/lib/habanalabs"), recorded_tree({"/usr/lib/habanalabs": Dir()})
    assert told(habanalabs("1.22.1-a"), start=begun, local=local, backend="apptainer") == []


def test_on_a_host_without_gaudi_nothing_is_said_of_synapseai() -> None:
    opened = image(glibc("2.36"), without("libSynapse"))
    arc = Situation((BASE, gpu("0000:03:00.0", 0, 128)), opened, {"vendors": ("intel",)})
    for situation in (arc, Situation((debian(), kernel()), opened, {"vendors": ("nvidia",)})):
        assert not {"synapse-mismatch", "framework-library"} & {one.code for one in found(situation)}


@pytest.mark.parametrize("library", ["libSynapse", "libhl_logger"])
def test_pytorch_for_gaudi_without_synapseai_is_an_error(library: str) -> None:
    (one,) = told(habanalabs(), spec=without(library), code="framework-library")
    assert (one.severity, one.subject.startswith(library)) == ("error", True)
    assert "PyTorch for Gaudi" in one.what


def test_pytorch_for_gaudi_finds_synapseai_where_habana_installs_it() -> None:
    assert told(habanalabs(), code="framework-library") == []


def test_needs_has_a_row_for_synapseai_with_its_release() -> None:
    (row,) = read_needs(image(glibc("2.36"), IMAGE)).intel
    assert (row.name, row.release, row.driver) == ("SynapseAI", "1.24.0", "/usr/lib/habanalabs/libSynapse.so")
    lacking = read_needs(image(glibc("2.36"), without("/libSynapse")))
    assert [(one.driver, one.release) for one in lacking.intel] == [(None, "1.24.0")]
    assert "libSynapse.so.1" in [name for name, _ in lacking.lacking]


@pytest.mark.parametrize(
    ("version", "release"),
    [("1.24.0-ee698fb", "1.24.0"), ("1.16.1-7", "1.16.1"), ("1.24.0.482", "1.24.0"), ("1.24", None), ("x1.2.3", None)],
)
def test_a_release_is_the_first_three_numbers(version: str, release: Optional[str]) -> None:
    assert parse_synapse_release(version) == release


def test_the_version_of_the_kernel_driver_is_in_the_plan() -> None:
    host = intel_host(gaudi("0000:19:00.0", 0), habanalabs())
    (driver,) = gpubind.plan(host, gpubind.Request(vendors=("intel",))).drivers
    assert (driver.driver.kernel_version or "").startswith("habanalabs 1.24.0-ee698fb, Linux ")


def test_gaudi_s_software_needs_no_level_zero_beside_a_gpu() -> None:
    torch = {"/usr/lib/python3/dist-packages/torch/__init__.py": ""}
    arc, level_zero = gpu("0000:03:00.0", 0, 128), {f"{LIB}/libze_loader.so.1": elf("libze_loader.so.1")}
    for host, specs, severity in (
        ((gaudi("0000:19:00.0", 0), arc), (IMAGE, torch), "note"),
        ((gaudi("0000:19:00.0", 0), arc, userspace()), (IMAGE, torch), "note"),
        ((gaudi("0000:19:00.0", 0), arc), (IMAGE, level_zero), "warning"),
        ((arc,), (IMAGE, torch), "warning"),
    ):
        opened = image(glibc("2.31"), *specs)
        every = found(Situation((BASE, *host), opened, {"vendors": ("intel",)}, {"groups": (VIDEO, RENDER, 1000)}))
        assert [one.severity for one in every if one.code.startswith("userspace")] == [severity]
