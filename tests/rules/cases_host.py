"""Where each rule about hosts fires, and where it is almost so."""

from __future__ import annotations

import json
from typing import Any, Optional

from gpubind.host import ListFile
from gpubind.host.base import Untrusted
from gpubind.model import CAPABILITIES
from gpubind.model.requirements import Expectation
from tests.layouts.families.windows import STORE, store, wsl
from tests.rules.situations import Case, Situation, without
from tests.support.amd import kernel as amds_kernel
from tests.support.amd import opt
from tests.support.driver import SONAMES, V, kernel, libraries, rhel
from tests.support.elf import elf, stub
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Dir, File, Hidden, Item, Link, Node, Socket, Spec, Unread

GRAPHICS = {"caps": ("compute", "utility", "graphics")}
INFORMATION = "/proc/driver/nvidia/gpus/0000:01:00.0/information"
CAPABILITIES_OF_GPU0 = "/proc/driver/nvidia/capabilities/gpu0/mig"
DEVICES = "Character devices:\n195 nvidia\n226 drm\n235 nvidia-uvm\n"
MANIFEST = "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"
JETSON = "/etc/nvidia-container-runtime/host-files-for-container.d/devices.csv"
FILE_LIST = "/usr/share/nvidia/files.d/sandboxutils-filelist.json"
STARTER = "/usr/lib/aarch64-linux-gnu/apptainer/bin/starter-suid"

PCI_GPU: Spec = {
    "/sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
    "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:01:00.0/driver": Link("../../../bus/pci/drivers/vfio-pci"),
}


def on_the_bus(device: str, number: int = 1, module: Optional[str] = None) -> Spec:
    """A GPU of NVIDIA's on the PCI bus, and the kernel driver that has it."""
    base = f"/sys/bus/pci/devices/0000:{number:02x}:00.0"
    bound = {} if module is None else {f"{base}/driver": Link(f"../../../bus/pci/drivers/{module}")}
    return {f"{base}/class": "0x030200\n", f"{base}/vendor": "0x10de\n", f"{base}/device": f"{device}\n", **bound}


K80, P100, A100, RTX_5090 = "0x102d", "0x15f8", "0x20b0", "0x2b85"
PCI_OTHER: Spec = {
    "/sys/bus/pci/devices/0000:01:00.0/class": "0x030000\n",
    "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x8086\n",
    "/sys/bus/pci/devices/0000:02:00.0/class": "0x0c0330\n",
    "/sys/bus/pci/devices/0000:02:00.0/vendor": "0x10de\n",
}
"""A display controller that is not NVIDIA's, and a USB controller that is."""


def information(uuid: str = "GPU-00000000-1111-2222-3333-444444444444", excluded: str = "No") -> Spec:
    """What the driver tells of the first GPU."""
    text = f"Model: X\nGPU UUID: {uuid}\nBus Location: 0000:01:00.0\nDevice Minor: 0\nGPU Excluded: {excluded}\n"
    return {INFORMATION: text}


def healthy(*more: Spec, gpus: int = 2) -> tuple[Spec, ...]:
    """A host without faults, and *more*."""
    return (rhel(), kernel(gpus=gpus), *more)


def lacking(*paths: str, gpus: int = 2) -> tuple[Spec, ...]:
    """A host without faults, but for *paths*."""
    return (without(rhel(), *paths), without(kernel(gpus=gpus), *paths))


def cached(*entries: tuple[str, str]) -> Spec:
    """An ld cache with the driver's names in it, after *entries*."""
    own = [
        entry(name, f"/usr/lib64/{name}") for name in sorted({name for name in SONAMES.values() if name.endswith(".1")})
    ]
    return {"/etc/ld.so.cache": build_ldcache([*(entry(name, path) for name, path in entries), *own])}


