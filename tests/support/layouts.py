"""Hosts by chance: a driver in any directory, by links, beside others; firmware, manifests, specs, every vendor.

Everything that a host may have is one function that adds it; a host is some of them, in their order.
"""

from __future__ import annotations

import json
import random
from typing import NamedTuple, Optional

from gpubind.formats.driver.nvidia import list_argv
from gpubind.host import ListFile
from gpubind.host.record import RecordedList, RecordedRun
from gpubind.host.recorded import RecordedHost
from gpubind.model.layouts import TEGRA_LISTS, TEGRA_PASSTHROUGH
from tests.support import amd, intel
from tests.support.driver import SONAMES, V, kernel, libraries, run_directory
from tests.support.elf import elf, stub
from tests.support.images import GLIBC
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Dir, File, Hidden, Item, Link, Node, Socket, record

VERSIONS = (V, "535.183.01", "470.256.02", "390.157", "595.10")
TRIPLET = "x86_64-linux-gnu"
DIRECTORIES = (
    f"/usr/lib/{TRIPLET}",
    f"/usr/lib/{TRIPLET}/nvidia/current",
    f"/usr/lib/{TRIPLET}/nvidia/tesla-470",
    f"/usr/lib/{TRIPLET}/nvidia/legacy-390xx",
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib",
    "/usr/lib/nvidia-470",
    "/usr/lib64-nvidia",
    "/usr/local/nvidia/lib64",
    "/run/nvidia/driver/usr/lib64",
    "/run/opengl-driver/lib",
    "/usr/lib/wsl/lib",
    "/opt/nvidia/lib64",
    "/opt/site/nvidia/550/lib64",
    "/nix/store/0a1b2c-nvidia-x11-550/lib",
    "/srv/driver.d/x",
)
PUBLIC = (f"/usr/lib/{TRIPLET}", "/usr/lib64", "/run/opengl-driver/lib", "/usr/local/lib", "/usr/lib", "/opt/links")
HOST_ONLY_FILES = (
    "/usr/lib/modprobe.d/nvidia.conf",
    "/etc/modprobe.d/nvidia-site.conf",
    "/usr/lib/udev/rules.d/60-nvidia.rules",
    "/usr/lib/systemd/system/nvidia-persistenced.service",
    "/usr/lib/systemd/system-sleep/nvidia",
    "/etc/init.d/nvidia-persistenced",
    "/usr/share/X11/xorg.conf.d/10-nvidia.conf",
    "/usr/share/initramfs-tools/hooks/zz-nvidia",
    "/usr/share/nvidia/nvidia-application-profiles-key-documentation",
    "/usr/lib/nvidia/alternate-install-present",
    "/usr/lib/nvidia/sub/collect.sh",
    "/usr/lib/xorg/modules/drivers/nvidia_drv.so",
    "/usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so",
    f"/usr/lib/{TRIPLET}/nvidia/xorg/libglxserver_nvidia.so",
    "/usr/bin/nvidia-bug-report.sh",
    "/usr/bin/nvidia-modprobe",
)
PROGRAMS = (
    "/usr/bin",
    "/usr/sbin",
    "/opt/bin",
    "/usr/local/nvidia/bin",
    "/opt/site/nvidia/550/bin",
    "/srv/driver.d/bin",
)
MANIFESTS = (
    "/usr/share/vulkan/icd.d/nvidia_icd.json",
    "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json",
    "/etc/vulkan/icd.d/nvidia_icd.json",
    "/usr/local/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
)
LIBRARY_PATH = ("/opt/site/nvidia/550/lib64", "/srv/driver.d/x", "/srv/none")
CDI_DIRECTORY = "/srv/specs"
OWN_LIST = ListFile("own.conf", b"libcuda.so\nlibsite.so\nnvidia-smi\n/opt/site/extra/*.dat\n/srv/driver.d\n", False)
CPU = (
    "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: a processor\nflags\t\t: fpu avx2 bmi1 bmi2 fma movbe\n\n"
)


