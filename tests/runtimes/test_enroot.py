"""Enroot's words, its own files, and its containers.

The rules are those of the scripts and programs of 4.1.2, which were run on the same cases.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpubind import open_host, plan
from gpubind.errors import RuntimeLimitError
from gpubind.image.reference import native_reference
from gpubind.launch.caller import read_start_facts
from gpubind.memo.trace import CallersEnviron
from gpubind.model import EnvVar, Plan, Request
from gpubind.runtimes import RUNTIMES, enroot_files
from gpubind.runtimes.cmdline.reader import ParseFailure, UserOptionValues
from gpubind.runtimes.edits import RuntimeArguments
from gpubind.runtimes.enroot import ENROOT, FILE_OPTIONS, GPUBIND_TMPFS, NODE_OPTIONS
from gpubind.runtimes.runtime import Start, StartCall
from tests.support.commands import HOST, gpubind
from tests.support.driver import host, kernel, rhel
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.starts import start as begun
from tests.support.starts import start_by, with_facts
from tests.support.trees import make_tree

CONF = "/etc/enroot/enroot.conf"
SMI = "/usr/bin/nvidia-smi"
CUDA = "/usr/lib64/libcuda.so.550.54.14:/.gpubind/libs/libcuda.so.1:none"


def planned(*env: EnvVar) -> Plan:
    node = host(rhel(), kernel(), {SMI: elf(kind=2)})
    made = plan(node, Request(), image=image(glibc()), layout=ENROOT.layout(start_by("enroot")))
    return made._replace(env=(*made.env, *env))


def start(*arguments: str, files: dict[str, str] | None = None, **facts: Any) -> Start:
    """A start with the user's *arguments*, of an image with *files*."""
    made = begun(*arguments, program="enroot", **facts)
    return made._replace(tree=image(glibc(), dict(files or {})).tree)


def make(*arguments: str, env: tuple[EnvVar, ...] = (), **facts: Any) -> RuntimeArguments:
    return ENROOT.arguments(planned(*env), start(*arguments, **facts))


def mounts(made: RuntimeArguments) -> list[str]:
    return [value for option, value in zip(made.options, made.options[1:]) if option == "--mount"]


def test_files_are_read_only_and_their_mount_points_are_made_in_a_tmpfs() -> None:
    values = mounts(make())
    assert values[0] == GPUBIND_TMPFS == "tmpfs:/.gpubind:tmpfs:x-create=dir,nosuid,nodev,noexec,mode=755,private"
    assert f"{CUDA}:x-create=auto,bind,ro,nosuid,nodev,private" in values


def test_a_file_without_which_the_driver_works_does_not_end_the_start() -> None:
    values = mounts(make())
    assert f"{CUDA}:{FILE_OPTIONS}" in values
    assert f"{SMI}:{SMI}:none:{FILE_OPTIONS},nofail" in values


def test_nodes_are_bound_only_where_dev_is_restricted() -> None:
    node = f"/dev/nvidia0:/dev/nvidia0:none:{NODE_OPTIONS}"
    wholes = [make(), make(environ={"ENROOT_RESTRICT_DEV": "no"}), make("--pid")]
    restricted = [
        make("--ipc"),
        make("--conf", "a.sh"),
        make(environ={"ENROOT_RESTRICT_DEV": "y"}),
        make(environ={"ENROOT_UNSHARE_IPC": "yes"}),
        make(texts={CONF: "#ENROOT_UNSHARE_IPC no\nENROOT_RESTRICT_DEV yes\n"}),
    ]
    assert [node in mounts(made) for made in wholes] == [False] * 3
    assert [node in mounts(made) for made in restricted] == [True] * 5
    assert {one.code for one in wholes[0].findings} > {one.code for one in restricted[0].findings}


def test_a_restricted_dev_gets_the_nodes_that_enroots_own_hook_adds() -> None:
    assert f"/dev/gdrdrv:/dev/gdrdrv:none:{NODE_OPTIONS}" in mounts(make("--ipc", nodes=("/dev/gdrdrv",)))
    assert "/dev/gdrdrv" not in str(make(nodes=("/dev/gdrdrv",)).options)


