"""What the parser of the command line finds wrong has the form and the codes of every other error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.main import OWN_CODES
from tests.support.commands import gpubind
from tests.test_help import help_of


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("pln", "unknown-command", "did you mean `plan`"),
        ("plan --hots x", "unknown-option", "did you mean `--host`"),
        ("exec --nvv image true", "unknown-option", "did you mean `--nv`"),
        ("--bogus", "unknown-option", "gpubind has no option `--bogus`"),
        ("record", "missing-argument", "gpubind record: --output is missing"),
        ("exec", "missing-argument", "IMAGE"),
        ("completion", "missing-argument", "bash|zsh|fish"),
        ("plan --caps", "wrong-use", "gpubind plan: option '--caps' requires an argument"),
        ("plan --nv=3", "wrong-use", "gpubind plan: option '--nv' does not take a value"),
        ("plan word", "wrong-use", "(word)"),
    ],
)
def test_wrong_use_has_a_code_a_hint_and_exit_2(words: str, code: str, said: str) -> None:
    done = gpubind(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {code}: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 2
    assert "--help` lists the options\n" in done.stderr or code == "unknown-command"


PRINT_JSON = {
    name
    for name in MODULES
    if "--json" in {option.name for option in command_of(name).own_options} and not command_of(name).remote
}


@pytest.mark.parametrize("command", sorted(PRINT_JSON))
def test_where_json_is_asked_for_wrong_use_is_json_too(command: str) -> None:
    document = json.loads(gpubind(command, "--json", "--jsn").stdout)
    assert (document["schema"], document["code"], document["exit"]) == ("gpubind.error/1", "unknown-option", 2)


def test_without_a_command_help_is_shown_and_the_exit_code_says_that_nothing_was_done() -> None:
    done = gpubind()
    assert (done.returncode, done.stdout, done.stderr) == (2, "", help_of("", 80))


MEANT = [
    ("check --nv IMG python3", "check --nv --image IMG --program python3"),
    ("check --nv app.sif", "check --nv --image app.sif"),
    ("check app.sif python3 train.py --lr 3", "check --image app.sif --program python3"),
    ("check --image app.sif python3", "check --image app.sif --program python3"),
    ("check --gpu 0", "check --gpus 0"),
    ("check --gpu=0 IMG", "check --gpus=0 --image IMG"),
    ("check --nvidia", "check --nv"),
    ("plan app.sif", "plan --image app.sif"),
    ("record host.json", "record --output host.json"),
    ("exec --nv -B /scratch IMG CMD", "exec --nv -- -B /scratch IMG CMD"),
    ("exec -B /scratch --nv IMG CMD -x", "exec --nv -- -B /scratch IMG CMD -x"),
    ("exec --nv --bind /scratch:/data IMG CMD", "exec --nv -- --bind /scratch:/data IMG CMD"),
    ("exec --nv -B /scratch -- IMG CMD", "exec --nv -- -B /scratch IMG CMD"),
    ("exec --env A=1 IMG CMD", "exec -- --env A=1 IMG CMD"),
    ("exec -e A=1 IMG CMD", "exec -- -e A=1 IMG CMD"),
    ("exec --contain IMG ls", "exec -- --contain IMG ls"),
    ("exec --rm -it IMG ls", "exec -- --rm -it IMG ls"),
    ("run --rm -it IMG", "run -- --rm -it IMG"),
    ("exec --backend podman --userns keep-id IMG ls", "exec --backend podman -- --userns keep-id IMG ls"),
    ("exec --backend bwrap --bind /a /b DIR ls", "exec --backend bwrap -- --bind /a /b DIR ls"),
    ("--nv exec IMG ls", "exec --nv IMG ls"),
    ("--nv exec -B /scratch IMG ls", "exec --nv -- -B /scratch IMG ls"),
    ("--nv exec IMG", "exec --nv IMG"),
    ("--json plan --nv", "plan --json --nv"),
    ("--image=IMG --program sh check --nv", "check --image=IMG --program sh --nv"),
    ("-q --json --host debian13-nvidia550 plan", "plan -q --json --host debian13-nvidia550"),
    ("--nv image.sif", "run --nv image.sif"),
    ("--gpus all X", "run --gpus all X"),
    ("--gpus=all X ls", "exec --gpus=all X ls"),
    ("--nv", "plan --nv"),
    ("app.sif nvidia-smi", "exec app.sif nvidia-smi"),
    ("apptainer exec --nv a.sif x", "wrap -- apptainer exec --nv a.sif x"),
    ("docker run --gpus all x", "wrap -- docker run --gpus all x"),
    ("-v", "--version"),
    ("version", "--version"),
    ("check --image a.sif b.sif", "check --image a.sif --image b.sif"),
    ("plan nvidia", "plan --nv"),
    ("plan --nv amd", "plan --nv --rocm"),
]


@pytest.mark.parametrize(("words", "line"), MEANT)
def test_the_hint_is_the_line_that_was_meant(words: str, line: str) -> None:
    done = gpubind(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert f"did you mean `gpubind {line}`?" in done.stderr


@pytest.mark.parametrize("line", sorted({line for _, line in MEANT}))
def test_a_line_that_is_proposed_is_no_wrong_use(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = gpubind(*line.split())
    about = (
        "unknown-gpu",
        "no-command",
    )  # this machine may have none; the line that it is proposed for has none either
    assert done.returncode != 2 or done.stderr.startswith(tuple(f"error: {code}: " for code in about))


@pytest.mark.parametrize(
    "words", ["exec --bogus IMG CMD", "check img.sif --program", "check --bogus x IMG", "pln", "exec", "plan --hots x"]
)
def test_no_line_is_proposed_where_none_is_known(words: str) -> None:
    assert "did you mean `gpubind" not in gpubind(*words.split()).stderr


@pytest.mark.parametrize(
    ("words", "same"), [("help", "--help"), ("help exec", "exec --help"), ("-- help fleet", "fleet -h")]
)
def test_help_is_a_command_too(words: str, same: str) -> None:
    done = gpubind(*words.split())
    assert (done.returncode, done.stdout, done.stderr) == (0, gpubind(*same.split()).stdout, "")


def test_help_for_an_unknown_command_names_that_command() -> None:
    assert gpubind("help", "foo").stderr.startswith("error: unknown-command: unknown command `foo`\n")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("exec docker run --gpus all img", "did you mean `gpubind wrap -- docker run --gpus all img`?"),
        ("exec apptainer exec --nv img.sif ls", "did you mean `gpubind wrap -- apptainer exec --nv img.sif ls`?"),
        ("exec --nv podman run img", "did you mean `gpubind wrap -- podman run img`?"),
        ("exec -v /a:/b img cmd", "`-v` is gpubind's --verbose"),
    ],
)
def test_what_cannot_be_an_image_is_wrong_use(words: str, hint: str, tmp_path: Path) -> None:
    done = gpubind(*words.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: wrong-use: ")
    assert hint in done.stderr


def test_each_command_that_starts_a_container_says_which_errors_keep_their_exit_code() -> None:
    assert {name for name in MODULES if command_of(name).starts} == set(OWN_CODES)


DRY = "--dry-run --host debian13-nvidia550"
EXEC, WRAP = f"exec {DRY} --backend apptainer /usr ls", f"wrap {DRY} -- apptainer exec --nv /usr ls"
ENDS = [
    ("exec --bogus", "", 2),
    ("wrap --bogus", "", 2),
    ("exec --backend bogus IMAGE ls", "", 2),
    (f"wrap --caps bogus {DRY} -- apptainer exec --nv /usr ls", "", 125),
    ("wrap -- bogus", "", 125),
    ("wrap --json -- apptainer exec --nv IMAGE ls", "", 2),
    ("oci-runtime --runtime bogus -- create ID", "", 125),
    ("oci-runtime", "", 2),
    *((line, "config", 125) for line in (EXEC, f"-- {EXEC}", WRAP, "oci-runtime -- create ID")),
    ("plan --host debian13-nvidia550", "config", 5),
    (EXEC, ">/dev/full", 125),
    (WRAP, ">/dev/full", 125),
    (EXEC, ">&-", 120),
    (WRAP, ">&-", 120),
]
"""Command lines, what is wrong beside them, and their exit codes."""


@pytest.mark.parametrize(("line", "around", "status"), ENDS)
def test_what_keeps_a_container_from_being_started_ends_with_125_but_for_wrong_use(
    line: str, around: str, status: int, tmp_path: Path
) -> None:
    if around == "config":
        (tmp_path / "gpubind").mkdir()
        (tmp_path / "gpubind" / "config.toml").write_text("bogus = 1")
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "GPUBIND_MEMO": "off",
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    shell = f"{sys.executable} -m gpubind {line} {around if around != 'config' else ''}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, env=environ, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr.startswith("error: ")) == (status, True)
