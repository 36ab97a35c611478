"""The answers of NVIDIA's programs: `nvidia-container-cli list`, and `nvidia-smi --query-gpu`.

`nvidia-container-cli list` prints one absolute path a line, without headings or types. Its errors have the form
`nvidia-container-cli: <class> error: <text>`, with exit status 1. Sources: nvidia-smi(1), `nvidia-smi
--help-query-gpu`; libnvidia-container `src/cli/list.c` (order and content), `src/cli/main.c`, `src/cli/common.c`,
`src/error.c`.
"""

from __future__ import annotations

from gpubind.errors import Format
from gpubind.formats.driver.kernel import normalize_pci
from gpubind.frozen import NamedTuple
from gpubind.model import Gpu

PROGRAM = "nvidia-container-cli"
LINE_LIMIT = 4096
LINES_LIMIT = 10_000
MESSAGE_LIMIT = 300
COMPUTE_CAPABILITY_QUERY = ("nvidia-smi", "--query-gpu=pci.bus_id,compute_cap", "--format=csv,noheader")
GPU_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,pci.bus_id,name", "--format=csv,noheader")
"""The command that lists the GPUs in WSL, where no file lists them."""
GPUS_LIMIT = 256
_malformed = Format("bad-nvidia-cli", f"malformed answer of `{PROGRAM} list`").damaged


class NvidiaCliList(NamedTuple):
    """The paths of an answer, by kind. Each path is there once, in printed order, and is relative to the driver
    root.
    """

    devices: tuple[str, ...]
    """`/dev/nvidia0`, `/dev/nvidia-caps/nvidia-cap1`, `/dev/dxg`; `/dev/nvidiactl` even if it is missing."""
    procs: tuple[str, ...]
    """`/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access`: the access files of MIG devices."""
    firmware: tuple[str, ...]
    """`/lib/firmware/nvidia/550.54.14/gsp_ga10x.bin`; links are not resolved."""
    libraries: tuple[str, ...]
    """Resolved real files, 64-bit and 32-bit: `libcuda.so.550.54.14`, never `libcuda.so.1`."""
    others: tuple[str, ...]
    """Programs (resolved), sockets and the MPS directory. Their paths do not show their kind."""


def list_argv(root: str) -> tuple[str, ...]:
    """Return the command line that lists the files below driver root *root*."""
    return (PROGRAM, "list") if root == "/" else (PROGRAM, f"--root={root}", "list")


def parse_list(text: str) -> NvidiaCliList:
    """Return the paths in the standard output of `nvidia-container-cli list`.

    Errors: `FormatError` (code `bad-nvidia-cli`) with the line: a line is not an absolute path, has a NUL byte or is
    too long; there are too many lines, or none.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise _malformed("an empty answer", "line 1")
    if len(lines) > LINES_LIMIT:
        raise _malformed(f"over {LINES_LIMIT} lines", f"line {LINES_LIMIT + 1}")
    kinds: dict[str, dict[str, None]] = {kind: {} for kind in NvidiaCliList._fields}
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_LIMIT:
            raise _malformed(f"{len(line)} characters; a path has {LINE_LIMIT} at most", f"line {number}")
        if "\0" in line:
            raise _malformed("a NUL byte", f"line {number}")
        if not line.startswith("/"):
            raise _malformed(f"{line[:60]!r} is not an absolute path", f"line {number}")
        kinds[_kind(line)][line] = None
    return NvidiaCliList(**{kind: tuple(paths) for kind, paths in kinds.items()})


def parse_failure(stderr: str) -> tuple[str, str]:
    """Return the code and the message of a failed call, from its standard error.

    The code is the program's class of error (`initialization-error`, `detection-error`), or else `failed`. The message
    is the first line of the program's form; if there is none, the last line that is not empty.
    """
    last = ""
    for line in stderr.split("\n"):
        line = line.strip()
        program, colon, message = line.partition(": ")
        if colon and program.startswith(PROGRAM):
            kind, error, detail = message.partition(" error: ")
            if error and kind.isascii() and kind.replace("-", "").isalpha() and kind.islower():
                return f"{kind}-error", detail[:MESSAGE_LIMIT]
            return "failed", message[:MESSAGE_LIMIT]
        last = line or last
    return "failed", last[:MESSAGE_LIMIT] or "no message"


def _kind(path: str) -> str:
    if path.startswith("/dev/"):
        return "devices"
    if path.startswith("/proc/"):
        return "procs"
    if "/firmware/" in path:
        return "firmware"
    name = path.rpartition("/")[2]
    return "libraries" if name.endswith(".so") or ".so." in name else "others"


def parse_gpu_rows(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs in the answer to `GPU_QUERY`, in the order of their indexes. Never raises."""
    gpus: dict[int, Gpu] = {}
    for line in text.splitlines()[:GPUS_LIMIT]:
        index, uuid, address, model = (*(part.strip() for part in line.split(",", 3)), "", "", "")[:4]
        if index.isdigit() and index.isascii() and len(index) < 4 and uuid.startswith("GPU-"):
            pci = normalize_pci(address)
            gpus[int(index)] = Gpu("nvidia", int(index), uuid, pci, None, model or None, None, chosen=True)
    return tuple(gpu for _, gpu in sorted(gpus.items()))


def parse_capabilities(text: str) -> dict[str, str]:
    """Return the compute capability of each GPU by its PCI address: `0000:01:00.0` -> `8.6`. Never raises."""
    capabilities = {}
    for line in text.splitlines()[:GPUS_LIMIT]:
        address, _, capability = (part.strip() for part in line.partition(","))
        pci = normalize_pci(address)
        if pci is not None:
            capabilities[pci] = capability
    return capabilities
