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
from gpubind.formats.elf import ElfFacts, ElfIdent, NotElf, VersionNeed
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
    """*record* as text: sorted, one directory entry a line, equal for equal records."""
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
    """The record in *data*.

    Errors: `FormatError`: `newer-record` for a schema newer than this code, `bad-record` with the key for the rest.
    """
    if len(data) > SIZE_LIMIT:
        raise _malformed("byte 0", f"{len(data)} bytes; a record has {SIZE_LIMIT} at most")
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _malformed(f"byte {getattr(error, 'pos', getattr(error, 'start', 0))}", str(error)[:200]) from error
    top = _Object(document, "")
    schema = top.text("schema")
    match = _SCHEMA.fullmatch(schema)
    if match is None:
        raise _malformed("schema", f"`{schema[:60]}` is no record of a host", "make one with `gpubind record -o FILE`")
    if int(match.group(1)) > int(SCHEMA.rpartition("/")[2]):
        raise FormatError(
            "newer-record",
            f"the record has schema `{schema}`",
            place="schema",
            why=f"this gpubind reads schemas up to `{SCHEMA}`",
            hint="use the gpubind that made it, or a newer one",
        )
    uname, identity, trees = top.object("uname"), top.object("identity"), top.object("trees")
    return Record(
        description=top.text("description", ""),
        hostname=top.optional_text("hostname"),
        driver=_parse_root(trees.object("driver")),
        dev=_parse_root(trees.object("dev")) if "dev" in trees.value else None,
        environ=top.object("environ").texts(),
        release=uname.text("release"),
        machine=uname.text("machine"),
        euid=identity.number("euid"),
        groups=identity.numbers("groups"),
        lists=tuple(
            RecordedList(item.text("name"), item.text("label"), item.encodable("text")) for item in top.objects("lists")
        ),
        runs=tuple(
            RecordedRun(
                item.strings("argv"),
                item.number("status"),
                item.text("stdout"),
                item.text("stderr"),
                None if item.value.get("missing") is None else item.missing("missing"),
            )
            for item in top.objects("runs")
        ),
    )


def _parse_root(tree: _Object) -> RecordedRoot:
    directories: dict[str, RecordedDirectory] = {}
    for path, directory in tree.object("directories").items():
        entries = {}
        for name, value in directory.object("entries", {}).value.items():
            if not name or "/" in name:
                raise _malformed(f"{directory.place}.entries", f"`{name}` is no file name")
            entries[name] = _parse_entry(value, f"{path}/{name}")
        listed = directory.value.get("listed", False)
        if not isinstance(listed, bool):
            listed = directory.missing("listed")
        directories[path] = RecordedDirectory(entries, directory.strings("others", ()), listed)
    return RecordedRoot(HostPath(tree.text("root")), directories)


def _parse_entry(value: Any, place: str) -> RecordedEntry:
    if value is None:
        return RecordedEntry(Missing("absent"))
    if isinstance(value, str):
        return RecordedEntry(Stat("link", 0o777, 0, 0, 0), link=value)
    entry = _Object(value, place)
    if "missing" in entry.value:
        return RecordedEntry(entry.missing("missing"))
    kind: Any = entry.text("type", "file")
    if kind not in _TYPES:
        raise _malformed(place, f"unknown type `{kind}`")
    mode = entry.text("mode", f"{_DEFAULT_MODES.get(kind, 0):o}")
    if not re.fullmatch(r"[0-7]{1,5}", mode):
        raise _malformed(place, f"`{mode[:20]}` is no octal mode")
    rdev = entry.numbers("rdev", (0, 0))
    if len(rdev) != 2:
        raise _malformed(place, "rdev is [major, minor]")
    found = Stat(
        kind, int(mode, 8), entry.number("uid", 0), entry.number("gid", 0), entry.number("size", 0), rdev[0], rdev[1]
    )
    body: Union[bytes, Missing, None] = None
    if "text" in entry.value:
        body = entry.text("text").encode("utf-8", "surrogatepass")
    elif "base64" in entry.value:
        try:
            body = base64.b64decode(entry.text("base64"), validate=True)
        except (binascii.Error, ValueError) as error:
            raise _malformed(place, f"base64: {error}") from error
    elif "unread" in entry.value:
        body = entry.missing("unread")
    ident: Union[ElfIdent, NotElf, Missing, None] = None
    if "ident" in entry.value:
        ident = _parse_ident(entry)
    elif "not_elf" in entry.value:
        rule, detail = entry.strings("not_elf", length=2)
        if rule not in ("zero-byte", "linker-script", "truncated-elf", "not-elf"):
            raise _malformed(place, f"unknown rule `{rule[:40]}`")
        ident = NotElf(rule, detail)  # type: ignore[arg-type]  # checked above
    elif "no_ident" in entry.value:
        ident = entry.missing("no_ident")
    elf: Union[ElfFacts, Missing, None] = None
    if "no_elf" in entry.value:
        elf = entry.missing("no_elf")
    elif "elf" in entry.value:
        if not isinstance(ident, ElfIdent):
            raise _malformed(place, "`elf` without `ident`")
        elf = _parse_elf(entry.object("elf"), ident)
    return RecordedEntry(found, None, body, ident, elf, entry.value.get("stub") is True)


