"""What Apptainer's own --nv mounts."""

from __future__ import annotations

import re

LIBRARY = re.compile(r"addLibsMount\(\)\s+Add library (\S+) to mount list$", re.MULTILINE)


FILE = re.compile(r"addFilesMount\(\)\s+Adding file ([^\s:]+)(?::(\S+))? to mount list$", re.MULTILINE)


MOUNTED = re.compile(r"mountGeneric\(\)\s+Mounting (\S+) to ", re.MULTILINE)