def mig(gpu_instances: tuple[str, ...] = ("gi1/ci0",), nodes: tuple[int, ...] = (12, 13), mode: int = 0o444) -> Spec:
    """The first GPU divided: its instances, and the nodes that access them."""
    spec: dict[str, Item] = {
        "/proc/devices": DEVICES + "234 nvidia-caps\n",
        "/proc/driver/nvidia-caps/mig-minors": "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n",
    }
    for instance in gpu_instances:
        spec[f"{CAPABILITIES_OF_GPU0}/{instance}/access"] = ""
    for number in nodes:
        spec[f"/dev/nvidia-caps/nvidia-cap{number}"] = Node("char", 234, number, mode)
    return spec


def site_list(text: str) -> ListFile:
    """The list that a site has put in force."""
    return ListFile("/etc/gpubind/nvliblist.conf", text.encode(), shipped=False)


UNTOLD = "GPU-????????-????-????-????-????????????"
AMDS = {"vendors": ("amd",)}
BOTH = {"vendors": ("nvidia", "amd")}
ONE = {"gpus": "0000:01:00.0"}
OTHER_MODEL: Spec = {
    INFORMATION: "Model: NVIDIA T4\nGPU UUID: GPU-00000000-1111-2222-3333-444444444444\nBus Location: 0000:01:00.0\n"
    "Device Minor: 0\nGPU Excluded: No\n"
}
"""The first GPU, slower than the second."""

RUNNING_MPS: Spec = {
    "/tmp/nvidia-mps": Dir(),
    "/tmp/nvidia-mps/control": Socket(),
    "/tmp/nvidia-mps/nvidia-cuda-mps-control.pid": "4711\n",
}
STALE_MPS: Spec = {"/tmp/nvidia-mps": Dir(), "/tmp/nvidia-mps/control": Socket()}
NVSWITCH: Spec = {"/dev/nvidia-nvswitch0": Node("char", 237, 0)}
IMEX: Spec = {
    "/proc/devices": DEVICES + "236 nvidia-caps-imex-channels\n",
    "/dev/nvidia-caps-imex-channels": Dir(),
    "/etc/nvidia-imex/nodes_config.cfg": "10.0.0.1\n",
}
GDS: Spec = {"/proc/devices": DEVICES + "511 nvidia-fs\n", "/run/udev": Dir()}
NO_USERNS: Spec = {"/proc/sys/user/max_user_namespaces": "0\n"}
USUAL = "/lib64/ld-linux-x86-64.so.2"
WHOLE_LIST = "\n".join((*(f"{stem}.so" for stem in SONAMES), "libvdpau_nvidia.so", "nvidia-drm_gbm.so"))
NIX = "/nix/store/x-glibc-2.38/lib/ld-linux-x86-64.so.2"

GOOD = Expectation(
    "node.toml", (V,), (("NVIDIA A100", 2),), ("compute", "utility"), ("libcuda.so", "libnvidia-nvvm.so")
)
NVVM = ("/usr/lib64/libnvidia-nvvm.so.4", f"/usr/lib64/libnvidia-nvvm.so.{V}")

CDI = "/etc/cdi/nvidia.json"
CDI_ON: dict[str, Any] = {"source": "cdi"}


def cdi(*, mounts: tuple[str, ...] = (), node: Optional[dict[str, Any]] = None, **edits: Any) -> dict[str, Item]:
    """A spec of both GPUs with the driver's libraries, and *edits* of the file."""
    files = [f"/usr/lib64/libcuda.so.{V}", *mounts]
    common = {"mounts": [{"hostPath": path, "containerPath": path} for path in files], **edits}
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{n}"} for n in numbers]}}
        for name, numbers in (("0", (0,)), ("1", (1,)), ("all", (0, 1)))
    ]
    devices[0]["containerEdits"]["deviceNodes"][0].update(node or {})  # type: ignore[index]
    spec = {"cdiVersion": "0.7.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": common}
    return {CDI: json.dumps(spec)}


def hook(name: str) -> dict[str, Any]:
    """A hook of NVIDIA's program."""
    words = ["nvidia-cdi-hook", name]
    return {"hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": words}]}


