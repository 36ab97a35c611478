"""A recorded host: listings, facts and small texts of a fixed survey, as JSON.

Grouped by directory. An entry is null (known to be absent), a string (a link's target), or an object whose defaults
(a root-owned regular file with mode 0644, a directory with 0755) are left out. Driver files are kept as ELF facts,
never as bodies. Keys that this version does not know are ignored, so that newer additions do no harm; a newer schema
is refused by name.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, NamedTuple, Optional, Union

from gpubind.errors import FormatError
from gpubind.formats.elf.elf import ElfFacts, ElfIdent, NotElf, VersionNeed
from gpubind.formats.text.json import STRAY_HALVES, JsonObject, parse_json, with_whole_characters
from gpubind.model import CudaNote, HostPath, Missing, Stat

SCHEMA = "gpubind.record/1"
SIZE_LIMIT = 64 << 20

_SCHEMA = re.compile(r"gpubind\.record/([0-9]{1,6})")
_DEFAULT_MODES = {"file": 0o644, "dir": 0o755}
_TYPES = ("file", "dir", "char", "block", "socket", "fifo")


class RecordedEntry(NamedTuple):
    """One name in a directory."""

    stat: Union[Stat, Missing]
    """Missing if the name is known to be absent or could not be looked at."""
    link: Optional[str] = None
    body: Union[bytes, Missing, None] = None
    """None: the survey did not read it."""
    ident: Union[ElfIdent, NotElf, Missing, None] = None
    elf: Union[ElfFacts, Missing, None] = None
    stub: bool = False
    """Whether it is a stub of libcuda or NVML by what it holds."""


class RecordedDirectory(NamedTuple):
    """What the survey knows of one directory."""

    entries: dict[str, RecordedEntry]
    others: tuple[str, ...] = ()
    """Names that exist and that nothing more is known of."""
    listed: Union[bool, Missing] = False
    """True if entries and others are all there is; Missing if it could not be listed."""


class RecordedRun(NamedTuple):
    """What a program answered; Missing if it could not be run, or gave no answer."""

    argv: tuple[str, ...]
    status: int = 0
    stdout: str = ""
    stderr: str = ""
    missing: Optional[Missing] = None


class RecordedRoot(NamedTuple):
    """One tree."""

    root: HostPath
    directories: dict[str, RecordedDirectory]


class RecordedList(NamedTuple):
    """A list file that the host's user or site had put in force."""

    name: str
    label: str
    text: str


class Record(NamedTuple):
    """A recorded host."""

    description: str
    hostname: Optional[str]
    driver: RecordedRoot
    dev: Optional[RecordedRoot]
    """None: the same tree as `driver`."""
    environ: dict[str, str]
    release: str
    machine: str
    euid: int
    groups: tuple[int, ...]
    lists: tuple[RecordedList, ...]
    runs: tuple[RecordedRun, ...]


def dump_record(record: Record, version: str) -> str:
    """Return *record* as text: sorted, one directory entry a line, equal for equal records."""
    document = {
        "schema": SCHEMA,
        "gpubind": version,
        "description": record.description,
        "hostname": record.hostname,
        "uname": {"release": record.release, "machine": record.machine},
        "identity": {"euid": record.euid, "groups": list(record.groups)},
        "environ": dict(sorted(record.environ.items())),
        "lists": [entry._asdict() for entry in record.lists],
        "runs": [_dump_run(run) for run in record.runs],
    }
    head = json.dumps(document, indent=1)[:-2]
    trees = {"driver": record.driver, **({"dev": record.dev} if record.dev else {})}
    body = ",\n".join(f" {json.dumps(name)}: {_dump_root(tree)}" for name, tree in trees.items())
    return f'{head},\n "trees": {{\n{body}\n }}\n}}\n'


def _dump_run(run: RecordedRun) -> dict[str, Any]:
    missing = list(run.missing) if run.missing is not None else None
    return {**run._asdict(), "argv": list(run.argv), "missing": missing}


def _dump_root(tree: RecordedRoot) -> str:
    directories = []
    for path, directory in sorted(tree.directories.items()):
        listed = list(directory.listed) if isinstance(directory.listed, Missing) else directory.listed
        head = f'   {json.dumps(path)}: {{"listed": {json.dumps(listed)}'
        if directory.others:
            head += f', "others": {json.dumps(sorted(directory.others))}'
        entries = ",\n".join(
            f"     {json.dumps(name)}: {json.dumps(_dump_entry(entry))}"
            for name, entry in sorted(directory.entries.items())
        )
        directories.append(f'{head}, "entries": {{\n{entries}\n   }}}}' if entries else head + "}")
    return f'{{"root": {json.dumps(tree.root)}, "directories": {{\n' + ",\n".join(directories) + "\n  }}"


