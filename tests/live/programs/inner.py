"""Print what a program in a container sees of the driver, and how it was started; end with 7.

The first line may differ with and without gpubind, the second may not.
"""

import ctypes
import os
import sys


def driver() -> str:
    """What cuInit says: 100 where the driver was loaded, as there is no GPU; `none` without a driver."""
    try:
        return str(ctypes.CDLL("libcuda.so.1").cuInit(0))
    except OSError:
        return "none"


def count(directory: str) -> int:
    return len(os.listdir(directory)) if os.path.isdir(directory) else 0


libraries = count("/.singularity.d/libs") or count("/.gpubind/libs")
nodes = ",".join(sorted(name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()))
sys.stdout.write(f"driver: cuInit={driver()} libraries={libraries} nodes={nodes};\n")
sys.stdout.write(f"started: uid={os.getuid()} arguments={'|'.join(sys.argv[1:])};\n")
sys.exit(7)
