"""A snapshot: the facts of a host that matter to containers. Equal hosts have equal snapshots, whatever their names.

A snapshot has no UUIDs, serial numbers, PCI addresses, major numbers that the kernel assigns, paths on the host, or
variables of a job. A file with the driver's version in its name counts as the same file in every version.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Optional, get_args

from gpubind.errors import Format
from gpubind.formats.driver.gpu_names import GPU_VARIABLES
from gpubind.frozen import NamedTuple
from gpubind.model import DeviceNode, Finding, HostPath, Mount, Plan
from gpubind.model.digest import replace_uuids, sha256, sha256_hex
from gpubind.model.findings import support_of
from gpubind.model.plain import Decoder, dump_document, to_json_value
from gpubind.rules.outcome import verdict

SCHEMA = "gpubind.snapshot/1"
Section = Literal["driver", "kernel", "gpus", "library", "program", "file", "device", "variable", "finding", "image"]
SECTIONS: tuple[Section, ...] = get_args(Section)
"""The sections, in the order of documents. `image` has the verdicts about images on the host."""
FILES: tuple[Section, ...] = ("library", "program", "file")
_SECTION_OF_KIND: dict[str, Section] = {"library": "library", "binary": "program"}
_ROOT_SECTIONS: tuple[Section, ...] = ("driver", *FILES, "image")
MODULE = "kernel module"
CHECK = "check"
_STATIC_MAJORS = (195, 226)
"""The fixed major numbers: NVIDIA's GPUs and DRM. The kernel assigns all others. Source:
Documentation/admin-guide/devices.txt.
"""


class SnapshotFact(NamedTuple):
    """One fact of a host."""

    section: Section
    key: str
    """The identity of the fact: it is equal for the same fact of another host."""
    name: str
    """The name of the fact on this host."""
    fields: dict[str, Optional[str]]
    """The compared values, the most important first; None for a value that is missing or unknown."""
    vendor_scope: str = ""
    """The vendor of a file or node, followed by ` GPU` for a node of one GPU, or by ` driver` for a file of the
    driver's version. `CHECK` for a finding that is not one of the plan. It is not compared.
    """


class ImageOutcome(NamedTuple):
    """The outcome of a check of one image on a host."""

    image: str
    findings: tuple[Finding, ...]
    """Errors, warnings, and notes that have a `support`, the worst first. Findings that the host has without the
    image are left out.
    """

    @property
    def verdict(self) -> str:
        """Return the compared text: `error cuda-too-new`, `ok`, `ok cuda-minor-version`."""
        worst = verdict(self.findings)
        shown = (finding for finding in self.findings if worst != "error" or finding.severity != "note")
        return " ".join(filter(None, (worst, ",".join(dict.fromkeys(finding.code for finding in shown)))))


class Snapshot(NamedTuple):
    """The facts of one host that are compared."""

    name: str
    facts: tuple[SnapshotFact, ...]
    """The facts, sorted by section and key. Each key is unique in its section."""
    driver: str = ""
    """Its drivers, for people: `nvidia 550.163.01, CUDA 12.4`. They are not compared."""
    images: tuple[ImageOutcome, ...] = ()
    """The outcomes whose verdicts are the facts of the section `image`. They are not compared."""

    @property
    def digest(self) -> str:
        """Return sha256 (hex) over the compared facts."""
        compared = [[fact.section, fact.key, sorted(fact.fields.items())] for fact in self.facts]
        return sha256(json.dumps(compared, separators=(",", ":")).encode("ascii")).hexdigest()

    @property
    def as_of_plan(self) -> Snapshot:
        """Return the snapshot with only the facts that a document of the host's plan also has."""
        facts = tuple(fact for fact in self.facts if fact.section != "kernel" and fact.vendor_scope != CHECK)
        return self._replace(facts=facts)

    @property
    def as_of_root(self) -> Snapshot:
        """Return the snapshot with only the facts of a directory with a driver: none of the kernel, of devices, or
        of checks of them.
        """
        facts = (fact for fact in self.facts if fact.section in _ROOT_SECTIONS)
        without = (
            fact._replace(fields={**fact.fields, MODULE: None}) if MODULE in fact.fields else fact for fact in facts
        )
        return self._replace(facts=tuple(without))

    def only(self, sections: Collection[Section]) -> Snapshot:
        """Return the snapshot with only the facts of *sections*."""
        return self._replace(facts=tuple(fact for fact in self.facts if fact.section in sections))

    def to_dict(self) -> dict[str, Any]:
        """Return the document `gpubind.snapshot/1`, for another machine."""
        document: dict[str, Any] = to_json_value({"schema": SCHEMA, **self._asdict()})
        return document

    @classmethod
    def from_dict(cls, value: object) -> Snapshot:
        """Parse the document of `to_dict`. Errors: `FormatError` (code `bad-snapshot`)."""
        sent = _DECODER.decode(cls, value)
        return sent._replace(facts=sorted_snapshot(sent.name, sent.facts).facts)


