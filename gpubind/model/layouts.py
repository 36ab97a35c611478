"""Directories: where distributions, installers and operators put a driver."""

from __future__ import annotations

from collections.abc import Iterable

from gpubind.model.arch import DRIVER_ARCHITECTURES, architecture

SUBDIRECTORIES = ("", "vdpau", "gbm")
"""The searched subdirectories of each library directory. ld.so searches only the first, libvdpau and libgbm the
others.
"""


def gbm_directories(arch: str) -> tuple[str, ...]:
    """Return where libgbm looks for its backends: for *arch* and for its 32-bit companion.

    They are the directories of distributions, of a libgbm built from source for *arch*, and of NixOS.
    """
    rows = [architecture(name) for name in (arch, architecture(arch).compat32) if name]
    usual = [path for row in rows for path in (f"/usr/lib/{row.triplet}", row.plain_directories[0])]
    local_paths = [path.replace("/usr", "/usr/local", 1) for path in usual[:2]]
    directories = (*usual, "/usr/lib", *local_paths, "/usr/local/lib", "/run/opengl-driver/lib")
    return tuple(dict.fromkeys(f"{directory}/gbm" for directory in directories))


APPTAINER_LIBRARIES, APPTAINER_LIBRARIES32 = "/.singularity.d/libs", "/.singularity.d/libs32"
GPUBIND_LIBRARIES, GPUBIND_LIBRARIES32, GPUBIND_PROGRAMS = "/.gpubind/libs", "/.gpubind/libs32", "/.gpubind/bin"
CONTAINER_LIBRARIES = (APPTAINER_LIBRARIES, APPTAINER_LIBRARIES32, GPUBIND_LIBRARIES, GPUBIND_LIBRARIES32)
"""The directories of the driver's libraries in a container that Apptainer, SingularityCE or gpubind started. They are
searched before the ld cache, which is the image's."""

WSL_LIBRARIES, WSL_DRIVERS = "/usr/lib/wsl/lib", "/usr/lib/wsl/drivers"
"""The directory of the Linux libraries of Windows' drivers (WSL 2), and that of the drivers' own directories."""

DXG = "/dev/dxg"
"""The node of all GPUs of Windows, of any vendor (WSL 2)."""
ALL_GPU_NODES = (DXG,)
"""Nodes that stand for all GPUs of a host, so that single GPUs cannot be chosen."""

STANDARD_PROGRAMS = (
    GPUBIND_PROGRAMS,
    "/usr/bin",
    "/usr/sbin",
    "/bin",
    "/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
)
"""The directories of programs that are searched before those next to the directory of libcuda."""
BINARY_DIRECTORIES = (
    *STANDARD_PROGRAMS,
    "/usr/local/nvidia/bin",
    "/opt/bin",
    "/usr/libexec/nvidia/tesla/bin",  # Bottlerocket
    WSL_LIBRARIES,
    "/run/nvidia/driver/usr/bin",
    "/run/nvidia/driver/usr/sbin",
    "/run/current-system/sw/bin",  # NixOS
    "/run/current-system/profile/bin",  # Guix System
    "/",  # an extracted .run directory
)

GKE_HOME_NAME = "kubernetes"
"""A directory below /home that is not a user's: nodes of GKE keep programs and the driver there."""

STARTER_PREFIXES = (
    "/usr/libexec",
    "/usr/local/libexec",
    "/usr/lib",
    "/usr/local/lib",
    *(f"/usr/lib/{architecture(name).triplet}" for name in DRIVER_ARCHITECTURES if architecture(name).bits == 64),
)
"""The prefixes of the set-user-id program of Apptainer and SingularityCE, by packages and `make install`."""


def library_directories(arch: str) -> tuple[str, ...]:
    """Return the known driver directories for *arch*, in search order.

    Distributions are first, then vendors' containers and operators, then systems without /usr.
    """
    row = architecture(arch)
    tri, plain, bits64 = row.triplet, row.plain_directories, row.bits == 64
    nvidia = "lib64" if bits64 else "lib"
    return (
        f"/usr/lib/{tri}",
        f"/usr/lib/{tri}/nvidia/current",  # Debian, when no alternative points there
        f"/usr/lib/{tri}/nvidia",
        *tegra_directories(arch)[1:],  # Jetson
        *plain,
        f"{plain[0]}/nvidia",  # older RPM packages
        "/usr/lib",  # Arch
        "/usr/lib/nvidia",
        f"/lib/{tri}",
        "/lib",
        f"/usr/local/nvidia/{nvidia}",  # GKE, and images that expect the driver there
        "/usr/lib64-nvidia",  # Colab
        f"/run/nvidia/driver/usr/lib/{tri}",  # the GPU operator's driver container
        "/run/nvidia/driver/usr/lib64",
        "/run/opengl-driver/lib" if bits64 else "/run/opengl-driver-32/lib",  # NixOS
        *(("/run/current-system/profile/lib",) if bits64 else ()),  # Guix System
        *(("/usr/glibc-compat/lib",) if bits64 else ()),  # Alpine, with the glibc of alpine-pkg-glibc
        WSL_LIBRARIES,
        "/usr/local/glibc/usr/lib",  # Talos
        f"/home/kubernetes/bin/nvidia/{nvidia}",  # nodes of GKE with COS
        f"/var/lib/nvidia/{nvidia}",  # COS by itself: https://cloud.google.com/container-optimized-os/docs/how-to/run-gpus
        f"/opt/nvidia/{nvidia}",  # nodes of GKE with Ubuntu
        f"/opt/nvidia/current/{nvidia}",  # CoreOS and its kind
        f"/opt/nvidia/current/usr/{nvidia}",  # Flatcar
        "/usr/lib/nvidia/tesla",  # Bottlerocket: `kmod-*-nvidia.spec` of bottlerocket-kernel-kit
        f"/cm/local/apps/cuda-driver/libs/current/{nvidia}",  # Bright, Base Command Manager
        f"/cm/local/apps/cuda/libs/current/{nvidia}",
        "/" if bits64 else "/32",  # an extracted .run directory
    )