def _parse_ident(entry: _Object) -> ElfIdent:
    value = entry.value["ident"]
    if (
        not isinstance(value, list)
        or len(value) != 4
        or value[0] not in (32, 64)
        or value[1] not in ("little", "big")
        or not all(type(number) is int and 0 <= number < 1 << 16 for number in (value[0], *value[2:]))
    ):
        raise _malformed(entry.place, "ident is [bits, byte order, machine, type]")
    return ElfIdent(*value)


def _parse_elf(facts: _Object, ident: ElfIdent) -> ElfFacts:
    needs = facts.object("version_needs", {})
    return ElfFacts(
        ident,
        facts.optional_text("soname"),
        facts.strings("needed", ()),
        facts.optional_text("rpath"),
        facts.optional_text("runpath"),
        facts.optional_text("interpreter"),
        tuple(VersionNeed(library, needs.strings(library)) for library in needs.value),
        facts.strings("version_definitions", ()),
        _parse_cuda_note(facts),
        bool(facts.value.get("executable_stack")),
        bool(facts.value.get("no_default_directories")),
    )


def _parse_cuda_note(facts: _Object) -> Optional[CudaNote]:
    if facts.value.get("cuda_note") is None:
        return None
    note = facts.object("cuda_note")
    return CudaNote(note.text("cuda"), note.numbers("drivers"))


class _Object:
    """A JSON object whose members are read with their types checked; errors name the key."""

    def __init__(self, value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise _malformed(place or "byte 0", "an object is wanted")
        self.value: dict[str, Any] = value
        self.place = place

    def _member(self, key: str, kind: type, default: Any) -> Any:
        value = self.value.get(key, default)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _malformed(
                self._at(key), f"a {kind.__name__} is wanted" + ("" if key in self.value else ", none is there")
            )
        return value

    def _at(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key

    def text(self, key: str, default: Optional[str] = None) -> str:
        return str(self._member(key, str, default))

    def encodable(self, key: str) -> str:
        text = self.text(key)
        try:
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise _malformed(self._at(key), f"character {error.start} stands for no byte") from error
        return text

    def optional_text(self, key: str) -> Optional[str]:
        return None if self.value.get(key) is None else self.text(key)

    def number(self, key: str, default: Optional[int] = None) -> int:
        number = int(self._member(key, int, default))
        if not -1 <= number < 1 << 64:
            raise _malformed(self._at(key), f"{number} is out of range")
        return number

    def numbers(self, key: str, default: Optional[tuple[int, ...]] = None) -> tuple[int, ...]:
        if key not in self.value and default is not None:
            return default
        items = self._member(key, list, None)
        if not all(isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 32 for item in items):
            raise _malformed(self._at(key), "an array of numbers is wanted")
        return tuple(items)

    def strings(
        self, key: str, default: Optional[tuple[str, ...]] = None, length: Optional[int] = None
    ) -> tuple[str, ...]:
        if key not in self.value and default is not None:
            return default
        items = self._member(key, list, None)
        if not all(isinstance(item, str) for item in items) or length not in (None, len(items)):
            raise _malformed(self._at(key), "an array of strings is wanted")
        return tuple(items)

    def missing(self, key: str) -> Missing:
        why, detail = self.strings(key, length=2)
        if why not in ("absent", "forbidden", "loop", "unreadable"):
            raise _malformed(self._at(key), f"unknown reason `{why[:40]}`")
        return Missing(why, detail)  # type: ignore[arg-type]  # checked above

    def object(self, key: str, default: Optional[dict[str, Any]] = None) -> _Object:
        return _Object(self.value.get(key, default), self._at(key))

    def objects(self, key: str) -> list[_Object]:
        return [_Object(item, f"{self._at(key)}[{i}]") for i, item in enumerate(self._member(key, list, []))]

    def items(self) -> list[tuple[str, _Object]]:
        return [(key, _Object(value, self._at(key))) for key, value in self.value.items()]

    def texts(self) -> dict[str, str]:
        return {key: self.text(key) for key in self.value}


def _malformed(place: str, why: str, hint: str = "") -> FormatError:
    return FormatError("bad-record", "malformed record of a host", place=place, why=why, hint=hint)
