"""The files of a plan and of a program with their linked files, and the host files that the plan leaves out."""

from __future__ import annotations

from gpubind.rules.linkage import left_out, linkage_of
from tests.rules.cases_image import GRAPHICS, HOST, NEW_GLVND, SELF_MADE, program
from tests.rules.situations import Situation, started
from tests.support.images import GLVND, glibc, image

LEFT_OUT = ["/usr/lib64/libEGL.so.1", "/usr/lib64/libGL.so.1", "/usr/lib64/libGLdispatch.so.0"]
JOB = Situation((*HOST, NEW_GLVND), image(glibc("2.36"), GLVND, program(needed=("libcuda.so.1",))), GRAPHICS)


def test_the_linked_files_are_those_of_the_program_the_plan_and_what_the_image_keeps_out() -> None:
    job = started(JOB._replace(program=SELF_MADE))
    paths = [file.path for file in linkage_of(job)]
    assert paths[0] == SELF_MADE
    targets = [mount.target for mount in job.plan.mounts if mount.kind in ("library", "binary")]
    assert set(paths).issuperset({SELF_MADE, *targets, *LEFT_OUT})
    assert sorted(decision.path or "" for decision in left_out(job.plan)) == LEFT_OUT


def test_without_an_image_the_linked_files_are_the_plans() -> None:
    job = started(JOB._replace(image=None))
    targets = [mount.target for mount in job.plan.mounts if mount.kind in ("library", "binary")]
    assert set(targets).issubset(file.path for file in linkage_of(job))