def test_any_path_can_be_said() -> None:
    value = enroot_files.mount_value("/a b/c:d\\e", "/x\ty", FILE_OPTIONS)
    assert value == f"/a\\040b/c\\072d\\134e:/x\\011y:none:{FILE_OPTIONS}"
    bind = next(enroot_files.user_binds([value], "/"))
    assert (bind.source, bind.target) == ("/a b/c:d\\e", "/x\ty")


@pytest.mark.parametrize(
    ("value", "bound"),
    [
        ("/a", ("/a", "/a")),
        ("/a:/b", ("/a", "/b")),
        (".:mnt", ("/work", "/mnt")),
        ("/a:bind", ("/a", "/a")),
        ("/a:ro,rbind", ("/a", "/a")),
        ("/a:/b:bind,ro", ("/a", "/b")),
        ("/a:none:bind", ("/a", "/a")),
        ("/a:/b:none:x-create=dir,bind,rw", ("/a", "/b")),
        ("/a:/b:none", ("/a", "/b")),
        ("/a:/b:none:ro", None),
        ("/a:/b:none:bind,remount,ro", None),
        ("tmpfs:/b", None),
        ("tmpfs:/b:tmpfs:size=1m", None),
        ("none:/b:devpts", None),
    ],
)
def test_a_mount_is_completed_as_enroot_does(value: str, bound: tuple[str, str] | None) -> None:
    found = [(bind.source, bind.target) for bind in enroot_files.user_binds([value], "/work")]
    assert found == ([bound] if bound else [])


def test_the_mounts_of_the_user_the_site_and_the_image_take_precedence() -> None:
    target, mine = SMI, "/my/smi"
    texts = {"/etc/enroot/mounts.d/10-system.fstab": "/dev /dev none x-create=dir,rbind,rw\ntmpfs /usr tmpfs rw 0 -1\n"}
    for made in (
        make(f"--mount={mine}:{target}"),
        make(texts={"/home/u/.config/enroot/mounts.d/a.fstab": f"# a b\n{mine} {target}\n"}),
        make(files={"/etc/fstab": f"${{HOME}}/smi {target} none bind"}, environ={"HOME": "/my"}),
    ):
        assert not [value for value in mounts(made) if f":{target}:" in value]
        assert "no-mount-point" in {one.code for one in made.findings}
    assert mounts(make(texts=texts)) == mounts(make())
    home = make(environ={"HOME": "/usr/bin", "ENROOT_MOUNT_HOME": "y"})  # which has the very file
    assert not [value for value in mounts(home) if f":{target}:" in value]


def test_search_paths_have_the_values_of_all_of_enroots_sources() -> None:
    site = {"/etc/enroot/environ.d/10-a.env": "LD_LIBRARY_PATH=/site:${MORE}\n"}
    files = {"/etc/environment": "  LD_LIBRARY_PATH='/own'\n#LD_LIBRARY_PATH=/no\nENROOT_X=1\n"}
    assert dict(make().env)["LD_LIBRARY_PATH"] == "/.gpubind/libs"
    assert dict(make(files=files).env)["LD_LIBRARY_PATH"] == "/.gpubind/libs:/own"
    made = make(files=files, texts=site, environ={"MORE": "/more"})
    assert dict(made.env)["LD_LIBRARY_PATH"] == "/site:/more:/.gpubind/libs:/own"
    made = make("-e", "LD_LIBRARY_PATH=/mine", files=files, texts=site)
    assert dict(made.env)["LD_LIBRARY_PATH"] == "/mine:/.gpubind/libs:/own"


def test_the_users_own_variable_wins() -> None:
    env = (EnvVar("A", "set", "1", None, "gpus"),)
    assert "A=1" in make(env=env).options
    assert "A=1" not in make("--env=A=2", env=env).options
    assert "A=1" not in make(env=env, texts={"/home/u/.config/enroot/environ.d/a.env": "A=3\n"}).options


@pytest.mark.parametrize("value", ["a\nb", "'a'", '"a" '])
def test_a_value_that_enroot_would_change_is_refused(value: str) -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        make(env=(EnvVar("A", "set", value, None, "cdi"),))
    assert (caught.value.code, caught.value.where) == ("unsupported-value", "A")