def render_snapshot(snapshot: Snapshot) -> str:
    """Return the document `gpubind.snapshot/1`."""
    return dump_document(snapshot.to_dict())


_DECODER = Decoder(Format("bad-snapshot", "gpubind did not make this snapshot of a host"))


def snapshot_of(
    name: str, plan: Plan, check_findings: Iterable[Finding] = (), release: Optional[str] = None
) -> Snapshot:
    """Return the snapshot of the host of *plan*, called *name*.

    *check_findings* are those of its check; notes among them are left out, because they concern facts that are compared
    anyway. *release* is that of its kernel.
    """
    facts = [*_drivers(plan), *_gpus(plan), *_files(plan), *map(_device, plan.devices), *_variable_facts(plan)]
    facts += _finding_facts(plan, plan.findings)
    facts += _finding_facts(plan, (finding for finding in check_findings if finding not in plan.findings), CHECK)
    if release is not None:
        facts.append(SnapshotFact("kernel", "release", "release", {"value": release}))
    return sorted_snapshot(name, facts)._replace(driver=_driver_text(plan))


def snapshot_of_images(name: str, plan: Plan, of_host: Iterable[Finding], images: Sequence[ImageOutcome]) -> Snapshot:
    """Return the snapshot of the host of *plan* for *images*. *of_host*: the findings that concern no image."""
    facts = [*_finding_facts(plan, of_host), *(image_fact(outcome.image, outcome.verdict) for outcome in images)]
    return sorted_snapshot(name, facts)._replace(driver=_driver_text(plan), images=tuple(images))


def _driver_text(plan: Plan) -> str:
    return " and ".join(planned.title_with_cuda for planned in plan.drivers)


def sorted_snapshot(name: str, facts: Iterable[SnapshotFact]) -> Snapshot:
    """Return the snapshot of *facts*. If several have one key, the second one gets the key `KEY #2`, and so on."""
    by_key: dict[tuple[int, str], SnapshotFact] = {}
    for fact in facts:
        number, key = 1, fact.key
        while (SECTIONS.index(fact.section), key) in by_key:
            number += 1
            key = f"{fact.key} #{number}"
        by_key[SECTIONS.index(fact.section), key] = fact._replace(key=key)
    return Snapshot(name, tuple(by_key[key] for key in sorted(by_key)))


def outcome_of(image: str, findings: Iterable[Finding]) -> ImageOutcome:
    """Return the outcome of a check of *image*, with the *findings* that matter to its users."""
    return ImageOutcome(
        image, tuple(finding for finding in findings if finding.severity != "note" or support_of(finding) is not None)
    )


def image_fact(image: str, verdict: str) -> SnapshotFact:
    """Return the fact of a *verdict* about *image* on the host, such as `error cuda-too-new`."""
    return SnapshotFact("image", image, image, {"verdict": verdict})


def _drivers(plan: Plan) -> Iterator[SnapshotFact]:
    for driver, *_ in plan.drivers:
        module = "loaded" if driver.kernel_version == driver.version else driver.kernel_version
        fields = {"version": driver.version, MODULE: module, "kind": driver.kind}
        yield SnapshotFact("driver", driver.vendor, driver.vendor, fields)


def _gpus(plan: Plan) -> Iterator[SnapshotFact]:
    models = sorted({(gpu.vendor, gpu.model or "unknown model") for gpu in plan.gpus})
    for vendor, model in models:
        same = [gpu for gpu in plan.gpus if (gpu.vendor, gpu.model or "unknown model") == (vendor, model)]
        parts = Counter(len(gpu.mig) for gpu in same)
        mig = ", ".join(f"{parts[number]} with {number}" for number in sorted(parts) if number) or "none"
        excluded = sum(gpu.index is None for gpu in same)
        fields: dict[str, Optional[str]] = {"number": str(len(same)), "MIG devices": mig, "excluded": str(excluded)}
        modes = Counter(gpu.partition for gpu in same if gpu.partition)
        if modes:  # only of AMD's GPUs
            fields["partition"] = ", ".join(f"{modes[mode]} in {mode}" for mode in sorted(modes))
        yield SnapshotFact("gpus", f"{vendor} {model}", model, fields)


