"""A recorded host: the listings, facts and small texts of a fixed survey, as JSON.

Entries are grouped by directory. An entry is null (known to be absent), a string (a link's target), or an object
without its default values (a root-owned regular file with mode 0644, a directory with 0755). Driver files are stored as
ELF facts, never as bodies. Unknown keys are ignored, so that newer additions do no harm; a newer schema is refused by
name.
"""

from __future__ import annotations

import json
import re
from itertools import starmap
from typing import Annotated, Any, Literal, Optional, Union

from gpubind.errors import Format, FormatError
from gpubind.formats.elf.elf import ElfFacts, ElfIdent, NotElf, VersionNeed
from gpubind.formats.text.json import NON_ESCAPE_SURROGATES, parse_json, replace_surrogates
from gpubind.frozen import NamedTuple
from gpubind.model import HostPath, Missing, Stat
from gpubind.model.plain import Decoder

SCHEMA = "gpubind.record/1"
SIZE_LIMIT = 64 << 20

_SCHEMA = re.compile(r"gpubind\.record/([0-9]{1,6})")
_DEFAULT_MODES = {"file": 0o644, "dir": 0o755}
_IDENT_KEYS: dict[type, str] = {ElfIdent: "ident", NotElf: "not_elf", Missing: "no_ident"}
_FORMAT = Format("bad-record", "malformed record of a host")
_Id = Annotated[int, range(-1, 1 << 64)]
_Number = Annotated[int, range(1 << 32)]
_OBJECT, _STRINGS, _VERSIONS = dict[str, Any], tuple[str, ...], dict[str, tuple[str, ...]]


class RecordedEntry(NamedTuple):
    """One name in a directory."""

    stat: Union[Stat, Missing]
    """Missing if the name is known to be absent or could not be inspected."""
    link: Optional[str] = None
    body: Union[bytes, Missing, None] = None
    """None: the survey did not read it."""
    ident: Union[ElfIdent, NotElf, Missing, None] = None
    elf: Union[ElfFacts, Missing, None] = None
    stub: bool = False
    """Whether its content shows that it is a stub of libcuda or NVML."""


class RecordedDirectory(NamedTuple):
    """The surveyed facts of one directory."""

    entries: dict[str, RecordedEntry]
    others: tuple[str, ...] = ()
    """Names that exist, without further facts."""
    listed: Union[bool, Missing] = False
    """True if the entries and others are complete; Missing if the directory could not be listed."""


class RecordedRun(NamedTuple):
    """The result of a program; `missing` if it could not be run, or failed to answer."""

    argv: tuple[str, ...]
    status: _Id = 0
    stdout: str = ""
    stderr: str = ""
    missing: Optional[Missing] = None


class RecordedRoot(NamedTuple):
    """A tree."""

    root: HostPath
    directories: dict[str, RecordedDirectory]


class RecordedList(NamedTuple):
    """A list file that the host's user or site had chosen."""

    name: str
    label: str
    text: str


class Record(NamedTuple):
    """A recorded host."""

    driver: RecordedRoot
    environ: dict[str, str]
    release: str
    machine: str
    euid: _Id
    groups: tuple[_Number, ...]
    dev: Optional[RecordedRoot] = None
    """The tree of devices; None if it is the same as `driver`."""
    description: str = ""
    hostname: Optional[str] = None
    lists: tuple[RecordedList, ...] = ()
    runs: tuple[RecordedRun, ...] = ()


class _Entry(NamedTuple):
    type: Literal["file", "dir", "char", "block", "socket", "fifo"] = "file"
    mode: Optional[Annotated[str, re.compile("[0-7]{1,5}")]] = None
    uid: _Id = 0
    gid: _Id = 0
    size: Annotated[int, range(1 << 64)] = 0
    rdev: tuple[_Number, _Number] = (0, 0)
    acl: Annotated[str, re.compile(r"((user|group|mask|other):[0-9]{0,10}:[r-][w-][x-](,(?!$)|$))*")] = ""
    text: Optional[str] = None
    base64: Optional[str] = None
    unread: Optional[Missing] = None
    ident: Optional[ElfIdent] = None
    not_elf: Optional[NotElf] = None
    no_ident: Optional[Missing] = None
    no_elf: Optional[Missing] = None
    missing: Optional[Missing] = None
    stub: bool = False


