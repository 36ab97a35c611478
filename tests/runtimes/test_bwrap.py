"""bubblewrap's words."""

from __future__ import annotations

from typing import Any, Optional

from build.driver import host, kernel, rhel
from build.elf import elf
from build.images import glibc, image, sandbox
from build.trees import Dir, Spec

from gpubind.facade import plan
from gpubind.image import Image
from gpubind.image.facts import DEFAULT_PATH
from gpubind.model import ContainerPath, HostPath, Request
from gpubind.runtimes.bwrap import LAYOUT, REBUILD_LIMIT, command, words
from gpubind.runtimes.start import Start, Words

ICD = ContainerPath("/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json")
STAGED = {ICD: HostPath("/cache/icd.json")}


def make(opened: Optional[Image] = None, **facts: Any) -> Words:
    opened = opened or image(glibc())
    made = plan(host(rhel(), kernel()), Request(), image=opened, layout=LAYOUT)
    return words(made, Start(**{"program": "bwrap", "staged": STAGED, **facts}), opened.tree)


def pairs(made: Words, option: str) -> list[tuple[str, str]]:
    """(first, second) of each *option*, which takes two words."""
    return [(made.options[i + 1], made.options[i + 2]) for i, word in enumerate(made.options) if word == option]


def test_the_images_root_is_made_anew_from_its_entries() -> None:
    made = make()
    assert ("/images/test/usr", "/usr") in pairs(made, "--ro-bind")
    assert ("usr/lib", "/lib") in pairs(made, "--symlink")
    assert "/dev" not in [target for _, target in pairs(made, "--ro-bind")]


def test_libraries_are_bound_read_only_below_a_directory_of_ours() -> None:
    assert ("/usr/lib64/libcuda.so.550.54.14", "/.gpubind/libs/libcuda.so.1") in pairs(make(), "--ro-bind")


def test_devices_are_bound_as_devices() -> None:
    assert ("/dev/nvidia0", "/dev/nvidia0") in pairs(make(), "--dev-bind")


def test_every_directory_that_was_made_anew_is_read_only_in_the_end() -> None:
    options = make().options
    last_bind = max(i for i, word in enumerate(options) if word in ("--ro-bind", "--bind", "--dev-bind"))
    remounts = [i for i, word in enumerate(options) if word == "--remount-ro"]
    assert options[remounts[-1] + 1] == "/"
    assert min(remounts) > last_bind


def test_a_place_that_the_image_lacks_is_made_beside_it() -> None:
    made = make()
    assert ("/cache/icd.json", ICD) in pairs(made, "--ro-bind")
    tmpfs = [made.options[i + 1] for i, word in enumerate(made.options) if word == "--tmpfs"]
    assert tmpfs == ["/usr/share"]


def test_a_place_that_the_image_has_is_used_as_it_is() -> None:
    assert "--tmpfs" not in make(image(glibc(), {ICD: ""})).options


def test_a_very_large_directory_is_not_rebuilt_for_an_optional_file() -> None:
    many: Spec = {f"/usr/share/x{number}": Dir() for number in range(REBUILD_LIMIT + 1)}
    made = make(image(glibc(), many))
    assert ICD not in [target for _, target in pairs(made, "--ro-bind")]
    assert [(d.subject, d.rule) for d in made.decisions] == [(ICD, "no-mount-point")]


def test_the_environment_is_ours_then_the_images() -> None:
    env = dict(make(image(glibc(), sandbox("export LD_LIBRARY_PATH=/own\nexport PATH=/opt/bin:/bin"))).env)
    assert env["LD_LIBRARY_PATH"] == "/.gpubind/libs:/own"
    assert env["PATH"] == "/opt/bin:/bin:/.gpubind/bin"
    assert dict(make().env)["PATH"] == f"{DEFAULT_PATH}:/.gpubind/bin"


def test_home_and_working_directory_are_there_and_writable() -> None:
    environ = {"HOME": "/home/u", "PWD": "/home/u/work"}
    made = make(environ=environ, directories=frozenset(environ.values()))
    assert ("/home/u", "/home/u") in pairs(made, "--bind")
    assert made.options[made.options.index("--chdir") + 1] == "/home/u/work"


def test_a_home_that_is_no_directory_is_not_bound() -> None:
    assert ("/home/u", "/home/u") not in pairs(make(environ={"HOME": "/home/u"}), "--bind")


def test_the_command_follows_a_double_dash() -> None:
    opened = image(glibc(), sandbox())
    made = make(opened)
    begun = Start(program="bwrap", arguments=("--unshare-net",))
    line = command("/usr/bin/bwrap", "exec", begun, made, opened.tree, ("--odd", "x"))
    assert line[-4:] == ("--unshare-net", "--", "--odd", "x")


def test_run_starts_the_images_runscript_and_shell_its_shell() -> None:
    opened = image(glibc(), sandbox(), {"/usr/bin/bash": elf(kind=2)})
    begun = Start(program="bwrap")
    assert command("bwrap", "run", begun, Words(()), opened.tree, ("a",))[-2:] == ("/.singularity.d/runscript", "a")
    assert command("bwrap", "shell", begun, Words(()), opened.tree, ())[-1] == "/bin/bash"
    assert command("bwrap", "shell", begun, Words(()), image(glibc()).tree, ())[-1] == "/bin/sh"


def test_the_chosen_gpu_is_said_and_its_node_alone_is_there() -> None:
    opened = image(glibc())
    made = plan(host(rhel(), kernel()), Request(gpus="1"), image=opened, layout=LAYOUT)
    said = words(made, Start(program="bwrap", staged=STAGED), opened.tree)
    assert ("CUDA_VISIBLE_DEVICES", "0") in pairs(said, "--setenv")
    nodes = [target for _, target in pairs(said, "--dev-bind")]
    assert "/dev/nvidia1" in nodes
    assert "/dev/nvidia0" not in nodes


def test_a_variable_that_has_to_go_is_unset() -> None:
    opened = image(glibc())
    part = {"/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access": ""}
    on = host(rhel(), kernel(), part, environ={"CUDA_VISIBLE_DEVICES": "0"})
    made = plan(on, Request(gpus="all"), image=opened, layout=LAYOUT)
    options = words(made, Start(program="bwrap", staged=STAGED), opened.tree).options
    assert "CUDA_VISIBLE_DEVICES" in [options[i + 1] for i, word in enumerate(options) if word == "--unsetenv"]
