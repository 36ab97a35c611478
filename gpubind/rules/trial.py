"""Rules about a container that was tried: where its answers differ from the predictions.

`predictions` lists the predictions of a check. The answers come from the image's own loader, which stops at the first
file that it does not find. Only dlopen refuses an executable stack, so nothing is predicted for it.

Source: ld.so(8) for --list, which musl's loader also supports; glibc `elf/rtld.c` (rtld_mode_list).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from posixpath import basename
from shlex import join, quote
from typing import Optional

from gpubind.formats.elf.elf import LIBC, ElfFacts, ElfIdent
from gpubind.loader.container import Container
from gpubind.loader.execve import is_library
from gpubind.loader.musl import GCOMPAT, has_gcompat, musl_loader_in
from gpubind.model import Finding, finding, shorten_list
from gpubind.model.trial import Prediction, Trial, TrialOutcome
from gpubind.rules.missing import unseen_libraries, unseen_programs
from gpubind.rules.preflight import Preflight

_NO_CUDA = (
    *("control-node-missing", "driver-mismatch", "driver-not-loaded", "gpu-forbidden", "gpu-unsupported"),
    *("nouveau", "uvm-missing"),
)
"""Errors with which cuInit fails."""
NO_DEVICE = 3
"""The exit status of `PROBE` if the control node has no kernel driver, which the check does not predict."""
PROBE = f"""
import ctypes, errno, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
status, name, count = cuda.cuInit(0), ctypes.c_char_p(), ctypes.c_int()
cuda.cuGetErrorName(status, ctypes.byref(name))
print(status, (name.value or b"").decode())
if status == 0:
    cuda.cuDeviceGetCount(ctypes.byref(count))
    sys.exit(print("devices:", count.value))
try:
    os.close(os.open("/dev/nvidiactl", os.O_RDWR))
except OSError as error:
    print("opening /dev/nvidiactl:", os.strerror(error.errno))
    sys.exit({NO_DEVICE} if error.errno in (errno.ENXIO, errno.ENODEV) else 1)
sys.exit(1)
"""
"""A program for the container's Python."""
REPORTED_BY_LOADER = ("absent", "forbidden", "no-elf", "too-short")
"""Reasons of failures for which the loader's message names the file."""
_STARTED = {"nvidia-smi": ("-L",), "rocminfo": ()}
"""Programs of drivers that list the GPUs."""
_NO_VERSION = re.compile(r"version `[^']*' not found")


def predictions(preflight: Preflight, findings: Iterable[Finding]) -> tuple[Prediction, ...]:
    """Return the commands to run in a container, each with the outcome that a check with *findings* predicts."""
    of_files = (*_predictions_of_plan(preflight), *_predictions_of_program(preflight))
    return (*of_files, *_predictions_of_driver(preflight, tuple(findings)))


def _predictions_of_plan(preflight: Preflight) -> Iterator[Prediction]:
    """Yield whether each library and program of the plan loads. Files that the runtime cannot mount are skipped."""
    container = preflight.container
    for mount in preflight.plan.mounts:
        file = container.locate(mount.target) if mount.kind in ("library", "binary") else None
        elf = file.tree.elf(file.tree_path) if file is not None else None
        if elf is not None:
            interpreter = elf.interpreter if isinstance(elf, ElfFacts) and mount.kind == "binary" else None
            if mount.kind == "library" or interpreter is not None:
                loader = interpreter or _loader(container, mount.arch)
                yield from _loads(preflight, mount.target, loader)


def _predictions_of_program(preflight: Preflight) -> Iterator[Prediction]:
    """Yield whether the program exists, and whether it loads; for a script, whether its last interpreter does."""
    if not preflight.has_program:
        return
    chain = preflight.chain
    name, file = chain.names[0], chain.file
    is_loaded = file is not None and is_library(file)
    if not is_loaded:
        first = len(chain.names) == 1
        stops = chain.stop is not None and chain.stop.kind in ("missing", "mode", "directory", "special") and first
        predicted = None if stops and unseen_programs(preflight, name) else not stops
        why = chain.stop.why if stops and chain.stop is not None else ""
        yield Prediction("program", name, (name,), predicted, why)
    elf = preflight.started.elf if preflight.started is not None else None
    if file is not None and elf is not None:
        # The loader resolves $ORIGIN from the path that it gets; the kernel follows links first.
        path = file.path if is_loaded else file.resolved_path or file.path
        loader = _loader(preflight.container, elf.ident.arch) if is_loaded else elf.interpreter
        yield from _loads(preflight, path, loader)


def _loads(preflight: Preflight, path: str, loader: Optional[str]) -> Iterator[Prediction]:
    """Yield whether *loader* loads the file at *path*; nothing if the loader is not known."""
    if loader is None or not loader.startswith("/"):
        return
    failures = [failure for failure in preflight.container.failures(path) if failure.kind != "stack"]
    predicted: Optional[bool] = not failures
    why, reasons = "", tuple(failure.name for failure in failures)
    if any(failure.why not in REPORTED_BY_LOADER for failure in failures):
        reasons = ()  # the loader may crash on a truncated file
    if not _may_load(preflight.container, loader, path):
        predicted, why, reasons = False, f"its loader {loader} is not in the container, or for other programs", ()
    elif failures:
        why = failures[0].message
        predicted = None if unseen_libraries(preflight) else False
    layered = has_gcompat(preflight.image.tree) and preflight.image.facts.libc_family == "musl"
    if layered and predicted:
        predicted = None  # the glibc functions that gcompat lacks are not known
    loader_command = (f"/lib/{musl_loader_in(preflight.image.tree)}", "--preload", GCOMPAT) if layered else (loader,)
    yield Prediction("loads", path, (*loader_command, "--list", path), predicted, why, reasons)


