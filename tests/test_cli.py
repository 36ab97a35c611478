"""The command line: data on standard output, all else on standard error, and the exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest

import gpubind as facade
from gpubind.cli.settings import ignored_findings
from gpubind.model.data import read_data
from tests.support.amd import amd_host, kernel, opt
from tests.support.commands import BARE, HOST, gpubind, images
from tests.support.driver import rhel
from tests.support.elf import elf
from tests.support.golden import assert_fits
from tests.support.images import glibc
from tests.support.layers import LAYER, Blobs, tar, write
from tests.support.trees import make_tree


def test_in_a_pipe_the_plan_is_the_same_table() -> None:
    done = gpubind("plan", "--nv", "--host", HOST)
    assert done.stdout == gpubind("plan", "--nv", "--host", HOST, "--format", "table").stdout
    assert done.stdout.splitlines()[-1].startswith("nvidia 550.163.01, CUDA 12.4; ")


def test_as_columns_the_plan_is_a_line_an_item_and_findings_go_to_stderr() -> None:
    done = gpubind("plan", "--nv", "--host", HOST, "--format", "tsv")
    assert done.returncode == 0
    assert all(line.split("\t")[0] in ("mount", "device", "env") for line in done.stdout.splitlines()[:-1])
    assert done.stdout.splitlines()[-1].startswith("# nvidia 550.163.01, CUDA 12.4; ")
    assert done.stderr == "2 notes, in full with -v: vendor-neutral-left-out (2)\n"
    told = gpubind("plan", "--nv", "--host", HOST, "--format", "tsv", "-v").stderr
    assert told.startswith("note: vendor-neutral-left-out: ")


def test_a_file_whose_directory_is_missing_is_told_how_to_make_it(tmp_path: Path) -> None:
    done = gpubind("plan", "--nv", "--host", HOST, "--format", "cdi", "-o", f"{tmp_path}/etc/cdi/nvidia.json")
    assert done.returncode == 4
    assert f"hint:  `mkdir -p {tmp_path}/etc/cdi` makes its directory\n" in done.stderr


@pytest.mark.parametrize("form", ["cdi", "compose"])
def test_with_allow_none_one_command_serves_nodes_with_and_without_a_gpu(tmp_path: Path, form: str) -> None:
    empty = str(make_tree(tmp_path / "root", {}).root)
    words = ("plan", "--nv", "--format", form, "--root", empty, "--dev-root", empty)
    assert gpubind(*words).returncode == 3
    done = gpubind(*words, "--allow-none", "--strict")
    assert (done.returncode, "NVIDIA_VISIBLE_DEVICES" in done.stdout) == (0, True)
    assert "note, in full with -v: nothing-to-bind" in done.stderr
    there = ("plan", "--nv", "--format", form, "--host", HOST)
    assert gpubind(*there, "--allow-none").stdout == gpubind(*there).stdout


def test_a_host_without_a_gpu_is_told_of_the_scheduler_before_a_driver(tmp_path: Path) -> None:
    empty = str(make_tree(tmp_path / "root", {}).root)
    done = gpubind("plan", "--root", empty, "--dev-root", empty)
    assert done.returncode == 3
    hint = done.stderr.partition("hint:")[2]
    assert 0 < hint.index("srun --gpus=1") < hint.index("install the driver")
    where = done.stderr.partition("where: ")[2].partition("\n")[0].split(", ")
    assert len(where) == len(set(where))


def test_on_a_terminal_the_plan_is_a_table() -> None:
    leader, follower = pty.openpty()
    environ = {**BARE, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, "-m", "gpubind", "plan", "-q", "--host", HOST], stdout=follower, env=environ
    ) as process:
        os.close(follower)
        text = b""
        while True:
            try:
                chunk = os.read(leader, 65536)
            except OSError:  # EIO: the other end is closed
                break
            if not chunk:
                break
            text += chunk
        assert process.wait() == 0
    os.close(leader)
    assert b"name in the container" in text
    assert b"\x1b[" in text


def test_no_color_is_honoured() -> None:
    done = gpubind("plan", "--host", HOST, "--format", "table", env={"NO_COLOR": "1"})
    assert "\x1b[" not in done.stdout


def test_colour_can_be_forced_and_no_color_wins() -> None:
    asked = ("plan", "--host", HOST, "--format", "table")
    assert "\x1b[" in gpubind(*asked, env={"FORCE_COLOR": "1"}).stdout
    assert "\x1b[" not in gpubind(*asked, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout


def test_nodes_are_listed_in_the_order_of_their_numbers() -> None:
    text = gpubind("plan", "--host", "mi300x-rocm62", "--format", "table").stdout
    cards = [int(number) for number in re.findall(r"/dev/dri/card([0-9]+)", text)]
    assert len(cards) > 2
    assert cards == sorted(cards)


def test_quiet_reports_no_findings() -> None:
    assert gpubind("plan", "-q", "--host", HOST).stderr == ""


def test_json_reports_nothing_on_stderr() -> None:
    done = gpubind("plan", "--json", "--host", HOST)
    assert done.stderr == ""
    assert json.loads(done.stdout)["schema"] == "gpubind.plan/1"


@pytest.mark.parametrize("words", [("--json",), ("--format", "json"), ("--format=json",)])
def test_where_json_is_asked_for_and_none_can_be_made_the_error_is_json_too(words: tuple[str, ...]) -> None:
    done = gpubind("plan", *words, "--host", HOST, "--caps", "compue")
    document = json.loads(done.stdout)
    assert_fits(document, "error")
    assert (document["code"], document["exit"], done.returncode) == ("unknown-capability", 2, 2)
    assert done.stderr.startswith("error: unknown-capability")


def test_an_error_is_json_only_where_json_would_be(tmp_path: Path) -> None:
    assert gpubind("plan", "--host", HOST, "--caps", "compue").stdout == ""
    assert gpubind("plan", "--json", "-o", str(tmp_path / "x"), "--host", HOST, "--caps", "compue").stdout == ""


def test_output_writes_the_document_to_a_file_and_nothing_to_stdout(tmp_path: Path) -> None:
    done = gpubind("plan", "--json", "--host", HOST, "-o", str(tmp_path / "plan.json"))
    assert done.stdout == ""
    assert json.loads((tmp_path / "plan.json").read_text())["digest"]
    assert os.listdir(tmp_path) == ["plan.json"]


def test_the_bytes_do_not_depend_on_the_hash_seed() -> None:
    outputs = {
        gpubind("plan", "--json", "--host", HOST, env={"PYTHONHASHSEED": seed}).stdout for seed in ("0", "1", "77")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (("plan", "--source", "magic"), "unknown-source", 2),
        (("plan", "--caps", "compute,teleport"), "unknown-capability", 2),
        (("plan", "--caps", ","), "unknown-capability", 2),
        (("plan", "--format", "yaml"), "unknown-format", 2),
        (("plan", "--format", "tsv", "--format", "paths"), "two-formats", 2),
        (("check", "--quiet", "--format", "tsv"), "two-formats", 2),
        (("plan", "--like", "docker", "--host", HOST), "unknown-flavour", 2),
        (("plan", "--host", "nowhere"), "unknown-host", 2),
        (("plan", "--host", HOST, "--root", "/"), "host-with-root", 2),
        (("plan", "--list", "/dev/null", "--source", "driver"), "list-with-source", 2),
        (("plan", "--libdir", "relative"), "not-absolute", 2),
        (("plan", "--libdir", "/a/../b"), "not-absolute", 2),
        (("plan", "--libdir", "/a:b"), "not-absolute", 2),
        (("plan", "--libdir", "/a\nb"), "not-absolute", 2),
        (("plan", "--libdir", "//"), "not-absolute", 2),
        (("plan", "--libdir", "/x", "--format", "singularity", "--host", HOST), "fixed-libdir", 2),
        (("plan", "--like", "apptainer", "--format", "apptainer", "--host", HOST), "like-in-words", 2),
        (("plan", "--libdir", "/x", "--format", "cdi", "--host", HOST), "fixed-libdir", 2),
        (("plan", "--like", "apptainer", "--format", "cdi", "--host", HOST), "like-in-words", 2),
        (("plan", "--like", "apptainer", "--cdi-device", "a.b/c=d", "--host", HOST), "like-with-option", 2),
        (("plan", "--source", "driver", "--cdi-device", "a.b/c=d", "--host", HOST), "cdi-with-source", 2),
        (("plan", "--cdi-device", "0", "--host", HOST), "bad-cdi-name", 2),
        (("plan", "--cdi-device", "a.b/c=d", "--host", HOST), "unknown-cdi-device", 2),
        (("plan", "--cdi-dir", "here", "--source", "cdi", "--host", HOST), "not-absolute", 2),
        (("plan", "--cdi-hook", "/bin/sh", "--host", HOST), "hook-without-cdi", 2),
        (("plan", "--allow-none", "--host", HOST), "none-in-format", 2),
        (("cdi", "lst"), "wrong-use", 2),
        (("cdi", "list", "--host", HOST, "--cdi-dir", "/srv/cdi"), "not-recorded", 4),
        (("plan", "--cdi-hook", "/nonexistent", "--format", "cdi", "--host", HOST), "no-cdi-hook", 4),
        (("plan", "--library-path", "x", "--host", HOST), "not-absolute", 2),
        (("plan", "--root", "/nonexistent"), "no-root", 4),
        (("plan", "--root", "/etc/passwd"), "no-root", 4),
        (("plan", "--root", ""), "no-root", 4),
        (("plan", "--dev-root", ""), "no-root", 4),
        (("plan", "--libdir", "", "--host", HOST), "not-absolute", 2),
        (("exec", "--backend", "apptainer", "--dry-run", "--host", HOST, "", "true"), "no-command", 2),
        (("exec", "--backend", "udocker", "--dry-run", "--host", HOST, "", "true"), "no-command", 2),
        (("exec", "--dry-run", "--host", HOST, "--", "-B", "/a", "", "true"), "no-command", 2),
        (("exec", "--dry-run", "--host", HOST, "--", "--nosuchopt", "img.sif", "true"), "incomplete-argument", 2),
        (("plan", "--host", "/nonexistent.json"), "unreadable-file", 4),
        (("plan", "--host", "/etc"), "unreadable-file", 4),
        (("plan", "--host", "/etc/passwd"), "bad-record", 5),
        (("plan", "--list", "/nonexistent", "--host", HOST), "unreadable-file", 4),
        (("plan", "--json", "--host", HOST, "-o", "/nonexistent/x"), "unwritable-file", 4),
        (("plan", "--json", "--host", HOST, "-o", "/dev/full"), "unwritable-file", 4),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_gets_its_code_and_exit_status_and_no_traceback(
    arguments: tuple[str, ...], code: str, status: int
) -> None:
    done = gpubind(*arguments)
    assert done.stderr.startswith(f"error: {code}: ")
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (status, "", False)


def test_a_cdi_spec_is_data_on_stdout() -> None:
    done = gpubind("plan", "-q", "--format", "cdi", "--host", HOST)
    assert [device["name"] for device in json.loads(done.stdout)["devices"]][-1] == "all"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("options", "directory"),
    [((), "/usr/lib64"), (("--cdi-hook", "/bin/sh"), "/.gpubind/libs")],
    ids=["searched", "hook"],
)
def test_a_cdi_spec_has_a_library_once_with_a_hook_and_once_in_each_directory_that_loaders_search(
    options: tuple[str, ...], directory: str
) -> None:
    edits = json.loads(gpubind("plan", "-q", "--format", "cdi", *options, "--host", HOST).stdout)["containerEdits"]
    targets = [mount["containerPath"] for mount in edits["mounts"]]
    libcudas = [target.rpartition("/")[0] for target in targets if target.endswith("/libcuda.so.1")]
    assert directory in libcudas
    if options:
        assert libcudas == [directory]
        assert [hook["args"][-2:] for hook in edits["hooks"]] == [["--folder", directory]]


def test_a_cdi_hook_needs_one_directory_only() -> None:
    done = gpubind("plan", "-q", "--format", "cdi", "--cdi-hook", "/bin/sh", "--libdir", "/opt/gpu", "--host", HOST)
    edits = json.loads(done.stdout)["containerEdits"]
    assert edits["hooks"][0]["args"][-2:] == ["--folder", "/opt/gpu"]
    assert not [mount for mount in edits["mounts"] if mount["containerPath"].startswith("/usr/lib64/")]


ODD_PATHS = ("/a\nb", "/\ud800", "/" + "x" * 5000, "/../../etc/passwd", "//etc", "relative", "/", "/dev/null", "/etc/")


@pytest.mark.parametrize("form", ["json", "tsv", "cdi", "apptainer"])
def test_odd_paths_in_a_cdi_spec_are_decided_on(tmp_path: Path, form: str) -> None:
    mounts = [{"hostPath": path, "containerPath": path} for path in ODD_PATHS]
    nodes = [{"path": path} for path in ODD_PATHS]
    edits = {"env": ["A=\n"], "mounts": mounts, "deviceNodes": nodes}
    device = {"name": "x", "containerEdits": edits}
    spec = {"cdiVersion": "1.1.0", "kind": "a.b/c", "devices": [device]}
    make_tree(tmp_path, {"/etc/cdi/x.json": json.dumps(spec), "/etc/passwd": "x", "/a\nb": "x"})
    arguments = ("plan", "-q", "--root", str(tmp_path), "--dev-root", str(tmp_path), "--format", form)
    done = gpubind(*arguments, "--cdi-device", "a.b/c=x")
    assert "Traceback" not in done.stderr
    assert done.returncode == (6 if form in ("cdi", "apptainer") else 0)
    if form == "json":
        plan = json.loads(done.stdout)
        assert [mount["target"] for mount in plan["mounts"]] == ["/a\nb"]
        assert plan["devices"] == []


def test_an_unknown_option_is_wrong_use() -> None:
    assert gpubind("plan", "--no-such-option").returncode == 2


def test_an_empty_root_has_nothing_to_bind_and_says_where_it_looked(tmp_path: Path) -> None:
    done = gpubind("plan", "--root", str(tmp_path), "--dev-root", str(tmp_path))
    assert done.returncode == 3
    assert done.stderr.startswith("error: nothing-to-bind: no NVIDIA driver library and no NVIDIA device")
    assert "/dev/nvidia*" in done.stderr


def test_a_malformed_list_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "my.conf").write_text("# ok\nlibcuda.so\n[no-such-section]\n")
    done = gpubind("plan", "--list", str(tmp_path / "my.conf"), "--host", HOST)
    assert done.returncode == 5
    assert f"{tmp_path}/my.conf:3" in done.stderr


@pytest.mark.parametrize("words", [f"plan --json --host {HOST}", "--help", "plan -h", "--version", "explain ''"])
def test_a_closed_stdout_is_exit_120_and_told_where_the_caller_closed_it(words: str) -> None:
    command = f"{sys.executable} -m gpubind {words}; echo $? >&2"
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "GPUBIND_MEMO": "off"}
    closed = "error: stdout-closed: standard output is closed\n120\n"
    for shell, told in ((f"({command}) | true", "120\n"), (f"({command}) >&-", closed)):
        done = subprocess.run(["sh", "-c", shell], stderr=subprocess.PIPE, text=True, env=environ)
        assert done.stderr == told, shell


@pytest.mark.parametrize("end", ["| true", ">&-", "> /dev/full"])
def test_an_error_whose_document_nobody_gets_is_told_and_ends_as_ever(end: str) -> None:
    command = f"{sys.executable} -m gpubind plan --json --host nowhere; echo $? >&2"
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "GPUBIND_MEMO": "off"}
    done = subprocess.run(["sh", "-c", f"({command}) {end}"], stderr=subprocess.PIPE, text=True, env=environ)
    assert done.stderr.startswith("error: unknown-host: ")
    assert [line for line in done.stderr.splitlines() if not line.startswith(("error: ", "  "))] == ["2"]


def test_a_full_device_is_told() -> None:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "GPUBIND_MEMO": "off"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpubind", "plan", "--json", "--host", HOST],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )
    assert done.returncode == 4
    assert done.stderr.startswith("error: unwritable-file: ")


def test_it_works_without_home_and_path_and_in_a_directory_that_is_gone(tmp_path: Path) -> None:
    code = (
        "import os, sys; os.chdir(sys.argv.pop(1)); os.rmdir(os.getcwd()); os.environ.clear()\n"
        "from gpubind.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    gone = tmp_path / "gone"
    gone.mkdir()
    environ = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(gone), "plan", "--json", "--host", HOST], capture_output=True, env=environ
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_mistake_in_gpubind_is_told_with_the_file_it_is_in_from_the_package_on() -> None:
    code = (
        "import gpubind.cli.settings as s; s.system = None; from gpubind.cli.main import main; raise SystemExit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code, "plan"], capture_output=True, text=True)
    assert done.returncode == 70
    assert re.search(r"^  where: gpubind/cli/settings\.py:\d+$", done.stderr, re.MULTILINE)


def test_an_option_wins_over_a_variable_and_that_over_the_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind" / "config.toml").write_text('caps = "utility"\nlibdir = "/from/file"\n')
    env = {"XDG_CONFIG_HOME": str(tmp_path)}

    def libdir(*arguments: str, **more: str) -> str:
        return str(
            json.loads(gpubind("plan", "--json", "--host", HOST, *arguments, env={**env, **more}).stdout)["libdir"]
        )

    assert libdir() == "/from/file"
    assert libdir(GPUBIND_LIBDIR="/from/variable") == "/from/variable"
    assert libdir("--libdir", "/from/option", GPUBIND_LIBDIR="/from/variable") == "/from/option"


def test_a_configuration_file_may_set_the_format_and_what_only_some_commands_take(tmp_path: Path) -> None:
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind" / "config.toml").write_text('format = "paths"\nbackend = "bwrap"\nrequire-gpu = true\n')
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert gpubind("plan", "--host", HOST, env=env).stdout.startswith("/dev/dri/card0\n")
    assert gpubind("explain", "libcuda.so", "--host", HOST, env=env).returncode == 0
    assert gpubind("check", "--host", HOST, env=env).returncode == 0


@pytest.mark.parametrize(
    "text",
    ["no toml", "unknown = 1", 'completion = "yes"', "library-path = [1]", "caps = 3", "nv = true", f'host = "{HOST}"'],
    ids=lambda text: text,
)
def test_a_malformed_configuration_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind" / "config.toml").write_text(text)
    done = gpubind("plan", "--host", HOST, env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert done.returncode == 5
    assert done.stderr.startswith("error: bad-config: ")
    assert "config.toml" in done.stderr


def test_a_users_list_is_the_law_and_named_without_naming_the_user(tmp_path: Path) -> None:
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind" / "nvliblist.conf").write_text("libcuda.so\n")
    # The live host has the user's list in force; a recorded one its own.
    done = gpubind("plan", "--json", "--host", HOST, "--list", str(tmp_path / "gpubind" / "nvliblist.conf"))
    plan = json.loads(done.stdout)
    assert {mount["soname"] for mount in plan["mounts"]} == {"libcuda.so.1"}
    finding = next(finding for finding in plan["findings"] if finding["code"] == "not-in-list")
    assert "libnvidia-ml.so" in finding["hint"].partition(": ")[2].split(", ")
    assert finding["command"] is None  # a shell would run each of them


def test_strict_makes_an_error_finding_exit_1(tmp_path: Path) -> None:
    record = json.loads(read_data(f"model/data/hosts/{HOST}.json"))
    driver = record["trees"]["driver"]["directories"]
    del driver["/proc/driver/nvidia"]["entries"]["version"]
    path = tmp_path / "no-module.json"
    path.write_text(json.dumps(record))
    assert gpubind("plan", "--json", "--host", str(path)).returncode == 0
    done = gpubind("plan", "--json", "--strict", "--host", str(path))
    assert done.returncode == 1
    assert json.loads(done.stdout)["drivers"][0]["version_assumed"] is True


def test_strict_fails_on_what_the_check_of_the_host_calls_an_error(tmp_path: Path) -> None:
    """A truncated library, in every format that a plan has."""
    record = json.loads(read_data(f"model/data/hosts/{HOST}.json"))
    directories = record["trees"]["driver"]["directories"]
    entries = directories["/usr/lib/x86_64-linux-gnu/nvidia/current"]["entries"]
    entry = entries["libnvidia-ml.so.550.163.01"]
    del entry["elf"]
    entry["no_elf"] = ["unreadable", "damaged ELF file: the file is truncated"]
    path = tmp_path / "truncated.json"
    path.write_text(json.dumps(record))
    for form in ("json", "table", "apptainer", "podman"):
        assert gpubind("plan", "--nv", "--format", form, "--host", str(path)).returncode == 0
        done = gpubind("plan", "--nv", "--format", form, "--strict", "--host", str(path))
        assert done.returncode == 1
        assert "error: library-unreadable: libnvidia-ml.so.1 " in done.stderr


def test_explain_tells_who_named_a_file_and_where_it_lands() -> None:
    text = gpubind("explain", "libnvidia-ml.so.1", "--host", HOST).stdout
    assert "taken: it lands at /.gpubind/libs/libnvidia-ml.so.1" in text
    assert "named by: the list of driver files (etc/nvliblist.conf:" in text
    assert "1. ld.so.cache" in text


def test_explain_says_so_when_nobody_names_it() -> None:
    done = gpubind("explain", "libfoo.so.9", "--host", HOST)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown-code: `libfoo.so.9`")
    assert "where: looked in ld.so.cache, " in done.stderr


@pytest.mark.parametrize(
    ("name", "near"),
    [("library-mising", "library-missing"), ("libcudda.so.1", "libcuda.so.1"), ("/dev/nvidia7", "/dev/nvidia1")],
)
def test_explain_knows_what_a_mistyped_name_was_to_be(name: str, near: str) -> None:
    done = gpubind("explain", name, "--host", HOST)
    assert done.returncode == 2
    assert f"`{near}`" in done.stderr.partition("hint:")[2]


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("plan", "--host", "debian13-nvidia55"), "debian13-nvidia550"),
        (("plan", "--host", HOST, "--caps", "compue"), "compute"),
        (("plan", "--host", HOST, "--format", "Table"), "table"),
        (("plan", "--host", HOST, "--format", "aptainer"), "apptainer"),
        (("plan", "--host", HOST, "--source", "drivr"), "driver"),
        (("plan", "--host", HOST, "--like", "apptaner"), "apptainer"),
        (("check", "--host", HOST, "--only", "cuda-too-knew"), "cuda-too-new"),
        (("check", "--host", HOST, "--format", "junti"), "junit"),
        (("check", "--host", HOST, "--backend", "pdoman"), "podman"),
    ],
    ids=lambda value: "" if isinstance(value, tuple) else value,
)
def test_an_unknown_value_is_told_what_it_was_to_be(words: tuple[str, ...], near: str) -> None:
    done = gpubind(*words)
    assert done.returncode == 2
    assert f"hint:  did you mean `{near}`" in done.stderr


def test_a_message_is_found_with_quotes_and_without() -> None:
    message = "version GLIBC_2.34 not found"
    assert gpubind("explain", *message.split()).stdout == gpubind("explain", message).stdout


def test_explain_of_a_message_needs_no_host(tmp_path: Path) -> None:
    done = gpubind("explain", "./solve: /lib/libc.so.6: version `GLIBC_2.34' not found (required by ./solve)")
    assert done.returncode == 0
    assert "program-library-version" in done.stdout


def test_explain_alone_lists_every_code() -> None:
    lines = gpubind("explain", "").stdout.splitlines()
    assert "cuda-too-new" in {line.split()[0] for line in lines} >= {"unknown-code"}


def test_explain_in_json_fits_its_schema() -> None:
    for asked in ([""], ["uvm-missing"], ["999"], ["libcuda.so.1"], ["VK_ERROR_FRAGMENTED_POOL"], ["Xid 46"]):
        assert_fits(json.loads(gpubind("explain", *asked, "--json", "--host", HOST).stdout), "explain")


def test_record_then_plan_gives_the_same_as_the_record_it_was_made_from(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "dev").mkdir(parents=True)
    path = tmp_path / "record.json"
    assert gpubind("record", "-o", str(path), "--root", str(root), "--dev-root", str(root)).returncode == 0
    recorded = gpubind("plan", "--host", str(path))
    live = gpubind("plan", "--root", str(root), "--dev-root", str(root))
    assert (recorded.returncode, recorded.stderr) == (live.returncode, live.stderr) == (3, live.stderr)


def test_version_is_the_packages() -> None:
    import gpubind as package

    assert gpubind("--version").stdout == gpubind("-V").stdout == f"gpubind {package.__version__}\n"


def test_check_says_first_what_was_checked_and_the_verdict() -> None:
    done = gpubind("check", "--nv", "--host", HOST)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "ok: nvidia 550.163.01 (CUDA 12.4), 2 GPUs"
    full = gpubind("check", "-v", "--nv", "--host", HOST).stdout
    assert "note: vendor-neutral-left-out: " in full
    assert "note: vendor-neutral-left-out: " not in done.stdout


def test_check_of_one_error_is_not_long(tmp_path: Path) -> None:
    words = ("check", "--nv", "--host", HOST, "--only", "cuda-too-new", "--image", images(tmp_path))
    lines = gpubind(*words).stdout.splitlines()
    assert lines[0].startswith(f"error: {tmp_path}/image (glibc "[:90])
    assert next(line for line in lines[1:] if line.startswith("error: ")).startswith("error: cuda-too-new: ")
    assert len(lines) <= 15


def test_as_columns_check_prints_a_line_a_finding_and_the_verdict() -> None:
    done = gpubind("check", "--nv", "--host", HOST, "--format", "tsv")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "# ok"
    assert {line.split("\t")[1] for line in done.stdout.splitlines()[:-1]} == {"vendor-neutral-left-out"}


def test_check_quietly_prints_the_verdict_and_its_codes(tmp_path: Path) -> None:
    assert gpubind("check", "-q", "--host", HOST).stdout == "ok\n"
    words = ("check", "-q", "--nv", "--host", HOST, "--image", images(tmp_path))
    assert gpubind(*words).stdout == "error cuda-too-new,library-missing\n"
    only = gpubind(*words, "--only", "no-ldcache")
    told = "ok (--only does not count: error cuda-too-new, error library-missing)\n"
    assert (only.stdout, only.returncode) == (told, 0)


def test_what_is_ignored_may_be_named_with_its_subject(tmp_path: Path) -> None:
    only = ("--only", "cuda-too-new", "--ignore", "library-missing")
    words = ("check", "-q", "--nv", "--host", HOST, "--image", images(tmp_path), *only, "--ignore")
    assert gpubind(*words, "cuda-too-new:98.0").stdout == "error cuda-too-new\n"
    assert gpubind(*words, "cuda-too-new:99.0").stdout == "ok\n"
    assert gpubind(*words, "cuda-too-new:99.0=we know").stdout == "ok\n"
    assert "unknown-code" in gpubind(*words, "cuda-too-knew:99.0").stderr


def test_a_report_says_what_was_checked(tmp_path: Path) -> None:
    image = images(tmp_path)
    words = ("check", "--nv", "--host", HOST, "--image", image, "--program", "sh", "--backend", "apptainer")
    document = json.loads(gpubind(*words, "--json").stdout)
    assert document["checked"] == {
        "host": HOST,
        "image": image,
        "system": None,
        "glibc": None,
        "program": "sh",
        "runtime": "apptainer",
        "user": None,
        "expected": None,
        "policy": None,
        "drivers": [{"vendor": "nvidia", "version": "550.163.01", "cuda_max": "12.4"}],
    }
    suite = gpubind(*words, "--format", "junit").stdout
    assert f'hostname="{HOST}"' in suite
    assert '<property name="runtime" value="apptainer" />' in suite
    assert 'name="kfd-missing"' not in suite  # a rule about AMD's
    assert 'name="uvm-missing"' in suite


def test_check_as_json_has_the_plans_digest() -> None:
    document = json.loads(gpubind("check", "--json", "--host", HOST).stdout)
    plan = json.loads(gpubind("plan", "--json", "--host", HOST).stdout)
    assert (document["schema"], document["verdict"]) == ("gpubind.check/1", "ok")
    assert document["plan"] == plan["digest"]


def test_check_of_a_host_without_a_driver_is_an_error_finding(tmp_path: Path) -> None:
    done = gpubind("check", "--root", str(tmp_path), "--dev-root", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.startswith("error: a host without a GPU driver\nerror: nothing-to-bind: ")


def test_check_of_an_image_without_glibc_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = gpubind("check", "--host", HOST, "--image", str(tmp_path))
    assert done.returncode == 1
    assert "\nerror: image-without-glibc: " in done.stdout


@pytest.mark.parametrize("names", [(), ("src", "notes.txt")])
def test_a_directory_that_is_no_root_file_system_is_told_as_that(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    done = gpubind("check", "--host", HOST, "--image", str(tmp_path), env={"COLUMNS": "200"})
    assert f"error: {tmp_path} (no root file system, no CUDA) on " in " ".join(done.stdout.split())
    assert "the image does not look like a root file system: no /usr, /lib" in " ".join(done.stdout.split())
    (tmp_path / "usr").mkdir()
    assert "not look like a root file system" not in gpubind("check", "--host", HOST, "--image", str(tmp_path)).stdout


def test_of_an_image_for_several_architectures_that_of_the_recorded_host_counts(tmp_path: Path) -> None:
    blobs = Blobs()
    made = [
        blobs.image([tar(glibc(machine=machine))], arch=arch, layer_type=LAYER)
        for arch, machine in (("amd64", 62), ("arm64", 183))
    ]
    path = write(tmp_path / "layout", blobs.layout(*made))
    recorded = read_data(f"model/data/hosts/{HOST}.json").decode()
    (tmp_path / "arm.json").write_text(recorded.replace('"machine": "x86_64"', '"machine": "aarch64"'))
    for host, arch in ((HOST, "x86_64"), (str(tmp_path / "arm.json"), "aarch64")):
        done = gpubind("plan", "--nv", "--json", "--host", host, "--image", path)
        assert json.loads(done.stdout)["image"]["arch"] == arch


def codes(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.split("\t")[1] for line in done.stdout.splitlines() if not line.startswith("#")]


def test_only_and_ignore_say_which_findings_count(tmp_path: Path) -> None:
    words = ("check", "--nv", "--host", HOST, "--format", "tsv", "--image", images(tmp_path))
    done = gpubind(*words)
    assert done.returncode == 1
    assert "cuda-too-new" in codes(done)
    only = (*words, "--only", "cuda-too-new")
    assert codes(gpubind(*only)) == ["cuda-too-new"]
    done = gpubind(*only, "--ignore", "cuda-too-new=the job is for the CPU")
    assert done.returncode == 0
    ignored = [line for line in done.stdout.splitlines() if line.startswith("ignored\t")]
    assert [line.split("\t")[-1] for line in ignored] == ["the job is for the CPU"]


@pytest.mark.parametrize(("table", "code"), [('no-such-code = "x"', "no-such-code"), ('":x" = "y"', "")])
def test_a_code_that_no_finding_has_is_refused_with_the_file_that_names_it(
    tmp_path: Path, table: str, code: str
) -> None:
    (tmp_path / "gpubind").mkdir()
    config = tmp_path / "gpubind" / "config.toml"
    config.write_text(f"[ignore]\n{table}\n")
    done = gpubind("check", "--host", HOST, env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown-code: ")
    assert f"where: `ignore` in {config}" in done.stderr
    assert code in done.stderr


@pytest.mark.parametrize("option", ["--only", "--ignore"])
def test_an_option_that_names_no_code_is_refused_in_clear_words(option: str) -> None:
    done = gpubind("check", "--host", HOST, option, "")
    assert done.stderr.startswith("error: unknown-code: empty finding code\n")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("cuda-too-new", {("cuda-too-new", None): "--ignore"}),
        ("cuda-too-new,uvm-missing=known", {("cuda-too-new", None): "--ignore", ("uvm-missing", None): "known"}),
        (
            "cuda-too-new=old, and known,uvm-missing",
            {("cuda-too-new", None): "old, and known", ("uvm-missing", None): "--ignore"},
        ),
        ("library-missing:a,b.so=x", {("library-missing", "a,b.so"): "x"}),
        ("cdi-conflict:nvidia.com/gpu=0", {("cdi-conflict", "nvidia.com/gpu=0"): "--ignore"}),
        ("cdi-conflict:nvidia.com/gpu=0=a=b", {("cdi-conflict", "nvidia.com/gpu=0"): "a=b"}),
    ],
)
def test_each_finding_of_an_option_is_ignored_with_its_subject_and_reason(
    given: str, found: dict[tuple[str, Optional[str]], str]
) -> None:
    assert ignored_findings([given]) == found


def test_a_key_of_a_configuration_file_names_one_finding(tmp_path: Path) -> None:
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind/config.toml").write_text('[ignore]\n"cuda-too-new,uvm-missing" = "x"\n')
    done = gpubind("check", "--nv", "--host", HOST, env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert done.returncode == 2
    assert "no finding has the code `cuda-too-new,uvm-missing`" in done.stderr
    assert "gpubind/config.toml" in done.stderr


@pytest.mark.parametrize("key", ["userspace", "vendor-neutral", "libc", "cuda-compat", "source", "caps", "gpus"])
def test_a_value_that_is_refused_is_named_with_its_option_and_where_it_comes_from(tmp_path: Path, key: str) -> None:
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind/config.toml").write_text(f'{key} = "zzz"\n')
    from_file = gpubind("plan", "--nv", "--host", HOST, env={"XDG_CONFIG_HOME": str(tmp_path)}).stderr
    assert f"  where: `{key}` in {tmp_path}/gpubind/config.toml\n" in from_file
    variable = f"GPUBIND_{key.upper().replace('-', '_')}"
    assert (
        f"  where: the variable {variable}\n" in gpubind("plan", "--nv", "--host", HOST, env={variable: "zzz"}).stderr
    )
    on_the_line = gpubind("plan", "--nv", "--host", HOST, f"--{key}", "zzz").stderr
    assert "where:" not in on_the_line
    assert key in on_the_line or key in ("source", "caps")


def test_gpus_reports_what_a_plan_reports_of_the_choice_of_gpus(tmp_path: Path) -> None:
    record = json.loads(read_data(f"model/data/hosts/{HOST}.json"))
    record["environ"]["CUDA_VISIBLE_DEVICES"] = "7"
    (tmp_path / "host.json").write_text(json.dumps(record))
    done = gpubind("gpus", "--host", str(tmp_path / "host.json"))
    assert done.returncode == 0
    assert "visible-devices-unknown" in done.stderr


def test_gpus_reports_no_node_that_is_a_note_in_check(tmp_path: Path) -> None:
    record = facade.record(amd_host(opt(), kernel(gpus=1), groups=(1000,)))
    (tmp_path / "host.json").write_text(record)
    listed = gpubind("gpus", "--host", str(tmp_path / "host.json"))
    assert [line for line in listed.stderr.splitlines() if "/dev/dri/card" in line] == []
    assert [line.partition("(")[0] for line in listed.stderr.splitlines()] == [
        "error: device-permission: this user may not use /dev/kfd ",
        "error: device-permission: this user may not use /dev/dri/renderD128 ",
    ]
    checked = gpubind("check", "-v", "--host", str(tmp_path / "host.json"))
    assert "note: device-permission: this user may not use /dev/dri/card1 " in checked.stdout


def test_gpus_reports_a_driver_that_is_not_loaded_and_lists_no_gpu(tmp_path: Path) -> None:
    unloaded = str(make_tree(tmp_path / "root", rhel()).root)
    done = gpubind("gpus", "--root", unloaded, "--dev-root", unloaded)
    assert (done.returncode, done.stdout) == (0, "this host has no GPU with a loaded driver\n")
    assert done.stderr.startswith("error: driver-not-loaded: ")
    check = gpubind("check", "-q", "--nv", "--root", unloaded, "--dev-root", unloaded)
    assert (check.returncode, check.stdout) == (1, "error driver-not-loaded\n")


@pytest.mark.parametrize("words", [("gpus",), ("cdi", "list")])
def test_an_attribute_of_the_host_that_could_not_be_read_is_told_by_each_command_that_reads_it(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    information = "/proc/driver/nvidia/gpus/0000:01:00.0/information"
    record = json.loads(read_data(f"model/data/hosts/{HOST}.json"))
    directory, _, name = information.rpartition("/")
    record["trees"]["driver"]["directories"][directory]["entries"][name] = {
        "mode": "0444",
        "size": 0,
        "unread": ["unreadable", "Input/output error"],
    }
    (tmp_path / "host.json").write_text(json.dumps(record))
    done = gpubind(*words, "--host", str(tmp_path / "host.json"), cwd=tmp_path)
    assert done.returncode == 0
    assert f"warning: not-looked-at: {information} of the host could not be read" in done.stderr


WRONG = ("plan", "--host", HOST, "--caps", "compue")


@pytest.mark.parametrize(
    ("words", "environ", "is_json"),
    [
        ((*WRONG, "--json"), {}, True),
        ((*WRONG, "--json", "-o", "-"), {}, True),
        ((*WRONG, "--json", "--output=-"), {}, True),
        ((*WRONG, "--json", "-vo-"), {}, True),
        ((*WRONG, "--json", "-o", "FILE"), {}, False),
        ((*WRONG, "--json", "-voFILE"), {}, False),
        (("--", *WRONG, "--json"), {}, True),
        (WRONG, {"GPUBIND_FORMAT": "json"}, True),
        (WRONG, {"GPUBIND_FORMAT": "sh json"}, True),
        ((*WRONG, "--format", "tsv"), {"GPUBIND_FORMAT": "json"}, False),
        ((*WRONG, "--format", "tsv", "--json"), {}, True),
        (WRONG, {"XDG_CONFIG_HOME": "json"}, True),
        (WRONG, {"XDG_CONFIG_HOME": "json", "GPUBIND_FORMAT": "tsv"}, False),
        (("check", "--host", HOST, "--caps", "compue"), {"XDG_CONFIG_HOME": "json"}, False),
        (("check", "--host", HOST, "--only", "--format=json"), {}, False),
        (("explain", "--json", "--", "--output-x"), {}, True),
        (("explain", "--", "--output-x", "--json"), {}, False),
        (("gpus", "--json", "--host", "nowhere"), {}, True),
        (("needs", "nowhere", "--json", "-o", "-"), {}, True),
    ],
)
def test_an_error_is_json_where_json_is_requested_on_standard_output(
    tmp_path: Path, words: tuple[str, ...], environ: dict[str, str], is_json: bool
) -> None:
    (tmp_path / "json/gpubind").mkdir(parents=True)
    (tmp_path / "json/gpubind/config.toml").write_text('format = "json"\n')
    if "XDG_CONFIG_HOME" in environ:
        environ = {**environ, "XDG_CONFIG_HOME": str(tmp_path / "json")}
    done = gpubind(*words, env=environ, cwd=tmp_path)
    assert done.returncode in (2, 4)
    assert done.stderr.startswith("error: ")
    assert (json.loads(done.stdout)["schema"] if done.stdout else "") == ("gpubind.error/1" if is_json else "")


def test_an_error_in_the_configuration_is_json_where_json_is_requested(tmp_path: Path) -> None:
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind/config.toml").write_text("colour = 1\n")
    done = gpubind("plan", "--json", "--host", HOST, env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert json.loads(done.stdout)["code"] == "bad-config"


def test_an_empty_no_color_leaves_colour_on() -> None:
    """https://no-color.org: a variable that is present and not empty."""
    assert "\x1b[" in gpubind("check", "--host", HOST, env={"FORCE_COLOR": "1", "NO_COLOR": ""}).stdout


