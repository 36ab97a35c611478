"""Jetson and other boards with Tegra: the claims of their lists of files and nodes, and the integrated GPU.

Sources: nvidia-container-toolkit `internal/platform-support/tegra` and `pkg/nvcdi/lib-csv.go`; the lists of JetPack 5,
6 and 7 in its testdata/lookup and in OE4T's meta-tegra.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from posixpath import basename, dirname

from gpubind.errors import FormatError
from gpubind.files import glob, glob_or_note
from gpubind.formats.driver.tegra import MountSpec, parse_mount_specs
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.host.base import REQUIRE_JETPACK
from gpubind.inventory.claims import Claim
from gpubind.inventory.nodes import ExpectedNode, natural_sort_key
from gpubind.inventory.search import Search
from gpubind.model import Capability, Decision, Finding, Gpu, Missing, layouts
from gpubind.model.findings import finding, with_count
from gpubind.model.layouts import TEGRA_CONTROL, TEGRA_PASSTHROUGH, TEGRA_RELEASE

_BASE_LISTS = ("devices.csv", "drivers.csv", "l4t.csv")
"""The lists for all containers. Others are for optional packages: CUDA, TensorRT."""
_ALL_LISTS = "csv-mounts=all"
"""The value of NVIDIA_REQUIRE_JETPACK that requests every list."""
MODEL = "/proc/device-tree/model"
_MEMORY_NODE = "/dev/nvmap"
_LIBRARY = re.compile(r".*\.so[.0-9]*")
_GPU_NODE = r"/dev/(?:nvidia[0-9]+|dri/.+)"
_CAPABILITIES: tuple[tuple[str, Capability], ...] = (("/dev/dri/card", "graphics"), ("/dev/v4l2-nv", "video"))
_FIRMWARE_REASON = "firmware: the kernel reads it, not a process"
_LINKS_REASON = "links to nodes by their address: programs open the nodes"


class TegraBoard(NamedTuple):
    """The needs of a board in a container, from its lists; without lists, the known files and nodes of such boards."""

    nodes: tuple[str, ...]
    """Existing device nodes."""
    files: tuple[Claim, ...]
    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]


def read_board(host: Host, search: Search) -> TegraBoard:
    """Return the needs of *host*, a board with Tegra."""
    directory = _list_directory(host)
    names = [name for name in host.dev.names(directory) if name.lower().endswith(".csv") and name != ".csv"]
    wants_all = host.variable(REQUIRE_JETPACK) == _ALL_LISTS
    chosen_names = [name for name in names if wants_all or name in _BASE_LISTS]
    entries: list[tuple[str, MountSpec]] = []
    findings: list[Finding] = []
    for path in (f"{directory}/{name}" for name in chosen_names):
        data = host.lenient.dev.read(path)  # older records contain only the names of lists
        if isinstance(data, Missing):
            findings.append(finding("bad-tegra-list", subject=path, case="unread", where=path, why=str(data)))
            continue
        specs, faults = parse_mount_specs(data)
        entries += [(f"{path}:{spec.line}", spec) for spec in specs]
        if faults:
            where, count = ", ".join(f"{path}:{fault.line}" for fault in faults[:5]), with_count(len(faults), "line")
            findings.append(finding("bad-tegra-list", subject=path, where=where, why=faults[0].why, count=count))
    nodes, files, decisions = _listed(host, search, entries)
    if not any(spec.kind == "dev" for _, spec in entries):
        nodes = [path for pattern in layouts.TEGRA_NODES for path in glob(host.dev, pattern)]
        findings.append(_no_lists_finding(directory))
    if not any(spec.kind in ("lib", "sym") for _, spec in entries):
        files += _known_libraries(search)
        findings.append(_no_lists_finding(directory))
    others = (Claim("file", name, "completion", directory) for name in names if name not in chosen_names)
    detail = f"the list of an optional package: {REQUIRE_JETPACK}={_ALL_LISTS} requests it"
    paths = ((claim, f"{directory}/{claim.name}") for claim in others)
    left_out = (claim.decision("left-out", "optional-list", detail, path=path) for claim, path in paths)
    files.append(Claim("own-path", TEGRA_RELEASE, "completion", TEGRA_RELEASE))
    return TegraBoard(tuple(nodes), tuple(files), (*left_out, *decisions), tuple(dict.fromkeys(findings)))


def _no_lists_finding(directory: str) -> Finding:
    return finding("tegra", subject=TEGRA_RELEASE, case="no-lists", severity="note", where=f"{directory}/*.csv")


def _list_directory(host: Host) -> str:
    from gpubind.formats.driver.engines import TOOLKIT_FILE, parse_mount_spec_path  # few hosts are such boards

    data = host.dev.read(TOOLKIT_FILE)
    try:
        return (None if isinstance(data, Missing) else parse_mount_spec_path(data)) or layouts.TEGRA_LISTS
    except FormatError:
        return layouts.TEGRA_LISTS  # the toolkit itself names the place


def _listed(
    host: Host, search: Search, entries: Iterable[tuple[str, MountSpec]]
) -> tuple[list[str], list[Claim], list[Decision]]:
    """Return nodes, claims on files, and Decisions for *entries*: locations and lines."""
    nodes: list[str] = []
    files: list[Claim] = []
    decisions: list[Decision] = []
    loaded = _library_directories(search)
    for location, spec in entries:
        claim = Claim("device" if spec.kind == "dev" else "own-path", spec.path, "completion", location)
        if spec.kind == "dev":
            paths = glob_or_note(host.dev, spec.path)
            nodes += paths
            decisions += [] if paths else [claim.absent("it is not there")]
        elif "/firmware/" in spec.path:
            decisions.append(claim._replace(host_only_reason=_FIRMWARE_REASON).left_on_host(spec.path))
        elif spec.path.startswith("/dev/"):
            decisions.append(claim._replace(host_only_reason=_LINKS_REASON).left_on_host(spec.path))
        else:
            files += _claims(search, claim, loaded)
    return nodes, files, decisions


def _claims(search: Search, claim: Claim, loaded: frozenset[str]) -> Iterator[Claim]:
    """Yield the claims of one line: on libraries in directories of a loader, on programs, on files at their own path.

    Files that do not fit Yocto's layout are in a separate directory, with their paths in NVIDIA's Ubuntu.
    """
    tree = search.tree.lenient
    paths = glob_or_note(tree, claim.name) or glob_or_note(tree, TEGRA_PASSTHROUGH + claim.name)
    for path in paths or (claim.name,):
        directory, name = dirname(path), basename(path)
        if _LIBRARY.fullmatch(name) and tree.resolve(directory) in loaded:
            yield claim._replace(kind="library-file", name=path, extra_names=(name,))
        elif directory in layouts.BINARY_DIRECTORIES:
            yield claim._replace(kind="program", name=name)
        else:
            yield claim._replace(name=path.removeprefix(TEGRA_PASSTHROUGH))


def _library_directories(search: Search) -> frozenset[str]:
    """Return the resolved directories of loaders. Elsewhere `.so` is a module that one program opens by its path."""
    cached = {dirname(entry.path) for entry in search.cache or () if entry.path.startswith("/")}
    passed = (TEGRA_PASSTHROUGH + directory for directory in search.directories)
    resolved = (search.tree.lenient.resolve(path) for path in (*sorted(cached), *passed))
    others = (path for path in resolved if isinstance(path, str))
    return frozenset((*search.preferred_directories, *search.directories, *others))


def _known_libraries(search: Search) -> Iterator[Claim]:
    for directory in layouts.tegra_directories(search.arch):
        for path in glob(search.tree, f"{directory}/*.so*"):
            if _LIBRARY.fullmatch(path):
                yield Claim("library-file", path, "completion", "no list on this host", extra_names=(basename(path),))


def merge_board_nodes(
    board: TegraBoard, nodes: Iterable[ExpectedNode], gpus: tuple[Gpu, ...]
) -> tuple[ExpectedNode, ...]:
    """Return *nodes* with those of *board*. GPU nodes belong to the integrated GPU, unless another GPU has them.

    With a second GPU, each choice gets the control nodes of the integrated GPU, as with NVIDIA's toolkit.
    CUDA needs a render node: without one, cuInit fails with 801 (JetPack 6.2).
    """
    nodes_by_path = {node.path: node for node in nodes}
    for path in sorted(board.nodes, key=natural_sort_key):
        capability = next((capability for start, capability in _CAPABILITIES if path.startswith(start)), None)
        nodes_by_path.setdefault(path, ExpectedNode(path, (), capability, None))
    gpu_pattern = re.compile(_GPU_NODE if len(gpus) > 1 else f"{_GPU_NODE}|{TEGRA_CONTROL}")
    return tuple(
        node._replace(
            gpu=0 if node.gpu is None and gpu_pattern.fullmatch(node.path) else node.gpu,
            capability=None if "/renderD" in node.path else node.capability,
        )
        for node in nodes_by_path.values()
    )


def integrated_gpu(host: Host, board: TegraBoard) -> tuple[Gpu, ...]:
    """Return the integrated GPU, which no file of the driver describes; nothing if its nodes are missing."""
    if not any(re.fullmatch(TEGRA_CONTROL, path) for path in board.nodes):
        return ()
    model = (host.lenient.dev.text(MODEL) or "").strip("\0\n")
    return (Gpu("nvidia", 0, None, None, None, model or "Tegra", None, chosen=True),)


def missing_nodes(board: TegraBoard, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    """Yield the finding that nodes are missing without which CUDA fails."""
    missing = [] if _MEMORY_NODE in board.nodes else [_MEMORY_NODE]
    missing += [] if gpus else ["/dev/nvhost-ctrl-gpu", "/dev/nvgpu/*/ctrl"]
    if missing:
        yield finding("tegra", subject=TEGRA_RELEASE, case="no-nodes", severity="error", where=", ".join(missing))
