"""What a line of a log means."""

from __future__ import annotations

import io
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Optional

import pytest

from gpubind.api import explain as api_explain
from gpubind.cli.commands import command_of
from gpubind.cli.reader import read_line
from gpubind.explanation import messages as module
from gpubind.explanation.codes import find_in_pages
from gpubind.explanation.messages import (
    FoundMessage,
    Message,
    example,
    find_message,
    folded,
    heading,
    messages,
    nearest_messages,
    phrases,
    search,
)
from gpubind.formats.driver.names import driver_libraries
from gpubind.model.data import table
from gpubind.model.findings import finding_texts
from tests.support.commands import BARE, HOST, gpubind
from tests.support.forked import run_forked
from tests.support.golden import DOCS, assert_golden, assert_none
from tests.support.measure import is_less_work

LINES = [tuple(line.split("\t")) for line in (Path(__file__).parent / "lines.tsv").read_text().splitlines()]
"""Lines of public logs: the message that each has, the line, and where it is, if that is known."""
SEEN = [(row.name, line) for row in messages() for _, line, _ in row.seen]


def name_of(seen: str) -> str:
    found = find_message(seen)
    return found[0].message.name if found else "-"


def codes_of(seen: str) -> tuple[str, ...]:
    found = find_message(seen)
    return found[0].message.codes if found else find_in_pages(seen)


def messages_page() -> str:
    """docs/messages.md, of the rows of data/messages.json."""
    lines = [
        "# I saw this message",
        "",
        "Messages of programs that cannot use a GPU or a library, with their meaning and remedy. "
        "`gpubind explain` finds the same in a line or in a whole log, with any text around it:",
        "",
        '    gpubind explain "version GLIBC_2.34 not found"',
        "    gpubind explain CUDA_ERROR_NO_DEVICE",
        "    gpubind explain job.log",
        "",
        "`gpubind check` reports most of it before the job starts; the findings named here predict the message. "
        "Versions, numbers and libraries are examples.",
    ]
    for group in dict.fromkeys(row.group for row in messages()):
        lines += ["", f"## {group}"]
        for row in messages():
            if row.group == group:
                lines += _section(row)
    return "\n".join([*lines, *_tables()]) + "\n"


def _tables() -> list[str]:
    """The part of the page about the codes that no message is about."""
    families = [
        f"| {family['title']} | {len(family['codes'])} | {family['header']} of {family['package']} |"
        for family in table("codes")["families"]
    ]
    return [
        "",
        '## <a id="codes"></a>Codes',
        "",
        "`gpubind explain` knows every code of these families, by its name and by its number, for example "
        "`gpubind explain 'CUDA error 717'`. Where a message above is about a code, that message is the answer. "
        "A code that says that a call was successful or is not done yet is never called a failure.",
        "",
        "| family | codes | source of names and numbers |",
        "| --- | --- | --- |",
        *families,
    ]


def _section(row: Message) -> list[str]:
    """The part of the page about *row*: a line that has the heading in it is not repeated."""
    head = folded(row.message.encode())
    others = [line for line in dict.fromkeys(line for _, line, _ in row.seen) if head not in folded(line.encode())]
    about = ", ".join(f"[{code}](findings.md#{code})" for code in row.codes)
    sources = dict.fromkeys(source for _, _, source in row.seen)
    seen = " ".join(f"[{number}]({source})" for number, source in enumerate(sources, 1))
    end = " ".join([*([f"Findings: {about}."] if about else []), *([f"Seen: {seen}"] if seen else [])])
    return [
        "",
        f'### <a id="{row.name}"></a>{row.message}',
        "",
        *(f"    {line}" for line in others),
        *([""] if others else []),
        f"{row.means} {row.do}",
        *(["", end] if end else []),
    ]


def test_the_page_of_messages_is_what_the_data_gives() -> None:
    assert_golden(DOCS / "messages.md", messages_page())


