"""pyz.py OUT   write gpubind.pyz: gpubind and what it needs, as one file that any Python >= 3.9 runs.

The file holds Python alone, so it runs on every architecture. Without the compiled packages zstandard and lz4 it cannot
unpack images that are packed so; gpubind names the missing package then. Same sources in, same bytes out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST = ("3.9", "tomli>=2", "typing-extensions")
"""The oldest Python that the file serves, and what markers ask for there: pip reads them for the Python it runs on."""
COMPILED = ("zstandard", "lz4", "_yaml")
"""What is nothing without its compiled part."""
TIME = (1980, 1, 1, 0, 0, 0)
"""Of every member: the oldest that a zip file can say."""


def main(out: str) -> None:
    """Write *out* from this checkout and the newest packages that pip finds."""
    with tempfile.TemporaryDirectory() as directory:
        _install(directory)
        with open(f"{directory}/__main__.py", "w") as file:
            file.write("from gpubind.__main__ import main\n\nraise SystemExit(main())\n")
        members = sorted(_members(directory))
        with open(out, "wb") as pyz:
            pyz.write(b"#!/usr/bin/env python3\n")
            with zipfile.ZipFile(pyz, "w", zipfile.ZIP_DEFLATED) as archive:
                for member in members:
                    with open(os.path.join(directory, member), "rb") as source:
                        archive.writestr(_described(member), source.read())
    os.chmod(out, 0o755)


def _install(directory: str) -> None:
    """gpubind and what it needs into *directory*, in versions that the oldest Python can import."""
    python, *besides = OLDEST
    with tempfile.TemporaryDirectory() as wheels:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, CHECKOUT], check=True)
        own = [os.path.join(wheels, name) for name in os.listdir(wheels)]
        only = ["--only-binary", ":all:", "--python-version", python, "--no-compile", "--target", directory]
        subprocess.run([*pip, "install", *only, *own, *besides], check=True)


def _members(directory: str) -> list[str]:
    """The files below *directory* that go in."""
    found = []
    for place, directories, names in os.walk(directory):
        if place == directory:
            directories[:] = [name for name in directories if name != "bin" and not name.startswith(COMPILED)]
        # RECORD names what is left out here; direct_url.json and the caches name this machine.
        directories[:] = [name for name in directories if name != "__pycache__"]
        left_out = ("RECORD", "direct_url.json", "INSTALLER", "REQUESTED", "uv_cache.json")
        found += [
            os.path.relpath(os.path.join(place, name), directory)
            for name in names
            if not name.endswith(".so") and name not in left_out
        ]
    return found


def _described(member: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(member, TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


if __name__ == "__main__":
    main(*sys.argv[1:])
