"""setup: the entry of an engine, shown, written, and undone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest

import gpubind as package
from gpubind.cli.registering import Setup, apply, changes_to_register, changes_to_remove
from gpubind.errors import FormatError, RuntimeLimitError, UsageError
from gpubind.formats.driver.registration import (
    Registration,
    out_of_containerd,
    out_of_docker,
    register_in_containerd,
    register_in_docker,
)
from gpubind.formats.text.toml import parse_toml
from tests.support.commands import BARE, gpubind
from tests.support.forked import run_forked

CONFIGURATIONS = {
    "docker": "etc/docker/daemon.json",
    "podman": "etc/containers/containers.conf.d/50-gpubind.conf",
    "containerd": "etc/containerd/config.toml",
}
ENTRY = Registration("gpubind", "/usr/local/sbin/gpubind-docker-runtime")
DAEMON = b'{\n  "log-driver": "json-file",\n  "features": {"cdi": true}\n}\n'
CONTAINERD = b"""# of this site
version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]  # pods
    sandbox_image = "mine/pause:1"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with runc and crun."""
    for name in ("usr/sbin/runc", "usr/bin/crun"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def setup(root: Path, engine: str, *options: str) -> subprocess.CompletedProcess[str]:
    return gpubind("setup", engine, "--root", str(root), *options)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def entries(root: Path, engine: str) -> Any:
    data = (root / CONFIGURATIONS[engine]).read_bytes()
    return json.loads(data) if engine == "docker" else parse_toml(data, "x", "x")


@pytest.mark.parametrize("engine", CONFIGURATIONS)
def test_what_is_set_up_is_shown_first_and_undone_to_the_byte(root: Path, engine: str) -> None:
    before = files(root)
    shown = setup(root, engine, "--dry-run")
    assert (shown.returncode, files(root)) == (0, before)
    done = setup(root, engine)
    assert (done.returncode, done.stdout) == (0, shown.stdout)
    assert f"+++ /{CONFIGURATIONS[engine]}" in shown.stdout
    assert files(root).keys() - before.keys() >= {CONFIGURATIONS[engine]}
    again = setup(root, engine)
    assert (again.stdout, again.stderr) == ("", "nothing to change\n")
    assert setup(root, engine, "--undo").returncode == 0
    assert files(root) == before
    assert setup(root, engine, "--undo").stderr == "nothing to change\n"


@pytest.mark.parametrize(
    ("engine", "text"),
    [("docker", DAEMON), ("docker", b'{"debug":true}'), ("containerd", CONTAINERD), ("containerd", CONTAINERD[:-1])],
)
def test_an_existing_configuration_is_kept_and_comes_back_to_the_byte(root: Path, engine: str, text: bytes) -> None:
    path = root / CONFIGURATIONS[engine]
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    path.chmod(0o640)
    assert setup(root, engine).returncode == 0
    assert path.stat().st_mode & 0o777 == 0o640
    copy = path.with_name(path.name + ".before-gpubind")
    assert copy.read_bytes() == text
    assert setup(root, engine, "--undo").returncode == 0
    assert path.read_bytes() == text
    assert not copy.exists()


def test_the_launcher_passes_on_what_it_gets(root: Path) -> None:
    setup(root, "docker")
    launcher = root / "usr/local/sbin/gpubind-docker-runtime"
    assert launcher.stat().st_mode & 0o777 == 0o755
    line = next(line for line in launcher.read_text().splitlines() if "oci-runtime" in line)
    assert line.endswith(' oci-runtime --runtime /usr/sbin/runc -- "$@"; fi')
    setup(root, "podman")
    assert "--runtime /usr/bin/crun --" in (root / "usr/local/sbin/gpubind-podman-runtime").read_text()


@pytest.mark.parametrize(
    ("words", "status", "output"),
    [
        (("--root", "/r", "create", "-b", "/b", "ID"), 1, ""),
        (("run", "ID"), 1, ""),
        (("--root", "/r", "kill", "ID", "9"), 0, "--root /r kill ID 9\n"),
        (("delete", "--force", "ID"), 0, "delete --force ID\n"),
        (("--version",), 0, "--version\n"),
    ],
)
def test_without_gpubind_containers_end_and_none_starts(
    root: Path, words: tuple[str, ...], status: int, output: str
) -> None:
    runc = root / "runc"
    runc.write_text('#!/bin/sh\necho "$@"\n')
    runc.chmod(0o755)
    own = Setup("docker", "gpubind", False, str(runc), "", (f"{root}/gone/gpubind",), f"{root}/data", f"{root}/config")
    apply(own, changes_to_register(own))
    done = subprocess.run([own.launcher, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, output)
    assert ("gpubind setup docker" in done.stderr) is (status != 0)


def test_the_copy_of_a_private_configuration_is_at_no_time_readable_by_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "config/docker/daemon.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(DAEMON)
    path.chmod(0o600)
    own = Setup("docker", "gpubind", False, "/bin/sh", "", (sys.executable,), f"{root}/data", f"{root}/config")
    modes: dict[str, int] = {}
    rename = os.rename

    def seen(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        modes[target] = os.stat(source, dir_fd=src_dir_fd).st_mode & 0o777
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", seen)
    before = os.umask(0)
    try:
        apply(own, changes_to_register(own))
    finally:
        os.umask(before)
    assert modes == {"gpubind-docker-runtime": 0o755, "daemon.json.before-gpubind": 0o600, "daemon.json": 0o600}


@pytest.mark.parametrize("link", ["usr/local/sbin", "etc/docker", "etc/docker/daemon.json", "usr/sbin"])
def test_links_below_a_root_do_not_leave_it(root: Path, tmp_path_factory: pytest.TempPathFactory, link: str) -> None:
    outside = tmp_path_factory.mktemp("outside")
    target, inside = outside / "there", root / outside.relative_to("/")
    inside.mkdir(parents=True)
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    if (root / link).exists():
        (root / link).rename(inside / "there")
    (root / link).symlink_to(target)
    before = files(root)
    assert setup(root, "docker").returncode == 0
    assert [*outside.iterdir()] == []
    assert any(str(inside / "there") in f"{root}/{name}" for name in files(root))
    assert setup(root, "docker", "--undo").returncode == 0
    assert files(root) == before


def test_a_loop_of_links_below_a_root_is_an_error(root: Path) -> None:
    (root / "etc").symlink_to("etc")
    assert setup(root, "docker").returncode == 4


@pytest.mark.parametrize(("runtime", "status"), [("/no/such/runc", 6), ("/usr/sbin", 6), ("./runc", 2), ("", 2)])
def test_a_runtime_that_is_no_program_is_refused(root: Path, runtime: str, status: int) -> None:
    before = files(root)
    assert setup(root, "docker", "--runtime", runtime).returncode == status
    assert files(root) == before


@pytest.mark.parametrize("engine", ["docker", "podman"])
@pytest.mark.parametrize("name", ["", "a link"])
def test_gpubinds_own_program_is_no_runtime_that_takes_over(root: Path, engine: str, name: str) -> None:
    setup(root, "docker")
    runtime = "/usr/local/sbin/gpubind-docker-runtime"
    if name:
        (root / "usr/sbin/link").symlink_to(runtime)
        runtime = "link"
    before = files(root)
    done = setup(root, engine, "--runtime", runtime)
    assert (done.returncode, "gpubind itself" in done.stderr) == (6, True)
    assert files(root) == before


def test_gpubind_does_not_take_over_from_itself(root: Path) -> None:
    own = Setup("docker", "gpubind", False, sys.executable, "", (sys.executable,), f"{root}/data", f"{root}/config")
    with pytest.raises(RuntimeLimitError, match="gpubind itself"):
        changes_to_register(own)


def test_an_error_after_a_part_was_written_names_the_undo(root: Path) -> None:
    (root / "etc").mkdir()
    (root / "etc/docker").write_text("")
    done = setup(root, "docker")
    assert (done.returncode, "--undo" in done.stderr) == (4, True)
    assert setup(root, "docker", "--undo").returncode == 0
    assert not (root / "usr/local/sbin/gpubind-docker-runtime").exists()


def test_only_what_changed_is_reported_to_be_read_again(root: Path) -> None:
    path = root / CONFIGURATIONS["docker"]
    path.parent.mkdir(parents=True)
    path.write_bytes(DAEMON)
    assert "daemon.json.before-gpubind" in setup(root, "docker").stderr
    path.write_bytes(DAEMON)
    assert "reload" not in setup(root, "docker", "--undo").stderr


def test_dockers_own_option_gets_a_hook_unless_nvidias_is_there(root: Path) -> None:
    hook = root / "usr/local/sbin/nvidia-container-runtime-hook"
    setup(root, "docker")
    done = subprocess.run([str(hook), "prestart"], capture_output=True, text=True, check=False)
    if not os.path.exists("/usr/bin/nvidia-container-runtime-hook"):
        assert (done.returncode, "gpubind as the runtime" in done.stderr) == (1, True)
    setup(root, "docker", "--undo")
    assert not hook.exists()
    real = root / "usr/bin/nvidia-container-runtime-hook"
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    setup(root, "docker")
    assert not hook.exists()


def test_the_default_runtime_returns(root: Path) -> None:
    path = root / CONFIGURATIONS["docker"]
    path.parent.mkdir(parents=True)
    path.write_text('{"runtimes": {"other": {"path": "/x"}}, "default-runtime": "other"}')
    setup(root, "docker", "--name", "nvidia", "--default")
    found = entries(root, "docker")
    assert (found["default-runtime"], [*found["runtimes"]]) == ("nvidia", ["other", "nvidia"])
    path.write_text(json.dumps({**found, "debug": True}))  # changed by others meanwhile
    assert setup(root, "docker", "--undo").stderr == f"the earlier file: /{CONFIGURATIONS['docker']}.before-gpubind\n"
    assert entries(root, "docker") == {
        "runtimes": {"other": {"path": "/x"}},
        "default-runtime": "other",
        "debug": True,
    }


def daemon_after(root: Path, *steps: Any) -> Optional[bytes]:
    """daemon.json after *steps*: options of `setup docker`, or what the user writes."""
    path = root / CONFIGURATIONS["docker"]
    path.parent.mkdir(parents=True, exist_ok=True)
    for step in steps:
        if isinstance(step, dict):
            path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **step}))
        else:
            done = setup(root, "docker", *step)
            assert done.returncode == 0, done.stderr
    return path.read_bytes() if path.exists() else None


A, B = ({"default-runtime": name, "runtimes": {name: {"path": "/x"}}} for name in "ab")
DEFAULT, RENAMED, UNDO = ("--default",), ("--default", "--name", "nvidia"), ("--undo",)


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ([{"debug": True}, RENAMED, (), UNDO], {"debug": True}),
        ([DEFAULT, RENAMED, UNDO], None),
        ([(), DEFAULT, UNDO], None),
        ([A, DEFAULT, {"debug": True}, UNDO, B, DEFAULT, UNDO], {**A, **B, "debug": True}),
        ([A, DEFAULT, {"runtimes": {"gpubind": {"path": ENTRY.program}}}, UNDO], {}),
    ],
    ids=["another name", "without a file", "twice", "renewed", "removed by the user"],
)
def test_the_default_runtime_after_an_undo_exists(root: Path, steps: list[Any], left: Any) -> None:
    found = daemon_after(root, *steps)
    assert (None if found is None else json.loads(found)) == left
    copies = [name for name in files(root) if name.endswith(".before-gpubind")]
    assert not copies or left == {}


def test_another_name_stays_the_default(root: Path) -> None:
    found = daemon_after(root, RENAMED, ())
    assert json.loads(found or b"")["default-runtime"] == "gpubind"


def test_podman_may_have_it_as_default(root: Path) -> None:
    setup(root, "podman", "--default", "--name", "nvidia")
    assert entries(root, "podman")["engine"] == {
        "runtime": "nvidia",
        "runtimes": {"nvidia": ["/usr/local/sbin/gpubind-podman-runtime"]},
    }


MALFORMED = {
    "a comma": ("docker", b'{"debug": true,}'),
    "a list": ("docker", b"[]"),
    "a key twice": ("docker", b'{"debug": true, "debug": false}'),
    "runtimes": ("docker", b'{"runtimes": []}'),
    "many digits": ("docker", b'{"a": ' + b"9" * 5000 + b"}"),
    "half a character": ("docker", b'{"a": "\\ud800"}'),
    "not a number": ("docker", b'{"a": NaN}'),
    "too large": ("docker", b'{"a": 1e999}'),
    "toml": ("containerd", b"version = \n"),
    "version 1": ("containerd", b"[plugins]\n"),
    "inline": ("containerd", b'version = 2\nplugins = {"io.containerd.grpc.v1.cri" = {}}\n'),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_configuration_is_an_error_and_nothing_is_written(root: Path, name: str) -> None:
    engine, text = MALFORMED[name]
    path = root / CONFIGURATIONS[engine]
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    before = files(root)
    done = setup(root, engine)
    assert (done.returncode, done.stderr.startswith("error: bad-config: ")) == (5, True)
    assert str(path.relative_to(root)) in done.stderr
    assert files(root) == before


@pytest.mark.parametrize(
    ("engine", "path", "text"),
    [
        ("docker", "etc/docker/daemon.json", '{"runtimes": {"gpubind": {"path": "/usr/bin/other"}}}'),
        ("docker", "usr/local/sbin/gpubind-docker-runtime", "#!/bin/sh\n"),
        ("podman", CONFIGURATIONS["podman"], "[engine]\n"),
        ("containerd", CONFIGURATIONS["containerd"], CONTAINERD.decode().replace("runtimes.runc", "runtimes.gpubind")),
    ],
)
def test_what_others_have_in_that_place_stays(root: Path, engine: str, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    before = files(root)
    done = setup(root, engine)
    assert (done.returncode, done.stderr.startswith("error: setup-conflict: ")) == (2, True)
    if "gpubind" in text:
        assert f"{engine} has a runtime `gpubind` that is not gpubind's\n" in done.stderr
    assert files(root) == before


@pytest.mark.parametrize(("version", "plugin"), [(2, "io.containerd.grpc.v1.cri"), (3, "io.containerd.cri.v1.runtime")])
def test_containerds_other_tables_and_comments_stay(version: int, plugin: str) -> None:
    text = CONTAINERD.replace(b"version = 2", b"version = %d" % version)
    made = register_in_containerd(text, ENTRY)
    assert made.startswith(text)
    found = parse_toml(made, "x", "x")["plugins"][plugin]["containerd"]["runtimes"]["gpubind"]
    assert found == {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": ENTRY.program}}
    assert register_in_containerd(made, ENTRY) == made
    assert out_of_containerd(made, text, ENTRY.program) == text


def test_a_name_of_another_time_is_replaced() -> None:
    made = register_in_docker(register_in_docker(DAEMON, ENTRY), ENTRY._replace(name="nvidia"))
    assert [*json.loads(made)["runtimes"]] == ["nvidia"]
    assert out_of_docker(made, DAEMON, ENTRY.program) == DAEMON or json.loads(made)["log-driver"] == "json-file"


@pytest.mark.parametrize("data", [None, b"", b" \n"])
def test_an_empty_configuration_is_as_good_as_none(data: Optional[bytes]) -> None:
    assert json.loads(register_in_docker(data, ENTRY))["runtimes"] == {"gpubind": {"path": ENTRY.program}}
    assert parse_toml(register_in_containerd(data, ENTRY), "x", "x")["version"] == 2


@pytest.mark.parametrize("options", [("--name", "a b"), ("--name", "")])
def test_a_name_that_no_engine_takes_is_refused(root: Path, options: tuple[str, ...]) -> None:
    assert setup(root, "docker", *options).returncode == 2


CHANGES: dict[str, tuple[Callable[[bytes], bytes], bool]] = {
    "no end of a line": (lambda text: text.rstrip(b"\n"), True),
    "CRLF": (lambda text: text.replace(b"\n", b"\r\n"), True),
    "no empty line": (lambda text: text.replace(b"\n\n# gpubind", b"\n# gpubind"), True),
    "no end": (lambda text: text.replace(b"# gpubind setup: end\n", b""), False),
    "another block": (lambda text: text.replace(b"# gpubind setup: ", b"# mine: "), False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_no_entry_stays_without_its_program(root: Path, name: str) -> None:
    change, is_undone = CHANGES[name]
    path = root / CONFIGURATIONS["containerd"]
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTAINERD)
    setup(root, "containerd")
    path.write_bytes(change(path.read_bytes()))
    launcher = root / "usr/local/sbin/gpubind-containerd-runtime"
    done = setup(root, "containerd", "--undo")
    assert (done.returncode, launcher.exists()) == ((0, False) if is_undone else (2, True))
    assert (b"gpubind" in path.read_bytes()) is not is_undone
    if is_undone:
        assert parse_toml(path.read_bytes(), "x", "x") == parse_toml(CONTAINERD, "x", "x")
    else:
        assert done.stderr.startswith("error: setup-conflict: ")
        assert setup(root, "containerd", "--name", "other").returncode == 2


def test_no_other_runtime_of_docker_loses_its_program(root: Path) -> None:
    other = {"x": {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": ENTRY.program}}}
    daemon_after(root, (), {"runtimes": other})
    done = setup(root, "docker", "--undo")
    assert (done.returncode, done.stderr.startswith("error: setup-conflict: ")) == (2, True)
    assert (root / "usr/local/sbin/gpubind-docker-runtime").exists()


@pytest.mark.parametrize("engine", ["docker", "containerd"])
def test_an_empty_configuration_comes_back_to_the_byte(root: Path, engine: str) -> None:
    path = root / CONFIGURATIONS[engine]
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    before = files(root)
    setup(root, engine)
    setup(root, engine, "--undo")
    assert files(root) == before


@pytest.mark.parametrize("options", [(), ("--default",), ("--undo",)])
def test_podmans_file_with_a_change_of_the_user_stays(root: Path, options: tuple[str, ...]) -> None:
    setup(root, "podman")
    path = root / CONFIGURATIONS["podman"]
    path.write_text(path.read_text() + '[containers]\nenv = ["A=1"]\n')
    before = files(root)
    done = setup(root, "podman", *options)
    assert (done.returncode, done.stderr.startswith("error: setup-conflict: ")) == (2, True)
    assert files(root) == before


def test_containerd_has_no_default(root: Path) -> None:
    assert setup(root, "containerd", "--default").returncode == 2


def test_an_engine_without_a_runtime_is_an_error(tmp_path: Path) -> None:
    done = setup(tmp_path, "docker")
    assert (done.returncode, "error: no-runtime" in done.stderr) == (6, True)
    assert files(tmp_path) == {}


def test_a_user_registers_for_the_users_own_engine(root: Path) -> None:
    own = Setup("docker", "gpubind", False, None, str(root), ("/usr/bin/gpubind",), "/home/u/data", "/home/u/config")
    changes = changes_to_register(own)
    assert [change.path for change in changes] == [
        "/home/u/data/gpubind/gpubind-docker-runtime",
        "/home/u/config/docker/daemon.json",
    ]
    apply(own, changes)
    assert json.loads((root / "home/u/config/docker/daemon.json").read_text())["runtimes"]["gpubind"]
    apply(own, changes_to_remove(own))
    assert not (root / "home/u/config/docker/daemon.json").exists()


def test_root_registers_no_gpubind_that_others_could_change(root: Path) -> None:
    program = root / "gpubind"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o777)
    own = Setup("docker", "gpubind", False, None, str(root), (str(program),))
    if os.geteuid() != 0:  # then the engine is the user's own
        assert changes_to_register(own)
        return
    with pytest.raises(UsageError, match="setup-untrusted"):
        changes_to_register(own)


def test_root_registers_no_package_that_others_could_change(root: Path) -> None:
    checkout = root / "checkout"
    checkout.mkdir()
    (checkout / "gpubind").symlink_to(Path(package.__file__).parent)
    if os.geteuid() != 0:
        return
    os.chown(checkout, 65534, 65534)
    script = root / "script"
    script.write_text("import sys\nfrom gpubind.__main__ import main\nsys.exit(main())\n")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join((str(checkout), *sys.path))}
    line = [sys.executable, str(script), "setup", "docker", "--root", str(root)]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, check=False, cwd="/")
    assert done.stderr.startswith("error: setup-untrusted: ")
    assert str(checkout) in done.stderr


def test_errors_name_the_key() -> None:
    for text, place in ((b'{"runtimes": 1}', "key runtimes"), (b"[]", "the whole document")):
        with pytest.raises(FormatError, match="bad-config") as caught:
            register_in_docker(text, ENTRY)
        assert caught.value.place == place
    with pytest.raises(UsageError, match="setup-conflict"):
        register_in_docker(b'{"runtimes": {"gpubind": {"path": "/x"}}}', ENTRY)


@pytest.mark.skipif(os.geteuid() != 0, reason="the process becomes another user")
@pytest.mark.parametrize(
    ("words", "environ", "told"),
    [
        ("containerd", {}, "only root registers a runtime of containerd\n  hint:  sudo gpubind setup ...\n"),
        ("podman", {"HOME": "relative"}, "HOME is not set\n  hint:  set it, or run this as root\n"),
        ("docker", {}, "HOME is not set\n  hint:  set it, or run this as root\n"),
    ],
)
def test_what_an_ordinary_user_cannot_register_is_refused(words: str, environ: dict[str, str], told: str) -> None:
    done = run_forked(["setup", words], {**BARE, **environ}, before="import os; os.setuid(65534)")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: wrong-use: {told}")