# The hook of Enroot that brings NVIDIA's driver.


def environ_of(*arguments: str, environ: dict[str, str], **facts: Any) -> tuple[str | None, str | None]:
    """NVIDIA_VISIBLE_DEVICES for the hook, and in the container."""
    made = start(*arguments, environ=environ, **facts)
    words = ENROOT.arguments(planned(), made)
    line = ENROOT.start_command(StartCall("/usr/bin/enroot", "exec", "mine", ("x",)), made, words)
    inside = {**enroot_files.container_variables(line.environ, {}, "", {}), **made.user.options.env, **dict(words.env)}
    return line.environ.get("NVIDIA_VISIBLE_DEVICES"), inside.get("NVIDIA_VISIBLE_DEVICES")


def test_the_plan_takes_the_place_of_enroots_hook_and_the_container_keeps_its_variable() -> None:
    name = "NVIDIA_VISIBLE_DEVICES"
    assert environ_of(environ={}) == ("void", None)
    assert environ_of(environ={name: "all"}) == ("void", None)
    assert environ_of("-e", name, environ={name: "1"}) == ("void", "1")
    assert environ_of("-e", f"{name}=0", environ={name: "1"}) == ("void", "0")
    site = {"/etc/enroot/environ.d/a.env": f"{name}=${{{name}}}\n"}
    assert environ_of(environ={name: "1"}, texts=site) == ("void", "1")
    assert environ_of(environ={name: "1"}, files={"/etc/environment": f"{name}=${{{name}}}\n"}) == ("void", "1")
    assert environ_of("-e", name, environ={}) == ("void", "")


def test_without_libcuda_in_the_plan_the_hook_stays() -> None:
    made = start(environ={"NVIDIA_VISIBLE_DEVICES": "all"})
    line = ENROOT.start_command(StartCall("enroot", "exec", "mine", ("x",)), made, RuntimeArguments(()))
    assert line.environ["NVIDIA_VISIBLE_DEVICES"] == "all"


@pytest.mark.parametrize(
    ("environ", "arguments", "wants"),
    [
        ({"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}, (), True),
        ({"NVIDIA_VISIBLE_DEVICES": "0", "NVIDIA_DRIVER_CAPABILITIES": "utility,compat32"}, (), True),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, ("-e", "NVIDIA_DRIVER_CAPABILITIES=all"), True),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, (), False),
        ({"NVIDIA_VISIBLE_DEVICES": "void", "NVIDIA_DRIVER_CAPABILITIES": "all"}, (), False),
        ({"NVIDIA_DRIVER_CAPABILITIES": "all"}, (), False),
    ],
)
def test_32_bit_libraries_come_where_the_hook_would_bring_them(
    environ: dict[str, str], arguments: tuple[str, ...], wants: bool
) -> None:
    assert ENROOT.wants_compat32(start(*arguments, environ=environ)) is wants