def _may_load(container: Container, loader: str, path: str) -> bool:
    files = [container.locate(loader), container.locate(path)]
    idents = [file.tree.ident(file.tree_path) if file is not None else None for file in files]
    machines = {(ident.bits, ident.machine) if isinstance(ident, ElfIdent) else None for ident in idents}
    return isinstance(idents[0], ElfIdent) and (len(machines) == 1 or not isinstance(idents[1], ElfIdent))


def _loader(container: Container, arch: Optional[str]) -> Optional[str]:
    """Return the loader for libraries of *arch*: the interpreter of the C library, else musl's loader."""
    path = container.image.for_arch(arch).find(LIBC)
    libc = container.locate(path) if path is not None else None
    if libc is not None and libc.elf is not None:
        return libc.elf.interpreter
    musl = musl_loader_in(container.tree)
    return f"/lib/{musl}" if musl is not None else None


def _predictions_of_driver(preflight: Preflight, findings: Sequence[Finding]) -> Iterator[Prediction]:
    places = (f"{place}/python3" for place in preflight.search_path.split(":") if place.startswith("/"))
    python = next(filter(preflight.container.locate, places), None)
    if python is not None and "libcuda.so.1" in preflight.libraries:
        predicted, why = _cuda_works(preflight, findings)
        yield Prediction("driver", "cuInit", (python, "-I", "-S", "-c", PROBE), predicted, why)
    for mount in preflight.plan.mounts:
        name = basename(mount.target)
        if mount.kind == "binary" and name in _STARTED and not preflight.container.failures(mount.target):
            command = (mount.target, *_STARTED[name])
            yield Prediction("driver", " ".join((name, *_STARTED[name])), command, None)


def _cuda_works(preflight: Preflight, findings: Sequence[Finding]) -> tuple[Optional[bool], str]:
    """Return whether cuInit will succeed (None: no prediction), and why it will not."""
    stops = [finding for finding in findings if finding.code in _NO_CUDA and finding.severity == "error"]
    stops += [finding for finding in findings if finding.code == "visible-devices-none"]
    library = preflight.container.find("libcuda.so.1")
    if library is None or preflight.container.failures(library.path):
        return False, "libcuda.so.1 does not load"
    if stops:
        return False, f"{stops[0].code}: {stops[0].what}"
    has_error = any(finding.severity == "error" for finding in findings)
    return (True if preflight.has_linux_driver and preflight.gpus and not has_error else None), ""


def compare_answer(prediction: Prediction, status: Optional[int], output: str) -> TrialOutcome:
    """Return the outcome of *prediction*, by *status* and *output* of its command. The status is None without a
    loader.
    """
    seen: Optional[bool] = status == 0
    if prediction.kind == "loads":
        message = output.removeprefix(f"{prediction.subject}: ").removeprefix("error while loading shared libraries: ")
        output = "the loader is not in the container" if status is None else message
        seen = status == 0 and _NO_VERSION.search(output) is None  # --list goes on after a missing version
    if prediction.kind == "driver" and status == NO_DEVICE and prediction.succeeds:
        seen = None
    if not seen and not output and status is not None:
        output = f"exit status {status}" if prediction.kind != "program" else "it is not there, or may not be executed"
    return TrialOutcome(prediction, seen, output)


def prediction_wrong(preflight: Preflight) -> Iterator[Finding]:
    """Report the differences between the predictions and the answers of a container.

    It is reported as `try-failed` if the container did not start or did not answer.
    """
    trial = preflight.trial
    if trial is None:
        return
    report = _report(preflight, trial)
    wrong: dict[str, list[TrialOutcome]] = {}
    for outcome in trial.tried:
        if outcome.is_wrong:
            wrong.setdefault(_case(outcome), []).append(outcome)
    for case, several in wrong.items():
        first = several[0]
        yield finding(
            "prediction-wrong",
            subject=basename(first.prediction.subject) or first.prediction.subject,
            case=case,
            where=shorten_list([outcome.prediction.subject for outcome in several]),
            predicted=first.prediction.why,
            said=first.said,
            runtime=trial.runtime,
            report=report,
        )
    if trial.failure is not None:
        image = quote(preflight.image.facts.label)
        yield finding("try-failed", subject=trial.runtime, failure=trial.failure, runtime=trial.runtime, image=image)


def _case(outcome: TrialOutcome) -> str:
    if outcome.fails_differently:
        return "other-reason"
    refused, works = {
        "loads": ("refused", "loads"),
        "program": ("program-missing", "program-found"),
        "driver": ("driver-fails", "driver-works"),
    }[outcome.prediction.kind]
    return works if outcome.succeeded else refused


def _report(preflight: Preflight, trial: Trial) -> str:
    argv = ["gpubind", "check", "--try", "--backend", trial.runtime, "--image", preflight.image.facts.label]
    if preflight.has_program:
        argv += ["--program", preflight.chain.names[0]]
    return f"gpubind record -o host.json\n{join(argv)} --json -o check.json"
