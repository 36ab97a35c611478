"""Why a file is in the plan or not, and what a code means."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubind.api import plan
from gpubind.documents import explanation
from gpubind.documents.explanation import (
    Message,
    codes,
    errors,
    explain,
    explain_code,
    explain_message,
    heading,
    messages,
    near_names,
    nearest_message,
    render_explanation,
    unmarked,
)
from gpubind.formats.driver.names import driver_libraries
from gpubind.model import Request
from gpubind.model.data import read_data
from gpubind.model.findings import texts
from tests.support.commands import gpubind
from tests.support.driver import host, kernel, rhel
from tests.support.measure import LITTLE_S, is_less_work, piece_of_work
from tests.support.page import hold

PLAN = plan(host(rhel(), kernel()), Request())


def subjects(name: str) -> list[str]:
    return [subject for subject, _ in explain(PLAN, name).subjects]


def test_the_closest_kind_of_match_counts() -> None:
    assert subjects("libcuda.so.1") == ["libcuda.so.1"]
    starting = subjects("libcuda.so")
    assert starting
    assert all(subject.startswith("libcuda.so") for subject in starting)
    assert "libcuda.so.1" in subjects("uda.so")


def test_a_pattern_matches_as_in_a_shell() -> None:
    assert "libcuda.so.1" in subjects("libcuda.so*")
    assert subjects("libcuda.so.[2-9]") == []


def test_a_file_is_found_by_its_path_and_by_where_it_lands() -> None:
    (mount,) = [mount for mount in PLAN.mounts if mount.target.endswith("/libcuda.so.1")]
    assert "libcuda.so.1" in subjects(mount.target)


def test_every_subject_has_all_its_decisions() -> None:
    for subject, decisions in explain(PLAN, "*").subjects:
        assert decisions == tuple(one for one in PLAN.decisions if one.subject == subject)


def test_no_page_of_the_docs_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def read(name: str) -> bytes:
        asked.append(name)
        return read_data(name)

    monkeypatch.setattr(explanation, "read_data", read)
    for cached in (messages, errors):
        cached.cache_clear()
    assert codes()
    assert explain_code("amd-groups")
    assert explain_code("bad-require")
    assert explain_message("uvm was not loaded")[0] is None
    assert {*asked} == {"model/data/errors.json", "model/data/messages.json"}


def test_every_code_has_what_the_data_says_of_it() -> None:
    assert {code: kind for code, kind in codes() if code in texts()} == {
        code: f"{', '.join(text['severity'])}; {text['needs']}" for code, text in texts().items()
    }


def test_the_pages_of_findings_and_errors_are_what_the_data_gives(update_golden: bool) -> None:
    sections = "\n".join(f"## {explain_code(code)}" for code in texts())
    hold("findings.md", "findings", f"\n{sections}\n", update=update_golden)
    rows = [
        f'| <a id="{code}"></a>`{code}` | {error["exit"]} | {error["means"]} |\n' for code, error in errors().items()
    ]
    hold(
        "errors.md",
        "error codes",
        "| code | exit | meaning |\n| --- | --- | --- |\n" + "".join(rows),
        update=update_golden,
    )
    assert [*errors()] == sorted(errors())


@pytest.mark.parametrize("code", texts())
def test_every_finding_has_its_page(code: str) -> None:
    page = explain_code(code)
    assert page is not None
    assert page.startswith(f"{code}\n")


def messages_page() -> str:
    """docs/messages.md, of the rows of data/messages.json."""
    lines = [
        "# I saw this message",
        "",
        "What programs say when a GPU or a library cannot be used, what it means, and what to do. "
        "`gpubind explain` finds the same:",
        "",
        '    gpubind explain "version GLIBC_2.34 not found"',
        "    gpubind explain 999",
        "    gpubind explain CUDA_ERROR_NO_DEVICE",
        "",
        "`gpubind check` says most of it before the job starts; the findings named here foretell the message. "
        "Versions, numbers and libraries in the headings are examples.",
    ]
    for row in messages():
        about = ", ".join(f"[{code}](findings.md#{code})" for code in row.codes)
        lines += ["", f"## {row.message}", "", f"{row.means} {row.do}"]
        lines += ["", f"Findings: {about}."] if row.codes else []
    return "\n".join(lines) + "\n"


def test_the_page_of_messages_is_what_the_data_gives(update_golden: bool) -> None:
    page = Path(__file__).parent.parent / "docs" / "messages.md"
    if update_golden:
        page.write_text(messages_page())
    assert page.read_text() == messages_page()


@pytest.mark.parametrize("row", messages(), ids=lambda row: row.message[:40])
def test_a_message_is_found_by_its_own_words_and_names_findings_that_are_there(row: Message) -> None:
    assert explain_message(row.message)[0] == row
    assert set(row.codes) <= set(texts())
    assert list(row.codes) == sorted(row.codes)


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ("./a.out: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./a.out)", "program-library-version"),
        ("version GLIBC_2.34 not found", "program-library-version"),
        ("GLIBC_2.34", "image-libc"),
        ("/usr/lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found", "library-version"),
        ("libcuda.so.1: cannot open shared object file", "no-libcuda"),
        ("ImportError: libcuda.so.1: cannot open shared object file: No such file or directory", "nothing-to-bind"),
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
        ("Error response from daemon: unknown or invalid runtime name: nvidia", "nvidia-runtime-missing"),
        ("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=0", "cdi-too-new"),
        ("Failed to initialize NVML: Unknown Error", "toolkit-cgroups"),
        ("Failed to initialize NVML: Insufficient Permissions", "selinux-devices"),
        ("808", "mps-active"),
        ("gbm_create_device fails", "drm-modeset-off"),
        ("RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", "no-libcuda"),
        ("UserWarning: Can't initialize NVML", "no-nvml"),
        ("Could not find cuda drivers on your machine, GPU will not be used.", "nothing-to-bind"),
        ("jax.errors.JaxRuntimeError: FAILED_PRECONDITION: No visible GPU devices.", "visible-devices-none"),
        ('Failure finding "libcudart.so.13 or libcudart.so.12"', "library-missing"),
        ("vkCreateInstance failed with ERROR_INCOMPATIBLE_DRIVER", "manifest-missing"),
        ("[h264_nvenc @ 0x55] No NVENC capable devices found", "no-gpu"),
        ("[h264_nvenc @ 0x55] Cannot load libnvidia-encode.so.1", "no-libcuda"),
        ("nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1", "no-nvml"),
        ("libGLX_nvidia.so.0: cannot open shared object file: No such file or directory", "nothing-to-bind"),
        (
            "./a: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /.singularity.d/libs/libGLX.so.0)",
            "image-libc",
        ),
        ("INFO:    Could not find any nv files on this host!", "nothing-to-bind"),
        ("bash: line 1: nvidia-smi: command not found", "nothing-to-bind"),
        ("torch.cuda.is_available() returns False", "cuda-too-new"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "gpu-unreadable"),
    ],
)
def test_a_message_that_somebody_saw_leads_to_its_findings(seen: str, code: str) -> None:
    assert code in explain_message(seen)[1]


@pytest.mark.parametrize(
    ("seen", "head"),
    [
        (
            "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
            "CUDA error: no k",
        ),
        ("209", "CUDA error: no kernel image"),
        ("CUDA error: an illegal memory access was encountered", "CUDA error: an illegal memory access"),
        ("AssertionError: Torch not compiled with CUDA enabled", "AssertionError: Torch not compiled"),
        ("unknown flag: --gpus", "unknown flag: --gpus"),
    ],
)
def test_a_message_that_no_finding_foretells_is_known_all_the_same(seen: str, head: str) -> None:
    message, codes = explain_message(seen)
    assert message is not None
    assert message.message.startswith(head)
    assert codes == ()


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
    message, codes = explain_message(seen)
    assert message is not None
    assert library in heading(message.message, seen)
    assert ("no-libcuda" in codes) == is_drivers


@pytest.mark.parametrize("name", driver_libraries())
def test_every_library_of_the_list_is_known_as_the_drivers(name: str) -> None:
    assert "no-libcuda" in explain_message(f"error: {name}.1: cannot open shared object file")[1]
    assert "no-libcuda" in explain_message(f"Cannot load {name}.1")[1]


def test_a_library_that_nv_brought_is_cured_by_a_start_through_gpubind() -> None:
    message, _ = explain_message("GLIBC_ABI_DT_RELR' not found (required by /.singularity.d/libs/libGLX.so.0)")
    assert message is not None
    assert "gpubind wrap -- apptainer exec --nv" in message.do
    seen = "/lib/libc.so.6: version `GLIBC_ABI_DT_RELR' not found (required by /.singularity.d/libs/libGLX.so.0)"
    assert heading(message.message, seen).startswith(
        "version `GLIBC_ABI_DT_RELR' not found (required by /.singularity.d"
    )
    assert heading(message.message, seen).endswith("libs/libGLX.so.0)")


def test_the_nearest_message_is_the_one_with_most_words_in_common() -> None:
    assert nearest_message("no CUDA capable device was detected here") == messages_by("CUDA_ERROR_NO_DEVICE")
    assert nearest_message("segmentation fault") is None


def messages_by(part: str) -> str:
    return next(row.message for row in messages() if part in row.message)


@pytest.mark.parametrize("name", ["libcuda.so.1", "libGL.so.1", "/dev/nvidia0", "nvidia-smi", "", "GPU", "libnvidia-*"])
def test_a_name_is_no_message(name: str) -> None:
    assert explain_message(name) == (None, ())


@pytest.mark.parametrize(
    ("seen", "head"),
    [
        ("./a.out: /lib64/libc.so.6: version `GLIBC_2.38' not found (required by ./a.out)", "version `GLIBC_2.38' not"),
        ("libnvidia-ml.so.1: cannot open shared object file", "libnvidia-ml.so.1: cannot open"),
        ("libcudart.so.12 => not found", "error while loading shared libraries: libcudart.so.12: cannot"),
        ("version `CXXABI_1.3.15' not found", "version `CXXABI_1.3.15' not found"),
        ("999", "CUDA_ERROR_UNKNOWN (999)"),
    ],
)
def test_a_message_is_headed_by_what_was_seen(seen: str, head: str) -> None:
    message, _ = explain_message(seen)
    assert message is not None
    assert heading(message.message, seen).startswith(head)


def test_near_names_ignore_case_and_come_from_codes_and_names() -> None:
    assert near_names("LIBRARY-MISING", ())[0] == "library-missing"
    assert near_names("libcudda.so.1", ("libcuda.so.1", "libGL.so.1"))[0] == "libcuda.so.1"
    assert near_names("qqqqqq", ("libcuda.so.1",)) == ()


def test_a_page_has_no_marks_and_fits_and_commands_stay_whole() -> None:
    for code in texts():
        text = unmarked(explain_code(code) or "", 80)
        assert "](" not in text, code
        assert "``" not in text, code
        long = [line for line in text.splitlines() if len(line) > 80 and " " in line.strip("`,.;:()")]
        assert all("`" in line for line in long), long


def test_a_code_is_found_whatever_its_case() -> None:
    assert explain_code("LIBRARY-MISSING") == explain_code("library-missing")


@pytest.mark.parametrize("name", ["libcuda.so.1", "no-such-code", "", "../findings"])
def test_what_is_no_code_has_no_page(name: str) -> None:
    assert explain_code(name) is None


PATTERNS = {
    **{f"messages.json: {like[:50]}": re.compile(like, re.IGNORECASE) for row in messages() for like in row.like},
    **{name: value for name, value in vars(explanation).items() if isinstance(value, re.Pattern)},
}


def hostile_lines(pattern: str) -> Iterator[str]:
    """Yield long lines in which *pattern* nearly matches: each of its literals repeated, or before a long run."""
    literals = dict.fromkeys(
        re.findall(r"(?:\\[.()-]|[A-Za-z0-9_ :'/=>-])+", re.sub(r"\\[bdsw]|\[.*?\]", "|", pattern))
    )
    for literal in dict.fromkeys(one.replace("\\", "") for one in literals):
        if literal.lstrip(":") in driver_libraries()[1:]:
            continue  # one of them shows what all do
        for many in (literal, f"{literal} ", f"{literal}_", f"{literal}1"):
            yield (many * 20_000)[:20_000]
        for run in ("1", "A", "_", ".", " ", ".1", ".so", "so.1"):
            yield literal + run * (20_000 // len(run))


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_of_a_message_takes_more_than_linear_time(name: str) -> None:
    times = {line: processor_time(PATTERNS[name], line) for line in hostile_lines(PATTERNS[name].pattern)}
    long = {line[:80]: seconds for line, seconds in times.items() if seconds > LITTLE_S}
    assert not long or max(long.values()) < 20 * piece_of_work(), long


def processor_time(pattern: re.Pattern[str], line: str) -> float:
    began = time.process_time()
    pattern.search(line)
    return time.process_time() - began


@pytest.mark.parametrize(
    "seen",
    ["GLIBC_" * 20_000, "lib" * 40_000, "A_" * 50_000, "/a.so.1" * 15_000, "libcuda.so" * 10_000]
    + [f"{head}{'1' * 100_000}" for head in ("cannot load ", "cannot load dynamic library ", "load library failed:")],
    ids=lambda seen: seen[:30],
)
def test_a_long_line_is_looked_up_at_once(seen: str) -> None:
    assert is_less_work(lambda: (explain_message(seen), heading("libcuda.so.1", seen), nearest_message(seen)), 200)


def test_a_long_line_that_is_unknown_is_not_repeated_whole() -> None:
    done = gpubind("explain", "--host", "debian13-nvidia550", "--", "GLIBC_" * 20_000)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown-code: `GLIBC_GLIBC_")
    assert len(done.stderr) < 1000


def test_places_of_libraries_are_named_for_libraries_and_unknown_names_alone() -> None:
    assert explain(PLAN, "libcuda.so.1").searched
    assert explain(PLAN, "no-such-name").searched
    assert explain(PLAN, "nvidia-smi").subjects
    assert explain(PLAN, "nvidia-smi").searched == ()


def test_a_rule_is_not_said_twice() -> None:
    decision = PLAN.decisions[0]._replace(verdict="rejected", rule="unreadable", detail="unreadable: a fifo")
    text = render_explanation(explanation.Explanation("x", (("x", (decision,)),), ()))
    assert "rejected: unreadable: a fifo\n" in text
