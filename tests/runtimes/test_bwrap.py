"""bubblewrap's words."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from posixpath import dirname
from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.errors import HostReadError
from gpubind.image.environment import DEFAULT_PATH
from gpubind.image.facts import Image
from gpubind.image.reference import parse_reference
from gpubind.launch.target import need_form
from gpubind.loader.namespace import UserMounts
from gpubind.model import ContainerPath, EnvVar, HostPath, Request
from gpubind.planner.placement import GPUBIND_LAYOUT as LAYOUT
from gpubind.runtimes import RUNTIMES
from gpubind.runtimes.bubblewrap.bwrap import BWRAP, HOST_FILES
from gpubind.runtimes.bubblewrap.environment import environment
from gpubind.runtimes.bubblewrap.options import UserBwrapOptions, parse_user_options
from gpubind.runtimes.bubblewrap.root import REBUILD_LIMIT
from gpubind.runtimes.cmdline.programs import Action
from gpubind.runtimes.edits import RuntimeArguments
from gpubind.runtimes.runtime import Stage, StartCall
from tests.support.driver import host, kernel, rhel
from tests.support.elf import elf
from tests.support.images import glibc, image, sandbox
from tests.support.starts import stage_of, start_by, words
from tests.support.trees import Dir, File, Link, Spec

ICD = ContainerPath("/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json")
STAGED = {ICD: HostPath("/cache/icd.json")}


def make(opened: Optional[Image] = None, **facts: Any) -> RuntimeArguments:
    opened = opened or image(glibc())
    made = plan(host(rhel(), kernel()), Request(), image=opened, layout=LAYOUT)
    stage = stage_of(facts := {"staged": STAGED, **facts})
    return words(made, start_by("bwrap", **facts), opened.tree, stage)


def pairs(made: RuntimeArguments, option: str) -> list[tuple[str, str]]:
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
    assert [(f.code, f.where) for f in made.findings] == [("no-mount-point", ICD)]


@pytest.mark.parametrize(("entries", "is_rebuilt"), [(150, True), (151, False)])
def test_a_directory_is_rebuilt_for_an_optional_file_up_to_150_entries(entries: int, is_rebuilt: bool) -> None:
    many: Spec = {f"{dirname(ICD)}/x{number}": "" for number in range(entries)}
    made = make(image(glibc(), many))
    assert (("/cache/icd.json", ICD) in pairs(made, "--ro-bind")) is is_rebuilt
    assert [finding.where for finding in made.findings] == ([] if is_rebuilt else [ICD])


def test_a_link_in_a_very_large_directory_is_a_place_for_an_optional_file() -> None:
    many: Spec = {f"{dirname(ICD)}/x{number}": "" for number in range(REBUILD_LIMIT + 1)}
    made = make(image(glibc(), many, {ICD: Link("x0")}))
    assert ("/cache/icd.json", ICD) in pairs(made, "--ro-bind")


def test_a_variable_that_the_plan_removes_is_removed() -> None:
    opened = image(glibc())
    made = plan(host(rhel(), kernel()), Request(), image=opened, layout=LAYOUT)
    made = made._replace(env=(*made.env, EnvVar("A", "unset", None, None, "gpus")))
    assert " --unsetenv A " in f"{' '.join(words(made, start_by('bwrap'), opened.tree, Stage(STAGED)).options)} "


def test_a_slash_at_the_end_of_the_users_target_changes_nothing() -> None:
    made = make(arguments=("--ro-bind", "/own", f"{dirname(ICD)}/"))
    assert [(d.subject, d.rule) for d in made.decisions] == [(ICD, "no-mount-point")]


def test_the_environment_is_ours_then_the_images() -> None:
    no_shell = {"/usr/bin/sh": File(b"", 0o644)}
    env = dict(make(image(glibc(), sandbox("export LD_LIBRARY_PATH=/own\nexport PATH=/opt/bin:/bin"), no_shell)).env)
    assert env["LD_LIBRARY_PATH"] == "/.gpubind/libs:/own"
    assert env["PATH"].startswith("/opt/bin:/bin:/usr/local/sbin:")
    assert env["PATH"].endswith(":/sbin:/.gpubind/bin")
    assert dict(make().env)["PATH"] == f"{DEFAULT_PATH}:/.gpubind/bin"


SHELL: Spec = {"/usr/bin/sh": File(elf(kind=2), 0o755), "/bin": Link("usr/bin")}
PLAN_ENV = (
    EnvVar("LD_LIBRARY_PATH", "prepend", "/.gpubind/libs", ":", "libdir"),
    EnvVar("PATH", "append", "/.gpubind/bin", ":", "bindir"),
    EnvVar("PATH", "prepend", "/vendor's/bin", ":", "cdi"),
    EnvVar("CUDA_VISIBLE_DEVICES", "set", "0", None, "gpus"),
    EnvVar("ROCR_VISIBLE_DEVICES", "unset", None, None, "gpus"),
)


def shell_of(spec: Spec, environ: dict[str, str], *arguments: str) -> tuple[str, ...]:
    """The shell and its script that stand before the command."""
    return environment(PLAN_ENV, environ, parse_user_options(arguments), image(spec).tree)[1]


def test_a_shell_of_the_image_reads_its_environment_files() -> None:
    assert shell_of({**sandbox(), **SHELL}, {})[:2] == ("/bin/sh", "-c")
    assert shell_of({**sandbox(), **SHELL, "/usr/bin/bash": File(elf(kind=2), 0o755)}, {})[0] == "/bin/bash"
    assert shell_of(sandbox(), {}) == ()
    assert shell_of(SHELL, {}) == ()


def test_no_value_of_the_callers_is_in_the_command_line() -> None:
    prefix = shell_of({**sandbox(), **SHELL}, {"TOKEN": "secret", "BASH_FUNC_f%%": "() { :; }"})
    assert "TOKEN" in prefix[2]
    assert not any("secret" in word or "BASH_FUNC" in word for word in prefix)


@pytest.mark.parametrize("shell", [["dash"], ["bash", "-p"], ["busybox", "sh"]], ids=lambda words: str(words[0]))
def test_the_script_gives_what_apptainer_would(tmp_path: Path, shell: list[str]) -> None:
    if not shutil.which(shell[0]):
        shell = ["sh"]
    environ = {
        "KEPT": "host\n'two' lines ", "WON": "host", "EMPTIED": "host", "NOTHING": "", "LATER": "host", "HOME": "/h",
        "CUDA_VISIBLE_DEVICES": "7", "ROCR_VISIBLE_DEVICES": "7", "PYTHONPATH": "/host", "USERS": "host", "GONE": "x",
        "PLAIN": "host",
    }  # fmt: skip
    files = {
        "10-docker2singularity.sh": 'export PATH=/opt/bin:/bin WON="image"\n',
        "90-environment.sh": 'export SEEN="[$KEPT$PYTHONPATH$CUDA_VISIBLE_DEVICES$USERS]" PYTHONPATH=/image\n',
        "91-environment.sh": "set -e\nif true; then export LD_LIBRARY_PATH=/own::$LD_LIBRARY_PATH; fi\nIFS=x\n",
        "92-a.sh": "export EMPTIED= CUDA_VISIBLE_DEVICES=3 USERS=image ROCR_VISIBLE_DEVICES=3\nPLAIN=image; set -u\n",
        "99-base.sh": "export WRONG=base\n",
        "99-zz.sh": "set -a; AFTER=1\n",
        "x.txt": "export WRONG=text\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    _, _, script, name = shell_of({**sandbox(), **SHELL}, environ, "--setenv", "USERS", "it's", "--unsetenv", "GONE")
    script = script.replace("/.singularity.d/env", str(tmp_path))
    words = [*shell, "-c", script, name, "/usr/bin/env", "-0"]
    around = {**environ, "PATH": "/usr/bin:/bin"}
    del around["GONE"]
    done = subprocess.run(words, env=around, capture_output=True, text=True, check=True)
    found = dict(part.split("=", 1) for part in done.stdout.split("\0")[:-1])
    assert done.stderr == ""
    for shells_own in ("_", "PWD", "OLDPWD", "SHLVL"):
        found.pop(shells_own, None)
    assert found == {
        "KEPT": environ["KEPT"],
        "WON": "image",
        "NOTHING": "",
        "LATER": "host",
        "HOME": "/h",
        "SEEN": "[]",
        "PYTHONPATH": "/image",
        "CUDA_VISIBLE_DEVICES": "0",
        "USERS": "it's",
        "AFTER": "1",
        "PATH": "/vendor's/bin:/opt/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/.gpubind/bin",
        "LD_LIBRARY_PATH": "/.gpubind/libs:/own",
    }


def test_the_users_search_path_comes_first_and_nothing_is_empty() -> None:
    tree = image(sandbox("export LD_LIBRARY_PATH=/own::/other:")).tree
    given = parse_user_options(("--setenv", "LD_LIBRARY_PATH", "/user"))
    made = dict(environment(PLAN_ENV, {"LD_LIBRARY_PATH": "/host"}, given, tree)[2])
    assert made["LD_LIBRARY_PATH"] == "/user:/.gpubind/libs:/own:/other"


def test_without_a_shell_what_is_known_of_the_image_is_set() -> None:
    tree = image(sandbox("export FOO=a BAR=b\nPLAIN=x\nexport CUDA_VISIBLE_DEVICES=3")).tree
    options, _, made = environment(PLAN_ENV, {"FOO": "host"}, parse_user_options(("--setenv", "BAR", "user")), tree)
    env = dict(made)
    assert (env["FOO"], env["BAR"], env["CUDA_VISIBLE_DEVICES"]) == ("a", "user", "0")
    assert "PLAIN" not in env
    assert "ROCR_VISIBLE_DEVICES" in [options[i + 1] for i, w in enumerate(options) if w == "--unsetenv"]


def test_a_caller_whose_variables_are_cleared_keeps_the_plans_and_the_images() -> None:
    opened = image(sandbox("export FOO=a"))
    options = make(opened, arguments=("--clearenv",), environ={"X": "1"}).options
    assert options.index("--clearenv") < options.index("FOO")
    assert options.index("--clearenv") < options.index("LD_LIBRARY_PATH", options.index("--setenv"))


def test_options_of_the_users_can_make_mount_points() -> None:
    options = make(arguments=("--bind", "/data", "/data")).options
    assert options.index("/data") < options.index("--remount-ro")


def test_shared_memory_and_interconnects_are_the_hosts() -> None:
    made = make(nodes=(HostPath("/dev/infiniband"), HostPath("/dev/nvidia-fs0")))
    assert ("/dev/shm", "/dev/shm") in pairs(made, "--bind-try")
    assert ("/dev/infiniband", "/dev/infiniband") in pairs(made, "--dev-bind")
    assert ("/dev/nvidia-fs0", "/dev/nvidia-fs0") in pairs(made, "--dev-bind")


@pytest.mark.parametrize("directory", ["/usr", "/etc", "/opt", "/lib64", "/", "/dev/x", "/sys/x", "/usr/share"])
def test_a_working_directory_of_the_system_hides_nothing_of_the_images(directory: str) -> None:
    made = make(working_directory=directory, directories=frozenset([directory]))
    assert directory not in [target for _, target in pairs(made, "--bind")]
    assert "--chdir" not in made.options


@pytest.mark.parametrize("directory", ["/tmp", "/tmp/job", "/home/u", "/home/u/job"])
def test_a_working_directory_that_the_container_has_is_entered(directory: str) -> None:
    made = make(home="/home/u", working_directory=directory, directories=frozenset(["/home/u", directory]))
    assert made.options[made.options.index("--chdir") + 1] == directory


HOSTS_FILES = tuple(map(HostPath, HOST_FILES))


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({}, HOST_FILES[:3]),
        ({"/etc/hosts": Link("/nowhere"), "/etc/localtime": Link("../usr/zone"), "/usr/zone": ""}, HOST_FILES[:3]),
        (dict.fromkeys(HOST_FILES, ""), HOST_FILES[:3]),
        ({f"/etc/{number}": "" for number in range(REBUILD_LIMIT + 1)}, HOST_FILES[:2]),
        ({"/usr/etc/hosts": "", "/etc": Link("usr/etc")}, ("/etc/hosts",)),
    ],
    ids=["none", "links", "files", "large", "linked"],
)
def test_files_of_the_hosts_network_are_there_whatever_the_image_has(there: Spec, expected: tuple[str, ...]) -> None:
    made = make(image(glibc(), there), files=HOSTS_FILES)
    assert tuple(target for _, target in pairs(made, "--ro-bind-try") if target not in HOST_FILES[3:]) == expected
    assert not {target for _, target in pairs(made, "--symlink")} & set(expected)


def test_a_file_that_the_host_lacks_is_the_images_own() -> None:
    made = make(image(glibc(), {"/etc/localtime": Link("../usr/zone")}), files=HOSTS_FILES[:1])
    assert ("../usr/zone", "/etc/localtime") in pairs(made, "--symlink")
    assert pairs(made, "--ro-bind-try") == [("/etc/resolv.conf", "/etc/resolv.conf")]


def brings(*arguments: str, **facts: Any) -> UserMounts:
    opened = facts.pop("opened", None) or image(glibc())
    made = plan(host(rhel(), kernel()), Request(), image=opened, layout=LAYOUT)
    found = BWRAP.base_mounts(made, start_by("bwrap", arguments=arguments, tree=opened.tree, **facts))
    assert found is not None
    return found


def test_what_a_start_brings_is_said_in_the_order_of_its_mounts() -> None:
    facts: dict[str, Any] = {"environ": {"HOME": "/home/u"}, "working_directory": "/scratch/x"}
    there, files = frozenset(["/home/u", "/scratch/x"]), (HostPath("/etc/hosts"),)
    made = brings("--ro-bind-try", "/a", "/b", directories=there, files=files, **facts)
    targets = [bind.target for bind in made.binds]
    assert targets == ["/sys", "/tmp", "/dev/shm", "/dev/mqueue", "/etc/hosts", "/home/u", "/scratch/x", "/b"]
    assert made.binds[-1].source == "/a"
    assert made.working_directory == "/scratch/x"
    assert brings("--chdir", "/y", **facts).working_directory == "/y"
    assert brings(**facts).working_directory == "/"
    assert brings().working_directory is None


def test_the_users_variables_and_what_cannot_be_looked_at_are_said() -> None:
    words = ("--setenv", "LD_LIBRARY_PATH", "/u", "--setenv", "PATH", "/p", "--tmpfs", "/opt", "--args", "3")
    made = brings(*words, environ={"LD_PRELOAD": "/x.so"})
    assert [(v.name, v.op, v.value) for v in made.env] == [
        ("LD_PRELOAD", "set", "/x.so"),
        ("LD_LIBRARY_PATH", "prepend", "/u"),
        ("PATH", "set", "/p:/.gpubind/bin"),
    ]
    assert made.unknown_options == ("--tmpfs /opt", "--args 3")
    assert brings("--clearenv", environ={"LD_PRELOAD": "/x.so"}).env == ()
    assert [v.op for v in brings("--unsetenv", "LD_PRELOAD", environ={"LD_PRELOAD": "/x.so"}).env] == ["unset"]


def test_options_are_read_as_bubblewrap_reads_them() -> None:
    given = parse_user_options(("--setenv", "A", "--bind", "--uid", "0", "--clearenv", "--setenv", "B", "1", "--chdir"))
    assert given == UserBwrapOptions(env=(("B", "1"),), clears_env=True)
    assert parse_user_options(("--size", "--bind", "--tmpfs", "/x")).unreadable_options == ("--tmpfs /x",)


def test_home_and_working_directory_are_there_and_writable() -> None:
    environ = {"HOME": "/home/u", "PWD": "/where/the/shell/was"}
    there = frozenset(["/home/u", "/home/u/work"])
    made = make(environ=environ, working_directory="/home/u/work", directories=there)
    assert ("/home/u", "/home/u") in pairs(made, "--bind")
    assert made.options[made.options.index("--chdir") + 1] == "/home/u/work"


def test_a_home_that_is_no_directory_is_not_bound() -> None:
    assert ("/home/u", "/home/u") not in pairs(make(environ={"HOME": "/home/u"}), "--bind")


NO_WORDS = RuntimeArguments(())


def started(action: Action, opened: Image, *argv: str, made: RuntimeArguments = NO_WORDS) -> tuple[str, ...]:
    """The command line of a start."""
    return BWRAP.start_command(
        StartCall("/usr/bin/bwrap", action, "/images/test", argv), start_by("bwrap", tree=opened.tree), made
    ).argv


def test_the_command_follows_a_double_dash() -> None:
    opened = image(glibc())
    made = make(opened, arguments=("--unshare-net",))
    line = started("exec", opened, "--odd", "x", made=made)
    assert line[-3:] == ("--", "--odd", "x")
    assert "--unshare-net" in line


def test_run_starts_the_images_runscript_and_shell_its_shell() -> None:
    opened = image(glibc(), sandbox(), {"/usr/bin/bash": elf(kind=2)})
    assert started("run", opened, "a")[-2:] == ("/.singularity.d/runscript", "a")
    assert started("shell", opened)[-1] == "/bin/bash"
    assert started("shell", image(glibc()))[-1] == "/bin/sh"


def test_the_chosen_gpu_is_said_and_its_node_alone_is_there() -> None:
    opened = image(glibc())
    made = plan(host(rhel(), kernel()), Request(gpus="1"), image=opened, layout=LAYOUT)
    said = words(made, start_by("bwrap"), opened.tree, Stage(STAGED))
    assert ("CUDA_VISIBLE_DEVICES", "0") in pairs(said, "--setenv")
    nodes = [target for _, target in pairs(said, "--dev-bind")]
    assert "/dev/nvidia1" in nodes
    assert "/dev/nvidia0" not in nodes


def test_a_variable_that_has_to_go_is_unset() -> None:
    opened = image(glibc())
    part = {"/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access": ""}
    on = host(rhel(), kernel(), part, environ={"CUDA_VISIBLE_DEVICES": "0"})
    made = plan(on, Request(gpus="all"), image=opened, layout=LAYOUT)
    options = words(made, start_by("bwrap"), opened.tree, Stage(STAGED)).options
    assert "CUDA_VISIBLE_DEVICES" in [options[i + 1] for i, word in enumerate(options) if word == "--unsetenv"]


@pytest.mark.parametrize("name", ["image.sif", "image.sqsh", "image.tar"])
def test_an_image_in_one_file_is_refused_with_what_unpacks_it_and_what_starts_it(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(HostReadError) as caught:
        need_form(parse_reference(str(tmp_path / name), RUNTIMES["bwrap"]), RUNTIMES["bwrap"])
    assert caught.value.code == "no-image"
    assert "`apptainer build --sandbox DIR IMAGE`" in caught.value.hint
    assert "--backend apptainer" in caught.value.hint
