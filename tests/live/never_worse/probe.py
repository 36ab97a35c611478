"""probe.py STATUS [WORD...]   what a program finds in a container, as JSON; ends with STATUS.

`libraries`  name -> the file that dlopen took for it, what is in that file, what the driver said; or why there is none
`nodes`      GPU node -> what opening it says; ENXIO is "there and usable, but no driver owns it"
`mounts`     mount point -> options, for each file of the driver's; null without a /proc of this process
`places`     path -> kind, whether it can be written, whether a marker is in it
`environ`, `arguments`, `directory`, `programs`: what they say

Runs by any Python from 3.9 on, with the standard library alone.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import hashlib
import json
import os
import re
import shutil
import sys
from typing import Any, Optional

NAMES = (
    "libcuda.so.1",
    "libcuda.so",
    "libnvidia-ml.so.1",
    "libnvidia-ml.so",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvcuvid.so.1",
    "libnvidia-encode.so.1",
    "libGLX_nvidia.so.0",
    "libOpenCL.so.1",
    "libGL.so.1",
    "libEGL.so.1",
    "libown.so.1",
)
NODES = ("/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/dri/*")
PLACES = ("/home/user", "/root", "/tmp", "/mnt", "/data", "/data/file", "/h", "/scratch", "/srv/nw/files", "/opt/nw")
PROGRAMS = ("nvidia-smi", "nvidia-cuda-mps-control", "nvidia-debugdump", "owntool")
SOURCE = re.compile(r"/hosts/\w+(/.*)")
"""Where a mount comes from, if it is the rig's host: the path on that host."""
RTLD_DI_LINKMAP = 2


def main(status: str, *words: str) -> None:
    report = {
        "libraries": {name: within_a_child(name) for name in NAMES},
        "nodes": {path: opened(path) for pattern in NODES for path in glob.glob(pattern) if not os.path.isdir(path)},
        "mounts": driver_mounts(),
        "places": {path: looked_at(path) for path in PLACES},
        "programs": {name: shutil.which(name) for name in PROGRAMS},
        "environ": dict(os.environ),
        "arguments": words,
        "directory": os.getcwd(),
    }
    json.dump(report, sys.stdout)
    sys.stdout.flush()
    os._exit(int(status))


def within_a_child(name: str) -> dict[str, Any]:
    """What a process of its own finds for that name: each program opens only some of them, and one may crash."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, json.dumps(loaded(name)).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    answer: dict[str, Any] = json.loads(text) if text else {"error": "crashed"}
    return answer


def loaded(name: str) -> dict[str, Any]:
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return {"error": str(error)}
    path = file_of(library)
    status = None
    if name.startswith("libcuda.so"):
        status = library.cuInit(0)
    elif name.startswith("libnvidia-ml.so"):
        status = library.nvmlInit_v2()
    return {"path": path, "real": os.path.realpath(path), "content": content(path), "status": status}


def file_of(library: ctypes.CDLL) -> str:
    """The path under which the loader found *library*: the second word of its link_map."""
    link_map = ctypes.POINTER(ctypes.c_void_p)()
    dlinfo = ctypes.CDLL(None).dlinfo
    dlinfo.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    dlinfo(library._handle, RTLD_DI_LINKMAP, ctypes.byref(link_map))
    return os.fsdecode(ctypes.string_at(link_map[1] or 0))


def content(path: str) -> str:
    """Size and beginning of the file: enough to tell one library from another."""
    with open(path, "rb") as file:
        return f"{os.path.getsize(path)}-{hashlib.sha256(file.read(1 << 18)).hexdigest()[:12]}"


def opened(path: str) -> str:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "opened"


def driver_mounts() -> Optional[dict[str, str]]:
    found = {}
    try:
        with open("/proc/self/mountinfo") as file:
            for line in file:
                _, _, _, root, point, options = line.split()[:6]
                match = SOURCE.search(root)
                if match and match[1].startswith(("/usr/lib", "/usr/bin/nv")):
                    found[point] = options
    except OSError:
        return None
    return found


def looked_at(path: str) -> list[Any]:
    kind = "directory" if os.path.isdir(path) else "file" if os.path.exists(path) else "missing"
    return [kind, os.access(path, os.W_OK), os.path.exists(f"{path}/marker")]


if __name__ == "__main__":
    main(*sys.argv[1:])