@pytest.mark.parametrize("name", ["COLUMNS", "LINES", "TERMINAL_WIDTH"])
def test_the_size_of_a_terminal_reaches_the_container_whatever_it_is(tmp_path: Path, name: str) -> None:
    program = tmp_path / "podman"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo podman version 5.4.2 || echo "[${name}]"\n')
    program.chmod(0o755)
    (tmp_path / "img/bin").mkdir(parents=True)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), name: "0x50"}
    done = gpubind("exec", "--backend", "podman", "--root", str(tmp_path), f"{tmp_path}/img", "true", env=environ)
    assert "[0x50]" in done.stdout


def test_a_stale_pwd_is_not_taken_for_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "img/bin").mkdir(parents=True)
    words = ("exec", "--backend", "podman", "--host", HOST, "--dry-run", "./img", "echo", "hi")
    stale = gpubind(*words, cwd=tmp_path, env={"PWD": "/nonexistent"}).stdout
    assert stale == gpubind(*words, cwd=tmp_path, env={"PWD": str(tmp_path)}).stdout
    assert f"{tmp_path}/img" in stale


def test_what_a_file_ignores_without_a_reason_does_not_count_and_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "gpubind").mkdir()
    config = tmp_path / "gpubind" / "config.toml"
    config.write_text('[ignore]\nimage-without-glibc = ""\n')
    (tmp_path / "image/bin").mkdir(parents=True)
    words = ("check", "--format", "tsv", "--host", HOST, "--image", str(tmp_path / "image"))
    done = gpubind(*words, env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert "ignored\timage-without-glibc\timage\t" in done.stdout
    assert f"\t{config}\n" in done.stdout


def test_a_site_may_ignore_findings_with_a_reason_that_is_shown(tmp_path: Path) -> None:
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind/config.toml").write_text('[ignore]\ncuda-too-new = "our images carry cuda-compat"\n')
    words = ("check", "--nv", "--host", HOST, "--image", images(tmp_path), "--only", "cuda-too-new")
    done = gpubind(*words, env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert done.returncode == 0
    assert "(our images carry cuda-compat)" in " ".join(done.stdout.split())


def test_strict_makes_a_warning_exit_1(tmp_path: Path) -> None:
    image = str(make_tree(tmp_path / "image", {**glibc(), "/usr/lib/libcuda.so.1": elf("libcuda.so.1")}).root)
    words = ("check", "--nv", "--host", HOST, "--image", image, "--only", "driver-in-image")
    assert gpubind(*words).returncode == 0
    assert gpubind(*words, "--strict").returncode == 1


def test_a_report_for_a_ci_system_goes_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    done = gpubind("check", "--nv", "--host", HOST, "--format", "junit", "-o", str(path))
    assert (done.returncode, done.stdout) == (0, "")
    assert path.read_text().startswith("<?xml")
    done = gpubind("check", "--nv", "--host", HOST, "--image", images(tmp_path), "--format", "github")
    assert done.returncode == 1
    assert "::error title=cuda-too-new%3A 99.0::" in done.stdout


def test_the_program_is_looked_for_in_the_image(tmp_path: Path) -> None:
    words = ("check", "--nv", "--host", HOST, "--format", "tsv", "--image", images(tmp_path), "--program")
    assert "program-missing" in codes(gpubind(*words, "python3"))
    assert "program-missing" not in codes(gpubind(*words, "sh"))


def test_a_program_of_this_host_is_checked_in_the_image(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(elf(kind=2, needed=("libfar.so.1",)))
    mine.chmod(0o755)
    image = images(tmp_path)
    words = ("check", "--nv", "--format", "tsv", "--root", str(tmp_path), "--image", image, "--program")
    for program in ("./mine", str(mine)):
        found = codes(gpubind(*words, program, cwd=tmp_path))
        assert {"program-library-missing", "program-on-host"} <= set(found)
    assert "program-missing" in codes(gpubind(*words, "./nothing", cwd=tmp_path))
    recorded = ("check", "--nv", "--format", "tsv", "--host", HOST, "--image", image, "--program", "./mine")
    assert "program-unreadable" in codes(gpubind(*recorded, cwd=tmp_path))
    assert "no-program" in gpubind(*words, "").stderr


def test_explain_prints_the_page_of_a_code() -> None:
    done = gpubind("explain", "uvm-missing")
    assert done.returncode == 0
    assert done.stdout.startswith("uvm-missing\n")
    assert "nvidia-modprobe -u -c=0" in done.stdout


def test_exec_with_check_starts_nothing_on_an_error(tmp_path: Path) -> None:
    words = ("exec", "--backend", "bwrap", "--root", str(tmp_path), "--dev-root", str(tmp_path), "--dry-run")
    image = images(tmp_path)
    assert gpubind(*words, image, "sh").returncode == 0
    done = gpubind(*words, "--check", image, "sh")
    assert done.returncode == 125
    assert done.stdout == ""
    assert "error: check-failed: " in done.stderr
    assert "nothing-to-bind" in done.stderr
    assert gpubind(*words, image, "sh", env={"GPUBIND_CHECK": "1"}).returncode == 125
    assert gpubind(*words, "--no-check", image, "sh", env={"GPUBIND_CHECK": "1"}).returncode == 0


def test_a_verdict_is_in_colour_where_somebody_asks_for_it() -> None:
    assert gpubind("check", "--host", HOST, env={"FORCE_COLOR": "1"}).stdout.startswith("\x1b[32mok:\x1b[0m ")
    assert "\x1b" not in gpubind("check", "--host", HOST, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout


@pytest.mark.parametrize("name", ["ch-run", "proot"])
def test_no_format_that_does_not_exist_is_proposed(name: str) -> None:
    done = gpubind("plan", "--nv", "--host", HOST, "--format", name, "--libdir", "/opt/a b")
    assert "not-raw" in done.stderr
    assert f"`--format {name} --format sh`" in done.stderr
    assert f"{name}-env" not in done.stderr


def test_words_for_a_runtime_are_one_line() -> None:
    done = gpubind("plan", "-q", "--host", HOST, "--format", "singularity")
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith("--no-nv --nv=false --no-rocm --rocm=false --bind /")


@pytest.mark.parametrize(
    ("version", "prefix"), [("apptainer version 1.4.5", "APPTAINER"), ("singularity-ce version 4.1.0", "SINGULARITY")]
)
def test_variables_have_the_prefix_of_the_program_behind_the_name(tmp_path: Path, version: str, prefix: str) -> None:
    root = str(make_tree(tmp_path / "root", rhel()).root)
    env = runtime(tmp_path, "singularity", version)
    done = gpubind("plan", "--nv", "-q", "--format", "singularity-env", "--root", root, "--dev-root", root, env=env)
    assert f"export {prefix}_NO_NV=1" in done.stdout


def test_variables_bring_a_device_of_a_vendor_that_no_flag_of_the_program_knows(tmp_path: Path) -> None:
    edits = {"env": ["A=b"]}
    spec = {"cdiVersion": "0.6.0", "kind": "a.com/b", "devices": [{"name": "d", "containerEdits": edits}]}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    device = ("--cdi-device", "a.com/b=d", "--cdi-dir", str(tmp_path))
    done = gpubind("plan", "-q", *device, "--format", "apptainer-env")
    assert (done.returncode, "export APPTAINERENV_A=b" in done.stdout) == (0, True)


def test_sh_on_top_quotes_and_alone_is_wrong_use() -> None:
    done = gpubind("plan", "-q", "--host", HOST, "--format", "apptainer", "--format", "sh")
    assert "'LD_LIBRARY_PATH=/.singularity.d/libs:${LD_LIBRARY_PATH:-/.singularity.d/libs}'" in done.stdout
    assert gpubind("plan", "--host", HOST, "--format", "sh").returncode == 2


def test_a_program_that_gpubind_does_not_start_has_a_page() -> None:
    done = gpubind("exec", "--backend", "sarus", "/", "true")
    assert "hint:  docs/paste.md says what to paste for sarus\n" in done.stderr
    assert "known: apptainer, " in gpubind("exec", "--backend", "nerdctl", "/", "true").stderr


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (("exec", "--backend", "sarus", "/", "true"), "unknown-backend", 2),
        (("exec", "--backend", "bwrap", "/"), "no-command", 2),
        (("exec", "--backend", "apptainer", "/", "true"), "no-runtime", 125),
        (("exec", "/", "true"), "no-runtime", 125),
        (("shell", "/"), "no-runtime", 125),
        (("check", "--image", "/nonexistent", "--host", HOST), "no-image", 4),
        (("plan", "--vendor-neutral", "both", "--host", HOST), "unknown-side", 2),
        (("plan", "--userspace", "both", "--host", HOST), "unknown-side", 2),
        (("plan", "--libc", "both", "--host", HOST), "unknown-side", 2),
        (("plan", "--nv", "--rocm", "--list", "/dev/null", "--host", HOST), "list-for-two", 2),
        (("plan", "--nv", "--host", "mi300x-rocm62"), "nothing-to-bind", 3),
        (("plan", "--nv", "--host", "mi300x-rocm62", "--format", "apptainer"), "nothing-to-bind", 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_start_that_cannot_be_has_its_code_and_status(arguments: tuple[str, ...], code: str, status: int) -> None:
    done = gpubind(*arguments, env={"PATH": "/nonexistent"})
    assert done.stderr.startswith(f"error: {code}: ")
    assert (done.returncode, done.stdout) == (status, "")


def runtime(directory: Path, name: str, version: str) -> dict[str, str]:
    """An environment in whose PATH a program of that name tells its version, and otherwise prints its words."""
    program = directory / name
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "{version}"; exit; }}\nprintf "%s\\n" "$@"\nexit 42\n'
    )
    program.chmod(0o755)
    if not (directory / "img.sif").is_symlink():
        (directory / "img.sif").symlink_to("elsewhere.sif")  # there, for gpubind
    return {"PATH": f"{directory}:{os.environ['PATH']}"}


def a_driver(directory: Path) -> tuple[str, ...]:
    """Options for a host with a driver and without GPUs."""
    root = str(make_tree(directory / "driver", rhel()).root)
    return ("--root", root, "--dev-root", root)


@pytest.mark.parametrize("command", ["exec", "run", "shell"])
def test_on_a_recorded_host_nothing_is_started(tmp_path: Path, command: str) -> None:
    env = runtime(tmp_path, "apptainer", "apptainer version 1.5.0")
    done = gpubind(command, "--host", HOST, "img.sif", "cmd", env=env)
    assert (done.returncode, done.stdout, done.stderr.split(": ")[1]) == (2, "", "host-to-start")


def test_a_runtimes_own_options_stand_between_two_dashes_and_the_image(tmp_path: Path) -> None:
    env = runtime(tmp_path, "apptainer", "apptainer version 1.5.0")
    start = ("exec", "-q", "--host", HOST, "--dry-run")
    twice = [f"--backend-arg={word}" for word in ("-ec", "-B", "/a b:/c", "--env=A=1")]
    by_words = gpubind(*start, *twice, "img.sif", "cmd", env=env)
    assert "/dev/nvidia0" in by_words.stdout
    for behind in (("img.sif", "cmd"), ("--", "img.sif", "--", "cmd")):
        plain = gpubind(*start, "--", "-ec", "-B", "/a b:/c", "--env=A=1", *behind, env=env)
        assert plain.stdout == by_words.stdout


def test_a_word_before_the_image_that_is_no_option_of_the_runtimes_is_refused(tmp_path: Path) -> None:
    env = runtime(tmp_path, "apptainer", "apptainer version 1.5.0")
    for words in (("--unknown", "img.sif", "cmd"), ("--contain=maybe", "img.sif", "cmd"), ("-B",)):
        done = gpubind("exec", "--host", HOST, "--dry-run", "--", *words, env=env)
        assert (done.returncode, done.stderr.split(": ")[1]) == (2, "incomplete-argument")
    done = gpubind("run", "--host", HOST, "--dry-run", "--", "-c", env=env)
    assert (done.returncode, done.stderr.split(": ")[1]) == (2, "no-command")
    assert "hint:  gpubind exec -- OPTIONS IMAGE\n" in done.stderr


def test_exec_becomes_the_runtime_with_its_exit_status(tmp_path: Path) -> None:
    env = runtime(tmp_path, "apptainer", "apptainer version 1.5.0")
    arguments = ("--backend-arg=--contain", "img.sif", "--", "cmd", "--flag")
    done = gpubind("exec", "-q", *a_driver(tmp_path), *arguments, env=env, cwd=tmp_path)
    words = done.stdout.splitlines()
    assert done.returncode == 42
    assert words[:2] == ["exec", "--contain"]
    assert words[-3:] == ["img.sif", "cmd", "--flag"]
    assert "PREPEND_LD_LIBRARY_PATH=/.singularity.d/libs" in words
    done = gpubind("exec", "-q", "--host", HOST, "--dry-run", *arguments, env=env, cwd=tmp_path)
    assert "/dev/nvidia0" in done.stdout


def test_dry_run_prints_the_command_and_starts_nothing(tmp_path: Path) -> None:
    env = runtime(tmp_path, "singularity", "singularity-ce version 4.1.0")
    done = gpubind(
        "exec", "-q", "--dry-run", "--host", HOST, "--backend", "singularity", "img", "a b", env=env, cwd=tmp_path
    )
    assert done.returncode == 0
    lines = done.stdout.split(" \\\n  ")
    assert lines[:2] == [f"{tmp_path}/singularity exec", "--no-nv"]
    assert lines[-1] == "img 'a b'\n"
    echoed = subprocess.run(["sh", "-c", f"set -- {done.stdout}\necho $#"], capture_output=True, text=True)
    assert int(echoed.stdout) == len(shlex.split(done.stdout.replace("\\\n", "")))


def test_a_host_without_gpu_is_a_warning_and_the_container_starts(tmp_path: Path) -> None:
    env = runtime(tmp_path, "apptainer", "apptainer version 1.4.5")
    empty = tmp_path / "empty"
    empty.mkdir()
    roots = ("--root", str(empty), "--dev-root", str(empty))
    done = gpubind("exec", *roots, "img.sif", "cmd", env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr.startswith("warning: nothing-to-bind: ")) == (42, True)
    assert ("NVIDIA" in done.stderr, "AMD" in done.stderr) == (True, True)  # nobody was asked for by name
    assert gpubind("exec", "--require-gpu", *roots, "img.sif", "cmd", env=env, cwd=tmp_path).returncode == 125


def test_a_start_tells_each_finding_that_counts_in_a_line_and_all_of_all_with_verbose(tmp_path: Path) -> None:
    env = runtime(tmp_path, "apptainer", "apptainer version 1.4.5")
    unloaded = str(make_tree(tmp_path / "root", rhel()).root)
    words = ("exec", "--nv", "--root", unloaded, "--dev-root", unloaded)
    (line,) = gpubind(*words, "img.sif", "cmd", env=env, cwd=tmp_path).stderr.splitlines()
    assert line.startswith("error: driver-not-loaded: no NVIDIA kernel module is loaded on this host (hint: load the")
    assert line.endswith("nvidia-modprobe -u -c=0)")
    told = gpubind("exec", "-v", *words[1:], "img.sif", "cmd", env=env, cwd=tmp_path).stderr
    assert "  where: " in told
    assert "note: " in told


def test_require_gpu_wants_a_gpu_that_works(tmp_path: Path) -> None:
    env = runtime(tmp_path, "apptainer", "apptainer version 1.4.5")
    words = ("exec", "--require-gpu", "--host", HOST, "--dry-run")
    assert gpubind(*words, "img.sif", "cmd", env=env, cwd=tmp_path).returncode == 0
    done = gpubind(*words, "--gpus", "none", "img.sif", "cmd", env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr.startswith("error: gpu-required: ")) == (125, True)
    unloaded = str(make_tree(tmp_path / "root", rhel()).root)
    done = gpubind(
        "exec", "--require-gpu", "--root", unloaded, "--dev-root", unloaded, "img.sif", "cmd", env=env, cwd=tmp_path
    )
    assert (done.returncode, "driver-not-loaded" in done.stderr) == (125, True)


@pytest.mark.parametrize("words", [("--bind",), ("-eB",), ("--contain", "img.sif"), ("--env",)])
def test_an_argument_that_would_take_gpubinds_own_words_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    env = runtime(tmp_path, "apptainer", "apptainer version 1.4.5")
    arguments = [f"--backend-arg={word}" for word in words]
    done = gpubind("exec", *a_driver(tmp_path), *arguments, "img.sif", "cmd", env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr.startswith("error: incomplete-argument: ")) == (2, True)


def test_a_start_ends_with_125_where_the_configuration_is_malformed(tmp_path: Path) -> None:
    env = runtime(tmp_path, "apptainer", "apptainer version 1.4.5")
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind" / "config.toml").write_text("caps = [")
    env["XDG_CONFIG_HOME"] = str(tmp_path)
    assert gpubind("exec", "--host", HOST, "img.sif", "cmd", env=env, cwd=tmp_path).returncode == 125
    assert gpubind("plan", "--host", HOST, env=env, cwd=tmp_path).returncode == 5


@pytest.mark.parametrize("kind", ["pipe", "large"])
def test_an_environment_file_that_cannot_be_read_here_is_the_runtimes_alone(tmp_path: Path, kind: str) -> None:
    env = runtime(tmp_path, "apptainer", "apptainer version 1.4.5")
    file = tmp_path / "env"
    if kind == "pipe":
        os.mkfifo(file)  # to open it would wait for a writer
    else:
        file.write_text("A=1\n" + "#" * (1 << 20))
    words = (f"--backend-arg=--env-file={file}", "img.sif", "cmd")
    done = gpubind("exec", "-q", *a_driver(tmp_path), *words, env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (42, "")
    assert not any("LD_LIBRARY_PATH=" in word for word in done.stdout.splitlines())


def test_a_root_from_a_variable_does_not_count_for_a_recorded_host() -> None:
    assert gpubind("plan", "-q", "--host", HOST, env={"GPUBIND_ROOT": "/nonexistent"}).returncode == 0


def test_libdir_is_taken_without_doubled_and_trailing_slashes() -> None:
    document = json.loads(gpubind("plan", "--json", "--host", HOST, "--libdir", "//opt//gpu/").stdout)
    assert document["libdir"] == "/opt/gpu"


def test_a_file_that_is_written_anew_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    assert gpubind("plan", "--json", "--host", HOST, "-o", str(path)).returncode == 0
    assert path.stat().st_mode & 0o777 == 0o600


def test_help_that_cannot_be_written_is_no_bug() -> None:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "GPUBIND_MEMO": "off"}
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "gpubind", "plan", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environ)
    assert (done.returncode, done.stderr.startswith("error: unwritable-file: ")) == (4, True)


def test_a_dry_run_needs_no_runtime() -> None:
    done = gpubind(
        "exec", "-q", "--dry-run", "--host", HOST, "--backend", "apptainer", "img", "ls", env={"PATH": "/nowhere"}
    )
    assert (done.returncode, done.stdout.startswith("apptainer exec \\\n  --no-nv ")) == (0, True)


def test_an_image_is_never_taken_for_an_option(tmp_path: Path) -> None:
    env = runtime(tmp_path, "apptainer", "apptainer version 1.4.5")
    (tmp_path / "-x.sif").touch()
    done = gpubind("exec", "-q", *a_driver(tmp_path), "--", "-x.sif", "ls", env=env, cwd=tmp_path)
    assert "./-x.sif" in done.stdout.splitlines()


# Choosing GPUs.


def test_a_chosen_gpu_is_the_only_one_in_the_plan() -> None:
    done = gpubind("plan", "--host", HOST, "--json", env={"GPUBIND_GPUS": "minor:1"})
    document = json.loads(done.stdout)
    assert document["request"]["gpus"] == "minor:1"
    assert [gpu["chosen"] for gpu in document["gpus"]] == [False, True]
    assert [node["gpu"] for node in document["devices"] if node["gpu"] is not None] == [1]
    assert [d["target"] for d in document["devices"] if d["target"] == "/dev/nvidiactl"]


def test_the_environment_of_this_process_chooses_nothing_on_a_recorded_host() -> None:
    bare = gpubind("plan", "--host", HOST, "--json").stdout
    assert gpubind("plan", "--host", HOST, "--json", env={"CUDA_VISIBLE_DEVICES": "1"}).stdout == bare


@pytest.mark.parametrize("command", ["plan", "check", "explain"])
@pytest.mark.parametrize(("gpus", "code"), [("7", "unknown-gpu"), ("GPU-0", "ambiguous-gpu"), ("x", "bad-gpus")])
def test_a_gpu_that_cannot_be_chosen_is_wrong_use(command: str, gpus: str, code: str) -> None:
    name = ["libcuda.so.1"] if command == "explain" else []
    done = gpubind(command, *name, "--host", HOST, "--gpus", gpus)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {code}: ")


def test_what_is_said_of_gpus_is_looked_at_before_the_host(tmp_path: Path) -> None:
    done = gpubind("plan", "--root", str(tmp_path), "--gpus", ",")
    assert (done.returncode, done.stderr.split(": ")[1]) == (2, "bad-gpus")


def test_a_program_that_is_imitated_chooses_no_gpu() -> None:
    done = gpubind("plan", "--host", HOST, "--gpus", "0", "--like", "apptainer")
    assert (done.returncode, done.stderr.split(": ")[1]) == (2, "like-with-option")


@pytest.mark.parametrize(("name", "meant"), [("uvm-mising", "uvm-missing"), ("not-recordet", "not-recorded")])
def test_a_mistyped_code_is_a_mistake_and_the_code_is_told(name: str, meant: str) -> None:
    done = gpubind("explain", name, "--host", HOST)
    assert (done.returncode, done.stderr.startswith("error: unknown-code: ")) == (2, True)
    assert f"`{meant}`" in done.stderr


def test_explain_says_why_a_node_is_left_out() -> None:
    done = gpubind("explain", "/dev/nvidia0", "--host", HOST, "--gpus", "1")
    assert "left-out: not-chosen: belongs to GPU 0, which is not chosen (--gpus)" in done.stdout


def test_check_misses_nothing_where_no_gpu_is_to_be_had() -> None:
    done = gpubind("check", "--host", HOST, "--gpus", "none")
    assert "error" not in done.stdout.replace("0 errors", "").replace("no error", "")


@pytest.mark.parametrize(("gpus", "status"), [("0", 125), ("none", 0)])
def test_a_gpu_that_is_named_is_needed_for_a_start(tmp_path: Path, gpus: str, status: int) -> None:
    (tmp_path / "root").mkdir()
    make_tree(tmp_path / "image", glibc())
    arguments = ("--root", str(tmp_path / "root"), "--dev-root", str(tmp_path / "root"), "--gpus", gpus)
    done = gpubind("exec", "--backend", "bwrap", "--dry-run", *arguments, str(tmp_path / "image"), "/usr/bin/x")
    assert "nothing-to-bind" in done.stderr
    assert (done.returncode in (0, 127)) == (status == 0)
    assert status == 0 or done.returncode == status


@pytest.mark.parametrize("vendor", [(), ("--rocm",), ("--nv", "--rocm")], ids=["none", "rocm", "both"])
def test_a_host_of_amds_is_planned_with_and_without_its_name(vendor: tuple[str, ...]) -> None:
    done = gpubind("plan", *vendor, "--format", "tsv", "-q", "--host", "mi300x-rocm62")
    assert done.returncode == 0
    assert "\n# amd ROCm 6.2.4; " in done.stdout
    assert "; 8 GPUs; 17 device nodes; " in done.stdout


@pytest.mark.parametrize("format_", ["table", "json", "paths", "apptainer", "singularity-env"])
def test_amds_plan_has_every_format(format_: str) -> None:
    done = gpubind("plan", "--rocm", "-q", "--format", format_, "--host", "mi300x-rocm62")
    assert done.returncode == 0
    assert "libamdhip64" in done.stdout


def test_whose_rocm_can_be_said() -> None:
    done = gpubind("plan", "--rocm", "--userspace", "image", "--json", "--host", "mi300x-rocm62")
    assert json.loads(done.stdout)["request"]["userspace"] == "image"
    assert done.stderr == ""
    assert "libamdhip64.so.6" not in {mount["soname"] for mount in json.loads(done.stdout)["mounts"]}


@pytest.mark.parametrize(
    ("backend", "image", "word"),
    [
        ("podman", "podman:debian:12", "debian:12"),
        ("docker", "docker:registry.example.org/a", "registry.example.org/a"),
        ("docker", "docker:dind", "dind"),
        ("docker", "docker:docker:dind", "docker:dind"),
        ("podman", "podman:docker:dind", "docker:dind"),
    ],
)
def test_a_name_may_name_the_store_of_the_backend(backend: str, image: str, word: str) -> None:
    line = gpubind("exec", "--backend", backend, "--host", HOST, "--dry-run", image, "true").stdout
    assert f" {word} true\n" in line
    assert f" {backend}:{word}" not in line


def test_a_store_is_one_in_settings_and_in_the_library_as_well() -> None:
    done = gpubind("exec", "--host", HOST, "--dry-run", "docker:bb", "true", env={"GPUBIND_BACKEND": "podman"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: other-store: the image is in docker's store")
    checked = gpubind("check", "--host", HOST, "--image", "docker:bb", env={"GPUBIND_BACKEND": "podman"})
    assert (checked.returncode, checked.stderr.partition("\n")[0]) == (2, done.stderr.partition("\n")[0])
    start = facade.start("podman:bb", ["true"], backend="podman", host=facade.open_host(HOST), dry_run=True)
    assert start.argv[-2:] == ("bb", "true")


def test_the_driver_of_the_hosts_own_root_is_no_driver_in_an_image(tmp_path: Path) -> None:
    spec = {**glibc(), **rhel(), "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.1"}
    root, copied = (str(make_tree(tmp_path / name, spec).root) for name in ("root", "copied"))
    for image, is_told in ((root, False), (f"{root}/.", False), (copied, True)):
        done = gpubind("check", "--json", "--nv", "--root", root, "--dev-root", root, "--image", image)
        codes = [one["code"] for one in json.loads(done.stdout)["findings"]]
        assert ("driver-in-image" in codes) == is_told, image
