"""Jetson boards: by NVIDIA's lists of what a container needs, every name of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpubind.formats.driver.liblist import library_stem
from gpubind.model.layouts import TEGRA_LISTS
from tests.layouts.frame import HostLayout
from tests.support.elf import AARCH64, elf
from tests.support.ldcache import ELF_LIBC6, build_ldcache, entry
from tests.support.trees import Dir, File, Item, Link, Node, Spec

DATA = Path(__file__).parents[2] / "data" / "jetson"
TRIPLET = "/usr/lib/aarch64-linux-gnu"
VIDEO, RENDER, DEBUG = 44, 104, 999
GROUPS = f"root:x:0:\nvideo:x:{VIDEO}:\nrender:x:{RENDER}:\ndebug:x:{DEBUG}:\n"
UNLISTED = tuple(
    f"{TRIPLET}/{name}"
    for name in ("gstreamer-1.0/", "libv4l/", "nvidia/weston/", "libgst", "libnvsample", "libv4l", "gbm/tegra")
)
"""What only the lists name."""
ABSENT = ("/dev/fb1",)
"""What the lists name and few boards have."""
LINKS = {
    f"{TRIPLET}/libv4l2.so.0": "libv4l2.so.0.0.999999",
    f"{TRIPLET}/libv4l2.so.0.0.999999": "DRIVER/libnvv4l2.so",
    f"{TRIPLET}/libv4lconvert.so.0.0.999999": "DRIVER/libnvv4lconvert.so",
    "DRIVER/libv4l2.so.0": "libnvv4l2.so",
    "DRIVER/libv4lconvert.so.0": "libnvv4lconvert.so",
    f"{TRIPLET}/tegra": "nvidia",
    "/etc/vulkan/icd.d/nvidia_icd.json": "DRIVER/nvidia_icd.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": f"{TRIPLET}/tegra-egl/nvidia.json",
    **{f"{TRIPLET}/gbm/{name}": "DRIVER/libnvidia-allocator.so.1" for name in ("nvidia-drm_gbm.so", "tegra_gbm.so")},
    f"{TRIPLET}/gbm/tegra-udrm_gbm.so": "DRIVER/libnvidia-allocator.so.1",
}
"""The links that lead to a file of another name; DRIVER is the directory of the board's libraries."""


class Line(NamedTuple):
    kind: str
    path: str


def lines(release: int) -> Iterator[Line]:
    """Yield the lines of the lists of JetPack *release*, in their order."""
    kind = directory = ""
    for line in (DATA / f"jetpack{release}.txt").read_text().splitlines():
        if line.startswith("  "):
            yield from (Line(kind, f"{directory}/{name}") for name in line.split())
        elif not line.startswith("#"):
            kind, directory = line.split()


def files(release: int, driver: str, machine: int = AARCH64) -> Spec:
    """Return the files and links of the lists, and the ld.so.cache of the board."""
    listed = [line.path for line in lines(release) if line.kind == "lib"]
    made: dict[str, Item] = {}
    for line in lines(release):
        path, name = line.path.replace("//", "/"), line.path.rpartition("/")[2]
        leads_to = LINKS.get(path) or LINKS.get(path.replace(driver, "DRIVER"))
        if leads_to is None and line.kind == "sym":
            same = (
                one for one in listed if one.startswith(driver) and library_stem(one).endswith(f"/{library_stem(name)}")
            )
            leads_to = min(same, key=len, default=None)  # some links lead nowhere on some boards
        if leads_to is not None:
            made[path] = Link(leads_to.replace("DRIVER", driver))
        elif line.kind == "lib":
            made[path] = content(path, name, machine)
    lost = [
        p
        for p, item in made.items()
        if isinstance(item, Link) and item.target.startswith("/") and item.target not in made
    ]
    made = {path: item for path, item in made.items() if path not in lost}
    cached = [
        entry(path.rpartition("/")[2], path, ELF_LIBC6 | 0x0A00)
        for path in sorted(made, reverse=True)
        if ".so." in path and path.rpartition("/")[0] in (TRIPLET, driver, f"{TRIPLET}/tegra-egl")
    ]
    return {**made, "/etc/ld.so.cache": build_ldcache(cached)}


