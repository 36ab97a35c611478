"""What a check predicts of a container, and what it makes of the answers."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind.model import Finding
from gpubind.model.trial import Prediction, Trial
from gpubind.planner.placement import SINGULARITY_LAYOUT
from gpubind.rules.table import check
from gpubind.rules.trial import NO_DEVICE, compare_answer, predictions
from tests.rules.cases_host import K80, healthy, lacking, on_the_bus
from tests.rules.cases_image import HOST, LIB, SELF_MADE, needing
from tests.rules.situations import Situation, found, started
from tests.support.driver import V, kernel, rhel
from tests.support.elf import elf
from tests.support.golden import GOLDEN, assert_golden
from tests.support.images import GCOMPAT, GLIBC, MUSL, image
from tests.support.images import glibc as plain_glibc
from tests.support.starts import bringing
from tests.support.trees import File, Link, Spec, recorded_tree

LOADER = "/lib64/ld-linux-x86-64.so.2"
LIBCUDA = "/.gpubind/libs/libcuda.so.1"
OPENGL = "/.gpubind/libs/libGLX_nvidia.so.0"
PYTHON: Spec = {"/usr/bin/python3": File(elf(kind=2), 0o755)}


def glibc(*parts: Spec) -> Any:
    """An image whose C library names its loader, as every real one does."""
    libc = elf("libc.so.6", defines=("libc.so.6", *GLIBC[: GLIBC.index("GLIBC_2.36") + 1]), interpreter=LOADER)
    return image(plain_glibc(), {f"{LIB}/libc.so.6": libc}, *parts)


def program(mode: int = 0o755, **facts: Any) -> Any:
    """An image with a program of one's own."""
    return glibc({SELF_MADE: File(elf(kind=2, interpreter=LOADER, **facts), mode)})


def listed(situation: Situation) -> tuple[Prediction, ...]:
    """What is predicted."""
    begun = started(situation)
    assert begun.has_image
    return predictions(begun, check(begun))


def predicted(situation: Situation) -> dict[str, Prediction]:
    """What is predicted, by subject: that a program is there comes before that it loads."""
    return {one.subject: one for one in reversed(listed(situation))}


def test_a_library_of_the_plan_is_to_load_by_the_loader_of_the_images_c_library() -> None:
    made = predicted(Situation(HOST, glibc()))
    assert made[LIBCUDA] == Prediction("loads", LIBCUDA, (LOADER, "--list", LIBCUDA), True)


def test_each_library_program_and_gpu_query_of_a_job_is_predicted() -> None:
    opened = glibc(PYTHON, {SELF_MADE: File(elf(kind=2, interpreter=LOADER, needed=("libz.so",)), 0o755)})
    smi: Spec = {"/usr/bin/nvidia-smi": File(elf(kind=2, interpreter=LOADER), 0o755)}
    every = listed(Situation(healthy(smi), opened, {"caps": ("compute", "utility")}, program=SELF_MADE))
    lines = [f"{one.kind} {one.subject}: {one.succeeds} {one.why} {one.reasons}\n    {one.words}\n" for one in every]
    assert_golden(GOLDEN / "predictions.txt", "".join(lines))


def test_with_gcompat_musls_loader_is_asked_and_nothing_is_promised() -> None:
    words = ("/lib/ld-musl-x86_64.so.1", "--preload", "/lib/libgcompat.so.0", "--list", LIBCUDA)
    assert predicted(Situation(HOST, image(MUSL, GCOMPAT)))[LIBCUDA] == Prediction("loads", LIBCUDA, words, None)


def test_a_library_that_lacks_another_is_not_to_load_and_the_message_is_to_name_it() -> None:
    made = predicted(Situation((*HOST, needing("libGLX_nvidia", needed=("libX11.so.6",))), glibc()))[OPENGL]
    why = "libX11.so.6: cannot open shared object file: No such file or directory"
    assert (made.succeeds, made.why, made.reasons) == (False, why, ("libX11.so.6",))


