"""Wrong command lines, variables and configuration files: each error word for word, with its exit code."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gpubind.cli.main import main
from tests.support.golden import GOLDEN, assert_golden

LINES: Mapping[str, str] = {
    "reader": """
        plan --nb
        plan --nvidia
        plan --image
        plan --nv=yes
        plan -ox -qz
        plan -q-
        plan a b
        plan a
        plan --image a --image b
        plan --json --format tsv
        plan --root / --root /
        plan --format nothing
        plan --source nothing
        record
        record a
        wrap
        wrap apptainer --nope
        exec
        exec --nv
        diff
        completion
        completion tcsh
        cdi
        cdi show
        setup
        setup lxc
        install-shims
        needs
        needs --bogus a.sif
        fleet check
        fleet list -w a
        fleet check -w a --engine ssh
        nothing
        chekc
        --version=1
        --help=1
        --verson
        -z
    """,
    "suggestions": """
        --nv plan
        --nv
        --nv app.sif
        --nv app.sif true
        app.sif
        app.sif true
        docker run --gpus all ubuntu
        /usr/bin/apptainer exec --nv a.sif true
        version x
        plan --gpu 0
        plan --gpu=0
        plan --amd
        plan nvidia
        plan amd --bogus
        plan app.sif
        check app.sif
        check app.sif /bin/true
        check a.sif b.sif
        check --image a.sif b.sif
        check --image a.sif true
        check a true --flag
        check --bogus x app.sif
        record node.json
        exec -B /scratch app.sif true
        exec --nv -B /scratch app.sif true
        exec --backend docker -e A=b image true
        exec -e A=b image true
        exec --backend apptainer --rm image true
        exec --bogus image true
        run --rm image
        shell --bind a:b -- image
    """,
    "plan": """
        plan --format sh
        plan --format json --format tsv
        plan --format docker --format podman --format sh
        plan --backend-arg x
        plan --cdi-hook x
        plan --allow-none
        plan --like apptainer --format docker
        plan --like apptainer --format cdi
        plan --like nothing
        plan --format cdi --cdi-hook /nonexistent
        plan --format cdi --cdi-hook true
        plan --nv --host debian13-nvidia550 --caps sound
        plan --nv --host debian13-nvidia550 --gpus 7
        plan --host debian13-nvidia551
        plan --host /nonexistent
        plan --image /nonexistent
        plan --host mi300x-rocm62 --nv
        plan --host mi300x-rocm62 --nv --format links -o out
    """,
    "check": """
        check --quiet --format json
        check --format slurm --image a --image b
        check --format prometheus --host a --host b
        check --program= --image a
        check --require a
        check --expect a --like apptainer
        check --require a --image b --host x
        check --require a --image b --expect x
        check --require a --image b --nv
        check --require a --image b --try
        check --try
        check --only nothing
        check --ignore nothing
        check --ignore uvm-mising
        check --as-user nobody-of-this-name
    """,
    "others": """
        explain x --format dot
        explain x --tree --json --format dot
        explain x --tree --format nothing
        explain --tree
        explain ./nothing.log
        explain nothing-of-this-name --host debian13-nvidia550
        diff x --snapshot --format text
        diff /nonexistent
        needs x --program=
        needs /nonexistent
        wrap --json -- apptainer exec
        wrap -- nothing-of-this-name run
        exec apptainer exec x.sif
        exec -v /a:/b x.sif true
        exec --host debian13-nvidia550 x.sif true
        exec x.sif
        shell x.sif extra
        exec --backend nothing x.sif true
        cdi list --cdi-dir /nonexistent --cdi-dir /none2
        gpus --host /nonexistent
        install-shims --remove /nonexistent
        setup docker --name 'a b'
        setup containerd --default
        setup docker --runtime a/b
        setup docker --runtime=
    """,
    "fleet": """
        fleet record -w a
        fleet record -w a -o x --format html
        fleet check -w a -o x --json
        fleet check -w a --timeout 0
        fleet check -w a --timeout 99999x
        fleet check -w a --timeout ''
        fleet check -w a --fanout 100000
        fleet plan -w a --only x
        fleet diff -w a --strict
        fleet check -w ''
        fleet check -w a --engine slurm
    """,
}
PLAN = "plan --nv --host debian13-nvidia550 --format tsv -o plan.tsv"
VARIABLES = {
    "GPUBIND_CHECK": ("maybe", "exec --dry-run x true"),
    "GPUBIND_BACKEND": ("nothing", "exec --dry-run x true"),
    "GPUBIND_SOURCE": ("nothing", PLAN),
    "GPUBIND_GPUS": ("99", PLAN),
    "GPUBIND_CAPS": ("sound", PLAN),
    "SOURCE_DATE_EPOCH": ("x" * 101, "check --host debian13-nvidia550 --format html"),
}
"""Each with its value, and a line that uses it."""
CONFIGURATIONS = (
    "nothing = 1",
    "cap = 'compute'",
    "caps = 1",
    "caps = ['compute']",
    "library-path = 'a'",
    "library-path = [1]",
    "check = 'yes'",
    "gpus = 0",
    "[gpus]\na = 1",
    "ignore = 'x'",
    "[ignore]\nuvm-missing = 1",
    "[ignore]\nnothing = 'why'",
    "severity = 'x'",
    "[severity]\nuvm-missing = 'eror'",
    "[severity]\nnothing = 'error'",
    "require = 'x'",
    "[require]\nnothing = 1",
    "[require]\ndriver = 1",
    "source = 'nothing'",
    "caps = 'sound'",
)


Tell = Callable[[str, Mapping[str, str]], str]


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tell:
    """Return a transcript of a line: what it says, and its exit code. No program is in PATH, so nothing starts."""

    def told(line: str, environ: Mapping[str, str]) -> str:
        for name in [*os.environ]:
            monkeypatch.delenv(name)
        for name, value in {"PATH": "/nonexistent", "COLUMNS": "80", "GPUBIND_MEMO": "off", **environ}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        status = main(shlex.split(line))
        out, err = capfd.readouterr()
        shown = err if out.startswith("{") else out + err
        return f"$ gpubind {line}\n{shown}[{status}]\n".replace(str(tmp_path), "DIRECTORY")

    return told


@pytest.mark.parametrize("part", LINES)
def test_a_wrong_line_has_the_error_of_its_golden_file(part: str, tell: Tell) -> None:
    shown = [tell(line.strip(), {}) for line in LINES[part].strip().splitlines()]
    assert_golden(GOLDEN / "wrong_lines" / f"{part}.txt", "\n".join(shown))


def test_a_wrong_variable_has_the_error_of_its_golden_file(tell: Tell) -> None:
    shown = [f"{name}={value}\n{tell(line, {name: value})}" for name, (value, line) in VARIABLES.items()]
    assert_golden(GOLDEN / "wrong_lines" / "variables.txt", "\n".join(shown))


def test_a_wrong_configuration_has_the_error_of_its_golden_file(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "gpubind").mkdir()
    shown = []
    for text in CONFIGURATIONS:
        (tmp_path / "gpubind" / "config.toml").write_text(text + "\n")
        line = "check --nv --host debian13-nvidia550 -q"
        shown.append(f"{text}\n{tell(line, {'XDG_CONFIG_HOME': str(tmp_path)})}")
    assert_golden(GOLDEN / "wrong_lines" / "configuration.txt", "\n".join(shown))
