"""What the site's configuration and the image's variables add to a command line."""

from __future__ import annotations

import pytest

from gpubind.errors import UsageError
from gpubind.formats.driver.gpu_names import CAPS_VARIABLE
from gpubind.launch.wrap.command import WrappedCommand, parse_command
from gpubind.launch.wrap.gpus import with_image
from gpubind.model import Capability


def test_what_the_site_always_adds_counts_as_the_flag() -> None:
    wrapped = parse_command(["apptainer", "exec", "img.sif", "true"], {}, ("nv", "rocm"))
    assert isinstance(wrapped, WrappedCommand)
    assert wrapped.gpus.vendors == ("nvidia", "amd")
    assert (wrapped.gpus.flags, wrapped.gpus.is_requested) == ((), True)


@pytest.mark.parametrize(("flag", "is_passed"), [("--no-nv", True), ("--nv=false", False)])
def test_only_no_nv_takes_away_what_the_site_always_adds(flag: str, is_passed: bool) -> None:
    made = parse_command(["apptainer", "exec", flag, "img.sif", "true"], {}, ("nv",))
    assert (made is None) == is_passed


def asked(*words: str, env: dict[str, str] | None) -> tuple[str | None, tuple[Capability, ...] | None] | None:
    """GPUs and capabilities of a line of docker's for an image with that environment."""
    wrapped = parse_command(["docker", "run", *words, "img"], {})
    assert isinstance(wrapped, WrappedCommand)
    request = with_image(wrapped.gpus, env)
    return None if request is None else (request.gpus, request.caps)


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_a_vendors_runtime_gives_all_gpus_where_the_image_is_not_known(vendor: str) -> None:
    assert asked(f"--runtime={vendor}", env=None) == ("all", None)


def test_with_amds_runtime_alone_the_images_variable_chooses() -> None:
    assert asked("--runtime=amd", env={"AMD_VISIBLE_DEVICES": "ALL"}) == ("all", None)
    assert asked("--runtime=amd", env={"AMD_VISIBLE_DEVICES": "0-1,3"}) == ("0,1,3", None)
    for env in ({}, {"AMD_VISIBLE_DEVICES": "void"}, {"NVIDIA_VISIBLE_DEVICES": "all"}):
        assert asked("--runtime=amd", env=env) is None
    assert asked("--runtime=amd", env={"AMD_VISIBLE_DEVICES": "0,3-1"}) == ("0,3-1", None)


def test_with_nvidias_runtime_alone_the_images_variable_chooses() -> None:
    assert asked("--runtime=nvidia", env={"NVIDIA_VISIBLE_DEVICES": "0,1"}) == ("0,1", None)
    assert asked("--runtime=nvidia", env={"NVIDIA_VISIBLE_DEVICES": "all"}) == ("all", None)
    for value in ("void", "", " "):
        assert asked("--runtime=nvidia", env={"NVIDIA_VISIBLE_DEVICES": value}) is None
    assert asked("--runtime=nvidia", env={}) is None
    with pytest.raises(UsageError):
        asked("--runtime=nvidia", env={"NVIDIA_VISIBLE_DEVICES": "first"})


@pytest.mark.parametrize(
    ("path", "is_node"), [("/dev/dri", True), ("/dev/dri/", True), ("/dev/dri//", True), ("/dev/dri~", False)]
)
def test_a_node_asks_for_gpus_with_slashes_after_its_path_but_with_no_other_character(path: str, is_node: bool) -> None:
    wrapped = parse_command(["docker", "run", "--device=/dev/kfd", f"--device={path}", "img"], {})
    assert isinstance(wrapped, WrappedCommand) is is_node


def test_the_line_wins_over_the_images_variables() -> None:
    env = {"NVIDIA_VISIBLE_DEVICES": "1", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
    assert asked("--gpus", "all", env=env) == ("all", ("utility",))
    assert asked("--gpus", "all,capabilities=compute", env=env) == ("all", ("compute",))


@pytest.mark.parametrize(
    "line", [("docker", "--device", "nvidia.com/gpu=all"), ("podman", "--gpus", "all"), ("podman", "--gpus=0,1")]
)
def test_no_variable_narrows_a_cdi_device(line: tuple[str, ...]) -> None:
    program, *words = line
    named = f"{CAPS_VARIABLE}=compute,utility"
    for own, env in (
        ((), {CAPS_VARIABLE: "compute,utility"}),
        (("-e", named), {}),
        (("-e", named), {CAPS_VARIABLE: "utility"}),
    ):
        wrapped = parse_command([program, "run", *own, *words, "img", "true"], {})
        assert isinstance(wrapped, WrappedCommand)
        request = with_image(wrapped.gpus, env)
        assert request is not None
        assert request.caps is None


def test_for_apptainer_the_images_variables_do_not_count() -> None:
    wrapped = parse_command(["apptainer", "exec", "--nv", "img", "true"], {})
    assert isinstance(wrapped, WrappedCommand)
    assert with_image(wrapped.gpus, {"NVIDIA_DRIVER_CAPABILITIES": "utility"}) == wrapped.gpus
