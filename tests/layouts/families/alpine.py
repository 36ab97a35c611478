"""Alpine: musl has no ld.so.cache, and the driver needs a glibc next to it."""

from __future__ import annotations

from tests.layouts.nvidia import Places, driver, whole_host
from tests.support.driver import kernel
from tests.support.elf import elf
from tests.support.trees import Link, Spec

COMPAT = "/usr/glibc-compat"
ALPINE: Spec = {
    "/etc/os-release": 'NAME="Alpine Linux"\nID=alpine\n',
    "/lib/ld-musl-x86_64.so.1": elf("libc.musl-x86_64.so.1"),
    "/lib/libc.musl-x86_64.so.1": Link("ld-musl-x86_64.so.1"),
}
GLIBC: Spec = {
    f"{COMPAT}/lib/ld-linux-x86-64.so.2": elf("ld-linux-x86-64.so.2"),
    f"{COMPAT}/lib/libc.so.6": elf("libc.so.6"),
    "/lib64/ld-linux-x86-64.so.2": Link(f"{COMPAT}/lib/ld-linux-x86-64.so.2"),
}


def whole(at: Places) -> Spec:
    """Return an Alpine with the driver's files at these places."""
    made = {path: item for path, item in driver(at).items() if path != "/etc/ld.so.cache"}
    return {**ALPINE, **made, **kernel()}


LAYOUTS = (
    whole_host(
        name="alpine",
        who="Alpine, the libraries in /usr/lib",
        source="https://wiki.musl-libc.org/faq",
        spec=whole(Places(lib="/usr/lib", xorg="/usr/lib/xorg/modules/drivers")),
    ),
    whole_host(
        name="alpine-glibc",
        who="Alpine with alpine-pkg-glibc, the libraries in /usr/glibc-compat/lib",
        source="https://github.com/sgerrand/alpine-pkg-glibc",
        spec={**whole(Places(lib=f"{COMPAT}/lib", xorg="/usr/lib/xorg/modules/drivers")), **GLIBC},
    ),
)
