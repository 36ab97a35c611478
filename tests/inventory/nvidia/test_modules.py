"""A driver that only the caller's LD_LIBRARY_PATH leads to: a module of the cluster set it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubind import plan
from gpubind.api.record import record
from gpubind.errors import NothingToBindError
from gpubind.host.live import LiveHost
from gpubind.host.record import parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.inventory.nvidia.inventory import read_inventory
from gpubind.model import Finding, Inventory, Request
from tests.support.driver import V, host, kernel, libraries, ubuntu
from tests.support.elf import stub
from tests.support.trees import Dir, Link, Node, Spec, make_tree

MODULE = f"/opt/apps/nvidia/{V}/lib64"
OTHER = 1234
"""A user who is not root; no such account has to exist."""


def inventory(value: str, *parts: Spec) -> Inventory:
    return read_inventory(host(*parts, kernel(), environ={"LD_LIBRARY_PATH": value}), Request())


def libcuda(of: Inventory) -> list[str]:
    return [file.path for file in of.files if "libcuda.so.1" in file.names]


def told(of: Inventory, code: str) -> list[Finding]:
    return [one for one in of.findings if one.code == code]


@pytest.mark.parametrize("value", [MODULE, f"/srv/none::lib:{MODULE}/:", f"/opt/cuda/lib64;{MODULE}"])
def test_a_directory_of_ld_library_path_with_the_loaded_drivers_libcuda_is_searched_and_told(value: str) -> None:
    of = inventory(value, libraries(MODULE))
    assert libcuda(of) == [f"{MODULE}/libcuda.so.{V}"]
    assert [one.subject.rstrip("/") for one in told(of, "driver-of-module")] == [MODULE]
    assert not told(of, "no-libcuda")


def test_a_libcuda_that_is_found_without_it_is_used() -> None:
    of = inventory(MODULE, libraries(MODULE), ubuntu())
    assert libcuda(of) == [f"/usr/lib/x86_64-linux-gnu/libcuda.so.{V}"]
    assert not told(of, "driver-of-module")
    assert MODULE not in of.searched


def test_it_is_searched_where_the_known_directories_have_another_version() -> None:
    of = inventory(MODULE, libraries(MODULE), ubuntu("535.183.01"))
    assert libcuda(of) == [f"{MODULE}/libcuda.so.{V}"]
    assert told(of, "other-driver-version")
    assert not told(of, "driver-mismatch")


@pytest.mark.parametrize(
    "spec",
    [
        {f"{MODULE}/libcuda.so.1": stub()},
        libraries(MODULE, "535.183.01"),
        libraries(MODULE, machine=183),
        {f"{MODULE}/libcuda.so.1": Link("/usr/local/cuda/compat/libcuda.so.1"), **libraries("/usr/local/cuda/compat")},
        {f"{MODULE}/libcudart.so.12": b""},
    ],
    ids=["stub", "other-version", "other-machine", "compat", "no-libcuda"],
)
def test_what_is_not_the_loaded_drivers_libcuda_does_not_count(spec: Spec) -> None:
    of = inventory(MODULE, spec)
    assert libcuda(of) == []
    assert not told(of, "driver-of-module")
    (missing,) = told(of, "no-libcuda")
    assert (missing.where or "").endswith(", LD_LIBRARY_PATH")


def test_without_a_loaded_module_no_version_is_known_and_it_does_not_count() -> None:
    of = read_inventory(host(libraries(MODULE), kernel(None), environ={"LD_LIBRARY_PATH": MODULE}), Request())
    assert libcuda(of) == []


def test_a_record_keeps_the_directory_that_has_a_libcuda_and_no_other() -> None:
    value = f"/proj/secret/lib:{MODULE}:/home/anna/lib"
    spec: Spec = {**libraries(MODULE), **libraries("/home/anna/lib"), **kernel()}
    on = host(spec, environ={"LD_LIBRARY_PATH": value})
    again = RecordedHost(parse_record(record(on).encode()), "again", {"LD_LIBRARY_PATH": "/srv/other"})
    assert again.environ["LD_LIBRARY_PATH"] == MODULE
    assert plan(again, Request()).digest == plan(on, Request()).digest


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root's command alone distrusts variables")


@pytest.fixture
def tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/run") as made:
        root = Path(made)
        root.chmod(0o755)
        nodes = {path: item for path, item in kernel().items() if not isinstance(item, Node)}
        make_tree(root, {**libraries(MODULE), **nodes, "/dev/char": Dir()})
        os.mknod(root / "dev/nvidiactl", stat.S_IFCHR | 0o666, os.makedev(195, 255))
        yield root


@as_root
def test_roots_command_ignores_a_directory_that_others_can_change(tree: Path) -> None:
    on = LiveHost(str(tree), str(tree), environ={"LD_LIBRARY_PATH": MODULE})
    assert libcuda(read_inventory(on, Request()))
    os.chown(f"{tree}{MODULE}", OTHER, OTHER)
    of = read_inventory(LiveHost(str(tree), str(tree), environ={"LD_LIBRARY_PATH": MODULE}), Request())
    assert libcuda(of) == []
    (ignored,) = told(of, "writable-by-others")
    assert (ignored.subject, ignored.severity) == (MODULE, "warning")
    os.unlink(tree / "dev/nvidiactl")
    with pytest.raises(NothingToBindError) as refused:
        read_inventory(LiveHost(str(tree), str(tree), environ={"LD_LIBRARY_PATH": MODULE}), Request())
    assert f"LD_LIBRARY_PATH={MODULE} is ignored" in refused.value.why
