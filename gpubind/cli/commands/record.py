"""record. No `from __future__ import annotations`: see options.py."""

import os
from typing import Annotated

from gpubind.cli.declare import Option
from gpubind.cli.options import PlanOptions, open_host_of, planning, query_of

TAKEN = ("root", "dev_root", "library_path", "cdi_dir", "list_")


def record(
    options: PlanOptions,
    output: Annotated[
        str, Option("-o", "--output", metavar="FILE", help="The record to write; - for standard output.")
    ],
    description: Annotated[str, Option(metavar="TEXT", help="A line that says which host this is.")] = "",
    hostname: Annotated[bool, Option("--hostname", help="Keep this machine's name in the record.")] = False,
) -> None:
    """Write this host to a file, for --host FILE anywhere.

    The record answers every plan and check as this host does, also with the --library-path, --cdi-dir and --list that
    are given here. If it would not, this is an error and nothing is written. It holds listings, facts and small texts.
    It holds no file bodies, no user names, and of the environment only PATH, ROCM_PATH, CUDA_MPS_PIPE_DIRECTORY, the
    variables that request GPUDirect (NVIDIA_GDRCOPY, NVIDIA_GDS, NVIDIA_MOFED) and those that choose GPUs:
    CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER, NVIDIA_VISIBLE_DEVICES, NVIDIA_IMEX_CHANNELS, ROCR_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES, SLURM_STEP_GPUS, SLURM_JOB_GPUS.
    """
    from gpubind.cli.output import report, write_document
    from gpubind.host.unseen import not_looked_at
    from gpubind.launch.recording import record as record_host
    from gpubind.planner.planning import trust_findings

    name = os.uname().nodename if hostname else None
    host = open_host_of(options)
    query = query_of(options)
    listfile = query.read_listfile()
    request = query._replace(listfile=None).checked()
    text = record_host(host, description, name, request=request, listfile=listfile)
    report((*trust_findings(host, request, listfile), *not_looked_at(host)), brief=True)
    write_document(text, output)


COMMANDS = {"record": planning(record, only=TAKEN)}
