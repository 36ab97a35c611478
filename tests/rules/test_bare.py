"""A program of this machine that runs without a container: the findings of images, in words about the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpubind.api.check import CheckRequest, HostRef, check_each
from gpubind.errors import UsageError
from gpubind.launch.preflight import make_preflight
from gpubind.model import Finding, Request
from gpubind.model.findings import Sentence, finding_texts
from gpubind.planner.planning import PlanQuery
from gpubind.rules import bare, table
from gpubind.runtimes import get_runtime
from tests.image.cuda_trees import SITE
from tests.rules.cases_image import HOST
from tests.support.driver import host
from tests.support.elf import elf
from tests.support.images import glibc
from tests.support.trees import File, Item, Link

SOLVE = "/opt/solve"
PYTHON = "/venv/bin/python"
VENV: dict[str, Item] = {
    "/venv/pyvenv.cfg": "home = /usr/bin\n",
    PYTHON: File(elf(kind=2, needed=("libc.so.6",)), 0o755),
    "/venv/lib64": Link("lib"),
}

WHEEL = f"/venv{SITE.removeprefix('/usr/local')}"
PACKAGES: dict[str, Item] = {
    f"{WHEEL}/nvidia_cuda_runtime-13.0.96.dist-info/METADATA": "Name: nvidia-cuda-runtime\nVersion: 13.0.96\n"
}


def bare_check(spec: Mapping[str, Item], program: str, environ: Mapping[str, str] = {}) -> list[Finding]:
    """The findings about *program* on a machine with a driver and *spec*, of which the image is not one."""
    machine = host(*HOST, glibc(), spec)
    machine.local, machine.task = machine.driver, {"PATH": "/usr/bin", **environ}
    query = PlanQuery(Request(vendors=("nvidia",), caps=("compute", "utility")))
    return list(table.check(make_preflight(machine, query, program=program)))


def test_a_program_that_finds_its_libraries_on_the_machine_has_no_finding() -> None:
    program = File(elf(kind=2, needed=("libcuda.so.1", "libc.so.6")), 0o755)
    assert bare_check({SOLVE: program}, SOLVE) == []
    assert bare_check({"/opt/bin/solve": program}, "solve", {"PATH": "/opt/bin"}) == []


def test_what_a_program_lacks_is_missing_on_this_machine() -> None:
    (lacks,) = bare_check({SOLVE: File(elf(kind=2, needed=("libcudnn.so.9", "libc.so.6")), 0o755)}, SOLVE)
    assert (lacks.code, lacks.severity) == ("program-library-missing", "error")
    assert lacks.what == "libcudnn.so.9 is not on this machine; /opt/solve does not start without it"
    assert lacks.hint == "install libcudnn.so.9, or name its directory in LD_LIBRARY_PATH"
    (missing,) = bare_check({}, SOLVE)
    assert (missing.code, missing.what) == ("program-missing", "/opt/solve is not on this machine")


@pytest.mark.parametrize("directory", ["/home/me", "/tmp", "/scratch"])
def test_a_program_that_is_missing_is_an_error_in_each_directory(directory: str) -> None:
    (missing,) = bare_check({}, f"{directory}/solve")
    assert (missing.code, missing.severity) == ("program-missing", "error")
    assert missing.hint == "install it"


@pytest.mark.parametrize("directory", ["/usr/local/cuda-13/compat", "/opt/modules/cuda/13.0/compat"])
def test_a_compat_libcuda_that_the_caller_chooses_serves_the_program(directory: str) -> None:
    spec: dict[str, Item] = {**VENV, **PACKAGES, f"{directory}/libcuda.so.1": Link("libcuda.so.580.65.06")}
    spec[f"{directory}/libcuda.so.580.65.06"] = elf(soname="libcuda.so.1", needed=("libc.so.6",))
    codes = [finding.code for finding in bare_check(spec, PYTHON)]
    assert "cuda-too-new" in codes
    codes = [finding.code for finding in bare_check(spec, PYTHON, {"LD_LIBRARY_PATH": directory})]
    assert "cuda-too-new" not in codes
    assert {"compat-used", "compat-harmful"} & {*codes}


def test_the_callers_library_path_is_searched() -> None:
    spec: dict[str, Item] = {
        SOLVE: File(elf(kind=2, needed=("libcudnn.so.9", "libc.so.6")), 0o755),
        "/modules/cudnn/lib/libcudnn.so.9": elf(soname="libcudnn.so.9", needed=("libc.so.6",)),
    }
    assert bare_check(spec, SOLVE, {"LD_LIBRARY_PATH": "/modules/cudnn/lib"}) == []


def test_only_the_cuda_of_the_programs_own_packages_counts() -> None:
    toolkit = {"/usr/local/cuda-13/version.json": '{"cuda": {"version": "13.0.1"}}'}
    path = {"PATH": "/usr/local/cuda-13/bin:/usr/bin"}
    (note,) = bare_check({**VENV, **toolkit, "/usr/local/cuda-13/bin/nvcc": "x"}, PYTHON, path)
    assert (note.code, note.hint) == (
        "imports-not-checked",
        "check one of its libraries: `gpubind check --program FILE.so`",
    )
    newer, _ = bare_check({**VENV, **PACKAGES}, PYTHON, path)
    assert (newer.code, newer.severity, newer.subject) == ("cuda-too-new", "error", "13.0")


def test_a_program_with_the_rights_of_its_owner_is_not_followed_whole() -> None:
    (secure,) = bare_check({SOLVE: File(elf(kind=2, needed=("libc.so.6",)), 0o4755)}, SOLVE)
    assert (secure.code, secure.severity) == ("program-unreadable", "warning")
    assert "rights of its owner or group" in secure.what


def test_no_path_and_no_name_is_reworded() -> None:
    program = "/opt/the image/solve is in the container"
    library = "libx of the image.so.1"
    (lacks,) = bare_check({program: File(elf(kind=2, needed=(library, "libc.so.6")), 0o755)}, program)
    assert lacks.what == f"{library} is not on this machine; {program} does not start without it"
    assert (lacks.subject, lacks.where) == (library, f"needed by {program}")


class Names(dict[str, object]):
    """Facts that are their own names."""

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


def test_no_sentence_speaks_of_an_image() -> None:
    def texts(code: str) -> list[str]:
        text = finding_texts()[code]
        return [
            each[name]
            for each in (text, *text.get("cases", {}).values())
            for name in ("what", "why", "hint")
            if each.get(name)
        ]

    sample = finding_texts()["program-missing"]["what"]
    finding = Finding("program-missing", "error", None, "x", sample, None, None, None)
    sentences = (Sentence.fill(text, Names()) for code in bare.RULES for text in texts(code))
    said = [next(bare.reworded([finding._replace(what=sentence)])).what for sentence in sentences]
    assert len(said) > 60
    assert [text for text in said if re.search(r"image|container|IMAGE", text.replace("kernel image", ""))] == []


@pytest.mark.parametrize("code", bare.RULES)
def test_each_rule_without_a_container_is_one_about_images_or_programs(code: str) -> None:
    assert finding_texts()[code]["needs"] in ("image", "program")


def test_a_record_has_no_programs() -> None:
    with pytest.raises(UsageError, match="--program needs --image here") as raised:
        make_preflight(host(*HOST), PlanQuery(), program=SOLVE)
    assert raised.value.code == "program-without-image"


def test_a_plan_of_another_program_and_a_runtime_need_an_image() -> None:
    machine = host(*HOST)
    machine.local = machine.driver
    with pytest.raises(UsageError, match="--program needs --image here"):
        make_preflight(machine, PlanQuery(Request(vendors=("nvidia",), like="apptainer")), program=SOLVE)
    with pytest.raises(UsageError, match="--program needs --image here"):
        make_preflight(machine, PlanQuery(), runtime=get_runtime("bwrap"), program=SOLVE)


def test_an_environment_of_python_is_checked_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "bin" / "python").write_text("#!/nowhere/python\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    (report,) = check_each(CheckRequest(), [str(tmp_path)], [HostRef()])
    assert (report.checked.image, report.checked.program) == (None, f"{tmp_path}/bin/python")
    assert [finding.what for finding in report.findings if finding.code == "program-missing"] == [
        f"/nowhere/python is not on this machine; the script {tmp_path}/bin/python requires it"
    ]
    (other,) = check_each(CheckRequest(program="f2py"), [str(tmp_path)], [HostRef()])
    assert other.checked.program == f"{tmp_path}/bin/f2py"
