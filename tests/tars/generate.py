"""Valid tar archives at random: each format, each way to write a name, a number or a sparse file, byte by byte.

A library's writer would only write what the same library's reader expects.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import NamedTuple, Optional

BLOCK = 512
SYSTEMS = ("v7", "ustar", "gnu", "pax")
_MAGIC = {"v7": bytes(8), "ustar": b"ustar\x0000", "gnu": b"ustar  \0", "pax": b"ustar\x0000"}
_WORDS = ["nvidia", "cublas", "include", "site-packages", "dist-info", "licenses", "libcudnn.so.9", "a", "é"]


class Extents(NamedTuple):
    """A sparse file: its size, and where its data is."""

    size: int
    extents: tuple[tuple[int, int], ...]

    @property
    def stored(self) -> int:
        return sum(length for _, length in self.extents)


def archive(rng: random.Random) -> bytes:
    """Return one archive; one in ten is followed by another, which no reader looks at."""
    made = _members(rng) + bytes(2 * BLOCK)
    if rng.random() < 0.1:
        made += _members(rng) + bytes(2 * BLOCK)
    elif rng.random() < 0.5:
        made += bytes(-len(made) % 10240)
    return made


def _members(rng: random.Random) -> bytes:
    system = rng.choice(SYSTEMS)
    made = b""
    if system == "pax" and rng.random() < 0.3:
        made += _record(system, b"g", _pax([("comment", "of all members"), ("mtime", "1")]))
    names: list[str] = []
    for number in range(rng.randint(1, 5)):
        made += _member(rng, system, _name(rng, system, number), names)
    return made


def _name(rng: random.Random, system: str, number: int) -> str:
    """Return a name that no other member has: short, or of 95 to 260 bytes, often with a slash as byte 100."""
    longest = {"v7": 100, "ustar": 250}.get(system, 260)
    wanted = rng.randint(4, 60) if rng.random() < 0.3 else min(rng.randint(95, 260), longest)
    name = str(number)
    while len(name.encode()) < wanted:
        room = wanted - len(name.encode())
        part = "/" + (rng.choice(_WORDS) if rng.random() < 0.7 else "x" * rng.randint(1, 60))
        name += part if len(part.encode()) <= room and room - len(part.encode()) != 1 else "y" * room
    if wanted > 101 and rng.random() < 0.5:
        data = name.encode()
        at = rng.choice((98, 99, 100))
        if at < len(data) - 1 and data.isascii() and b"/" not in data[at - 1 : at + 2]:
            name = (data[:at] + b"/" + data[at + 1 :]).decode()
    return name


def _member(rng: random.Random, system: str, name: str, names: list[str]) -> bytes:
    kinds: list[Callable[[random.Random, str, str, list[str]], bytes]] = [_file, _file, _file, _link, _directory, _node]
    if names:
        kinds.append(_hard_link)
    if system in ("gnu", "pax"):
        kinds.append(_sparse)
    if system == "v7":
        kinds.remove(_node)
    return rng.choice(kinds)(rng, system, name, names)


def _file(rng: random.Random, system: str, name: str, names: list[str]) -> bytes:
    body = rng.choice((b"", bytes(BLOCK), bytes(1500), b"2008 - 2" * rng.randint(1, 200), _noise(rng, 700)))
    names.append(name)
    # tarfile takes the oldest type's name for a directory's before it knows the longer one.
    kinds = (b"0", b"\0", b"7") if len(name.encode()) <= 99 else (b"0", b"7")
    kind = b"\0" if system == "v7" else rng.choice(kinds)
    return written(rng, system, kind, name, size=len(body)) + _padded(body)


def _noise(rng: random.Random, length: int) -> bytes:
    """Return bytes that are one choice of the case, not *length*."""
    return random.Random(rng.getrandbits(32)).randbytes(length)


def _link(rng: random.Random, system: str, name: str, names: list[str]) -> bytes:
    longest = 260 if system in ("gnu", "pax") else 100
    target = rng.choice(("../lib/libx.so", "/" + "t" * (longest - 1), "t" * (longest // 2) + "/"))
    return written(rng, system, b"2", name, link=target)


def _hard_link(rng: random.Random, system: str, name: str, names: list[str]) -> bytes:
    short = [known for known in names if len(known.encode()) <= 100 or system in ("gnu", "pax")]
    return written(rng, system, b"1", name, link=rng.choice(short)) if short else b""


def _directory(rng: random.Random, system: str, name: str, names: list[str]) -> bytes:
    if system == "v7":
        return written(rng, system, b"\0", name[:99].rstrip("/é") + "/")
    return written(rng, system, b"5", name + rng.choice(("/", "")))


def _node(rng: random.Random, system: str, name: str, names: list[str]) -> bytes:
    return written(rng, system, rng.choice((b"3", b"4", b"6")), name, device=(195, rng.randint(0, 255)))


def _sparse(rng: random.Random, system: str, name: str, names: list[str]) -> bytes:
    names.append(name)
    at, extents = 0, []
    for _ in range(rng.choice((0, 1, 3, 5, 30))):
        at += BLOCK * rng.randint(1, 20)
        length = BLOCK * rng.randint(1, 3)
        extents.append((at, length))
        at += length
    if not extents or rng.random() < 0.5:
        at += 4096
        extents.append((at, 0))  # so GNU tar writes the hole that a file ends in
    sparse = Extents(at, tuple(extents))
    body = b"".join(_noise(rng, length) for _, length in extents)
    if system == "gnu":
        return written(rng, system, b"S", name, size=sparse.stored, sparse=sparse) + body
    pairs, head = _pax_map(rng, name, sparse)
    return written(rng, system, b"0", f"{name[:40]}/GNUSparseFile.0/x", len(head + body), pairs=pairs) + head + body


def _pax_map(rng: random.Random, name: str, sparse: Extents) -> tuple[list[tuple[str, str]], bytes]:
    """Return the attributes of a sparse file in format 0.0, 0.1 or 1.0, and what is stored before its data."""
    version = rng.choice(("0.0", "0.1", "1.0"))
    pieces = sparse.extents
    if version == "0.0":
        pairs = [("GNU.sparse.size", str(sparse.size)), ("GNU.sparse.numblocks", str(len(pieces)))]
        for offset, length in pieces:
            pairs += [("GNU.sparse.offset", str(offset)), ("GNU.sparse.numbytes", str(length))]
        return [*pairs, ("path", name)], b""
    if version == "0.1":
        pairs = [("GNU.sparse.size", str(sparse.size)), ("GNU.sparse.numblocks", str(len(pieces)))]
        pairs += [("GNU.sparse.name", name), ("GNU.sparse.map", ",".join(f"{at},{length}" for at, length in pieces))]
        return pairs, b""
    lines = "".join(f"{at}\n{length}\n" for at, length in pieces)
    pairs = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.name", name)]
    return [*pairs, ("GNU.sparse.realsize", str(sparse.size))], _padded(f"{len(pieces)}\n{lines}".encode())


def written(
    rng: random.Random,
    system: str,
    kind: bytes,
    name: str,
    size: int = 0,
    *,
    link: str = "",
    device: tuple[int, int] = (0, 0),
    sparse: Optional[Extents] = None,
    pairs: Optional[list[tuple[str, str]]] = None,
) -> bytes:
    """Return the header of a member, behind the records that it needs."""
    said = name.encode()
    prefix, records = b"", b""
    uid = rng.choice((0, 1000, 0o7777777))
    if system == "ustar" and len(said) > 100:
        prefix, said = _split(said)
    if system == "gnu":
        uid = rng.choice((uid, 1 << 21, 0xFFFFFFFE))
        for letter, text in ((b"K", link.encode()), (b"L", said)):
            records += _record(system, letter, text + b"\0") if len(text) > 100 else b""
    if system == "pax":
        pairs = pairs or []
        known = [key for key, _ in pairs]
        if (len(said) > 100 or not said.isascii() or rng.random() < 0.2) and not pairs:
            pairs.append(("path", name))
        if len(link.encode()) > 100 or not link.isascii():
            pairs.append(("linkpath", link))
        if "path" not in known and rng.random() < 0.2:
            uid = 1 << 30
            pairs += [("uid", str(uid)), ("mtime", "1.5"), ("ctime", "2.25")]
        records += _record(system, b"x", _pax(pairs)) if pairs else b""
    mode = rng.choice((0o644, 0o755, 0o4755, 0o1777, 0))
    return records + _header(
        rng, system, kind, said[:100], mode, uid, size, link.encode()[:100], device, prefix, sparse
    )


def _split(name: bytes) -> tuple[bytes, bytes]:
    """Return the two fields of a long ustar name; a shorter name where no slash stands in the right place."""
    at = name.rfind(b"/", 0, 155)
    if at > 0 and 0 < len(name) - at - 1 <= 100:
        return name[:at], name[at + 1 :]
    return b"", name[:100].decode("utf-8", "ignore").rstrip("/").encode()


def _header(
    rng: random.Random,
    system: str,
    kind: bytes,
    name: bytes,
    mode: int,
    uid: int,
    size: int,
    link: bytes,
    device: tuple[int, int],
    prefix: bytes,
    sparse: Optional[Extents],
) -> bytes:
    node = kind in (b"3", b"4")
    head = struct.pack(
        "100s8s8s8s12s12s8s1s100s8s32s32s8s8s155s12x",
        *(name, _octal(mode, 8), _number(rng, system, min(uid, 0o7777777) if system == "pax" else uid, 8)),
        *(_octal(100, 8), _number(rng, system, size, 12), _octal(1_600_000_000, 12), b" " * 8, kind, link),
        *(_MAGIC[system], b"" if system == "v7" else b"root", b"" if system == "v7" else b"root"),
        *(_octal(device[0], 8) if node else b"", _octal(device[1], 8) if node else b"", prefix),
    )
    more = b""
    if sparse is not None:
        pieces = sparse.extents
        fields = [_octal(at, 12) + _octal(length, 12) for at, length in pieces]
        table = b"".join(fields[:4]).ljust(96, b"\0") + bytes([len(fields) > 4]) + _octal(sparse.size, 12)
        head = head[:386] + table + head[386 + len(table) :]
        for start in range(4, len(fields), 21):
            more += (
                b"".join(fields[start : start + 21]).ljust(504, b"\0") + bytes([len(fields) > start + 21]) + bytes(7)
            )
    return head[:148] + b"%06o\0 " % sum(head) + head[156:] + more


def _number(rng: random.Random, system: str, value: int, width: int) -> bytes:
    """Return *value* in octal, or in GNU's base-256 where it needs that, or at random."""
    if system == "gnu" and (value >= 8 ** (width - 1) or rng.random() < 0.2):
        return b"\x80" + value.to_bytes(width - 1, "big")
    return _octal(value, width)


def _octal(value: int, width: int) -> bytes:
    return b"%0*o\0" % (width - 1, value)


def _record(system: str, letter: bytes, body: bytes) -> bytes:
    name = b"././@LongLink" if system == "gnu" else b"./PaxHeaders/x"
    rng = random.Random(0)
    return _header(
        rng, "ustar" if system == "pax" else system, letter, name, 0o644, 0, len(body), b"", (0, 0), b"", None
    ) + _padded(body)


def pax_record(pairs: list[tuple[str, str]]) -> bytes:
    """Return the record that says *pairs* of the next member."""
    return _record("pax", b"x", _pax(pairs))


def _pax(pairs: list[tuple[str, str]]) -> bytes:
    made = b""
    for name, value in pairs:
        text = f" {name}={value}\n".encode()
        length = len(text) + len(str(len(text)))
        made += str(len(text) + len(str(length))).encode() + text
    return made


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)