def test_the_callers_variable_for_the_hook_chooses_and_others_stay_outside() -> None:
    environ = {"NVIDIA_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "1"}
    assert not ENROOT.hides_caller_variable(start(environ=environ), "NVIDIA_VISIBLE_DEVICES")
    assert ENROOT.hides_caller_variable(start(environ=environ), "CUDA_VISIBLE_DEVICES")
    assert not ENROOT.hides_caller_variable(
        start("-e", "CUDA_VISIBLE_DEVICES", environ=environ), "CUDA_VISIBLE_DEVICES"
    )
    assert not ENROOT.hides_caller_variable(start(environ=environ), "ROCR_VISIBLE_DEVICES")


def test_a_choice_that_stays_outside_is_a_finding_and_one_that_is_passed_is_none() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": ""}
    for arguments, is_lost in (((), True), (("-e", "CUDA_VISIBLE_DEVICES"), False)):
        found = [one for one in make(*arguments, environ=environ, on_host=True).findings if one.code == "lost-choice"]
        assert ["Enroot passes only" in str(one.why) for one in found] == ([True] if is_lost else [])


# Its command line.


def test_the_users_options_stand_before_ours_and_the_command_after_the_name() -> None:
    made = start("--rw", environ={"PATH": "/bin"})
    for action, argv, end in (
        ("exec", ("a", "-b"), ("mine", "a", "-b")),
        ("run", (), ("mine",)),
        ("shell", ("-c", "x"), ("mine", made.shell, "-c", "x")),
    ):
        call = StartCall("/usr/bin/enroot", action, "mine", argv)  # type: ignore[arg-type]
        line = ENROOT.start_command(call, made, RuntimeArguments(("--mount", "/a:/b")))
        assert line.argv == ("/usr/bin/enroot", "start", "--rw", "--mount", "/a:/b", *end)


@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        (("-e", "-x", "--env=B=1", "--mount", "/a", "-m", "/b", "--rc=x", "-r", "-w", "--net", "--uts"), None),
        (("-rw",), "unknown"),
        (("-e=A",), "unknown"),
        (("--roo",), "unknown"),
        (("--root=y",), "needless-value"),
        (("--env",), "no-value"),
    ],
)
def test_options_are_whole_and_only_a_long_one_has_a_value_in_its_word(
    words: tuple[str, ...], trouble: str | None
) -> None:
    line = ENROOT.parse_user_options(words)
    found = [*line.skipped_errors, *([line.error] if line.error is not None else [])]
    assert found == ([ParseFailure(trouble, 0)] if trouble else [])  # type: ignore[arg-type]


# Its settings, and its containers.


@pytest.mark.parametrize(
    ("environ", "text", "path"),
    [
        ({"HOME": "/h"}, "", "/h/.local/share/enroot"),
        ({"HOME": "/h", "XDG_DATA_HOME": "/x"}, "", "/x/enroot"),
        ({"HOME": "/h", "ENROOT_DATA_PATH": "/d"}, "ENROOT_DATA_PATH /e\n", "/d"),
        ({"HOME": "/h", "ENROOT_DATA_PATH": ""}, "ENROOT_DATA_PATH=/e\n", "/e"),
        ({"HOME": "/h"}, "ENROOT_DATA_PATH ${HOME}/e\nENROOT_DATA_PATH /f\n", "/h/e"),
        ({"UID": "7"}, 'ENROOT_DATA_PATH "/run/$(id -u)/$UID"\n', "/run/7/7"),
        ({"HOME": "/h"}, "ENROOT_DATA_PATH $(mktemp)\n", "/h/.local/share/enroot"),
        ({"HOME": "/h"}, "XDG_DATA_HOME /x\n", "/h/.local/share/enroot"),
        ({"HOME": "/h"}, "#ENROOT_DATA_PATH /e\n", "/h/.local/share/enroot"),
    ],
)
def test_the_directory_of_the_containers_is_the_callers_variable_or_the_sites(
    environ: dict[str, str], text: str, path: str
) -> None:
    assert enroot_files.data_path(environ, {CONF: text}) == path


def test_a_name_is_that_of_a_container_and_a_squashfs_file_takes_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"ENROOT_DATA_PATH": "/d"}
    (tmp_path / "here").mkdir()
    (tmp_path / "file").write_bytes(b"hsqs")
    for word, place in (("mine", "/d/mine"), ("here", "/d/here"), ("a:b", "/d/a:b"), ("./here", None), ("file", None)):
        assert ENROOT.stored_image(native_reference(word, RUNTIMES["enroot"]), UserOptionValues(), environ, {}) == place


def test_a_start_by_name_is_planned_for_the_containers_own_files(tmp_path: Path) -> None:
    make_tree(tmp_path / "mine", {**glibc(), "/etc/environment": "LD_LIBRARY_PATH=/own\n"})
    env = {"ENROOT_DATA_PATH": str(tmp_path)}
    for words in (("exec", "--backend", "enroot"), ("wrap",)):
        line = ("mine", "true") if words[0] == "exec" else ("--", "enroot", "start", "mine", "true")
        done = gpubind(*words, "--host", HOST, "--dry-run", *line, env=env)
        assert "--env LD_LIBRARY_PATH=/.gpubind/libs:/own" in done.stdout, done.stderr
        assert done.stdout.endswith("mine true\n")
    missing = gpubind("exec", "--backend", "enroot", "--host", HOST, "--dry-run", "other", "true", env=env)
    assert f"{tmp_path}/other" in missing.stderr
    refused = gpubind("exec", "--backend", "enroot", "--host", HOST, "--dry-run", f"{tmp_path}/mine", "true", env=env)
    assert "Enroot starts only squashfs files and containers of its own, by their names" in refused.stderr


