"""The survey: a record answers like the host that it was made of, and names nobody."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

import pytest

from gpubind.errors import NotRecordedError
from gpubind.files import Tree
from gpubind.host import Host, RunResult
from gpubind.host.live import LiveHost
from gpubind.host.record import Record, RecordedRoot, RecordedRun, dump_record, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.host.surveyed import GPU_NAME, SurveyedHost
from gpubind.inventory.nodes import PCI_DEVICES
from gpubind.inventory.nvidia.inventory import NOUVEAU
from gpubind.model import Missing, RootedPath, Stat
from gpubind.model.arch import DRIVER_ARCHITECTURES
from gpubind.model.layouts import (
    BINARY_DIRECTORIES,
    CONTAINER_LIBRARIES,
    ROCM_LIBRARIES,
    SUBDIRECTORIES,
    TEGRA_LISTS,
    amdgpu_directories,
    library_directories,
)
from gpubind.rules import runtime
from gpubind.rules.host import nodes, platform, services
from gpubind.rules.image import graphics
from gpubind.runtimes import RUNTIMES
from tests.support.driver import host as host_of
from tests.support.elf import elf, stub
from tests.support.ldcache import build_ldcache, entry
from tests.support.surveys import survey
from tests.support.trees import ABSENT, FORBIDDEN, Dir, Fifo, File, Hidden, Item, Link, Node, Socket, make_tree, record

V = "550.54.14"
CACHE = build_ldcache([entry("libcuda.so.1", "/lib64/libcuda.so.1"), entry("libsite.so", "/srv/site/lib/libsite.so")])
GROUP = "root:x:0:alice\nvideo:x:44:alice,bob\nusers:x:100:alice\n"

# A host with one of everything that a survey meets. Directories that it does not know are in it, too.
SPEC: dict[str, Item] = {
    "/dev/nvidia0": b"",
    "/dev/nvidiactl": b"",
    "/dev/dri/by-path/pci-0000:01:00.0-render": Link("../renderD128"),
    "/dev/dri/renderD128": b"",
    "/etc/OpenCL/vendors/nvidia.icd": "libnvidia-opencl.so.1\n",
    "/etc/apptainer/apptainer.conf": "# by alice\nmount dev = minimal\nlimit container owners = alice\n",
    "/etc/apptainer/capability.json": '{"users": {"alice": ["CAP_NET_RAW"]}}',
    "/etc/group": GROUP,
    "/etc/ld.so.cache": CACHE,
    "/etc/os-release": "ID=debian\n",
    "/etc/passwd": "alice:x:1000:1000:Alice:/home/alice:/bin/sh\n",
    "/etc/vulkan/icd.d/nvidia_icd.json": '{"ICD": {"library_path": "libGLX_nvidia.so.0"}}',
    "/etc/vulkan/icd.d/loop.json": Link("loop.json"),
    "/home/alice/bin/nvidia-smi": elf(kind=2),
    "/lib": Link("usr/lib"),
    "/lib64": Link("/usr/lib64"),
    "/opt/rocm": Link("rocm-6.1"),
    "/opt/rocm-6.1/lib/libamdhip64.so.6": elf("libamdhip64.so.6"),
    "/proc/devices": "Character devices:\n195 nvidia\n",
    "/proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t NVIDIA H200\nDevice Minor: \t 0\n",
    "/proc/driver/nvidia/params": "ModifyDeviceFiles: 1\n",
    "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {V}  x\n",
    "/run/nvidia-persistenced/socket": Socket(),
    "/srv/site/lib/libsite.so": elf("libsite.so"),
    "/sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
    "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:01:00.0/drm/renderD128": Dir(),
    "/sys/bus/pci/devices/0000:02:00.0/class": "0x020000\n",
    "/sys/module/nvidia/version": f"{V}\n",
    "/tmp/nvidia-mps/control": Fifo(),
    "/usr/bin/nvidia-smi": File(elf(kind=2), 0o755),
    "/usr/bin/true": File(elf(kind=2), 0o755),
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": Link("nvidia/current/libnvidia-ml.so.1"),
    "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1": Link(f"libnvidia-ml.so.{V}"),
    f"/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.{V}": elf("libnvidia-ml.so.1", needed=["libc.so.6"]),
    "/usr/lib64/libEGL.so": b"/* GNU ld script */ INPUT(libEGL.so.1)",
    "/usr/lib64/libc.so.6": elf("libc.so.6", defines=["libc.so.6", "GLIBC_2.17"]),
    "/usr/lib64/libcuda.so": Link("libcuda.so.1"),
    "/usr/lib64/libcuda.so.1": Link(f"libcuda.so.{V}"),
    f"/usr/lib64/libcuda.so.{V}": elf("libcuda.so.1", needed=["libc.so.6"], needs={"libc.so.6": ["GLIBC_2.17"]}),
    "/usr/lib64/libdangling.so": Link("/none/libdangling.so"),
    "/usr/lib64/libnvidia-cut.so": elf("x")[:100],
    "/usr/lib64/libnvidia-odd\udcff.so": b"",
    "/usr/share/nvidia/nvoptix.bin": b"\x00\x01",
}
RUNTIME_DIRECTIVES = {
    *("mount dev", "enable overlay", "enable underlay", "always use nv", "always use rocm", "user bind control")
}
PATH = "/home/alice/bin:/usr/bin:/root/bin:/none:bin:/Users/alice/bin:/nfs/home/alice/bin:/export/users/alice/bin"


def live_host(root: Path, spec: Mapping[str, Item], environ: Optional[Mapping[str, str]] = None) -> LiveHost:
    make_tree(root, spec)
    host = LiveHost(str(root), str(root))
    host.environ = dict(environ or {})
    return host


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> LiveHost:
    mps = "/home/alice/mps"
    return live_host(tmp_path_factory.mktemp("survey"), SPEC, {"PATH": PATH, "CUDA_MPS_PIPE_DIRECTORY": mps})


@pytest.fixture(scope="module")
def recorded(host: LiveHost) -> Record:
    return parse_record(dump_record(survey(host), "1").encode())


def tree_of(spec: Mapping[str, Item], dev: Optional[Mapping[str, Item]] = None) -> Tree:
    """The driver tree of a record that was made of a recorded host with these files."""
    return again(RecordedHost(record(spec, dev), "test")).driver


def again(made: Host) -> RecordedHost:
    return RecordedHost(parse_record(dump_record(survey(made), "1").encode()), "test")


# The record answers like the host.


def test_a_record_answers_like_the_host_for_every_path_of_it(host: LiveHost, recorded: Record) -> None:
    live, tree = host.driver, RecordedHost(recorded, "test").driver
    asked = 0
    for directory, known in recorded.driver.directories.items():
        if known.listed is not False:
            assert tree.list(directory) == live.list(directory)
        for name, item in known.entries.items():
            path = f"{directory.rstrip('/')}/{name}"
            assert without_owner_of_link(tree.lstat(path)) == without_owner_of_link(live.lstat(path)), path
            assert tree.readlink(path) == live.readlink(path)
            assert tree.resolve(path) == live.resolve(path)
            if item.ident is not None:
                assert tree.ident(path) == live.ident(path)
            if item.elf is not None:
                assert tree.elf(path) == live.elf(path)
            if item.body is not None and not name.endswith((".conf", "group")):
                assert tree.read(path) == live.read(path)
            asked += 1
    assert asked > 100


def without_owner_of_link(found: object) -> object:
    """A record knows of a link only where it leads."""
    return found.kind if isinstance(found, Stat) and found.kind == "link" else found


def test_a_record_knows_stubs_by_what_they_held(tmp_path: Path) -> None:
    cached = [entry(name, f"/usr/local/lib/{name}") for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")]
    spec: dict[str, Item] = {
        "/etc/ld.so.cache": build_ldcache(cached),
        "/usr/local/lib/libcuda.so.1": stub(),
        "/usr/local/lib/libcuda.so": stub(imports=("dlopen",)),
        "/usr/local/lib/libnvidia-ml.so.1": Link("libnvidia-ml.so.12"),
        "/usr/local/lib/libnvidia-ml.so.12": stub("libnvidia-ml.so.1"),
    }
    host = live_host(tmp_path, spec)
    for tree in (host.driver, again(host).driver):
        assert tree.is_stub("/usr/local/lib/libcuda.so.1")
        assert not tree.is_stub("/usr/local/lib/libcuda.so")
        assert tree.is_stub("/usr/local/lib/libnvidia-ml.so.1")


def test_two_surveys_of_one_host_are_the_same_text(host: LiveHost) -> None:
    other = LiveHost(host.driver.root, host.driver.root)
    other.environ = host.environ
    assert dump_record(survey(host), "1") == dump_record(survey(other), "1")


@pytest.mark.parametrize(
    "path",
    [
        "/dev/dri/by-path/pci-0000:01:00.0-render",
        "/lib64/libcuda.so",
        "/opt/rocm/lib/libamdhip64.so.6",
        "/srv/site/lib/libsite.so",
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    ],
)
def test_links_of_a_record_lead_to_the_same_files(host: LiveHost, recorded: Record, path: str) -> None:
    resolved = RecordedHost(recorded, "test").driver.resolve(path)
    assert resolved == host.driver.resolve(path)
    assert not isinstance(resolved, Missing)


@pytest.mark.parametrize(
    "path",
    ["/usr/lib64/libnvidia-ml.so.1", "/lib64/libnone.so", "/etc/vulkan/icd.d/x.json", "/opt/rocm/lib/x", "/dev/kfd"],
)
def test_a_name_that_a_surveyed_directory_lacks_is_absent(recorded: Record, path: str) -> None:
    assert RecordedHost(recorded, "test").driver.stat(path) == ABSENT


@pytest.mark.parametrize("path", ["/usr/bin/true", "/etc/passwd", "/srv/other/x", "/home/alice"])
def test_a_path_outside_the_survey_is_not_recorded(recorded: Record, path: str) -> None:
    with pytest.raises(NotRecordedError):
        RecordedHost(recorded, "test").driver.stat(path)


def searched(machine: str) -> tuple[str, ...]:
    """Every directory that the search and the rules look in by a name that they know."""
    libraries = [
        directory
        for arch in (*DRIVER_ARCHITECTURES, machine)
        for base in (*library_directories(arch), *amdgpu_directories(arch))
        for directory in (base, *(f"{base.rstrip('/')}/{sub}" for sub in (*SUBDIRECTORIES, "libglvnd") if sub))
    ]
    rocm = [f"/opt/rocm/{name}" for name in (*ROCM_LIBRARIES, "bin", ".info")]
    rules = (runtime.CHAR, runtime.APPARMOR, platform.IMEX_NODES, TEGRA_LISTS, PCI_DEVICES)
    manifests_of = [directory.rstrip("/") for loader in graphics.LOADERS for directory in loader.directories]
    return (*CONTAINER_LIBRARIES, *libraries, *rocm, *BINARY_DIRECTORIES, *rules, *manifests_of)


LOOKED_AT = (
    *(platform.UDEV, platform.IMEX_DOMAIN, *(sysctl.path for sysctl in runtime.USER_NAMESPACES)),
    *(services.NVSWITCHES, nodes.UVM, nodes.CONTROL, nodes.PARAMS, NOUVEAU, graphics.MODESET, "/proc/devices"),
    *(path for runtime in RUNTIMES.values() for path in runtime.limits.setuid_programs),
)
"""What the rules look at alone."""


@pytest.mark.parametrize("machine", ["x86_64", "riscv64"])
@pytest.mark.parametrize("is_there", [True, False])
def test_every_directory_that_the_search_or_a_rule_looks_in_is_surveyed(machine: str, is_there: bool) -> None:
    spec: dict[str, Item] = (
        {path: Dir() for path in searched(machine) if path != "/"} if is_there else {"/opt/x": Dir()}
    )
    tree = again(RecordedHost(record(spec, machine=machine), "test")).driver.lenient
    answers: dict[str, object] = {path: tree.list(path) for path in searched(machine)}
    answers.update({path: tree.stat(path) for path in LOOKED_AT})
    assert [path for path, answer in answers.items() if getattr(answer, "why", "") == "unrecorded"] == []


def test_what_is_forbidden_stays_forbidden() -> None:
    tree = tree_of({"/usr/lib64/nvidia": Hidden(directory=True), "/etc/vulkan": Hidden(), "/etc/os-release": Hidden()})
    assert tree.list("/usr/lib64/nvidia") == tree.stat("/usr/lib64/nvidia/libcuda.so.1") == FORBIDDEN
    assert tree.stat("/etc/vulkan/icd.d") == tree.read("/etc/os-release") == FORBIDDEN


def test_device_nodes_keep_their_numbers_and_owners() -> None:
    node = Node("char", 195, 0, 0o660, gid=44)
    found = tree_of({"/dev/nvidia0": node, "/dev/nvidia-caps/nvidia-cap1": node, "/dev/null": Node("char", 1, 3)})
    wanted = Stat("char", 0o660, 0, 44, 0, 195, 0)
    assert found.stat("/dev/nvidia0") == found.stat("/dev/nvidia-caps/nvidia-cap1") == wanted
    with pytest.raises(NotRecordedError):
        found.stat("/dev/null")


def test_two_trees_are_surveyed_as_two() -> None:
    made = again(RecordedHost(record({"/usr/lib64/libcuda.so.1": b""}, {"/proc/devices": "x"}, root="/r"), "test"))
    assert (made.driver.root, made.dev.root) == ("/r", "/")
    assert made.driver.stat("/usr/lib64/libcuda.so.1") != ABSENT
    assert (made.dev.read("/proc/devices"), made.driver.stat("/proc/devices")) == (b"x", ABSENT)


def test_answers_of_programs_and_list_files_are_kept() -> None:
    run = RecordedRun(("nvidia-container-cli", "list"), 1, "", "failed")
    made = again(RecordedHost(record({}, runs=(run,)), "test"))
    assert made.run(run.argv, 1) == RunResult(1, "", "failed")
    assert made.liblist("nvliblist.conf").shipped


def test_a_cache_behind_a_link_is_read() -> None:
    made = tree_of({"/etc/ld.so.cache": Link("../var/cache/ldconfig"), "/var/cache/ldconfig": CACHE})
    assert made.read("/etc/ld.so.cache") == CACHE


def test_a_damaged_cache_is_kept_as_it_is() -> None:
    damaged = b"glibc-ld.so.cache1.1 and nothing"
    assert tree_of({"/etc/ld.so.cache": damaged}).read("/etc/ld.so.cache") == damaged


@pytest.mark.parametrize("link", ["nvidia.json", "/etc/vulkan/icd.d/nvidia.json", "../icd.d/nvidia.json"])
def test_a_survey_ends_in_a_ring_of_links(link: str) -> None:
    ring: dict[str, Item] = {"/etc/vulkan/icd.d/nvidia.json": Link(link), "/usr/lib64": Link("lib64")}
    tree = tree_of({**ring, "/etc/vulkan/nvidia-up": Link("..")})
    for path in ("/etc/vulkan/icd.d/nvidia.json", "/usr/lib64/libcuda.so.1"):
        assert isinstance(found := tree.stat(path), Missing)
        assert found.why == "loop"


def test_a_directory_is_recorded_with_eight_levels_below_it() -> None:
    deep = "/etc/vulkan" + "".join(f"/{level}" for level in range(1, 9))
    tree = tree_of({f"{deep}/here": "", f"{deep}/9/there": ""})
    assert tree.list(deep) == ("9", "here")
    with pytest.raises(NotRecordedError):
        tree.list(f"{deep}/9")


# What a record holds, and what it does not.


def bodies(tree: RecordedRoot) -> dict[str, object]:
    return {
        f"{directory.rstrip('/')}/{name}": entry.body
        for directory, known in tree.directories.items()
        for name, entry in known.entries.items()
        if isinstance(entry.body, bytes)
    }


def test_only_small_texts_and_the_cache_are_kept_as_bodies(recorded: Record) -> None:
    kept = bodies(recorded.driver)
    assert f"/usr/lib64/libcuda.so.{V}" not in kept
    assert "/usr/share/nvidia/nvoptix.bin" not in kept
    assert {"/etc/ld.so.cache", "/sys/module/nvidia/version", "/etc/vulkan/icd.d/nvidia_icd.json"} <= set(kept)


def test_no_user_is_named_anywhere(host: LiveHost) -> None:
    text = dump_record(survey(host), "1").replace(host.driver.root, "")
    assert not re.search("alice|bob", text, re.IGNORECASE)


def test_parts_of_a_search_path_in_homes_are_left_out(recorded: Record) -> None:
    assert recorded.environ == {"PATH": "/usr/bin:/none:bin"}


@pytest.mark.parametrize("group", ["/etc/group", "/usr/share/misc/group", "/etc/alternatives/group"])
def test_of_groups_only_those_of_devices_are_kept_and_without_members(group: str) -> None:
    spec: dict[str, Item] = {group: GROUP, "/dev/nvidia0": Node("char", 195, 0, 0o660, gid=44)}
    if group != "/etc/group":
        spec["/etc/group"] = Link(group)
    assert tree_of(spec).read("/etc/group") == b"video:x:44:\n"


def test_a_group_whose_name_is_not_utf8_is_kept() -> None:
    spec: dict[str, Item] = {"/etc/group": b"vid\xe9o:x:44:\n", "/dev/nvidia0": Node("char", 195, 0, gid=44)}
    assert tree_of(spec).read("/etc/group") == b"vid\xe9o:x:44:\n"


def test_of_a_runtimes_configuration_only_what_bears_on_a_plan_is_kept(recorded: Record) -> None:
    text = RecordedHost(recorded, "test").driver.read("/etc/apptainer/apptainer.conf")
    assert text == b"mount dev = minimal\n"


def test_the_machines_name_is_kept_only_if_it_is_given(host: LiveHost) -> None:
    assert survey(host).hostname is None
    named = survey(host, "a test", "node7")
    assert (named.description, named.hostname) == ("a test", "node7")


def test_elf_facts_are_kept_of_gpu_files_and_of_the_c_library(recorded: Record) -> None:
    entries = recorded.driver.directories["/usr/lib64"].entries
    assert entries[f"libcuda.so.{V}"].elf is not None
    assert entries["libc.so.6"].elf is not None
    assert all(entry.elf is None for name, entry in entries.items() if name.startswith("libz."))


@pytest.mark.parametrize(
    ("name", "matters"),
    [("libcuda.so.1", True), ("nvidia-smi", True), ("libEGL.so.1", True), ("libz.so.1", False), ("true", False)],
)
def test_names_that_matter_are_those_of_gpu_files(name: str, matters: bool) -> None:
    assert bool(GPU_NAME.search(name)) is matters


def test_every_link_on_the_way_to_a_cached_library_is_recorded(recorded: Record) -> None:
    tree = RecordedHost(recorded, "test").driver
    for cached in ("/lib64/libcuda.so.1", "/srv/site/lib/libsite.so"):
        resolved = tree.resolve(cached)
        assert not isinstance(resolved, Missing)
        assert isinstance(tree.stat(RootedPath(resolved)), Stat)


@pytest.mark.parametrize(("limit", "found"), [(4, b"1234"), (3, Missing("unreadable", "larger than 3 bytes"))])
def test_a_survey_reads_up_to_a_limit_as_every_tree_does(limit: int, found: object) -> None:
    assert SurveyedHost(host_of({"/etc/four": b"1234"})).driver.read("/etc/four", limit) == found


@pytest.mark.parametrize(
    "name",
    [
        *("mount dev", "enable overlay", "enable underlay", "always use nv", "always use rocm", "user bind control"),
        *("mount proc", "xmount dev", "# mount dev", "mount devx", "limit container owners"),
    ],
)
@pytest.mark.parametrize("path", ["/etc/apptainer/apptainer.conf", "/etc/singularity/singularity.conf"])
def test_of_a_runtimes_configuration_each_directive_about_a_plan_is_kept(name: str, path: str) -> None:
    is_kept = name in RUNTIME_DIRECTIVES
    for line in (f"{name} = yes", f" \t{name}=no", f"{name}\t=x"):
        assert tree_of({path: f"a = b\n{line}\n"}).read(path) == (f"{line}\n".encode() if is_kept else b"")


def test_of_processors_the_first_is_kept_and_of_other_configurations_all_but_comments() -> None:
    cpuinfo = "processor\t: 0\nvendor_id\t: A\nflags\t: a b\nxflags : c\n\nprocessor\t: 1\nflags\t: d\n"
    spec: dict[str, Item] = {"/proc/cpuinfo": cpuinfo, "/etc/ld.so.conf": "# by bob\n/a # b\n\t# c\nd\n"}
    assert tree_of(spec).read("/proc/cpuinfo") == b"vendor_id\t: A\nflags\t: a b\n"
    assert tree_of(spec).read("/etc/ld.so.conf") == b"#\n/a # b\n\t#\nd\n"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        *((None, None), ("", None), ("/usr/lib64", "/usr/lib64"), ("/none:/usr/lib64:lib:/usr/bin", "/usr/lib64")),
        *(("/usr/lib64;/home/alice/lib", "/usr/lib64"), ("/none", None)),
    ],
)
def test_of_a_library_path_only_directories_with_a_driver_are_kept(
    value: Optional[str], kept: Optional[str], host: LiveHost
) -> None:
    machine = host.copy()
    machine.environ = {} if value is None else {"LD_LIBRARY_PATH": value}
    assert SurveyedHost(machine).environ == ({} if kept is None else {"LD_LIBRARY_PATH": kept})
