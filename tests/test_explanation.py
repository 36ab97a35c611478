"""Why a file is in the plan or not, and what a code means."""

from __future__ import annotations

import json

import pytest

from gpubind import plan
from gpubind.documents.explanation import markdown_to_text, render_explanation
from gpubind.explanation.codes import codes, explain_code, explain_variable, find_in_pages, similar_names
from gpubind.explanation.decisions import Explanation, explain
from gpubind.formats.driver.gpu_names import CUDA_DEVICE_ORDER, GPU_VARIABLES, SLURM_GPUS
from gpubind.host.base import LOADER_VARIABLES
from gpubind.inventory.amd.inventory import DXG_VARIABLE
from gpubind.model import Request, data
from gpubind.model.findings import finding_texts
from tests.support.commands import gpubind
from tests.support.driver import host, kernel, rhel
from tests.support.golden import DOCS, assert_golden
from tests.support.trees import Dir

PLAN = plan(host(rhel(), kernel()), Request())


def subjects(name: str) -> list[str]:
    return [subject for subject, _ in explain(PLAN, name).subjects]


def test_the_closest_kind_of_match_counts() -> None:
    assert subjects("libcuda.so.1") == ["libcuda.so.1"]
    starting = subjects("libcuda.so")
    assert starting
    assert all(subject.startswith("libcuda.so") for subject in starting)
    assert "libcuda.so.1" in subjects("uda.so")


@pytest.mark.parametrize(
    ("name", "entry"),
    [("libcuda.so.1", "libcuda.so"), ("libnvidia-ml.so.1", "libnvidia-ml.so"), ("nvidia_icd.json", "nvidia_icd*.json")],
)
def test_a_name_that_the_host_lacks_is_explained_by_the_entry_that_means_it(name: str, entry: str) -> None:
    bare = plan(host({"/usr/lib64": Dir()}, kernel()), Request())
    found = explain(bare, name).subjects
    assert any(subject.endswith(entry) for subject, _ in found)
    assert all(made[0].verdict == "absent" for _, made in found)
    assert not explain(bare, "no-such-file.x").subjects


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
    read_data = data.read_data

    def read(name: str) -> bytes:
        asked.append(name)
        return read_data(name)

    monkeypatch.setattr(data, "read_data", read)
    data.table.cache_clear()
    assert codes()
    assert explain_code("amd-groups")
    assert explain_code("bad-require")
    assert find_in_pages("uvm was not loaded") == ()
    assert {*asked} == {f"model/data/{name}.json" for name in ("errors", "findings", "pages")}


@pytest.mark.parametrize(
    "name",
    sorted(
        {"PATH", "LD_LIBRARY_PATH", "GBM_BACKENDS_PATH", "VDPAU_DRIVER_PATH", CUDA_DEVICE_ORDER, DXG_VARIABLE}
        | {*LOADER_VARIABLES, *GPU_VARIABLES}.difference(SLURM_GPUS)
    ),
)
def test_each_variable_that_a_plan_sets_or_a_loader_reads_is_explained(name: str) -> None:
    result = gpubind("explain", name, "--json", "--host", "mi300x-rocm62")
    page = json.loads(result.stdout)["page"]
    assert page["code"] == name
    assert page["text"] == explain_variable(name) == explain_variable(f"{name}=/a:b")
    assert explain_variable(f"{name}=a: not found") is None
    assert ("Findings about it" in page["text"]) == bool(find_in_pages(name))


def test_every_code_has_what_the_data_says_of_it() -> None:
    assert {code: kind for code, kind in codes() if code in finding_texts()} == {
        code: f"{', '.join(text['severity'])}; {text['needs']}" for code, text in finding_texts().items()
    }


def test_the_pages_of_findings_and_errors_are_what_the_data_gives() -> None:
    sections = "\n".join(f"## {explain_code(code)}" for code in finding_texts())
    assert_golden(DOCS / "findings.md", f"\n{sections}\n", part="findings")
    rows = [
        f'| <a id="{code}"></a>`{code}` | {error["exit"]} | {error["means"]} |\n'
        for code, error in data.table("errors").items()
    ]
    table = "| code | exit | meaning |\n| --- | --- | --- |\n" + "".join(rows)
    assert_golden(DOCS / "errors.md", table, part="error codes")
    assert [*data.table("errors")] == sorted(data.table("errors"))


@pytest.mark.parametrize("code", finding_texts())
def test_every_finding_has_its_page(code: str) -> None:
    page = explain_code(code)
    assert page is not None
    assert page.startswith(f"{code}\n")


def test_a_former_code_of_an_error_has_the_page_of_its_present_code() -> None:
    former = {error["former"]: code for code, error in data.table("errors").items() if "former" in error}
    assert former == {f"unsayable-{what}": f"unsupported-{what}" for what in ("path", "unset", "value")}
    for old, new in former.items():
        page = explain_code(old.upper())
        assert page == explain_code(new)
        assert page is not None and f"was `{old}` before" in page


def test_near_names_ignore_case_and_come_from_codes_and_names() -> None:
    assert similar_names("LIBRARY-MISING", ())[0] == "library-missing"
    assert similar_names("libcudda.so.1", ("libcuda.so.1", "libGL.so.1"))[0] == "libcuda.so.1"
    assert similar_names("qqqqqq", ("libcuda.so.1",)) == ()


def test_a_page_has_no_marks_and_fits_and_commands_stay_whole() -> None:
    for code in finding_texts():
        text = markdown_to_text(explain_code(code) or "", 80)
        assert "](" not in text, code
        assert "``" not in text, code
        long = [line for line in text.splitlines() if len(line) > 80 and " " in line.strip("`,.;:()")]
        assert all("`" in line for line in long), long


@pytest.mark.parametrize(
    ("code", "command"),
    [
        ("tegra", "`ls -l /dev/nvmap /dev/nvhost-* /dev/nvgpu/*`"),
        ("driver-in-image", "`apt-get purge 'libnvidia-*' 'nvidia-*'`"),
        ("driver-mismatch", "`ls /usr/lib*/libcuda.so.*`"),
    ],
)
def test_the_wildcards_of_a_command_are_no_marks(code: str, command: str) -> None:
    assert command in markdown_to_text(explain_code(code) or "", 200)


def test_a_code_is_found_whatever_its_case() -> None:
    assert explain_code("LIBRARY-MISSING") == explain_code("library-missing")


@pytest.mark.parametrize("name", ["libcuda.so.1", "no-such-code", "", "../findings"])
def test_what_is_no_code_has_no_page(name: str) -> None:
    assert explain_code(name) is None


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
    text = render_explanation(Explanation("x", (("x", (decision,)),), ()))
    assert "rejected: unreadable: a fifo\n" in text
