"""pyz.py OUT [PYTHON...]   write gpubind.pyz: gpubind and what it needs, as one file that any Python >= 3.9 runs.

The file holds Python alone, so it runs on every architecture. Without the compiled packages zstandard and lz4 it cannot
unpack images that are packed so; gpubind names the missing package then.

Besides the sources it has the byte code of each PYTHON; of none for `none`, and of PYTHONS unless some are named.
Any other Python compiles the sources at each start. Same sources and same PYTHONs in, same bytes out, whichever Python
runs this.
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor

from stamp import MODULE, stamped  # packaging is no package

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKOUT = os.path.dirname(HERE)
PYTHONS = tuple(f"python3.{minor}" for minor in range(9, 16))
INSTALLED = ("~/.pyenv/versions/*/bin", "~/.local/share/uv/python/*/bin")
"""Where they are looked for after PATH."""
WHEELS = ("--python-version", "3.9", "--platform", "manylinux2014_x86_64", "--only-binary", ":all:")
"""Of one platform on each, so that their names and digests are the same everywhere; what is compiled stays out."""
NOT_USED = ("_yaml/", "ClusterShell/CLI/", "pyelftools-")
TIME = (1980, 1, 1, 0, 0, 0)
"""Of every member: the oldest that a zip file can say."""

Members = dict[str, bytes]


def main(out: str, *pythons: str) -> None:
    """Write *out* from this checkout and the packages of pyz.txt."""
    members = {**own_members(), **package_members()}
    with tempfile.TemporaryDirectory() as directory:
        sources = os.path.join(directory, "sources.zip")
        _write(sources, members)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = pool.map(lambda python: _byte_code(python, sources, directory), pythons or PYTHONS)
            versions = [version for version in made if version]
        for name in os.listdir(directory):
            if name != "sources.zip":
                members[f"bytecode/{name}"] = _read(os.path.join(directory, name))
    _write(out, members)
    os.chmod(out, 0o755)
    sys.stdout.write(f"{out}: with byte code of Python {', '.join(versions) or 'none'}\n")


def own_members() -> Members:
    """Return the files of gpubind as they are in its wheel, and the program."""
    members = {
        "__main__.py": _read(f"{HERE}/guard.py"),
        "one_file.py": _read(f"{HERE}/one_file.py"),
        "LICENSE": _read(f"{CHECKOUT}/LICENSE"),
    }
    for place, directories, names in os.walk(f"{CHECKOUT}/gpubind"):
        directories[:] = [name for name in directories if name != "__pycache__"]
        for name in names:
            path = os.path.join(place, name)
            members[os.path.relpath(path, CHECKOUT)] = _read(path)
    members[MODULE] = stamped(CHECKOUT)
    for path in glob.glob(f"{CHECKOUT}/etc/*.conf"):
        members[f"gpubind/etc/{os.path.basename(path)}"] = _read(path)
    return members


def package_members() -> Members:
    """Return the modules and the licenses of the wheels of pyz.txt."""
    members = {}
    with tempfile.TemporaryDirectory() as directory:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", directory]
        subprocess.run([*pip, "--no-deps", "--require-hashes", *WHEELS, "-r", f"{HERE}/pyz.txt"], check=True)
        for wheel in sorted(os.listdir(directory)):
            with zipfile.ZipFile(os.path.join(directory, wheel)) as archive:
                for name in archive.namelist():
                    if name.endswith(".py") and not name.startswith(NOT_USED):
                        members[name] = archive.read(name)
                    elif re.search(r"\.dist-info/.*(LICEN|COPYING)", name):
                        members[f"licenses/{wheel.split('-')[0]}/{os.path.basename(name)}"] = archive.read(name)
    return members


def _byte_code(python: str, sources: str, directory: str) -> str:
    """Have *python* write its byte code; return its version, or nothing if there is no such Python.

    Which order a set has, and with it the bytes of a constant, depends on the seed of hashes.
    """
    installed = [place for pattern in INSTALLED for place in sorted(glob.glob(os.path.expanduser(pattern)))]
    places = [*os.get_exec_path(), *installed]
    for program in [python] if "/" in python else [os.path.join(place, python) for place in places]:
        if os.access(program, os.X_OK):
            command = [program, "-s", "-S", "-B", f"{HERE}/byte_code.py", sources, directory]
            environ = {**os.environ, "PYTHONHASHSEED": "0"}
            done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True)
            if done.returncode == 0:
                return done.stdout
    return ""


def _write(out: str, members: Members) -> None:
    with open(out, "wb") as pyz:
        pyz.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(pyz, "w") as archive:
            for name in sorted(members):
                archive.writestr(_described(name), members[name])


def _described(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, TIME)
    info.create_system = 3
    info.external_attr = 0o644 << 16
    # Byte code is compressed by the module, so that a start unpacks only what it imports.
    info.compress_type = zipfile.ZIP_STORED if name.startswith("bytecode/") else zipfile.ZIP_DEFLATED
    return info


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
