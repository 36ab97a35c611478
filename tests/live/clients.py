"""Programs that start containers by themselves, as the live tests run them: with and without gpubind.

A client's script and files have `{gpu}` where a GPU is requested.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from tests.live.engine_starts import LIMITS
from tests.live.machine import INSIDE_CHECKOUT, INSIDE_PYTHON

IMAGE = "localhost/clients:1"
"""In docker's and podman's store, with inner.py in its root."""
SIF = "/opt/clients/bookworm.sif"
TOOLS = "/srv/tools"
"""Where `tools` are on the machine."""
SHIMS = f"{TOOLS}/shims"
WORK = "/srv/work"

ARGUMENTS = "a 'b c'"
INNER = f"python3 inner.py {ARGUMENTS}"
INNER_OF_IMAGE = f"python3 /inner.py {ARGUMENTS}"


class Seen(NamedTuple):
    """What a client showed of the program in its container, and its own exit status."""

    cuinit: str
    libraries: int
    nodes: str
    started: str
    status: int


def seen(printed: str) -> Seen:
    """What is in the output of a client's script; it may have words of its own before each line."""
    drivers = set(re.findall(r"driver: cuInit=(\w+) libraries=(\d+) nodes=([\w,]*);", printed))
    starts = set(re.findall(r"started: (.*?);", printed))
    assert len(drivers) == len(starts) == 1, printed
    ((cuinit, libraries, nodes),) = drivers
    (started,) = starts
    status = re.findall(r"^exit (\d+)$", printed, re.MULTILINE)[-1]
    return Seen(cuinit, int(libraries), nodes, started, int(status))


class Client(NamedTuple):
    """A program that starts a container."""

    room: str
    """Its directory below /opt/clients."""
    script: str
    """What starts it, and shows what came of it."""
    files: Mapping[str, str] = {}
    gpu: str = ""
    """What requests a GPU, in the place of `{gpu}`."""
    plain: str = ""
    """The same for the start without gpubind: empty where that fails, as it does without NVIDIA's toolkit."""
    user: bool = False
    """For the ordinary user; else for root."""
    status: int = 7
    nodes: str = "nvidia0,nvidia1"
    needs_smi: bool = False
    """Whether it asks nvidia-smi for the GPUs of the host."""


SMI = """#!/bin/sh
case "$*" in
*--query-gpu*) for n in 0 1; do echo "$n, GPU-0000000$n-0000-0000-0000-000000000000"; done ;;
*) echo "<nvidia_smi_log><cuda_version>12.4</cuda_version><attached_gpus>2</attached_gpus>" \\
        "<gpu><product_brand>A</product_brand></gpu><gpu><product_brand>A</product_brand></gpu></nvidia_smi_log>" ;;
esac
"""
"""In the place of nvidia-smi, which fails without a GPU."""
GPUBIND = f"""#!/usr/bin/python3
import sys
sys.dont_write_bytecode = True
sys.path[:0] = ["{INSIDE_CHECKOUT}", "{INSIDE_PYTHON}"]
from gpubind.__main__ import main
sys.exit(main())
"""
OCI_RUNTIME = f"""#!/bin/sh
exec {TOOLS}/gpubind oci-runtime --runtime runc -- "$@"
"""
PROGRAMS = {"llama-server": f"#!/bin/sh\nexec {INNER_OF_IMAGE}\n", "apt-get": "#!/bin/sh\nexec sleep 60\n"}
"""Of the image: what ramalama starts, and what would fetch packages for a new box of distrobox' and fail."""
CONTAINERS_CONF = f"[containers]\nnetns = 'none'\ndefault_ulimits = {list(LIMITS)}\n"
"""The rig has no nft, and lacks the right to raise limits."""