@pytest.mark.parametrize("row", messages(), ids=lambda row: row.name)
def test_a_message_is_found_by_its_own_lines_names_findings_and_a_command(row: Message) -> None:
    assert [name_of(line) for line in (row.message, *(line for _, line, _ in row.seen))] == [row.name] * (
        1 + len(row.seen)
    )
    assert set(row.codes) <= set(finding_texts())
    assert list(row.codes) == sorted(row.codes)
    assert re.search(r"`[^`]+`", row.do)
    assert all(program and source.startswith("https://") for program, _, source in row.seen)


@pytest.mark.parametrize(
    "line",
    sorted({line for row in messages() for line in re.findall(r"`gpubind ([^`]*[A-Za-z0-9.])`", row.means + row.do)}),
)
def test_the_commands_that_a_message_names_are_read(line: str) -> None:
    name, *words = line.split()
    complete = [*words, "IMAGE", "CMD"] if name == "exec" and "IMAGE" not in words else words
    assert read_line(command_of(name), complete, {}).error is None


@pytest.mark.parametrize("quoted", [*(row.message for row in messages()), "-bash: nvidia-smi: command not found"])
def test_a_message_in_quotes_is_no_option_of_explain(quoted: str) -> None:
    line = read_line(command_of("explain"), [quoted, "--json"], {})
    assert (line.values["asked"], line.values["json"]) == ([quoted], True)


def test_the_lines_are_many_and_each_stands_once() -> None:
    assert len({line for _, line in SEEN}) >= 250
    assert max(Counter(row.name for row in messages()).values()) == 1


def test_lines_of_public_logs_are_answered_right() -> None:
    wrong = [(name, name_of(line), line) for name, line, _ in LINES if name_of(line) != name]
    assert_none(
        f"{line!r} is taken for `{got}`, and tests/explanation/lines.tsv has `{wanted}`: correct the phrases of one "
        "of the two in gpubind/model/data/messages.json"
        for wanted, got, line in wrong
        if got != "-"
    )
    assert len(wrong) * 10 <= len(LINES), wrong


PREFIXES = (
    "2026-11-23T12:44:16.123456Z ",
    "[rank0]: ",
    "[1,3]<stderr>:",
    "\x1b[31mERROR\x1b[0m ",
    "\\u001b[1;33m",
    "web_1  | ",
    "Nov 23 12:44:16 node17 slurmstepd[4711]: ",
    "(Worker pid=13737) ERROR 05-22 10:26:17 [executor.py:870] ",
    "  │ ",
    "\N{LEFT DOUBLE QUOTATION MARK}",
    'time="2026-11-23" level=error msg="',
    "stderr: ",
    "> ",
)
SUFFIXES = ("", "\r", " ", '"', "\x1b[0m", ": unknown", "\\n", " (exit code 1)", "\N{RIGHT DOUBLE QUOTATION MARK}")


def test_what_stands_around_a_message_changes_nothing() -> None:
    chosen = random.Random(7)
    for name, line in SEEN:
        around = "".join(chosen.choices(PREFIXES, k=chosen.randint(1, 3))), chosen.choice(SUFFIXES)
        seen = line.join(around)
        assert name_of(seen) == name, seen
        assert name_of(seen.replace(" ", "   ")) == name, seen
        assert name_of(seen.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}")) == name, seen
        assert name_of(json.dumps(seen)) == name, seen


def test_garbage_is_no_message() -> None:
    chosen = random.Random(7)
    for length in (0, 1, 7, 100, 5000, 70_000):
        for _ in range(20):
            data = chosen.randbytes(length)
            assert search([data]).found == ()
            assert find_message(data.decode("utf-8", "surrogateescape")) == ()


def test_a_log_has_its_first_cause_first_then_what_another_line_explains_then_what_is_harmless() -> None:
    log = b"""Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN
epoch 1
RuntimeError: Unexpected error from cudaGetDeviceCount()
cuInit err: 999
Cannot load libnvcuvid.so.1
cuInit err: 999
"""
    found = search([log[:100], log[100:]]).found
    assert [(one.line, one.message.name) for one in search([log]).found] == [
        (4, "cuda-unknown"),
        (5, "video-library-missing"),
        (3, "cuda-get-device-count"),
        (1, "tf-noise"),
    ]
    assert {one.message.name for one in found} <= {one.message.name for one in search([log]).found}
    assert search([log]).lines == 6