def _dump_entry(entry: RecordedEntry) -> Any:
    if isinstance(entry.stat, Missing):
        return None if entry.stat.why == "absent" else {"missing": list(entry.stat)}
    if entry.link is not None:
        return entry.link
    found = entry.stat
    out: dict[str, Any] = {}
    if found.kind != "file":
        out["type"] = found.kind
    if found.mode != _DEFAULT_MODES.get(found.kind):
        out["mode"] = f"{found.mode:04o}"
    for key, value in (("uid", found.uid), ("gid", found.gid), ("size", found.size)):
        if value:
            out[key] = value
    if found.kind in ("char", "block"):
        out["rdev"] = [found.major, found.minor]
    if isinstance(entry.body, Missing):
        out["unread"] = list(entry.body)
    elif entry.body is not None:
        try:
            out["text"] = entry.body.decode("utf-8")
        except UnicodeDecodeError:
            out["base64"] = base64.b64encode(entry.body).decode("ascii")
    if isinstance(entry.ident, ElfIdent):
        out["ident"] = list(entry.ident)
    elif isinstance(entry.ident, NotElf):
        out["not_elf"] = list(entry.ident)
    elif isinstance(entry.ident, Missing):
        out["no_ident"] = list(entry.ident)
    if isinstance(entry.elf, Missing):
        out["no_elf"] = list(entry.elf)
    elif entry.elf is not None:
        facts = entry.elf._asdict()
        del facts["ident"]
        facts["version_needs"] = {need.library: list(need.versions) for need in entry.elf.version_needs}
        facts["cuda_note"] = entry.elf.cuda_note and entry.elf.cuda_note._asdict()
        out["elf"] = {key: value for key, value in facts.items() if value or value == ""}
    if entry.stub:
        out["stub"] = True
    return out


def parse_record(data: bytes) -> Record:
    """Return the record in *data*.

    Errors: `FormatError`: `newer-record` for a schema newer than this code, `bad-record` with the key for the rest.
    """
    value = parse_json(data, SIZE_LIMIT, _malformed, keeps_halves=True)
    top = _RecordObject(value)
    schema = top.text("schema")
    match = _SCHEMA.fullmatch(schema)
    if match is None:
        why = f"`{schema[:60]}` is not a record of a host"
        raise _malformed(why, "schema", "make one with `gpubind record -o FILE`")
    if int(match.group(1)) > int(SCHEMA.rpartition("/")[2]):
        raise FormatError(
            "newer-record",
            f"the record has schema `{schema}`",
            place="schema",
            why=f"this gpubind reads schemas up to `{SCHEMA}`",
            hint="use the gpubind that made it, or a newer one",
        )
    uname, identity, trees = top.child("uname"), top.child("identity"), top.child("trees")
    record = Record(
        description=top.text("description", ""),
        hostname=top.optional_text("hostname"),
        driver=_parse_root(trees.child("driver")),
        dev=_parse_root(trees.child("dev")) if "dev" in trees.value else None,
        environ=top.child("environ").texts(),
        release=uname.text("release"),
        machine=uname.text("machine"),
        euid=identity.number("euid", least=-1),
        groups=identity.numbers("groups"),
        lists=tuple(
            RecordedList(item.text("name"), item.text("label"), item.encodable("text"))
            for item in top.children("lists", [])
        ),
        runs=tuple(
            RecordedRun(
                item.strings("argv"),
                item.number("status", least=-1),
                item.text("stdout"),
                item.text("stderr"),
                item.optional_missing("missing"),
            )
            for item in top.children("runs", [])
        ),
    )
    try:
        has_half = b"\\u" in data and with_whole_characters(value, STRAY_HALVES) != value  # no surrogate escape is one
    except RecursionError as error:
        raise _malformed("nested too deeply", "") from error
    if has_half:
        raise _malformed("half of a surrogate pair in a string", "")
    return record


def _parse_root(tree: _RecordObject) -> RecordedRoot:
    found = tree.child("directories")
    directories = {path: _parse_directory(found.child(path), path) for path in found.value}
    return RecordedRoot(HostPath(tree.text("root")), directories)


def _parse_directory(directory: _RecordObject, path: str) -> RecordedDirectory:
    entries = {}
    for name, value in directory.child("entries", {}).value.items():
        if not name or "/" in name:
            raise _malformed(f"`{name}` is not a file name", directory.at("entries"))
        entries[name] = _parse_entry(value, f"{path}/{name}")
    listed = directory.value.get("listed", False)
    return RecordedDirectory(
        entries, directory.strings("others", ()), listed if isinstance(listed, bool) else directory.missing("listed")
    )


