"""One tree of errors; every code has its place in the docs."""

from __future__ import annotations

import copy
import importlib
import inspect
import os
import pickle
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import gpubind
from gpubind import errors
from gpubind.model import Missing
from gpubind.model.data import table
from gpubind.rules.table import RULES
from tests.support.golden import assert_listed, assert_none, table_of_rules

ROOT = Path(__file__).parent.parent
SOURCES = {path: path.read_text() for path in sorted((ROOT / "gpubind").rglob("*.py"))}
ROWS = table("errors")
DATA = "gpubind/model/data/errors.json"

_RAISED = re.compile(r"(?:(?:\w+Error|Format|_error)\(\s*|unknown=)\"([a-z0-9-]+)\"")
_FINDING = re.compile(r"Finding\(\s*\"([a-z0-9-]+)\"")


def raised_codes() -> set[str]:
    return {code for text in SOURCES.values() for code in _RAISED.findall(text)}


def finding_codes() -> set[str]:
    # Codes that are values, not literals where the Finding is made.
    computed = {"no-ldcache", "bad-ldcache", "bad-filelist", "driver-mismatch", "other-driver-version"}
    computed |= {"image-libc", "image-architecture", "image-without-glibc"}
    return {code for text in SOURCES.values() for code in _FINDING.findall(text)} | computed


def test_every_exception_that_leaves_its_module_descends_from_one_root() -> None:
    for info in pkgutil.walk_packages(gpubind.__path__, "gpubind."):
        if info.name.endswith("__main__"):
            continue
        for _, thing in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
            is_private = thing.__name__.startswith("_")
            if issubclass(thing, BaseException) and thing.__module__.startswith("gpubind") and not is_private:
                assert issubclass(thing, errors.GpubindError)


def test_every_error_code_is_documented_and_no_other() -> None:
    assert_listed(
        ROWS,
        sorted(raised_codes() | {"bug", "no-such-command", "not-executable"}),
        add=f'{DATA}: add the row `"{{}}": {{"exit": ..., "means": "..."}}`; then run '
        "python -m pytest tests/test_explanation.py --update-golden",
        remove=f"{DATA}: remove the row `{{}}`; no code raises it",
    )


def test_every_error_code_is_documented_with_the_exit_status_of_its_class() -> None:
    raised = re.compile(r'\b(\w+Error)\(\s*"([a-z0-9-]+)"')
    classes = {kind.__name__: kind for kind in subclasses(errors.GpubindError)}
    statuses: dict[str, set[int]] = {}
    for path, text in SOURCES.items():
        for name, code in raised.findall(text):
            if name in classes and name != "CommandError":  # 126 or 127
                only_starts = "launch/wrap" in str(path)
                statuses.setdefault(code, set()).add(
                    errors.EXIT_NOT_STARTED if only_starts else classes[name].exit_code
                )
    statuses["bad-cdi-name"].add(errors.EXIT_USAGE)  # of --cdi-device, which raises it again
    assert_none(
        f"{DATA}: `exit` of `{code}` is {row['exit']}; the classes that are raised end with {sorted(statuses[code])}"
        for code, row in ROWS.items()
        if code in statuses and row["exit"] not in statuses[code]
    )


def test_every_finding_that_can_be_made_is_in_the_table_of_rules() -> None:
    made = sorted(finding_codes())
    assert_listed([rule.code for rule in RULES], made, add="gpubind/model/data/findings.json: add the row `{}`")


def test_every_documented_rule_of_decisions_is_one_of_the_code() -> None:
    reasons = {f"path-{why}" for why in get_args(get_type_hints(Missing)["why"])}
    gone = [rule for rule in table_of_rules() if not any(f'"{rule}"' in text for text in SOURCES.values())]
    assert_none(sorted({*gone} - reasons), 'docs/plan.md, "Decisions": remove `{}` from the table of rules')


