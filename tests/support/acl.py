"""Access control lists as the kernel has them."""

from __future__ import annotations

from struct import pack

_NOBODY = 0xFFFFFFFF


def acl_for(user: int, bits: int) -> bytes:
    """A list that gives *bits* to *user*, all to the owner, and nothing to all others."""
    entries = ((0x01, 7, _NOBODY), (0x02, bits, user), (0x04, 0, _NOBODY), (0x10, bits, _NOBODY), (0x20, 0, _NOBODY))
    return pack("<I", 2) + b"".join(pack("<HHI", *entry) for entry in entries)
