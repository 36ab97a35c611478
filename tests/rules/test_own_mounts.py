"""What user, site and runtime bring: followed where it can be; else what seems to be missing is no error."""

from __future__ import annotations

from types import MappingProxyType
from typing import Optional

import pytest

from gpubind.model import Finding
from gpubind.rules.image.image import order_findings
from gpubind.runtimes.runtime import Start
from tests.rules.cases_image import HOST, NO_LIBCUDA
from tests.rules.situations import Situation, found, started
from tests.support.driver import V, kernel
from tests.support.elf import elf
from tests.support.images import glibc, image, sandbox
from tests.support.starts import bringing
from tests.support.trees import Dir, File, Item, Link, Spec, recorded_tree

SOLVE = "/opt/solve"
MPI = "libmpi.so.12"
STUBS = "/usr/local/cuda/lib64/stubs"
UNDECIDED = "export {}=$(find / -name lib)"

MACHINE = recorded_tree(
    {
        f"/opt/cray/1.2/{MPI}": elf(MPI),
        "/opt/cray/lib": Link("/opt/cray/1.2"),
        "/home/me/a.out": File(elf(kind=2, needed=(MPI,)), 0o755),
        "/home/me/plain": File(elf(kind=2, needed=("libc.so.6",)), 0o755),
        "/home/me/old": File(elf(kind=2, needs={"libc.so.6": ("GLIBC_2.38",)}, needed=("libc.so.6",)), 0o755),
        "/home/me/arm": File(elf(kind=2, machine=183), 0o755),
        "/home/me/musl": File(elf(kind=2, interpreter="/lib/ld-musl-x86_64.so.1"), 0o755),
        "/home/me/data": File(elf(kind=2), 0o644),
        "/home/me/run.sh": File(b"#!/usr/bin/env bash\n", 0o755),
        f"/home/me/lib/{MPI}": elf(MPI),
        "/home/me/drivers/libcuda.so.1": elf("libcuda.so.1"),
        "/scratch/plain": File(elf(kind=2, needed=("libc.so.6",)), 0o755),
        "/usr/lib64": Dir(),
    }
)
NONE: Spec = MappingProxyType({})
HOME, CRAY = "/home/me", "/opt/cray"


def situation(
    program: Optional[str], begun: Optional[Start], spec: Spec = NONE, backend: Optional[str] = "apptainer"
) -> Situation:
    return Situation(HOST, image(glibc(), spec), program=program, start=begun, local=MACHINE, backend=backend)


def said(asked: Situation) -> list[tuple[str, str]]:
    """(severity, code) of the findings about a program."""
    return [(f.severity, f.code) for f in found(asked) if f.code.startswith("program")]


IN_IMAGE: dict[str, Item] = {
    SOLVE: File(elf(kind=2, needed=(MPI,)), 0o755),
    f"/opt/t/lib/{MPI}": elf(MPI),
    "/opt/t/plain": File(elf(kind=2), 0o755),
}


@pytest.mark.parametrize(
    ("program", "begun"),
    [
        (SOLVE, bringing(LD_LIBRARY_PATH="/opt/t/lib")),
        (SOLVE, bringing(HOME, LD_LIBRARY_PATH="/home/me/lib")),
        (SOLVE, bringing(CRAY, LD_LIBRARY_PATH="/opt/cray/lib")),
        (SOLVE, bringing(f"/home/me/lib/{MPI}:/usr/lib/x86_64-linux-gnu/{MPI}")),
        (SOLVE, bringing(f"/opt/cray/lib/{MPI}:/.singularity.d/libs/{MPI}")),
        (SOLVE, bringing(CRAY, LD_PRELOAD=f"/opt/cray/lib/{MPI}")),
        ("plain", bringing(PREPEND_PATH="/opt/t")),
        ("plain", bringing(APPEND_PATH="/opt/t")),
        ("plain", bringing(PATH="/opt/t")),
        ("a.out", bringing(HOME, CRAY, PATH="/home/me", LD_LIBRARY_PATH="/opt/cray/lib")),
    ],
)
def test_a_job_that_works_with_what_the_user_brings_has_no_finding(program: str, begun: Start) -> None:
    assert said(situation(program, begun, IN_IMAGE)) == []
    assert [severity for severity, _ in said(situation(program, bringing(), IN_IMAGE))] == ["error"]