def test_the_lines_of_blocks_are_counted_through() -> None:
    log = search([b"a\nb\n", b"c\ncuInit err: 999\n", b"d"])
    assert (log.lines, log.found[0].line) == (5, 4)


def test_a_message_that_a_terminal_broke_into_lines_is_found() -> None:
    assert name_of("libcuda.so.1: cannot open shared\n   object file: No such file or directory") == (
        "driver-library-missing"
    )
    split = 'could not\n  select device driver "" with capabilities: [[gpu]]'
    assert (search([split.encode()]).found, name_of(split)) == ((), "docker-no-toolkit")


def test_a_message_at_any_place_of_a_long_line_is_found() -> None:
    for before in (0, 4000, 8000, 8150, 100_000):
        assert name_of("x" * before + " CUDA error: uncorrectable ECC error encountered " + "y" * 9000) == "ecc"


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ("./a.out: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./a.out)", "program-library-version"),
        ("version GLIBC_2.34 not found", "program-library-version"),
        ("GLIBC_2.34", "image-libc"),
        ("/usr/lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found", "library-version"),
        ("libcuda.so.1: cannot open shared object file", "no-libcuda"),
        ("ImportError: libcuda.so.1: cannot open shared object file: No such file or directory", "nothing-to-bind"),
        ("libcuda.so.1: Kann die Shared-Object-Datei nicht öffnen: Datei nicht gefunden", "no-libcuda"),
        ("ImportError: libcudnn.so.9: cannot open shared object file", "program-library-missing"),
        ("Could not load dynamic library 'libcuda.so.1'; dlerror: ...", "no-libcuda"),
        ("999", "uvm-missing"),
        ("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment", "uvm-missing"),
        ("CUDA_ERROR_NO_DEVICE", "visible-devices-none"),
        ("cuda_error_no_device", "no-gpu"),
        ("804", "compat-harmful"),
        ("Failed to initialize NVML:   Driver/library version mismatch", "driver-mismatch"),
        ("Error: unresolvable CDI devices nvidia.com/gpu=all", "stale-cdi"),
        (
            'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]]',
            "toolkit-missing",
        ),
        ("Error response from daemon: unknown or invalid runtime name: nvidia", "gpu-runtime-missing"),
        ("failed to start daemon: specified default runtime 'nvidia' does not exist", "gpu-runtime-missing"),
        ("error while loading shared libraries: libfoo.so.2: cannot open shared object file", "prediction-wrong"),
        ("error running hook #0: error running hook: exit status 1", "try-failed"),
        ("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=0", "cdi-too-new"),
        ("Failed to initialize NVML: Unknown Error", "toolkit-cgroups"),
        ("Failed to initialize NVML: Insufficient Permissions", "selinux-devices"),
        ("808", "mps-active"),
        ("gbm_create_device fails", "drm-modeset-off"),
        ("jax.errors.JaxRuntimeError: FAILED_PRECONDITION: No visible GPU devices.", "visible-devices-none"),
        ('Failure finding "libcudart.so.13 or libcudart.so.12"', "library-missing"),
        ("libGLX_nvidia.so.0: cannot open shared object file: No such file or directory", "nothing-to-bind"),
        ("bash: line 1: nvidia-smi: command not found", "nothing-to-bind"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "gpu-unreadable"),
    ],
)
def test_a_message_that_somebody_saw_leads_to_its_findings(seen: str, code: str) -> None:
    assert code in codes_of(seen)


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=a", "xid-application"),
        ("NVRM: Xid (PCI:0000:3b:00): 130, pid=1", "xid-130"),
        ("NVRM: Xid (PCI:0000:3b:00): 900, pid=1", "xid-other"),
        ("CUDA error 803", "driver-combination"),
        ("CUDA error 8030", "-"),
        ("209", "no-kernel-image"),
        ("exit status 100", "-"),
        ("error 2 of 3", "-"),
    ],
)
def test_a_number_is_a_message_where_it_is_an_error_of_cuda_or_an_xid(seen: str, name: str) -> None:
    assert name_of(seen) == name


