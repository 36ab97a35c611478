"""LiveHost: roots, list files, helper programs; and records in files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import pytest
from build.trees import Dir, File, Item, Link, make_tree, record

import gpubind
from gpubind.data import HOSTS
from gpubind.errors import FormatError, GpubindError, HostReadError, UsageError
from gpubind.formats.record import RecordedList, RecordedRun, dump_record
from gpubind.host import LiveHost, RunResult
from gpubind.host.live import LIST_LIMIT, OUTPUT_LIMIT, PROGRAM_DIRECTORIES, writable_by_others
from gpubind.host.open import FILE_LIMIT, open_host, read_file, read_listfile
from gpubind.host.recorded import RecordedHost
from gpubind.model import HostPath, Missing

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(gpubind.__file__)))

# Roots.


def test_without_a_dev_root_devices_are_looked_for_in_the_root_if_it_has_nvidiactl(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/dev/nvidiactl": b""})
    host = LiveHost(str(tmp_path))
    assert host.dev is host.driver


def test_without_a_dev_root_devices_are_looked_for_in_the_machines_own_root(tmp_path: Path) -> None:
    host = LiveHost(str(tmp_path))
    assert (host.driver.root, host.dev.root) == (str(tmp_path), "/")


@pytest.mark.parametrize("name", ["r", "r/", "link", "r/../r"])
def test_one_directory_named_twice_is_one_tree(tmp_path: Path, name: str) -> None:
    make_tree(tmp_path, {"/r": Dir(), "/link": Link("r")})
    host = LiveHost(f"{tmp_path}/r", f"{tmp_path}/{name}")
    assert host.dev is host.driver


@pytest.mark.parametrize(("root", "dev_root"), [("none", None), (".", "none")])
def test_a_root_that_is_not_there_is_refused(tmp_path: Path, root: str, dev_root: Optional[str]) -> None:
    with pytest.raises(HostReadError) as caught:
        LiveHost(f"{tmp_path}/{root}", dev_root and f"{tmp_path}/{dev_root}")
    assert caught.value.code == "no-root"
    assert caught.value.exit_code == 4


def test_the_process_is_told_in_numbers_and_the_machine_without_its_name() -> None:
    host = LiveHost("/", "/")
    assert host.identity.euid == os.geteuid()
    assert host.identity.groups == tuple(sorted({os.getegid(), *os.getgroups()}))
    assert host.uname == (os.uname().release, os.uname().machine)


# List files. Each of these asks a fresh interpreter, with an environment of its own.


def ask(code: str, environ: Mapping[str, str]) -> Any:
    """What *code* printed as JSON."""
    whole = {"PATH": "/usr/bin:/bin", "PYTHONPATH": CHECKOUT, **environ}
    done = subprocess.run([sys.executable, "-c", code], env=whole, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def environ_variables(environ: Mapping[str, str]) -> Any:
    return ask("import json; from gpubind.host import LiveHost; print(json.dumps(LiveHost('/', '/').environ))", environ)


def places(environ: Mapping[str, str]) -> list[list[str]]:
    found = ask(
        "import json; from gpubind.host.live import list_file_places; print(json.dumps(list_file_places('x.conf')))",
        environ,
    )
    assert isinstance(found, list)
    return found


def liblist(environ: Mapping[str, str]) -> Any:
    code = (
        "import json; from gpubind.host import LiveHost; from gpubind.errors import GpubindError\n"
        "try: found = list(LiveHost('/', '/').liblist('nvliblist.conf')); found[1] = len(found[1])\n"
        "except GpubindError as error: found = [error.code, error.where, error.why, error.exit_code]\n"
        "print(json.dumps(found))"
    )
    return ask(code, environ)


SITE = ["/etc/gpubind/x.conf", "/etc/gpubind/x.conf"]


@pytest.mark.parametrize(
    ("environ", "user"),
    [
        pytest.param({"HOME": "/h"}, "/h/.config/gpubind/x.conf", id="home"),
        pytest.param({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}, "/c/gpubind/x.conf", id="xdg-before-home"),
        pytest.param({"XDG_CONFIG_HOME": "/c"}, "/c/gpubind/x.conf", id="xdg-alone"),
        pytest.param({"HOME": "/h", "XDG_CONFIG_HOME": ""}, "/h/.config/gpubind/x.conf", id="xdg-empty"),
        pytest.param({"HOME": "/h", "XDG_CONFIG_HOME": "c"}, "/h/.config/gpubind/x.conf", id="xdg-relative"),
        pytest.param({}, None, id="neither"),
        pytest.param({"HOME": ""}, None, id="home-empty"),
        pytest.param({"HOME": "h"}, None, id="home-relative"),
        pytest.param({"HOME": "h", "XDG_CONFIG_HOME": "./c"}, None, id="both-relative"),
    ],
)
def test_the_users_list_comes_before_the_sites(environ: dict[str, str], user: Optional[str]) -> None:
    assert places(environ) == ([[user, "$XDG_CONFIG_HOME/gpubind/x.conf"]] if user else []) + [SITE]


def test_a_users_list_is_the_law_and_its_label_names_nobody(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/gpubind/nvliblist.conf": "libcuda.so\n"})
    assert liblist({"XDG_CONFIG_HOME": str(tmp_path)}) == ["$XDG_CONFIG_HOME/gpubind/nvliblist.conf", 11, False]


@pytest.mark.parametrize("spec", [{}, {"/gpubind": b"a file"}], ids=["no-directory", "a-file-in-its-place"])
def test_without_a_users_list_the_next_one_counts(tmp_path: Path, spec: dict[str, Item]) -> None:
    make_tree(tmp_path, spec)
    label, size, shipped = liblist({"XDG_CONFIG_HOME": str(tmp_path)})
    assert label in ("etc/nvliblist.conf", "/etc/gpubind/nvliblist.conf")  # a machine may have a site's list
    assert shipped is (label == "etc/nvliblist.conf")
    assert size > 0


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (Dir(), "Is a directory"),
        (Link("nvliblist.conf"), "Too many levels of symbolic links"),
        (File(b"x" * (LIST_LIMIT + 1)), f"larger than {LIST_LIMIT} bytes"),
    ],
    ids=["directory", "loop", "too-large"],
)
def test_a_list_that_cannot_be_read_is_an_error_and_not_passed_over(tmp_path: Path, item: Item, why: str) -> None:
    make_tree(tmp_path, {"/gpubind/nvliblist.conf": item})
    path = f"{tmp_path}/gpubind/nvliblist.conf"
    assert liblist({"XDG_CONFIG_HOME": str(tmp_path)}) == ["unreadable-file", path, why, 4]


def test_only_variables_that_a_plan_reads_are_kept() -> None:
    kept = environ_variables({"CUDA_MPS_PIPE_DIRECTORY": "/mps", "HOME": "/h", "SECRET": "x"})
    assert kept == {"CUDA_MPS_PIPE_DIRECTORY": "/mps", "PATH": "/usr/bin:/bin"}


# Helper programs: those that every Linux has stand for nvidia-container-cli.


def run(*argv: str, timeout_s: float = 20) -> RunResult:
    answer = LiveHost("/", "/").run(argv, timeout_s)
    assert isinstance(answer, RunResult), answer
    return answer


def test_a_program_answers_with_its_status_and_both_outputs() -> None:
    answer = run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert answer == RunResult(3, "out\n", "err\n")


def test_a_program_sees_no_environment_but_a_path_and_the_c_locale() -> None:
    assert set(run("env").stdout.split()) == {f"PATH={':'.join(PROGRAM_DIRECTORIES)}", "LC_ALL=C"}


def test_a_program_reads_nothing() -> None:
    assert run("cat") == RunResult(0, "", "")


def test_output_that_is_not_utf8_comes_as_surrogate_escapes() -> None:
    assert run("printf", r"a\377").stdout == "a\udcff"


def test_a_program_that_prints_without_end_is_ended() -> None:
    answer = LiveHost("/", "/").run(("sh", "-c", "cat /dev/zero"), 30)
    assert answer == Missing("unreadable", f"`sh` prints more than {OUTPUT_LIMIT} bytes")


def test_a_program_that_is_ended_takes_what_it_has_started_with_it(tmp_path: Path) -> None:
    script = f"sleep 300 & echo $! > {tmp_path}/pid; wait"
    LiveHost("/", "/").run(("sh", "-c", script), 0.5)
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    deadline = time.monotonic() + 5  # a signal reaches all at once, but each dies in its own time
    while not (ended := _has_ended(stat)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ended


def _has_ended(stat: Path) -> bool:
    """Whether the process is gone, or only waits for init to notice."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_program_that_does_not_answer_in_time_is_ended() -> None:
    started = time.monotonic()
    answer = LiveHost("/", "/").run(("sleep", "30"), 0.2)
    assert answer == Missing("unreadable", "`sleep` did not answer within 0.2 s")
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("name", ["gpubind-no-such-program", "../../../../bin/none"])
def test_a_program_that_is_in_no_standard_directory_is_absent(name: str) -> None:
    answer = LiveHost("/", "/").run((name,), 5)
    assert isinstance(answer, Missing)
    assert answer.why == "absent"
    assert name in answer.detail


