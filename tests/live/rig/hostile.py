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
IN_CONTAINER = "cd /.gpubind/libs 2> /dev/null || cd /.singularity.d/libs; sha256sum libcuda.so.1 libnvidia-ml.so.1"


def main(backend: str, image: str, words: list[str]) -> None:
    base = os.fsencode(tempfile.mkdtemp(prefix="gpubind-hostile-"))
    try:
        tree = base + b"/tree"
        os.makedirs(tree + b"/usr/lib64")
        for library in LIBRARIES:
            shutil.copy(f"{DRIVER}/{library}", tree + b"/usr/lib64/" + library.encode())
            os.symlink(library, tree + b"/usr/lib64/" + library.partition(".so")[0].encode() + b".so.1")
        report = {}
        for name in NAMES:
            os.rename(tree, base + b"/" + name)
            tree = base + b"/" + name
            report[ascii(name)] = started(backend, image, words, tree)
        json.dump(report, sys.stdout)
    finally:
        shutil.rmtree(base)


def started(backend: str, image: str, words: list[str], root: bytes) -> dict[str, object]:
    """What becomes of a container that gets the driver in *root*."""
    gpubind = [sys.executable, "-m", "gpubind", "exec", "--backend", backend, *words, "--root", root, "--dev-root", "/"]
    done = subprocess.run([*gpubind, image, "sh", "-c", IN_CONTAINER], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    want = {}
    for link in sorted(glob.glob(glob.escape(root) + b"/usr/lib64/*.so.1")):
        with open(link, "rb") as file:
            want[os.path.basename(link).decode()] = hashlib.sha256(file.read()).hexdigest()
    seen = dict(reversed(line.split()) for line in done.stdout.decode().splitlines())
    same = sorted(name for name, value in want.items() if seen.get(name) == value)
    return {
        "status": done.returncode,
        "said": done.stderr.decode("utf-8", "backslashreplace"),
        "same": same,
        "other": sorted(set(want) - set(same)),
        "root": ascii(root)[2:-1],
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
