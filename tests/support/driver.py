"""Small hosts with an NVIDIA driver, laid out as distributions do, for tests of sources and plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Optional

from gpubind.host.recorded import RecordedHost
from gpubind.model import ResolvedFile
from tests.support.elf import elf
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Item, Link, Node, Spec, record

V = "550.54.14"
A100 = "NVIDIA A100"

SONAMES = {
    "libcuda": "libcuda.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-opticalflow": "libnvidia-opticalflow.so.1",
    "libnvidia-allocator": "libnvidia-allocator.so.1",
    "libGLX_nvidia": "libGLX_nvidia.so.0",
    "libEGL_nvidia": "libEGL_nvidia.so.0",
    "libnvidia-eglcore": f"libnvidia-eglcore.so.{V}",
    "libnvidia-glcore": f"libnvidia-glcore.so.{V}",
    "libnvidia-glvkspirv": f"libnvidia-glvkspirv.so.{V}",
    "libnvidia-gpucomp": f"libnvidia-gpucomp.so.{V}",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
}
"""What the driver of these hosts has, by stem."""


def libraries(
    directory: str, version: str = V, stems: Iterable[str] = SONAMES, machine: int = 62, bits: int = 64
) -> Spec:
    """The driver's libraries in *directory*, with their soname links."""
    spec: dict[str, Item] = {}
    for stem in stems:
        soname = SONAMES[stem].replace(V, version)
        file = f"{stem}.so.{version}"
        spec[f"{directory}/{file}"] = elf(soname, bits=bits, machine=machine)
        if soname != file:
            spec[f"{directory}/{soname}"] = Link(file)
    return spec


def cache(spec: Spec, directories: Iterable[str]) -> bytes:
    """The ld.so.cache that ldconfig would write for the sonames in *directories*."""
    names = []
    for directory in directories:
        for path, item in sorted(spec.items(), reverse=True):
            parent, _, name = path.rpartition("/")
            file = f"{parent}/{item.target}" if isinstance(item, Link) else path
            is_soname = isinstance(item, Link) or name in SONAMES.values()
            if parent == directory and ".so" in name and isinstance(spec.get(file), bytes) and is_soname:
                names.append(entry(name, path))
    return build_ldcache(names)


def kernel(version: Optional[str] = V, gpus: int = 2) -> Spec:
    """The kernel side: module version, GPUs, numbers, nodes."""
    spec: dict[str, Item] = {
        "/proc/devices": "Character devices:\n  1 mem\n195 nvidia\n226 drm\n235 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
        "/dev/nvidiactl": Node("char", 195, 255),
        "/dev/nvidia-uvm": Node("char", 235, 0),
        "/dev/nvidia-modeset": Node("char", 195, 254),
        "/dev/char/195:254": Link("../nvidia-modeset"),
        "/dev/char/195:255": Link("../nvidiactl"),
        "/dev/char/235:0": Link("../nvidia-uvm"),
        "/etc/group": "root:x:0:\nvideo:x:44:\nrender:x:105:\n",
    }
    if version is not None:
        spec["/sys/module/nvidia/version"] = f"{version}\n"
    for number in range(gpus):
        spec.update(gpu(number))
    return spec


def uuid(number: int) -> str:
    """The UUID of the GPU at this place on the bus."""
    return f"GPU-{number:08x}-1111-2222-3333-444444444444"


def gpu(
    place: int,
    minor: Optional[int] = None,
    model: str = A100,
    told: Optional[str] = None,
    *,
    is_excluded: bool = False,
) -> Spec:
    """The GPU at a *place* on the bus, with its node; *told* is its UUID."""
    number = place if minor is None else minor
    pci = f"0000:{place + 1:02x}:00.0"
    return {
        f"/dev/nvidia{number}": Node("char", 195, number),
        f"/dev/char/195:{number}": Link(f"../nvidia{number}"),
        f"/proc/driver/nvidia/gpus/{pci}/information": (
            f"Model: \t\t {model}\nGPU UUID: \t {told or uuid(place)}\n"
            f"Bus Location: \t {pci}\nDevice Minor: \t {number}\nGPU Excluded:\t {'Yes' if is_excluded else 'No'}\n"
        ),
    }