CASES: dict[str, Case] = {
    # CDI specs.
    "bad-cdi": Case(
        Situation(healthy({CDI: "cdiVersion: 9.9.9\n"})),
        # The CDI project does not read files of this name.
        Situation(healthy({"/etc/cdi/nvidia.yml": "cdiVersion: 9.9.9\n"})),
    ),
    "cdi-conflict": Case(
        Situation(healthy(cdi(), {"/etc/cdi/second.json": cdi()[CDI]})),
        Situation(healthy(cdi(), {"/var/run/cdi/second.json": cdi()[CDI]})),
    ),
    "cdi-edit": Case(
        Situation(healthy(cdi(intelRdt={"closID": "gpu"})), request=CDI_ON),
        # Root has every group's rights.
        Situation(healthy(cdi(additionalGids=[44])), request=CDI_ON, facts={"euid": 0}),
    ),
    "cdi-hook": Case(
        Situation(healthy(cdi(**hook("make-coffee"))), request=CDI_ON),
        Situation(healthy(cdi(**hook("disable-device-node-modification"))), request=CDI_ON),
    ),
    "stale-cdi": Case(
        Situation(healthy(cdi(mounts=("/usr/lib64/libcuda.so.535.54.03",)))),
        Situation(healthy(cdi(node={"major": 195, "minor": 0, "type": "c"}))),
    ),
    # What rules find.
    "control-node-missing": Case(
        Situation(lacking("/dev/nvidiactl")),
        Situation((rhel(), without(kernel(None), "/dev/nvidiactl"))),
    ),
    "dev-char-links-missing": Case(
        Situation(lacking("/dev/char/195:255"), backend="podman"),
        Situation(lacking("/dev/char/195:255"), backend="apptainer"),
    ),
    "device-file-mode": Case(
        Situation(
            healthy(
                {
                    "/dev/nvidia0": Node("char", 195, 0, 0o660, 0, 44),
                    "/proc/driver/nvidia/params": "ModifyDeviceFiles: 1\nDeviceFileGID: 44\nDeviceFileMode: 432\n",
                }
            )
        ),
        # The driver would let everybody use it: somebody else has changed the node.
        Situation(
            healthy(
                {
                    "/dev/nvidia0": Node("char", 195, 0, 0o660, 0, 44),
                    "/proc/driver/nvidia/params": "ModifyDeviceFiles: 1\nDeviceFileGID: 0\nDeviceFileMode: 438\n",
                }
            )
        ),
    ),
    "drm-modeset-off": Case(
        Situation(healthy({"/sys/module/nvidia_drm/parameters/modeset": "N\n"}), request=GRAPHICS),
        Situation(healthy({"/sys/module/nvidia_drm/parameters/modeset": "Y\n"}), request=GRAPHICS),
    ),
    "fabric-manager-missing": Case(
        Situation(healthy(NVSWITCH)),
        Situation(healthy(NVSWITCH, {"/run/nvidia-fabricmanager/nv-fabricmanager.pid": "1\n"})),
    ),
    "foreign-interpreter": Case(
        Situation(healthy({"/usr/bin/nvidia-smi": File(elf(kind=2, interpreter=NIX), 0o755)})),
        Situation(healthy({"/usr/bin/nvidia-smi": File(elf(kind=2, interpreter=USUAL), 0o755)})),
    ),
    "gbm-backend-missing": Case(
        Situation(
            lacking(
                "/usr/lib64/libnvidia-allocator.so.1",
                f"/usr/lib64/libnvidia-allocator.so.{V}",
                "/usr/lib64/gbm/nvidia-drm_gbm.so",
            ),
            request=GRAPHICS,
        ),
        # The name is missing, the library is not: the plan adds the name.
        Situation(lacking("/usr/lib64/gbm/nvidia-drm_gbm.so"), request=GRAPHICS),
    ),
    "gds-incomplete": Case(
        Situation(healthy(GDS)),
        Situation(healthy(GDS, {"/dev/nvidia-fs0": Node("char", 511, 0)})),
    ),
    "gpudirect-not-asked": Case(
        Situation(healthy({"/dev/gdrdrv": Node("char", 505, 0), "/dev/infiniband/uverbs0": Node("char", 231, 192)})),
        Situation(
            healthy({"/dev/gdrdrv": Node("char", 505, 0), "/dev/infiniband/umad0": Node("char", 231, 0)}),
            facts={"environ": {"NVIDIA_GDRCOPY": "enabled"}},
        ),
    ),
    "expected-capability": Case(
        Situation(healthy(), expected=(GOOD._replace(capabilities=("ngx",)),)),
        # The host has what is left out on request.
        Situation(healthy(), expected=(GOOD._replace(capabilities=("graphics",)),), request={"caps": ("utility",)}),
    ),
    "expected-driver": Case(
        Situation(healthy(), expected=(GOOD._replace(drivers=("550.54",)), GOOD._replace(drivers=("55",)))),
        Situation(healthy(), expected=(GOOD._replace(drivers=("550",)),)),
    ),
    "expected-gpus": Case(
        Situation(healthy(gpus=1), expected=(GOOD,)),
        # A job's choice changes nothing.
        Situation(healthy(), expected=(GOOD,), request={"gpus": "0"}),
    ),
    "expected-library": Case(
        Situation(lacking(*NVVM), expected=(GOOD,)),
        # Another driver has other libraries.
        Situation(lacking(*NVVM), expected=(GOOD._replace(drivers=("535.54.03",)),)),
    ),
    "expected-partition": Case(
        Situation((opt(), amds_kernel()), expected=(Expectation(partitions=("CPX", "NPS2")),), request=AMDS),
        Situation((opt(), amds_kernel()), expected=(Expectation(partitions=("CPX/NPS4", "NPS1")),), request=AMDS),
    ),
    "gpu-excluded": Case(Situation(healthy(information(excluded="Yes"))), Situation(healthy(information()))),
    "gpu-node-missing": Case(
        Situation(lacking("/dev/nvidia1")),
        # A GPU that is excluded needs no node.
        Situation((rhel(), without(kernel(), "/dev/nvidia0"), information(excluded="Yes"))),
    ),
    "gpu-uninitialised": Case(
        Situation(healthy(information("GPU-????????-????-????-????-????????????"))), Situation(healthy(information()))
    ),
    "gpu-without-driver": Case(Situation((PCI_GPU,)), Situation((PCI_OTHER,))),
    "imex-channel-missing": Case(
        Situation(healthy(IMEX)),
        # Every driver since 550 registers the device: without a domain it means nothing.
        Situation(healthy(without(IMEX, "/etc/nvidia-imex/nodes_config.cfg"))),
    ),
    "mig-mode": Case(
        Situation(healthy(mig())),
        Situation(healthy(mig()), facts={"environ": {"CUDA_VISIBLE_DEVICES": "MIG-11111111-2222"}}),
    ),
    "mig-node-missing": Case(
        Situation(healthy(mig(nodes=(12,)))),
        Situation(healthy(mig())),
    ),
    "mps-active": Case(
        Situation(healthy(RUNNING_MPS), facts={"euid": 0}),
        Situation(healthy(STALE_MPS), facts={"euid": 0}),
    ),
    "mps-other-user": Case(Situation(healthy(RUNNING_MPS)), Situation(healthy(STALE_MPS))),
    "name-collision": Case(
        Situation(
            healthy(libraries("/usr/lib", machine=3, bits=32)),
            request={"caps": CAPABILITIES, "libdir": "/.gpubind/libs32"},
        ),
        # Two sources name one file: nothing is lost.
        Situation(
            healthy({"/run/nvidia-persistenced/socket": Socket()}),
            listfile=site_list("libcuda.so\n/run/nvidia-persistenced/socket\n"),
        ),
    ),
    "gpu-unsupported": Case(
        # The module does not load where it supports no GPU.
        Situation((rhel(), kernel(None, gpus=0), on_the_bus(K80))),
        # The loaded driver has the GPU, whatever the table says.
        Situation(healthy(on_the_bus(K80, module="nvidia"), gpus=1)),
    ),
    "no-gpu": Case(
        Situation(healthy({"/proc/driver/nvidia/gpus": Dir()}, gpus=0)),
        # In a container /proc may be hidden, and the nodes are there.
        Situation(healthy({"/dev/nvidia3": Node("char", 195, 3)}, gpus=0)),
    ),
    "no-nvml": Case(
        Situation(lacking("/usr/lib64/libnvidia-ml.so.1", f"/usr/lib64/libnvidia-ml.so.{V}")),
        Situation(
            lacking("/usr/lib64/libnvidia-ml.so.1", f"/usr/lib64/libnvidia-ml.so.{V}"), request={"caps": ("compute",)}
        ),
    ),
    "nouveau": Case(
        Situation((PCI_GPU, {"/sys/module/nouveau": Dir()})),
        Situation(healthy({"/sys/module/nouveau": Dir()})),
    ),
    "persistence-missing": Case(
        Situation(healthy(gpus=8)),
        Situation(healthy({"/var/run/nvidia-persistenced/socket": Socket()}, gpus=8)),
    ),
    "render-node-missing": Case(
        Situation(healthy(), request=GRAPHICS),
        Situation(healthy()),  # graphics was not asked for by name
    ),
    "stale-ldcache": Case(
        Situation(healthy(cached(("libnvcuvid.so.1", "/opt/gone/libnvcuvid.so.1")))),
        Situation(healthy(cached(("libz.so.1", "/opt/gone/libz.so.1")))),
    ),
    "stub-libcuda": Case(
        Situation(
            healthy(
                cached(("libcuda.so.1", "/usr/local/lib/libcuda.so.1")),
                {"/usr/local/lib/libcuda.so.1": stub()},
            )
        ),
        Situation(healthy({"/usr/local/cuda/lib64/stubs/libcuda.so.1": stub()})),
    ),
    "tegra": Case(
        Situation(healthy({"/etc/nv_tegra_release": "# R36\n"})),
        Situation(
            healthy(
                {
                    "/etc/nv_tegra_release": "# R36\n",
                    "/dev/nvmap": Node("char", 10, 0),
                    JETSON: "dev, nvmap\nlib, /x.so\n",
                },
            )
        ),
    ),
    "bad-tegra-list": Case(
        Situation(healthy({"/etc/nv_tegra_release": "# R36\n", JETSON: "dev, nvmap\nlib nothing\n"})),
        Situation(healthy({"/etc/nv_tegra_release": "# R36\n", JETSON: "# A board.\n\ndev, nvmap\n"})),
    ),
    "user-namespaces-off": Case(
        Situation(healthy(NO_USERNS), backend="apptainer"),
        Situation(healthy(NO_USERNS, {STARTER: File(elf(kind=2), 0o4755)}), backend="apptainer"),
    ),
    "library-unreadable": Case(
        Situation(healthy({f"/usr/lib64/libnvidia-ml.so.{V}": elf("libnvidia-ml.so.1")[:100]})),
        Situation(healthy({f"/usr/lib64/libnvidia-ml.so.{V}": elf("libnvidia-ml.so.1")})),
    ),
    "uvm-missing": Case(
        Situation(lacking("/dev/nvidia-uvm")),
        Situation(lacking("/dev/nvidia-uvm"), request={"caps": ("utility",)}),
    ),
    "uvm-not-loaded": Case(
        Situation(healthy({"/proc/devices": "Character devices:\n195 nvidia\n"})),
        Situation(healthy({"/proc/devices": "no table at all\n"})),
    ),
    "unlisted-directory": Case(
        Situation(healthy(), request={"library_path": ("/opt/driver/lib64",)}),
        Situation(healthy(), request={"library_path": ("/usr/lib64",)}),
    ),
    "typical-host": Case(Situation(healthy(), typical="driver 535.261.03, 4 x NVIDIA A100"), Situation(healthy())),
    "dev-root-assumed": Case(Situation(healthy(), assumes_dev_root=True), Situation(healthy())),
    "writable-by-others": Case(
        Situation(healthy(), untrusted=(Untrusted("file", "/home/a/.config/gpubind/config.toml", "/home/a"),)),
        Situation(healthy()),
    ),
    "wsl": Case(Situation(({**wsl(), **store(STORE)},)), Situation(healthy())),
    # What planning comes across.
    "bad-filelist": Case(Situation(healthy({FILE_LIST: "[{"})), Situation(healthy({FILE_LIST: "[]"}))),
    "bad-icd": Case(
        Situation(healthy({MANIFEST: "{"})),
        Situation(
            healthy({MANIFEST: '{"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0"}}'})
        ),
    ),
    "bad-ldcache": Case(
        Situation(healthy({"/etc/ld.so.cache": b"glibc-ld.so.cache1.1 and nothing"})),
        Situation(healthy({"/etc/ld.so.cache": build_ldcache([])})),
    ),
    "bad-procfs": Case(
        Situation(healthy({"/proc/devices": "Character devices:\nx y\n"})),
        Situation(healthy({"/proc/devices": "Block devices:\nx y\n"})),
    ),
    "device-number": Case(
        Situation(healthy({"/dev/nvidia-uvm": Node("char", 510, 0)})),
        Situation(healthy({"/dev/nvidia-something-new": Node("char", 510, 0)})),
    ),
    "device-permission": Case(
        Situation(healthy({"/dev/nvidia0": Node("char", 195, 0, 0o660, 0, 44)})),
        Situation(healthy({"/dev/nvidia0": Node("char", 195, 0, 0o660, 0, 44)}), facts={"groups": (44, 1000)}),
    ),
    "driver-mismatch": Case(
        Situation((rhel("535.54.03"), kernel())),
        Situation((rhel(), kernel(), libraries("/usr/lib", "535.54.03"))),
    ),
    "driver-not-loaded": Case(
        Situation((rhel(), kernel(None))),
        Situation(
            (
                rhel(),
                kernel(None),
                {"/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {V}  now\n"},
            )
        ),
    ),
    "gpu-order-unknown": Case(
        Situation(healthy(OTHER_MODEL), facts={"environ": {"CUDA_VISIBLE_DEVICES": "1"}}),
        Situation(
            healthy(OTHER_MODEL),
            facts={"environ": {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}},
        ),
    ),
    "gpu-forbidden": Case(
        Situation(healthy(), request={"gpus": "0"}, forbidden=("/dev/nvidia0",)),
        Situation(healthy(), forbidden=("/dev/nvidia0",)),  # another job's
    ),
    "gpu-unreadable": Case(
        Situation(healthy({INFORMATION: Hidden()})),
        Situation(healthy({INFORMATION: "Model: X\nDevice Minor: 0\n"})),
    ),
    "not-looked-at": Case(
        Situation(healthy({"/proc/driver/nvidia/params": Unread()})),
        Situation(healthy({"/proc/driver/nvidia/params": Hidden()})),  # forbidden is no question of looking
    ),
    "slurm-gpu-ambiguous": Case(
        Situation((*healthy(), amds_kernel(gpus=2), opt()), facts={"environ": {"SLURM_JOB_GPUS": "1"}}, request=BOTH),
        Situation((*healthy(), amds_kernel(gpus=2), opt()), facts={"environ": {"SLURM_JOB_GPUS": "129"}}, request=BOTH),
    ),
    "gpu-uuid-unknown": Case(
        Situation(healthy(information(UNTOLD)), facts={"environ": {"CUDA_VISIBLE_DEVICES": "GPU-dead"}}),
        Situation(healthy(information(UNTOLD)), facts={"environ": {"CUDA_VISIBLE_DEVICES": "GPU-dead"}}, request=ONE),
    ),
    "mig-unresolved": Case(
        Situation(healthy(mig()), facts={"environ": {"CUDA_VISIBLE_DEVICES": "MIG-1111"}}),
        Situation(
            healthy(mig()),
            facts={"environ": {"CUDA_VISIBLE_DEVICES": "MIG-GPU-00000000-1111-2222-3333-444444444444/1/0"}},
        ),
    ),
    "visible-devices-none": Case(
        Situation(healthy(), facts={"environ": {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}}),
        Situation(healthy(), facts={"environ": {"CUDA_VISIBLE_DEVICES": "0,-1"}}),
    ),
    "visible-devices-unknown": Case(
        Situation(healthy(), facts={"environ": {"CUDA_VISIBLE_DEVICES": "2"}}),
        Situation(healthy(), facts={"environ": {"CUDA_VISIBLE_DEVICES": "1,GPU-00000000-1111"}}),
    ),
    "like-collision": Case(
        Situation(
            (
                {"/a/libcuda.so": elf("x"), "/b/libcuda.so": elf("x")},
                {
                    "/etc/ld.so.cache": build_ldcache(
                        [entry("libcuda.so.1", "/a/libcuda.so"), entry("libcuda.so", "/b/libcuda.so")]
                    )
                },
            ),
            request={"like": "apptainer"},
        ),
        Situation(healthy(), request={"like": "apptainer"}),
    ),
    "like-entry": Case(
        Situation(healthy({"/etc/apptainer/nvliblist.conf": "bin/nvidia-smi\n"}), request={"like": "apptainer"}),
        Situation(healthy({"/etc/apptainer/nvliblist.conf": "nvidia-smi\n"}), request={"like": "apptainer"}),
    ),
    "like-ldcache": Case(
        Situation((without(rhel(), "/etc/ld.so.cache"), kernel()), request={"like": "apptainer"}),
        Situation((without(rhel(), "/etc/ld.so.cache"), kernel())),
    ),
    "no-ldcache": Case(
        Situation(lacking("/etc/ld.so.cache")), Situation(healthy({"/etc/ld.so.cache": build_ldcache([])}))
    ),
    "no-libcuda": Case(Situation((kernel(),)), Situation((libraries("/opt/nvidia/lib64"), kernel()))),
    "not-checked": Case(
        Situation(healthy(), request={"gpus": "9"}),
        Situation(healthy(), request={"gpus": "0"}),
    ),
    "not-in-list": Case(
        Situation(healthy(), listfile=site_list("libcuda.so\n")),
        Situation(healthy(), listfile=site_list(WHOLE_LIST)),
    ),
    "nothing-to-bind": Case(
        Situation(({"/usr/lib64/libGL.so.1": elf("libGL.so.1")},)),
        Situation(({"/dev/nvidiactl": Node("char", 195, 255)},)),
    ),
    "driver-of-module": Case(
        Situation((libraries("/opt/apps/lib64"), kernel()), facts={"environ": {"LD_LIBRARY_PATH": "/opt/apps/lib64"}}),
        Situation(healthy(libraries("/opt/apps/lib64")), facts={"environ": {"LD_LIBRARY_PATH": "/opt/apps/lib64"}}),
    ),
    "nvidia-smi-missing": Case(
        Situation(lacking("/usr/bin/nvidia-smi"), request={"caps": ("compute", "utility")}),
        Situation(lacking("/usr/bin/nvidia-smi"), request={"caps": ("compute",)}),
    ),
    "other-driver-version": Case(
        Situation(healthy(libraries("/usr/lib", "535.54.03"))),
        Situation(healthy(libraries("/usr/lib"))),
    ),
    "source-failed": Case(
        Situation(healthy(), request={"source": "nvidia-container-cli"}),
        Situation(healthy(), request={"source": "auto"}),
    ),
    "vendor-neutral-left-out": Case(
        Situation(healthy({"/usr/lib64/libGL.so.1": elf("libGL.so.1"), "/usr/lib64/libGLdispatch.so.0": elf("x")})),
        # Mesa's own, from before there was libglvnd: it belongs to no family.
        Situation(healthy({"/usr/lib64/libGL.so.1": elf("libGL.so.1")})),
    ),
}
