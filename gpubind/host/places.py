"""Where a survey looks: each place where a driver, its devices or a site's configuration may be.

The directories of libraries and programs are those of the search (`gpubind/model/layouts.py`).
"""

from __future__ import annotations

from gpubind.files import Tree
from gpubind.model.arch import WITH_DRIVERS
from gpubind.model.layouts import (
    BINARY_DIRECTORIES,
    ROCM_LIBRARIES,
    STARTER_PREFIXES,
    SUBDIRECTORIES,
    amdgpu_directories,
    library_directories,
)

BELOW_LIBRARIES = (*SUBDIRECTORIES, "nvidia/wine", "libglvnd")
"""Below each directory of libraries; the first is that directory itself."""
BELOW_ROCM = (".info", *ROCM_LIBRARIES, "lib/llvm/lib", "llvm/lib", "bin", "etc/OpenCL/vendors")
PROGRAM_DIRECTORIES = (*BINARY_DIRECTORIES, "/opt/rocm/bin")
_MULTIARCH_BASES = ("/usr/lib", "/lib", "/run/nvidia/driver/usr/lib")


def library_places(tree: Tree, machine: str) -> tuple[str, ...]:
    """The directories of libraries, of whatever architecture: those that the search knows, and Debian's by their names.

    *machine* is the host's own architecture, which may be one without a row in a table.
    """
    places = [f"/opt/rocm/{name}" for name in ROCM_LIBRARIES]
    for arch in (*WITH_DRIVERS, machine):
        places += [*library_directories(arch), *amdgpu_directories(arch)]
    for base in _MULTIARCH_BASES:
        triplets = [name for name in tree.names(base) if "-linux-gnu" in name]
        places += [f"{base}/{name}{sub}" for name in triplets for sub in ("", "/nvidia", "/nvidia/current")]
    places += [f"{place}/nvidia/xorg" for place in places if place.rpartition("/")[2].endswith("-linux-gnu")]
    return tuple(dict.fromkeys(places))


WHOLE_DIRECTORIES = (
    "/dev/nvidia-caps",
    "/dev/nvidia-caps-imex-channels",
    "/dev/dri",
    "/dev/infiniband",
    "/etc/OpenCL",
    "/etc/cdi",
    "/etc/egl",
    "/etc/glvnd",
    "/etc/nvidia",
    "/etc/nvidia-container-runtime/host-files-for-container.d",
    "/etc/vulkan",
    "/etc/vulkansc",
    "/etc/modprobe.d",
    "/etc/init.d",
    "/etc/ld.so.conf.d",
    "/etc/X11/xorg.conf.d",
    "/lib/firmware/nvidia",
    "/lib/modprobe.d",
    "/lib/systemd/system",
    "/lib/udev/rules.d",
    "/opt/amdgpu/share/libdrm",
    "/proc/driver/nvidia",
    "/proc/driver/nvidia-caps",
    "/proc/driver/nvidia-nvswitch",
    "/run/cdi",
    "/run/nvidia-fabricmanager",
    "/run/nvidia-persistenced",
    "/sys/class/drm",
    "/sys/class/kfd/kfd/topology/nodes",
    "/sys/module/nvidia_drm/parameters",
    "/tmp/nvidia-mps",
    "/usr/lib/firmware/nvidia",
    "/usr/lib/modprobe.d",
    "/usr/lib/nvidia",
    "/usr/lib/systemd/system",
    "/usr/lib/systemd/system-sleep",
    "/usr/lib/udev/rules.d",
    "/usr/lib/wsl/drivers",
    "/usr/lib/xorg/modules",
    "/usr/lib64/xorg/modules",
    "/usr/local/share/egl",
    "/usr/local/share/glvnd",
    "/usr/local/share/vulkan",
    "/usr/local/share/vulkansc",
    "/usr/share/X11/xorg.conf.d",
    "/usr/share/dbus-1/system.d",
    "/usr/share/egl",
    "/usr/share/glvnd",
    "/usr/share/initramfs-tools/hooks",
    "/usr/share/libdrm",
    "/usr/share/nvidia",
    "/usr/share/vulkan",
    "/usr/share/vulkansc",
    "/var/run/cdi",
    "/var/run/nvidia-fabricmanager",
    "/var/run/nvidia-persistenced",
    "/.singularity.d/libs",
)
"""Directories with all below them; names that have nothing to do with a GPU without facts."""

SINGLE_PATHS = (
    *(f"/etc/apptainer/{name}.conf" for name in ("apptainer", "nvliblist", "rocmliblist")),
    *(f"/etc/singularity/{name}.conf" for name in ("singularity", "nvliblist", "rocmliblist")),
    "/dev/dxg",
    "/dev/gdrdrv",
    "/dev/kfd",
    "/dev/nvidiactl",
    "/etc/cufile.json",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/nv_tegra_release",
    "/etc/nvidia-imex/nodes_config.cfg",
    "/etc/os-release",
    "/proc/cpuinfo",
    "/proc/devices",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/user/max_user_namespaces",
    "/run/udev",
    *(f"{prefix}/bin/bwrap" for prefix in ("/usr", "/usr/local")),
    *(f"{prefix}/{name}/bin/starter-suid" for prefix in STARTER_PREFIXES for name in ("apptainer", "singularity")),
    *(
        f"/sys/module/{module}{fact}"
        for module in ("nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_fs", "amdgpu", "nouveau")
        for fact in ("", "/version", "/initstate")
    ),
)
