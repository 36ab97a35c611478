"""What execve would make of a program: scripts to their interpreters, modes, loaders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Optional

import pytest

from gpubind.loader.execve import started_by_env
from gpubind.model import Finding
from tests.image.cuda_trees import SITE
from tests.rules.cases_host import NVVM, lacking
from tests.rules.cases_image import HOST, needing
from tests.rules.situations import Situation, found, started
from tests.support.elf import elf
from tests.support.images import glibc, image, sandbox
from tests.support.trees import Dir, File, Item, Link, Node, Spec

SOLVE = "/opt/solve"


def said(program: str, spec: Spec) -> list[tuple[str, str]]:
    """(code, subject) of the findings about *program*."""
    findings = found(Situation(HOST, image(glibc(), spec), program=program))
    return [(finding.code, finding.subject) for finding in findings if finding.code.startswith("program")]


def script(line: str, mode: int = 0o755) -> Spec:
    tools: dict[str, Item] = {f"/usr/bin/{name}": File(elf(kind=2), 0o755) for name in ("bash", "env", "python3")}
    return {SOLVE: File(line.encode(), mode), **tools}


@pytest.mark.parametrize(
    ("line", "lacks"),
    [
        ("#!/bin/sh\n", None),
        ("#! /bin/sh -e\n", None),
        ("#!\t/bin/sh\n", None),
        ("echo no first line\n", None),
        ("#!/usr/bin/env bash\n", None),
        ("#!/usr/bin/env -S bash -x\n", None),
        ("#!/usr/bin/env -Spython3 -u\n", None),
        ("#!/usr/bin/env -S perl -w\n", "perl"),
        ("#!/bin/sh\r\n", "/bin/sh\r"),
        ("#!/usr/bin/env bash -x\n", "bash -x"),
        ("#!/usr/bin/env perl\n", "perl"),
        ("#!/opt/conda/bin/python\n", "/opt/conda/bin/python"),
    ],
)
def test_a_script_is_followed_to_its_interpreter(line: str, lacks: Optional[str]) -> None:
    assert said(SOLVE, script(line)) == ([("program-missing", lacks)] if lacks else [])


def chain_of_scripts(number: int) -> Spec:
    """/1, a script whose interpreter is the script /2, and so on; the last one's is /program."""
    lines = {at: f"#!/{at + 1}\n" if at < number else "#!/program\n" for at in range(1, number + 1)}
    return {
        "/program": File(elf(kind=2), 0o755),
        **{f"/{at}": File(line.encode(), 0o755) for at, line in lines.items()},
    }


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_scripts_that_run_scripts_fail_as_the_kernel_says(tmp_path: Path, number: int) -> None:
    for at in range(1, number + 1):
        line = f"#!{tmp_path}/{at + 1}\n" if at < number else "#!/bin/true\n"
        (tmp_path / str(at)).write_text(line)
        (tmp_path / str(at)).chmod(0o755)
    try:
        message = None if subprocess.run([str(tmp_path / "1")]).returncode == 0 else "failed"
    except OSError as error:
        message = error.strerror
    findings = found(Situation(HOST, image(glibc(), chain_of_scripts(number)), program="/1"))
    whys = [finding.why for finding in findings if finding.code.startswith("program")]
    assert whys == ([f"/1: {message} (126)"] if message else [])


ODD = [
    "-i python3",
    "-x python3",
    "-i",
    "",
    "A=1",
    "-S",
    "-S PATH=/opt/bin bash",
    "-S -u HOME bash",
    "-vS perl",
    "-S 'a",
]


@pytest.mark.parametrize("argument", ODD)
def test_of_other_arguments_of_env_it_is_not_known_what_it_starts(argument: str) -> None:
    assert said(SOLVE, script(f"#!/usr/bin/env {argument}\n")) == []


def test_busybox_has_an_env_without_splitting() -> None:
    spec = {**script("#!/usr/bin/env -S perl -x\n"), "/usr/bin/env": Link("busybox")}
    spec["/usr/bin/busybox"] = File(elf(kind=2), 0o755)
    assert said(SOLVE, spec) == []


