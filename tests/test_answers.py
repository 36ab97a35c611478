"""Three answers about a file: not there, forbidden, and that nobody could look."""

from __future__ import annotations

import errno
import json
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Optional

import pytest

from gpubind import check, plan
from gpubind.errors import BoundError, HostReadError, UnseenError
from gpubind.files.ldconfig import CONFIGURED_LIMIT, INCLUDES_LIMIT, read_ldsoconf
from gpubind.host.base import unreadable_path_findings
from gpubind.machine import answers, system
from gpubind.machine.answers import inspection_error, is_optional, missing_from, retry_transient
from gpubind.machine.budget import current, one_command, renew, report_progress, report_progress_to, spend
from gpubind.machine.regular import read_beginning, read_if_there, read_regular
from gpubind.memo.recorder import Recorder
from gpubind.model import Request
from gpubind.model.files import ABSENT, ANSWERS, LOOP
from tests.law.errors import with_shim
from tests.support.driver import V, host, kernel, rhel
from tests.support.forked import run_forked
from tests.support.images import glibc, sandbox
from tests.support.trees import FORBIDDEN, Hidden, Node, make_tree, recorded_host
from tests.support.trees import Unread as UnreadFile

PROGRAM = """
import ctypes, os, sys
from gpubind.__main__ import main
at, what, paths = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
shim = ctypes.CDLL(None)
shim.law_paths(b"/\\n", f"{paths}\\n".encode())
shim.law_arm(at, what)
sys.exit(main(sys.argv[4:]))
"""
"""gpubind with one call that fails, or each, of those on files below a path."""


def failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host, an image, and a program called as a runtime."""
    base = tmp_path_factory.mktemp("machine")
    spec = {**rhel(V), **kernel(V)}
    make_tree(base / "host", {path: item for path, item in spec.items() if not isinstance(item, Node)})
    make_tree(base / "image", {**glibc(), **sandbox()})
    (base / "bin").mkdir()
    for name in ("apptainer", "bwrap"):
        (base / "bin" / name).write_text("#!/bin/sh\necho apptainer version 1.4.5\n")
        (base / "bin" / name).chmod(0o755)
    return base


def run(
    base: Path, line: str, *, hurt: str = "", call: int = -1, number: int = errno.EIO, files: int = 1024
) -> subprocess.CompletedProcess[str]:
    """gpubind with *line*; *call* (-1: each) on a file below *hurt* fails with *number*."""
    words = [word.format(base=base) for word in shlex.split(line)]
    environ = {"PATH": f"{base}/bin:/usr/bin:/bin", "HOME": str(base), "GPUBIND_MEMO": "off"}
    if not hurt and files == 1024:
        return run_forked(words, environ)
    command = [sys.executable, "-m", "gpubind", *words]
    if hurt:
        command = with_shim([sys.executable, "-c", PROGRAM, f"{call}", f"{number}", hurt, *words], str(base))

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    return subprocess.run(command, capture_output=True, text=True, env=environ, preexec_fn=few, check=False)


ROOT = "--root {base}/host --dev-root {base}/host"


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG])
def test_what_is_not_there_is_absent(number: int) -> None:
    assert missing_from(failed(number)) == ABSENT


def test_loops_and_what_is_forbidden_are_answers_too() -> None:
    assert missing_from(failed(errno.ELOOP)) == LOOP
    assert [missing_from(failed(number)) for number in (errno.EACCES, errno.EPERM)] == [FORBIDDEN, FORBIDDEN]
    assert missing_from(ValueError("embedded null byte")) == ABSENT


@pytest.mark.parametrize("number", sorted({*errno.errorcode} - {*ANSWERS}))
def test_any_other_error_means_that_nobody_could_look(number: int) -> None:
    assert missing_from(failed(number)) is None
    assert isinstance(inspection_error("/a", failed(number)), UnseenError)


def test_a_file_that_a_user_names_and_that_is_not_there_is_no_question_of_looking() -> None:
    error = inspection_error("/a", failed(errno.ENOENT))
    assert (type(error), error.code, error.why) == (HostReadError, "unreadable-file", "No such file or directory")


def test_a_passing_error_is_tried_once_more_and_no_other() -> None:
    for number in range(1, 134):
        left = iter([failed(number), failed(number)])

        def ask(left: Iterator[OSError] = left) -> None:
            error = next(left, None)
            if error is not None:
                raise error

        with pytest.raises(OSError, match=os.strerror(number)):
            retry_transient(ask)
        assert len([*left]) == (0 if number in answers.PASSING else 1)


def test_a_plan_can_do_without_an_attribute_that_the_kernel_does_not_tell_and_without_no_other_file() -> None:
    assert is_optional("/sys/class/drm/card0/device/vendor", failed(errno.EIO))
    assert not is_optional("/usr/lib64/libcuda.so.1", failed(errno.EIO))
    assert not is_optional("/sys/class/drm/card0/device/vendor", failed(errno.EMFILE))


def test_an_attribute_that_could_not_be_read_is_a_warning_of_plan_and_check_once() -> None:
    host = recorded_host({**rhel(V), **kernel(V), "/proc/driver/nvidia/params": UnreadFile()})
    made = plan(host, Request())
    found = [one for one in check(host, made) if one.code == "not-looked-at"]
    assert [(one.severity, one.subject, one.why) for one in found] == [
        ("warning", "/proc/driver/nvidia/params", "Input/output error")
    ]


def test_a_configuration_of_the_loader_that_is_not_followed_to_its_end_is_told(tmp_path: Path) -> None:
    many = "".join(f"/d{number}\n" for number in range(CONFIGURED_LIMIT + 1))
    includes = "".join(f"include /etc/{number}.conf\n" for number in range(INCLUDES_LIMIT + 1))
    for name, text in (("all", many[: many.rindex("/d")]), ("many", many), ("includes", includes)):
        tree = make_tree(tmp_path / name, {"/etc/ld.so.conf": text})
        read_ldsoconf(tree)
        assert len(tree.unseen) == (name != "all"), name
    wide = {f"/{one}/{two}/x": b"" for one in range(65) for two in range(64)}
    tree = make_tree(tmp_path / "wide", {**wide, "/etc/ld.so.conf": "include /*/*/*/*\n"})
    read_ldsoconf(tree)
    assert [*tree.unseen] == ["/etc/ld.so.conf: /*/*/*/*"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOMEM])
def test_a_directory_that_nobody_could_look_at_ends_a_plan_with_4_and_its_path(machine: Path, number: int) -> None:
    done = run(machine, f"plan {ROOT} --json", hurt=f"{machine}/host/usr", call=1, number=number)
    if number == errno.ESTALE:
        assert (done.returncode, done.stderr) == (0, "")  # it has passed at the second try
        return
    assert done.returncode == 4
    assert done.stderr.startswith("error: unreadable-file: ")
    assert f"where: {machine}/host/usr\n  why:   {os.strerror(number)}\n" in done.stderr
    assert json.loads(done.stdout)["schema"] == "gpubind.error/1"


def test_with_too_few_open_files_a_plan_is_the_same_or_an_error(machine: Path) -> None:
    right = run(machine, f"plan {ROOT} --image {{base}}/image --json")
    assert right.returncode == 0
    seen = set()
    for files in range(8, 44, 7):
        done = run(machine, f"plan {ROOT} --image {{base}}/image --json", files=files)
        seen.add(done.returncode)
        if done.returncode == 0:
            assert (done.stdout, done.stderr) == (right.stdout, right.stderr), files
        else:
            assert (done.returncode, "Traceback" in done.stderr) == (4, False), (files, done.stderr)
            assert "Too many open files" in done.stderr
    assert seen == {0, 4}


def test_exec_starts_with_the_runtimes_own_flag_where_nobody_could_look_and_says_so(machine: Path) -> None:
    line = f"exec {ROOT} --dry-run --backend apptainer {{base}}/image true"
    done = run(machine, line, hurt=f"{machine}/host/usr")
    assert done.returncode == 0
    assert shlex.split(done.stdout.replace("\\\n", "")) == ["apptainer", "exec", "--nv", f"{machine}/image", "true"]
    assert done.stderr.startswith("warning: not-looked-at: ")
    assert "Input/output error" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("more", ["--require-gpu", "--check", "--gpus 0", "--backend bwrap"])
def test_exec_is_125_where_nobody_could_look_and_the_flag_would_not_do(machine: Path, more: str) -> None:
    backend = "" if "backend" in more else "--backend apptainer"
    done = run(machine, f"exec {ROOT} --dry-run {backend} {more} {{base}}/image true", hurt=f"{machine}/host/usr")
    assert (done.returncode, done.stdout) == (125, "")
    assert "Input/output error" in done.stderr


def test_wrap_starts_the_users_line_as_it_is_where_nobody_could_look(machine: Path) -> None:
    line = "apptainer exec --nv --bind /scratch image true"
    done = run(machine, f"wrap {ROOT} --dry-run -- {line}", hurt=f"{machine}/host/usr")
    assert (done.returncode, done.stdout) == (0, f"{line}\n")
    assert done.stderr.startswith("warning: not-looked-at: ")


def test_a_live_host_tells_of_nothing_that_it_could_look_at(machine: Path) -> None:
    from gpubind.host.live import LiveHost

    host = LiveHost(str(machine / "host"), str(machine / "host"))
    plan(host, Request())
    assert [*unreadable_path_findings(host)] == []


def test_a_path_to_nothing_says_why(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert answers.why_no_facts(str(tmp_path / "gone")) == "it does not exist"
    assert answers.why_no_facts(str(tmp_path / "loop")) == os.strerror(errno.ELOOP)
    assert answers.why_no_facts(str(tmp_path)) == ""


def test_a_directory_of_devices_that_is_forbidden_is_a_warning_and_not_a_host_without_devices() -> None:
    module = {"/sys/module/nvidia/version": f"{V}\n"}
    made = plan(host(rhel(), module, {"/dev": Hidden(directory=True)}), Request())
    (finding,) = [one for one in made.findings if one.code == "not-looked-at"]
    assert (finding.severity, finding.subject, finding.why) == ("warning", "/dev", "permission denied")


def test_an_error_about_a_file_has_the_kernels_words() -> None:
    absent = inspection_error("/x", failed(errno.ENOENT))
    assert (type(absent), absent.code, absent.what, absent.where, absent.why, absent.hint) == (
        *(HostReadError, "unreadable-file", "a file cannot be read", "/x", "No such file or directory", ""),
    )
    unseen = inspection_error("/x", failed(errno.EIO), "what", "hint")
    assert (type(unseen), unseen.what, unseen.why, unseen.hint) == (UnseenError, "what", "Input/output error", "hint")
    assert answers.reason(ValueError("embedded null byte")) == "embedded null byte"
    assert answers.reason(OSError(errno.EIO, "")) == "[Errno 5] "
    reasons = [answers.why_unusable(error) for error in (failed(errno.ENOTDIR), ValueError("x"), failed(errno.EACCES))]
    assert reasons == ["it does not exist", "it does not exist", "Permission denied"]
    assert (answers.changed().errno, answers.changed().strerror) == (errno.ESTALE, "it was changed while it was read")
    with recording() as recorder:
        inspection_error("/x", failed(errno.EACCES))
        assert recorder.refused is None
        inspection_error("/x", failed(errno.EIO))
        assert recorder.refused == "nobody could look at /x"


@contextmanager
def recording() -> Iterator[Recorder]:
    with Recorder(lambda status: None) as recorder:
        yield recorder


def test_an_empty_path_is_not_this_directory_and_a_refused_access_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        answers.real_path("")
    assert caught.value.errno == errno.ENOENT
    for exists, expected in ((True, 2), (False, 1)):
        asked: list[str] = []
        path = str(tmp_path if exists else tmp_path / "none")
        monkeypatch.setattr(os, "access", lambda path, mode, asked=asked, **more: bool(asked.append(path)))
        assert not answers.has_access(path, os.R_OK)
        assert len(asked) == expected


def test_the_kinds_of_a_path_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("none")
    paths = [str(tmp_path / name) for name in ("", "file", "link", "none", "file/x")]
    assert [answers.exists(path) for path in paths] == [True, True, False, False, False]
    assert [answers.lexists(path) for path in paths] == [True, True, True, False, False]
    assert [answers.is_file(path) for path in paths] == [False, True, False, False, False]
    assert [answers.is_directory(path) for path in paths] == [True, False, False, False, False]
    assert [answers.why_no_facts(path) for path in paths] == ["", "", *["it does not exist"] * 3]


def test_bytes_are_read_up_to_a_size_and_a_file_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    with system.open_file(f"{tmp_path}/file") as file:
        assert [answers.read_up_to(size, file) for size in (0, 4, 99, 5)] == [b"", b"0123", b"456789", b""]
    assert (read_regular(f"{tmp_path}/file", 10), read_beginning(f"{tmp_path}/file", 3)) == (b"0123456789", b"012")
    with pytest.raises(OSError) as caught:
        read_regular(f"{tmp_path}/file", 9)
    assert (caught.value.errno, caught.value.strerror) == (errno.EFBIG, "larger than 9 bytes")
    os.mkfifo(tmp_path / "fifo")
    for name, number, why in (("fifo", errno.EINVAL, "it is not a regular file"), ("", errno.EISDIR, "Is a directory")):
        with pytest.raises(OSError) as caught:
            read_beginning(str(tmp_path / name), 1)
        assert (caught.value.errno, caught.value.strerror) == (number, why)
    assert (read_if_there(f"{tmp_path}/none", 9), read_if_there(f"{tmp_path}/file", 10)) == (None, b"0123456789")


def test_what_a_command_may_not_spend_is_an_error_that_names_the_bound() -> None:
    spend("entries", 10**9)  # outside of a command nothing is bounded
    for times in (1, 3):
        with one_command(times):
            with one_command(9):  # that of the command stays
                spend("entries", 100_000 * times)
            with pytest.raises(BoundError) as caught:
                spend("entries")
            error = caught.value
            assert (error.code, error.where) == ("over-bounds", "bound `entries`")
            assert error.what == "the image or the host costs more to look at than any that is known"
            grown = f" (and {4 * times} for each KiB of the image)"
            assert error.why == f"more than {100_000 * times} files are listed in layers{grown}"
            hint = f"if it is right all the same: `GPUBIND_BOUNDS={10 * times}` gives a command ten times as much"
            assert error.hint == hint
            budget = current()
            assert budget is not None
            for _ in range(2):
                budget.grant("a file", 2048)
            assert (budget.left("entries"), budget.left("lookups")) == (8 * times, 200_000 * times)
            assert not budget.take("entries", 8 * times + 1)
            assert budget.take("entries", 8 * times)
            renew(2)
            assert current() is not budget
            spend("lookups", 200_000 * max(times, 2))
            with pytest.raises(BoundError) as caught:
                spend("lookups")
            assert caught.value.why == f"more than {200_000 * max(times, 2)} paths are looked up"
    assert current() is None
    renew(2)
    assert current() is None


def test_progress_is_told_to_who_watches() -> None:
    told: list[tuple[str, int, Optional[int]]] = []
    report_progress("a", 1, 2)
    with report_progress_to(lambda *report: told.append(report)):
        report_progress("a", 1, 2)
        report_progress("")
    report_progress("b")
    assert told == [("a", 1, 2), ("", 0, None)]