def test_every_exit_code_is_documented() -> None:
    table = (ROOT / "docs" / "errors.md").read_text().partition("## Exit codes")[2].partition("## Error codes")[0]
    used = {str(value) for name, value in vars(errors).items() if name.startswith("EXIT_")}
    documented = re.findall(r"^\| ([0-9]+) \|", table, re.MULTILINE)
    assert_listed(documented, sorted(used), add='docs/errors.md, "Exit codes": add the exit status {}')


def test_an_error_names_the_file_and_the_place_in_it() -> None:
    error = errors.FormatError("bad-record", "malformed", place="byte 7", why="because").in_file("/tmp/x.json")
    assert error.where == "/tmp/x.json: byte 7"
    assert str(error) == "bad-record: malformed (/tmp/x.json: byte 7)"


def test_an_offset_is_a_number_that_moves_with_what_was_parsed() -> None:
    error = errors.FormatError("bad-archive", "damaged", place=124, why="because")
    assert (error.place, error.behind(512).offset, error.behind(512).place) == ("byte 124", 636, "byte 636")


def test_errors_inside_a_file_name_it() -> None:
    with pytest.raises(errors.FormatError) as caught, errors.in_file("/tmp/x.sif"):
        raise errors.FormatError("bad-sif", "damaged", place=7)
    assert (caught.value.where, caught.value.offset) == ("/tmp/x.sif: byte 7", 7)


def subclasses(kind: type[errors.GpubindError]) -> list[type[errors.GpubindError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in subclasses(child))]


def filled(kind: type[errors.GpubindError]) -> errors.GpubindError:
    """Return an error of *kind*, with a value of its own for each parameter of its class."""
    values: dict[str, object] = {"found": True, "offset": 7}
    parameters = inspect.signature(kind).parameters
    return kind(**{name: values.get(name, f"its {name}") for name in parameters})  # type: ignore[arg-type]


COPIES: dict[str, Callable[[errors.GpubindError], errors.GpubindError]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))  # type: ignore[misc]
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", subclasses(errors.GpubindError), ids=lambda kind: kind.__name__)
def test_a_copy_of_an_error_has_all_its_fields(kind: type[errors.GpubindError], how: str) -> None:
    error = filled(kind)
    made = COPIES[how](error)
    assert type(made) is kind
    assert vars(made) == vars(error)
    assert {"code", "what", "where", "why", "hint"} <= set(vars(made))
    assert (str(made), made.args, made.exit_code) == (str(error), error.args, error.exit_code)


def facts_of(reference: str) -> str:
    return gpubind.open_image(reference).facts.kind


def test_an_error_of_one_task_reaches_the_caller_and_a_pool_of_processes_goes_on(tmp_path: Path) -> None:
    (tmp_path / "torn.sif").write_bytes((ROOT / "docs/examples/cuda13.sif").read_bytes()[:200])
    images = [str(ROOT / "docs/examples/cuda13.sif"), f"{tmp_path}/none", f"{tmp_path}/torn.sif"]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        right, none, torn, after = [pool.submit(facts_of, image) for image in (*images, images[0])]
        assert (right.result(), after.result()) == ("sif", "sif")
        missing, damaged = none.exception(), torn.exception()
    assert isinstance(missing, errors.HostReadError)
    assert (missing.code, missing.where, missing.why) == ("no-image", images[1], "it does not exist")
    assert isinstance(damaged, errors.FormatError)
    assert damaged.place
    assert damaged.where == f"{images[2]}: {damaged.place}"


def test_too_little_memory_is_an_error_of_its_own_and_no_bug() -> None:
    """The least memory that suffices differs between Pythons, so the test searches for it.

    With still less, CPython ends by itself, or raises errors of its own that do not tell of memory.
    """
    environ = {**os.environ, "GPUBIND_MEMO": "off", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "gpubind", "plan", "--nv", "--host", "debian13-nvidia550", "--json"]
    told = set()
    for limit in range(13_000, 80_000, 500):  # KiB, set by a shell: a fork of this process is larger
        limited = ["sh", "-c", f'ulimit -v {limit}; exec "$@"', "sh", *command]
        done = subprocess.run(limited, capture_output=True, text=True, env=environ, check=False)
        if done.returncode == 0:
            break
        assert "error: bug: MemoryError" not in done.stderr
        if "error: no-memory: " in done.stderr:
            told.add(done.returncode)
    assert 4 in told