@pytest.mark.parametrize(
    "argument", [*ODD, "sh", "sh -x", "-S sh", "-Ssh", "-S sh -x", "-S sh#", "-S #sh", "-S sh\\tb"]
)
def test_env_itself_agrees_where_it_is_known(argument: str) -> None:
    program = started_by_env(argument)
    call = ["/usr/bin/env", argument, "-c", "exit 7"]
    status = subprocess.run(call, capture_output=True, env={"PATH": os.defpath}).returncode
    assert program is None or (program == "sh") == (status == 7)


def test_env_itself_must_be_there() -> None:
    assert said(SOLVE, {SOLVE: File(b"#!/usr/local/bin/env bash\n", 0o755)}) == [
        ("program-missing", "/usr/local/bin/env")
    ]


def test_an_empty_file_is_a_warning_because_it_ends_with_0() -> None:
    findings = found(Situation(HOST, image(glibc(), {SOLVE: File(b"", 0o755)}), program=SOLVE))
    assert [(f.code, f.severity) for f in findings if f.code.startswith("program")] == [
        ("program-not-executable", "warning")
    ]


@pytest.mark.parametrize(("mode", "euid", "refused"), [(0o700, 1000, True), (0o700, 0, False), (0o755, 1000, False)])
def test_the_mode_counts_for_who_starts_it(mode: int, euid: int, refused: bool) -> None:
    facts = {"euid": euid, "groups": (euid,)}
    spec = {SOLVE: File(elf(kind=2), mode)}
    findings = found(Situation(HOST, image(glibc(), spec), facts=facts, program=SOLVE))
    assert [f.code for f in findings if f.code.startswith("program")] == ["program-not-executable"] * refused


def test_a_name_that_may_not_be_executed_is_looked_for_further_on() -> None:
    env = "export PATH=/opt/a:/opt/b"
    spec: Spec = {**sandbox(env), "/opt/a/run": File(elf(kind=2), 0o644), "/opt/b/run": File(elf(kind=2), 0o755)}
    assert said("run", spec) == []
    assert said("run", {**spec, "/opt/b/run": Dir()}) == [("program-not-executable", "run")]


def test_the_host_runs_programs_of_32_bits_and_their_loader_must_be_theirs() -> None:
    small = elf(kind=2, bits=32, machine=3, interpreter="/lib/ld-linux.so.2", needed=("libc.so.6",))
    spec: Spec = {
        SOLVE: File(small, 0o755),
        "/usr/lib/ld-linux.so.2": File(elf("ld-linux.so.2", bits=32, machine=3), 0o755),
        "/usr/lib/i386-linux-gnu/libc.so.6": elf("libc.so.6", bits=32, machine=3),
    }
    assert said(SOLVE, spec) == []
    spec = {**spec, "/usr/lib/ld-linux.so.2": File(elf("ld-linux.so.2"), 0o755)}
    assert said(SOLVE, spec) == [("program-interpreter", SOLVE)]
    assert said(SOLVE, {SOLVE: File(elf(kind=2, bits=32, machine=3), 0o755)}) == []


def test_a_stack_that_the_program_asks_for_itself_lets_dlopen_go_on() -> None:
    host = (*HOST, {"/usr/lib64/libnvcuvid.so.550.54.14": elf("libnvcuvid.so.1", executable_stack=True)})
    for asks in (True, False):
        spec = {SOLVE: File(elf(kind=2, interpreter="/lib64/ld-linux-x86-64.so.2", executable_stack=asks), 0o755)}
        findings = found(Situation(host, image(glibc("2.41"), spec), program=SOLVE))
        assert ("executable-stack" in [f.code for f in findings]) is not asks


def test_a_script_must_be_executable_and_so_must_its_interpreter() -> None:
    assert said(SOLVE, script("#!/bin/sh\n", 0o644)) == [("program-not-executable", SOLVE)]
    spec = {**script("#!/opt/run\n"), "/opt/run": File(b"#!/bin/sh\n", 0o644)}
    assert said(SOLVE, spec) == [("program-not-executable", "/opt/run")]


def test_a_script_that_runs_itself_ends() -> None:
    assert said(SOLVE, script(f"#!{SOLVE}\n")) == [("program-not-executable", SOLVE)]


