"""The rules of tests/live/never_worse, on starts that are written down here."""

from __future__ import annotations

import itertools
from typing import Any, Optional

import pytest

from tests.live.never_worse import compare, report
from tests.live.never_worse.compare import (
    BETTER,
    COMPAT,
    EQUAL,
    HOST,
    NEUTRAL,
    NONE,
    OLD,
    STUB,
    TOLD,
    UUIDS,
    WORSE,
    Ended,
    Library,
    Pair,
    Rule,
    Seen,
    Verdict,
)
from tests.live.never_worse.probe import NAMES
from tests.live.never_worse.recipes import IMAGES
from tests.live.never_worse.sample import starts
from tests.live.never_worse.tables import CREATED_OPTIONS, CREATED_SITES, ENVIRONMENTS, OPTIONS, REQUESTS, SITES
from tests.live.never_worse.ways import CREATED, WAYS, Command, by_created, checked, real, real_created
from tests.support.golden import DOCS, assert_golden

LIBS = "/.singularity.d/libs"
BOTH = {"/dev/nvidia0": "ENXIO", "/dev/nvidia1": "ENXIO", "/dev/nvidiactl": "ENXIO"}
ONLY_1 = {"/dev/nvidia1": "ENXIO", "/dev/nvidiactl": "ENXIO"}
HOSTS = Library(HOST, f"{LIBS}/libcuda.so.1", f"{LIBS}/libcuda.so.1", 100)
OLDER = Library(OLD, "/opt/old/libcuda.so.1", "/opt/old/libcuda.so.535.261.03", 100)
STUBBED = Library(STUB, "/opt/stubs/libcuda.so.1", "/opt/stubs/libcuda.so.1", 34)
NEWER = Library(COMPAT, "/opt/compat/libcuda.so.1", "/opt/compat/libcuda.so.580.65.06", 100)
ABSENT = Library(NONE)


def seen(**changes: Any) -> Seen:
    """What a healthy start shows, and what differs. A library is given as `libcuda=...`, variables as `environ=...`."""
    libraries = dict.fromkeys(NAMES, ABSENT) | {"libcuda.so.1": changes.pop("libcuda", HOSTS)}
    libraries |= changes.pop("libraries", {})
    environ = {"LD_LIBRARY_PATH": LIBS, "PATH": "/usr/bin:/bin", "HOME": "/home/user"} | changes.pop("environ", {})
    healthy = Seen(libraries, BOTH, {}, {"/data": ["missing", False, False]}, {"nvidia-smi": None}, environ, (), "/")
    return healthy._replace(**changes)


def said(rule: Rule, real: Seen, ours: Seen, **more: Any) -> str:
    """The outcome of one rule."""
    return compare.outcome(list(rule(Pair(real, ours, **more))))


@pytest.mark.parametrize("rule", compare.RULES, ids=lambda rule: rule.__name__)
def test_a_start_that_is_the_same_is_equal(rule: Rule) -> None:
    assert said(rule, seen(), seen()) == EQUAL


def test_one_verdict_that_is_worse_decides_over_all_that_are_better() -> None:
    verdicts = [Verdict(BETTER, ""), Verdict(WORSE, ""), Verdict(TOLD, "")]
    assert compare.outcome(verdicts) == WORSE
    assert compare.outcome(verdicts[:1]) == BETTER
    assert compare.outcome([]) == EQUAL


def test_a_verdict_names_its_rule() -> None:
    verdicts = compare.judged(Ended(7, "", seen()), Ended(7, "", seen(directory="/tmp")), {}, "", bubblewrap=False)
    assert [verdict.rule for verdict in verdicts] == ["command_line"]


def test_starts_a_start_that_fails_is_worse() -> None:
    for ours in (Ended(125, "error: x", None), Ended(0, "", seen())):
        assert compare.outcome(list(compare.starts(Ended(7, "", seen()), ours))) == WORSE