def test_a_path_that_the_user_sets_leaves_nothing_of_the_images() -> None:
    begun = bringing(PATH="/opt/t")
    assert said(situation("sh", begun, IN_IMAGE)) == [("error", "program-missing")]


def test_a_name_in_path_that_nobody_may_execute_is_passed_over() -> None:
    begun = bringing(HOME, PATH="/home/me:/opt/t")
    assert said(situation("data", begun, {"/opt/t/data": File(elf(kind=2), 0o755)})) == []
    assert said(situation("data", begun)) == [("error", "program-not-executable")]


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("./plain", []),
        ("/home/me/plain", []),
        ("../me/plain", []),
        ("./run.sh", [("error", "program-missing")]),
        ("./a.out", [("error", "program-library-missing")]),
        ("./old", [("error", "program-library-version")]),
        ("./arm", [("error", "program-not-executable")]),
        ("./data", [("error", "program-not-executable")]),
        ("./musl", [("error", "program-interpreter")]),
        ("./nothing", [("error", "program-missing")]),
        ("/home/me/nothing", [("error", "program-missing")]),
        ("/scratch/plain", [("error", "program-missing")]),
    ],
)
def test_a_program_of_this_host_is_checked_against_the_image(program: str, outcome: list[tuple[str, str]]) -> None:
    asked = situation(program, bringing(HOME, caller={"working_directory": "/home/me"}))
    assert said(asked) == outcome
    soft = situation(program, bringing(HOME, caller={"working_directory": "/home/me"}, options=("--overlay", "x.img")))
    assert said(soft) == [("warning", code) for _, code in outcome]
    assert all("--overlay x.img" in f.what for f in found(soft) if f.code.startswith("program"))


def test_a_program_of_this_host_that_nothing_binds_says_what_to_bind() -> None:
    (finding,) = (f for f in found(situation("/scratch/plain", bringing(HOME))) if f.code == "program-missing")
    assert "bind /scratch" in (finding.hint or "")


@pytest.mark.parametrize("backend", [None, "podman"])
def test_without_the_runtime_a_program_of_this_host_that_is_missing_is_a_warning(backend: Optional[str]) -> None:
    assert said(situation("/scratch/plain", None, backend=backend)) == [("warning", "program-missing")]
    assert said(situation("/opt/nothing", None, backend=backend)) == [("error", "program-missing")]


def test_a_relative_path_from_nowhere_is_said_not_to_be_checked() -> None:
    assert said(situation("./plain", bringing(HOME))) == [("warning", "program-unreadable")]
    assert said(situation("./plain", None)) == [("warning", "program-unreadable")]


@pytest.mark.parametrize("variable", ["PATH", "LD_LIBRARY_PATH"])
def test_what_only_a_shell_could_tell_of_the_image_is_no_reason_to_stop(variable: str) -> None:
    undecided = {**IN_IMAGE, **sandbox(UNDECIDED.format(variable))}
    is_path = variable == "PATH"
    assert said(situation("nothing", bringing(), undecided))[0][0] == ("warning" if is_path else "error")
    assert said(situation(SOLVE, bringing(), undecided))[0][0] == ("error" if is_path else "warning")


def test_a_library_of_the_plan_finds_what_the_user_brings() -> None:
    needing: Spec = {f"/usr/lib64/libcuda.so.{V}": elf("libcuda.so.1", needed=(MPI,))}

    def missing(begun: Start) -> list[str]:
        asked = Situation((*HOST, needing), image(glibc()), start=begun, local=MACHINE, backend="apptainer")
        return [f.severity for f in found(asked) if f.code == "library-missing" and f.subject == MPI]

    assert missing(bringing()) == ["error"]
    assert missing(bringing(options=("--overlay", "x.img"))) == ["warning"]
    assert missing(bringing(CRAY, LD_LIBRARY_PATH="/opt/cray/lib")) == []