class Listener:
    """What is asked of an environment."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def variable(self, name: str) -> None:
        self.names.add(name)

    def variables(self) -> None:
        raise AssertionError("all variables are asked for: the memo would be cold after a change of any")


def test_a_start_asks_only_for_the_variables_that_it_needs() -> None:
    heard = Listener()
    environ = CallersEnviron({"HOME": "/h", "ENROOT_RESTRICT_DEV": "y", "OTHER": "1"}, heard)
    texts = {CONF: "ENROOT_DATA_PATH $ROOM/x\n", "/etc/enroot/environ.d/a.env": "A=${B}\n"}
    made = start("-e", "C", environ=environ, texts=texts, uid=7)
    words = ENROOT.arguments(planned(), made)
    ENROOT.start_command(StartCall("enroot", "exec", "mine", ("x",)), made, words)
    assert (
        ENROOT.stored_image(native_reference("mine", RUNTIMES["enroot"]), UserOptionValues(), environ, texts)
        == "/x/mine"
    )
    assert {"ENROOT_RESTRICT_DEV", "ENROOT_DATA_PATH", "ROOM", "B", "C"} <= heard.names
    assert "OTHER" not in heard.names


def test_the_files_of_the_site_and_the_user_are_read_in_enroots_order(tmp_path: Path) -> None:
    for directory in ("site", "own"):
        (tmp_path / directory / "environ.d").mkdir(parents=True)
        for name in ("b.env", "a.env", "c.txt"):
            (tmp_path / directory / "environ.d" / name).write_text(f"A={directory}/{name}\n")
    environ = {"ENROOT_SYSCONF_PATH": f"{tmp_path}/site", "ENROOT_CONFIG_PATH": f"{tmp_path}/own"}
    made = read_start_facts(RUNTIMES["enroot"], None, (), environ, open_host())
    assert list(made.facts.texts.values()) == ["A=site/a.env\n", "A=site/b.env\n", "A=own/a.env\n", "A=own/b.env\n"]


def test_what_a_container_has_besides_the_plan() -> None:
    made = with_facts(start_by("enroot"), environ={"HOME": "/h"})
    binds = {bind.target for bind in ENROOT.base_mounts(planned(), made).binds}
    assert binds == {"/dev", "/proc", "/sys"}
    conf = start("--conf", "a.sh", "-e", "PATH=/p")
    assert ENROOT.base_mounts(planned(), conf).unknown_options == ("--conf=a.sh",)


SWITCHES = "atime auto dev diratime exec group iversion lazytime mand owner relatime strictatime suid user users"
OPTION_WORDS = (*SWITCHES.split(), *(f"no{word}" for word in SWITCHES.split()))
OTHER_OPTION_WORDS = """
    nofail async sync dirsync defaults loud silent remount ro rw x-create=auto x-create=dir x-create=file x-detach
    x-move private shared slave unbindable rprivate rshared rslave runbindable
