"""inside.py   what a container got from its host: mounted, loaded, tried; as JSON. For use inside a container.

`mounts`       each mount of the driver's: its options, and what opening it for writing says
`status`       what the driver says (cuInit 100 is "no device", nvmlInit 9 "driver not loaded"), and nvidia-smi's exit
`unloadable`   the libraries in the driver's directory that dlopen refuses, and why; `libraries`: all of them
`unlinked`     the driver's programs for which the loader does not find everything, and what
`opened`       what opening those libraries for writing says
`devices`      each GPU node: what opening it says; ENXIO is "there and usable, but no driver owns it"
"""

from __future__ import annotations

import ctypes
import errno
import glob
import json
import os
import re
import subprocess
import sys
import time
from typing import Optional

DIRECTORIES = ("/.gpubind/libs", "/.singularity.d/libs")
NODES = ("/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/dri/*", "/dev/kfd")
LOADER = "/lib64/ld-linux-x86-64.so.2"


def main() -> None:
    mounts = driver_mounts()
    libraries = sorted(path for directory in DIRECTORIES for path in glob.glob(f"{directory}/*.so*"))
    refused = {os.path.basename(path): why_not(path) for path in libraries}
    programs = [path for path in mounts if re.search(r"/s?bin/", path)]
    linked = {path: missing(path) for path in programs}
    report = {
        "environ": {name: os.environ.get(name) for name in ("LD_LIBRARY_PATH", "PATH")},
        "mounts": {path: [options, opened(path)] for path, options in mounts.items()},
        "status": {
            "cuInit": called("libcuda.so.1", "cuInit", 0),
            "nvmlInit": called("libnvidia-ml.so.1", "nvmlInit_v2"),
            "nvidia-smi": exit_of("nvidia-smi"),
        },
        "libraries": list(refused),
        "opened": sorted({opened(path) for path in libraries}),
        "unloadable": {name: why for name, why in refused.items() if why},
        "unlinked": {path: lines for path, lines in linked.items() if lines},
        "devices": {path: opened(path) for path in nodes()},
    }
    json.dump(report, sys.stdout, indent=1)
    sys.stdout.write("\n")


def driver_mounts() -> dict[str, str]:
    """Mount point -> options of everything that comes from a host of the rig and is the driver's."""
    found = {}
    with open("/proc/self/mountinfo") as file:
        for line in file:
            _, _, _, root, point, options = line.split()[:6]
            match = re.search(r"/hosts/\w+(/.*)", root)
            if match and match[1].startswith(("/usr/", "/etc/OpenCL/")) and "/zoneinfo/" not in root:
                found[re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), point)] = options
    return found


def opened(path: str) -> str:
    """What opening it for writing says: the name of the error, or "opened". Nothing is written."""
    for _ in range(100):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ETXTBSY:  # another container runs that program of the host's right now
                return errno.errorcode[error.errno or 0]
            time.sleep(0.1)
        else:
            return "opened"
    return "ETXTBSY"


def nodes() -> list[str]:
    return [path for pattern in NODES for path in sorted(glob.glob(pattern)) if not os.path.isdir(path)]


def called(library: str, function: str, *arguments: int) -> Optional[int]:
    """What the function answers; None if the library is not found by its name."""
    try:
        return int(getattr(ctypes.CDLL(library), function)(*arguments))
    except OSError:
        return None


def exit_of(program: str) -> Optional[int]:
    try:
        return subprocess.run([program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    except FileNotFoundError:
        return None


def why_not(path: str) -> str:
    """What the loader has against the library, in a process of its own; empty if it loads."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        why = ""
        try:
            ctypes.CDLL(path)
        except OSError as error:
            why = str(error)
        os.write(write, why.encode()[:4096])
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        why = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return why or (f"crashed: {status}" if status else "")


def missing(program: str) -> list[str]:
    """What the loader does not find for the program."""
    command = [LOADER, "--list", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    complaints = ("not found", "cannot open shared object file")
    return [line.strip() for line in done.stdout.splitlines() if any(words in line for words in complaints)]


if __name__ == "__main__":
    main()
