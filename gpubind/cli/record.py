"""record. No `from __future__ import annotations`: see options.py."""

import os
from typing import Annotated, Optional

from gpubind.cli.declare import Option, command
from gpubind.cli.options import PlanOptions, open_host_of


def record(
    output: Annotated[
        str, Option("-o", "--output", metavar="FILE", help="The record to write; - for standard output.")
    ],
    root: Annotated[Optional[str], Option(metavar="DIR", help="Where the driver's user space is. [/]")] = None,
    dev_root: Annotated[
        Optional[str], Option(metavar="DIR", help="Where /dev, /proc and /sys are. [--root, or /]")
    ] = None,
    description: Annotated[str, Option(metavar="TEXT", help="A line that says which host this is.")] = "",
    hostname: Annotated[bool, Option("--hostname", help="Keep this machine's name in the record.")] = False,
) -> None:
    """Write this host to a file, for --host FILE anywhere.

    A record holds listings, facts and small texts of a fixed set of places; no file bodies, no user names, no
    environment but PATH, ROCM_PATH, CUDA_MPS_PIPE_DIRECTORY and the variables that choose GPUs: CUDA_VISIBLE_DEVICES,
    CUDA_DEVICE_ORDER, NVIDIA_VISIBLE_DEVICES, NVIDIA_IMEX_CHANNELS, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES,
    SLURM_STEP_GPUS, SLURM_JOB_GPUS.
    """
    from gpubind.cli.output import report, write_document
    from gpubind.facade import record as record_host
    from gpubind.facade import trust_findings
    from gpubind.host.unseen import not_looked_at

    name = os.uname().nodename if hostname else None
    host = open_host_of(PlanOptions(root=root, dev_root=dev_root))
    text = record_host(host, description, name)
    report((*trust_findings(host), *not_looked_at(host)), brief=True)
    write_document(text, output)


COMMANDS = {"record": command(record)}
