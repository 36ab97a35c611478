"""`--like apptainer` against what the real apptainer binds, on the node that has it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.live.apptainers import FILE, LIBRARY, MOUNTED
from tests.live.machine import CHECKOUT, DRIVER, INSIDE_CONTAINERS, RIG, Bind, Machine, document, pairs

pytestmark = pytest.mark.live

LIST = "/etc/apptainer/nvliblist.conf"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
FATAL = re.compile(r"^FATAL .* container creation failed: (.*)$", re.MULTILINE)
WHO = pytest.mark.parametrize("user", [False, True], ids=["root", "user"])

SITE_LIST = f"""\
# what a site may write
[utility]
nvidia-smi
    libnvidia-ml.so
\tlibnvidia-cfg.so\t
[compute]
libcuda.so
{LIBRARIES}/nvidia/current/libnvidia-ptxjitcompiler.so.{DRIVER}
{LIBRARIES}/libnvidia-encode.so.1

   # an indented remark
/usr/share/nvidia/nvoptix.bin
/usr/share/vulkan/icd.d
/usr/sbin/ldconfig
/usr/share/glvnd/egl_vendor.d/*nvidia*.json
{LIBRARIES}/libnvidia-gl*.so.*
libnvidia-e*.so
nvidia-cuda-*
libnothere.so
nothere
/usr/share/nvidia/nothere
libnvidia-nvvm.so # not a remark
/etc/ld.so.cache
/etc/ld.so.conf.d
libnvidia-tls.so.5
cuda.so
"""


@WHO
def test_binds_what_apptainer_binds(trixie: Machine, user: bool) -> None:
    real = bound_by_apptainer(trixie, user=user)
    assert ("/lib/x86_64-linux-gnu/libcuda.so.1", "/.singularity.d/libs/libcuda.so.1") in real
    assert planned(trixie, user=user) == real


@WHO
def test_binds_what_apptainer_binds_with_a_list_of_the_site(trixie: Machine, tmp_path: Path, user: bool) -> None:
    list_file = Bind(_written(tmp_path / "site.conf", SITE_LIST), LIST)
    real = bound_by_apptainer(trixie, user=user, binds=[list_file])
    assert ("/usr/sbin/ldconfig", "/usr/sbin/ldconfig") in real
    assert planned(trixie, user=user, binds=[list_file]) == real


@WHO
def test_binds_what_apptainer_binds_with_our_list_in_its_place(trixie: Machine, user: bool) -> None:
    list_file = Bind(f"{CHECKOUT}/etc/nvliblist.conf", LIST)
    real = bound_by_apptainer(trixie, user=user, binds=[list_file])
    assert ("/lib/x86_64-linux-gnu/libnvidia-ngx.so.1", "/.singularity.d/libs/libnvidia-ngx.so.1") in real
    assert planned(trixie, user=user, binds=[list_file]) == real


@WHO
def test_an_empty_list_binds_nothing(trixie: Machine, tmp_path: Path, user: bool) -> None:
    list_file = Bind(_written(tmp_path / "site.conf", "# nothing\n"), LIST)
    assert bound_by_apptainer(trixie, user=user, binds=[list_file]) == set()
    assert planned(trixie, user=user, binds=[list_file]) == set()


@WHO
def test_the_socket_of_persistenced_is_bound_where_it_is(trixie: Machine, tmp_path: Path, user: bool) -> None:
    (tmp_path / "nvidia-persistenced").mkdir()
    os.mknod(tmp_path / "nvidia-persistenced/socket", stat.S_IFSOCK | 0o666)
    run = Bind(_readable(tmp_path), "/run")
    real = bound_by_apptainer(trixie, user=user, binds=[run])
    assert "/var/run/nvidia-persistenced/socket" in {source for source, _ in real}
    assert planned(trixie, user=user, binds=[run]) == real


@pytest.mark.parametrize(
    "text",
    [
        f"libcuda.so\n{LIBRARIES}/libcuda.so.1\n",
        "nvidia-smi\n/usr/bin/nvidia-smi\n",
        "/root/.profile\n",
        "../../usr/bin/nvidia-smi\n",
    ],
    ids=["two-libraries-of-one-name", "program-and-same-file", "file-out-of-reach", "relative-program"],
)
def test_a_list_that_stops_apptainer_is_an_error_finding(trixie: Machine, tmp_path: Path, text: str) -> None:
    list_file = Bind(_written(tmp_path / "site.conf", text), LIST)
    stopped = FATAL.search(_apptainer(trixie, user=True, binds=[list_file], status=255))
    assert stopped is not None
    arguments = ("plan", "--nv", "--like", "apptainer", "--json")
    plan = document(trixie.gpubind(*arguments, user=True, driver=True, binds=[list_file]))
    errors = [finding for finding in plan["findings"] if finding["severity"] == "error"]
    assert errors, f"apptainer says: {stopped.group(1)}"
    assert all(finding["why"].split("`")[1] in stopped.group(1) for finding in errors)


def planned(machine: Machine, *, user: bool, binds: Iterable[Bind] = ()) -> set[tuple[str, str]]:
    """(source, target) of what gpubind says that apptainer binds."""
    plan = machine.gpubind("plan", "--nv", "--like", "apptainer", "--json", user=user, driver=True, binds=binds)
    return pairs(document(plan))


def bound_by_apptainer(machine: Machine, *, user: bool, binds: Iterable[Bind] = ()) -> set[tuple[str, str]]:
    """(source, target) of what apptainer puts on its list of mounts for --nv, and then mounts."""
    debug = _apptainer(machine, user=user, binds=binds)
    found = {(path, f"/.singularity.d/libs/{os.path.basename(path)}") for path in LIBRARY.findall(debug)}
    found |= {(source, target or source) for source, target in FILE.findall(debug)}
    assert {source for source, _ in found} <= set(MOUNTED.findall(debug))
    return found


def _apptainer(machine: Machine, *, user: bool, binds: Iterable[Bind], status: int = 0) -> str:
    """What apptainer says while it starts a container with --nv."""
    # Root of the rig may lack capabilities that apptainer would give to root of the container.
    privileges = [] if user else ["--no-privs"]
    command = ["apptainer", "-d", "exec", *privileges, "--nv", f"{INSIDE_CONTAINERS}/bookworm-sb", "true"]
    containers = Bind(f"{RIG}/ct", INSIDE_CONTAINERS)
    done = machine.run(command, user=user, driver=True, binds=[containers, *binds], status=status)
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stderr)


def _written(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o644)
    return str(path)


def _readable(directory: Path) -> str:
    """*directory*, open to the ordinary user: pytest's own are for their owner only."""
    directory.chmod(0o755)
    return str(directory)