def _parse_entry(value: Any, place: str) -> RecordedEntry:
    if value is None:
        return RecordedEntry(Missing("absent"))
    if isinstance(value, str):
        return RecordedEntry(Stat("link", 0o777, 0, 0, 0), link=value)
    entry = _RecordObject(value, place)
    if "missing" in value:
        return RecordedEntry(entry.missing("missing"))
    ident = _parse_ident(entry)
    elf = entry.optional_missing("no_elf")
    facts = None if elf is not None or "elf" not in entry.value else entry.child("elf")
    if facts is not None and not isinstance(ident, ElfIdent):
        raise _malformed("`elf` without `ident`", place)
    return RecordedEntry(
        stat=_parse_stat(entry),
        body=_parse_body(entry),
        ident=ident,
        elf=_parse_elf(facts, ident) if facts is not None and isinstance(ident, ElfIdent) else elf,
        stub=value.get("stub") is True,
    )


def _parse_stat(entry: _RecordObject) -> Stat:
    kind: Any = entry.text("type", "file")
    if kind not in _TYPES:
        raise _malformed(f"unknown type `{kind}`", entry.place)
    mode = entry.text("mode", f"{_DEFAULT_MODES.get(kind, 0):o}")
    if not re.fullmatch(r"[0-7]{1,5}", mode):
        raise _malformed(f"`{mode[:20]}` is not an octal mode", entry.place)
    rdev = entry.numbers("rdev", (0, 0))
    if len(rdev) != 2:
        raise _malformed("rdev is [major, minor]", entry.place)
    if kind not in ("char", "block"):
        rdev = (0, 0)  # nothing else has numbers, and none are written
    owners = entry.number("uid", 0, least=-1), entry.number("gid", 0, least=-1)
    return Stat(kind, int(mode, 8), *owners, entry.number("size", 0), *rdev)


def _parse_body(entry: _RecordObject) -> Union[bytes, Missing, None]:
    text = entry.optional_text("text")
    if text is not None:
        return text.encode("utf-8", "surrogatepass")
    packed = entry.optional_text("base64")
    if packed is None:
        return entry.optional_missing("unread")
    try:
        return base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _malformed(f"base64: {error}", entry.place) from error


def _parse_ident(entry: _RecordObject) -> Union[ElfIdent, NotElf, Missing, None]:
    value = entry.value.get("ident")
    if value is not None:
        if (
            not isinstance(value, list)
            or len(value) != 4
            or value[0] not in (32, 64)
            or value[1] not in ("little", "big")
            or not all(type(number) is int and 0 <= number < 1 << 16 for number in (value[0], *value[2:]))
        ):
            raise _malformed("ident is [bits, byte order, machine, type]", entry.place)
        return ElfIdent(*value)
    if entry.value.get("not_elf") is None:
        return entry.optional_missing("no_ident")
    rule, detail = entry.strings("not_elf", length=2)
    if rule not in ("zero-byte", "linker-script", "truncated-elf", "not-elf"):
        raise _malformed(f"unknown rule `{rule[:40]}`", entry.place)
    return NotElf(rule, detail)  # type: ignore[arg-type]  # checked above


def _parse_elf(facts: _RecordObject, ident: ElfIdent) -> ElfFacts:
    needs = facts.child("version_needs", {})
    note = None if facts.value.get("cuda_note") is None else facts.child("cuda_note")
    return ElfFacts(
        ident,
        facts.optional_text("soname"),
        facts.strings("needed", ()),
        facts.optional_text("rpath"),
        facts.optional_text("runpath"),
        facts.optional_text("interpreter"),
        tuple(VersionNeed(library, needs.strings(library)) for library in needs.value),
        facts.strings("version_definitions", ()),
        None if note is None else CudaNote(note.text("cuda"), note.numbers("drivers")),
        bool(facts.value.get("executable_stack")),
        bool(facts.value.get("no_default_directories")),
        bool(facts.value.get("pie")),
    )


def _malformed(why: str, place: str, hint: str = "") -> FormatError:
    return FormatError("bad-record", "malformed record of a host", place=place or "byte 0", why=why, hint=hint)


class _RecordObject(JsonObject):
    __slots__ = ()
    malformed = staticmethod(_malformed)

    def encodable(self, key: str) -> str:
        """A string that stands for bytes."""
        text = self.text(key)
        try:
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise _malformed(f"character {error.start} stands for no byte", self.at(key)) from error
        return text

    def texts(self) -> dict[str, str]:
        """All members, which are strings."""
        return {key: self.text(key) for key in self.value}

    def optional_missing(self, key: str) -> Optional[Missing]:
        """Return why something is not there, or None."""
        return None if self.value.get(key) is None else self.missing(key)

    def missing(self, key: str) -> Missing:
        """Return why something is not there: [why, detail]."""
        why, detail = self.strings(key, length=2)
        if why not in ("absent", "forbidden", "loop", "unreadable"):
            raise _malformed(f"unknown reason `{why[:40]}`", self.at(key))
        return Missing(why, detail)  # type: ignore[arg-type]  # checked above
