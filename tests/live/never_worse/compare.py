"""The rules by which a start by gpubind is worse than one by the real program, as good, or better.

A rule is a function that yields a `Verdict` for each difference that counts; what no rule speaks of is equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

WORSE, TOLD, BETTER, EQUAL = "worse", "told", "better", "equal"
OUTCOMES = (WORSE, TOLD, BETTER, EQUAL)
"""From the one that decides over all others. `told`: no better, and a finding names the file or the form."""

HOST, COMPAT, STUB, OLD, IMAGE, NONE = "host", "compat", "stub", "old", "image", "none"
RANKS = {NONE: 0, STUB: 1, OLD: 2, IMAGE: 2, HOST: 3, COMPAT: 4}
"""What a library of the driver's is worth: a forward-compatibility one that fits serves more than the host's."""

LIBDIR, BINARIES = "/.singularity.d/libs", "/.gpubind/bin/"
UUIDS = {0: "GPU-00000000-0000-0000-0000-000000000000", 1: "GPU-00000001-0000-0000-0000-000000000000"}
"""The GPUs of the machine: index, which is the number of the node, too, and UUID."""
USABLE = ("ENXIO", "opened")
"""What opening a node says that works: no driver owns the rig's."""
NO_DEVICE, DRIVER_NOT_LOADED = 100, 9
"""What the host's libcuda and NVML say on the rig, whose nodes no driver owns."""
OPERATING_SYSTEM = 304
"""What the host's libcuda says where there is no /proc."""

CUDA = "CUDA_VISIBLE_DEVICES"
GPU_VARIABLES = (
    CUDA,
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "CUDA_DEVICE_ORDER",
)
PATH_LISTS = ("LD_LIBRARY_PATH", "PREPEND_LD_LIBRARY_PATH", "PATH", "GBM_BACKENDS_PATH", "VDPAU_DRIVER_PATH")
"""Variables that may gain elements, and must keep all that they have, in their order."""
SEARCHED = ("/usr/local/lib", "/lib/x86_64-linux-gnu", "/lib")
"""What every loader searches after LD_LIBRARY_PATH, and Apptainer from 1.5 on names in it."""
BOOKKEEPING = re.compile(
    r"(APPTAINER|SINGULARITY)_(BIND|COMMAND|NAME|CONTAINER|ENVIRONMENT|APPNAME|INSTANCE)$|(_|SHLVL|PWD|OLDPWD)$"
)
"""Variables by which the runtime and the shell keep their books."""
RUNTIMES_OWN = re.compile(r"(APPTAINER|SINGULARITY)_|(PS1|PROMPT_COMMAND|USER_PATH)$")
"""What Apptainer alone sets: nothing that another runtime has to give."""
REFUSALS = ("error: not-raw: ", "error: unsupported-unset: ", "error: unsupported-path: ", "error: unsupported-value: ")
"""How `plan` says before the start that a form cannot say this plan."""
MATTERING = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")
"""Names that programs open to use a GPU."""
NEUTRAL = ("libOpenCL.so.1", "libGL.so.1", "libEGL.so.1", "libown.so.1")
"""Libraries that are no driver's: whoever brings them, they load."""


class Library(NamedTuple):
    """What dlopen found for a name."""

    label: str
    path: str = ""
    real: str = ""
    status: Optional[int] = None
    """What cuInit or nvmlInit said."""


class Seen(NamedTuple):
    """What the probe saw."""

    libraries: Mapping[str, Library]
    nodes: Mapping[str, str]
    mounts: Optional[Mapping[str, str]]
    places: Mapping[str, Sequence[Any]]
    programs: Mapping[str, Optional[str]]
    environ: Mapping[str, str]
    arguments: Sequence[str]
    directory: str


class Ended(NamedTuple):
    """How a start ended; `seen` is None if the probe did not run."""

    status: int
    stderr: str
    seen: Optional[Seen]


class Pair(NamedTuple):
    """What two programs saw, of which one was started by gpubind."""

    real: Seen
    ours: Seen
    caller: Mapping[str, str] = {}
    """The caller's own variables."""
    told: str = ""
    """All findings: of the start itself and of `check`."""
    bubblewrap: bool = False
    """Whether gpubind started another runtime than the real program is."""


class Verdict(NamedTuple):
    """What a rule says."""

    outcome: str
    why: str
    rule: str = ""


Rule = Callable[[Pair], Iterator[Verdict]]