@pytest.mark.parametrize("data", [b"\x7fELF\0\0", b"\0\1\2\3", b"MZ\0\0"])
def test_what_is_neither_program_nor_script_is_told(data: bytes) -> None:
    assert said(SOLVE, {SOLVE: File(data, 0o755)}) == [("program-not-executable", SOLVE)]


@pytest.mark.parametrize("interpreter", ["lib64/ld-linux-x86-64.so.2", ""])
def test_a_loader_that_is_no_absolute_path_is_left_alone(interpreter: str) -> None:
    assert said(SOLVE, {SOLVE: File(elf(kind=2, interpreter=interpreter), 0o755)}) == []


def test_a_loader_that_is_no_program_is_told() -> None:
    spec = {SOLVE: File(elf(kind=2, interpreter="/etc/passwd"), 0o755)}
    assert said(SOLVE, spec) == [("program-not-executable", "/etc/passwd")]
    spec["/etc/passwd"] = File(b"root", 0o755)
    assert said(SOLVE, spec) == [("program-interpreter", SOLVE)]


def test_a_program_for_another_machine_is_one_finding() -> None:
    spec = {SOLVE: File(elf(kind=2, machine=183, needed=("libc.so.6",)), 0o755)}
    assert said(SOLVE, spec) == [("program-not-executable", SOLVE)]


def test_a_program_in_a_directory_of_the_host_is_a_warning() -> None:
    findings = found(Situation(HOST, image(glibc()), program="/home/me/a.out"))
    assert [f.severity for f in findings if f.code == "program-missing"] == ["warning"]


def test_the_images_search_paths_count() -> None:
    env = "export PATH=/opt/bin:$PATH\nexport LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH"
    spec: Spec = {
        **sandbox(env),
        "/opt/bin/solve": File(elf(kind=2, needed=("libsolve.so.1",)), 0o755),
        "/opt/lib/libsolve.so.1": elf("libsolve.so.1"),
    }
    assert said("solve", spec) == []
    assert said("sh", spec) == []


@pytest.mark.parametrize(("more", "is_missing"), [(0, True), (1, False)])
def test_of_a_processor_with_more_than_8_mib_of_description_it_is_not_known_what_is_for_it(
    more: int, is_missing: bool
) -> None:
    cpuinfo = "vendor_id\t: GenuineIntel\nflags\t\t: fpu\n\n".ljust((8 << 20) + more)
    below = "/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v4"
    solve: Spec = {SOLVE: File(elf(kind=2, needed=("libx.so.1",)), 0o755), f"{below}/libx.so.1": elf("libx.so.1")}
    findings = found(Situation((*HOST, {"/proc/cpuinfo": cpuinfo}), image(glibc("2.41"), solve), program=SOLVE))
    assert ("program-library-missing" in [one.code for one in findings]) == is_missing


def test_a_library_of_the_driver_that_the_host_lacks_is_to_be_installed_on_the_host() -> None:
    name = "libnvidia-nvvm.so.4"
    parts = (*lacking(*NVVM), needing("libcuda", needed=(name,)))
    solve: Spec = {SOLVE: File(elf(kind=2, needed=(name,)), 0o755)}
    findings = found(Situation(parts, image(glibc(), solve), {"caps": ("compute",)}, program=SOLVE))
    told = [(one.code, one.command) for one in findings if one.subject == name and one.severity == "error"]
    assert told == [(code, f"gpubind explain {name}") for code in ("library-missing", "program-library-missing")]


def test_a_program_that_was_not_asked_for_is_to_be_asked_for() -> None:
    request = {"caps": ("compute",)}
    findings = found(Situation(HOST, image(glibc()), request, program="nvidia-smi"))
    assert ["utility" in (f.hint or "") for f in findings if f.code == "program-missing"] == [True]