SYSTEMS_WITHOUT_LD_CACHE = ("alpine", "chimera", "guix", "nixos", "postmarketos", "talos")
"""The systems without /etc/ld.so.cache by design, by their ID in os-release(5): their loaders search elsewhere."""

DRIVER_DATA_NAMES = ("OpenCL", "egl", "glvnd", "nvidia", "vulkan", "vulkansc")
"""The directories below /usr/share and /etc with manifests and data of a driver's libraries."""
DRIVER_DATA_PREFIXES = tuple(f"{base}/{name}/" for base in ("/usr/share", "/etc") for name in DRIVER_DATA_NAMES)


def install_prefix(directory: str) -> str:
    """Return the prefix of a directory of libraries: `/opt/x` of `/opt/x/lib64` and of `/opt/x/lib/nvidia/current`."""
    parts = directory.split("/")
    ends = [at for at, part in enumerate(parts) if part in ("lib", "lib32", "lib64")] or [len(parts) - 1]
    return "/".join(parts[: ends[-1]])


def program_directories_of(directory: str) -> tuple[str, ...]:
    """Return the program directories that belong to the libraries in *directory*, with *directory* itself last."""
    prefixes = dict.fromkeys((install_prefix(directory), directory.rpartition("/")[0]))
    return (*(f"{prefix}/{name}" for prefix in prefixes for name in ("bin", "sbin")), directory)


def data_prefix_pairs(path: str, directories: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return pairs of a prefix of *path*, and its replacement on a host, in search order.

    *directories* hold the driver's libraries; the driver's data is in their prefix. The /etc of a prefix that ends with
    /usr is next to it. GKE keeps Vulkan's manifests in a directory of the prefix. Only Vulkan's loader searches a
    container's /usr/local/share. Source: nvidia-container-toolkit `internal/discover/graphics.go`.
    """
    places: list[tuple[str, str]] = []
    for prefix in map(install_prefix, directories):
        above = prefix[: -len("/usr")] if prefix.endswith("/usr") else prefix
        places += [("/usr/share/", f"{prefix}/share/"), ("/etc/", f"{above}/etc/")]
        places += [("/etc/vulkan/", f"{prefix}/vulkan/")] if above else []
    places += [("/", "/"), ("/usr/share/", "/usr/local/share/")]
    if not path.startswith(DRIVER_DATA_PREFIXES):
        return (("/", "/"),)
    return tuple(dict.fromkeys(place for place in places if path.startswith(place[0])))


TEGRA_RELEASE = "/etc/nv_tegra_release"
TEGRA_LISTS = "/etc/nvidia-container-runtime/host-files-for-container.d"
"""The directory of a Jetson's lists of the files that containers need."""
TEGRA_PASSTHROUGH = "/usr/share/nvidia-container-passthrough"
"""The directory in which Yocto's images provide listed files that they keep at other paths than NVIDIA's Ubuntu."""
TEGRA_NODES = (
    *("/dev/nvmap", "/dev/nvhost-*", "/dev/nvgpu/*/*", "/dev/nvsciipc", "/dev/host1x*", "/dev/tegra_dc_*"),
    *("/dev/dri/card*", "/dev/dri/renderD*", "/dev/v4l2-nv*", "/dev/fb*"),
)
"""The nodes of a Jetson besides /dev/nvidia*. Source: NVIDIA's lists of JetPack 4 to 7."""

TEGRA_CONTROL = r"/dev/(?:nvhost-ctrl-gpu|nvgpu/[^/]+/ctrl)"
"""The pattern of the node that controls the integrated GPU."""


def tegra_directories(arch: str) -> tuple[str, ...]:
    """Return the directories of a Jetson's driver: first those of JetPack 6 and later, then those of older releases."""
    base = f"/usr/lib/{architecture(arch).triplet}"
    return tuple(f"{base}/{name}" for name in ("nvidia", "tegra", "tegra-egl"))


ROCM_PREFIXES = ("/opt/rocm", "/opt/rocm-*", "/opt/rocm/core-*")
"""The directories of AMD's installers: one for each release, and a link to one of them.

From 7.13 on, there are links to the directories of one release. Source: ROCm documentation, "Transition guide from
legacy ROCm release stream".
"""
ROCM_LIBRARIES = ("lib", "lib64")
"""The library directories of a ROCm release."""


def amdgpu_directories(arch: str) -> tuple[str, ...]:
    """Return the directories of the libraries of AMD's own graphics stack for *arch*."""
    return (f"/opt/amdgpu/lib/{architecture(arch).triplet}", "/opt/amdgpu/lib64")


UNBINDABLE_DIRECTORIES = frozenset(
    (
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/opt", "/proc"),
        *("/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64"),
        *("/usr/libexec", "/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/sbin", "/usr/share"),
        *("/var", "/var/lib", "/var/run"),
        *(f"{base}/{architecture(name).triplet}" for base in ("/lib", "/usr/lib") for name in DRIVER_ARCHITECTURES),
    )
)
"""Directories that a list file or a CDI spec must not bind: that would hide the container's own."""
