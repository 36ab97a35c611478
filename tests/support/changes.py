"""What may happen to a machine between two starts."""

from __future__ import annotations

import os
import random
import shutil
import stat
from pathlib import Path
from typing import Callable, Optional

from gpubind.formats.driver.kernel import ACL_ATTRIBUTE
from gpubind.memo.files import read_secret, unpacked
from tests.support.acl import acl_for
from tests.support.elf import elf
from tests.support.memo import IS_ROOT, SIFS, Bench
from tests.support.privileges import mount_read_only, remount_writable, unmount, why_no_mounts
from tests.support.trees import Node

Change = Callable[[Bench, random.Random], None]

VALUES = ("", "0", "1", "all", "none", "/opt/x", "GPU-00000000", "yes")
CONFIG = (
    'caps = "compute"\n',
    'gpus = "0"\n',
    "strict = true\n",
    "[require]\ngpus = 3\n",
    'caps = "utility"\n',
    "broken = \n",
)
LINES = ("libcuda.so\n", "libnvidia-ml.so\nlibcuda.so\n", "nvidia-smi\nlibcuda.so\n", "# nothing\n")
COMMANDS = (
    ("true", "x"),
    ("true",),
    ("sh", "-c", "exit 3"),
    ("./true",),
    ("/usr/bin/true", "--", "-q"),
    ("-x",),
    ("none",),
)
CDI = (
    '{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": '
    '{"env": ["A=NUMBER"], "deviceNodes": [{"path": "/dev/nvidia0"}]}}]}'
)


def _files(bench: Bench) -> list[str]:
    """Regular files and links below the bench's places."""
    found = []
    for place in ("host", "image", "bin", "home"):
        for directory, _, names in os.walk(bench.base / place):
            found += [f"{directory}/{name}" for name in names]
    return sorted(found)


def _file(bench: Bench, rng: random.Random) -> str:
    return rng.choice([path for path in _files(bench) if stat.S_ISREG(os.lstat(path).st_mode)])


def a_byte(bench: Bench, rng: random.Random) -> None:
    path = _file(bench, rng)
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            file.seek(0)
            file.write(data)


def a_byte_with_the_old_times(bench: Bench, rng: random.Random) -> None:
    paths = [path for path in _files(bench) if stat.S_ISREG(os.lstat(path).st_mode)]
    before = {path: os.stat(path) for path in paths}
    a_byte(bench, rng)
    for path, found in before.items():
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def a_touch(bench: Bench, rng: random.Random) -> None:
    os.utime(_file(bench, rng))


def a_line(bench: Bench, rng: random.Random) -> None:
    """Of a text of /proc or /sys: a digit, so that its size stays."""
    paths = [path for path in _files(bench) if "/host/proc/" in path or "/host/sys/" in path]
    if not paths:
        return
    path = rng.choice(paths)
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    digits = [at for at, letter in enumerate(text) if letter.isdigit()]
    if digits:
        at = rng.choice(digits)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text[:at] + str(rng.randrange(10)) + text[at + 1 :])


def a_link(bench: Bench, rng: random.Random) -> None:
    paths = _files(bench)
    link = rng.choice([path for path in paths if os.path.islink(path)])
    others = [os.path.basename(path) for path in paths if os.path.dirname(path) == os.path.dirname(link)]
    os.unlink(link)
    os.symlink(rng.choice(others), link)


def _path(bench: Bench, rng: random.Random) -> str:
    """A file, a node, or a directory of one."""
    path = rng.choice([path for path in _files(bench) if not os.path.islink(path)])
    places = [path, os.path.dirname(path)]
    while os.path.dirname(places[-1]) != str(bench.base):
        places.append(os.path.dirname(places[-1]))
    return path if rng.random() < 0.5 else rng.choice(places)


def a_mode(bench: Bench, rng: random.Random) -> None:
    os.chmod(_path(bench, rng), rng.choice((0o644, 0o600, 0o755, 0o666, 0o640, 0o004, 0)))


def an_owner(bench: Bench, rng: random.Random) -> None:
    os.chown(rng.choice(_files(bench)), rng.choice((0, 1000)), -1, follow_symlinks=False)


def a_group(bench: Bench, rng: random.Random) -> None:
    os.chown(_path(bench, rng), -1, rng.choice((0, 44, 1000)))


def an_access_list(bench: Bench, rng: random.Random) -> None:
    """For a user; its mask is the group's permission in the mode, which may stay as it is."""
    path = _path(bench, rng)
    if ACL_ATTRIBUTE in os.listxattr(path) and rng.random() < 0.3:
        os.removexattr(path, ACL_ATTRIBUTE)
    else:
        os.setxattr(path, ACL_ATTRIBUTE, acl_for(rng.choice((0, 1000)), rng.choice((0, 4, 5, 6, 7))))


