"""Each error of a start, whole: what happened, where, why, and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple, Optional

import pytest

from gpubind.errors import GpubindError, UnseenError
from gpubind.host.open import open_host
from gpubind.image.open import open_image
from gpubind.image.reference import native_reference, parse_reference
from gpubind.launch.caller import read_start_facts
from gpubind.launch.choose import choose_runtime, need_command, parse_start
from gpubind.launch.execute import VersionProbe, execute, execute_line, need_program, run_in_foreground
from gpubind.launch.lasting import restart_severity
from gpubind.launch.links import put_links
from gpubind.launch.oci.edit import edit_bundle
from gpubind.launch.oci.passing import log
from gpubind.launch.preflight import make_preflight
from gpubind.launch.prepare import FilePolicy, prepare, write_generated
from gpubind.launch.shims import install_shims, remove_shims
from gpubind.launch.stage import stage, stage_in
from gpubind.launch.start import _builtin_gpu_flags, prepare_start, report_builtin_flag
from gpubind.launch.target import StartRequest, StartTarget, need_form, need_kind, start_as_written
from gpubind.launch.trial import need_to_try
from gpubind.launch.wrap.command import split_options
from gpubind.launch.wrap.gpus import GpuRequest
from gpubind.launch.wrap.start import _filter_available, _merge_request, _of_one_vendor
from gpubind.model import ContainerPath, Gpu, HostPath, Request, Vendor
from gpubind.model.notice import Message, Notice, ignore
from gpubind.planner.planning import PlanQuery
from gpubind.runtimes import RUNTIMES
from tests.launch.oci.bundles import bundle, config, machine
from tests.support.commands import HOST, gpubind
from tests.support.driver import host, rhel
from tests.support.golden import GOLDEN, assert_golden
from tests.support.images import glibc
from tests.support.starts import start
from tests.support.trees import File, make_tree

TEXT = {ContainerPath("/etc/a.json"): "{}"}


class Bench(NamedTuple):
    """Files and programs for the errors."""

    base: Path
    environ: dict[str, str]

    def programs(self, *names: str) -> dict[str, str]:
        """An environment in whose PATH are only programs *names*."""
        place = self.base / "-".join(("bin", *names))
        place.mkdir(exist_ok=True)
        for name in names:
            (place / name).write_text("#!/bin/sh\nexit 3\n")
            (place / name).chmod(0o755)
        return {"PATH": str(place)}

    def file(self, name: str, text: str = "", mode: int = 0o644) -> str:
        path = self.base / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def directory(self, name: str, mode: int = 0o755) -> str:
        path = self.base / name
        path.mkdir()
        path.chmod(mode)
        return str(path)


def facts(backend: str, *arguments: str) -> Any:
    return read_start_facts(RUNTIMES[backend], None, arguments, {}, open_host(HOST))


def kind(bench: Bench, backend: str, text: str) -> None:
    reference = parse_reference(text, RUNTIMES[backend])
    with open_image(text) as image:
        need_kind(image, reference, RUNTIMES[backend])


def tree(bench: Bench) -> str:
    return str(make_tree(bench.base / "tree", glibc()).root)


def oci(bench: Bench) -> str:
    return str(bundle(bench.base, config()).parent)


def prepared(request: Request, backend: str = "apptainer", **options: Any) -> Any:
    on = options.pop("on", open_host(HOST))
    by = start(program=backend)
    return prepare(on, PlanQuery(request), by, None, FilePolicy(write=False), **options)


CASES: dict[str, Callable[[Bench], object]] = {
    "no IMAGE": lambda bench: need_command("exec", ()),
    "empty IMAGE": lambda bench: need_command("run", ("",)),
    "exec without a command": lambda bench: need_command("exec", ("img", "--")),
    "path, docker only": lambda bench: choose_runtime("/nonexistent/x", bench.programs("docker")),
    "name.sif, docker only": lambda bench: choose_runtime("nonexistent.sif", bench.programs("docker")),
    "directory, nothing": lambda bench: choose_runtime(tree(bench), bench.programs()),
    "registry, podman and docker": lambda bench: choose_runtime("library://a", bench.programs("podman", "docker")),
    "registry, docker": lambda bench: choose_runtime("docker://debian", bench.programs("docker")),
    "podman:NAME, docker": lambda bench: choose_runtime("podman:debian", bench.programs("docker")),
    "unknown options": lambda bench: parse_start("exec", ("--own", "x"), "auto", bench.programs("apptainer")),
    "options of podman": lambda bench: parse_start(
        "exec", ("--userns=keep-id", tree(bench), "true"), "auto", bench.programs("apptainer")
    ),
    "options before IMAGE": lambda bench: split_options("apptainer", "exec", ("-c", "--own", "x")),
    "option without a value": lambda bench: split_options("podman", "run", ("--env",)),
    "no program": lambda bench: need_program("bwrap", {"PATH": "/nonexistent"}),
    "program not started": lambda bench: run_in_foreground(("/nonexistent/x", "y"), {}, keeps_output=True),
    "program not executed": lambda bench: execute(("x", "y"), {}, "/nonexistent/x"),
    "no such command": lambda bench: execute_line(("x", "y"), {"PATH": "/nonexistent:/none"}),
    "no such path": lambda bench: execute_line(("/nonexistent/x",), {"PATH": "/none"}),
    "not executable": lambda bench: execute_line(("x",), {"PATH": os.path.dirname(bench.file("x"))}),
    "incomplete --backend-arg": lambda bench: facts("apptainer", "-c", "--bind"),
    "operand as --backend-arg": lambda bench: facts("podman", "--rm", "img"),
    "dashes as --backend-arg": lambda bench: facts("apptainer", "-c", "--"),
    "no lasting directory": lambda bench: write_generated(TEXT, {}, FilePolicy(kept_as="cdi")),
    "plan of a program": lambda bench: prepared(Request(like="apptainer")),
    "format without image": lambda bench: prepared(Request(), "crun"),
    "no GPU": lambda bench: prepared(Request(gpus="none"), require_gpu=True),
    "no GPU that works": lambda bench: prepared(Request(), on=host(rhel()), require_gpu=True),
    "no GPU of a start": lambda bench: prepare_start(
        StartRequest(lambda: host({}), PlanQuery(), {}, require_gpu=True, dry_run=True),
        StartTarget(RUNTIMES["apptainer"], "apptainer", host({}), None),
    ),
    "another host": lambda bench: make_preflight(host({}), prepared(Request()).plan),
    "shim of an unknown program": lambda bench: install_shims("bin", ["dokcer"], ["gpubind"], {}),
    "shim of a path": lambda bench: install_shims("bin", ["/usr/bin/docker"], ["gpubind"], {}),
    "shim of a missing program": lambda bench: install_shims(
        str(bench.base / "a b"), ["docker", "podman"], ["gpubind"], bench.programs("podman")
    ),
    "shims of no program": lambda bench: install_shims(str(bench.base / "b"), [], ["gpubind"], bench.programs("git")),
    "shims in an empty directory": lambda bench: install_shims("", [], ["gpubind"], {}),
    "shims in a:b": lambda bench: remove_shims("/a:b", []),
    "shims in a newline": lambda bench: remove_shims("/a\nb", []),
    "shim over a file": lambda bench: install_shims(
        os.path.dirname(bench.file("podman")), ["podman"], ["gpubind"], bench.programs("podman")
    ),
    "shims in a file": lambda bench: install_shims(bench.file("f"), ["podman"], ["gpubind"], bench.programs("podman")),
    "shims that others could change": lambda bench: install_shims(
        bench.directory("open", 0o777), ["podman"], ["gpubind"], bench.programs("podman")
    ),
    "links without a name": lambda bench: put_links({}, ""),
    "links in a missing directory": lambda bench: put_links({"a": HostPath("/a")}, str(bench.base / "none/links")),
    "links that others could change": lambda bench: put_links({}, bench.directory("open", 0o777) + "/links"),
    "links over a file": lambda bench: put_links({}, bench.file("f")),
    "lasting files in a file": lambda bench: stage_in(TEXT, bench.file("f")),
    "files nowhere": lambda bench: stage(TEXT, {"XDG_CACHE_HOME": bench.file("f"), "TMPDIR": str(bench.base / "none")}),
    "files that others could change": lambda bench: stage(TEXT, {"XDG_CACHE_HOME": bench.directory("open", 0o777)}),
    "no image to try": lambda bench: need_to_try(None, is_recorded=True),
    "a record to try": lambda bench: need_to_try("x", is_recorded=True, is_like=True),
    "another program to try": lambda bench: need_to_try("x", is_recorded=False, is_like=True),
    "another user to try": lambda bench: need_to_try("x", is_recorded=False, user="root"),
    "a directory for docker": lambda bench: need_form(
        native_reference(tree(bench), RUNTIMES["docker"]), RUNTIMES["docker"]
    ),
    "a file for bwrap": lambda bench: need_form(
        parse_reference(bench.file("a.sif", "x"), RUNTIMES["bwrap"]), RUNTIMES["bwrap"]
    ),
    "a directory for crun": lambda bench: kind(bench, "crun", tree(bench)),
    "a bundle for bwrap": lambda bench: kind(bench, "bwrap", oci(bench)),
    "GPUs of two vendors": lambda bench: edit(bench, "NVIDIA_VISIBLE_DEVICES=0", "AMD_VISIBLE_DEVICES=1"),
    "a capability of no driver": lambda bench: edit(
        bench, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=flying"
    ),
    "rights over MIG": lambda bench: edit(bench, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_MIG_CONFIG_DEVICES=all"),
}


def edit(bench: Bench, *env: str) -> None:
    path = bundle(bench.base, config(*env))
    request = StartRequest(machine, PlanQuery(), {})
    edit_bundle(request, str(path.parent), str(path), "/usr/sbin/runc", machine)


def test_each_error_is_as_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubind.launch.stage.LAST_RESORT", str(tmp_path / "none"))
    monkeypatch.setattr("gpubind.launch.stage.acts_as_root", lambda: False)
    monkeypatch.setattr("gpubind.machine.trust.acts_as_root", lambda: True)
    monkeypatch.setattr("gpubind.machine.trust.writable_by_others", lambda path: path if "/open" in path else None)
    text = ""
    for number, (name, act) in enumerate(CASES.items()):
        base = tmp_path / str(number)
        base.mkdir()
        with pytest.raises(GpubindError) as caught:
            act(Bench(base, {}))
        error = caught.value
        fields = {"code": error.code, "what": error.what, "where": error.where, "why": error.why, "hint": error.hint}
        lines = "".join(f"  {field}: {value!r}\n" for field, value in fields.items() if value)
        text += f"{name}: {type(error).__name__}, {error.exit_code}\n{lines}".replace(str(base), "/BASE") + "\n"
    text = text.replace(str(tmp_path), "/TOP").replace(f"gpubind-{os.geteuid()}", "gpubind-UID")
    assert_golden(GOLDEN / "start-errors.txt", text)


def test_nothing_is_requested_of_a_start_by_default() -> None:
    request = StartRequest(machine, PlanQuery(), {})
    assert request[3:] == ((), {}, False, False, False, False, False, False, False, "removed", False, {}, {}, ignore)
    assert StartTarget(RUNTIMES["crun"], "crun", host({}), None)[4:] == ((), False, False, None)
    assert GpuRequest() == ((), None, None, (), (), "", False, False, False, False, True)
    assert FilePolicy() == (True, None, None, None)


def test_4096_bytes_of_a_version_are_read(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nhead -c 5000 /dev/zero | tr '\\0' a\n")
    program.chmod(0o755)
    assert VersionProbe().version(str(program)) == "a" * 4096


def test_a_command_may_follow_dashes() -> None:
    assert need_command("exec", ("img", "--", "--", "x")) == ("--", "x")
    assert need_command("exec", ("img", "x", "--")) == ("x", "--")
    assert need_command("shell", ("img",)) == need_command("run", ("img", "--")) == ()


def asked(gpus: Optional[str] = None, **fields: Any) -> StartRequest:
    vendors, devices = fields.pop("vendors", ()), fields.pop("cdi_devices", ())
    query = PlanQuery(Request(gpus=gpus, vendors=vendors, cdi_devices=devices))
    return StartRequest(machine, query, {}, **fields)


@pytest.mark.parametrize(
    ("request_", "names_gpu", "demands_plan"),
    [
        (asked(), False, False),
        (asked("all"), False, True),
        (asked(" ALL "), False, True),
        (asked("none"), False, False),
        (asked(" None"), False, False),
        (asked("0"), True, True),
        (asked(check=True), False, True),
        (asked(require_gpu=True), False, True),
        (asked(cdi_devices=("nvidia.com/gpu=0",)), False, True),
        (asked(elsewhere=True, dry_run=True, allow_writable=True), False, False),
    ],
)
def test_what_is_requested_by_name_or_at_all_costs(request_: StartRequest, names_gpu: bool, demands_plan: bool) -> None:
    assert (request_.names_gpu, request_.demands_plan) == (names_gpu, demands_plan)


def unseen() -> UnseenError:
    return UnseenError("unreadable-file", "a file cannot be read", where="/x", why="it is busy")


def test_the_runtimes_own_flag_stands_in_for_a_host_that_cannot_be_inspected() -> None:
    said: list[Message] = []
    report_builtin_flag(asked("all", report=said.append), unseen(), has_gpu_flag=True)
    text = "/x: it is busy; started without a plan, with the runtime's own GPU flag"
    assert said == [Notice("warning", "not-looked-at", text)]


@pytest.mark.parametrize(
    ("request_", "has_gpu_flag"),
    [
        (asked(), False),
        (asked("0"), True),
        (asked(check=True), True),
        (asked(require_gpu=True), True),
        (asked(elsewhere=True), True),
    ],
)
def test_the_flag_does_not_stand_in_for_more_than_it_gives(request_: StartRequest, has_gpu_flag: bool) -> None:
    with pytest.raises(UnseenError):
        report_builtin_flag(request_, unseen(), has_gpu_flag=has_gpu_flag)


@pytest.mark.parametrize(
    ("runtime", "gpus", "vendors", "flags"),
    [
        ("apptainer", "none", ("nvidia",), ()),
        ("apptainer", " NONE ", (), ()),
        ("apptainer", None, ("nvidia",), ("--nv",)),
        ("apptainer", "all", ("amd",), ("--rocm",)),
        ("apptainer", None, ("amd", "nvidia"), ("--rocm",)),
        ("apptainer", None, ("intel",), ()),
        ("bwrap", None, ("nvidia",), ()),
    ],
)
def test_the_runtimes_own_flag_is_that_of_the_first_vendor(
    runtime: str, gpus: Optional[str], vendors: tuple[Vendor, ...], flags: tuple[str, ...]
) -> None:
    assert _builtin_gpu_flags(asked(gpus, vendors=vendors), RUNTIMES[runtime]) == flags


def test_a_line_that_starts_as_it_is_says_so() -> None:
    said: list[Message] = []
    error, note = unseen(), Notice("note", "image-unknown", "why")
    start_as_written(asked(report=said.append), error)
    start_as_written(asked(report=said.append), unseen(), note)
    assert said == [error, note]
    assert error.why == "it is busy; the line starts as it is, without a plan"
    with pytest.raises(UnseenError) as caught:
        start_as_written(asked("0"), unseen())
    assert caught.value.why == "it is busy"


@pytest.mark.parametrize(
    ("arguments", "container", "severity"),
    [
        ((), "removed", None),
        ((), "kept", "note"),
        ((), "created", "warning"),
        (("--rm",), "kept", None),
        (("--rm",), "created", "note"),
        (("--rm=false",), "removed", "note"),
        (("--detach",), "kept", "warning"),
        (("--detach",), "removed", None),
        (("--restart=always",), "removed", "warning"),
        (("--restart=no",), "removed", None),
        (("--restart=no", "--detach"), "kept", "warning"),
    ],
)
@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_what_an_update_of_the_driver_ends(
    runtime: str, arguments: tuple[str, ...], container: Any, severity: Optional[str]
) -> None:
    assert restart_severity(start(*arguments, program=runtime), container) == severity
    assert restart_severity(start(program="bwrap"), container) is None


@pytest.mark.parametrize(
    ("options", "file", "text"),
    [
        ("--log {}", "log", 'level=error msg="a \\"b\\""\n'),
        ("--log file:{}", "log", 'level=error msg="a \\"b\\""\n'),
        ("--log {} --log-format json", "log", '{{"level": "error", "msg": "a \\"b\\""}}\n'),
        ("--log-format json", "", ""),
        ("--log journald:{}", "", ""),
        ("--log syslog:{}", "", ""),
        ("--log {}/none/log", "", ""),
    ],
)
def test_the_log_of_a_runtime_gets_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, file: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    try:
        for _ in range(2):
            log([*options.format("log").split(), "create", "id"], "error", 'a "b"')
    finally:
        os.umask(before)
    assert os.listdir(tmp_path) == ([file] if file else [])
    if file:
        assert (tmp_path / file).read_text() == text.replace("{{", "{").replace("}}", "}") * 2
        assert (tmp_path / file).stat().st_mode & 0o777 == 0o644


def test_the_log_of_a_runtime_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    log(["--log", str(tmp_path / "log")], "error", "x")
    assert os.listdir(tmp_path) == ["log"]


LINES = (
    "exec --backend enroot name true",
    "exec --backend enroot --check name true",
    "exec --backend udocker name true",
    "exec --backend apptainer docker://name true",
    "exec --backend apptainer --check docker://name true",
    "exec --backend apptainer broken.sif true",
    "exec --backend bwrap broken.sif true",
    "exec --backend apptainer tree nonexistent",
    "exec --backend bwrap tree nonexistent",
    "exec --backend bwrap tree etc/os-release",
    "exec --backend bwrap tree /usr",
    "exec --backend bwrap --check tree nonexistent",
    "exec --backend bwrap --require-gpu --gpus none tree sh",
    "exec --backend bwrap --gpus 7 tree sh",
    "exec tree sh",
    "wrap -- apptainer exec --nv broken.sif true",
    "wrap --require-gpu -- apptainer exec --nv broken.sif true",
    "wrap -- apptainer exec --nv tree sh",
    "wrap -- apptainer exec img.sif true",
    "wrap -- env A=b apptainer exec --nv img.sif true",
    "wrap -- podman run --rm --rootfs tree sh",
    "wrap -- bwrap --ro-bind tree / nonexistent",
    "wrap -- bwrap --args 3 true",
    "wrap -- ch-run none -- true",
    "wrap --gpus 7 -- ch-run tree -- true",
)


@pytest.mark.parametrize("line", LINES)
def test_each_message_of_a_start_is_as_recorded(line: str, tmp_path: Path) -> None:
    make_tree(tmp_path / "driver", rhel())
    make_tree(tmp_path / "tree", {**glibc(), "/usr/bin/sh": File(b"#!/bin/true\n", 0o755)})
    (tmp_path / "broken.sif").write_bytes(bytes(32) + b"SIF_MAGIC\0" + bytes(200))
    bin_ = Bench(tmp_path, {}).programs("apptainer", "podman", "docker", "bwrap", "ch-run", "enroot", "udocker")["PATH"]
    command, *words = line.split()
    roots = ("--dry-run", "--root", f"{tmp_path}/driver", "--dev-root", f"{tmp_path}/driver")
    done = gpubind(command, *roots, *words, env={"PATH": bin_, "HOME": str(tmp_path)}, cwd=tmp_path)
    first = "".join(done.stdout.splitlines(keepends=True)[:1])
    text = f"{done.returncode}\n{done.stderr}{first}".replace(str(tmp_path), "/TOP")
    name = re.sub("[^a-z0-9]+", "-", line)
    assert_golden(GOLDEN / "starts" / f"{name}.txt", text)


def read_env_file(path: Path) -> tuple[Mapping[str, Optional[str]], bool]:
    made = facts("podman", f"--env-file={path}")
    return made.user.env_files, made.user.has_unread_env_files


def test_of_an_environment_file_one_mebibyte_is_read(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("A=b\n#" + "x" * ((1 << 20) - 5))
    assert path.stat().st_size == 1 << 20
    assert read_env_file(path) == ({"A": "b"}, False)
    path.write_text(path.read_text() + "x")
    assert read_env_file(path) == ({}, True)
    os.remove(path)
    os.mkfifo(path)
    assert read_env_file(path) == ({}, True)


def test_the_working_directory_has_the_name_of_pwd_unless_that_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "real")
    for pwd, name in ((f"{tmp_path}/link", "link"), (str(tmp_path), "real"), (".", "real"), ("", "real")):
        environ = {"PWD": pwd, "HOME": f"{tmp_path}/none"}
        caller = read_start_facts(RUNTIMES["apptainer"], None, (), environ, open_host(HOST)).caller
        assert caller.working_directory == f"{tmp_path}/{name}"
        assert caller.directories == {f"{tmp_path}/{name}"}
        assert (caller.uid, caller.has_terminal, caller.on_host) == (None, False, False)
    (tmp_path / "real").rmdir()
    caller = read_start_facts(RUNTIMES["apptainer"], None, (), {"HOME": str(tmp_path)}, open_host(HOST)).caller
    assert caller.working_directory is None
    assert caller.directories == {str(tmp_path)}


def test_files_that_a_container_can_write_are_not_allowed_unless_the_caller_says_so() -> None:
    proot, there = RUNTIMES["proot"], open_host(HOST)
    assert read_start_facts(proot, None, (), {}, there).user.allow_writable is False
    assert read_start_facts(proot, None, (), {}, there, allow_writable=True).user.allow_writable is True


def test_a_first_process_is_a_program_of_this_host_that_can_run_and_never_of_a_recorded_one(tmp_path: Path) -> None:
    docker = copy(RUNTIMES["docker"])
    paths = [str(tmp_path / name) for name in ("run", "text", "none")]
    docker.init_programs = tuple(paths)
    for path, mode in zip(paths, (0o755, 0o644)):
        Path(path).touch(mode)
    assert read_start_facts(docker, None, (), {}, open_host()).facts.inits == (paths[0],)
    assert read_start_facts(docker, None, (), {}, open_host(HOST)).facts.inits == ()


@pytest.mark.parametrize(
    ("own", "line", "merged"),
    [
        (Request(), GpuRequest(("amd",), "0", ("utility",)), Request(vendors=("amd",), gpus="0", caps=("utility",))),
        (
            Request(vendors=("nvidia",), gpus="1", caps=("compute",)),
            GpuRequest(("amd", "nvidia"), "0", ("utility",)),
            Request(vendors=("nvidia", "amd"), gpus="1", caps=("compute",)),
        ),
        (Request(), GpuRequest(cdi=("n.com/gpu=x",)), Request(cdi_devices=("n.com/gpu=x",))),
        (Request(), GpuRequest(gpus="0", cdi=("n.com/gpu=0",)), Request(gpus="0")),
        (Request(gpus="1"), GpuRequest(cdi=("n.com/gpu=x",)), Request(gpus="1")),
        (Request(cdi_devices=("a",)), GpuRequest(gpus="0", cdi=("b",)), Request(cdi_devices=("a",))),
    ],
)
def test_options_of_wrap_precede_those_of_the_line(own: Request, line: GpuRequest, merged: Request) -> None:
    assert _merge_request(StartRequest(machine, PlanQuery(own), {}), line).query.request == merged


@pytest.mark.parametrize(
    ("gpus", "own", "modules", "vendors"),
    [
        (GpuRequest(gpus="0"), Request(), ("nvidia", "amdgpu"), ("nvidia",)),
        (GpuRequest(gpus="GPU-x,1"), Request(), ("amdgpu",), ("amd",)),
        (GpuRequest(gpus="0"), Request(), (), ()),
        (GpuRequest(gpus="all"), Request(), ("nvidia",), ()),
        (GpuRequest(), Request(), ("nvidia",), ()),
        (GpuRequest(("amd",), "0"), Request(), ("nvidia",), ("amd",)),
        (GpuRequest(gpus="0"), Request(vendors=("amd",)), ("nvidia",), ()),
        (GpuRequest(gpus="0"), Request(gpus="all"), ("nvidia",), ()),
        (GpuRequest(gpus="0"), Request(cdi_devices=("a",)), ("nvidia",), ()),
    ],
)
def test_a_number_is_a_gpu_of_one_vendor(
    gpus: GpuRequest, own: Request, modules: tuple[str, ...], vendors: tuple[Vendor, ...]
) -> None:
    on = host({f"/sys/module/{name}/refcnt": "1" for name in modules})
    assert _of_one_vendor(gpus, StartRequest(machine, PlanQuery(own), {}), on) == gpus._replace(vendors=vendors)


def test_gpus_that_amds_toolkit_does_not_know_are_ignored_with_a_warning() -> None:
    said: list[Message] = []
    request = StartRequest(machine, PlanQuery(), {}, report=said.append)
    gpus = [Gpu("amd", index, uuid, None, None, None, None, True) for index, uuid in ((1, "x"), (0, "y"))]
    assert _filter_available(["0", "y", "0"], gpus, "A=b", request) == ["y", "0"]
    assert said == []
    assert _filter_available(["2", "z" * 81, ""], gpus, "A=b", request) == ["none"]
    text = f"A=b: this host has no 2, {'z' * 80}, which is ignored"
    assert said == [Notice("warning", "visible-devices-unknown", text)]
