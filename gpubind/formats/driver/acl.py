"""Access control lists of files, in the kernel's extended attribute.

Source: Linux `include/uapi/linux/posix_acl_xattr.h`, `posix_acl.h`.
"""

from __future__ import annotations

import struct

ATTRIBUTE = "system.posix_acl_access"
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_VERSION = 2
_TAGS = {0x01: "user", 0x02: "user", 0x04: "group", 0x08: "group", 0x10: "mask", 0x20: "other"}
_NAMED = (0x02, 0x08)
"""The tags of entries that have the number of one user or group."""


def parse_acl(data: bytes) -> str:
    """Return the list in *data* as `Stat.acl`: `user::rw-,user:1000:rw-,group::---,mask::rw-,other::---`.

    Empty for data of another version, which no current kernel writes.
    """
    if len(data) < _HEAD.size or _HEAD.unpack_from(data) != (_VERSION,) or (len(data) - _HEAD.size) % _ENTRY.size:
        return ""
    entries = []
    for tag, bits, number in _ENTRY.iter_unpack(data[_HEAD.size :]):
        rights = "".join(letter if bits & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
        entries.append(f"{_TAGS.get(tag, '')}:{number if tag in _NAMED else ''}:{rights}")
    return ",".join(entries)