def test_starts_a_form_that_says_that_it_cannot_say_the_plan_has_told() -> None:
    ours = Ended(6, "error: not-raw: a word of this plan ...", None)
    assert compare.outcome(list(compare.starts(Ended(7, "", seen()), ours))) == TOLD


@pytest.mark.parametrize(
    ("there", "here", "outcome"),
    [
        (HOSTS, STUBBED, WORSE),
        (HOSTS, OLDER, WORSE),
        (HOSTS, ABSENT, WORSE),
        (NEWER, HOSTS, WORSE),
        (OLDER, STUBBED, WORSE),
        (STUBBED, HOSTS, BETTER),
        (OLDER, HOSTS, BETTER),
        (HOSTS, NEWER, BETTER),
        (STUBBED, STUBBED, EQUAL),
    ],
)
def test_driver_libraries_serve_at_least_as_much(there: Library, here: Library, outcome: str) -> None:
    assert said(compare.driver_libraries, seen(libcuda=there), seen(libcuda=here)) == outcome


def test_other_libraries_still_load() -> None:
    for name in NEUTRAL:
        assert said(compare.other_libraries, seen(libraries={name: HOSTS}), seen()) == WORSE
        assert said(compare.other_libraries, seen(), seen(libraries={name: HOSTS})) == EQUAL


def test_other_libraries_of_the_host_may_be_left_out_if_a_finding_names_them() -> None:
    real, told = seen(libraries={"libOpenCL.so.1": HOSTS}), "note: vendor-neutral-left-out: ... loader (libOpenCL) ..."
    assert said(compare.other_libraries, real, seen(), told=told) == TOLD
    assert said(compare.other_libraries, seen(libraries={"libGL.so.1": HOSTS}), seen(), told=told) == WORSE
    images = seen(libraries={"libOpenCL.so.1": HOSTS._replace(label=compare.IMAGE)})
    assert said(compare.other_libraries, images, seen(), told=told) == WORSE


@pytest.mark.parametrize("library", [STUBBED, OLDER])
def test_bad_libcuda_is_told_by_the_file_that_wins(library: Library) -> None:
    bad = seen(libcuda=library)
    assert said(compare.bad_libcuda_is_told, bad, bad) == WORSE
    assert said(compare.bad_libcuda_is_told, bad, bad, told="warning: stub: something is a stub") == WORSE
    assert said(compare.bad_libcuda_is_told, bad, bad, told=f"warning: driver-in-image: {library.real}") == TOLD
    last = "warning: library-path-last: "
    assert said(compare.bad_libcuda_is_told, bad, bad, told=f"{last}the image's value comes before") == WORSE
    assert said(compare.bad_libcuda_is_told, bad, bad, told=f"{last}the image's\nnote: image-unknown: ") == TOLD
    assert said(compare.bad_libcuda_is_told, bad, bad, told=f"{last}--env LD_LIBRARY_PATH takes precedence") == TOLD


def test_driver_answers_where_it_did() -> None:
    silent = seen(libcuda=HOSTS._replace(status=304))
    assert said(compare.driver_answers, seen(), silent) == WORSE
    assert said(compare.driver_answers, silent, seen()) == EQUAL
    assert said(compare.driver_answers, silent, silent) == EQUAL
    for images in (OLDER, NEWER):
        assert said(compare.driver_answers, seen(libcuda=images), silent) == EQUAL


def test_driver_answers_of_nvml_are_nothing_where_no_gpu_is_chosen() -> None:
    nvml = Library(HOST, "/x", "/x", compare.DRIVER_NOT_LOADED)
    real, ours = (
        seen(libraries={"libnvidia-ml.so.1": nvml}),
        seen(libraries={"libnvidia-ml.so.1": nvml._replace(status=4)}),
    )
    assert said(compare.driver_answers, real, ours) == WORSE
    hidden = {**real.environ, compare.CUDA: "-1"}
    assert said(compare.driver_answers, real._replace(environ=hidden), ours) == EQUAL