@pytest.mark.parametrize(
    ("modes", "offender"),
    [
        pytest.param((0o755, 0o755), None, id="nobody-else"),
        pytest.param((0o755, 0o777), "d/program", id="world-writable"),
        pytest.param((0o755, 0o775), "d/program", id="group-writable"),
        pytest.param((0o777, 0o755), "d", id="world-writable-directory"),
        pytest.param((0o775, 0o755), "d", id="group-writable-directory"),
        pytest.param((0o1777, 0o755), None, id="sticky-directory"),
        pytest.param((0o1777, 0o1777), "d/program", id="a-sticky-program-is-no-directory"),
    ],
)
def test_root_runs_only_what_root_alone_can_change(
    tmp_path: Path, modes: tuple[int, int], offender: Optional[str]
) -> None:
    make_tree(tmp_path, {"/d": Dir(modes[0]), "/d/program": File(b"", modes[1])})
    program = f"{tmp_path}/d/program"
    found = writable_by_others(program)
    if os.geteuid() != 0:
        assert found == program  # it belongs to whoever runs the tests
    elif offender:
        assert found == f"{tmp_path}/{offender}"
    else:
        assert found is None or not found.startswith(f"{tmp_path}/")


def test_root_runs_nothing_that_belongs_to_another_user(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/program": File(b"", 0o755)})
    if os.geteuid() == 0:
        os.chown(tmp_path / "program", 65534, 0)
    assert writable_by_others(f"{tmp_path}/program") == f"{tmp_path}/program"


def test_the_machines_own_programs_can_be_changed_by_root_alone() -> None:
    assert writable_by_others(os.path.realpath("/usr/bin/env")) is None


# Hosts by name, and files that the user names.


def refusal(*args: Any) -> GpubindError:
    with pytest.raises(GpubindError) as caught:
        open_host(*args)
    return caught.value


def test_a_record_in_a_file_is_a_host(tmp_path: Path) -> None:
    lists = (RecordedList("nvliblist.conf", "/etc/gpubind/nvliblist.conf", "lib\udcff.so\n"),)
    runs = (RecordedRun(("nvidia-container-cli", "list"), 0, "out", "err"),)
    made = record({"/a": b"x"}, {"/b": b"y"}, environ={"PATH": "/p"}, lists=lists, runs=runs, root="/r")
    (tmp_path / "node.json").write_text(dump_record(made, "1"))
    host = open_host(f"{tmp_path}/node.json")
    assert (host.label, host.driver.root, host.dev.root, host.environ) == ("node.json", "/r", "/", {"PATH": "/p"})
    assert (host.driver.read("/a"), host.dev.read("/b")) == (b"x", b"y")
    assert host.liblist("nvliblist.conf") == ("/etc/gpubind/nvliblist.conf", b"lib\xff.so\n", False)
    assert host.run(("nvidia-container-cli", "list"), 1) == RunResult(0, "out", "err")


def test_a_recorded_host_falls_back_to_the_shipped_list_and_runs_nothing() -> None:
    host = RecordedHost(record({}), "test")
    assert host.liblist("nvliblist.conf").shipped
    answer = host.run(("env",), 1)
    assert isinstance(answer, Missing)
    assert answer.why == "absent"
    assert host.dev is host.driver


@pytest.mark.parametrize("name", HOSTS)
def test_every_shipped_host_opens_by_name(name: str) -> None:
    host = open_host(name)
    assert host.label == name
    assert host.uname.machine


def test_a_name_that_is_neither_a_file_nor_shipped_says_what_ships() -> None:
    error = refusal("no-such-host")
    assert isinstance(error, UsageError)
    assert error.code == "unknown-host"
    assert HOSTS[0] in error.hint


@pytest.mark.parametrize(("root", "dev_root"), [("/", None), (None, "/")])
def test_a_record_has_roots_of_its_own(root: Optional[str], dev_root: Optional[str]) -> None:
    error = refusal(HOSTS[0], root, dev_root)
    assert (error.code, error.exit_code) == ("host-with-root", 2)


def test_a_malformed_record_is_an_error_that_names_the_file_and_the_key(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"schema": 1}')
    error = refusal(f"{tmp_path}/x.json")
    assert isinstance(error, FormatError)
    assert (error.where, error.exit_code) == (f"{tmp_path}/x.json: schema", 5)


@pytest.mark.parametrize(
    ("item", "why"), [(None, "No such file or directory"), (Dir(), "Is a directory")], ids=["absent", "directory"]
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, item: Optional[Item], why: str) -> None:
    make_tree(tmp_path, {"/x": item} if item else {})
    error = refusal(f"{tmp_path}/x")
    assert (error.code, error.where, error.why, error.exit_code) == ("unreadable-file", f"{tmp_path}/x", why, 4)


def test_a_file_over_the_limit_is_an_error_and_one_at_the_limit_is_not(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * FILE_LIMIT)
    assert read_listfile(f"{tmp_path}/x") == (f"{tmp_path}/x", b"x" * FILE_LIMIT, False)
    with pytest.raises(HostReadError) as caught:
        read_file(f"{tmp_path}/x", FILE_LIMIT - 1)
    assert caught.value.why == f"larger than {FILE_LIMIT - 1} bytes"


def test_a_path_with_a_nul_byte_is_an_error() -> None:
    with pytest.raises(HostReadError) as caught:
        read_file("/a\0b", 10)
    assert caught.value.code == "unreadable-file"


def test_the_kernel_is_asked_whether_a_node_may_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    host = LiveHost("/", "/")
    assert host.may_open(HostPath("/dev/null"))
    assert not host.may_open(HostPath("/dev/no-such-node"))
    monkeypatch.setattr("os.access", lambda path, mode, **_: False)  # as with a device cgroup, whatever the mode
    assert not host.may_open(HostPath("/dev/null"))
