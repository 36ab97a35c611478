"""CDI beside other choices: other vendors, the environment, search paths that a device brings."""

from __future__ import annotations

import json

import pytest

import gpubind
from gpubind import plan
from gpubind.documents.mounts.cdi import render_cdi
from gpubind.model import Request
from gpubind.planner.placement import GPUBIND_LAYOUT, SINGULARITY_LAYOUT, cdi_layout
from gpubind.runtimes import RUNTIMES
from tests.support.driver import host, kernel, rhel
from tests.support.images import glibc, image
from tests.support.starts import start_by
from tests.support.trees import Spec

PATHS = ["PATH=/opt/vendor/bin", "LD_LIBRARY_PATH=/opt/vendor/lib"]


def spec(kind: str, name: str, **edits: object) -> Spec:
    document = {"cdiVersion": "0.5.0", "kind": kind, "devices": [{"name": name, "containerEdits": edits}]}
    return {f"/etc/cdi/{kind.partition('/')[0]}.json": json.dumps(document)}


def test_cdi_is_about_nvidia_and_takes_nothing_from_amds_plan() -> None:
    on = gpubind.open_host("mi300x-rocm62")
    asked = Request(vendors=("amd",))
    assert plan(on, asked._replace(source="cdi")).digest == plan(on, asked).digest


@pytest.mark.parametrize("environ", [{"SLURM_STEP_GPUS": "0"}, {"CUDA_VISIBLE_DEVICES": "0"}])
def test_a_device_that_is_named_beats_the_environment(environ: dict[str, str]) -> None:
    nodes = [{"path": "/dev/nvidia1"}]
    mounts = [{"hostPath": "/usr/lib64/libcuda.so.1", "containerPath": "/usr/lib64/libcuda.so.1"}]
    parts = (rhel(), kernel(), spec("nvidia.com/gpu", "1", deviceNodes=nodes, mounts=mounts))
    made = plan(host(*parts, environ=environ), Request(source="cdi", cdi_devices=("nvidia.com/gpu=1",)))
    assert [node.target for node in made.devices if node.gpu is not None] == ["/dev/nvidia1"]
    assert [variable.value for variable in made.env if variable.name == "CUDA_VISIBLE_DEVICES"] == []


def test_a_spec_that_we_write_chooses_no_gpu_by_variable() -> None:
    made = plan(host(rhel(), kernel()), Request(gpus="1,0"), layout=cdi_layout("x86_64"))
    assert any(variable.name == "CUDA_VISIBLE_DEVICES" for variable in made.env)
    assert "VISIBLE_DEVICES" not in render_cdi(made, {})


@pytest.mark.parametrize("program", ["apptainer", "bwrap"])
def test_search_paths_of_a_device_go_before_all_others(program: str) -> None:
    on = host(rhel(), kernel(), spec("vendor.com/x", "all", env=PATHS))
    opened = image(glibc())
    request = Request(source="cdi", cdi_devices=("vendor.com/x=all",))
    made = plan(on, request, image=opened, layout=GPUBIND_LAYOUT if program == "bwrap" else SINGULARITY_LAYOUT)
    words = RUNTIMES[program].arguments(made, start_by(program, tree=opened.tree))
    assert words is not None
    env = dict(words.env)
    if program == "bwrap":
        assert env["PATH"].startswith("/opt/vendor/bin:/usr")
        assert env["LD_LIBRARY_PATH"] == "/opt/vendor/lib"
    else:
        assert env["PREPEND_PATH"] == "/opt/vendor/bin"
        assert env["LD_LIBRARY_PATH"].split(":")[0] == "/opt/vendor/lib"
