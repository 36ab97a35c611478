"""The plan as a picture: each file of the host, its path in the container, and what it needs there.

A row is a file of the host with its binds, or a node. The right column has the needs that the plan does not meet:
libraries of the image, missing libraries, and below a library the symbol versions that it does not define. Every
position is computed here, so the picture needs no script, and is the same in every browser.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Optional

from gpubind.documents.tables import bind_groups, size_text
from gpubind.documents.text import printable
from gpubind.frozen import NamedTuple
from gpubind.inventory.nodes import natural_sort_key
from gpubind.loader.linkage import LinkedFile, LinkUse
from gpubind.model import Decision, Finding, Mount, Plan, Severity
from gpubind.model.findings import SEVERITIES, worst

WIDTH = 1160
LEFT, MIDDLE = 14, 462
"""Where the texts of the first two columns begin."""
BEFORE_MIDDLE, AFTER_MIDDLE, BEFORE_RIGHT = 452, 818, 922
"""Where lines end, and where they bend."""
_CHARACTER = 7.25
"""The maximum width of a character of a fixed-width font of 12 units."""
ROW, HEADING, TOP = 21, 38, 28
SHOWN = {"left": 56, "middle": 47, "right": 29}
"""Characters of a name that fit into its column."""


class GraphNode(NamedTuple):
    """Something in the picture that can be traced: a row, a needed library, or a symbol version."""

    id: str
    kind: str
    """`file`, `node`, `program`, `inner`, `left-out`; `image`, `unknown`, `missing`, `version`, `gpu`."""
    y: int
    label: str
    """Its text, in the container's column or in the right one."""
    title: str
    """Its text in full, for tooltips and screen readers."""
    host: str = ""
    """The path of the file on the host, below the directory that the heading names."""
    severity: Optional[Severity] = None
    """The severity of the finding about a broken part; None if no finding is about it."""
    facts: tuple[tuple[str, str], ...] = ()


class GraphEdge(NamedTuple):
    """A line between two parts, as the path of an SVG."""

    path: str
    begin: str
    end: str
    kind: str
    """`bind`, `dead`, `use`, `broken`."""
    severity: Optional[Severity] = None
    label: str = ""


class PlanGraph(NamedTuple):
    """Everything that is drawn."""

    width: int
    height: int
    headings: tuple[tuple[int, str, str], ...]
    """For each heading: y, the name of the group, and its directory on the host."""
    rows: tuple[GraphNode, ...]
    needed: tuple[GraphNode, ...]
    lines: tuple[GraphEdge, ...]

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """The CSS classes, and the meaning, of each kind of frame in the right column."""
        present = {(part.kind, part.severity) for part in self.needed}
        broken = [severity for kind, severity in present if kind in ("missing", "version")]
        meanings = [("image", "the image has it")] if ("image", None) in present else []
        meanings += [("unknown", "the image must have it")] if ("unknown", None) in present else []
        meanings += [(f"missing {severity}", f"missing: {severity}") for severity in SEVERITIES if severity in broken]
        return (*meanings, ("missing quiet", "missing: no finding is about it")) if None in broken else tuple(meanings)


class _Group(NamedTuple):
    title: str
    directory: str
    rows: tuple[tuple[GraphNode, tuple[str, ...]], ...]
    """The rows, each with the names by which other files need it: its paths in the container, and its soname."""


def picture_of(
    plan: Plan, linked: Iterable[LinkedFile], findings: Iterable[Finding], program: Optional[str]
) -> PlanGraph:
    """Return the picture of *plan* and of how its files are *linked*. *findings* give the severities of what is
    broken.
    """
    files = {file.path: file for file in linked}
    severities = _severities(findings)
    groups = [group for group in _groups(plan, files, program) if group.rows]
    headings, y = [], TOP
    rows: list[GraphNode] = []
    names: dict[str, GraphNode] = {}
    uses: list[tuple[GraphNode, LinkUse]] = []
    for group in groups:
        y += HEADING
        headings.append((y - 14, group.title, group.directory))
        for part, known_as in group.rows:
            placed = part._replace(y=y, severity=_severity_of(severities.get(name) for name in known_as))
            rows.append(placed)
            names.update(dict.fromkeys(known_as, placed))
            uses += [(placed, use) for use in _uses_of(known_as, files)]
            y += ROW
    gpus = list(_gpus(plan, rows))
    blocks = [*_needed(uses, names, severities), *((middle, parts) for middle, parts, _ in gpus)]
    needed = tuple(_stacked(blocks))
    at = {part.id: part for part in needed}
    owned = [
        GraphEdge(_across(row, at[part.id]), row.id, part.id, "use") for _, (part,), nodes in gpus for row in nodes
    ]
    ties = (*_uses_drawn(uses, names, needed), *owned)
    lines = (*_binds(rows), *_leaders(rows, ties), *ties)
    height = max([y, *(part.y + ROW for part in needed)]) + 8
    return PlanGraph(WIDTH, height, tuple(headings), tuple(rows), needed, lines)