CUDNN: Spec = {f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9": elf("libcudnn.so.9")}


def test_a_library_that_a_wheel_carries_is_found_by_the_search_path_of_what_needs_it() -> None:
    runpath = "$ORIGIN/../../nvidia/cudnn/lib"
    spec: Spec = {
        f"{SITE}/torch/lib/solve": File(elf(needed=("libcudnn.so.9",), runpath=runpath, kind=2), 0o755),
        **CUDNN,
    }
    assert said(f"{SITE}/torch/lib/solve", spec) == []


def test_a_library_that_only_a_wheel_has_is_missing_and_the_hint_names_its_directory() -> None:
    spec: Spec = {SOLVE: File(elf(needed=("libcudnn.so.9",), kind=2), 0o755), **CUDNN}
    findings = found(Situation(HOST, image(glibc(), spec), program=SOLVE))
    hints = [finding.hint or "" for finding in findings if finding.code == "program-library-missing"]
    assert len(hints) == 1
    assert hints[0].startswith(f"add {SITE}/nvidia/cudnn/lib of the image to its LD_LIBRARY_PATH")


def test_the_wheels_of_a_python_in_the_images_path_are_named() -> None:
    cudnn = "/srv/env/lib/python3.11/site-packages/nvidia/cudnn/lib"
    missing: Spec = {SOLVE: File(elf(needed=("libcudnn.so.9",), kind=2), 0o755), f"{cudnn}/libcudnn.so.9": elf("x")}
    spec: Spec = {**missing, **sandbox("export PATH=/srv/env/bin:$PATH")}
    findings = found(Situation(HOST, image(glibc(), spec), program=SOLVE))
    hints = [finding.hint or "" for finding in findings if finding.code == "program-library-missing"]
    assert [hint.split(" of the image")[0] for hint in hints] == [f"add {cudnn}"]


@pytest.mark.parametrize("prefix", ["/srv/env", "/srv/other"])
def test_the_cuda_beside_a_program_counts_for_it(prefix: str) -> None:
    record = f"{prefix}/conda-meta/cuda-cudart-13.0.48-0.json"
    spec: Spec = {"/srv/env/bin/solve": File(elf(kind=2), 0o755), record: "{}"}
    findings = found(Situation(HOST, image(glibc(), spec), program="/srv/env/bin/solve"))
    named = [finding for finding in findings if finding.code == "cuda-too-new"]
    assert [record in finding.what for finding in named] == ([True] if prefix == "/srv/env" else [])


def hint(program: str, spec: Spec) -> str:
    """What to do about a *program* that is missing."""
    findings = found(Situation(HOST, image(glibc(), spec), program=program))
    return next(f"{finding.what}: {finding.hint}" for finding in findings if finding.code == "program-missing")


EXECUTABLE = File(elf(kind=2), 0o755)


@pytest.mark.parametrize(
    ("program", "there", "named"),
    [
        ("python", "/usr/bin/python3", "did you mean `python3`?"),
        ("solve", "/opt/app/solve", "did you mean `/opt/app/solve`?"),
        ("solve", "/opt/app/bin/solve", "did you mean `/opt/app/bin/solve`?"),
        ("/usr/bin/solve", "/usr/local/bin/solve", "did you mean `/usr/local/bin/solve`?"),
        ("/opt/app/sovle", "/opt/app/solve", "did you mean `solve`?"),
    ],
)
def test_a_program_that_is_missing_names_what_is_there(program: str, there: str, named: str) -> None:
    assert named in hint(program, {there: EXECUTABLE})
    assert "did you mean" not in hint(program, {"/opt/other/thing": EXECUTABLE})


def test_several_arguments_in_one_are_said_to_be_that() -> None:
    told = hint("python3 train.py", {"/usr/bin/python3": EXECUTABLE})
    assert "`python3` exists" in told
    assert "--program takes only the program: `python3`" in told
    assert "--program takes" not in hint("python4 train.py", {"/usr/bin/python3": EXECUTABLE})


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_library_is_checked_as_one_where_nothing_is_started(mode: int) -> None:
    library = "/opt/lib/libsolve.so.1"
    spec: Spec = {library: File(elf("libsolve.so.1", needed=("libgone.so.2",)), mode)}
    start = Situation(HOST, image(glibc(), spec), program=library)
    findings = [f for f in found(start._replace(may_be_library=True)) if f.code.startswith("program")]
    assert [(f.code, f.subject) for f in findings] == [("program-library-missing", "libgone.so.2")]
    assert "does not load without it" in findings[0].what
    codes = [f.code for f in found(start) if f.code.startswith("program")]
    assert codes == (["program-not-executable"] if mode == 0o644 else ["program-library-missing"])


def about(program: str, spec: Spec, *, may_be_library: bool = True) -> Finding:
    """The only finding about *program*."""
    start = Situation(HOST, image(glibc(), spec), program=program, may_be_library=may_be_library)
    (finding,) = (f for f in found(start) if f.code.startswith("program"))
    return finding


@pytest.mark.parametrize("line", ["python3 /app/train.py", "python3 ./train.py"])
def test_a_command_line_with_a_path_in_it_is_no_relative_path(line: str) -> None:
    finding = about(line, {"/usr/bin/python3": EXECUTABLE})
    assert (finding.severity, finding.code) == ("error", "program-missing")
    assert "--program takes only the program: `python3`" in (finding.hint or "")


@pytest.mark.parametrize("path", ["./solve", "python4 ./train.py"])
def test_a_relative_path_that_cannot_be_checked_is_a_warning(path: str) -> None:
    finding = about(path, {"/usr/bin/python3": EXECUTABLE})
    assert (finding.severity, finding.code) == ("warning", "program-unreadable")


INTACT = elf("libsolve.so.1", needed=("libc.so.6",))


@pytest.mark.parametrize("name", ["libsolve.so", "libsolve.so.1", "libsolve.so.1.2.3"])
@pytest.mark.parametrize("mode", [0o644, 0o755])
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "file too short"),
        (INTACT[:40], "file too short"),
        (INTACT[:100], "damaged ELF"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00000000000000000000\n", "invalid ELF header"),
    ],
)
def test_a_damaged_library_is_an_error_of_the_loader_and_no_matter_of_modes(
    name: str, mode: int, data: bytes, why: str
) -> None:
    finding = about(f"/opt/lib/{name}", {f"/opt/lib/{name}": File(data, mode)})
    assert (finding.severity, finding.code) == ("error", "program-not-executable")
    assert why in (finding.why or "")
    assert "chmod" not in (finding.hint or "")