@pytest.mark.parametrize(
    ("seen", "library", "is_drivers"),
    [
        (
            "Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: cannot open shared "
            "object file: No such file or directory",
            "libcublasLt.so.13",
            False,
        ),
        ("Could not load library libnvcuvid.so.1: libfoo.so.2: cannot open shared object file", "libfoo.so.2", False),
        ("Could not load libfoo.so.2. Error: libcuda.so.1: cannot open shared object file", "libcuda.so.1", True),
        ("OSError: libnvidia-encode.so.1: cannot open shared object file", "libnvidia-encode.so.1", True),
        ("libnvidia-container.so.1: cannot open shared object file", "libnvidia-container.so.1", False),
    ],
)
def test_a_line_is_about_the_library_that_cannot_be_opened(seen: str, library: str, is_drivers: bool) -> None:
    found = find_message(seen)[0]
    assert found.library == library
    assert library in heading(found)
    assert ("no-libcuda" in found.message.codes) == is_drivers


@pytest.mark.parametrize("name", driver_libraries())
def test_every_library_of_the_list_is_known_as_the_drivers(name: str) -> None:
    assert "no-libcuda" in codes_of(f"error: {name}.1: cannot open shared object file")
    assert "no-libcuda" in codes_of(f"Cannot load {name}.1")


@pytest.mark.parametrize("name", ["libcuda.so.1", "libGL.so.1", "/dev/nvidia0", "nvidia-smi", "", "GPU", "libnvidia-*"])
def test_a_name_is_no_message(name: str) -> None:
    assert (find_message(name), find_in_pages(name)) == ((), ())


RELR = "/lib/libc.so.6: version `GLIBC_ABI_DT_RELR' not found (required by /.singularity.d/libs/libGLX.so.0)"


LONG = f"{'epoch 1, ' * 100}{RELR} {'x' * 400}"


@pytest.mark.parametrize(
    ("seen", "whole"),
    [
        ("./a.out: version `GLIBC_2.38' not found (required by ./a.out)", None),
        ("docker: unknown or invalid runtime name: nvidia", None),
        (RELR, None),
        (LONG, None),
        ("version `CXXABI_1.3.15' not found", None),
        (
            "libnvidia-ml.so.1: cannot open",
            "libnvidia-ml.so.1: cannot open shared object file: No such file or directory",
        ),
        ("999", "CUDA_ERROR_UNKNOWN (999): unknown error"),
        ("[rank0]: cuInit err: 999", "CUDA_ERROR_UNKNOWN (999): unknown error"),
        ("CUDA error 716", None),
        ("GLIBC_2.39", "version `GLIBC_2.39' not found"),
        ("Timeout waiting for RPC from GSP!", "NVRM: Xid (PCI:0000:3b:00): 119, Timeout waiting for RPC from GSP!"),
    ],
)
def test_a_message_is_headed_by_what_was_seen_and_facts_of_an_example_are_only_in_the_example(
    seen: str, whole: str | None
) -> None:
    found = find_message(seen)[0]
    assert heading(found).strip(".") in seen
    assert folded(found.matched.encode()) in folded(heading(found).encode())
    assert example(found) == whole
    assert len(heading(found)) < 400


@pytest.mark.parametrize(
    ("seen", "head"),
    [
        ("  foo.so.12 =>\tnot found: libfoo.so.12 => not found ", "foo.so.12 => not found: libfoo.so.12 => not found"),
        (
            "\x1b[31mdocker: unknown or invalid runtime name: nvidia\x1b[0m",
            "docker: unknown or invalid runtime name: nvidia",
        ),
    ],
)
def test_colours_and_runs_of_blanks_are_not_in_a_heading(seen: str, head: str) -> None:
    assert heading(find_message(seen)[0]) == head