class Layout(NamedTuple):
    """A host by chance, and what its record is told that it will be asked for."""

    spec: dict[str, Item]
    host: RecordedHost
    library_path: tuple[str, ...]
    cdi_directories: tuple[str, ...]
    listfile: Optional[ListFile]


class _Making:
    """A host in the making."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.spec: dict[str, Item] = {}
        self.cached: list[tuple[str, str]] = []
        self.version = rng.choice(VERSIONS)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def add(self, path: str, item: Item) -> None:
        """*item*, if there is nothing at *path* and no link or file above it."""
        above = path
        while above := above.rpartition("/")[0]:
            if not isinstance(self.spec.get(above, Dir()), Dir):
                return
        if path not in self.spec and not any(other.startswith(f"{path}/") for other in self.spec):
            self.spec[path] = item

    def driver(self, version: str, directory: str, bits: int = 64) -> None:
        stems = [stem for stem in SONAMES if self.chance(0.8)]
        for path, item in libraries(directory, version, stems, 62 if bits == 64 else 3, bits).items():
            self.add(path, item)
            name = path.rpartition("/")[2]
            if name in SONAMES.values() and self.chance(0.7):
                self._publish(path, name)
        for sub, name in (("gbm", "nvidia-drm_gbm.so"), ("vdpau", f"libvdpau_nvidia.so.{version}"), ("tls", "libx.so")):
            if self.chance(0.4):
                self.add(f"{directory}/{sub}/{name}", elf(name) if self.chance(0.5) else Link("../libcuda.so.1"))

    def _publish(self, path: str, name: str) -> None:
        """*path* under *name* in a directory that programs look in, or in the cache, or both."""
        public = self.rng.choice(PUBLIC)
        kind = self.rng.randrange(4)
        if kind == 0:
            alternative = f"/etc/alternatives/nvidia--{name}"
            self.add(alternative, Link(path))
            self.add(f"{public}/{name}", Link(alternative))
        elif kind == 1:
            self.add(f"{public}/{name}", Link(path))
        elif kind == 2:
            self.add(f"{public}/{name}", Link(f"{'../' * public.count('/')}{path[1:]}"))
        self.cached.append((name, path if kind == 3 else f"{public}/{name}"))


def _merged(at: _Making) -> None:
    """/lib and /lib64, as distributions have them."""
    for name, target in (("/lib", "usr/lib"), ("/lib64", "usr/lib64"), ("/bin", "usr/bin")):
        if at.chance(0.7):
            at.add(name, Link(target))


def _drivers(at: _Making) -> None:
    """The driver, and others beside it."""
    if at.chance(0.9):
        at.driver(at.version, at.rng.choice(DIRECTORIES))
    while at.chance(0.35):
        at.driver(at.rng.choice(VERSIONS), at.rng.choice(DIRECTORIES))
    if at.chance(0.3):
        at.driver(at.version, at.rng.choice(("/usr/lib/i386-linux-gnu", "/usr/lib32", "/usr/lib")), 32)
    if at.chance(0.1):
        at.spec.update(run_directory(at.version))
    if at.chance(0.2):
        at.add("/usr/local/cuda/lib64/stubs/libcuda.so", stub())
        at.cached.append(("libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so"))
    if at.chance(0.3):
        at.add(f"/usr/lib/{TRIPLET}/libsite.so.1", elf("libsite.so.1"))
        at.add("/opt/site/extra/a.dat", b"\0data")


def _odd_directories(at: _Making) -> None:
    if at.chance(0.15):
        at.add("/usr/lib64/nvidia", Hidden(directory=True))
    if at.chance(0.15):
        at.add("/usr/lib64/vdpau", Link("/opt/site/vdpau"))
        at.add("/opt/site/vdpau/libvdpau_nvidia.so.1", elf("libvdpau_nvidia.so.1"))
    if at.chance(0.15):
        at.add("/usr/lib64-nvidia", Link("usr/lib64"))
    if at.chance(0.1):
        at.add("/opt/nvidia", Link("nvidia"))


def _firmware(at: _Making) -> None:
    for base in ("/lib", "/usr/lib"):
        if at.chance(0.5):
            for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
                at.add(f"{base}/firmware/nvidia/{at.version}/{name}", b"\0firmware")


def _host_only(at: _Making) -> None:
    for path in HOST_ONLY_FILES:
        if at.chance(0.4):
            at.add(path, "text\n" if at.chance(0.8) else Link("/etc/alternatives/none"))


def _programs(at: _Making) -> None:
    for name in ("nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "rocminfo"):
        directory = at.rng.choice(PROGRAMS)
        loader = at.rng.choice(
            (None, "/lib64/ld-linux-x86-64.so.2", "/nix/store/0a1b2c-glibc/lib/ld-linux-x86-64.so.2")
        )
        if at.chance(0.7):
            at.add(f"{directory}/{name}", File(elf(kind=2, interpreter=loader), 0o755))
    if at.chance(0.5):
        at.add("/nix/store/0a1b2c-glibc/lib/libc.so.6", elf("libc.so.6"))


def _manifests(at: _Making) -> None:
    for path in MANIFESTS:
        if at.chance(0.4):
            library = at.rng.choice(("libGLX_nvidia.so.0", "/usr/lib64/libGLX_nvidia.so.0"))
            text = json.dumps({"file_format_version": "1.0.1", "ICD": {"library_path": library}})
            at.add(path, at.rng.choice((text, text, "{broken", b"\x7fELF\0", Link("/none"))))
    if at.chance(0.3):
        at.add("/etc/OpenCL/vendors/nvidia.icd", "libnvidia-opencl.so.1\n")
    if at.chance(0.2):
        files = [{"path": f"/usr/lib64/libnvidia-ml.so.{at.version}"}, {"path": "/usr/lib64/libnvidia-new.so.1"}]
        at.add("/usr/share/nvidia/files.d/sandboxutils-filelist.json", json.dumps({"files": files}))


def _kernel(at: _Making) -> None:
    if at.chance(0.85):
        version = at.rng.choice((at.version, at.version, at.version, None, "580.1"))
        for path, item in kernel(version, at.rng.randrange(4)).items():
            at.add(path, item)
    if at.chance(0.2):
        for path, item in amd.kernel(at.rng.randrange(3), at.rng.choice(("6.8.5", None))).items():
            at.add(path, item)
    if at.chance(0.1):
        at.add("/sys/module/nouveau", Dir())
    if at.chance(0.2):
        at.add("/run/nvidia-persistenced/socket", Socket())
    if at.chance(0.2):
        at.add("/dev/nvidia-caps/nvidia-cap1", Node("char", 239, 1, 0o400))
        at.add("/proc/driver/nvidia/capabilities/mig/config", "DeviceFileMinor: 1\n")
    for number, vendor in enumerate(("0x10de", "0x8086", "0x1002")):
        if at.chance(0.4):
            base = f"/sys/bus/pci/devices/0000:{number + 1:02x}:00.0"
            at.add(f"{base}/class", at.rng.choice(("0x030200\n", "0x020000\n", "0x120000\n")))
            at.add(f"{base}/vendor", f"{vendor}\n")
    if at.chance(0.5):
        at.add("/proc/cpuinfo", CPU)


def _windows(at: _Making) -> None:
    """WSL, whole or not: the node, drivers that Windows keeps, libraries that programs open."""
    if not at.chance(0.15):
        return
    if at.chance(0.8):
        at.add("/dev/dxg", Node("char", 10, 125, at.rng.choice((0o666, 0o600))))
    for number in range(at.rng.randrange(4)):
        store = f"/usr/lib/wsl/drivers/{at.rng.choice(('nv_dispi', 'nvmdi', 'iigd_dch'))}.inf_amd64_{number}"
        for name in ("libcuda.so.1.1", "libcuda_loader.so", "libnvidia-ptxjitcompiler.so.1", "nvcubins.bin", "a.dll"):
            if at.chance(0.8):
                at.add(f"{store}/{name}", elf("libcuda.so.1") + b"\0" * at.rng.randrange(2))
    for name in ("libcuda.so", "libcuda.so.1", "libcuda.so.1.1", "libnvidia-ml.so.1", "libdxcore.so", "nvidia-smi"):
        if at.chance(0.8):
            at.add(f"/usr/lib/wsl/lib/{name}", elf(name.partition(".so")[0] + ".so.1"))


def _intel(at: _Making) -> None:
    parts = (
        intel.gpu("0000:00:02.0", 8, 136, intel.INTEGRATED),
        intel.gpu("0000:b3:00.0", 9, 137, driver="xe"),
        intel.npu(number=at.rng.randrange(3)),
        intel.gaudi("0000:c4:00.0", 5, uverbs=at.rng.choice((None, 1))),
        intel.gaudi("0000:c5:00.0", 6, older=True),
        intel.userspace("2.38"),
    )
    for part in parts if at.chance(0.3) else ():
        if at.chance(0.5):
            for path, item in part.items():
                if not at.chance(0.03):
                    at.add(path, item)


def _rocm(at: _Making) -> None:
    parts = [amd.opt("6.2.4", "6.1.2"), amd.debian(), amd.rocm("/opt/rocm-5.7.0", "5.7.0"), amd.system("2.38")]
    if at.chance(0.4):
        for path, item in at.rng.choice(parts).items():
            at.add(path, item)


def _glibc(at: _Making) -> None:
    """The host's own C library, newer than some images'."""
    if at.chance(0.6):
        lib = at.rng.choice((f"/usr/lib/{TRIPLET}", "/usr/lib64"))
        at.add("/usr/lib64/ld-linux-x86-64.so.2", File(elf("ld-linux-x86-64.so.2"), 0o755))
        for name in ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"):
            at.add(f"{lib}/{name}", elf(name, defines=(name, *GLIBC)))
        at.add(f"{lib}/gconv/UTF-16.so", elf())
        at.add("/usr/bin/getconf", File(elf(kind=2), 0o755))
    if at.chance(0.3):
        at.add("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n/opt/links\n")
        at.add("/etc/ld.so.conf.d/site.conf", "# a comment\n/opt/site/nvidia/550/lib64\n")


def _cdi(at: _Making) -> None:
    for directory in ("/etc/cdi", "/var/run/cdi", CDI_DIRECTORY):
        for number, kind in enumerate(("nvidia.com/gpu", "vendor.com/x", "amd.com/gpu")):
            if at.chance(0.25):
                at.add(f"{directory}/{number}.{at.rng.choice(('json', 'yaml'))}", _spec(at, kind))


def _spec(at: _Making, kind: str) -> str:
    files = [path for path, item in at.spec.items() if ".so" in path and not isinstance(item, Hidden)]
    chosen = [at.rng.choice(files) for _ in range(6) if files] + ["/srv/specs.d/data.bin", "/usr/lib64/libgone.so.1"]
    libcuda = [path for path in files if "/libcuda.so" in path][:2]
    mounts = [{"hostPath": path, "containerPath": path} for path in dict.fromkeys((*libcuda, *chosen))]
    nodes = [{"path": path} for path in ("/dev/nvidia0", "/dev/x0")]
    device = {"name": at.rng.choice(("all", "0")), "containerEdits": {"deviceNodes": nodes, "mounts": mounts}}
    text = json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": [device], "containerEdits": {"env": ["A=b"]}})
    return text if at.chance(0.85) else text[:-5]


def _cache(at: _Making) -> None:
    kind = at.rng.randrange(8)
    if kind == 0:
        return
    gone = [("libnvidia-gone.so.1", "/usr/lib64/libnvidia-gone.so.1")] if at.chance(0.2) else []
    data = build_ldcache([entry(name, path) for name, path in (*sorted(at.cached, reverse=True), *gone)])
    at.spec["/etc/ld.so.cache"] = data[:-7] if kind == 1 else data


def _jetson(at: _Making) -> None:
    """Lists of a Jetson: lines about anything on this host, about nothing, and damaged ones."""
    if not at.chance(0.25):
        return
    at.add("/etc/nv_tegra_release", "# R36 (release)\n")
    at.add("/dev/nvmap", Node("char", 10, 100, 0o660, 0, 44))
    at.add("/dev/nvgpu/igpu0/ctrl", Node("char", 500, 1, 0o660, 0, 999))
    module = f"/usr/lib/{TRIPLET}/gstreamer-1.0/libgstnvjpeg.so"
    at.add(f"{at.rng.choice(('', TEGRA_PASSTHROUGH))}{module}", elf("libgstnvjpeg.so"))
    paths = [at.rng.choice(list(at.spec)) for _ in range(12)] + [
        module,
        "/usr/share/none.txt",
        "/opt/*",
        "/lib/firmware/x",
    ]
    lines = [f"{at.rng.choice(('lib', 'sym', 'dir', 'dev'))}, {path}" for path in paths]
    lines += ["dev, nvmap", "dev, /dev/nvgpu/*/*", "dev, /dev/nvidia[0-9]", "lib", "lib, ../x", "# text"]
    config = '[nvidia-container-runtime.modes.csv]\nmount-spec-path = "/srv/lists"\n'
    directory = at.rng.choice((TEGRA_LISTS, TEGRA_LISTS, "/srv/lists"))
    if directory != TEGRA_LISTS:
        at.add("/etc/nvidia-container-runtime/config.toml", config)
    for name in ("devices.csv", "drivers.csv", "l4t.csv", "cuda.csv"):
        if at.chance(0.6):
            text = "\n".join(at.rng.sample(lines, at.rng.randrange(len(lines))))
            at.add(f"{directory}/{name}", text if at.chance(0.9) else Hidden())


PARTS = (
    *(_merged, _odd_directories, _drivers, _firmware, _host_only, _programs, _manifests, _kernel),
    *(_windows, _intel, _rocm),
    *(_glibc, _cdi, _cache, _jetson),
)


def layout(rng: random.Random) -> Layout:
    """A host by *rng*."""
    at = _Making(rng)
    for part in PARTS:
        part(at)
    environ = {"PATH": rng.choice(("/usr/bin:/bin", "/opt/site/nvidia/550/bin:/usr/bin", "/usr/bin:/srv/driver.d/bin"))}
    choices = (("CUDA_VISIBLE_DEVICES", "0"), ("ROCM_PATH", "/opt/rocm-6.1.2"), ("NVIDIA_GDS", "enabled"))
    environ.update((name, value) for name, value in choices if at.chance(0.15))
    runs, lists = [], []
    if at.chance(0.25):
        files = [path for path in at.spec if f".so.{at.version}" in path]
        status = rng.choice((0, 0, 1))
        runs.append(
            RecordedRun(list_argv("/"), status, "".join(f"{path}\n" for path in ("/dev/nvidia0", *files)), "no")
        )
    if at.chance(0.15):
        lists.append(
            RecordedList("nvliblist.conf", "/etc/gpubind/nvliblist.conf", "libcuda.so\nlibsite.so\nnvidia-smi\n")
        )
    made = record(at.spec, environ=environ, runs=tuple(runs), lists=tuple(lists), groups=(44, 1000))
    return Layout(
        at.spec,
        RecordedHost(made, "test"),
        tuple(path for path in LIBRARY_PATH if at.chance(0.3)),
        (CDI_DIRECTORY,) if at.chance(0.3) else (),
        OWN_LIST if at.chance(0.3) else None,
    )
