"""The names of the files of a glibc that only work with each other.

Source: glibc `Makeconfig`, `shlib-versions`; the file lists of Debian's libc6, libc-bin and libc6-i386, Fedora's glibc
and glibc-common.
"""

from __future__ import annotations

import re

LIBC = "libc.so.6"
CORE = (LIBC, "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libresolv.so.2")
"""What programs are linked with: an older copy of one fails with a newer C library."""
PROGRAMS = ("getconf", "getent", "iconv", "iconvconfig", "ldconfig", "ldd", "locale", "localedef", "pldd", "sprof")
CONVERTERS = "gconv"
"""The directory of the converters between encodings, which glibc loads by their paths."""
AUDIT = "audit/sotruss-lib.so"

_LOADER = r"ld(-linux(-[\w-]+)?|64)?\.so\.\d+"
_LIBRARY = (
    r"lib(c\.so\.6|nsl\.so\.1"  # later versions of libnsl are another project's
    r"|(m|mvec|dl|pthread|rt|util|resolv|anl|thread_db|BrokenLocale|c_malloc_debug)\.so\.\d+"
    r"|nss_(files|dns|compat|hesiod|db|nis|nisplus)\.so\.\d+"
    r"|(memusage|pcprofile|SegFault)\.so)"
)
_MEMBER = f"{_LOADER}|{_LIBRARY}"


def is_loader(name: str) -> bool:
    """Return whether *name* is a dynamic loader's."""
    return re.fullmatch(_LOADER, name) is not None


def is_member(name: str) -> bool:
    """Return whether the loader or library called *name* is exchanged with all others, or not at all."""
    return re.fullmatch(_MEMBER, name) is not None
