"""record: this host as a file."""

from __future__ import annotations

from gpubind.cli.declarations import EXIT_CODES, OUTPUT, Option, PlanOptions, Subcommand, plan_options
from gpubind.cli.options import open_host_of, query_of, report_unreadable
from gpubind.errors import EXIT_FINDING
from gpubind.machine import system


def record(options: PlanOptions, *, output: str, description: str, hostname: bool, redact: bool, expect: bool) -> None:
    """Write this host to a file, for --host FILE anywhere.

    The record answers every plan and check as this host does, also with the --library-path, --cdi-dir and --list that
    are given here. If it would not, this is an error and nothing is written. It holds listings, facts and small texts.
    It holds no file bodies, no user names, and of the environment only PATH, the directories of LD_LIBRARY_PATH
    that have a libcuda, ROCM_PATH, CUDA_MPS_PIPE_DIRECTORY, the variables that request GPUDirect (NVIDIA_GDRCOPY,
    NVIDIA_GDS, NVIDIA_MOFED), all lists of a Jetson (NVIDIA_REQUIRE_JETPACK) or rights over MIG
    (NVIDIA_MIG_CONFIG_DEVICES, NVIDIA_MIG_MONITOR_DEVICES), and those that choose GPUs: CUDA_VISIBLE_DEVICES,
    CUDA_DEVICE_ORDER, NVIDIA_VISIBLE_DEVICES, NVIDIA_IMEX_CHANNELS, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES,
    AMD_VISIBLE_DEVICES, GPU_DEVICE_ORDINAL, ZE_AFFINITY_MASK and the others of Intel's, SLURM_STEP_GPUS,
    SLURM_JOB_GPUS. Also those by which ROCm takes other code, or a loader another driver: HSA_OVERRIDE_GFX_VERSION,
    HSA_XNACK, LIBVA_DRIVER_NAME, LIBVA_DRIVERS_PATH, VK_DRIVER_FILES, VK_ICD_FILENAMES, LIBGL_ALWAYS_SOFTWARE,
    __EGL_VENDOR_LIBRARY_FILENAMES, __GLX_VENDOR_LIBRARY_NAME.
    """
    from gpubind.api.record import record as record_host
    from gpubind.cli.output import write_document

    name = system.uname().nodename if hostname else None
    if expect:
        _write_expectation(options, output, ": ".join(filter(None, ("" if redact else name, description))))
        return
    host = open_host_of(options)
    query = query_of(options)
    listfile = query.read_listfile()
    request = query._replace(listfile=None).validated_request()
    with report_unreadable(host, request, listfile):
        text = record_host(host, description, name, request=request, listfile=listfile, redact=redact)
    write_document(text, output)


def _write_expectation(options: PlanOptions, output: str, comment: str) -> None:
    """Errors: those of a plan; exit code 1 if the check of this host has an error."""
    from gpubind.api.record import expectation
    from gpubind.cli.output import report, write_document
    from gpubind.cli.settings import site_check
    from gpubind.documents.expectation import render_expectation

    expected, errors = expectation(open_host_of(options), query_of(options), site_check())
    report(errors)
    if errors:
        raise SystemExit(EXIT_FINDING)
    write_document(render_expectation(expected, comment), output)


RECORD = Subcommand(
    record,
    (
        OUTPUT._replace(help="The record to write; - for standard output.", required=True),
        Option("--description TEXT", "A line that says which host this is.", "Which host", default=""),
        Option("--hostname", "Keep this machine's name in the record.", "Which host"),
        Option(
            "--redact",
            "Write stand-ins for UUIDs and serial numbers of GPUs, and for names of machines and users, also in "
            "texts and paths. One name has one stand-in.",
            "Which host",
        ),
        Option(
            "--expect",
            "Write a few lines instead, for check --expect FILE: driver, GPUs, capabilities; not if the check of "
            "this host has an error.",
            "Output",
        ),
    ),
    common=("--output", "--description", "--hostname", "--redact", "--root"),
    examples=(
        ("record a GPU node, to plan for it elsewhere", "gpubind record -o node.json"),
        ("keep what a good node has, to check others", "gpubind record --expect -o node.toml"),
    ),
    exit_codes=(("0", "done"), ("1", "an error finding, with --expect"), EXIT_CODES[0], EXIT_CODES[2]),
    shared=plan_options("--root", "--dev-root", "--library-path", "--cdi-dir", "--list"),
)