"""


@pytest.mark.parametrize("word", (*OPTION_WORDS, *OTHER_OPTION_WORDS.split()))
def test_a_field_that_is_an_option_is_not_the_target(word: str) -> None:
    assert list(enroot_files.user_binds([f"/a:{word}"], "/work")) == []
    assert list(enroot_files.user_binds([f"/a:none:{word}"], "/work")) == []


@pytest.mark.parametrize(
    "word", ["nobind", "x-create", "x-create=no", "rro", "dirasync", "nodefaults", "no", "r", "xdev"]
)
def test_a_field_that_is_no_option_is_the_target(word: str) -> None:
    assert [bind.target for bind in enroot_files.user_binds([f"/a:{word}"], "/work")] == [f"/{word}"]


@pytest.mark.parametrize(
    ("value", "is_on"),
    [
        *((value, False) for value in ("", "n", "no", "N", "NO", "No", "f", "F", "false", "False", "FALSE")),
        *((value, True) for value in ("nO", "y", "0", "off", "fALSE", "nof", "falsey")),
    ],
)
def test_a_setting_is_off_by_enroots_words(value: str, is_on: bool) -> None:
    assert enroot_files.setting("ENROOT_X", {"ENROOT_X": value}, {}) == (value if is_on else "")
    assert enroot_files.setting("NVIDIA_X", {"NVIDIA_X": value}, {}) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ENROOT_A x", "x"),
        ("  ENROOT_A\t=  x y ", "x y"),
        ("ENROOT_A", ""),
        ("ENROOT_A \"'x'\"", "x"),
        ("ENROOT_A $B/${C}/$(id -un)/$(id -u)", "/b/c/me/7"),
        ("ENROOT_A $(id -g)", ""),
        ("ENROOT_A `x`", ""),
        ("ENROOT_A x$", ""),
        ("ENROOT_B b2\nENROOT_A $ENROOT_B", "b2"),
        ("ENROOT_A\nENROOT_A x\nENROOT_A y", "x"),
        ("enroot_a x", ""),
        ("ENROOT_a x", ""),
    ],
)
def test_a_file_of_settings_is_read_as_enroot_does(text: str, value: str) -> None:
    environ = {"B": "/b", "C": "c", "USER": "me", "UID": "7"}
    for path in (CONF, f"{CONF}.d/a.conf"):
        assert enroot_files.setting("ENROOT_A", environ, {path: text}) == value
    for path in ("/etc/enroot/environ.d/a.env", f"{CONF}.d/a.txt", "/a.conf"):
        assert enroot_files.setting("ENROOT_A", environ, {path: text}) == ""


def test_the_files_of_the_site_precede_those_of_the_user() -> None:
    kinds = ("environ.d/*.env", "mounts.d/*.fstab")
    for environ, site, own in (
        ({"HOME": "/h"}, "/etc/enroot", "/h/.config/enroot"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "/etc/enroot", "/x/enroot"),
        ({"ENROOT_SYSCONF_PATH": "/s", "ENROOT_CONFIG_PATH": "/c"}, "/s", "/c"),
        ({}, "/etc/enroot", "/.config/enroot"),
    ):
        expected = (CONF, f"{CONF}.d/*.conf", *(f"{place}/{kind}" for kind in kinds for place in (site, own)))
        assert enroot_files.patterns(environ) == expected


@pytest.mark.parametrize(
    ("line", "variables"),
    [
        ("A=1", {"A": "1"}),
        (" A='1'", {"A": "1"}),
        ("A=\"1' ", {"A": "1"}),
        ("A='1", {"A": "'1"}),
        ("A=${B}${C}$B", {"A": "b$B"}),
        ("1A=x", {}),
        ("A", {}),
        ("A =x", {}),
        ("ENROOT_A=1", {}),
        ("\u00c4=1", {}),
    ],
)
def test_a_line_of_variables_is_read_as_enroot_does(line: str, variables: dict[str, str]) -> None:
    for images, texts in (("", {"/a.env": line}), (line, {}), (line, {"/a.txt": "Z=1", "/b.env": line})):
        assert enroot_files.container_variables({"B": "b"}, texts, images, {}) == variables


def test_a_later_variable_replaces_an_earlier_one() -> None:
    texts = {"/a.env": "A=site\nB=site", "/b.env": "B=own\nC=own"}
    made = enroot_files.container_variables({}, texts, "A=image\nD=image", {"C": "user", "ENROOT_C": "1"})
    assert made == {"A": "site", "D": "image", "B": "own", "C": "user"}


def test_a_path_is_written_and_read_with_octal_escapes() -> None:
    assert enroot_files.mount_value("/a\n", "/b\\ :", "ro") == "/a\\012:/b\\134\\040\\072:none:ro"
    binds = enroot_files.user_binds(["/a\\012b\\1c\\777\\\\d:/e"], "/")
    assert [bind.source for bind in binds] == ["/a\nb\x01c\xff\\d"]