def content(path: str, name: str, machine: int) -> Item:
    if ".so" in name and not name.endswith(".conf"):
        return elf("libcuda.so.1" if name.startswith("libcuda.so") else name, machine=machine)
    if name.endswith(".json"):
        return '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s"}}' % (
            "libEGL_nvidia.so.0" if "egl" in path else "libGLX_nvidia.so.0"
        )
    return File(elf(kind=2, machine=machine), 0o755) if "bin/" in path else b"text"


def nodes(release: int) -> Spec:
    """Return the nodes of the lists, with the groups and modes of NVIDIA's udev rules."""
    made: dict[str, Item] = {}
    paths = [path for line in lines(release) if line.kind == "dev" for path in expanded(line.path)]
    for number, path in enumerate(path for path in paths if path not in ABSENT):
        gid = DEBUG if "-prof" in path or "/prof" in path or path.endswith("dbg") else VIDEO
        gid = RENDER if "/renderD" in path else gid
        is_open = path.startswith(("/dev/nvidia", "/dev/nvsciipc"))
        minor = {"/dev/nvidiactl": 255, "/dev/nvidia-modeset": 254}.get(path, number)
        made[path] = Node("char", 195 if "/nvidia" in path else 226 if "/dri/" in path else 500, minor,
                          0o666 if is_open else 0o660, 0, 0 if is_open else gid)  # fmt: skip
    return made


def expanded(path: str) -> tuple[str, ...]:
    first = {"/dev/dri/card*": 0, "/dev/dri/renderD*": 128}.get(path)
    return (path,) if first is None else tuple(f"{path[:-1]}{first + number}" for number in range(2))


def as_csv(release: int, *kinds: str) -> str:
    return "".join(f"{line.kind}, {line.path}\n" for line in lines(release) if line.kind in kinds)


def lists(release: int) -> Spec:
    if release < 6:
        return {f"{TEGRA_LISTS}/l4t.csv": as_csv(release, "dev", "dir", "lib", "sym")}
    return {
        f"{TEGRA_LISTS}/devices.csv": as_csv(release, "dev"),
        f"{TEGRA_LISTS}/drivers.csv": as_csv(release, "dir", "lib", "sym"),
    }


def board(release: int, model: str, l4t: str, driver: str) -> Spec:
    """Return a whole board with JetPack *release*."""
    return {
        "/etc/nv_tegra_release": l4t,
        "/etc/group": GROUPS,
        "/proc/device-tree/model": f"{model}\0",
        **files(release, driver),
        **nodes(release),
        **lists(release),
    }


