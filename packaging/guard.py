"""gpubind.pyz starts here, in any Python: older ones parse this file, and none other."""

import sys

if sys.version_info < (3, 9):  # noqa: UP036
    where = (sys.executable, sys.version.split()[0])
    sys.stderr.write("error: gpubind needs Python 3.9 or later\n  where: %s, %s\n" % where)  # noqa: UP031 - 2.7 reads it
    raise SystemExit(6)

import one_file

raise SystemExit(one_file.main(globals()["__loader__"]))