def script_data(picture: PlanGraph) -> dict[str, object]:
    """Return what the script needs to know about *picture*: its parts with their facts, and which part needs which."""
    parts = [
        {"id": part.id, "label": part.label, "title": part.title, "facts": part.facts}
        for part in (*picture.rows, *picture.needed)
    ]
    ties = [[line.begin, line.end, line.label, line.kind] for line in picture.lines if line.begin != line.end]
    return {"parts": parts, "ties": ties}


def truncate_middle(text: str, column: str) -> str:
    """Return *text*, printable. If it is too long for *column*, its middle is left out."""
    text, characters = printable(text), SHOWN[column]
    if len(text) <= characters:
        return text
    end = characters * 2 // 3
    return f"{text[: characters - end - 1]}\u2026{text[-end:]}"


def _severities(findings: Iterable[Finding]) -> dict[str, Severity]:
    """Return the worst severity of the findings, by the base name of the subject."""
    severities: dict[str, Severity] = {}
    for finding in findings:
        subject = finding.subject.rpartition("/")[2]
        severities[subject] = worst((finding.severity, severities.get(subject, finding.severity)))
    return severities


def _groups(plan: Plan, files: dict[str, LinkedFile], program: Optional[str]) -> Iterator[_Group]:
    number = count()
    yield _Group("the program", "", tuple(_program(files, program, plan, number)))
    inner = (_inner(f"r{next(number)}", files[path]) for path in _unloadable(files) if path != next(iter(files)))
    yield _Group("libraries of the image that do not load", "", tuple(inner))
    for group in bind_groups(plan.mounts):
        rows = (_file(f"r{next(number)}", place, same, files) for place, same in group.files)
        yield _Group(group.title, group.directory, tuple(rows))
    nodes = []
    for node in sorted(plan.devices, key=lambda node: natural_sort_key(node.target)):
        facts = [("number", f"{node.type} {node.major}:{node.minor}"), ("mode", f"{node.mode:04o}")]
        facts += [("group", node.group or str(node.gid)), ("access", node.access)]
        facts += [] if node.gpu is None else [("GPU", str(node.gpu))]
        title = f"{node.source} is {node.target} in the container"
        part = GraphNode(f"r{next(number)}", "node", 0, node.target, title, node.source, facts=tuple(facts))
        nodes.append((part, ()))
    yield _Group("device nodes", "", tuple(nodes))
    decisions = (decision for decision in plan.decisions if decision.verdict == "left-out" and decision.path in files)
    outside = {decision.path: decision for decision in decisions}.values()
    rows = (_left_out(f"r{next(number)}", decision) for decision in outside)
    yield _Group("left out of the plan", "", tuple(rows))


def _unloadable(files: dict[str, LinkedFile]) -> list[str]:
    """Return the files of the image or the user that cannot be loaded: each lacks something, or needs such a file."""
    dependents: dict[str, list[str]] = {}
    for file in files.values():
        for use in file.uses:
            dependents.setdefault(use.path or "", []).append(file.path)
    broken = dict.fromkeys(path for path, file in files.items() if any(use.is_broken for use in file.uses))
    todo = [*broken]
    for path in todo:  # grows in the loop
        todo += (dependent for dependent in dependents.get(path, ()) if dependent not in broken)
        broken.update(dict.fromkeys(dependents.get(path, ())))
    return [path for path in files if path in broken and files[path].origin in ("image", "user")]


def _inner(name: str, file: LinkedFile) -> tuple[GraphNode, tuple[str, ...]]:
    whose = "(the image's)" if file.origin == "image" else "(bound by the user)"
    return GraphNode(name, "inner", 0, file.path, file.path, whose, facts=(("in the container", file.path),)), (
        file.path,
    )


def _program(
    files: dict[str, LinkedFile], program: Optional[str], plan: Plan, number: Iterator[int]
) -> Iterator[tuple[GraphNode, tuple[str, ...]]]:
    """Yield the row of the program, which is the first linked file. Yield none if it is unknown, or a file of the
    plan.
    """
    targets = {mount.target for mount in plan.mounts}
    path = next(iter(files), None)
    if program is not None and path is not None and path not in targets and files[path].origin != "left-out":
        whose = {"image": "the image's", "user": "bound by the user"}.get(files[path].origin, "the plan's")
        part = GraphNode(f"r{next(number)}", "program", 0, path, path, f"({whose})", facts=(("program", program),))
        yield part, (path,)