def test_a_script_with_so_within_its_name_is_a_program() -> None:
    spec: Spec = {"/opt/make.so.sh": File(b"#!/bin/sh\n", 0o644)}
    assert "has no execute permission" in about("/opt/make.so.sh", spec).what


@pytest.mark.parametrize(("item", "kind"), [(Dir(), "is a directory"), (Node("char", 1, 3), "is not a regular file")])
@pytest.mark.parametrize("may_be_library", [True, False])
def test_what_is_no_regular_file_is_there_and_may_not_be_executed(item: Item, kind: str, may_be_library: bool) -> None:
    finding = about(SOLVE, {SOLVE: item}, may_be_library=may_be_library)
    assert (finding.severity, finding.code) == ("error", "program-not-executable")
    assert kind in finding.what
    assert finding.why == f"{SOLVE}: Permission denied (126)"
    assert "did you mean" not in (finding.hint or "")


def test_a_directory_in_path_is_no_program_of_that_name() -> None:
    assert said("solve", {"/usr/bin/solve": Dir()}) == [("program-missing", "solve")]


def test_a_library_by_its_soname_alone_names_its_path() -> None:
    planned = next(m.target for m in started(Situation(HOST, image(glibc()))).plan.mounts if "libcuda.so.1" in m.target)
    assert f"did you mean `{planned}`?" in (about("libcuda.so.1", {}).hint or "")
    assert "libc.so.6`?" in (about("libc.so.6", {}).hint or "")


def test_a_path_that_is_missing_was_not_looked_for_in_path() -> None:
    path, name = about("/opt/nothing", {}), about("nothing", {})
    assert path.where is None
    assert "full path" not in (path.hint or "")
    assert "/usr/bin" in (name.where or "")
    assert "or give its full path" in (name.hint or "")


def test_a_script_of_any_size_is_started_by_its_interpreter() -> None:
    """The kernel reads 256 bytes of it: installers that carry their archive behind the script have gigabytes."""
    assert said(SOLVE, script("#!/usr/bin/bash\n" + "x" * (65 << 20))) == []
