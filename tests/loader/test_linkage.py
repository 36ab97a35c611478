"""What each file of a container is linked with, as values."""

from __future__ import annotations

from typing import Optional

from gpubind.launch.preflight import make_preflight
from gpubind.loader.linkage import LinkedFile, LinkUse
from gpubind.model import Request
from gpubind.planner.planning import PlanQuery
from gpubind.rules.linkage import linkage_of
from tests.support.driver import V, host, kernel, rhel
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.trees import Spec

LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
PATH = f"/usr/lib64/libcuda.so.{V}"


def linked(cuda: bytes, *parts: Spec, program: Optional[str] = None, blind: bool = False) -> dict[str, LinkedFile]:
    """What is linked in an image of glibc 2.36 and *parts*, with a libcuda like that, by file."""
    on = host(rhel(), kernel(), {PATH: cuda})
    opened = None if blind else image(glibc("2.36"), *parts)
    start = make_preflight(on, PlanQuery(Request(), None), opened, program=program)
    return {file.path: file for file in linkage_of(start)}


def test_what_neither_the_plan_nor_the_image_has_is_missing() -> None:
    cuda = elf("libcuda.so.1", needed=("libc.so.6", "libnvidia-ml.so.1", "libgone.so.2"))
    found = linked(cuda)["/.gpubind/libs/libcuda.so.1"]
    assert found.origin == "plan"
    assert [(use.name, use.path, use.state) for use in found.uses] == [
        ("libc.so.6", LIBC, "found"),
        ("libnvidia-ml.so.1", "/.gpubind/libs/libnvidia-ml.so.1", "found"),
        ("libgone.so.2", None, "missing"),
    ]
    assert [use.is_broken for use in found.uses] == [False, False, True]


def test_a_file_that_is_left_out_names_the_symbol_version_that_the_image_lacks() -> None:
    needs = {"libc.so.6": ("GLIBC_2.34", "GLIBC_2.38")}
    found = linked(elf("libcuda.so.1", needed=("libc.so.6",), needs=needs))[PATH]
    assert found == LinkedFile(
        PATH, "left-out", (LinkUse("libc.so.6", LIBC, "found", ("GLIBC_2.34", "GLIBC_2.38"), ("GLIBC_2.38",)),)
    )


def test_without_an_image_what_the_plan_lacks_is_unknown() -> None:
    cuda = elf("libcuda.so.1", needed=("libc.so.6", "libnvidia-ml.so.1"), needs={"libc.so.6": ("GLIBC_2.38",)})
    uses = linked(cuda, blind=True)["/.gpubind/libs/libcuda.so.1"].uses
    assert uses == (
        LinkUse("libc.so.6", None, "unknown", ("GLIBC_2.38",)),
        LinkUse("libnvidia-ml.so.1", "/.gpubind/libs/libnvidia-ml.so.1", "found"),
    )


def test_the_program_comes_first_and_what_it_loads_has_its_own_needs() -> None:
    program = {
        "/opt/app": elf(kind=2, needed=("libown.so",), runpath="/opt", interpreter="/lib64/ld-linux-x86-64.so.2"),
        "/opt/libown.so": elf("libown.so", needed=("libc.so.6",), needs={"libc.so.6": ("GLIBC_2.99",)}),
    }
    found = linked(elf("libcuda.so.1"), program, program="/opt/app")
    assert next(iter(found)) == "/opt/app"
    assert found["/opt/app"].uses == (LinkUse("libown.so", "/opt/libown.so", "found", found_by="runpath"),)
    (libc,) = found["/opt/libown.so"].uses
    assert libc == LinkUse("libc.so.6", LIBC, "found", ("GLIBC_2.99",), ("GLIBC_2.99",), "default")
    assert {found[path].origin for path in ("/opt/app", "/opt/libown.so", LIBC)} == {"image"}


def test_a_library_that_the_loader_refuses_itself_has_its_message() -> None:
    damaged = linked(elf("libcuda.so.1"), {LIBC: b"\x7fELF"})
    assert all(file.fault is None for file in damaged.values())
    stack = linked(elf("libcuda.so.1", executable_stack=True), glibc("2.41"))["/.gpubind/libs/libcuda.so.1"]
    assert stack.fault is not None
    assert "cannot enable executable stack" in stack.fault
