"""ld.so.conf: directories and includes, as ldconfig takes them."""

from __future__ import annotations

import pytest

from gpubind.formats.elf.ldcache import parse_ldsoconf


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("/opt/lib\n/usr/local/lib", (("directory", "/opt/lib"), ("directory", "/usr/local/lib"))),
        ("  /opt/lib  # ours\n#/no\n\n", (("directory", "/opt/lib"),)),
        ("include\ta.conf\nincluded\tb.conf\n", (("include", "a.conf"),)),
        ("include a.conf b/*.conf\n", (("include", "a.conf"), ("include", "b/*.conf"))),
        ("/opt/lib=libc6\n", (("directory", "/opt/lib"),)),
        ("hwcap 1 nosegneg\nrelative/lib\nincluded\n", ()),
        ("/a\0b\n", ()),
        ("", ()),
    ],
)
def test_what_glibc_ignores_is_ignored(text: str, lines: tuple[tuple[str, str], ...]) -> None:
    assert parse_ldsoconf(text) == lines
