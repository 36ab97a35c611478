"""Forward compatibility: whose libcuda comes first."""

from __future__ import annotations

import pytest

from gpubind import plan
from gpubind.model import EnvVar, Plan, Request
from gpubind.planner.compat import COMPAT_RULE, ENV_RULE
from gpubind.planner.placement import GPUBIND_LAYOUT, SINGULARITY_LAYOUT, Layout, cdi_layout
from tests.planner.cases_compat import CASES, COMPAT, NEWER_13, OURS, Case, built_for, package
from tests.support.driver import host, kernel, rhel
from tests.support.elf import elf
from tests.support.images import image
from tests.support.trees import Link, Spec


def machine(driver: str, model: str) -> tuple[Spec, ...]:
    side = {
        path: item.replace("NVIDIA A100", model) if isinstance(item, str) else item
        for path, item in kernel(driver).items()
    }
    return rhel(driver), side


def make(case: Case, layout: Layout = GPUBIND_LAYOUT, **request: object) -> Plan:
    asked = Request(**{**case.request, **request})
    return plan(host(*machine(case.driver, case.model)), asked, image=image(case.image), layout=layout)


def first(made: Plan) -> list[EnvVar]:
    return [variable for variable in made.env if variable.rule == ENV_RULE]


@pytest.mark.parametrize("name", CASES)
def test_the_compat_libcuda_comes_first_where_it_fits_and_is_wanted(name: str) -> None:
    case = CASES[name]
    made = make(case)
    assert [variable.value for variable in first(made)] == ([case.directory] if case.directory else [])
    decided = [decision for decision in made.decisions if decision.rule == COMPAT_RULE]
    assert [decision.verdict for decision in decided].count("taken") == len(first(made))
    assert case.because in " ".join(decision.detail or "" for decision in decided)


def test_it_stands_before_the_drivers_own_directory_in_every_layout_that_has_one() -> None:
    for layout in (GPUBIND_LAYOUT, SINGULARITY_LAYOUT):
        made = make(CASES["another major CUDA, data-centre GPU"], layout)
        values = [variable.value for variable in made.env if variable.name == "LD_LIBRARY_PATH"]
        assert values[0] == COMPAT
        assert values[1] == layout.libdir


def test_a_layout_without_a_search_path_says_that_it_cannot() -> None:
    made = make(CASES["another major CUDA, data-centre GPU"], cdi_layout("x86_64"))
    assert first(made) == []
    assert [(d.verdict, "no search path" in (d.detail or "")) for d in made.decisions if d.rule == COMPAT_RULE] == [
        ("left-out", True)
    ]
    kept = make(CASES["first in the image, and it fits"], cdi_layout("x86_64"))
    assert first(kept) == []
    assert [d.verdict for d in kept.decisions if d.rule == COMPAT_RULE] == ["taken"]


def test_a_layout_that_is_searched_anyway_may_still_add_variables() -> None:
    made = make(
        CASES["another major CUDA, data-centre GPU"], cdi_layout("x86_64", ["/usr/lib64"])._replace(adds_variables=True)
    )
    assert [variable.value for variable in made.env if variable.name == "LD_LIBRARY_PATH"] == [COMPAT]


def test_nothing_changes_without_an_image_or_without_compute() -> None:
    node = host(*machine("550.54.14", "NVIDIA A100"))
    assert first(plan(node, Request(cuda_compat="image"))) == []
    case = CASES["another major CUDA, data-centre GPU"]
    assert first(make(case, caps=("utility",))) == []
    assert not [d for d in make(case, caps=("utility",)).decisions if d.rule == COMPAT_RULE]


def test_like_another_program_nothing_changes() -> None:
    made = make(CASES["another major CUDA, data-centre GPU"], SINGULARITY_LAYOUT, like="apptainer")
    assert first(made) == []


def test_the_digest_is_the_same_whichever_source_served() -> None:
    case = CASES["another major CUDA, data-centre GPU"]
    digests = {make(case, source=source).digest for source in ("liblist", "driver")}
    assert len(digests) == 1
    assert digests != {make(case, cuda_compat="host").digest}


def test_the_side_is_in_the_document() -> None:
    case = CASES["another major CUDA, data-centre GPU"]
    assert make(case, cuda_compat="host").to_dict()["request"]["cuda_compat"] == "host"


def test_the_note_of_the_hosts_libcuda_comes_before_the_table_of_versions() -> None:
    from gpubind.model import CudaNote

    newer = elf("libcuda.so.1", cuda_note=CudaNote("13.1", (550,)))
    spec: Spec = {"/usr/lib64/libcuda.so.550.54.14": newer}
    node = host(*machine("550.54.14", "NVIDIA A100"), spec)
    assert first(plan(node, Request(), image=image(NEWER_13))) == []


def test_only_the_gpus_that_the_container_gets_count() -> None:
    side = dict(kernel("550.54.14"))
    path = "/proc/driver/nvidia/gpus/0000:01:00.0/information"
    side[path] = str(side[path]).replace("NVIDIA A100", "NVIDIA GeForce RTX 4090")
    node = host(rhel("550.54.14"), side)
    opened = image(NEWER_13)
    assert first(plan(node, Request(), image=opened)) == []
    assert [v.value for v in first(plan(node, Request(gpus="1"), image=opened))] == [COMPAT]


@pytest.mark.parametrize(
    "spec",
    [
        {f"{COMPAT}/libcuda.so.1": b""},
        {f"{COMPAT}/libcuda.so.1": elf("libcuda.so.1")[:100]},
        {f"{COMPAT}/libcuda.so.1": Link("libcuda.so.575.57.08")},
        {f"{COMPAT}/libcuda.so.575.57.08": elf("libcuda.so.1")},
        {COMPAT: Link("/opt/lib"), "/opt/lib/libcuda.so.1": elf("libcuda.so.1")},
    ],
    ids=["empty", "damaged", "dangling", "without its soname", "a link out of the package"],
)
def test_no_compat_libcuda_is_what_no_program_could_open_there(spec: Spec) -> None:
    assert image(built_for("13.1.0"), spec).facts.compat == ()


def test_the_images_own_choice_is_the_file_that_its_search_path_leads_to() -> None:
    assert image(OURS).facts.own_libcuda == f"{COMPAT}/libcuda.so.575.57.08"
    assert image(built_for("12.4.0", "export LD_LIBRARY_PATH=lib::/nowhere"), package()).facts.own_libcuda is None