@pytest.mark.parametrize("kind", subclasses(errors.GpubindError), ids=lambda kind: kind.__name__)
def test_what_an_error_is_not_given_is_empty(kind: type[errors.GpubindError]) -> None:
    required = {"found": False} if kind is errors.CommandError else {}
    error = kind("code", "what", **required)  # type: ignore[arg-type]
    fields = {"code": "code", "what": "what", "where": "", "why": "", "hint": ""}
    more: dict[type[errors.GpubindError], dict[str, object]] = {
        errors.CheckError: {"findings": ()},
        errors.CommandError: {"exit_code": 127},
        errors.FormatError: {"place": "", "offset": None},
    }
    own = next((members for base, members in more.items() if issubclass(kind, base)), {})
    assert vars(error) == {**fields, **own}
    assert (str(error), error.args) == ("code: what", ("what",))


def test_a_command_that_was_found_and_is_not_executable_has_a_status_of_its_own() -> None:
    assert [errors.CommandError("c", "w", found=found).exit_code for found in (True, False)] == [126, 127]


def test_a_hint_has_two_similar_names_at_most_and_then_all() -> None:
    names = ("apptainer", "apptainer2", "apptainer3", "docker")
    assert errors.suggest_known(names, "APPTAINER1").startswith("did you mean `apptainer")
    assert errors.did_you_mean(names, "apptainer1").count("`") == 4
    assert errors.suggest_known(iter(["docker", "podman"]), "Dokcer") == "did you mean `docker`? known: docker, podman"
    assert errors.suggest_known(["docker", "podman"], "x") == "known: docker, podman"
    assert errors.did_you_mean(["abc", "abd"], "abe") == "did you mean `abd` or `abc`? "


def texts(error: errors.GpubindError) -> tuple[str, ...]:
    return (error.code, error.what, error.where, error.why, error.hint)


def test_errors_that_several_readers_raise_have_whole_texts() -> None:
    assert texts(errors.unknown_format("jsno", ("json", "yaml"))) == (
        *("unknown-format", "unknown format `jsno`", "", "", "did you mean `json`? known: json, yaml"),
    )
    hint = "`pipx inject gpubind python-Zstd`, in a virtual environment `pip install python-Zstd`, or python3-zstd"
    assert texts(errors.missing_package("python-Zstd", "this image", "x.sif")) == (
        *("missing-package", "the Python package `python-Zstd` is needed for this image", "x.sif", ""),
        f"{hint} of the distribution",
    )
    assert texts(errors.closed_error("x.sif")) == (
        *("closed", "an image or a host is used after it was closed", "x.sif", ""),
        "open it again, or close it later",
    )
    assert errors.UsageError("c", "w").field == ""
    assert errors.UsageError("c", "w").about("gpus").field == "gpus"


def test_a_damaged_file_is_named_by_an_offset_a_key_or_as_a_whole() -> None:
    kind = errors.Format("bad-x", "malformed x", "make it again")
    wholes = [kind.damaged("why", place, hint) for place, hint in ((0, ""), ("a.b", "look"), ("", ""))]
    assert [(*texts(error), error.place, error.offset) for error in wholes] == [
        ("bad-x", "malformed x", "byte 0", "why", "make it again", "byte 0", 0),
        ("bad-x", "malformed x", "a.b", "why", "look", "a.b", None),
        ("bad-x", "malformed x", "the whole document", "why", "make it again", "the whole document", None),
    ]
    moved = errors.Format("bad-x", "malformed x").damaged("why").behind(7)
    assert (*texts(moved), moved.offset) == ("bad-x", "malformed x", "byte 7", "why", "", 7)
    inside = errors.FormatError("c", "w", hint="h").in_file("/x")
    assert (*texts(inside), inside.place, inside.offset) == ("c", "w", "/x", "", "h", "", None)
    assert texts(errors.IMAGE_BOMB.damaged("y"))[:2] == ("image-bomb", "the image unpacks to far more than images do")
