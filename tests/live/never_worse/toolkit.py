"""toolkit.py SPEC   write a CDI spec as NVIDIA's toolkit does: the files at their own paths, and a hook.

toolkit.py   be that hook: in the container whose state is on standard input, the ld cache and libcuda.so.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping

COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
PROGRAMS = ("nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control")
OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")


def main(spec: str = "") -> None:
    if spec:
        with open(spec, "w") as file:
            json.dump(made(), file)
    else:
        hook(json.load(sys.stdin))


def made() -> dict[str, object]:
    with open("/proc/driver/nvidia/version") as file:
        version = file.read().split("Module")[1].split()[0]
    cached = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    files = {os.path.realpath(path) for path in re.findall(r" => (\S+)", cached)}
    places = {path: path for path in files if path.endswith(f".so.{version}")}
    places |= {os.path.realpath(f"/usr/bin/{name}"): f"/usr/bin/{name}" for name in PROGRAMS}
    gpus = {name: [f"/dev/nvidia{name}"] for name in ("0", "1")}
    gpus |= {f"GPU-0000000{name}-0000-0000-0000-000000000000": nodes for name, nodes in gpus.items()}
    gpus["all"] = ["/dev/nvidia0", "/dev/nvidia1"]
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": name, "containerEdits": {"deviceNodes": nodes_of(nodes)}} for name, nodes in gpus.items()],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": nodes_of(path for path in COMMON if os.path.exists(path)),
            "mounts": [{"hostPath": a, "containerPath": b, "options": OPTIONS} for a, b in sorted(places.items())],
            "hooks": [{"hookName": "createContainer", "path": sys.executable, "args": ["python3", __file__]}],
        },
    }


def nodes_of(paths: Iterable[str]) -> list[dict[str, str]]:
    return [{"path": path} for path in paths]


def hook(state: Mapping[str, str]) -> None:
    with open(f"{state['bundle']}/config.json") as file:
        config = json.load(file)
    root = os.path.join(state["bundle"], config["root"]["path"])
    libraries = [mount["destination"] for mount in config["mounts"] if ".so." in mount["destination"]]
    directories = sorted({os.path.dirname(path) for path in libraries})
    os.makedirs(f"{root}/etc/ld.so.conf.d", exist_ok=True)
    with open(f"{root}/etc/ld.so.conf.d/00-toolkit.conf", "w") as file:
        file.write("\n".join([*directories, ""]))
    for path in libraries:
        if os.path.basename(path).startswith("libcuda.so."):
            subprocess.run(["/bin/ln", "-sf", "libcuda.so.1", f"{root}{os.path.dirname(path)}/libcuda.so"], check=True)
    subprocess.run(["/sbin/ldconfig", "-r", root], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