def judged(real: Ended, ours: Ended, caller: Mapping[str, str], told: str, *, bubblewrap: bool) -> list[Verdict]:
    """What all rules say of a start; nothing where they find nothing. The real one must have run."""
    assert real.seen is not None
    started = list(starts(real, ours))
    if started or ours.seen is None:
        return started
    pair = Pair(real.seen, ours.seen, caller, told, bubblewrap)
    return [verdict._replace(rule=rule.__name__) for rule in RULES for verdict in rule(pair)]


def outcome(verdicts: Sequence[Verdict]) -> str:
    """The outcome of a start."""
    return next((o for o in OUTCOMES if any(v.outcome == o for v in verdicts)), EQUAL)


def starts(real: Ended, ours: Ended) -> Iterator[Verdict]:
    """What starts with the real program starts, and ends as it does. A form that cannot say it must say so."""
    if ours.seen is None and any(refusal in ours.stderr for refusal in REFUSALS):
        yield Verdict(TOLD, "the form cannot say this plan, and says so before the start", "starts")
    elif ours.seen is None or ours.status != real.status:
        last = ours.stderr.strip().splitlines()[-3:]
        yield Verdict(WORSE, f"ends with {ours.status}, not with {real.status}: {' / '.join(last)}", "starts")


def driver_libraries(pair: Pair) -> Iterator[Verdict]:
    """A name of the driver's leads to a library that serves at least as much.

    Where no image is known, the host's comes before the image's compat libcuda, and a finding says so.
    """
    for name, there in pair.real.libraries.items():
        if name in NEUTRAL:
            continue
        here = pair.ours.libraries[name]
        if RANKS[here.label] < RANKS[there.label]:
            is_told = "image-unknown" in pair.told and (here.label, there.label) == (HOST, COMPAT)
            why = f"{name} is {_file(here)}, with the real program {_file(there)}"
            yield Verdict(TOLD if is_told else WORSE, why)
        elif RANKS[here.label] > RANKS[there.label] and name in MATTERING:
            yield Verdict(BETTER, f"{name} is {_file(here)}, with the real program {_file(there)}")


def other_libraries(pair: Pair) -> Iterator[Verdict]:
    """A library that is no driver's still loads; the image's and the user's own stay what they are.

    Where no image is known, the host's libglvnd and OpenCL loader are left out by design, with a finding that names it.
    """
    for name in NEUTRAL:
        there, here = pair.real.libraries[name], pair.ours.libraries[name]
        if there.label != NONE and here.label == NONE:
            left_out = re.search(rf"vendor-neutral-left-out.*\b{name.partition('.')[0]}\b", pair.told)
            outcome = TOLD if left_out and there.label == HOST else WORSE
            yield Verdict(outcome, f"{name} does not load, with the real program it is {_file(there)}")


def bad_libcuda_is_told(pair: Pair) -> Iterator[Verdict]:
    """Where both load a stub or an old libcuda, a finding names the file that wins."""
    for name in MATTERING:
        here = pair.ours.libraries[name]
        if not RANKS[NONE] < RANKS[here.label] < RANKS[HOST]:
            continue
        if here.path in pair.told or here.real in pair.told:
            yield Verdict(TOLD, f"{name} is {_file(here)} with both, and a finding names it")
        elif "library-path-last: --env " in pair.told or (
            "image-unknown" in pair.told and "library-path-last" in pair.told
        ):
            yield Verdict(TOLD, f"{name} is {_file(here)} with both; a finding says that the image's value comes first")
        else:
            yield Verdict(WORSE, f"untold: {name} is {_file(here)} with both, and no finding names it")


def driver_answers(pair: Pair) -> Iterator[Verdict]:
    """Where the driver starts with the real program, it starts. NVML needs nodes, which go where no GPU is chosen.

    Without /proc, which the rig cannot mount anew, the host's libcuda says 304 where the image's says 100: that is the
    older one, also as the one for forward compatibility.
    """
    names = MATTERING if chosen(pair) else MATTERING[:2]
    for name, answer in zip(names, (NO_DEVICE, NO_DEVICE, DRIVER_NOT_LOADED)):
        there, here = pair.real.libraries[name].status, pair.ours.libraries[name].status
        labels = pair.real.libraries[name].label, pair.ours.libraries[name].label
        without_proc = here == OPERATING_SYSTEM and labels in ((OLD, HOST), (COMPAT, HOST))
        if there == answer != here and not without_proc:
            yield Verdict(WORSE, f"{name} answers {here}, with the real program {there}")