SNAKEFILE = f"""
container: "{SIF}"
rule all:
    input: "inner.txt", "never.txt"
rule inner:
    output: "inner.txt"
    shell: "{INNER} > {{output}} || test $? -eq 7"
rule fails:
    output: "never.txt"
    shell: "exit 7"
"""
TOOL = """
cwlVersion: v1.2
class: CommandLineTool
$namespaces: {cwltool: "http://commonwl.org/cwltool#"}
requirements: {DockerRequirement: {{image}}}
hints: {{gpu}}
baseCommand: [python3]
arguments: [$(inputs.inner.path), a, b c]
inputs: {inner: {type: File, default: {class: File, location: inner.py}}}
outputs: {out: stdout}
stdout: out.txt
successCodes: [7]
"""
CUDA = '"cwltool:CUDARequirement": {cudaVersionMin: "12.0", cudaComputeCapability: "3.0", cudaDeviceCountMin: 1}'
WDL = f"""version 1.0
task inner {{
  input {{ File inner }}
  command <<< python3 ~{{inner}} {ARGUMENTS} >>>
  output {{ File out = stdout() }}
  runtime {{ docker: "bookworm" returnCodes: 7 }}
}}
"""
MINIWDL = """
mkdir cache && ln -s {sif} cache/docker___bookworm.sif
export MINIWDL__SCHEDULER__CONTAINER_BACKEND=singularity MINIWDL__SINGULARITY__IMAGE_CACHE=$PWD/cache
export MINIWDL__SINGULARITY__RUN_OPTIONS='["--contain", "--cleanenv"{gpu}]'
miniwdl run --dir out task.wdl inner=inner.py; echo exit $?
cat out/*/stdout.txt
"""
SPYTHON = f"""
import sys
from spython.main import Client
done = Client.execute("{SIF}", ["python3", "inner.py", "a", "b c"], bind=[".:/work"], options=["--pwd", "/work"],
                      nv={{gpu}}, return_result=True)
print(done["message"])
sys.exit(done["return_code"])
"""
BOUTIQUES = """{
 "name": "inner", "description": "inner", "tool-version": "1", "schema-version": "0.5",
 "command-line": "%s [OUT]",
 "inputs": [{"id": "out", "name": "out", "type": "String", "value-key": "[OUT]", "optional": true}],
 "container-image": {"type": "singularity", "image": "bookworm", "index": "docker://", "container-opts": [{gpu}]}
}""".replace("%s", INNER)

MLPROJECT = f"""
name: inner
docker_env: {{image: "{IMAGE}"}}
entry_points: {{main: {{command: "{INNER_OF_IMAGE}"}}}}
"""
COMPOSE = f"""
services:
  inner:
    image: {IMAGE}
    network_mode: none
    command: [python3, /inner.py, a, b c]
    {{gpu}}
"""
DOCKER_PY = f"""
import sys, docker
try:
    docker.from_env().containers.run("{IMAGE}", ["python3", "/inner.py", "a", "b c"], {{gpu}})
except docker.errors.ContainerError as error:
    print(b"".join(error.container.logs(stream=True)).decode())
    sys.exit(error.exit_status)
"""

JUPYTERHUB_CONFIG = f"""
import os
from jupyterhub.proxy import Proxy

class NoProxy(Proxy):
    should_start = False
    async def add_route(self, *args): pass
    async def delete_route(self, *args): pass
    async def get_all_routes(self): return {{}}

c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.hub_port = int(os.environ["HUB"])
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {{"ada"}}
c.JupyterHub.services = [{{"name": "starts", "api_token": os.environ["TOKEN"]}}]
c.JupyterHub.load_roles = [{{"name": "starts", "services": ["starts"], "scopes": ["admin:users", "admin:servers"]}}]
c.JupyterHub.spawner_class = "docker"
c.DockerSpawner.image = "{IMAGE}"
c.DockerSpawner.cmd = ["python3", "/inner.py", "a", "b c"]
c.DockerSpawner.network_name = "none"
c.DockerSpawner.name_template = os.environ["NAME"]
{{gpu}}
"""
JUPYTERHUB = """
export HUB=$((20000 + $$ % 20000)) TOKEN=0123456789abcdef0123456789abcdef NAME=hub-$$
jupyterhub > log 2>&1 & pid=$!
hub=http://127.0.0.1:$HUB/hub
for try in $(seq 1200); do curl -sf $hub/health && break; sleep 0.1; done
curl -s -o posted -X POST -H "Authorization: token $TOKEN" $hub/api/users/ada/server &
for try in $(seq 1200); do test "$(docker ps -aqf name=$NAME -f status=exited)" && break; sleep 0.1; done
docker logs $NAME; echo exit $(docker inspect -f '{{.State.ExitCode}}' $NAME)
kill -KILL $pid; docker rm --force $NAME; cat log
"""

