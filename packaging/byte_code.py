"""byte_code.py ARCHIVE DIRECTORY   write the byte code of this Python for the modules of ARCHIVE, for one_file.py."""

from __future__ import annotations

import marshal
import os
import sys
import zipfile
import zlib
from collections.abc import Iterator
from importlib.util import MAGIC_NUMBER
from itertools import accumulate
from types import CodeType


def main(archive: str, directory: str) -> None:
    """Write the file, which is named after what reads it, and say which Python this is."""
    with zipfile.ZipFile(archive) as sources:
        members = [name for name in sources.namelist() if name.endswith(".py") and name != "__main__.py"]
        codes = [_compiled(sources.read(name), name) for name in members]
    ends = list(accumulate(map(len, codes)))
    places = {
        _module(name): (name, end - ends[-1] - len(code), len(code)) for name, end, code in zip(members, ends, codes)
    }
    with open(os.path.join(directory, f"{sys.implementation.cache_tag}-{MAGIC_NUMBER[:2].hex()}"), "wb") as file:
        file.write(marshal.dumps(places, 2) + b"".join(codes))
    sys.stdout.write(sys.version.split()[0])


def _module(member: str) -> str:
    name = member[: -len(".py")].replace("/", ".")
    return name[: -len(".__init__")] if name.endswith(".__init__") else name


def _compiled(source: bytes, member: str) -> bytes:
    """Return the code, marshalled and compressed.

    `marshal` writes an object that only the code refers to in another way, and of a name Python's own caches know now
    and then, too. So here each is also held by a list.
    """
    code = compile(source, member, "exec", dont_inherit=True, optimize=0)
    held = list(_texts(code))
    marshalled = marshal.dumps(code)
    del held
    return zlib.compress(marshalled, 9)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, CodeType):
        yield from (value.co_name, getattr(value, "co_qualname", ""))
        for part in (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars, value.co_consts):
            yield from _texts(part)
    elif isinstance(value, (tuple, frozenset)):
        for part in value:
            yield from _texts(part)


if __name__ == "__main__":
    main(*sys.argv[1:])
