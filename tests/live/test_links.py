"""A directory of links serves a program on a machine whose loader knows nothing of the driver."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.machine import DRIVER, Machine
from tests.support.commands import gpubind

pytestmark = pytest.mark.live

LOADS = """
import ctypes, sys
for name in sys.argv[1:]:
    ctypes.CDLL(name)
print(ctypes.CDLL("libcuda.so.1").cuInit(0))
print(next(line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so" in line))
"""
SELF_SUFFICIENT = ("libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1")


def test_programs_find_the_driver_by_the_directory_alone(trixie: Machine, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot open shared object file"):
        ctypes.CDLL("libcuda.so.1")
    directory = str(tmp_path / "driver")
    done = gpubind("plan", "--nv", "--root", trixie.root, "--format", "links", "-o", directory)
    assert done.returncode == 0, done.stderr
    assert all(os.path.isfile(f"{directory}/{name}") for name in os.listdir(directory))
    # As root libcuda makes /dev/nvidiactl where there is none: here in a /dev that ends with the program.
    command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev && exec "$@"', "sh"]
    command += [sys.executable, "-c", LOADS, *SELF_SUFFICIENT]
    environ = {**os.environ, "LD_LIBRARY_PATH": directory}
    loaded = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert loaded.stdout.splitlines()[0] == "100", loaded.stderr  # CUDA_ERROR_NO_DEVICE: the driver itself answers
    assert loaded.stdout.splitlines()[1].startswith(trixie.root)
    assert loaded.stdout.splitlines()[1].endswith(f"libcuda.so.{DRIVER}")
