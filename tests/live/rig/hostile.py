"""hostile.py BACKEND IMAGE WORD...   start containers with driver roots of hostile names; what happened, as JSON.

For use on a node, which has `gpubind` as a module. Each name (as Python's ascii() writes it) has the exit status, what
was said, the names of the driver's libraries whose bytes in the container are the host's, and those whose are not.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

NAMES = (
    b"plain",
    b"two words",
    b" outer ",
    b"a,b",
    b"a:b",
    b"a^b",
    b"a=b",
    b'dou"ble',
    b"sin'gle",
    b"$HOME",
    b"$(id)",
    b"`id`",
    b"back\\slash",
    b"back\\,\\:",
    b"*[?]",
    b"new\nline",
    b"tab\there",
    b"-leading",
    b"--bind",
    b"\xff\xfe",
    "ünï".encode(),
)
LIBRARIES = ("libcuda.so.550.163.01", "libnvidia-ml.so.550.163.01")
DRIVER = "/usr/lib/x86_64-linux-gnu/nvidia/current"
IN_CONTAINER = """d=/.gpubind/libs; test -e $d/libcuda.so.1 || d=/.singularity.d/libs
test -e $d/libcuda.so.1 || d=/usr/lib/x86_64-linux-gnu
sha256sum $d/libcuda.so.1 $d/libnvidia-ml.so.1"""


def main(backend: str, image: str, words: list[str]) -> None:
    base = os.fsencode(tempfile.mkdtemp(prefix="gpubind-hostile-"))
    try:
        for library in LIBRARIES:
            shutil.copy(f"{DRIVER}/{library}".encode(), base)
        for name in NAMES:
            directory = base + b"/" + name + b"/usr/lib64/"
            os.makedirs(directory)
            for library in LIBRARIES:
                os.link(base + b"/" + library.encode(), directory + library.encode())
                os.symlink(library, directory + library.partition(".so")[0].encode() + b".so.1")
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            found = threads.map(lambda name: started(backend, image, words, base + b"/" + name), NAMES)
            json.dump({ascii(name): answer for name, answer in zip(NAMES, found)}, sys.stdout)
    finally:
        shutil.rmtree(base)


def started(backend: str, image: str, words: list[str], root: bytes) -> dict[str, object]:
    """What becomes of a container that gets the driver in *root*."""
    gpubind = [sys.executable, "-m", "gpubind", "exec", "--backend", backend, *words]
    gpubind += ["--root", os.fsdecode(root), "--dev-root", "/"]
    done = subprocess.run([*gpubind, image, "sh", "-c", IN_CONTAINER], capture_output=True)
    want = {}
    for link in sorted(glob.glob(glob.escape(root) + b"/usr/lib64/*.so.1")):
        with open(link, "rb") as file:
            want[os.path.basename(link).decode()] = hashlib.sha256(file.read()).hexdigest()
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    seen = {os.path.basename(name): value for value, name in lines}
    same = sorted(name for name, value in want.items() if seen.get(name) == value)
    return {
        "status": done.returncode,
        "said": done.stderr.decode("utf-8", "backslashreplace"),
        "same": same,
        "other": sorted(set(want) - set(same)),
        "root": os.fsencode(root).decode("utf-8", "backslashreplace"),
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