@pytest.mark.parametrize(
    ("there", "here", "nodes", "outcome"),
    [
        ({}, {}, {}, WORSE),
        ({}, {}, ONLY_1, WORSE),
        ({compare.CUDA: "1"}, {compare.CUDA: "0"}, ONLY_1, EQUAL),
        ({compare.CUDA: "1"}, {compare.CUDA: "1"}, ONLY_1, WORSE),
        ({compare.CUDA: "1"}, {compare.CUDA: UUIDS[1]}, BOTH, EQUAL),
        ({compare.CUDA: "1"}, {}, BOTH, WORSE),
        ({compare.CUDA: "1,0"}, {compare.CUDA: "0,1"}, BOTH, WORSE),
        ({compare.CUDA: "0,7,1"}, {compare.CUDA: "0"}, BOTH, EQUAL),
        ({compare.CUDA: ""}, {compare.CUDA: "-1"}, {}, EQUAL),
        ({compare.CUDA: "-1"}, {}, BOTH, WORSE),
    ],
)
def test_gpus_are_those_of_the_real_start_in_its_order(
    there: dict[str, str], here: dict[str, str], nodes: dict[str, str], outcome: str
) -> None:
    assert said(compare.gpus, seen(environ=there), seen(environ=here, nodes=nodes)) == outcome


@pytest.mark.parametrize(
    "caller",
    [{"SLURM_JOB_GPUS": "1"}, {"NVIDIA_VISIBLE_DEVICES": "1"}, {compare.CUDA: "1"}],
    ids=lambda c: next(iter(c)),
)
def test_gpus_that_the_caller_leaves_out_may_go(caller: dict[str, str]) -> None:
    assert said(compare.gpus, seen(), seen(nodes=ONLY_1), caller=caller) == EQUAL
    assert said(compare.gpus, seen(), seen(nodes={}), caller=caller) == WORSE


def test_gpus_that_the_user_gives_the_container_are_the_choice() -> None:
    real, caller = seen(environ={compare.CUDA: "1"}), {compare.CUDA: "0"}
    assert said(compare.gpus, real, seen(environ={compare.CUDA: "1"}), caller=caller) == EQUAL
    assert said(compare.gpus, real, seen(environ={compare.CUDA: "0"}), caller=caller) == WORSE


@pytest.mark.parametrize(
    ("there", "here", "nodes", "outcome"),
    [
        ("0,1", ",".join(UUIDS.values()), BOTH, WORSE),
        ("GPU-00000001", UUIDS[1], BOTH, WORSE),
        ("NoDevFiles", "-1", BOTH, WORSE),
        ("1", UUIDS[1], ONLY_1, WORSE),
        ("1", None, ONLY_1, WORSE),
        ("1", "0", ONLY_1, EQUAL),
        (UUIDS[1], UUIDS[1], ONLY_1, EQUAL),
    ],
)
def test_gpu_variables_keep_their_spelling(
    there: str, here: Optional[str], nodes: dict[str, str], outcome: str
) -> None:
    environ = {} if here is None else {compare.CUDA: here}
    assert (
        said(compare.gpu_variables, seen(environ={compare.CUDA: there}), seen(environ=environ, nodes=nodes)) == outcome
    )


def test_gpu_variables_may_lose_what_another_variable_leaves_out() -> None:
    real, caller = seen(environ={compare.CUDA: "0,1"}), {"NVIDIA_VISIBLE_DEVICES": "1"}
    assert said(compare.gpu_variables, real, seen(environ={compare.CUDA: "1"}), caller=caller) == EQUAL
    assert said(compare.gpu_variables, real, seen(environ={compare.CUDA: UUIDS[1]}), caller=caller) == WORSE


def test_nodes_can_be_used_as_before() -> None:
    assert said(compare.nodes, seen(), seen(nodes={**BOTH, "/dev/nvidiactl": "EACCES"})) == WORSE
    assert said(compare.nodes, seen(), seen(nodes={"/dev/nvidia0": "ENXIO", "/dev/nvidia1": "ENXIO"})) == WORSE
    assert said(compare.nodes, seen(nodes={"/dev/nvidia0": "EACCES", **ONLY_1}), seen(nodes=ONLY_1)) == EQUAL


