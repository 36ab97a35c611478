"""Images with compilers, and programs that were made in them, for tests of whose C library these run on."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tests.live.machine import CHECKOUT, RIG, Bind, Machine

PLACE = "/srv/with-programs"
"""Where a machine sees the images."""
INSIDE = "/opt/c_library"
"""Where an image has the programs."""
SUITES = ("bullseye", "bookworm")
MAKE = f"""
cd {INSIDE}
gcc -g -shared -fPIC -o library.so library.c
gcc -g -o program program.c -ldl -lm -lrt -lpthread
g++ -std=c++17 -shared -fPIC -o library-cxx.so library.cpp
g++ -std=c++17 -o program-cxx program.cpp -lpthread -ldl
gcc -static -o static static.c -lm -Wl,--whole-archive -lpthread -Wl,--no-whole-archive
gcc -shared -fPIC -o /usr/lib/x86_64-linux-gnu/libnss_own.so.2 name_service.c
gcc -fsanitize=address -o sanitized static.c -lm -lpthread
gcc -o set-user-id set_user_id.c -ldl
chmod 4755 set-user-id
set -- /usr/lib/gcc/i686-linux-gnu/*
gcc -m32 -B$1/ -L$1 -o small small.c -ldl -lpthread
printf 'passwd: files own\\ngroup: files\\nhosts: files dns\\nservices: files\\n' > nsswitch
mv nsswitch /etc/nsswitch.conf
"""

FLAT = """
mv usr/lib/x86_64-linux-gnu/* usr/lib64/
rm -r usr/lib/x86_64-linux-gnu etc/ld.so.conf etc/ld.so.conf.d
echo /usr/lib64 > etc/ld.so.conf
/sbin/ldconfig -r .
"""
"""Makes of a root file system one with its libraries where Red Hat has them."""


@contextmanager
def made_images() -> Iterator[Bind]:
    """Copies of the rig's images with compilers, with the programs in them, for as long as they are needed."""
    base = tempfile.mkdtemp(prefix="c-library-", dir=RIG)
    os.chmod(base, 0o755)
    try:
        for suite in SUITES:
            copy = f"{base}/{suite}"
            subprocess.run(["cp", "-al", f"{RIG}/ct/{suite}-cc", copy], check=True)
            shutil.copytree(f"{CHECKOUT}/tests/live/rig/c_library", f"{copy}{INSIDE}")
            Machine(copy, "").run(["sh", "-ec", MAKE])
        subprocess.run(["cp", "-al", f"{base}/bullseye", f"{base}/flat"], check=True)
        subprocess.run(["sh", "-ec", FLAT], cwd=f"{base}/flat", check=True)
        yield Bind(base, PLACE)
    finally:
        shutil.rmtree(base)
