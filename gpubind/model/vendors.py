"""The differences between the vendors: a row for each. Other code for one vendor is in its folder of `inventory`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.model.host import FileGroup, Vendor


class Userspace(NamedTuple):
    """A vendor's user space that is not tied to one kernel driver, and therefore belongs in the image."""

    group: FileGroup
    name: str
    """Its name in messages."""
    runtime_libraries: tuple[str, ...]
    """Libraries: an image that contains one of them has its own user space."""
    required_libraries: tuple[str, ...]
    """Prefixes of the names of libraries that every computation requires."""
    symptom_without_core: str
    """The message of programs if only the required libraries are missing."""
    symptom_without_any: str
    """The message of programs if all libraries are missing."""
    runtime_patterns: tuple[str, ...] = ()
    """Patterns of directories outside the loader's in which an image may have the runtime; empty: the image's facts
    name it."""
    users: tuple[str, ...] = ()
    """Patterns of an image's files that compute with it: absolute, else below its loader's directories."""
    frameworks: tuple[str, ...] = ()
    """Patterns, as in `users`, of software that may compute in another way."""
    others: tuple[str, ...] = ()
    """Patterns of software for accelerators of the vendor that do not use it."""
    video_users: tuple[str, ...] = ()
    """Patterns of an image's files that use the GPUs for video, without it."""


class VendorTraits(NamedTuple):
    """The traits of one vendor."""

    option: str
    """The command line option, without dashes."""
    list_name: str
    cdi_kind: str
    """The kind of its CDI devices."""
    hide_all_variable: tuple[str, str]
    """A variable and the value that hides all GPUs."""
    variable_reader: str
    """The library that reads `hide_all_variable`, by its name in cases of findings; empty: it chooses no nodes."""
    inventory: str
    """The function that reads its inventory or inventories, `module:function`."""
    modules: tuple[str, ...] = ()
    """The directories of its kernel drivers. If the host has another vendor's driver, its devices are used only if one
    exists.
    """
    used_beside: str = ""
    """The function that decides in that case whether its devices are used; empty if they are."""
    waits: bool = False
    """Whether it is read last, so that its devices are not used next to another vendor's: many distributions ship its
    user space."""
    userspace: Optional[Userspace] = None
    has_version: bool = True
    """Whether its driver has a version. Intel's is part of the kernel."""


ROCM_USERSPACE = Userspace(
    group="rocm",
    name="ROCm",
    runtime_libraries=("libhsa-runtime64.so.1",),
    required_libraries=("libhsa-runtime64.so.1", "libamdhip64.so"),
    symptom_without_core="no program sees a GPU",
    symptom_without_any="libamdhip64.so, libhsa-runtime64.so.1: cannot open shared object file",
)
COMPUTE_RUNTIME = Userspace(
    group="compute-runtime",
    name="Level Zero",
    runtime_libraries=("libze_intel_gpu.so.1", "libigdrcl.so"),
    runtime_patterns=(
        "/usr/lib/*/intel-opencl",
        "/usr/lib64/intel-opencl",
        "/usr/lib/intel-opencl",
        "/opt/intel/opencl/lib64",
    ),
    required_libraries=("libze_intel_gpu.so.1", "libigdrcl.so", "libigc.so"),
    symptom_without_core="Level Zero or OpenCL lists no GPU",
    users=("libze_loader.so.1", "libsycl.so.*", "/opt/intel/oneapi"),
    frameworks=tuple(
        f"{prefix}/python3*/{packages}/{name}"
        for prefix in ("/usr/lib", "/usr/local/lib", "/opt/*/lib", "/opt/*/envs/*/lib")
        for packages in ("dist-packages", "site-packages")
        for name in ("dpctl", "openvino", "pyopencl", "torch", "onnxruntime")
    ),
    others=("/usr/lib/habanalabs/libSynapse.so*",),
    video_users=(
        *("dri/iHD_drv_video.so", "dri/i965_drv_video.so", "libvpl.so.2", "libmfx.so.1"),
        "/usr/lib/jellyfin-ffmpeg/lib/dri/iHD_drv_video.so",
    ),
    symptom_without_any="zeInit gives ZE_RESULT_ERROR_UNINITIALIZED, clGetPlatformIDs CL_PLATFORM_NOT_FOUND_KHR "
    "(-1001), or libze_loader.so.1: cannot open shared object file",
)

AMD_MODULE = "/sys/module/amdgpu"

VENDOR_ROWS: dict[Vendor, VendorTraits] = {
    "nvidia": VendorTraits(
        option="nv",
        list_name="nvliblist.conf",
        cdi_kind="nvidia.com/gpu",
        hide_all_variable=("NVIDIA_VISIBLE_DEVICES", "void"),
        variable_reader="cuda",
        inventory="gpubind.inventory.sources:read",
    ),
    "amd": VendorTraits(
        option="rocm",
        list_name="rocmliblist.conf",
        cdi_kind="amd.com/gpu",
        hide_all_variable=("ROCR_VISIBLE_DEVICES", "-1"),
        variable_reader="rocr",
        inventory="gpubind.inventory.amd.inventory:read_inventory",
        modules=(AMD_MODULE,),
        waits=True,
        userspace=ROCM_USERSPACE,
    ),
    "intel": VendorTraits(
        option="intel",
        list_name="intelliblist.conf",
        cdi_kind="intel.com/gpu",
        hide_all_variable=("ZE_AFFINITY_MASK", ""),
        variable_reader="",
        inventory="gpubind.inventory.intel.inventory:read_inventory",
        modules=("/sys/module/i915", "/sys/module/xe", "/sys/module/habanalabs"),
        used_beside="gpubind.inventory.intel.devices:has_compute_device",
        userspace=COMPUTE_RUNTIME,
        has_version=False,
    ),
}
"""The vendors in the order of planning.

Sources: NVIDIA's and AMD's container toolkits; intel/intel-resource-drivers-for-kubernetes `pkg/gpu/device`; Level Zero
specification, "Environment Variables"; ROCm documentation, "GPU isolation techniques".
"""
VENDORS: tuple[Vendor, ...] = tuple(VENDOR_ROWS)
CDI_KINDS = {vendor: row.cdi_kind for vendor, row in VENDOR_ROWS.items()}
VENDOR_FLAGS = tuple(f"--{row.option}" for row in VENDOR_ROWS.values())
USERSPACES = {row.userspace.group: row.userspace for row in VENDOR_ROWS.values() if row.userspace is not None}
"""The user spaces, by the group of their files."""


def userspaces_of(vendors: Iterable[Vendor]) -> tuple[Userspace, ...]:
    """Return the user spaces of *vendors*, in the order of the rows."""
    names = tuple(vendors)
    return tuple(row.userspace for vendor, row in VENDOR_ROWS.items() if vendor in names and row.userspace)
