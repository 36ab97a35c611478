"""rpm.py DIRECTORY   write gpubind-VERSION-1.noarch.rpm, for EL 8 and 9, by rpmbuild.

Same sources and same SOURCE_DATE_EPOCH in, same bytes out of the same rpmbuild.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time

import tree  # packaging is no package
from pyz import CHECKOUT, HERE
from stamp import built_at, built_version


def main(directory: str) -> None:
    """Write the package, and say where it is."""
    with tempfile.TemporaryDirectory() as made:
        tree.main(f"{made}/tree", "rpm")
        macros = {
            "built": built_version(CHECKOUT).partition("+")[0],
            "day": time.strftime("%a %b %d %Y", time.gmtime(built_at(CHECKOUT))),
            "tree": f"{made}/tree",
            "_topdir": f"{made}/top",
            "_buildhost": "localhost",
            "use_source_date_epoch_as_buildtime": "1",
            "clamp_mtime_to_source_date_epoch": "1",
        }
        defined = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(built_at(CHECKOUT))}
        command = ["rpmbuild", "--quiet", "-bb", *defined, f"{HERE}/rpm/gpubind.spec"]
        subprocess.run(command, check=True, env=environ)
        (package,) = glob.glob(f"{made}/top/RPMS/noarch/*.rpm")
        sys.stdout.write(f"{shutil.copy(package, directory)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