def _file(
    name: str, place: str, same: tuple[Mount, ...], files: dict[str, LinkedFile]
) -> tuple[GraphNode, tuple[str, ...]]:
    first, targets = same[0], tuple(mount.target for mount in same)
    is_bundled = first.kind in ("library", "binary")
    names = [target.rpartition("/")[2] if is_bundled else target for target in targets]
    source = "(rewritten by gpubind)" if first.source is None else first.source
    facts = [("on the host", source), *(("in the container", target) for target in targets)]
    facts += [("what", f"{first.kind}{f' for {first.capability}' if first.capability else ''}")]
    facts += [("size", size_text(first.size)), ("listed by", first.rule)]
    linked = [files[target] for target in targets if target in files]
    facts += [("covered by", f"a bind of yours over {file.path}") for file in linked if file.origin == "user"]
    facts += [("the loader", file.fault) for file in linked if file.fault]
    title = f"{source} is {' and '.join(targets)} in the container"
    shown = place if first.source is not None else source
    return GraphNode(name, "file", 0, ", ".join(names), title, shown, facts=tuple(facts)), (*targets, *names)


def _left_out(name: str, decision: Decision) -> tuple[GraphNode, tuple[str, ...]]:
    detail, path = decision.detail or decision.rule, decision.path or ""
    listed_by = ("listed by", decision.named_by or "")
    facts = (("on the host", path), ("left out", detail), ("rule", decision.rule), listed_by)
    title = f"{decision.subject} is left out: {detail}"
    part = GraphNode(name, "left-out", 0, decision.subject, title, path, facts=facts)
    return part, (path, f"left-out:{decision.subject}", decision.subject)


def _uses_of(paths: Iterable[str], files: dict[str, LinkedFile]) -> Iterable[LinkUse]:
    """Return the needs of the files at *paths*, each library once. A broken need takes precedence over a met one."""
    uses: dict[str, LinkUse] = {}
    for use in (use for path in paths if path in files for use in files[path].uses):
        if use.name not in uses or use.is_broken:
            uses[use.name] = use
    return uses.values()


def _target(use: LinkUse, names: dict[str, GraphNode]) -> Optional[GraphNode]:
    """Return the row of the file that *use* needs; None if the plan has no such file."""
    return names.get(use.path or "") or (names.get(f"left-out:{use.name}") if use.path is None else None)


class _MissingLibrary(NamedTuple):
    use: LinkUse
    consumers: list[GraphNode]
    versions: dict[str, None]
    lacking: dict[str, None]


def _needed(
    uses: list[tuple[GraphNode, LinkUse]], names: dict[str, GraphNode], severities: dict[str, Severity]
) -> Iterator[tuple[int, list[GraphNode]]]:
    """Yield each need that the plan does not meet, or not with every version, and the mean height of the rows that
    have it.
    """
    missing: dict[str, _MissingLibrary] = {}
    for row, use in uses:
        if _target(use, names) is None or use.lacking:
            entry = missing.setdefault(_key(use), _MissingLibrary(use, [], {}, {}))
            entry.consumers.append(row)
            entry.versions.update(dict.fromkeys(use.versions))
            entry.lacking.update(dict.fromkeys(use.lacking))
    for key, library in missing.items():
        yield _middle(library.consumers), list(_block(key, library, severities))


def _gpus(plan: Plan, rows: Iterable[GraphNode]) -> Iterator[tuple[int, list[GraphNode], list[GraphNode]]]:
    """Yield each GPU that has nodes in the plan: the mean height of its nodes, its part, and their rows."""
    at = {row.label: row for row in rows if row.kind == "node"}
    for gpu in plan.gpus:
        nodes = [at[node.target] for node in plan.devices if node.vendor == gpu.vendor and node.gpu == gpu.index]
        if gpu.chosen and gpu.index is not None and nodes:
            facts = [("model", gpu.model), ("UUID", gpu.uuid), ("address", gpu.pci)]
            present_facts = tuple((name, value) for name, value in facts if value)
            label = f"GPU {gpu.index}" + (f": {gpu.model}" if gpu.model else "")
            part = GraphNode(f"gpu-{gpu.vendor}-{gpu.index}", "gpu", 0, label, label, facts=present_facts)
            yield _middle(nodes), [part], nodes


def _key(use: LinkUse) -> str:
    return use.path or f"{use.state}:{use.name}"


def _middle(rows: list[GraphNode]) -> int:
    return sum(row.y for row in rows) // len(rows)


