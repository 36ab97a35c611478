"""RHEL, its rebuilds, Fedora, SUSE: /usr/lib64."""

from __future__ import annotations

from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import MERGED, Places, driver, libraries, nodes, of_group, planned, whole_host
from tests.support.driver import V, kernel

RUN = Places(vulkan="/etc/vulkan")
RPM = Places(icd="nvidia_icd.x86_64.json", icd_library="/usr/lib64/libGLX_nvidia.so.0")
VENDORS = ("libGLX_nvidia.so.0", "libEGL_nvidia.so.0", "libGLESv1_CM_nvidia.so.1", "libGLESv2_nvidia.so.2")
NODES, GPUS = nodes(), ("0", "1")

LAYOUTS = (
    whole_host(
        name="rhel9-run",
        who="RHEL, Rocky, Alma 9: NVIDIA's .run installer",
        source=f"https://download.nvidia.com/XFree86/Linux-x86_64/{V}/README/installedcomponents.html",
        spec={**MERGED, **driver(RUN), **kernel(), "/usr/bin/nvidia-installer": b"", "/usr/bin/nvidia-uninstall": b""},
    ),
    HostLayout(
        name="rhel8-rpm",
        who="RHEL, Rocky, Alma 8, 9, 10: NVIDIA's RPM packages",
        source="https://github.com/NVIDIA/yum-packaging-nvidia-driver",
        spec={**MERGED, **driver(RPM), **kernel()},
        planned=planned(icd=RPM.icd),
        nodes=NODES,
        gpus=GPUS,
        remark="A manifest that names /usr/lib64/libGLX_nvidia.so.0 is rewritten for the container.",
    ),
    HostLayout(
        name="fedora-negativo17",
        who="Fedora: negativo17's packages",
        source="https://github.com/negativo17/nvidia-driver/issues/195",
        spec={**MERGED, **driver(RPM, real=VENDORS), **kernel()},
        planned=planned(icd=RPM.icd),
        nodes=NODES,
        gpus=GPUS,
    ),
    HostLayout(
        name="fedora-rpmfusion",
        who="Fedora: RPM Fusion's packages, with the 32-bit ones",
        source="https://rpmfusion.org/Howto/NVIDIA",
        spec={**MERGED, **driver(RPM), **libraries("/usr/lib", V, "i386"), **kernel()},
        planned=planned(icd=RPM.icd),
        nodes=NODES,
        gpus=GPUS,
    ),
    HostLayout(
        name="suse",
        who="SLES, openSUSE Leap: NVIDIA's packages",
        source="https://github.com/NVIDIA/nvidia-container-toolkit/issues/1608",
        spec={**MERGED, **driver(RPM), **of_group(kernel(), 44)},
        planned=planned(icd=RPM.icd),
        nodes=NODES,
        gpus=GPUS,
        groups=(44, 1000),
        remark="The nodes belong to the group video: a user has to be a member of it.",
    ),
)
