"""32-bit libraries of a 64-bit host: decided and checked as 64-bit ones are, against the image's own 32-bit half."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind import check, plan
from gpubind.host import Host
from gpubind.image.facts import Image
from gpubind.model import Capability, Finding, Plan, Request
from tests.support.driver import V, host, kernel, libraries, ubuntu
from tests.support.elf import I386, elf
from tests.support.images import GLIBC, glibc, image
from tests.support.trees import Item, Spec

HOSTS = "/usr/lib/i386-linux-gnu"
ALL: tuple[Capability, ...] = ("compute", "utility", "graphics", "compat32")


def i386(soname: str, **facts: Any) -> bytes:
    return elf(soname, bits=32, machine=I386, **facts)


def image_with(directory: Optional[str] = "/usr/lib/i386-linux-gnu", newest: str = "2.36", *more: str) -> Image:
    """An image with a 64-bit glibc, and a 32-bit one of version *newest* in *directory* with *more* libraries."""
    spec: dict[str, Item] = {}
    if directory is not None:
        defined = GLIBC[: GLIBC.index(f"GLIBC_{newest}") + 1]
        spec[f"{directory}/libc.so.6"] = i386("libc.so.6", defines=("libc.so.6", *defined))
    return image(glibc("2.36"), spec, {f"{directory}/{name}": i386(name) for name in more})


def machine(*parts: Spec) -> Host:
    return host(ubuntu(), libraries(HOSTS, machine=I386, bits=32), kernel(), *parts)


def made(opened: Optional[Image], *parts: Spec, caps: tuple[Capability, ...] = ALL) -> Plan:
    return plan(machine(*parts), Request(caps=caps), image=opened)


def names32(planned: Plan) -> set[str]:
    return {mount.target.rpartition("/")[2] for mount in planned.mounts if mount.capability == "compat32"}


def findings(planned: Plan, code: str) -> list[Finding]:
    return [finding for finding in planned.findings if finding.code == code]


def test_compat32_gives_the_32_bit_copies_of_the_capabilities_that_are_asked_for() -> None:
    assert {"libcuda.so.1", "libGLX_nvidia.so.0"} <= names32(made(None))
    few = made(None, caps=("compute", "compat32"))
    assert "libcuda.so.1" in names32(few) and "libGLX_nvidia.so.0" not in names32(few)
    assert names32(made(None, caps=("compute", "graphics"))) == set()


def test_a_32_bit_library_has_its_own_architecture_and_is_printed_as_compat32() -> None:
    mounts = [mount for mount in made(None).mounts if mount.soname == "libcuda.so.1"]
    assert {(mount.arch, mount.capability, mount.required) for mount in mounts} == {
        ("i386", "compat32", False),
        ("x86_64", "compute", True),
    }


def test_an_image_without_a_32_bit_c_library_gets_no_32_bit_libraries_and_says_so() -> None:
    planned = made(image_with(None))
    assert names32(planned) == set()
    (finding,) = findings(planned, "image-without-glibc")
    assert finding.what.endswith("files are left out: it is i386, and the image has no C library for that")
    assert {decision.rule for decision in planned.decisions if decision.path == f"{HOSTS}/libcuda.so.{V}"} == {
        "no-libc"
    }


@pytest.mark.parametrize("directory", ["/usr/lib/i386-linux-gnu", "/usr/lib32", "/usr/lib"])
def test_the_images_32_bit_c_library_is_found_where_distributions_have_it(directory: str) -> None:
    assert "libcuda.so.1" in names32(made(image_with(directory)))


def test_a_32_bit_library_is_held_against_the_images_32_bit_c_library() -> None:
    wants = {f"{HOSTS}/libcuda.so.{V}": i386("libcuda.so.1", needs={"libc.so.6": ("GLIBC_2.34",)})}
    assert "libcuda.so.1" in names32(made(image_with(newest="2.34"), wants))
    old = made(image_with(newest="2.31"), wants)
    assert "libcuda.so.1" not in names32(old)
    (finding,) = findings(old, "image-libc")
    assert finding.what == "libcuda.so.1 is left out: it needs GLIBC_2.34 of libc.so.6, the image has GLIBC_2.31"


def test_each_half_of_libglvnd_is_the_images_or_the_hosts_by_itself() -> None:
    glvnd = ("libGL.so.1", "libGLX.so.0", "libGLdispatch.so.0")
    hosts: Spec = {f"{HOSTS}/{name}": i386(name) for name in glvnd}
    sixty_four: Spec = {
        f"/usr/lib/x86_64-linux-gnu/{name}": elf(name, needed=("libGLdispatch.so.0",)) for name in glvnd
    }
    c_library: Spec = {"/usr/lib32/libc.so.6": i386("libc.so.6", defines=("libc.so.6", *GLIBC))}
    planned = made(image(glibc("2.36"), sixty_four, c_library), hosts)
    assert set(glvnd) <= names32(planned)
    own: Spec = {f"/usr/lib32/{name}": i386(name, needed=("libGLdispatch.so.0",)) for name in glvnd}
    planned = made(image(glibc("2.36"), sixty_four, c_library, own), hosts)
    assert not set(glvnd) & names32(planned)


def test_what_a_32_bit_library_needs_is_looked_for_among_32_bit_libraries() -> None:
    wants: Spec = {f"{HOSTS}/libcuda.so.{V}": i386("libcuda.so.1", needed=("libz.so.1",))}
    opened = image_with()
    opened64 = image(
        glibc("2.36"),
        {"/usr/lib32/libc.so.6": i386("libc.so.6", defines=("libc.so.6", *GLIBC))},
        {"/usr/lib/x86_64-linux-gnu/libz.so.1": elf("libz.so.1")},
    )
    for without in (opened, opened64):
        found = check(machine(wants), made(without, wants), without)
        missing = [finding for finding in found if finding.code == "library-missing"]
        assert [finding.subject for finding in missing] == ["libz.so.1"]
        assert missing[0].what.startswith("libz.so.1 for i386 is neither in the image nor in the plan")
    with_it = image_with(HOSTS, "2.36", "libz.so.1")
    assert not [f for f in check(machine(wants), made(with_it, wants), with_it) if f.code == "library-missing"]