def gpus(pair: Pair) -> Iterator[Verdict]:
    """CUDA reaches the GPUs that it reaches with the real program, in that order, but for those not chosen.

    A choice of the caller's that does not arrive with the real program (--cleanenv) may say another order.
    """
    there, here = reached(pair.real), reached(pair.ours)
    wanted = chosen(pair)
    kept = [gpu for gpu in here if gpu in wanted]
    callers_order = CUDA in pair.caller and CUDA not in pair.real.environ
    if (sorted(kept) if callers_order else kept) != wanted:
        yield Verdict(WORSE, f"CUDA reaches GPUs {here}, and should {wanted}: {_variables(pair)}")
    elif set(here) - set(there):
        yield Verdict(WORSE, f"CUDA reaches GPUs {here}, of which the real program hides some: {_variables(pair)}")


def gpu_variables(pair: Pair) -> Iterator[Verdict]:
    """A GPU variable arrives as it is where /dev counts as the host's; elsewhere numbers stay numbers.

    Where another variable of the caller's leaves GPUs out (NVIDIA_VISIBLE_DEVICES), they may go from the list.
    """
    whole = _gpu_nodes(pair.ours) == list(UUIDS) and chosen(pair) == reached(pair.real)
    for name in GPU_VARIABLES:
        there, here = pair.real.environ.get(name), pair.ours.environ.get(name)
        if there is None or there == here:
            continue
        numbers = re.fullmatch(r"[0-9, ]+", there)
        if here is None:
            yield Verdict(WORSE, f"{name}={there} is lost")
        elif whole and set(_gpu_nodes(pair.real)) == set(UUIDS):
            yield Verdict(WORSE, f"{name} is {here!r}, not {there!r}, where /dev has all GPUs")
        elif numbers and not re.fullmatch(r"[0-9, ]*|-1", here):
            yield Verdict(WORSE, f"{name} is {here!r}, and was the numbers {there!r}")


def nodes(pair: Pair) -> Iterator[Verdict]:
    """A node that can be used with the real program can be used, but for those of GPUs not chosen."""
    wanted = chosen(pair)
    for path, there in pair.real.nodes.items():
        here = pair.ours.nodes.get(path, "not there")
        gpu = re.fullmatch(r"/dev/nvidia(\d+)", path)
        if there not in USABLE or here in USABLE or not wanted or (gpu and int(gpu[1]) not in wanted):
            continue
        if path.startswith("/dev/dri/") and wanted != list(UUIDS):
            continue
        yield Verdict(WORSE, f"{path} is {here}, with the real program {there}")


def path_lists(pair: Pair) -> Iterator[Verdict]:
    """LD_LIBRARY_PATH, PATH and their like keep every element, in its order; nothing empty comes in.

    A runtime that cannot run the image's environment scripts may lose what they say, if a finding names the variable.
    """
    for name in PATH_LISTS:
        there, here = (_elements(seen.environ.get(name)) for seen in (pair.real, pair.ours))
        implied = SEARCHED if pair.bubblewrap and name == "LD_LIBRARY_PATH" else ()
        kept = [element for element in there if element not in ("", LIBDIR, *implied)]
        if not _is_within(kept, here):
            undecided = pair.bubblewrap and re.search(rf"image-env-undecided.*\b{name}\b", pair.told)
            yield Verdict(
                TOLD if undecided else WORSE, f"{name} is {':'.join(here)!r}, with the real program {':'.join(there)!r}"
            )
        elif "" in here and "" not in there:
            yield Verdict(WORSE, f"{name} has an empty element: {':'.join(here)!r}")


def variables(pair: Pair) -> Iterator[Verdict]:
    """Every other variable arrives, and as it is."""
    for name, there in pair.real.environ.items():
        here = pair.ours.environ.get(name)
        runtimes = pair.bubblewrap and RUNTIMES_OWN.match(name)
        if name in (*GPU_VARIABLES, *PATH_LISTS) or BOOKKEEPING.match(name) or runtimes or there == here:
            continue
        yield Verdict(WORSE, f"{name} is {here!r}, with the real program {there!r}")


def strangers(pair: Pair) -> Iterator[Verdict]:
    """No variable comes in that nobody set, but those that the driver needs."""
    for name, here in pair.ours.environ.items():
        known = name in (*GPU_VARIABLES, *PATH_LISTS) or BOOKKEEPING.match(name)
        if name not in pair.real.environ and not known:
            yield Verdict(WORSE, f"{name}={here!r} came in, and is not there with the real program")