def test_nodes_of_gpus_not_chosen_may_go() -> None:
    assert said(compare.nodes, seen(), seen(nodes=ONLY_1), caller={"SLURM_JOB_GPUS": "1"}) == EQUAL
    assert said(compare.nodes, seen(), seen(nodes=ONLY_1), caller={"SLURM_JOB_GPUS": "0"}) == WORSE
    assert said(compare.nodes, seen(environ={compare.CUDA: "-1"}), seen(nodes={})) == EQUAL


@pytest.mark.parametrize("name", compare.PATH_LISTS)
@pytest.mark.parametrize(
    ("there", "here", "outcome"),
    [
        (f"/a:/b:{LIBS}", f"{LIBS}:/a:/b", EQUAL),
        (f"/a:/b:{LIBS}", f"/a:{LIBS}:/b:/c", EQUAL),
        (f"/a:/b:{LIBS}", f"{LIBS}:/b:/a", WORSE),
        (f"/a:/b:{LIBS}", f"{LIBS}:/a", WORSE),
        ("/a", LIBS, WORSE),
        ("/a", f"{LIBS}:/a:", WORSE),
        ("/a::/b", f"{LIBS}:/a::/b", EQUAL),
        ("/a::/b", f"{LIBS}:/a:/b", EQUAL),
    ],
)
def test_path_lists_keep_every_element_in_its_order(name: str, there: str, here: str, outcome: str) -> None:
    assert said(compare.path_lists, seen(environ={name: there}), seen(environ={name: here})) == outcome


def test_path_lists_of_scripts_that_another_runtime_cannot_run_are_told() -> None:
    real, told = seen(environ={"LD_LIBRARY_PATH": "/a"}), "warning: image-env-undecided: LD_LIBRARY_PATH ..."
    assert said(compare.path_lists, real, seen(), told=told, bubblewrap=True) == TOLD
    assert said(compare.path_lists, real, seen(), bubblewrap=True) == WORSE
    assert said(compare.path_lists, real, seen(), told=told) == WORSE


def test_path_lists_need_not_name_what_every_loader_searches() -> None:
    real = seen(environ={"LD_LIBRARY_PATH": f"/usr/local/lib:/lib/x86_64-linux-gnu:/lib:{LIBS}"})
    assert said(compare.path_lists, real, seen(), bubblewrap=True) == EQUAL
    assert said(compare.path_lists, real, seen()) == WORSE


def test_variables_arrive_as_they_are() -> None:
    for environ in ({}, {"FOO": "another"}):
        assert said(compare.variables, seen(environ={"FOO": "$x, 'y'"}), seen(environ=environ)) == WORSE


@pytest.mark.parametrize("name", ["APPTAINER_BIND", "SINGULARITY_NAME", "_", "SHLVL", "OLDPWD"])
def test_variables_of_bookkeeping_may_change(name: str) -> None:
    assert said(compare.variables, seen(environ={name: "1"}), seen(environ={name: "2"})) == EQUAL
    assert said(compare.strangers, seen(), seen(environ={name: "2"})) == EQUAL


def test_variables_that_apptainer_alone_sets_are_nothing_that_another_runtime_has_to_give() -> None:
    real = seen(environ={"PS1": "Apptainer> ", "APPTAINER_X": "1"})
    assert said(compare.variables, real, seen(), bubblewrap=True) == EQUAL
    assert said(compare.variables, real, seen()) == WORSE


def test_strangers_stay_out() -> None:
    assert said(compare.strangers, seen(), seen(environ={"SURPRISE": "1"})) == WORSE
    assert said(compare.strangers, seen(), seen(environ={"GBM_BACKENDS_PATH": LIBS})) == EQUAL