def dump_record(record: Record, version: str) -> str:
    """Return *record* as text: sorted, with one directory entry a line. Equal records have equal texts."""
    document = {
        "schema": SCHEMA,
        "gpubind": version,
        "description": record.description,
        "hostname": record.hostname,
        "uname": {"release": record.release, "machine": record.machine},
        "identity": {"euid": record.euid, "groups": record.groups},
        "environ": dict(sorted(record.environ.items())),
        "lists": [entry._asdict() for entry in record.lists],
        "runs": [run._asdict() for run in record.runs],
    }
    head = json.dumps(document, indent=1)[:-2]
    trees = {"driver": record.driver, **({"dev": record.dev} if record.dev else {})}
    body = ",\n".join(f" {json.dumps(name)}: {_dump_root(tree)}" for name, tree in trees.items())
    return f'{head},\n "trees": {{\n{body}\n }}\n}}\n'


def _dump_root(tree: RecordedRoot) -> str:
    directories = []
    for path, directory in sorted(tree.directories.items()):
        head = f'   {json.dumps(path)}: {{"listed": {json.dumps(directory.listed)}'
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
        return None if entry.stat.why == "absent" else {"missing": entry.stat}
    if entry.link is not None:
        return entry.link
    stat = entry.stat
    out: dict[str, Any] = {}
    if stat.kind != "file":
        out["type"] = stat.kind
    if stat.mode != _DEFAULT_MODES.get(stat.kind):
        out["mode"] = f"{stat.mode:04o}"
    out.update((key, value) for key in ("uid", "gid", "size") if (value := getattr(stat, key)))
    if stat.kind in ("char", "block"):
        out["rdev"] = [stat.major, stat.minor]
    if stat.acl:
        out["acl"] = stat.acl
    if isinstance(entry.body, Missing):
        out["unread"] = entry.body
    elif entry.body is not None:
        try:
            out["text"] = entry.body.decode("utf-8")
        except UnicodeDecodeError:
            import base64

            out["base64"] = base64.b64encode(entry.body).decode("ascii")
    if entry.ident is not None:
        out[_IDENT_KEYS[type(entry.ident)]] = entry.ident
    if isinstance(entry.elf, Missing):
        out["no_elf"] = entry.elf
    elif entry.elf is not None:
        facts = entry.elf._asdict()
        del facts["ident"]
        facts["version_needs"] = dict(entry.elf.version_needs)
        facts["cuda_note"] = entry.elf.cuda_note and entry.elf.cuda_note._asdict()
        out["elf"] = {key: value for key, value in facts.items() if value or value == ""}
    if entry.stub:
        out["stub"] = True
    return out


def parse_record(data: bytes) -> Record:
    """Return the record in *data*.

    Errors: `FormatError`: `newer-record` for a schema newer than this code, else `bad-record` with the key.
    """
    value = parse_json(data, SIZE_LIMIT, _FORMAT, allow_surrogates=True)
    schema = _DECODER.decode(str, _DECODER.decode(_OBJECT, value).get("schema"), "schema")
    match = _SCHEMA.fullmatch(schema)
    if match is None:
        why = f"`{schema[:60]}` is not a record of a host"
        raise _FORMAT.damaged(why, "schema", "make one with `gpubind record -o FILE`")
    if int(match.group(1)) > int(SCHEMA.rpartition("/")[2]):
        raise FormatError(
            "newer-record",
            f"the record has schema `{schema}`",
            place="schema",
            why=f"this gpubind reads schemas up to `{SCHEMA}`",
            hint="use the gpubind that made it, or a newer one",
        )
    record = _DECODER.decode(Record, value)
    for number, entry in enumerate(record.lists):
        try:
            entry.text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            why = f"character {error.start} stands for no byte"
            raise _FORMAT.damaged(why, f"lists[{number}].text") from error
    try:
        # Surrogate escapes are allowed.
        has_half = b"\\u" in data and replace_surrogates(value, NON_ESCAPE_SURROGATES) != value
    except RecursionError as error:
        raise _FORMAT.damaged("nested too deeply") from error
    if has_half:
        raise _FORMAT.damaged("half of a surrogate pair in a string")
    return record