def _block(key: str, library: _MissingLibrary, severities: dict[str, Severity]) -> Iterator[GraphNode]:
    use = library.use
    kind = {"found": "image", "unknown": "unknown", "missing": "missing"}[use.state]
    title = {
        "image": f"{use.name}: the image's {use.path}",
        "unknown": f"{use.name}: the image must have it",
        "missing": f"{use.name} is missing in the container",
    }[kind]
    versions = ", ".join(sorted(library.versions, key=natural_sort_key))
    facts = [("in the container", use.path)] if use.path else []
    facts += [("needed versions", versions)] if versions else []
    severity = severities.get(use.name) if kind == "missing" else None
    yield GraphNode(f"n-{key}", kind, 0, use.name, title, severity=severity, facts=tuple(facts))
    for version in sorted(library.lacking, key=natural_sort_key):
        title = f"{version} is not defined by {use.path}"
        severity = severities.get(version) or _severity_of(row.severity for row in library.consumers)
        yield GraphNode(_version_id(use, version), "version", 0, version, title, severity=severity)


def _severity_of(severities: Iterable[Optional[Severity]]) -> Optional[Severity]:
    present = [severity for severity in severities if severity is not None]
    return worst(present) if present else None


def _version_id(use: LinkUse, version: str) -> str:
    return f"n-{_key(use)}-{version}"


def _stacked(blocks: Iterable[tuple[int, list[GraphNode]]]) -> Iterator[GraphNode]:
    """Yield the parts of *blocks* one below the other: each block at its own height, or directly below the block
    before.
    """
    bottom = TOP + HEADING
    for middle, parts in sorted(blocks, key=lambda block: block[0]):
        y = max(bottom, middle - (len(parts) - 1) * ROW // 2)
        for part in parts:
            yield part._replace(y=y)
            y += ROW
        bottom = y


def _binds(rows: Iterable[GraphNode]) -> Iterator[GraphEdge]:
    """Yield the line from each host file to its path in the container. The line of a file that is left out ends
    early.
    """
    for row in rows:
        begin = _end_of(LEFT, row.host, "left")
        if row.kind == "left-out":
            yield GraphEdge(f"M{begin} {row.y}H{max(begin + 12, BEFORE_MIDDLE - 40)}", row.id, row.id, "dead")
        elif row.kind not in ("program", "inner"):
            yield GraphEdge(f"M{begin} {row.y}H{BEFORE_MIDDLE}", row.id, row.id, "bind")


def _uses_drawn(
    uses: Iterable[tuple[GraphNode, LinkUse]], names: dict[str, GraphNode], needed: Iterable[GraphNode]
) -> Iterator[GraphEdge]:
    by_id = {part.id: part for part in needed}
    for row, use in uses:
        label = ", ".join(sorted(use.versions, key=natural_sort_key))
        for version in use.lacking:
            part = by_id[_version_id(use, version)]
            severity = part.severity or row.severity
            yield GraphEdge(_across(row, part), row.id, part.id, "broken", severity, f"{version}, which is not defined")
        end = _target(use, names) or by_id[f"n-{_key(use)}"]
        is_broken = use.state == "missing" or end.kind == "left-out"
        out = AFTER_MIDDLE + min(64, 12 + abs(row.y - end.y) // 8)  # a bow between rows, wider if they are far apart
        bow = f"M{AFTER_MIDDLE} {row.y}C{out} {row.y} {out} {end.y} {AFTER_MIDDLE} {end.y}"
        path = _across(row, end) if end.id in by_id else bow
        severity = end.severity or row.severity if is_broken else None
        if end is not row:
            yield GraphEdge(path, row.id, end.id, "broken" if is_broken else "use", severity, label)


def _across(row: GraphNode, part: GraphNode) -> str:
    begin, end, bend = AFTER_MIDDLE, BEFORE_RIGHT, 70
    return f"M{begin} {row.y}C{begin + bend} {row.y} {end - bend} {part.y} {end} {part.y}"


def _leaders(rows: Iterable[GraphNode], lines: Iterable[GraphEdge]) -> Iterator[GraphEdge]:
    tied: dict[str, list[GraphEdge]] = {}
    for line in lines:
        for end in (line.begin, line.end):
            tied.setdefault(end, []).append(line)
    for row in rows:
        row_edges = tied.get(row.id, [])
        broken = [line for line in row_edges if line.kind == "broken" and line.begin == row.id]
        severity = _severity_of(line.severity for line in broken)
        kind = "broken" if broken and len(broken) == len(row_edges) else "use"
        if row_edges:
            path = f"M{_end_of(MIDDLE, row.label, 'middle')} {row.y}H{AFTER_MIDDLE}"
            yield GraphEdge(path, row.id, row.id, kind if severity is None else "broken", severity)


def _end_of(begin: int, text: str, column: str) -> int:
    """Return where *text* ends if it starts at *begin* in *column*, with a gap added."""
    return begin + round(len(truncate_middle(text, column)) * _CHARACTER) + 6
