"""Replace the names of people, machines and GPUs in a record. Each name gets the same stand-in everywhere.

Stand-ins are numbered in the order of the record. Each is as long as its name, because an ld.so.cache contains offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gpubind.formats.elf.elf import ElfIdent, NotElf
from gpubind.host.record import Record, RecordedRoot
from gpubind.model import Missing, Stat
from gpubind.model.layouts import GKE_HOME_NAME

_AS_IT_IS = (Stat, ElfIdent, NotElf, Missing)
"""Types of values that are never redacted: gpubind wrote their strings itself."""
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_IN_A_HOME = rf"(?:(?<=/home/)|(?<=/users/))(?!{GKE_HOME_NAME}(?![\w.-]))[^/\s:;,\"'\\\0*?$\[{{]+"
_SERIAL = re.compile(r"serial(?:[ _-]?(?:number|no))?[\"']?\s*[:=]\s*[\"']?([0-9a-z][0-9a-z-]{4,})", re.IGNORECASE)
_OWN_GROUP = re.compile(r"(?m)^([^:\n]+):[^:\n]*:[1-9][0-9]{3,}:")
"""A line of /etc/group for a group of users. Such a group often has only one user."""
_EDGES = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])"


class Redaction:
    """The stand-ins for the names in *record*, for the machines *hosts*, and for the *users*.

    *common* is a text with the words of gpubind and of drivers. A name in it is replaced only where it is certainly a
    name: below a directory of homes.
    """

    def __init__(self, record: Record, hosts: Iterable[str], users: Iterable[str], common: str) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        texts = [*_strings((record.driver, record.dev)), *_strings(record._replace(driver=_EMPTY, dev=None))]
        self._uuids = dict.fromkeys(match.lower() for text in texts for match in re.findall(_UUID, text, re.IGNORECASE))
        homes = {name for text in texts for name in re.findall(_IN_A_HOME, text, re.IGNORECASE)}
        kinds = {
            "h": {name for host in hosts for name in (host, host.partition(".")[0])},
            "u": {*users, *homes, *_own_groups(record)},
            "": {name for text in texts for name in _SERIAL.findall(text) if re.search("[0-9]", name)},
        }
        self._kinds = {name.lower(): kind for kind, names in kinds.items() for name in sorted(names)}
        regexes = {name: _EDGES.format(re.escape(name)) for name in self._kinds if len(name) > 1}
        safe = [name for name, regex in regexes.items() if not re.search(regex, common, re.IGNORECASE)]
        safe.sort(key=lambda name: (-len(name), name))
        alternatives = {
            "uuid": rf"\b{_UUID}\b",
            "gpu": rf"\bGPU-(?!{_UUID}\b)[0-9a-f][0-9a-f-]*\b",
            "unique": r"(?<=unique_id )[0-9]+",
            "name": "|".join((_IN_A_HOME, *(regexes[name] for name in safe))),
        }
        pattern = "|".join(f"(?P<{kind}>{alternative})" for kind, alternative in alternatives.items())
        self._pattern = re.compile(pattern, re.IGNORECASE)
        for text in texts:
            self.text(text)  # numbers the names in the order of the record

    def text(self, text: str) -> str:
        """Return *text* with stand-ins."""
        return self._pattern.sub(self._stand_in, text)

    def record(self, record: Record) -> Record:
        """Return *record* with stand-ins, also for the name of its machine."""
        redacted: Record = self.of(record)
        name = record.hostname
        return redacted if name is None else redacted._replace(hostname=self._numbered("h", name))

    def of(self, value: Any) -> Any:
        """Return *value*, of NamedTuples and others, with stand-ins in all of its strings and bytes."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            text = self.text(value.decode("utf-8", "surrogateescape"))
            return text.encode("utf-8", "surrogateescape")
        if isinstance(value, dict):
            return {self.of(key): self.of(member) for key, member in value.items()}
        if isinstance(value, _AS_IT_IS) or not isinstance(value, tuple):
            return value
        members = [self.of(member) for member in value]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)

    def _stand_in(self, match: re.Match[str]) -> str:
        kind, name = str(match.lastgroup), match.group()
        if kind == "uuid":
            return f"{self._number('uuid', name.lower()):08x}-0000-0000-0000-000000000000"
        if kind == "unique":
            return f"{self._number('unique', str(int(name))):0{len(name)}d}"
        if kind == "gpu":
            return self._of_gpu(name)
        return self._numbered(self._kinds.get(name.lower(), "u"), name)

    def _numbered(self, letter: str, name: str) -> str:
        length = len(name.encode("utf-8", "surrogateescape")) - len(letter)
        return f"{letter}{self._number(letter, name.lower()):0{max(0, length)}d}"

    def _of_gpu(self, name: str) -> str:
        """Return the stand-in for AMD's UUID *name*, or for the beginning of one of NVIDIA's UUIDs."""
        digits = name[4:].lower()
        if len(digits) == 16 and "-" not in digits:
            return f"{name[:4]}{self._number('unique', str(int(digits, 16))):016x}"
        uuids = [uuid for uuid in self._uuids if uuid.startswith(digits)]
        if not uuids:
            return name
        return f"{name[:4]}{self._number('uuid', uuids[0]):08x}" if len(uuids) == 1 else f"{name[:4]}0000000"

    def _number(self, kind: str, name: str) -> int:
        return self._numbers.setdefault((kind, name), 1 + sum(1 for of, _ in self._numbers if of == kind))


_EMPTY = RecordedRoot("/", {})  # type: ignore[arg-type]  # a NewType


def _own_groups(record: Record) -> Iterator[str]:
    for tree in filter(None, (record.driver, record.dev)):
        entry = tree.directories["/etc"].entries.get("group") if "/etc" in tree.directories else None
        if entry is not None and isinstance(entry.body, bytes):
            yield from _OWN_GROUP.findall(entry.body.decode("utf-8", "surrogateescape"))


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings and texts in *value*; a dictionary is read by its sorted keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "surrogateescape")
    elif isinstance(value, dict):
        for key in sorted(value):
            yield key
            yield from _strings(value[key])
    elif isinstance(value, tuple) and not isinstance(value, _AS_IT_IS):
        for member in value:
            yield from _strings(member)
