"""What varies beside the image: options of the real program, environments of the caller, configurations of the site.

`/srv/nw/files` is a directory of the machine, which `build` fills.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import NamedTuple

FILES = "/srv/nw/files"
UUIDS = tuple(f"GPU-0000000{index}-0000-0000-0000-000000000000" for index in (0, 1))
"""Of the two GPUs of the machine."""

OPTIONS = tuple(
    tuple(shlex.split(words))
    for words in (
        "--contain",
        "-c",
        "--contain=1",
        "--contain=true",
        "--contain=false",
        "-ec",
        "-ce",
        "-ucW /tmp",
        f"--containall --no-mount proc --env-file {FILES}/env",
        "-C --no-mount proc",
        "--compat --no-mount proc",
        "--cleanenv",
        "-e",
        "--no-home",
        "--no-eval",
        "--no-eval=true",
        "--writable-tmpfs",
        "--no-mount tmp",
        "--no-mount home,cwd",
        "--userns",
        "-u",
        "--fakeroot",
        "-f",
        f"--overlay {FILES}/overlay:ro",
        "--underlay",
        "--writable",
        "--ipc",
        "--uts --hostname node",
        "--nv",
        "--nv=true",
        "--rocm",
        "-H /tmp",
        "--home /home/user:/h",
        "--pwd /tmp",
        "--cwd /usr",
        f"-S /scratch --workdir {FILES}/work",
        "--no-umask",
        f"--containlibs {FILES}/own/libown.so.1",
        f"--bind {FILES}/data:/data",
        f"-B {FILES}/data:/mnt:ro",
        f"-B{FILES}/data:/opt/nw",
        f"--bind={FILES}/data:/data,{FILES}/data:/mnt",
        f"--mount type=bind,src={FILES}/data,dst=/data,ro",
        f"""--mount 'type=bind,"source={FILES}/a,b",destination=/data'""",
        f"-B {FILES}/stub:/opt/nw",
        "--env A=1",
        "--env A=1,B=2",
        "--env 'A=two words'",
        """--env '"A=x=1,y=2"'""",
        "--env 'A=$HOME/x'",
        r"--env 'A=\$HOME'",
        "--env A=",
        "--env CUDA_VISIBLE_DEVICES=1",
        f"--env=CUDA_VISIBLE_DEVICES={UUIDS[1]}",
        "--env A=1,CUDA_VISIBLE_DEVICES=0",
        "--env NVIDIA_VISIBLE_DEVICES=1",
        "--env LD_LIBRARY_PATH=/opt/own/lib",
        "--env LD_LIBRARY_PATH=/opt/own/lib:/opt/x,A=1",
        "--env 'LD_LIBRARY_PATH=/opt/own/lib:$LD_LIBRARY_PATH'",
        f"--env LD_LIBRARY_PATH={FILES}/stub -B {FILES}/stub",
        "--env PREPEND_PATH=/opt/t",
        "--env PATH=/opt/t:/usr/bin:/bin",
        "--env OMP_NUM_THREADS=7 --env FOO=caller",
        f"--env-file {FILES}/env",
        f"--env-file={FILES}/env-gpu",
    )
)
"""Each a group of words that belong together."""

ENVIRONMENTS: tuple[Mapping[str, str], ...] = (
    {"APPTAINER_CONTAIN": "1"},
    {"APPTAINER_CONTAIN": "true"},
    {"APPTAINER_CONTAIN": "0"},
    {"SINGULARITY_CONTAIN": "1"},
    {"APPTAINER_NO_EVAL": "1"},
    {"SINGULARITY_NO_EVAL": "true"},
    {"APPTAINER_CLEANENV": "1"},
    {"SINGULARITY_CLEANENV": "1"},
    {"APPTAINER_WRITABLE_TMPFS": "1"},
    {"APPTAINER_WRITABLE": "1"},
    {"APPTAINER_NO_HOME": "1"},
    {"APPTAINER_USERNS": "1"},
    {"APPTAINER_NO_MOUNT": "tmp"},
    {"APPTAINER_NV": "1"},
    {"SINGULARITY_NV": "1", "APPTAINER_ROCM": "1"},
    {"APPTAINER_BIND": f"{FILES}/data:/data"},
    {"SINGULARITY_BIND": f"{FILES}/data:/data:ro"},
    {"APPTAINER_BINDPATH": f"{FILES}/data:/mnt"},
    {"SINGULARITY_BINDPATH": f"{FILES}/data:/mnt,{FILES}/own:/opt/nw"},
    {"APPTAINER_MOUNT": f"type=bind,src={FILES}/data,dst=/data"},
    {"APPTAINER_CONTAINLIBS": f"{FILES}/own/libown.so.1"},
    {"APPTAINERENV_LD_LIBRARY_PATH": "/opt/own/lib"},
    {"SINGULARITYENV_LD_LIBRARY_PATH": "/opt/own/lib:/opt/y"},
    {"APPTAINERENV_LD_LIBRARY_PATH": f"{FILES}/stub", "APPTAINER_BIND": FILES},
    {"APPTAINERENV_LD_LIBRARY_PATH": "/usr/local/cuda-13.0/compat:/usr/local/cuda/compat/lib.real"},
    {"APPTAINERENV_LD_LIBRARY_PATH": "/opt/own/lib:$LD_LIBRARY_PATH"},
    {"APPTAINERENV_PREPEND_PATH": "/opt/t", "SINGULARITYENV_APPEND_PATH": "/opt/u"},
    {"APPTAINERENV_CUDA_VISIBLE_DEVICES": "1"},
    {"SINGULARITYENV_CUDA_VISIBLE_DEVICES": "0"},
    {"CUDA_VISIBLE_DEVICES": "0,1", "APPTAINERENV_CUDA_VISIBLE_DEVICES": UUIDS[1]},
    {"APPTAINERENV_FOO": "caller's", "SINGULARITYENV_OMP_NUM_THREADS": "9"},
    {"APPTAINERENV_WEIRD": 'a=1,b=2 "x" \\ end', "WEIRD": 'host\'s, "quoted" $HOME `id`'},
    {"CUDA_VISIBLE_DEVICES": "0"},
    {"CUDA_VISIBLE_DEVICES": "1"},
    {"CUDA_VISIBLE_DEVICES": "1,0"},
    {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    {"CUDA_VISIBLE_DEVICES": UUIDS[1]},
    {"CUDA_VISIBLE_DEVICES": f"{UUIDS[1]},{UUIDS[0]}"},
    {"CUDA_VISIBLE_DEVICES": "GPU-00000001"},
    {"CUDA_VISIBLE_DEVICES": ""},
    {"CUDA_VISIBLE_DEVICES": "-1"},
    {"CUDA_VISIBLE_DEVICES": "0,7,1"},
    {"CUDA_VISIBLE_DEVICES": "NoDevFiles"},
    {"SLURM_JOB_GPUS": "1", "CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_ID": "7"},
    {"SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "0,1"},
    {"SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1", "APPTAINERENV_CUDA_VISIBLE_DEVICES": "1"},
    {"SLURM_JOB_GPUS": "0"},
    {"NVIDIA_VISIBLE_DEVICES": "1"},
    {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0"},
    {"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0"},
    {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/opt/host/lib"},
    {"PYTHONPATH": "/home/user/python", "OMP_NUM_THREADS": "2", "FOO": "host's"},
    {"GBM_BACKENDS_PATH": "/home/user/gbm"},
    {"LD_PRELOAD": "", "LANG": "de_DE.UTF-8", "TMPDIR": "/tmp"},
)
"""What is added to the caller's environment."""