def test_no_reason_is_predicted_for_a_damaged_library_which_the_loader_may_die_of() -> None:
    whole = elf("libGLX_nvidia.so.1")
    damaged = {f"/usr/lib64/libGLX_nvidia.so.{V}": whole[: len(whole) // 2]}
    made = predicted(Situation((*HOST, damaged), glibc()))[OPENGL]
    assert (made.succeeds, made.reasons) == (False, ())


def test_nothing_is_predicted_for_a_library_that_may_be_in_a_place_that_was_not_seen() -> None:
    parts = (*HOST, needing("libGLX_nvidia", needed=("libX11.so.6",)))
    begun = bringing(options=("--overlay", "x.img"))
    made = predicted(Situation(parts, glibc(), start=begun, local=recorded_tree({}), backend="apptainer"))
    libs = SINGULARITY_LAYOUT.libdir
    assert (made[f"{libs}/libGLX_nvidia.so.0"].succeeds, made[f"{libs}/libcuda.so.1"].succeeds) == (None, True)


def test_only_dlopen_refuses_an_executable_stack() -> None:
    new = elf("libc.so.6", defines=("libc.so.6", *GLIBC), interpreter=LOADER)
    opened = image(plain_glibc("2.41"), {f"{LIB}/libc.so.6": new})
    situation = Situation((*HOST, needing("libGLX_nvidia", executable_stack=True)), opened)
    assert "executable-stack" in [finding.code for finding in found(situation)]
    assert predicted(situation)[OPENGL].succeeds


def test_nothing_is_asked_of_an_image_without_a_loader() -> None:
    assert predicted(Situation(HOST, image({"/bin/sh": File(elf(kind=2), 0o755)}))) == {}


@pytest.mark.parametrize(
    ("opened", "name", "succeeds"),
    [
        (program(), SELF_MADE, True),
        (program(), "simulate", True),
        (program(mode=0o644), SELF_MADE, False),
        (program(), "/opt/other", False),
        (program(), "other", False),
        (glibc({SELF_MADE: File(b"#!/opt/none\n", 0o755)}), SELF_MADE, True),
    ],
)
def test_a_program_is_to_be_there_and_executable(opened: Any, name: str, succeeds: bool) -> None:
    made = predicted(Situation(HOST, opened, program=name))[name]
    assert (made.kind, made.words, made.succeeds) == ("program", (name,), succeeds)
    assert bool(made.why) is not succeeds


def test_a_program_is_loaded_by_its_own_loader_from_where_its_links_lead() -> None:
    opened = glibc(
        {
            "/opt/solve": Link("real/solve"),
            "/opt/real/solve": File(elf(kind=2, interpreter="/lib/ld-musl-x86_64.so.1", needed=("libz.so",)), 0o755),
            "/usr/lib/ld-musl-x86_64.so.1": File(elf(), 0o755),
        }
    )
    made = [one for one in listed(Situation(HOST, opened, program="/opt/solve")) if "solve" in one.subject]
    assert [one.kind for one in made] == ["program", "loads"]
    assert made[1].words == ("/lib/ld-musl-x86_64.so.1", "--list", "/opt/real/solve")
    assert made[1].reasons == ("libz.so",)


def test_a_program_whose_loader_is_not_there_is_not_to_load() -> None:
    opened = glibc({SELF_MADE: File(elf(kind=2, interpreter="/lib/ld-musl-x86_64.so.1"), 0o755)})
    made = [one for one in listed(Situation(HOST, opened, program=SELF_MADE)) if one.subject == SELF_MADE]
    assert [(one.kind, one.succeeds) for one in made] == [("program", True), ("loads", False)]


def test_a_program_whose_loader_is_for_another_machine_is_not_to_load() -> None:
    opened = glibc({SELF_MADE: File(elf(bits=32, machine=3, kind=2, interpreter=LOADER), 0o755)})
    made = [one for one in listed(Situation(HOST, opened, program=SELF_MADE)) if one.subject == SELF_MADE]
    assert [(one.kind, one.succeeds) for one in made] == [("program", True), ("loads", False)]


def test_a_script_is_asked_by_its_interpreter_and_a_static_program_by_nobody() -> None:
    opened = glibc({SELF_MADE: File(b"#!/bin/sh\n", 0o755), "/usr/bin/sh": File(elf(interpreter=LOADER), 0o755)})
    assert predicted(Situation(HOST, opened, program=SELF_MADE))["/usr/bin/sh"].kind == "loads"
    static = glibc({SELF_MADE: File(elf(kind=2), 0o755)})
    made = [one for one in listed(Situation(HOST, static, program=SELF_MADE)) if one.subject == SELF_MADE]
    assert [one.kind for one in made] == ["program"]


def test_a_library_in_the_place_of_the_program_is_only_to_load() -> None:
    path = f"{LIB}/libmine.so"
    situation = Situation(HOST, glibc({path: elf("libmine.so")}), program=path, may_be_library=True)
    assert predicted(situation)[path].words == (LOADER, "--list", path)


@pytest.mark.parametrize(
    ("parts", "succeeds", "why"),
    [
        (healthy(), True, ""),
        (lacking("/dev/nvidiactl"), False, "control-node-missing: "),
        (lacking("/dev/nvidia-uvm"), False, "uvm-missing: "),
        ((rhel(), kernel(None, gpus=0), on_the_bus(K80)), False, "gpu-unsupported: "),
        (healthy(needing("libcuda", needed=("libz.so",))), False, "libcuda.so.1 does not load"),
    ],
)
def test_cuda_is_to_work_where_nothing_is_found_that_stops_it(
    parts: tuple[Spec, ...], succeeds: Optional[bool], why: str
) -> None:
    made = predicted(Situation(parts, glibc(PYTHON)))["cuInit"]
    assert made.succeeds is succeeds
    assert made.why.startswith(why)
    assert made.words[0] == "/usr/bin/python3"


def test_cuda_is_not_to_see_a_gpu_where_the_callers_variable_hides_them() -> None:
    situation = Situation(healthy(), glibc(PYTHON), facts={"environ": {"CUDA_VISIBLE_DEVICES": "-1"}})
    assert predicted(situation)["cuInit"].why.startswith("visible-devices-none: ")


def test_nothing_is_predicted_of_cuda_where_there_is_another_error_and_nothing_asked_without_python() -> None:
    situation = Situation(healthy(), glibc(PYTHON, {"/usr/local/cuda/version.json": '{"cuda": {"version": "99.0"}}'}))
    assert predicted(situation)["cuInit"].succeeds is None
    assert "cuInit" not in predicted(Situation(healthy(), glibc()))


def test_a_python_in_the_users_path_asks() -> None:
    opened = glibc({"/opt/conda/bin/python3": File(elf(kind=2), 0o755)})
    situation = Situation(healthy(), opened, start=bringing(PATH="/opt/conda/bin"), local=recorded_tree({}))
    assert predicted(situation)["cuInit"].words[0] == "/opt/conda/bin/python3"


LOADS = Prediction("loads", LIBCUDA, (LOADER, "--list", LIBCUDA), True)
LACKS = LOADS._replace(succeeds=False, why="libX11.so.6: cannot open", reasons=("libX11.so.6",))
RUNS = Prediction("program", "solve", ("solve",), True)
CUDA = Prediction("driver", "cuInit", ("python3",), True)


@pytest.mark.parametrize(
    ("asked", "status", "said", "told", "is_wrong"),
    [
        (LOADS, 0, "", "", False),
        (LOADS, 127, f"{LIBCUDA}: error while loading shared libraries: x.so: none", "x.so: none", True),
        (LOADS, 1, f"{LIBCUDA}: /lib/libc.so.6: version `GLIBC_9' not found", "/lib/libc.so.6: version", True),
        (LOADS, 0, f"{LIBCUDA}: /lib/libc.so.6: version `GLIBC_9' not found (required by x)", "/lib/libc.so.6: ", True),
        (LOADS, 0, "ERROR: ld.so: object 'x.so' from LD_PRELOAD cannot be preloaded: ignored.", "ERROR", False),
        (LOADS, 139, "", "exit status 139", True),
        (LOADS, None, "", "the loader is not in the container", True),
        (LACKS, 127, f"{LIBCUDA}: error while loading shared libraries: libX11.so.6: none", "libX11.so.6: none", False),
        (LACKS, 127, f"{LIBCUDA}: error while loading shared libraries: libz.so: none", "libz.so: none", True),
        (LACKS, 139, "", "exit status 139", True),
        (LACKS, None, "", "the loader is not in the container", True),
        (LACKS, 0, "", "", True),
        (LOADS._replace(succeeds=None), 127, "x", "x", False),
        (RUNS, 0, "", "", False),
        (RUNS, 1, "", "it is not there, or may not be executed", True),
        (CUDA, 0, "cuInit says 0", "cuInit says 0", False),
        (CUDA, 1, "cuInit says 999", "cuInit says 999", True),
        (CUDA, NO_DEVICE, "cuInit says 100", "cuInit says 100", False),
        (CUDA._replace(succeeds=False), 0, "cuInit says 0", "cuInit says 0", True),
        (CUDA._replace(succeeds=False), NO_DEVICE, "cuInit says 100", "cuInit says 100", False),
    ],
)
def test_an_answer_is_compared_with_the_prediction(
    asked: Prediction, status: Optional[int], said: str, told: str, is_wrong: bool
) -> None:
    tried = compare_answer(asked, status, said)
    assert (tried.said.startswith(told), tried.is_wrong) == (True, is_wrong)


def wrong(*tried: Any) -> list[Finding]:
    situation = Situation(HOST, glibc(), program="solve's", trial=Trial("bwrap", tried))
    return [finding for finding in found(situation) if finding.code == "prediction-wrong"]


def test_a_wrong_prediction_is_one_finding_for_each_kind_of_mistake_with_the_files() -> None:
    many = [compare_answer(LOADS._replace(subject=f"/x/lib{at}.so"), 127, "no") for at in range(7)]
    made = wrong(
        *many, compare_answer(LACKS, 0, ""), compare_answer(LACKS, 127, "libz.so: none"), compare_answer(RUNS, 1, "")
    )
    assert [finding.subject for finding in made] == ["lib0.so", "libcuda.so.1", "libcuda.so.1", "solve"]
    assert made[0].where == "/x/lib0.so, /x/lib1.so, /x/lib2.so, /x/lib3.so and 3 others"
    assert len({finding.what.partition(" ")[2] for finding in made}) == 4
    assert {finding.severity for finding in made} == {"error"}


def test_the_commands_for_a_bug_report_name_the_start() -> None:
    (made,) = wrong(compare_answer(CUDA, 1, "cuInit says 999"))
    first, second = (made.command or "").split("\n")
    assert first == "gpubind record -o host.json"
    start = "gpubind check --try --backend bwrap --image test --program"
    assert second == f"{start} 'solve'\"'\"'s' --json -o check.json"


def test_a_right_prediction_is_no_finding() -> None:
    assert (
        wrong(
            compare_answer(LOADS, 0, ""), compare_answer(LACKS, 127, "libX11.so.6: none"), compare_answer(RUNS, 0, "")
        )
        == []
    )