def planned(release: int, driver: str, without: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Return the names in the lists that are on the board, but those of firmware, directories, texts and Weston."""
    stays = ("/lib/firmware/", "/etc/ld.so.cache", *without)
    paths = [path for path in files(release, driver) if not path.startswith(stays)]
    names = [path.rpartition("/")[2] for path in paths]
    return {
        "libraries": tuple(name for name in names if ".so" in name and name != "ld.so.conf"),
        "manifests": tuple(name for name in names if name.endswith(".json")),
        "programs": tuple(path.rpartition("/")[2] for path in paths if "bin/" in path),
    }


def gpu(pci: str, minor: int, model: str, drm: tuple[str, ...] = ()) -> Spec:
    """Return a GPU that the driver reports."""
    information = f"Model: \t\t {model}\nBus Location: \t {pci}\nDevice Minor: \t {minor}\nGPU UUID: \t GPU-{minor}\n"
    base = f"/sys/bus/pci/devices/{pci}"
    return {
        f"/proc/driver/nvidia/gpus/{pci}/information": information,
        **{f"{base}/drm/{name}": Dir() for name in drm},
        f"{base}/class": "0x030000\n",
        f"{base}/vendor": "0x10de\n",
    }


def module(version: str) -> Spec:
    """Return the kernel module of the display, or of the GPU: its version."""
    return {
        "/sys/module/nvidia/version": f"{version}\n",
        "/proc/devices": "Character devices:\n195 nvidia\n226 drm\n500 nvmap\n\nBlock devices:\n",
    }


LAYOUTS = (
    HostLayout(
        name="jetson5",
        who="Jetson Xavier and Orin with JetPack 5 (L4T 35)",
        source="https://github.com/OE4T/meta-tegra/blob/kirkstone/recipes-bsp/tegra-binaries/tegra-configs/l4t.csv",
        spec=board(5, "NVIDIA Jetson AGX Orin Developer Kit", "# R35 (release), REVISION: 6.4\n", f"{TRIPLET}/tegra"),
        planned=planned(5, f"{TRIPLET}/tegra"),
        nodes=tuple(nodes(5)),
        gpus=("0",),
        machine="aarch64",
        groups=(1000, VIDEO, RENDER, DEBUG),
    ),
    HostLayout(
        name="jetson6",
        who="Jetson Orin with JetPack 6 (L4T 36)",
        source="https://github.com/NVIDIA/nvidia-container-toolkit/tree/main/testdata/lookup/rootfs-orin",
        spec={
            **board(6, "NVIDIA Jetson AGX Orin Developer Kit", "# R36 (release), REVISION: 3.0\n", f"{TRIPLET}/nvidia"),
            **module("540.3.0"),
        },
        planned=planned(6, f"{TRIPLET}/nvidia"),
        nodes=tuple(nodes(6)),
        gpus=("0",),
        machine="aarch64",
        groups=(1000, VIDEO, RENDER, DEBUG),
    ),
    HostLayout(
        name="jetson7",
        who="Jetson Thor with JetPack 7 (L4T 38) and a second GPU in a slot",
        source="https://github.com/NVIDIA/nvidia-container-toolkit/tree/main/testdata/lookup/rootfs-thor-dgpu",
        spec={
            **board(7, "NVIDIA Jetson AGX Thor Developer Kit", "# R38 (release), REVISION: 2.0\n", f"{TRIPLET}/nvidia"),
            **module("580.00"),
            **gpu("0000:01:00.0", 0, "NVIDIA Thor"),
            **gpu("0001:01:00.0", 1, "NVIDIA RTX 6000 Ada Generation", ("card1", "renderD129")),
            "/dev/nvidia2": Node("char", 195, 2),  # the display, which NVIDIA's toolkit gives with the chip's GPU
        },
        planned=planned(7, f"{TRIPLET}/nvidia"),
        nodes=(*nodes(7), "/dev/nvidia2"),
        gpus=("0", "1"),
        machine="aarch64",
        groups=(1000, VIDEO, RENDER, DEBUG),
    ),
    HostLayout(
        name="jetson-without-lists",
        who="Jetson with a minimal L4T, without NVIDIA's container toolkit",
        source="https://docs.nvidia.com/jetson/archives/r36.3/DeveloperGuide/",
        spec={
            path: item
            for path, item in {
                **board(6, "NVIDIA Jetson Orin Nano", "# R36 (release), REVISION: 3.0\n", f"{TRIPLET}/nvidia"),
                **module("540.3.0"),
            }.items()
            if not path.startswith((TEGRA_LISTS, *UNLISTED))
        },
        planned={"libraries": planned(6, f"{TRIPLET}/nvidia", UNLISTED)["libraries"]},
        nodes=tuple(nodes(6)),
        gpus=("0",),
        findings=("tegra",),
        machine="aarch64",
        groups=(1000, VIDEO, RENDER, DEBUG),
        remark="Install the board's lists for plug-ins of GStreamer and V4L2.",
    ),
)
