"""The host check, without an image, beside what the loader does with the same files of a real driver."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.live.machine import DRIVER, Bind, Machine

pytestmark = pytest.mark.live

DIRECTORY = "/usr/lib/x86_64-linux-gnu/nvidia/current"
OPEN = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
NAMES = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-encode.so.1")


def line(machine: Machine, *binds: Bind) -> str:
    done = machine.run(
        ["sh", "-c", "python3 -m gpubind check --nv --gpus all --format slurm || [ $? = 1 ]"],
        driver=True,
        binds=[*machine.modules, *binds],
        env={"PYTHONPATH": "/srv/gpubind:/srv/python", "PYTHONDONTWRITEBYTECODE": "1", "GPUBIND_MEMO": "off"},
    )
    return done.stdout.strip()


def opens(machine: Machine, name: str, *binds: Bind) -> bool:
    """Whether a process that opens *name* lives on: a truncated library ends it with SIGBUS."""
    command = ["sh", "-c", 'python3 -c "$0" "$1" 2>/dev/null && echo opened || true', OPEN, name]
    env = {"LD_LIBRARY_PATH": DIRECTORY}
    return machine.run(command, driver=True, binds=binds, env=env).stdout == "opened\n"


def test_a_good_node_has_no_error(trixie: Machine) -> None:
    assert line(trixie).startswith(("gpubind: ok", "gpubind: warning"))
    assert all(opens(trixie, name) for name in NAMES)


@pytest.mark.parametrize("part", [0.9, 0.1, 4096, 60, 20, 0])
@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_library_is_an_error_as_it_is_for_the_loader(
    trixie: Machine, name: str, part: float, tmp_path: Path
) -> None:
    file = f"{name[:-1]}{DRIVER}"
    data = Path(f"{trixie.root}{DIRECTORY}/{file}").read_bytes()
    broken = tmp_path / file
    broken.write_bytes(data[: int(part if part > 1 else len(data) * part)])
    bind = Bind(str(broken), f"{DIRECTORY}/{file}")
    assert not opens(trixie, name, bind)
    assert f"({name[:-2]}" in line(trixie, bind)
    assert "warning" not in line(trixie, bind)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_in_the_place_of_a_library_and_one_that_only_root_may_read_are_errors(
    trixie: Machine, name: str, tmp_path: Path
) -> None:
    file = f"{name[:-1]}{DRIVER}"
    program, closed = Bind(f"{trixie.root}/bin/true", f"{DIRECTORY}/{file}"), tmp_path / file
    assert not opens(trixie, name, program)
    assert line(trixie, program) == f"gpubind: library-unreadable({name})"
    closed.write_bytes(Path(f"{trixie.root}{DIRECTORY}/{file}").read_bytes())
    os.chmod(closed, 0)
    assert line(trixie, Bind(str(closed), f"{DIRECTORY}/{file}")) == f"gpubind: library-unreadable({name})"