def test_a_library_that_nv_brought_is_cured_by_a_start_through_gpubind() -> None:
    assert "gpubind wrap -- apptainer exec --nv" in find_message(RELR)[0].message.do


def test_the_nearest_messages_are_those_with_most_in_common() -> None:
    assert "no-device" in map(name_of, nearest_messages(["no CUDA capable device was detected here"]))
    assert len(nearest_messages(["could not select the driver for this nvidia device"])) == 2
    assert nearest_messages(["segmented fault"]) == ()
    assert "no-device" in map(name_of, nearest_messages(["CUDA_ERROR_NODEVICE"]))


def test_a_message_that_has_only_common_words_with_a_line_is_not_near() -> None:
    assert nearest_messages(["slurmstepd: error: the frobnicator of this node quuxed"]) == ()
    assert nearest_messages(["slurm-123.out"]) == ()


WORDS = b" ".join(sorted({word for phrase in phrases() for word in phrase.words}))


@pytest.mark.parametrize(
    "line",
    [
        WORDS * 3,
        b"lib" * 40_000,
        b".so" * 40_000,
        b"libcuda.so" * 10_000,
        b"cannot load " * 8_000,
        b"GLIBC_" * 20_000,
        b"xid (pci:" * 10_000,
        b"not found (required by " * 5_000,
        b"\x1b[" * 50_000,
        b"\\u001b]" * 15_000,
        b" " * 100_000,
        b"cannot load " + b"1" * 100_000,
        b"unexpected error from cudagetdevicecount " * 2_500,
    ],
    ids=lambda line: repr(line[:20]),
)
def test_a_hostile_line_is_looked_up_at_once(line: bytes) -> None:
    end = b" cannot open shared object could not load library failed to open error nvrm xid pci"
    text = line.decode("latin-1")
    found = FoundMessage(1, text, messages()[0])
    assert is_less_work(lambda: (search([line + end]), heading(found), nearest_messages([text])), 200)


def test_folding_keeps_the_lines() -> None:
    data = bytes(range(256)) * 4
    assert folded(data).count(b"\n") == data.count(b"\n")


def explained(log: Optional[bytes], *arguments: str, cwd: Optional[Path] = None) -> subprocess.CompletedProcess[str]:
    """`explain` with *log* on standard input; None: /dev/null."""
    return run_forked(["explain", *arguments], BARE, cwd, stdin=log)


def test_a_log_on_standard_input_is_read() -> None:
    log = b"epoch 1\n[rank0]: cuInit err: 999\n"
    with_input = explained(log)
    assert (with_input.returncode, with_input.stderr) == (0, "")
    assert with_input.stdout.startswith("The first cause is in line 2.\n\n[rank0]: cuInit err: 999\n")
    words = [sys.executable, "-m", "gpubind", "explain", "-"]
    piped = subprocess.run(words, input=log, capture_output=True, env=BARE)
    assert piped.stdout.decode() == with_input.stdout


