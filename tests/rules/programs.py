"""What the commands in findings do to a host of a test: each program as its source or its manual says, and no more.

A command that is not known here is an error: it would not be followed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Optional

from gpubind.formats.driver.kernel import MIG_MINORS, parse_devices, parse_mig_minors
from gpubind.formats.driver.mknod import capability_file
from tests.support.driver import V, cache
from tests.support.trees import Dir, File, Item, Node

Files = dict[str, Item]
MAJORS = {"nvidia-uvm": 235, "nvidia-fs": 511, "nvidia": 195}
"""What the kernel gives to a driver that is loaded anew."""


def run(command: str, files: Files, environ: dict[str, str]) -> None:
    """Do to *files* and *environ* what *command* would do. Errors: `KeyError` for a program that is not known."""
    redirected = re.fullmatch(r"(printf|echo) '(.*)' > (\S+)", command)
    if redirected:
        files[redirected.group(3)] = redirected.group(2).replace("\\n", "\n")
        return
    command = re.sub(r"\$\(tr : ' ' < (\S+)\)", lambda match: _number(files, match.group(1)), command)
    for one in re.split(r" && |; ", command):
        words = shlex.split(one)
        PROGRAMS[words[0]](words[1:], files, environ)


def _number(files: Files, path: str) -> str:
    """What the kernel shows in `dev` of a device: `226:128`. DRM's major number is 226 (drm.h), KFD's is dynamic."""
    name = path.split("/")[-2]
    assert path in (f"/sys/class/drm/{name}/dev", "/sys/class/kfd/kfd/dev")
    if name == "kfd":
        return f"{_majors(files)['kfd']} 0"
    return f"226 {re.sub('[^0-9]', '', name)}"


def _majors(files: Files) -> dict[str, int]:
    return dict(parse_devices(_text(files, "/proc/devices")))


def _text(files: Files, path: str) -> str:
    item = files.get(path, "")
    data = item.data if isinstance(item, File) else item
    return data.decode() if isinstance(data, bytes) else str(data)


def nvidia_modprobe(words: list[str], files: Files, _: dict[str, str]) -> None:
    """Source: nvidia-modprobe.c `main`, nvidia-modprobe-utils.c."""
    minors = [int(word[len("-c=") :]) for word in words if word.startswith("-c=")]
    majors = _majors(files)
    made: dict[str, tuple[int, int]] = {}
    if "-l" in words:
        made["/dev/nvidia-nvlink"] = (majors["nvidia-nvlink"], 0)
    elif "-s" in words:
        names = {255: "/dev/nvidia-nvswitchctl"}
        made |= {names.get(n, f"/dev/nvidia-nvswitch{n}"): (majors["nvidia-nvswitch"], n) for n in minors}
    elif "-u" in words:
        modprobe(["nvidia-uvm"], files, _)
        for minor in minors:
            made["/dev/nvidia-uvm"] = (_majors(files)["nvidia-uvm"], minor)
            made["/dev/nvidia-uvm-tools"] = (_majors(files)["nvidia-uvm"], minor + 1)
    else:
        made |= {"/dev/nvidiactl" if n == 255 else f"/dev/nvidia{n}": (195, n) for n in minors}
    if "-m" in words:
        made["/dev/nvidia-modeset"] = (195, 254)
    if "-f" in words:
        file = words[words.index("-f") + 1]
        told = re.search(r"DeviceFileMinor: (\d+)", _text(files, file))
        table = parse_mig_minors(_text(files, MIG_MINORS))
        number = int(told.group(1)) if told else next(n for name, n in table.items() if capability_file(name) == file)
        made[f"/dev/nvidia-caps/nvidia-cap{number}"] = (majors["nvidia-caps"], number)
    if "-i" in words:
        first, _colon, count = words[words.index("-i") + 1].partition(":")
        for number in range(int(first), int(first) + int(count)):
            made[f"/dev/nvidia-caps-imex-channels/channel{number}"] = (majors["nvidia-caps-imex-channels"], number)
    files.update({path: Node("char", *number) for path, number in made.items()})


def modprobe(words: list[str], files: Files, _: dict[str, str]) -> None:
    """A module shows in /sys/module and, with the number that the kernel gives it, in /proc/devices."""
    module = words[-1] if words[-1][0] != "-" and "=" not in words[-1] else words[0]
    if words[0] == "-r":
        return
    files[f"/sys/module/{module.replace('-', '_')}"] = Dir()
    files.pop("/sys/module/nouveau", None)
    if module in MAJORS and module not in _majors(files):
        head, _line, tail = _text(files, "/proc/devices").partition("Character devices:\n")
        files["/proc/devices"] = f"{head}Character devices:\n{MAJORS[module]} {module}\n{tail}"
    if module == "nvidia":
        files["/sys/module/nvidia/version"] = f"{V}\n"
        files.pop("/sys/module/nvidia", None)
    if module == "nvidia-fs":
        files["/dev/nvidia-fs0"] = Node("char", MAJORS["nvidia-fs"], 0)
    if module == "nvidia-drm":
        files["/dev/dri/renderD128"] = Node("char", 226, 128)
        for pci in [path.split("/")[5] for path in files if path.endswith("/information")]:
            number = 127 + int(pci[5:7])
            files[f"/sys/bus/pci/devices/{pci}/drm/renderD{number}"] = Dir()
            files[f"/dev/dri/renderD{number}"] = Node("char", 226, number)


def mknod(words: list[str], files: Files, _: dict[str, str]) -> None:
    path, kind, major, minor = words
    assert kind == "c"
    assert path not in files, "File exists"
    files[path] = Node("char", int(major), int(minor))


def rm(words: list[str], files: Files, _: dict[str, str]) -> None:
    for path in (word for word in words if word != "-f"):
        if words[0] != "-f":
            assert path in files, "No such file or directory"
        files.pop(path, None)


def chmod(words: list[str], files: Files, _: dict[str, str]) -> None:
    """`a+r` alone."""
    mode, path = words
    assert mode == "a+r"
    item = files[path]
    files[path] = item._replace(mode=item.mode | 0o444) if isinstance(item, (File, Node)) else item


def ldconfig(_words: list[str], files: Files, _: dict[str, str]) -> None:
    """Of the directory that the driver of these hosts is in."""
    files["/etc/ld.so.cache"] = cache(files, ["/usr/lib64"])


def systemctl(words: list[str], files: Files, _: dict[str, str]) -> None:
    assert words[:2] == ["enable", "--now"]
    name = words[2]
    pid = name if name == "nvidia-persistenced" else "nv-fabricmanager"
    files[f"/run/{name}/{pid}.pid"] = "1\n"


def sysctl(words: list[str], files: Files, _: dict[str, str]) -> None:
    name, _equals, value = words[1].partition("=")
    files["/proc/sys/" + name.replace(".", "/")] = f"{value}\n"


def nvidia_smi(_words: list[str], files: Files, _: dict[str, str]) -> None:
    """It uses each GPU once, and then the driver knows the UUIDs."""
    for number, path in enumerate(sorted(path for path in files if path.endswith("/information"))):
        uuid = f"GPU-{number:08d}-1111-2222-3333-444444444444"
        files[path] = re.sub(r"GPU-\?[?-]+", uuid, _text(files, path))


def unset(words: list[str], _files: Files, environ: dict[str, str]) -> None:
    environ.pop(words[0])


def symlinks(_words: list[str], files: Files, _: dict[str, str]) -> None:
    """`nvidia-ctk system create-dev-char-symlinks --create-all`."""
    for path, node in list(files.items()):
        if isinstance(node, Node) and path.startswith("/dev/nvidia"):
            files[f"/dev/char/{node.major}:{node.minor}"] = Dir()


def nothing(_words: list[str], _files: Files, _: dict[str, str]) -> None:
    """What looks at something, and what minds modes and links alone."""


PROGRAMS: dict[str, Callable[[list[str], Files, dict[str, str]], Optional[None]]] = {
    "chmod": chmod,
    "ldconfig": ldconfig,
    "mkdir": nothing,  # a directory comes with what is in it
    "mknod": mknod,
    "modprobe": modprobe,
    "nvidia-ctk": symlinks,
    "nvidia-modprobe": nvidia_modprobe,
    "nvidia-smi": nvidia_smi,
    "rm": rm,
    "sysctl": sysctl,
    "systemctl": systemctl,
    "udevadm": nothing,
    "unset": unset,
}
