"""Where each rule about images fires, and where it is almost so."""

from __future__ import annotations

from build.driver import kernel, rhel
from build.elf import elf
from build.images import glibc, image
from rules.situations import Case, Situation

LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"

CASES: dict[str, Case] = {
    "driver-in-image": Case(
        Situation((rhel(), kernel()), image(glibc(), {LIBCUDA: elf("libcuda.so.1")})),
        Situation((rhel(), kernel()), image(glibc(), {LIBCUDA: b""})),
    ),
}