def mig_parts(minor: int, *parts: str) -> Spec:
    """The MIG devices *parts*, `gi1/ci0`, of the GPU with this minor number, their nodes, and that of the monitor.

    The node of part G of the GPU N is N + 1, G, 0, and that of its compute instance C ends in C + 1.
    """
    spec: dict[str, Item] = {"/dev/nvidia-caps/nvidia-cap2": Node("char", 234, 2, 0o444)}
    for name in dict.fromkeys(name for part in parts for name in (part.partition("/")[0], part)):
        gi, _, ci = name[len("gi") :].partition("/ci")
        cap = 100 * (minor + 1) + 10 * int(gi) + (int(ci) + 1 if ci else 0)
        spec[f"/proc/driver/nvidia/capabilities/gpu{minor}/mig/{name}/access"] = f"DeviceFileMinor: {cap}\n"
        spec[f"/dev/nvidia-caps/nvidia-cap{cap}"] = Node("char", 234, cap, 0o444)
    return spec


def host(*parts: Spec, environ: Optional[Mapping[str, str]] = None, **facts: object) -> RecordedHost:
    """The host that has all of *parts*; later ones win."""
    spec: dict[str, Item] = {}
    for part in parts:
        spec.update(part)
    return RecordedHost(record(spec, environ=environ, **facts), "test")  # type: ignore[arg-type]


def ubuntu(version: str = V) -> Spec:
    """Ubuntu and its kind: one multiarch directory."""
    directory = "/usr/lib/x86_64-linux-gnu"
    spec = dict(libraries(directory, version))
    return {
        **spec,
        "/lib": Link("usr/lib"),
        "/etc/ld.so.cache": cache(spec, [directory]),
        "/usr/bin/nvidia-smi": elf(kind=2),
    }


def rhel(version: str = V) -> Spec:
    """RHEL and its kind, and the vendor's installer: flat in /usr/lib64."""
    spec = dict(libraries("/usr/lib64", version))
    return {
        **spec,
        "/lib64": Link("usr/lib64"),
        "/usr/lib64/libcuda.so": Link("libcuda.so.1"),
        "/usr/lib64/gbm/nvidia-drm_gbm.so": Link("../libnvidia-allocator.so.1"),
        "/usr/lib64/vdpau/libvdpau_nvidia.so.1": Link(f"libvdpau_nvidia.so.{version}"),
        f"/usr/lib64/vdpau/libvdpau_nvidia.so.{version}": elf("libvdpau_nvidia.so.1"),
        "/etc/ld.so.cache": cache(spec, ["/usr/lib64"]),
        "/usr/bin/nvidia-smi": elf(kind=2),
        "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json": (
            '{"file_format_version": "1.0.1", "ICD": {"library_path": "/usr/lib64/libGLX_nvidia.so.0"}}'
        ),
    }


def debian(version: str = V) -> Spec:
    """Debian: every soname is a chain of links through /etc/alternatives."""
    real = "/usr/lib/x86_64-linux-gnu/nvidia/current"
    spec: dict[str, Item] = dict(libraries(real, version))
    public: dict[str, Item] = {}
    for soname in SONAMES.values():
        name = soname.replace(V, version)
        alternative = f"/etc/alternatives/nvidia--{name}-x86_64-linux-gnu"
        public[f"/usr/lib/x86_64-linux-gnu/{name}"] = Link(alternative)
        spec[alternative] = Link(f"{real}/{name}")
    names = [
        entry(path.rpartition("/")[2], path.replace("/usr/lib", "/lib", 1)) for path in sorted(public, reverse=True)
    ]
    return {**spec, **public, "/lib": Link("usr/lib"), "/etc/ld.so.cache": build_ldcache(names)}


def run_directory(version: str = V) -> Spec:
    """What `NVIDIA-Linux-*.run --extract-only` leaves: files at the top, no links, no cache."""
    files = {path: item for path, item in libraries("", version).items() if not isinstance(item, Link)}
    i386 = {
        path: item for path, item in libraries("/32", version, machine=3, bits=32).items() if not isinstance(item, Link)
    }
    return {
        **files,
        **i386,
        "/nvidia-smi": elf(kind=2),
        "/nvidia_icd.json": '{"file_format_version": "1.0.1", "ICD": {"library_path": "libGLX_nvidia.so.0"}}',
        "/nvidia.icd": "libnvidia-opencl.so.1\n",
        "/nvoptix.bin": b"weights",
    }


class InCgroup(RecordedHost):
    """A host on which a device cgroup forbids some nodes to this process, whatever their mode."""

    forbidden: tuple[str, ...] = ()

    def access(self, node: ResolvedFile) -> str:
        return "none" if self.dev.real(node.path) in self.forbidden else super().access(node)


def in_cgroup(on: RecordedHost, *forbidden: str) -> InCgroup:
    """*on*, in a cgroup that forbids these nodes."""
    on.__class__ = InCgroup
    assert isinstance(on, InCgroup)
    on.forbidden = forbidden
    return on