def a_read_only_mount(bench: Bench, rng: random.Random) -> None:
    """A directory can no longer be written, or can again."""
    if bench.mounted and rng.random() < 0.5:
        if rng.random() < 0.5:
            unmount(bench.mounted.pop())
        else:
            remount_writable(rng.choice(bench.mounted))
        return
    places = (bench.host, bench.image, bench.home, bench.memos, bench.base / "state", bench.work)
    path = rng.choice((*map(str, places), os.path.dirname(_path(bench, rng))))
    if os.path.isdir(path) and path not in bench.mounted:
        bench.mounted.append(path)
        mount_read_only(path)


def something_that_was_absent(bench: Bench, rng: random.Random) -> None:
    """A file, a directory or a link where a command has looked and found nothing."""
    asked: set[str] = set()
    for memo in bench.memos.iterdir():
        kept = unpacked(memo.read_bytes(), memo.name, read_secret() or b"")
        questions = kept["trace"] if kept else {}
        for kind in ("lstat", "stat"):
            asked.update(path for path, answer in questions.get(kind, {}).items() if isinstance(answer, int))
    here = sorted(path for path in asked if path.startswith(f"{bench.base}/") and not os.path.lexists(path))
    if not here:
        return
    path = rng.choice(here)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        made = rng.randrange(4)
        if made == 0:
            os.mkdir(path)
        elif made == 1:
            os.symlink(rng.choice(_files(bench)), path)
        else:
            with open(path, "wb") as file:
                file.write(elf("libx.so.1") if ".so" in path else b"\x7fELF apptainer version 1.5.0\n")
            os.chmod(path, 0o755)
    except (FileExistsError, NotADirectoryError):
        pass


def something_less(bench: Bench, rng: random.Random) -> None:
    path = rng.choice(_files(bench))
    if rng.random() < 0.1 and os.path.basename(os.path.dirname(path)) not in ("host", "image", "home", "bin"):
        shutil.rmtree(os.path.dirname(path))
    else:
        os.unlink(path)


def a_cdi_spec(bench: Bench, rng: random.Random) -> None:
    path = bench.host / "etc/cdi" / f"{rng.choice('abc')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CDI.replace("NUMBER", str(rng.randrange(10))))


def a_configuration(bench: Bench, rng: random.Random) -> None:
    name, texts = rng.choice((("config.toml", CONFIG), ("nvliblist.conf", LINES)))
    path = bench.home / ".config/gpubind" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(rng.choice(texts))


def an_earlier_program(bench: Bench, rng: random.Random) -> None:
    path = bench.base / "early" / rng.choice(("apptainer", "bwrap", "singularity"))
    path.write_bytes(b"\x7fELF apptainer version 1.%d.0\n" % rng.randrange(10))
    path.chmod(rng.choice((0o755, 0o755, 0o644)))


def a_variable(bench: Bench, rng: random.Random) -> None:
    names = (
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "ROCM_PATH", "XDG_CONFIG_HOME"),
        *("APPTAINERENV_LD_LIBRARY_PATH", "APPTAINER_CONTAIN", "LD_LIBRARY_PATH", "GPUBIND_CAPS", "GPUBIND_GPUS"),
        *("APPTAINERENV_CUDA_VISIBLE_DEVICES", "NO_COLOR", "LD_PRELOAD", "SLURM_ARRAY_TASK_ID", f"X{rng.randrange(9)}"),
    )
    name = rng.choice(names)
    if name in bench.environ and rng.random() < 0.5:
        del bench.environ[name]
    else:
        bench.environ[name] = rng.choice(VALUES)


def another_command(bench: Bench, rng: random.Random) -> None:
    """In the container: ten thousand tasks share one memo."""
    bench.command = rng.choice(COMMANDS)


def a_bound(bench: Bench, rng: random.Random) -> None:
    bench.environ["GPUBIND_BOUNDS"] = rng.choice(("1", "2", "0", "x"))


def a_directorys_mode(bench: Bench, rng: random.Random) -> None:
    path = os.path.dirname(rng.choice(_files(bench)))
    os.chmod(path, rng.choice((0o755, 0o777, 0o1777, 0o700)))


def a_programs_mode(bench: Bench, rng: random.Random) -> None:
    path = bench.base / "bin" / rng.choice(("apptainer", "bwrap", "ch-run"))
    if path.exists():
        path.chmod(rng.choice((0o755, 0o644)))


def a_helper(bench: Bench, rng: random.Random) -> None:
    """NVIDIA's own program, where it is looked for; it fails."""
    path = bench.base / "standard/nvidia-container-cli"
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(rng.choice((0o755, 0o644)))


def another_name_for_here(bench: Bench, rng: random.Random) -> None:
    """The shell's name for the working directory, which may lead elsewhere."""
    here = bench.base / "home" / "here"
    here.unlink(missing_ok=True)
    here.symlink_to(rng.choice(("../work", "../early")))
    bench.environ["PWD"] = str(here)