SNAKEMAKE = Client(
    "snakemake",
    '{gpu}\nsnakemake --cores 1 --sdm apptainer --keep-going "$@"; echo exit $?; cat inner.txt',
    {"Snakefile": SNAKEFILE},
    gpu="export SINGULARITY_NV=1",
    plain="export SINGULARITY_NV=1",
    user=True,
    status=1,
)
CWLTOOL = Client(
    "cwltool",
    "cwltool --singularity tool.cwl; echo exit $?; cat out.txt",
    {"tool.cwl": TOOL.replace("{image}", f"dockerImageId: {SIF}")},
    gpu=CUDA,
    plain=CUDA,
    user=True,
    status=0,
    needs_smi=True,
)
CLIENTS: Mapping[str, Client] = {
    "snakemake": SNAKEMAKE,
    "snakemake-plan": SNAKEMAKE._replace(
        gpu='set -- --apptainer-args="$(gpubind plan -q --nv --format apptainer)"', plain=""
    ),
    "cwltool": CWLTOOL,
    "cwltool-docker": CWLTOOL._replace(
        script=CWLTOOL.script.replace("--singularity", "--disable-pull"),
        files={"tool.cwl": TOOL.replace("{image}", f"dockerPull: {IMAGE}")},
        plain="",
        user=False,
        nodes="nvidia0",
    ),
    "toil": CWLTOOL._replace(room="toil", script=CWLTOOL.script.replace("cwltool", "toil-cwl-runner", 1)),
    "miniwdl": Client(
        "miniwdl", MINIWDL.replace("{sif}", SIF), {"task.wdl": WDL}, ', "--nv"', ', "--nv"', user=True, status=0
    ),
    "spython": Client("cwltool", "python3 job.py; echo exit $?", {"job.py": SPYTHON}, "True", "True", user=True),
    "boutiques": Client(
        "cwltool",
        f"cp {SIF} bookworm.simg; echo '{{}}' > none.json; "
        "bosh exec launch --imagePath=$PWD/bookworm.simg inner.json none.json; echo exit $?",
        {"inner.json": BOUTIQUES},
        '"--nv"',
        '"--nv"',
        user=True,
    ),
    "mlflow": Client(
        "mlflow",
        "MLFLOW_ALLOW_FILE_STORE=true MLFLOW_TRACKING_URI=file:$PWD/runs mlflow run . {gpu}; echo exit $?",
        {"MLproject": MLPROJECT},
        "-A gpus=all",
        status=1,
    ),
    "podman-compose": Client(
        "compose",
        "podman-compose --in-pod false run --rm -T inner; echo exit $?; podman-compose --in-pod false down",
        {"compose.yaml": COMPOSE},
        "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}",
        nodes="nvidia0",
    ),
    "distrobox": Client(
        "compose",
        f"""
        export DBX_CONTAINER_MANAGER=podman
        distrobox create --yes --no-entry --name box-$$ --image {IMAGE} {{gpu}}
        podman start box-$$ && podman exec box-$$ {INNER_OF_IMAGE}; echo exit $?; podman rm --force --time 0 box-$$
        """,
        gpu='--additional-flags "--gpus all"',
    ),
    "ramalama": Client(
        "ramalama",
        f"""
        {{gpu}}
        ramalama --engine podman --store $PWD serve --image {IMAGE} file://$PWD/model.gguf; echo exit $?
        rm -f /etc/cdi/nvidia.json
        """,
        {"model.gguf": "GGUF\3" + 19 * "\0"},
        gpu=f"{TOOLS}/gpubind plan -q --nv --format cdi -o /etc/cdi/nvidia.json",
        needs_smi=True,
    ),
    "devcontainers": Client(
        "devcontainers",
        f"""
        cli="node /opt/clients/devcontainers/package/devcontainer.js"
        $cli up --workspace-folder . {{gpu}}
        $cli exec --workspace-folder . {INNER_OF_IMAGE}; echo exit $?
        docker ps -aq --filter label=devcontainer.local_folder=$PWD | xargs docker rm --force
        """,
        {".devcontainer.json": f'{{"image": "{IMAGE}", "hostRequirements": {{"gpu": true}}}}'},
        gpu="--gpu-availability all",
    ),
    "docker-compose": Client(
        "compose",
        "docker-compose up --exit-code-from inner; echo exit $?",
        {"compose.yaml": COMPOSE},
        "runtime: gpubind\n    environment: {NVIDIA_VISIBLE_DEVICES: '1'}",
        nodes="nvidia1",
    ),
    "jupyterhub": Client(
        "jupyterhub",
        JUPYTERHUB,
        {"jupyterhub_config.py": JUPYTERHUB_CONFIG},
        'c.DockerSpawner.extra_host_config = {"runtime": "gpubind"}\n'
        'c.DockerSpawner.environment = {"NVIDIA_VISIBLE_DEVICES": "all"}',
    ),
    "docker-py": Client(
        "compose",
        "python3 job.py; echo exit $?",
        {"job.py": DOCKER_PY},
        "runtime='gpubind', environment={'NVIDIA_VISIBLE_DEVICES': 'all'}",
    ),
}

SPYTHON_WITH_WRAP = f"""
{{code}}
done = GpuClient().execute("{SIF}", ["python3", "inner.py", "a", "b c"], bind=[".:/work"], options=["--pwd", "/work"],
                           nv=True, return_result=True)
print(done["message"])
exit(done["return_code"])
"""


def integrations(page: str) -> Mapping[str, Client]:
    """The clients that call `gpubind.wrap` by themselves, with the code of *page*."""
    spython, cwltool = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return {
        "spython": CLIENTS["spython"]._replace(files={"job.py": SPYTHON_WITH_WRAP.replace("{code}", spython)}),
        "cwltool": CWLTOOL._replace(
            script=CWLTOOL.script.replace("cwltool", "python3 job.py", 1),
            files={**CWLTOOL.files, "job.py": cwltool},
        ),
    }
