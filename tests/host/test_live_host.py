"""LiveHost: roots, the process, its variables, and what it may open."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any, Optional

import pytest

import gpubind
from gpubind.errors import HostReadError
from gpubind.host.base import PLAN_VARIABLES
from gpubind.host.live import LiveHost
from gpubind.inventory.nvidia.devices import is_requested
from gpubind.model import ResolvedFile
from tests.support.commands import ask
from tests.support.trees import Dir, Link, make_tree


def environ_variables(environ: Mapping[str, str]) -> Any:
    return ask(
        "import json; from gpubind.host.live import LiveHost; print(json.dumps(LiveHost('/', '/').environ))", environ
    )


def test_without_a_dev_root_devices_are_looked_for_in_the_root_if_it_has_nvidiactl(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/dev/nvidiactl": b""})
    host = LiveHost(str(tmp_path))
    assert host.dev is host.driver


def test_without_a_dev_root_devices_are_looked_for_in_the_machines_own_root(tmp_path: Path) -> None:
    host = LiveHost(str(tmp_path))
    assert (host.driver.root, host.dev.root) == (str(tmp_path), "/")


@pytest.mark.parametrize("node", ["nvidiactl", "nvmap", "kfd", "dxg"])
def test_only_a_root_without_a_drivers_nodes_assumes_the_machines_own(tmp_path: Path, node: str) -> None:
    make_tree(tmp_path, {f"/with/dev/{node}": b"", "/without/dev/null": b""})
    assert not LiveHost(f"{tmp_path}/with").assumes_dev_root
    assert LiveHost(f"{tmp_path}/without").assumes_dev_root
    assert not LiveHost(f"{tmp_path}/without", "/").assumes_dev_root
    assert not LiveHost("/").assumes_dev_root


@pytest.mark.parametrize("name", ["r", "r/", "link", "r/../r"])
def test_one_directory_named_twice_is_one_tree(tmp_path: Path, name: str) -> None:
    make_tree(tmp_path, {"/r": Dir(), "/link": Link("r")})
    host = LiveHost(f"{tmp_path}/r", f"{tmp_path}/{name}")
    assert host.dev is host.driver


@pytest.mark.parametrize(("root", "dev_root"), [("none", None), (".", "none")])
def test_a_root_that_is_not_there_is_refused(tmp_path: Path, root: str, dev_root: Optional[str]) -> None:
    with pytest.raises(HostReadError) as caught:
        LiveHost(f"{tmp_path}/{root}", dev_root and f"{tmp_path}/{dev_root}")
    assert caught.value.code == "no-root"
    assert caught.value.exit_code == 4


def test_the_process_is_told_in_numbers_and_the_machine_without_its_name() -> None:
    host = LiveHost("/", "/")
    assert host.identity.euid == os.geteuid()
    assert host.identity.groups == tuple(sorted({os.getegid(), *os.getgroups()}))
    assert host.uname == (os.uname().release, os.uname().machine)


def test_only_variables_that_a_plan_reads_are_kept() -> None:
    kept = environ_variables({"CUDA_MPS_PIPE_DIRECTORY": "/mps", "HOME": "/h", "SECRET": "x"})
    assert kept == {"CUDA_MPS_PIPE_DIRECTORY": "/mps", "PATH": "/usr/bin:/bin"}


def test_the_kernel_is_asked_whether_a_node_may_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    host = LiveHost("/", "/")
    node = host.dev.find("/dev/null")
    assert isinstance(node, ResolvedFile)
    assert (host.access(node), host.granted(node.stat)) == ("rw", "rw")
    monkeypatch.setattr("os.access", lambda path, mode, **_: False)  # as with a device cgroup, whatever the mode
    assert (host.access(node), host.granted(node.stat)) == ("none", "rw")
    monkeypatch.setattr("os.access", lambda path, mode, **_: mode == os.R_OK)
    assert host.access(node) == "r"


@pytest.mark.parametrize("name", sorted(PLAN_VARIABLES))
def test_every_variable_that_a_plan_reads_reaches_a_live_host_and_its_record(name: str) -> None:
    value = "/v" if name in ("PATH", "ROCM_PATH") else "v"
    host = LiveHost(environ={name: value})
    assert host.variable(name) == host.lenient.variable(name) == value


def test_a_host_refuses_a_variable_that_records_do_not_hold() -> None:
    with pytest.raises(LookupError, match="LD_PRELOAD"):
        LiveHost(environ={"LD_PRELOAD": "/v"}).variable("LD_PRELOAD")


@pytest.mark.parametrize("name", ["NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"])
def test_a_live_host_is_asked_for_gpudirect_by_its_variable(name: str) -> None:
    assert is_requested(LiveHost(environ={name: "enabled"}), name)
    assert not is_requested(LiveHost(environ={}), name)


def test_no_module_but_those_of_hosts_reads_the_environment_of_a_host_by_name() -> None:
    """`Host.variable` refuses what a record would not hold; `Host.environ` would answer that it is not set."""
    package = Path(gpubind.__file__).parent
    readers = [path for path in package.rglob("*.py") if re.search(r"host\.environ(\.get\(|\[)", path.read_text())]
    assert readers == []


def test_the_lenient_host_of_a_changed_copy_has_the_variables_of_the_copy() -> None:
    host = gpubind.open_host("debian13-nvidia550")
    host.lenient.environ  # noqa: B018 - a cached answer would be kept by the copy
    changed = copy(host)
    changed.environ = {"CUDA_VISIBLE_DEVICES": "1"}
    assert changed.lenient.variable("CUDA_VISIBLE_DEVICES") == "1"
