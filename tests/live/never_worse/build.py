"""Makes the images and files that the starts need, below $GPUBIND_RIG/never-worse; what is there already is kept."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from typing import Callable

from tests.live.machine import INSIDE_CONTAINERS, RIG, Bind, Machine
from tests.live.never_worse.recipes import COMPAT, IMAGES, OLD, OWN, STUB, Image, Step

HERE = os.path.dirname(os.path.abspath(__file__))
MADE = f"{RIG}/never-worse"
INSIDE_MADE = "/srv/nw"
FILES = f"{MADE}/files"
LIBRARIES = {
    STUB: f"{FILES}/stub/libcuda.so.1",
    OLD: f"{RIG}/hosts/nv535/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.535.261.03",
    COMPAT: f"{FILES}/libcuda.so.580.65.06",
    OWN: f"{FILES}/own/libown.so.1",
}
"""Where the libraries are that recipes copy."""

_STUB_SOURCE = "int cuInit(unsigned flags) { return 34; }\nint cuDriverGetVersion(int *v) { *v = 12040; return 0; }\n"
"""As NVIDIA's stubs answer: CUDA_ERROR_STUB_LIBRARY."""
_OWN_SOURCE = "int own(void) { return 1; }\n"
_OVERLAID = f"{FILES}/overlay/upper/opt/own/overlaid"
_TEXTS = {
    f"{FILES}/data/marker": "",
    f"{FILES}/data/file": "",
    f"{FILES}/a,b/marker": "",
    f"{FILES}/env": 'FROM_FILE=1\nexport FOO="of the file"\nOMP_NUM_THREADS=5\n',
    f"{FILES}/env-gpu": "CUDA_VISIBLE_DEVICES=1\nLD_LIBRARY_PATH=/opt/own/lib:/opt/z\n",
    _OVERLAID: "",
}
_NOTE = b'{"CUDA version": "13.0", "driver": [535, 550, 560, 565, 570, 575]}\0'
"""What a forward-compatibility libcuda says of itself."""


def build(machine: Machine) -> None:
    """Make everything that is not there."""
    os.makedirs(MADE, exist_ok=True)
    with open(f"{MADE}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(f"{FILES}/done-{_digest(_TEXTS, _NOTE, _STUB_SOURCE)}"):
            _files()
        for image in IMAGES:
            if image.steps and not os.path.isdir(tree(image)):
                _tree(image)
            if image.sif and not os.path.exists(sif(image)):
                _sif(machine, image)


def path(image: Image, kind: str) -> str:
    """Where the image is, as the machine sees it."""
    real = sif(image) if kind == "SIF" else tree(image)
    inside = (f"{MADE}/", f"{INSIDE_MADE}/") if real.startswith(f"{MADE}/") else (f"{RIG}/ct/", f"{INSIDE_CONTAINERS}/")
    return real.replace(*inside, 1)


def tree(image: Image) -> str:
    """The image's root file system: the base itself where nothing is changed."""
    return f"{MADE}/images/{_name(image)}" if image.steps else f"{RIG}/ct/{image.base}"


def sif(image: Image) -> str:
    return f"{MADE}/images/{_name(image)}.sif" if image.steps else f"{RIG}/ct/{image.base[: -len('-sb')]}.sif"


def binds() -> Iterable[Bind]:
    """What the machine needs to see."""
    return Bind(MADE, INSIDE_MADE, readonly=False), Bind(f"{RIG}/ct", INSIDE_CONTAINERS)


def _name(image: Image) -> str:
    """Plain characters of its name, and a digest of all that it is made of."""
    plain = "".join(c if c.isalnum() else "-" for c in image.name).strip("-")
    base = os.stat(f"{RIG}/ct/{image.base}")
    return f"{plain}-{_digest(image, base.st_ino, base.st_mtime_ns, _NOTE, _STUB_SOURCE)}"


def _digest(*facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:8]


def _files() -> None:
    shutil.rmtree(FILES, ignore_errors=True)
    for where, text in _TEXTS.items():
        os.makedirs(os.path.dirname(where), exist_ok=True)
        with open(where, "w") as file:
            file.write(text)
    os.makedirs(f"{FILES}/overlay/work", exist_ok=True)
    os.makedirs(f"{FILES}/work", exist_ok=True)
    os.chmod(f"{FILES}/work", 0o777)
    _compiled(_STUB_SOURCE, LIBRARIES[STUB])
    os.symlink("libcuda.so.1", f"{FILES}/stub/libcuda.so")
    _compiled(_OWN_SOURCE, LIBRARIES[OWN])
    owner = b"NVIDIA Corporation\0".ljust(20, b"\0")
    with open(f"{FILES}/note", "wb") as file:
        file.write(
            b"".join(n.to_bytes(4, "little") for n in (19, len(_NOTE), 1)) + owner + _NOTE.ljust(-len(_NOTE) % 4)
        )
    section = f".note.cuda.fwd_compatibility={FILES}/note"
    subprocess.run(["objcopy", "--add-section", section, LIBRARIES[OLD], LIBRARIES[COMPAT]], check=True)
    with open(f"{FILES}/done-{_digest(_TEXTS, _NOTE, _STUB_SOURCE)}", "w"):
        pass


def _compiled(source: str, target: str) -> None:
    """A library of that C, which needs nothing."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    soname = f"-Wl,-soname,{os.path.basename(target)}"
    command = ["cc", "-shared", "-fPIC", "-O2", "-nostdlib", soname, "-o", target, "-x", "c", "-"]
    subprocess.run(command, input=source, text=True, check=True)


def _tree(image: Image) -> None:
    """The base in hard links, with the change in it; files of the base are replaced, never written to."""
    making = f"{MADE}/making"
    shutil.rmtree(making, ignore_errors=True)
    subprocess.run(["cp", "-al", f"{RIG}/ct/{image.base}", making], check=True)
    for step in image.steps:
        _VERBS[step.verb](making, step)
    os.makedirs(f"{MADE}/images", exist_ok=True)
    os.rename(making, tree(image))


def _place(root: str, step: Step) -> str:
    """The path of the step below *root*, with nothing there and its directory made."""
    place = root + step.path
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.lexists(place):
        os.remove(place)
    return place


def _write(root: str, step: Step) -> None:
    with open(_place(root, step), "w") as file:
        file.write(step.content)
        os.fchmod(file.fileno(), 0o755)


def _copy(root: str, step: Step) -> None:
    os.link(LIBRARIES[step.content], _place(root, step))


def _link(root: str, step: Step) -> None:
    os.symlink(step.content, _place(root, step))


def _run(root: str, step: Step) -> None:
    subprocess.run(["/usr/sbin/chroot", root, step.path], check=True)


_VERBS: dict[str, Callable[[str, Step], object]] = {
    "write": _write,
    "copy": _copy,
    "link": _link,
    "remove": _place,
    "run": _run,
}


def _sif(machine: Machine, image: Image) -> None:
    command = ["apptainer", "build", path(image, "SIF"), path(image, "sandbox")]
    machine.run(command, binds=binds())