def test_read_only_is_every_mount_of_the_driver() -> None:
    assert said(compare.read_only, seen(), seen(mounts={"/usr/bin/nvidia-smi": "rw,nosuid"})) == WORSE
    assert said(compare.read_only, seen(), seen(mounts={"/usr/bin/nvidia-smi": "ro,nosuid"})) == EQUAL
    assert said(compare.read_only, seen(mounts=None), seen(mounts=None)) == EQUAL


def test_places_keep_what_is_in_them() -> None:
    there = seen(places={"/data": ["directory", True, True]})
    for lost in (["missing", False, False], ["directory", False, True], ["directory", True, False]):
        assert said(compare.places, there, seen(places={"/data": lost})) == WORSE
    assert said(compare.places, there, seen(), bubblewrap=True) == EQUAL


def test_programs_are_found_where_path_leads() -> None:
    there, elsewhere = seen(programs={"nvidia-smi": "/usr/bin/x"}), seen(programs={"nvidia-smi": "/opt/x"})
    assert said(compare.programs, there, seen()) == WORSE
    assert said(compare.programs, there, elsewhere) == WORSE
    assert said(compare.programs, there, seen(programs={"nvidia-smi": "/.gpubind/bin/x"})) == EQUAL
    assert said(compare.programs, there, elsewhere, bubblewrap=True) == EQUAL


def test_command_line_and_directory_are_the_same() -> None:
    assert said(compare.command_line, seen(), seen(directory="/tmp")) == WORSE
    assert said(compare.command_line, seen(), seen(arguments=("a",))) == WORSE


def test_the_tables_are_as_large_as_they_have_to_be() -> None:
    assert len([image for image in IMAGES if image.steps]) >= 25
    assert len(OPTIONS) + len(ENVIRONMENTS) >= 60
    for table in (
        [image.name for image in IMAGES],
        OPTIONS,
        CREATED_OPTIONS,
        [tuple(row.items()) for row in ENVIRONMENTS],
    ):
        assert len(set(table)) == len(table)


def test_few_images_are_sif_files() -> None:
    assert len([image for image in IMAGES if image.sif and image.steps]) <= 6


def test_a_seed_deals_the_same_starts_and_another_deals_others() -> None:
    first, again, other = (list(itertools.islice(starts(seed), 50)) for seed in (1, 1, 2))
    assert first == again != other


def test_four_hundred_starts_have_every_row_of_every_table() -> None:
    dealt = list(itertools.islice(starts(1), 400))
    assert {start.image for start in dealt} == set(IMAGES)
    requests = {tuple(words.split()) for of in REQUESTS.values() for words in of}
    assert {group for start in dealt for group in start.options} == {*OPTIONS, *CREATED_OPTIONS, *requests}
    assert {row for start in dealt for row in start.environments} == set(range(len(ENVIRONMENTS)))
    assert {start.way for start in dealt} == set(WAYS)
    assert {start.site for start in dealt} == {*SITES, *CREATED_SITES}
    assert {(start.caller.user, start.kind) for start in dealt} == {
        (user, kind) for user in (True, False) for kind in report.KINDS
    }


def test_the_tables_are_in_the_docs() -> None:
    assert_golden(DOCS / "runtimes.md", report.tables(), part="never worse, tables")


@pytest.mark.parametrize("way", [real, checked, *WAYS.values()], ids=lambda way: way.__name__)
def test_every_way_starts_the_image(way: Any) -> None:
    site = CREATED_SITES[0] if way is WAYS[CREATED] else ""
    assert "IMAGE" in " ".join(way(Command("IMAGE", ("--env", "A=two words"), ("true", "it's"), site)))


@pytest.mark.parametrize("site", CREATED_SITES)
def test_the_lines_of_a_created_container_differ_by_gpubind_alone(site: str) -> None:
    command = Command("IMAGE", ("--env", "A=two words"), ("true", "it's"), site)
    ours, theirs = by_created(command), real_created(command)
    assert [word.replace("gpubind wrap -- ", "") for word in ours] == list(theirs)
    assert ours != theirs