@pytest.mark.parametrize("arguments", [(), ("-",), ("empty.log",), ("./empty.log",)])
def test_an_empty_log_is_an_error_and_no_list_of_codes(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "empty.log").write_bytes(b"")
    for log in (None, b""):
        done = explained(log, *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: empty-log: ")


def test_the_name_of_a_file_is_explained_as_its_log(tmp_path: Path) -> None:
    log = b"epoch 1\n[rank0]: cuInit err: 999\n"
    for name in ("job.log", "libcuda.so.1", "999", "uvm-missing"):
        (tmp_path / name).write_bytes(log)
    (tmp_path / "program").write_bytes(b"\x7fELF\0" + log)

    def run(name: str) -> subprocess.CompletedProcess[str]:
        return explained(None, name, "--host", "debian13-nvidia550", cwd=tmp_path)

    expected = explained(log).stdout
    for name in ("job.log", str(tmp_path / "job.log"), "./libcuda.so.1", "./999", "./uvm-missing"):
        assert run(name).stdout == expected, name
    for name in ("libcuda.so.1", "999", "uvm-missing"):
        found = run(name)
        assert found.returncode == 0
        assert found.stdout != expected
    assert run("program").returncode == 2
    for name in ("jo.log", "./jo.log"):
        missing = run(name)
        assert missing.returncode == 4
        assert missing.stderr.startswith(f"error: unreadable-file: a log cannot be read\n  where: {name}\n")
        assert "job.log" in missing.stderr
    (tmp_path / "cut.log").write_bytes(bytes(5000) + b"\n" + log)
    assert "cuInit err: 999" in run("cut.log").stdout
    (tmp_path / "healthy.log").write_bytes(b"epoch 1\n")
    assert "no line of the 1 of healthy.log is a message" in run("healthy.log").stderr


def test_a_log_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "job.log").symlink_to("/proc/self/mem")  # its first byte cannot be read
    done = explained(None, "./job.log", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: unreadable-file: a log cannot be read\n  where: ./job.log\n")


def test_without_a_log_every_code_is_listed_below_a_sentence() -> None:
    words = [sys.executable, "-m", "gpubind", "explain"]
    here, there = socket.socketpair()  # as a caller leaves one open: nothing is read
    with here, there:
        done = subprocess.run(words, stdin=here.fileno(), capture_output=True, env=BARE)
    assert done.returncode == 0
    assert done.stdout.startswith(b"every code of a finding or an error; `gpubind explain CODE` has more:\n  ")


COSTLY = {
    "one gap twice": b"available found detected failed " + (b"no cuda" + b"x" * 112 + b" ") * 60,
    "many beginnings": b"found available detected failed error " + b"no cuda no gpu nvml nvenc " * 300,
    "names of libraries": b"error while loading shared libraries: cannot open shared object no such file "
    + b"a.so:" * 900,
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_log_that_was_made_to_cost_ends_early_and_says_where(name: str) -> None:
    lines = 2000
    start = time.process_time()
    log = search([(COSTLY[name] + b"\n") * 100] * (lines // 100) + [b"[rank0]: cuInit err: 999\n"])
    assert time.process_time() - start < 60
    assert log.lines == lines + 1
    assert log.not_searched is not None or [one.line for one in log.found][-1] == lines + 1


def test_the_lines_that_were_not_searched_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ATTEMPT_LIMIT", 50)
    log = search([b"[rank0]: cuInit err: 999\n" + b"error: no cuda nvml failed\n" * 1000 + b"GPU is lost\n"])
    assert [one.line for one in log.found if one.line == 1] == [1]
    assert log.lines == 1002
    assert log.not_searched is not None
    assert 2 < log.not_searched < 1000


def test_empty_lines_cost_next_to_nothing() -> None:
    start = time.process_time()
    assert search([b"\n" * (1 << 20)] * 10).lines == 10 << 20
    assert time.process_time() - start < 10


def test_of_two_places_of_one_message_the_same_is_told_whatever_the_hashes() -> None:
    line = "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus"
    code = f"from gpubind.explanation.messages import search; print(search([{line.encode()!r}]).found[0].matched)"
    seeds = (
        {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(sys.path)} for seed in range(11, 19)
    )
    assert len({subprocess.check_output([sys.executable, "-c", code], env=seed) for seed in seeds}) == 1


@pytest.mark.parametrize("log", [bytes(range(256)) * 5000, b"nothing of a GPU\n", b"x" * 3_000_000])
def test_a_log_without_a_known_message_is_told_so(log: bytes) -> None:
    done = explained(log)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown-code: no line of the ")


def test_only_the_begin_of_an_endless_log_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_explain, "_BLOCK", 1 << 10)
    monkeypatch.setattr(api_explain, "_LONGEST_LOG", 4 << 10)
    reports: list[object] = []
    blocks = list(api_explain._blocks(io.BytesIO(b"a line\n" * 10_000), "app.log", reports.append))
    assert sum(map(len, blocks)) == 4 << 10
    assert max(map(len, blocks)) <= 2 << 10
    assert reports == [("warning", "not-looked-at", "app.log: only its first 0 MiB were read", False)]


@pytest.mark.parametrize(
    "line",
    [
        "libEGL_nvidia.so.580.159.04: no such file or directory",
        "NCCL WARN NET/IB : Unable to open device mlx5_0",
        "Cannot load libnvcuvid.so.1",
        "something of libcuda.so.1 that nobody knows: /dev/nvidia0",
        "qq libfoo.so.7 qq",
    ],
)
def test_a_line_with_a_files_name_is_no_question_about_this_host(tmp_path: Path, line: str) -> None:
    done = gpubind("explain", line, "--root", str(tmp_path), "--dev-root", str(tmp_path))
    assert done.returncode == (0 if find_message(line) else 2)
    assert "nothing-to-bind: no" not in done.stderr


def test_a_message_about_a_library_ends_with_what_is_so_on_this_host(tmp_path: Path) -> None:
    there = gpubind("explain", "[x] Cannot load libnvidia-encode.so.1", "--host", HOST).stdout
    assert "on this host:\nlibnvidia-encode.so.1\n" in there
    assert "taken: it lands at" in there
    absent = gpubind(
        "explain", "[x] Cannot load libnvidia-encode.so.1", "--root", str(tmp_path), "--dev-root", str(tmp_path)
    )
    assert (absent.returncode, absent.stderr, "on this host" in absent.stdout) == (0, "", False)


def test_every_message_of_a_log_is_in_the_document() -> None:
    found = json.loads(explained(b"cuInit err: 999\nCannot load libnvcuvid.so.1\n", "--json", "--host", HOST).stdout)
    assert [(one["line"], one["name"]) for one in found["messages"]] == [
        (1, "cuda-unknown"),
        (2, "video-library-missing"),
    ]
    assert found["message"]["message"] == found["messages"][0]["message"]
    assert [one["code"] for one in found["codes"]] == found["messages"][0]["codes"]


def test_few_phrases_are_compiled_for_a_line() -> None:
    module._compiled.cache_clear()
    find_message("Failed to initialize NVML: Unknown Error")
    assert module._compiled.cache_info().currsize < 60


def test_a_bytes_literal_of_python_is_read_as_its_text() -> None:
    assert name_of("LightGBMError: b'No OpenCL device found'") == "opencl-no-platform"


def test_a_long_line_is_headed_by_what_is_around_its_message() -> None:
    around = "x" * 400

    def head(seen: str) -> str:
        return heading(find_message(seen)[0])

    name = "CUDA_ERROR_NO_DEVICE"
    assert head(f"{around} {name} {around}") == f"...{'x' * 79} {name} {'x' * 219}..."
    assert head(f"{name} {around}") == f"{name} {'x' * 299}..."
    assert head(f"{around} {name}") == f"...{'x' * 79} {name}"
    assert head(f"{name} {'x' * 299}") == f"{name} {'x' * 299}"
    unmatched = FoundMessage(1, around, messages()[0], matched="not in it")
    assert heading(unmatched) == heading(unmatched._replace(matched="")) == f"{'x' * 320}..."


def test_the_last_lines_with_a_word_of_failure_are_kept_each_once() -> None:
    log = search([b"one\nFailed: A\nNot: B\n\nfailed: a\n" + b"".join(b"missing %d\n" % at for at in range(22))])
    assert log.complaints == tuple(f"missing {at}" for at in range(2, 22))
    assert search([b"cannot a\nfine\nCannot  'A'\nkilled"]).complaints == ("cannot a", "killed")
    assert (log.lines, log.not_searched, search([b"\n"]).lines) == (27, None, 1)


def test_folding_leaves_what_phrases_are_compared_with() -> None:
    colours = b"C\x1b[31mD\x1b]0;t\x07E\\x1b[0mF\\\\033[1mG\\u001b[2KH\\e[0mI\\033]8;;x\x1b\\J"
    assert folded(colours) == b"cdefghij"
    quotes = b"\\u2019a\\u201fb' \"c\" `d` \xe2\x80\x98e\xe2\x80\x9f\xc2\xb4 b'f' b\"g\" ab'h'"
    assert folded(quotes) == b"ab c d e f g abh"
    each = [(b"b'a'", b"a"), (b'b"a"', b"a"), (b"\x1b[1ma", b"a"), (b"\\x1b[1ma", b"a"), (b"\xe2\x80\x98a", b"a")]
    assert [folded(text) for text, _ in each] == [plain for _, plain in each]
    assert folded(b"A\tB\r\0C  \x0b  D\\nE\\tF\\u00e9G\xc2\xa0H\nI") == b"a b c d e f g h\ni"


@pytest.mark.parametrize(
    ("line", "vendor"),
    [
        ("hipErrorNoDevice rocm", "amd"),
        ("amd nvidia-smi", "nvidia"),
        ("nvidia-smi rocm-smi", None),
        ("cuda", None),
        ("LEVEL ZERO", "intel"),
        ("xrocm", None),
        ("librocmx 1", "amd"),
    ],
)
def test_the_vendor_of_a_line_is_the_only_one_whose_words_it_has(line: str, vendor: Optional[str]) -> None:
    assert module.vendor_of(folded(line.encode())) == module.vendor_of_lines([line]) == vendor
    assert module.vendor_of_lines(["x", line, "y"]) == vendor


def test_lines_of_two_vendors_have_none() -> None:
    assert module.vendor_of_lines(["rocm", "nvidia-smi"]) is None
    assert (module.vendor_option("amd"), module.vendor_option("nvidia")) == ("--rocm", "--nv")


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ("999", "cuda-unknown"),
        ("100", "no-device"),
        (" Xid 79 ", "xid-bus"),
        ("GLIBC_2.34", "glibc-too-old"),
        ("xid 79x", None),
        ("9999", None),
        ("nonsense", None),
    ],
)
def test_a_name_or_number_by_itself_is_a_message(seen: str, name: Optional[str]) -> None:
    found = module.find_named_message(seen)
    assert (found and found.name) == name
    if name is not None:
        assert [(one.line, one.text, one.message.name) for one in find_message(seen)] == [(1, seen, name)]


def test_the_nearest_messages_are_as_many_as_asked_for_and_the_first_is_the_nearest() -> None:
    line = "could not select the driver for this nvidia device"
    both = tuple(
        f"could not select device driver {end}"
        for end in ('"" with capabilities: [[gpu]]', '"cdi" with capabilities: []')
    )
    assert nearest_messages([line]) == both
    assert nearest_messages([line], 1) == both[:1]
    assert nearest_messages(["CUDA_ERROR_NODEVICE"]) == (
        "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected",
    )
    for seen in ("", "CUDA_ER", "x", "CUDA_ERROR_NODEVICE_" + "x" * 45, "123 456"):
        assert nearest_messages([seen]) == ()


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("GLIBC_2.39 (required by /x/libodd.so.1)", "version `GLIBC_2.39' not found (required by {}libodd.so.1)"),
        ("(required by /x/odd-1.so.1)", "version `GLIBC_2.34' not found (required by {}odd-1.so.1)"),
        ("libodd.so.1", "version `GLIBC_2.34' not found (required by {}libodd.so.1)"),
        ("1 xlibodd-so 2", "version `GLIBC_2.34' not found (required by {}libGLdispatch.so.0)"),
    ],
)
def test_an_example_has_the_version_and_the_library_of_the_line(text: str, filled: str) -> None:
    row = next(row for row in messages() if row.name == "nv-glibc")
    found = FoundMessage(1, text, row, matched="0 1")
    assert example(found) == filled.format("/.singularity.d/libs/")


def test_an_example_has_the_library_that_the_line_says_is_missing() -> None:
    row = next(row for row in messages() if row.name == "nv-glibc")
    found = FoundMessage(1, "libodd.so.1", row, library="libmissing.so.0", matched="0")
    assert (example(found) or "").endswith("/libmissing.so.0)")
