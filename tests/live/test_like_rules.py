"""`--like` on trees where no runtime can run, against a table made from `ldconfig -p`, `readelf -h` and the rules.

The rules, of Apptainer and SingularityCE 4.5: lines are trimmed, empty ones and those with `#` skipped. A line with
`.so` in it stands for every name in the ld cache that starts with it; of each name the first path counts, and only if
it is an ELF file of the machine; it lands in /.singularity.d/libs under the path's last part. An absolute path with
`.so` is that file and the links beside it that lead to it. Another absolute path is bound where it is by Apptainer; to
SingularityCE it is a program. Anything else is a program in PATH, which lands in /usr/bin.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Optional

import pytest

from gpubind.planner.like import FLAVOURS, shipped_names
from tests.live.machine import ROOT_PATH, Machine, document, here, pairs

pytestmark = pytest.mark.live

CACHED = re.compile(r"^\t(\S+) \(.*\) => (/.*)$", re.MULTILINE)
TREES = pytest.mark.parametrize("tree", ["nv535", "flat550"])

# Run as a child that makes the tree its root, so that the kernel itself follows the links.
LOOK = """
import json, os, stat, sys
os.chroot(sys.argv[1]); os.chdir("/")
found = {}
for path in json.loads(sys.argv[2]):
    if os.path.exists(path):
        mode = os.stat(path).st_mode
        directory = os.path.dirname(path)
        beside = [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
        links = {link: os.path.realpath(link) for link in beside if os.path.islink(link)}
        found[path] = [os.path.realpath(path), stat.S_ISREG(mode) and bool(mode & 0o111), links]
print(json.dumps(found))
"""

SITE_LIST = """\
# absolute paths of every kind
libcuda.so
    libnvidia-ml.so
libvdpau_nvidia.so.1
/usr/lib64/libnvidia-ptxjitcompiler.so.550.163.01
/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-encode.so.535.261.03
/usr/lib/i386-linux-gnu/nvidia/current/libcuda.so.535.261.03
/etc/ld.so.conf
/etc/ld.so.cache
/usr/bin/nvidia-smi
/usr/share/vulkan/icd.d
/usr/share/nothere
nvidia-debugdump
nothere
"""


class Looked(NamedTuple):
    """A path, seen from inside the tree."""

    real: str
    is_program: bool
    links: dict[str, str]
    """The links beside it, and where each leads."""


@TREES
def test_binds_what_the_rules_say_with_the_list_of_the_real_apptainer(trixie: Machine, rig: str, tree: str) -> None:
    root = f"{rig}/hosts/{tree}"
    text = Path(f"{trixie.root}/etc/apptainer/nvliblist.conf").read_text()
    table = by_the_rules(root, text, plain_files=True)
    assert any(target == "/.singularity.d/libs/libcuda.so.1" for _, target in table)
    assert planned(root, "apptainer", root) == table


@TREES
@pytest.mark.parametrize("flavour", ["apptainer", "apptainer-1.5", "apptainer-1.6", "singularity"])
def test_binds_what_the_rules_say_with_a_list_of_the_site(rig: str, tmp_path: Path, tree: str, flavour: str) -> None:
    root = f"{rig}/hosts/{tree}"
    directory = tmp_path / "etc" / flavour.partition("-")[0]
    directory.mkdir(parents=True)
    (directory / "nvliblist.conf").write_text(SITE_LIST)
    table = by_the_rules(root, SITE_LIST, plain_files=flavour != "singularity")
    assert any(target == "/usr/bin/nvidia-smi" for _, target in table)
    assert planned(root, flavour, str(tmp_path)) == table


def test_no_32_bit_library_is_bound(rig: str) -> None:
    root = f"{rig}/hosts/nv535"
    assert any("/i386-linux-gnu/" in path for _, path in cached(root))
    assert not any("/i386-linux-gnu/" in source for source, _ in planned(root, "apptainer", root))


def test_those_of_32_bits_come_too_where_1_6_is_asked_for_them(rig: str) -> None:
    root = f"{rig}/hosts/nv535"
    names = tuple(name for name in shipped_names(FLAVOURS["apptainer-1.6"], "nvidia") if ".so" in name)
    small = {path for name, path in cached(root) if "/i386-linux-gnu/" in path and name.startswith(names)}
    added = planned(root, "apptainer-1.6", root, "--caps", "all") - planned(root, "apptainer-1.6", root)
    assert added == {(path, f"/.singularity.d/libs32/{os.path.basename(path)}") for path in small}
    assert "libcuda.so.1" in {os.path.basename(path) for path in small}


def planned(root: str, flavour: str, dev_root: str, *options: str) -> set[tuple[str, str]]:
    """(source, target) of what gpubind says, sources as seen from inside the tree."""
    arguments = ["--nv", "--like", flavour, *options, "--root", root, "--dev-root", dev_root, "--json"]
    plan = document(here(sys.executable, "-m", "gpubind", "plan", *arguments))
    found = pairs(plan)
    assert all(source.startswith(f"{root}/") for source, _ in found)
    return {(source[len(root) :], target) for source, target in found}


def cached(root: str) -> list[tuple[str, str]]:
    """(name, path) of the tree's ld cache, in its order."""
    return CACHED.findall(here("ldconfig", "-p", "-r", root))


def by_the_rules(root: str, text: str, *, plain_files: bool) -> set[tuple[str, str]]:
    """(source, target) of what a list with *text* stands for."""
    lines = [line.strip() for line in text.splitlines()]
    entries = [line for line in lines if line and not line.startswith("#")]
    first: dict[str, str] = {}
    for name, path in cached(root):
        first.setdefault(name, path)
    programs = [f"{directory}/{entry}" for entry in entries for directory in ROOT_PATH.split(":") if "/" not in entry]
    looked = look(root, [*first.values(), *(entry for entry in entries if entry.startswith("/")), *programs])

    table = set()
    for entry in entries:
        if ".so" in entry:
            if entry.startswith("/"):
                found = looked.get(entry)
                stem = entry[: entry.index(".so") + 3]
                links = {} if found is None else found.links
                paths = [entry, *(link for link, to in links.items() if link.startswith(stem) and to == entry)]
            else:
                paths = [path for name, path in first.items() if name.startswith(entry)]
            if entry.startswith("/") and not is_native(root, looked.get(entry)):
                continue
            for path in paths:
                if entry.startswith("/") or is_native(root, looked.get(path)):
                    table.add((path, f"/.singularity.d/libs/{os.path.basename(path)}"))
        elif entry.startswith("/") and plain_files:
            if entry in looked:
                table.add((entry, entry))
        else:
            places = [entry] if entry.startswith("/") else [f"{d}/{entry}" for d in ROOT_PATH.split(":")]
            runnable = [place for place in places if place in looked and looked[place].is_program]
            table |= {(place, f"/usr/bin/{os.path.basename(place)}") for place in runnable[:1]}
    return table


def look(root: str, paths: list[str]) -> dict[str, Looked]:
    """Those of *paths* that exist in the tree."""
    found = json.loads(here(sys.executable, "-c", LOOK, root, json.dumps(paths)))
    return {path: Looked(*values) for path, values in found.items()}


def is_native(root: str, looked: Optional[Looked]) -> bool:
    """Whether it is an ELF file of this machine, as readelf says."""
    if looked is None:
        return False
    command = ["readelf", "-h", root + looked.real]
    done = subprocess.run(command, env={"PATH": ROOT_PATH, "LC_ALL": "C"}, capture_output=True, text=True)
    return "Machine:                           Advanced Micro Devices X86-64" in done.stdout