def another_width(bench: Bench, rng: random.Random) -> None:
    bench.width = rng.choice((60, 100, 140))


def another_sif(bench: Bench, rng: random.Random) -> None:
    """One of the same size and times."""
    found, new = bench.sif.stat() if bench.sif.exists() else None, bench.sif.with_name("new")
    new.write_bytes(rng.choice(SIFS))
    if found is not None:
        os.utime(new, ns=(found.st_atime_ns, found.st_mtime_ns))
    new.rename(bench.sif)


def a_device_node(bench: Bench, rng: random.Random) -> None:
    number = rng.randrange(4)
    path = f"{bench.host}/dev/nvidia{number}"
    if os.path.lexists(path):
        os.unlink(path)
    if rng.random() < 0.7:
        bench.node(f"/dev/nvidia{number}", Node("char", 195, rng.choice((number, 7)), rng.choice((0o666, 0o660, 0))))


def another_gpu(bench: Bench, rng: random.Random) -> None:
    pci = f"0000:{rng.randrange(1, 5):02x}:00.0"
    path = bench.host / "proc/driver/nvidia/gpus" / pci
    if path.exists():
        shutil.rmtree(path)
        return
    path.mkdir(parents=True)
    number = rng.randrange(4)
    uuid = f"GPU-0000000{number}-1111-2222-3333-444444444444"
    (path / "information").write_text(f"Model: X\nGPU UUID: {uuid}\nDevice Minor: {number}\n")


def another_kernel_module(bench: Bench, rng: random.Random) -> None:
    path = bench.host / "sys/module/nvidia/version"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(rng.choice(("550.54.14\n", "550.54.15\n", "535.54.14\n")))


def another_image(bench: Bench, rng: random.Random) -> None:
    """A file of the image, replaced by one of the same size and times."""
    files = [path for path in _files(bench) if path.startswith(str(bench.image)) and os.path.isfile(path)]
    path = rng.choice([path for path in files if not os.path.islink(path)])
    found = os.stat(path)
    with open(path, "rb") as file:
        data = file.read()
    other = data.replace(b"GLIBC_2.3", b"GLIBC_2.4").replace(b"libs", b"lips").replace(b"lib", b"lob")
    with open(f"{path}.new", "wb") as file:
        file.write(other)
    os.chmod(f"{path}.new", found.st_mode & 0o7777)
    os.utime(f"{path}.new", ns=(found.st_atime_ns, found.st_mtime_ns))
    os.rename(f"{path}.new", path)


def a_moved_directory(bench: Bench, rng: random.Random) -> None:
    path = rng.choice((bench.host / "usr/lib64/vdpau", bench.host / "usr/share", bench.image / "usr/lib"))
    away = path.with_name(f"{path.name}.away")
    if path.exists() and not away.exists():
        path.rename(away)
    elif away.exists() and not path.exists():
        away.rename(path)


def another_home(bench: Bench, rng: random.Random) -> None:
    bench.user_home = rng.choice(("/home/one", "/home/two", "/"))


def another_locale(bench: Bench, rng: random.Random) -> None:
    """Python sets LC_CTYPE for itself, or the caller has set it."""
    bench.environ["LC_CTYPE"] = "C.UTF-8"
    bench.own_environ.write_bytes(rng.choice((b"A=1\0", b"LC_CTYPE=C.UTF-8\0")))


CHANGES: tuple[Change, ...] = (
    *(a_byte, a_byte_with_the_old_times, a_touch, a_line, a_line, a_link, a_mode, something_that_was_absent),
    *(something_that_was_absent, something_less, a_cdi_spec, a_configuration, an_earlier_program, a_variable),
    *(a_variable, another_gpu, another_kernel_module, another_image, a_moved_directory, another_home),
    *(another_locale, another_command, another_command, a_bound, a_directorys_mode, a_programs_mode, a_helper),
    *(another_name_for_here, another_width, another_sif),
    *(a_device_node, an_owner, a_group, an_access_list, a_read_only_mount),
)


def why_not_drawn(base: Path) -> dict[Change, str]:
    """Return the changes that cannot be made by this user to files of the directory *base*, each with the reason."""
    why: dict[Change, Optional[str]] = {a_read_only_mount: why_no_mounts(base), an_access_list: None}
    try:
        os.setxattr(base, ACL_ATTRIBUTE, acl_for(0, 7))
        os.removexattr(base, ACL_ATTRIBUTE)
    except OSError as error:
        why[an_access_list] = str(error)
    if not IS_ROOT:
        why.update(dict.fromkeys((a_device_node, an_owner, a_group), "only root can"))
    return {change: text for change, text in why.items() if text is not None}
