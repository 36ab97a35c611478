"""A plan in a user's own command line for bubblewrap."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.errors import RuntimeLimitError
from gpubind.image.facts import Image
from gpubind.model import ContainerPath, EnvVar, HostPath, Request
from gpubind.planner.placement import GPUBIND_LAYOUT
from gpubind.runtimes import PROGRAMS
from gpubind.runtimes.bubblewrap.root import REBUILD_LIMIT, arguments_in_line
from tests.support.driver import host, kernel, rhel
from tests.support.images import glibc, image
from tests.support.starts import stage_of, start_by
from tests.support.trees import Dir, Spec

ICD = ContainerPath("/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json")
STAGED = {ICD: HostPath("/cache/icd.json")}
ROOT = ("--ro-bind", "/images/test", "/")
LIBCUDA = ("--ro-bind", "/usr/lib64/libcuda.so.550.54.14", "/.gpubind/libs/libcuda.so.1")
GPU = ("--dev-bind", "/dev/nvidia0", "/dev/nvidia0")


def options_of(
    *arguments: str, rooted: bool = True, spec: Optional[Spec] = None, env: tuple[EnvVar, ...] = (), **facts: Any
) -> tuple[tuple[str, ...], ...]:
    opened: Optional[Image] = image(glibc(), spec or {}) if rooted else None
    made = plan(host(rhel(), kernel()), Request(), image=opened, layout=GPUBIND_LAYOUT)
    made = made._replace(env=(*made.env, *env))
    tree = opened.tree if opened else None
    stage = stage_of(facts := {"staged": STAGED, **facts})
    start = start_by("bwrap", **{"arguments": arguments, "tree": tree, **facts})
    return tuple(
        option.args for option in PROGRAMS["bwrap"].read(arguments_in_line(made, start, stage).options).options
    )


def variable(options: tuple[tuple[str, ...], ...], name: str) -> Optional[str]:
    return next((option[2] for option in reversed(options) if option[:2] == ("--setenv", name)), None)


def test_what_the_user_wrote_stays_in_its_order() -> None:
    own = (("--unshare-pid",), ("--proc", "/proc"), ("--dev", "/dev"), ("--tmpfs", "/tmp"), ("--setenv", "A", "b c"))
    options = options_of("--unshare-pid", *ROOT, *(word for option in own[1:] for word in option))
    assert [option for option in options if option in own] == list(own)


def test_the_image_becomes_the_entries_of_a_root_in_which_places_can_be_made() -> None:
    options = options_of(*ROOT, "--dev", "/dev")
    assert ROOT not in options
    assert ("--ro-bind", "/images/test/etc", "/etc") in options
    assert ("--symlink", "usr/lib", "/lib") in options
    assert options.index(("--ro-bind", "/images/test/etc", "/etc")) < options.index(("--dev", "/dev"))
    assert options[-1] == ("--remount-ro", "/")


def test_ours_stands_behind_what_would_cover_it() -> None:
    options = options_of(*ROOT, "--dev", "/dev")
    assert options.index(("--dev", "/dev")) < options.index(GPU)
    assert LIBCUDA in options


def test_ours_stands_before_a_root_is_closed() -> None:
    options = options_of("--ro-bind", "/usr", "/usr", "--dev", "/dev", "--remount-ro", "/", rooted=False)
    assert options.index(LIBCUDA) < options.index(("--remount-ro", "/"))


def test_a_container_without_a_dev_gets_one() -> None:
    options = options_of(*ROOT)
    assert options.index(("--dev", "/dev")) < options.index(GPU)
    assert ("--dev", "/dev") not in options_of(*ROOT, "--dev-bind", "/dev", "/dev")


def test_in_what_the_user_binds_nothing_is_made() -> None:
    options = options_of(*ROOT, "--bind", "/scratch", "/usr/share")
    assert not [option for option in options if option[-1] == ICD]
    assert [option for option in options_of(*ROOT) if option[-1] == ICD] == [("--ro-bind", "/cache/icd.json", ICD)]


def test_in_a_root_that_is_bound_writable_nothing_is_made() -> None:
    options = options_of("--bind", "/images/test", "/")
    assert ("--bind", "/images/test/usr", "/usr") in options
    assert not [option for option in options if option[0] in ("--tmpfs", "--remount-ro") or option[-1] == ICD]
    assert LIBCUDA in options


def test_a_place_that_the_image_has_is_used_in_a_writable_root() -> None:
    options = options_of("--bind", "/images/test", "/", spec={ICD: ""})
    assert ("--ro-bind", "/cache/icd.json", ICD) in options


def test_without_an_image_the_root_is_bubblewraps_own() -> None:
    options = options_of("--ro-bind", "/usr", "/usr", "--dev", "/dev", rooted=False)
    assert options[:2] == (("--ro-bind", "/usr", "/usr"), ("--dev", "/dev"))
    assert LIBCUDA in options


def test_in_an_overlay_nothing_is_bound_anew() -> None:
    options = options_of("--overlay-src", "/images/test", "--tmp-overlay", "/", spec={"/srv": Dir()})
    assert options[:2] == (("--overlay-src", "/images/test"), ("--tmp-overlay", "/"))
    assert not [option for option in options if option[-1] == "/srv"]


def test_in_a_read_only_overlay_there_is_no_place() -> None:
    with pytest.raises(RuntimeLimitError) as error:
        options_of("--overlay-src", "/images/test", "--ro-overlay", "/")
    assert error.value.code == "fixed-root"


def test_the_users_search_path_comes_first_and_the_callers_last() -> None:
    said = options_of(*ROOT, "--setenv", "LD_LIBRARY_PATH", "/mine")
    assert variable(said, "LD_LIBRARY_PATH") == "/mine:/.gpubind/libs"
    callers = options_of(*ROOT, environ={"LD_LIBRARY_PATH": "/callers", "PATH": "/bin"})
    assert variable(callers, "LD_LIBRARY_PATH") == "/.gpubind/libs:/callers"
    assert variable(callers, "PATH") == "/bin:/.gpubind/bin"


def test_with_clearenv_the_callers_variables_stay_outside() -> None:
    options = options_of(*ROOT, "--clearenv", environ={"LD_LIBRARY_PATH": "/callers", "PATH": "/bin"})
    assert variable(options, "LD_LIBRARY_PATH") == "/.gpubind/libs"
    assert variable(options, "PATH") is None


def test_a_variable_that_the_plan_removes_is_removed() -> None:
    assert ("--unsetenv", "A") in options_of(*ROOT, env=(EnvVar("A", "unset", None, None, "gpus"),))


def test_what_the_user_takes_away_stays_away() -> None:
    assert variable(options_of(*ROOT, "--unsetenv", "LD_LIBRARY_PATH"), "LD_LIBRARY_PATH") is None


@pytest.mark.parametrize(("entries", "is_bound"), [(REBUILD_LIMIT, True), (REBUILD_LIMIT + 1, False)])
def test_a_directory_of_a_read_only_root_is_rebuilt_up_to_the_limit(entries: int, is_bound: bool) -> None:
    directory = ICD.rpartition("/")[0]
    spec: Spec = {f"{directory}/{number}": "" for number in range(entries)}
    options = options_of(*ROOT, "--dev", "/dev", spec=spec)
    assert (("--ro-bind", "/cache/icd.json", ICD) in options) is is_bound
    assert (("--tmpfs", directory) in options) is is_bound