def read_only(pair: Pair) -> Iterator[Verdict]:
    """Nothing of the driver's can be written through its mount."""
    for point, options in (pair.ours.mounts or {}).items():
        if "ro" not in options.split(","):
            yield Verdict(WORSE, f"{point} is mounted {options}")


def places(pair: Pair) -> Iterator[Verdict]:
    """Home, working directory and the user's binds are there, with what is in them, as writable as they were."""
    for path, there in pair.real.places.items():
        here = pair.ours.places[path]
        runtimes = pair.bubblewrap and path not in ("/home/user", "/root", "/tmp")
        if list(here) != list(there) and not runtimes:
            yield Verdict(WORSE, f"{path} is {list(here)}, with the real program {list(there)}")


def programs(pair: Pair) -> Iterator[Verdict]:
    """A program is found where PATH leads with the real program; another runtime may have another place for it."""
    for name, there in pair.real.programs.items():
        here = pair.ours.programs[name] or ""
        if there and not (here == there or here.startswith(BINARIES) or (here and pair.bubblewrap)):
            yield Verdict(WORSE, f"{name} is {here or None}, with the real program {there}")


def command_line(pair: Pair) -> Iterator[Verdict]:
    """The program's arguments and its working directory are the same."""
    if list(pair.ours.arguments) != list(pair.real.arguments):
        yield Verdict(WORSE, f"the arguments are {pair.ours.arguments}, not {pair.real.arguments}")
    if pair.ours.directory != pair.real.directory:
        yield Verdict(WORSE, f"the working directory is {pair.ours.directory}, not {pair.real.directory}")


RULES: tuple[Rule, ...] = (
    driver_libraries,
    other_libraries,
    bad_libcuda_is_told,
    driver_answers,
    gpus,
    gpu_variables,
    nodes,
    path_lists,
    variables,
    strangers,
    read_only,
    places,
    programs,
    command_line,
)


def reached(seen: Seen) -> list[int]:
    """The GPUs that CUDA counts: by CUDA_VISIBLE_DEVICES among those that have a node. The first bad name ends it."""
    return _listed(seen.environ.get(CUDA), _gpu_nodes(seen))


def chosen(pair: Pair) -> list[int]:
    """The GPUs that CUDA must reach: those of the real start, without those that the caller's environment leaves out.

    What CUDA_VISIBLE_DEVICES of the real container says is a choice already; the caller's own counts where it does
    not arrive (--cleanenv).
    """
    left = list(UUIDS)
    slurm = pair.caller.get("SLURM_STEP_GPUS") or pair.caller.get("SLURM_JOB_GPUS")
    visible = pair.caller.get("NVIDIA_VISIBLE_DEVICES")
    if slurm:
        left = _listed(slurm, left)
    if visible and visible not in ("all", "void"):
        left = [gpu for gpu in _listed(visible, list(UUIDS)) if gpu in left]
    if CUDA not in pair.real.environ and CUDA in pair.caller:
        left = [gpu for gpu in _listed(pair.caller[CUDA], list(UUIDS)) if gpu in left]
    return [gpu for gpu in reached(pair.real) if gpu in left]


def _listed(value: Optional[str], present: list[int]) -> list[int]:
    """The GPUs among *present* that a list names, by place or UUID; all of them without a list."""
    if value is None:
        return present
    named: list[int] = []
    for word in value.split(","):
        word = word.strip()
        if word.isdigit():
            found = present[int(word) : int(word) + 1]
        else:
            found = [gpu for gpu in present if word.startswith("GPU-") and UUIDS[gpu].startswith(word)]
        if len(found) != 1:
            break
        named += found
    return named


def _gpu_nodes(seen: Seen) -> list[int]:
    return [gpu for gpu in UUIDS if seen.nodes.get(f"/dev/nvidia{gpu}") in USABLE]


def _variables(pair: Pair) -> str:
    there, here = (seen.environ.get(CUDA) for seen in (pair.real, pair.ours))
    return f"{CUDA} is {here!r}, with the real program {there!r}; nodes {_gpu_nodes(pair.ours)}"


def _elements(value: Optional[str]) -> list[str]:
    return value.split(":") if value else []


def _is_within(wanted: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether all of *wanted* is in *whole*, in its order."""
    rest = iter(whole)
    return all(element in rest for element in wanted)


def _file(library: Library) -> str:
    return f"{library.path} ({library.label})" if library.path else "not found"