def _files(plan: Plan) -> Iterator[SnapshotFact]:
    versions = {driver.vendor: driver.version for driver, *_ in plan.drivers if driver.version}
    sonames = {mount.source: mount.soname for mount in plan.mounts if mount.soname}
    files: dict[tuple[Section, str], list[Mount]] = {}
    for mount in plan.mounts:
        name = _name_of(mount, sonames)
        is_32_bit = plan.libdir32 is not None and mount.target.startswith(f"{plan.libdir32}/")
        key = _any_version(f"{name} ({mount.arch})" if is_32_bit else name, versions.get(mount.vendor))
        files.setdefault((_SECTION_OF_KIND.get(mount.kind, "file"), key), []).append(mount)
    for (section, key), mounts in sorted(files.items()):
        yield _file(section, key, mounts, versions.get(mounts[0].vendor))


def _name_of(mount: Mount, sonames: Mapping[Optional[HostPath], str]) -> str:
    """Return the soname of a library, the name of a program, or the path in the container of any other file.

    *sonames* has the sonames of the plan, by file. `libcuda.so` is a name of `libcuda.so.1`.
    """
    base = mount.target.rpartition("/")[2]
    if mount.kind == "library":
        longer = (soname for soname in sonames.values() if soname.startswith(f"{base}."))
        return sonames.get(mount.source) or next(longer, base)
    return base if mount.kind == "binary" else mount.target


def _file(section: Section, key: str, mounts: list[Mount], version: Optional[str]) -> SnapshotFact:
    first = mounts[0]
    names = sorted(_any_version(mount.target.rpartition("/")[2], version) for mount in mounts)
    content = first.content and sha256_hex(first.content)[:12]
    fields = {
        "size": str(first.size) if content is None else None,
        "content": content,
        "names": " ".join(names),
        "version": first.version if first.version != version else None,
        "options": ",".join(first.options),
    }
    name = key if version is None else key.replace(_VERSION, version)
    is_of_driver = version is not None and first.version == version
    return SnapshotFact(section, key, name, fields, f"{first.vendor} driver" if is_of_driver else first.vendor)


_VERSION = "VERSION"


def _any_version(name: str, version: Optional[str]) -> str:
    return name if not version else re.sub(rf"(?<![0-9]){re.escape(version)}(?![0-9])", _VERSION, name)


def _device(node: DeviceNode) -> SnapshotFact:
    major = str(node.major) if node.major in _STATIC_MAJORS else "dynamic"
    fields: dict[str, Optional[str]] = {
        "type": node.type,
        "numbers": f"{major}:{node.minor}",
        "mode": f"{node.mode:04o}",
        "owner": f"{node.uid}:{node.group or node.gid}",
    }
    return SnapshotFact(
        "device", node.target, node.target, fields, node.vendor if node.gpu is None else f"{node.vendor} GPU"
    )


def _variable_facts(plan: Plan) -> Iterator[SnapshotFact]:
    for variable in plan.env:
        if variable.name not in GPU_VARIABLES:
            value = replace_uuids(variable.value, plan.gpus)
            yield SnapshotFact("variable", variable.name, variable.name, {"value": value, "operation": variable.op})


def _finding_facts(plan: Plan, findings: Iterable[Finding], of: str = "") -> Iterator[SnapshotFact]:
    versions = [driver.version for driver, *_ in plan.drivers if driver.version]
    for finding in dict.fromkeys(candidate for candidate in findings if candidate.severity != "note"):
        subject = replace_uuids(finding.subject, plan.gpus) or ""
        for gpu in plan.gpus:
            subject = subject.replace(gpu.pci, f"GPU {gpu.index}") if gpu.pci else subject
        name = f"{finding.code}({subject})"
        for version in versions:
            subject = _any_version(subject, version)
        yield SnapshotFact("finding", f"{finding.code}({subject})", name, {"severity": finding.severity}, of)
