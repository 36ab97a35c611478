"""Clouds, operators and cluster managers: a driver in a prefix of its own."""

from __future__ import annotations

from gpubind.model import Request, RootedPath
from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import (
    MERGED,
    Places,
    cached,
    driver,
    libraries,
    manifests,
    nodes,
    planned,
    programs,
    whole_host,
)
from tests.support.driver import V, kernel
from tests.support.trees import Link, Spec

GKE_SOURCE = (
    "https://github.com/GoogleCloudPlatform/container-engine-accelerators/tree/master/nvidia-driver-installer/cos"
)
PODS = "https://docs.cloud.google.com/kubernetes-engine/docs/how-to/gpus"
SYSTEM = cached({})
"""The ld.so.cache of a system that knows nothing of the driver."""
VULKAN = planned(V, "manifests") | {"manifests": ("nvidia_icd.json", "nvidia_layers.json")}


def prefix(path: str, lib: str = "lib64") -> Spec:
    """Return a driver whose libraries, programs and manifests are below *path*; /etc is beside a /usr."""
    at = Places(f"{path}/{lib}", f"{path}/bin", f"{path}/share", f"{path.removesuffix('/usr')}/etc")
    return {
        **libraries(at.lib),
        **programs(at.bin),
        **manifests(at._replace(vulkan=f"{path}/share/vulkan")),
    }


def googles(path: str) -> Spec:
    """Return what Google's installer of the driver leaves: of the manifests Vulkan's, in a directory of the prefix."""
    kept = {**libraries(f"{path}/lib64"), **programs(f"{path}/bin")}
    vulkan = manifests(Places(vulkan=f"{path}/vulkan"))
    return {**kept, **{name: item for name, item in vulkan.items() if name.startswith(f"{path}/vulkan")}}


BRIGHT = "/cm/local/apps/cuda-driver/libs/550.54.14"
MODULE = f"/opt/apps/nvidia/{V}"

LAYOUTS = (
    HostLayout(
        name="gke",
        who="GKE's nodes with Container-Optimized OS",
        source=GKE_SOURCE,
        spec={**SYSTEM, **googles("/home/kubernetes/bin/nvidia"), **kernel()},
        planned=VULKAN,
        nodes=nodes(),
        gpus=("0", "1"),
        findings=("manifest-missing", "companion-missing"),
        remark="Of the manifests Google's installer has Vulkan's alone.",
    ),
    HostLayout(
        name="gke-pod",
        who="A pod of GKE, with the driver in /usr/local/nvidia",
        source=PODS,
        spec={**SYSTEM, **googles("/usr/local/nvidia"), **kernel()},
        planned=VULKAN,
        nodes=nodes(),
        gpus=("0", "1"),
        findings=("manifest-missing", "companion-missing"),
        remark="Of the manifests Google's installer has Vulkan's alone.",
    ),
    whole_host(
        name="aks",
        who="AKS' nodes with Ubuntu: libraries in /usr/local/nvidia/lib64",
        source="https://github.com/Azure/aks-gpu",
        spec={**MERGED, **driver(Places(lib="/usr/local/nvidia/lib64", vulkan="/etc/vulkan")), **kernel()},
    ),
    HostLayout(
        name="cos",
        who="Container-Optimized OS by itself",
        source="https://docs.cloud.google.com/container-optimized-os/docs/how-to/run-gpus",
        spec={**SYSTEM, **googles("/var/lib/nvidia"), **kernel()},
        planned=VULKAN,
        nodes=nodes(),
        gpus=("0", "1"),
        findings=("manifest-missing", "companion-missing"),
        remark="Of the manifests Google's installer has Vulkan's alone.",
    ),
    whole_host(
        name="operator-unnamed-ubuntu",
        who="NVIDIA's GPU Operator without `--root`, driver container of Ubuntu",
        source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/platform-support.html",
        spec={**MERGED, **SYSTEM, **prefix("/run/nvidia/driver/usr", "lib/x86_64-linux-gnu"), **kernel()},
    ),
    whole_host(
        name="operator-unnamed-rhel",
        who="NVIDIA's GPU Operator without `--root`, driver container of RHEL",
        source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/platform-support.html",
        spec={**MERGED, **SYSTEM, **prefix("/run/nvidia/driver/usr"), **kernel()},
    ),
    whole_host(
        name="bottlerocket",
        who="Bottlerocket, NVIDIA's variants",
        source="https://github.com/bottlerocket-os/bottlerocket-kernel-kit",
        spec={
            **(tesla := libraries("/usr/lib/nvidia/tesla")),
            **cached(tesla, "/usr/lib/nvidia/tesla"),
            **programs("/usr/libexec/nvidia/tesla/bin"),
            **manifests(Places()),
            **kernel(),
        },
    ),
    whole_host(
        name="flatcar",
        who="Flatcar, CoreOS: /opt/nvidia/current",
        source="https://github.com/NVIDIA/k8s-dra-driver-gpu",
        spec={
            **SYSTEM,
            **prefix(f"/opt/nvidia/{V}/usr"),
            "/opt/nvidia/current": Link(V),
            **kernel(),
        },
    ),
    whole_host(
        name="bright",
        who="Bright Cluster Manager, Base Command Manager",
        source="https://support.brightcomputing.com/manuals/10/admin-manual.pdf",
        spec={
            **MERGED,
            **SYSTEM,
            **prefix(BRIGHT),
            "/cm/local/apps/cuda-driver/libs/current": Link(V),
            **kernel(),
        },
    ),
    whole_host(
        name="module-option",
        who="A driver in a module tree, named with `--library-path`",
        source="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",
        spec={**MERGED, **SYSTEM, **prefix(MODULE), **kernel()},
        request=Request(library_path=(RootedPath(f"{MODULE}/lib64"),)),
    ),
    whole_host(
        name="module-loaded",
        who="A driver in a module tree, by the module's LD_LIBRARY_PATH",
        source="https://modules.readthedocs.io/en/latest/",
        spec={**MERGED, **SYSTEM, **prefix(MODULE), **kernel()},
        findings=("driver-of-module",),
        environ={"LD_LIBRARY_PATH": f"/opt/apps/cuda/lib64:{MODULE}/lib64:"},
    ),
    whole_host(
        name="linked",
        who="A site's driver, with links to it in /usr/lib64",
        source="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",
        spec={
            **MERGED,
            **(site := prefix(f"/opt/site/nvidia/{V}")),
            **(
                links := {
                    f"/usr/lib64/{path.rpartition('/')[2]}": Link(path)
                    for path in site
                    if ".so" in path and path.count("/") == 6
                }
            ),
            **cached(links, "/usr/lib64"),
            **kernel(),
        },
    ),
)