def _parse_directory(value: Any, place: str) -> RecordedDirectory:
    directory = _DECODER.decode(_OBJECT, value, place)
    path = place.partition("directories.")[2]
    entries = {}
    for name, entry in _DECODER.decode(_OBJECT, directory.get("entries") or {}, f"{place}.entries").items():
        if not name or "/" in name:
            raise _FORMAT.damaged(f"`{name}` is not a file name", f"{place}.entries")
        entries[name] = _parse_entry(entry, f"{path}/{name}")
    others = _DECODER.decode(_STRINGS, directory.get("others") or (), f"{place}.others")
    listed = directory.get("listed", False)
    kind: Any = bool if isinstance(listed, bool) else Missing
    return RecordedDirectory(entries, others, _DECODER.decode(kind, listed, f"{place}.listed"))


def _parse_entry(value: Any, place: str) -> RecordedEntry:
    if value is None:
        return RecordedEntry(Missing("absent"))
    if isinstance(value, str):
        return RecordedEntry(Stat("link", 0o777, 0, 0, 0), link=value)
    entry = _DECODER.decode(_Entry, value, place)
    if entry.missing is not None:
        return RecordedEntry(entry.missing)
    facts: Union[ElfFacts, Missing, None] = entry.no_elf
    if facts is None and value.get("elf") is not None:
        if entry.ident is None:
            raise _FORMAT.damaged("`elf` without `ident`", place)
        elf = _DECODER.decode(_OBJECT, value["elf"], f"{place}.elf")
        facts = _DECODER.decode(ElfFacts, {**elf, "ident": value["ident"]}, f"{place}.elf")
    mode = _DEFAULT_MODES.get(entry.type, 0) if entry.mode is None else int(entry.mode, 8)
    rdev = entry.rdev if entry.type in ("char", "block") else (0, 0)  # records contain no other numbers
    return RecordedEntry(
        Stat(entry.type, mode, entry.uid, entry.gid, entry.size, *rdev, entry.acl),
        None,
        _body(entry, place),
        entry.ident or entry.not_elf or entry.no_ident,
        facts,
        entry.stub,
    )


def _body(entry: _Entry, place: str) -> Union[bytes, Missing, None]:
    if entry.text is not None:
        return entry.text.encode("utf-8", "surrogatepass")
    if entry.base64 is None:
        return entry.unread
    import base64

    try:
        return base64.b64decode(entry.base64, validate=True)
    except ValueError as error:
        raise _FORMAT.damaged(f"base64: {error}", place) from error


def _parse_version_needs(value: Any, place: str) -> tuple[VersionNeed, ...]:
    return tuple(starmap(VersionNeed, _DECODER.decode(_VERSIONS, value, place).items()))


_DECODER = Decoder(
    _FORMAT,
    keys={
        "release": "uname.release",
        "machine": "uname.machine",
        "euid": "identity.euid",
        "groups": "identity.groups",
        "driver": "trees.driver",
        "dev": "trees.dev",
    },
    list_types=(Missing, ElfIdent, NotElf),
    readers={RecordedDirectory: _parse_directory, tuple[VersionNeed, ...]: _parse_version_needs},
)
