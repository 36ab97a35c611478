"""Where distributions, installers and operators put a driver."""

from __future__ import annotations

from typing import NamedTuple

from gpubind.model.arch import WITH_DRIVERS, architecture

SUBDIRECTORIES = ("", "vdpau", "gbm")
"""Below each library directory: what ld.so never searches, but libvdpau and libgbm do."""

BINARY_DIRECTORIES = (
    "/usr/bin",
    "/usr/sbin",
    "/bin",
    "/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/local/nvidia/bin",
    "/opt/bin",
    "/usr/lib/wsl/lib",
    "/run/nvidia/driver/usr/bin",
    "/run/nvidia/driver/usr/sbin",
    "/",  # an extracted .run directory
)


STARTER_PREFIXES = (
    "/usr/libexec",
    "/usr/local/libexec",
    "/usr/lib",
    "/usr/local/lib",
    *(f"/usr/lib/{architecture(name).triplet}" for name in WITH_DRIVERS if architecture(name).bits == 64),
)
"""Where packages and `make install` of Apptainer and SingularityCE put the set-user-id program."""


def library_directories(arch: str) -> tuple[str, ...]:
    """Return the known driver directories for *arch*, in the order in which they are searched.

    Distributions first, then the vendor's containers and operators, then what has no /usr at all.
    """
    known = architecture(arch)
    tri, plain, bits64 = known.triplet, known.plain_directories, known.bits == 64
    nvidia = "lib64" if bits64 else "lib"
    return (
        f"/usr/lib/{tri}",
        f"/usr/lib/{tri}/nvidia/current",  # Debian, when no alternative points there
        f"/usr/lib/{tri}/nvidia",
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
        "/usr/lib/wsl/lib",
        "/usr/local/glibc/usr/lib",  # Talos
        "/home/kubernetes/bin/nvidia/lib64",  # COS
        "/opt/nvidia/lib64",
        "/" if bits64 else "/32",  # an extracted .run directory
    )


ROCM = ("/opt/rocm", "/opt/rocm-*")
"""Where AMD's installers put ROCm: each release into a directory of its own, and a link to one of them."""
ROCM_LIBRARIES = ("lib", "lib64")
"""Of a release of ROCm, the directories of libraries."""


def amdgpu_directories(arch: str) -> tuple[str, ...]:
    """Return the directories of the libraries of AMD's own graphics stack for *arch*."""
    return (f"/opt/amdgpu/lib/{architecture(arch).triplet}", "/opt/amdgpu/lib64")


RUN_DIRECTORY = {
    "nvidia.icd": "/etc/OpenCL/vendors/nvidia.icd",
    "10_nvidia.json": "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "09_nvidia_wayland2.json": "/usr/share/egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "10_nvidia_wayland.json": "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "15_nvidia_gbm.json": "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "20_nvidia_xcb.json": "/usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json",
    "20_nvidia_xlib.json": "/usr/share/egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia_icd.json": "/usr/share/vulkan/icd.d/nvidia_icd.json",
    "nvidia_layers.json": "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
    "nvidia_icd_vksc.json": "/usr/share/vulkansc/icd.d/nvidia_icd.json",
    "nvoptix.bin": "/usr/share/nvidia/nvoptix.bin",
}
"""Where the vendor's installer puts the data files that an extracted .run directory holds at its top."""


SYSTEM_DIRECTORIES = frozenset(
    (
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/opt", "/proc"),
        *("/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64"),
        *("/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/sbin", "/usr/share", "/var", "/var/run"),
    )
)
"""What a list file or a CDI spec cannot mean as a whole: binding it would hide the container's own."""


class HostOnly(NamedTuple):
    """Files of the driver that have no business in a container."""

    pattern: str
    why: str


HOST_ONLY = (
    HostOnly(
        "/usr/bin/nvidia-modprobe", "loads kernel modules and makes nodes; set-user-id does not work in a container"
    ),
    HostOnly("/usr/bin/nvidia-bug-report.sh", "collects the host's logs"),
    HostOnly("/usr/bin/nvidia-settings", "configures the host's X server"),
    HostOnly("/usr/bin/nvidia-xconfig", "writes the host's X configuration"),
    HostOnly("/usr/bin/nvidia-installer", "installs the driver"),
    HostOnly("/usr/bin/nvidia-uninstall", "removes the driver"),
    HostOnly("/usr/bin/nvidia-sleep.sh", "run by the host's power management"),
    HostOnly("/usr/bin/nvidia-powerd", "a service of the host"),
    HostOnly("/usr/bin/nvidia-ngx-updater", "updates files of the host"),
    HostOnly("/usr/bin/nvidia-detect", "chooses a package for the host"),
    HostOnly("/usr/bin/nvidia-pcc", "configures power on the host"),
    HostOnly("/usr/lib/nvidia/*.sh", "collects the host's logs"),
    HostOnly("/usr/lib/nvidia/*-install*", "part of the distribution's packaging"),
    HostOnly("/usr/lib/nvidia/check-for-*", "part of the distribution's packaging"),
    HostOnly("/usr/lib/nvidia/current/*.sh", "collects the host's logs"),
    HostOnly("/usr/lib/nvidia/current/*.gz", "documentation"),
    HostOnly("/usr/share/nvidia/*-key-documentation", "documentation"),
    HostOnly("/usr/lib/firmware/nvidia/*/gsp*.bin", "firmware: the kernel reads it, not a process"),
    HostOnly("/lib/firmware/nvidia/*/gsp*.bin", "firmware: the kernel reads it, not a process"),
    HostOnly("/usr/lib/systemd/system/nvidia-*", "a service of the host"),
    HostOnly("/lib/systemd/system/nvidia-*", "a service of the host"),
    HostOnly("/etc/init.d/nvidia-*", "a service of the host"),
    HostOnly("/usr/lib/systemd/system-sleep/nvidia", "run by the host's power management"),
    HostOnly("/usr/share/dbus-1/system.d/nvidia-*", "a service of the host"),
    HostOnly("/usr/lib/udev/rules.d/*nvidia*", "makes the host's device nodes"),
    HostOnly("/lib/udev/rules.d/*nvidia*", "makes the host's device nodes"),
    HostOnly("/usr/lib/modprobe.d/nvidia*", "configures the host's kernel"),
    HostOnly("/etc/modprobe.d/nvidia*", "configures the host's kernel"),
    HostOnly("/usr/share/initramfs-tools/hooks/*nvidia*", "builds the host's initramfs"),
    HostOnly("/usr/lib/xorg/modules/drivers/nvidia_drv.so", "a module of the host's X server"),
    HostOnly("/usr/lib64/xorg/modules/drivers/nvidia_drv.so", "a module of the host's X server"),
    HostOnly("/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so*", "a module of the host's X server"),
    HostOnly("/usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so*", "a module of the host's X server"),
    HostOnly("/usr/lib/*-linux-gnu*/nvidia/xorg/*", "a module of the host's X server"),
    HostOnly("/usr/share/X11/xorg.conf.d/*nvidia*", "configures the host's X server"),
    HostOnly("/etc/X11/xorg.conf.d/*nvidia*", "configures the host's X server"),
)