# Which libcuda wins.


def order(asked: Situation) -> list[tuple[str, str, str, Optional[str]]]:
    """What exec would say: severity, code, subject, the file."""
    findings: tuple[Finding, ...] = order_findings(started(asked))
    every = found(asked)
    assert all(finding in every for finding in findings)
    return [(f.severity, f.code, f.subject, f.where) for f in findings]


def in_image(directory: str, version: str = "470.82.01") -> dict[str, Item]:
    name = f"libcuda.so.{version}"
    return {f"{directory}/{name}": elf("libcuda.so.1"), f"{directory}/libcuda.so.1": Link(name)}


def test_a_driver_in_the_image_that_comes_first_is_named() -> None:
    spec = {**sandbox("export LD_LIBRARY_PATH=/opt/old"), **in_image("/opt/old")}
    behind = situation(None, bringing(), spec)
    assert order(behind) == []
    first = behind._replace(request={"like": "apptainer"})
    assert order(first) == [("error", "driver-in-image", "libcuda.so.1", "/opt/old/libcuda.so.470.82.01")]
    (finding,) = order_findings(started(first))
    assert "/opt/old from its LD_LIBRARY_PATH" in (finding.hint or "")
    (waiting,) = (f for f in found(behind) if f.code == "driver-in-image")
    assert (waiting.severity, "only through LD_LIBRARY_PATH" in (waiting.hint or "")) == ("warning", True)


def test_what_the_user_puts_first_is_used_and_named() -> None:
    begun = bringing(HOME, LD_LIBRARY_PATH="/home/me/drivers")
    asked = situation(None, begun)
    assert order(asked) == [("warning", "library-path-order", "libcuda.so.1", "/home/me/drivers/libcuda.so.1")]
    asked = situation(None, bringing(LD_LIBRARY_PATH="/opt/old"), in_image("/opt/old"))
    assert order(asked) == [("warning", "library-path-order", "libcuda.so.1", "/opt/old/libcuda.so.1")]


def test_a_stub_that_the_user_puts_first_is_named() -> None:
    asked = situation(None, bringing(LD_LIBRARY_PATH=STUBS), {f"{STUBS}/libcuda.so.1": elf("libcuda.so.1")})
    assert {(severity, where) for severity, _, _, where in order(asked)} == {
        ("error", f"{STUBS}/libcuda.so.1"),
        ("warning", f"{STUBS}/libcuda.so.1"),
    }


def test_a_compat_library_that_the_user_puts_first_is_no_matter_of_order() -> None:
    compat = bringing(LD_LIBRARY_PATH="/usr/local/cuda/compat")
    assert order(situation(None, compat, in_image("/usr/local/cuda/compat", "570.86.10"))) == []


def test_the_hosts_own_directory_bound_and_put_first_is_the_same_driver() -> None:
    machine = recorded_tree(dict(HOST[0]))
    begun = bringing("/usr/lib64:/host/lib", LD_LIBRARY_PATH="/host/lib")
    assert order(situation(None, begun)._replace(local=machine)) == []


def test_where_the_plan_brings_none_nothing_is_said_of_the_order() -> None:
    spec = {**glibc(), **sandbox("export LD_LIBRARY_PATH=/opt/old"), **in_image("/opt/old")}
    assert order(Situation((NO_LIBCUDA, kernel()), image(spec))) == []


def test_a_program_that_loads_what_the_user_puts_first_is_warned_of() -> None:
    spec = {**in_image("/opt/old"), SOLVE: File(elf(kind=2, needed=("libcuda.so.1",)), 0o755)}
    begun = bringing(LD_LIBRARY_PATH="/opt/old")
    assert said(situation(SOLVE, begun, spec)) == [("warning", "program-driver")]
    own = {**spec, SOLVE: File(elf(kind=2, needed=("libcuda.so.1",), rpath="/opt/old"), 0o755)}
    assert said(situation(SOLVE, bringing(), own)) == [("error", "program-driver")]
