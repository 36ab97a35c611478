"""Hosts that are containers themselves, or whose driver is in one."""

from __future__ import annotations

import json

from gpubind.model.data import read_data
from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import MERGED, Places, cached, driver, libraries, listed, manifests, nodes, planned, programs
from tests.support.driver import V, kernel
from tests.support.elf import elf
from tests.support.trees import File, Spec

LIB = "/usr/lib/x86_64-linux-gnu"
UBUNTU, RHEL = driver(Places(lib=LIB)), driver()
BY_APPTAINER = json.loads(read_data("model/data/like.json"))["names"]["apptainer"]["nvidia"]
COLAB = {**libraries("/usr/lib64-nvidia"), "/opt/bin/nvidia-smi": File(elf(kind=2), 0o755)}
OPERATOR = "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/overview.html"
NODES, GPUS = nodes(), ("0", "1")


def is_bound(name: str) -> bool:
    """Return whether Apptainer's --nv binds a file called *name*."""
    return any(name == one or (name.startswith(one) and ".so" in one) for one in map(last, BY_APPTAINER))


def last(path: str) -> str:
    return path.rpartition("/")[2]


def in_apptainer() -> Spec:
    """Return what Apptainer's --nv has bound: the libraries of the cache in one directory, each a file of its own."""
    flat = {
        f"/.singularity.d/libs/{name}": item for name, item in listed(libraries("/usr/lib64"), "/usr/lib64").items()
    }
    bound = {**flat, **programs("/usr/bin"), **manifests(Places())}
    return {path: item for path, item in bound.items() if is_bound(last(path))}


def operator(name: str, whose: str, spec: Spec) -> HostLayout:
    return HostLayout(
        name=f"gpu-operator-root-{name}",
        who=f"GPU Operator's driver container on {whose}, `--root /run/nvidia/driver --dev-root /`",
        source=OPERATOR,
        spec=spec,
        dev=kernel(),
        root="/run/nvidia/driver",
        planned=planned(),
        nodes=NODES,
        gpus=GPUS,
    )


BOUND = frozenset(map(last, in_apptainer()))

LAYOUTS = (
    operator("ubuntu", "Ubuntu", {**MERGED, **UBUNTU}),
    operator("rhel", "RHEL", {**MERGED, **RHEL}),
    HostLayout(
        name="colab",
        who="Google Colab",
        source="https://github.com/google-deepmind/mujoco/blob/main/python/tutorial.ipynb",
        spec={**MERGED, **COLAB, **cached(COLAB, "/usr/lib64-nvidia"), **kernel(gpus=1)},
        planned={**planned(V, "programs", "manifests"), "programs": ("nvidia-smi",)},
        nodes=nodes(1),
        gpus=("0",),
        environ={"PATH": "/opt/bin:/usr/bin:/bin"},
        findings=("companion-missing", "manifest-missing"),
        remark="Colab has no manifests: for EGL, write /usr/share/glvnd/egl_vendor.d/10_nvidia.json.",
    ),
    HostLayout(
        name="in-docker",
        who="inside `docker run --gpus device=1`",
        source="https://github.com/NVIDIA/libnvidia-container",
        spec={**MERGED, **UBUNTU, **{path: item for path, item in kernel().items() if path != "/dev/nvidia0"}},
        planned=planned(),
        nodes=tuple(node for node in NODES if node != "/dev/nvidia0"),
        gpus=GPUS,
        findings=("gpu-node-missing",),
    ),
    HostLayout(
        name="in-apptainer",
        who="inside `apptainer exec --nv`",
        source="https://apptainer.org/docs/user/main/gpu.html",
        spec={**MERGED, **in_apptainer(), **cached({}), **kernel()},
        planned={kind: tuple(name for name in names if name in BOUND) for kind, names in planned().items()},
        nodes=NODES,
        gpus=GPUS,
        findings=("gbm-backend-missing", "manifest-missing"),
        remark="Apptainer's own --nv binds a part of the driver: start the outer container with gpubind for all of it.",
    ),
)
