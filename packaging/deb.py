"""deb.py DIRECTORY   write gpubind_VERSION_all.deb, for Debian 12 and 13 and what is made from them, by dpkg-deb.

debhelper needs root or fakeroot, a Debian and every build dependency. dpkg-deb is in every distribution; the scripts
of packaging/debian are those that dh_python3 writes for a directory of a program's own.
Same sources and same SOURCE_DATE_EPOCH in, same bytes out.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from email.utils import formatdate

import tree  # packaging is no package
from pyz import CHECKOUT, HERE
from stamp import built_at, built_version

DEBIAN = f"{HERE}/debian"
RELEASE = "1"


def main(directory: str) -> None:
    """Write the package, and say where it is."""
    version = f"{built_version(CHECKOUT).partition('+')[0]}-{RELEASE}"
    out = os.path.join(directory, f"gpubind_{version}_all.deb")
    with tempfile.TemporaryDirectory() as made:
        root = f"{made}/root"
        tree.main(root, "debian")
        changelog = f"gpubind ({version}) stable; urgency=medium\n\n  * See changelog.gz.\n\n"
        changelog += f" -- The gpubind maintainers <gpubind@localhost>  {formatdate(built_at(CHECKOUT))}\n"
        tree.write(
            root,
            {
                f"{tree.DOC}/changelog.Debian.gz": tree.gzipped(changelog.encode()),
                "usr/share/python3/runtime.d/gpubind.rtupdate": tree.read(f"{DEBIAN}/rtupdate"),
                "usr/share/lintian/overrides/gpubind": tree.read(f"{DEBIAN}/lintian-overrides"),
            },
        )
        size, sums = _installed(root)
        control = tree.read(f"{DEBIAN}/control").replace(b"VERSION", version.encode()).replace(b"SIZE", b"%d" % size)
        scripts = {f"DEBIAN/{name}": tree.read(f"{DEBIAN}/{name}") for name in ("postinst", "postrm", "prerm")}
        tree.write(root, {"DEBIAN/control": control, "DEBIAN/md5sums": sums, **scripts})
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(built_at(CHECKOUT))}
        command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", root, out]
        subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL)
    sys.stdout.write(f"{out}\n")


def _installed(root: str) -> tuple[int, bytes]:
    """Return how many KiB the files take, and their digests as dpkg keeps them."""
    paths = sorted(os.path.join(place, name) for place, _, names in os.walk(root) for name in names)
    sums = (f"{hashlib.md5(tree.read(path)).hexdigest()}  {os.path.relpath(path, root)}\n" for path in paths)
    return sum(os.path.getsize(path) // 1024 + 1 for path in paths), "".join(sums).encode()


if __name__ == "__main__":
    main(*sys.argv[1:])