CREATED_OPTIONS = tuple(
    tuple(shlex.split(words))
    for words in (
        "-e A=1",
        "--env 'A=two words'",
        "-e PATH=/opt/t:/usr/bin:/bin",
        "-e LD_LIBRARY_PATH=/opt/own/lib",
        "-e CUDA_VISIBLE_DEVICES=1",
        f"-e CUDA_VISIBLE_DEVICES={UUIDS[1]} -e OMP_NUM_THREADS=7",
        "-e NVIDIA_VISIBLE_DEVICES=1",
        "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        f"--env-file={FILES}/env-gpu",
        f"-v {FILES}/data:/data",
        f"--volume={FILES}/data:/mnt:ro",
        f"--mount type=bind,source={FILES}/data,target=/data,readonly",
        f"-v {FILES}/stub:/opt/nw -e LD_LIBRARY_PATH=/opt/nw",
        "--tmpfs /scratch",
        "-w /usr",
        "--user 1000:1000",
        "-u 1000 --group-add 44",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--shm-size 64m",
        "--ipc host",
        "--label a=b",
        "--rm",
    )
)
"""The same of docker and podman, for containers that are created."""

REQUESTS: Mapping[str, tuple[str, ...]] = {
    "docker": (
        "--device nvidia.com/gpu=all",
        "--device=nvidia.com/gpu=1",
        f"--device nvidia.com/gpu={UUIDS[1]}",
        "--device nvidia.com/gpu=0 --device nvidia.com/gpu=1",
    ),
    "podman": ("--gpus all", "--gpus=1", "--device nvidia.com/gpu=all", "--device=nvidia.com/gpu=0"),
}
"""How a line asks for GPUs, by engine: without NVIDIA's toolkit docker has only CDI devices."""

CREATED_SITES = (
    "podman create, toolkit's spec",
    "podman create, toolkit's spec, update",
    "podman create, gpubind's spec, update",
    "podman run, gpubind's spec",
    "podman run, toolkit's spec, update",
    "docker create, gpubind's spec, update",
    "docker create, toolkit's spec, update",
    "docker run, toolkit's spec",
)
"""How a container is created (`run`: with -d, and a command enters it), whose CDI spec the machine has, and whether the
driver is updated before the container is started (`run`: again). The spec is renewed then.
"""

SITES: Mapping[str, Mapping[str, str]] = {
    "as installed": {},
    "mount dev = minimal": {"mount dev": "minimal"},
    "always use nv = yes": {"always use nv": "yes"},
    "no overlay, no underlay": {"enable overlay": "no", "enable underlay": "no"},
    "bind path": {"bind path": f"{FILES}/data:/data"},
}
"""Directives of apptainer.conf that are not as they are installed."""


class Caller(NamedTuple):
    """Who starts the container."""

    user: bool
    home: str
    directory: str


CALLERS = (
    Caller(True, "/home/user", "/home/user"),
    Caller(True, "/home/user", FILES),
    Caller(False, "/root", "/root"),
)
