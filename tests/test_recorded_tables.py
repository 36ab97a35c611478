"""Each row of the tables about architectures, directories, vendors, GPUs and versions is compared whole."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Optional, Union

import pytest

from gpubind import host as hosts
from gpubind.fleet import answers as fleet
from gpubind.host import Uname, base, directories, programs, survey, surveyed
from gpubind.host.live import LiveHost
from gpubind.machine import answers, budget
from gpubind.memo import answer, filesystems, questions, trace
from gpubind.memo import files as memo_files
from gpubind.model import (
    Missing,
    RootedPath,
    arch,
    capability,
    cuda,
    data,
    digest,
    findings,
    gpucode,
    host,
    layouts,
    message,
    rocm,
    vendors,
)
from gpubind.model.files import ANSWERS, NOUNS, Stat
from tests.support.golden import GOLDEN, assert_golden
from tests.support.trees import make_tree

DIRECTORIES = ("/usr/lib64", "/opt/x/lib/nvidia/current", "/opt/x/usr/lib", "/srv/driver", "/", "/nix/store/y/lib32")
PATHS = (*layouts.DRIVER_DATA_PREFIXES, "/etc/vulkan/icd.d/x.json", "/usr/share/x", "/etc/nvidia-x")
ERRNOS = sorted(number for number in errno.errorcode if number < 134)


def _rows(rows: Mapping[Any, object]) -> Iterable[str]:
    return (f"{key}: {value!r}" for key, value in rows.items())


def _constants(module: object, names: str) -> Iterable[str]:
    return (f"{name}: {getattr(module, name)!r}" for name in names.split())


def _architectures() -> Iterable[str]:
    names = (*arch.DRIVER_ARCHITECTURES, *(alias for row in arch.ARCHITECTURES for alias in row.aliases), "s390x")
    yield from _rows({name: (arch.architecture(name), arch.architecture(name).plain_directories) for name in names})
    machines = [(n, bits, order) for n in range(300) for bits in (32, 64) for order in ("little", "big")]
    yield from _rows({m: a for m in machines if not (a := arch.architecture_of_elf(*m)).startswith("machine-")})
    libcs = ("/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6", "/lib32/libc.so.6", "/libx32/libc.so.6")
    more = ("/usr/lib/libc.so.6", "/opt/lib16/libc.so.6", "/lib/a/b-linux-c/libc.so.6", "/libc.so.6")
    yield from _rows({libc: arch.library_token(libc) for libc in (*libcs, *more)})


def _directories() -> Iterable[str]:
    for name in (*arch.DRIVER_ARCHITECTURES, "s390x"):
        yield from layouts.library_directories(name)
        yield from layouts.gbm_directories(name)
        yield from (*layouts.tegra_directories(name), *layouts.amdgpu_directories(name))
    names = [name for name in vars(layouts) if name.isupper() and name != "DRIVER_ARCHITECTURES"]
    yield from (f"{n}: {sorted(v) if isinstance(v := getattr(layouts, n), frozenset) else v!r}" for n in sorted(names))
    yield from _rows({d: (layouts.install_prefix(d), layouts.program_directories_of(d)) for d in DIRECTORIES})
    yield from _rows({path: layouts.data_prefix_pairs(path, DIRECTORIES) for path in PATHS})


def _vendors() -> Iterable[str]:
    yield from _rows(vendors.VENDOR_ROWS)
    yield from _constants(vendors, "VENDORS VENDOR_FLAGS USERSPACES AMD_MODULE")
    yield from _constants(host, "CAPABILITIES DEFAULT_CAPABILITIES READ_ONLY_OPTIONS")
    yield from _constants(findings, "SEVERITIES REMEDIES")
    yield from _rows({n: findings.shorten_list("abcdefg"[:n]) for n in range(8)})
    yield from _rows({n: findings.with_count(n, "GPU") for n in range(3)})
    yield from _rows({code: findings.page_of(code) for code in ("no-device-node", "closed")})
    yield from _constants(digest, "_FILE_FIELDS _MOUNT_FIELDS _GPUDIRECT_NODES")
    escaped = [n for n in range(0x10000) if message.printable(chr(n)) != chr(n)]
    yield from (f"{n:#x}" for n in escaped if {n - 1, n + 1} - {*escaped})


def _chips() -> Iterable[str]:
    devices: dict[capability.Chip, list[str]] = {}
    for device, chip in capability._chips().items():
        assert capability.chip_of(f" 0X{device.upper()} ") == chip
        devices.setdefault(chip, []).append(device)
    versions = ("300.1", "390.9", "470.1", "525.1", "550.54.14", "575.1", "580.1", "999.1")
    kinds: tuple[Optional[capability.Modules], ...] = (None, "open", "proprietary")
    for chip, names in devices.items():
        refusals = [chip.refusal(version, kind) for version in versions for kind in kinds]
        yield f"{chip!r} {chip.title} {refusals}"
        yield " ".join(names)
    yield from capability.nvidia_architectures()


def _codes() -> Iterable[str]:
    yield from _constants(gpucode, "OVERRIDE XNACK XNACK_OFF SPIRV SPIR64 INTEL GENERIC")
    nvidia = (
        "sm_50",
        "sm_53",
        "sm_61",
        "sm_62",
        "sm_70",
        "sm_72",
        "sm_86",
        "sm_87",
        "sm_90",
        "sm_90a",
        "sm_100f",
        "sm_110",
    )
    amd = ("gfx90a", "gfx90a:xnack+", "gfx90a:xnack-:sramecc+", "gfx1030", "gfx1036", *gpucode.GENERIC)
    gpus = (*nvidia, "sm_103", *amd, "gfx942", "gfx1201", *gpucode.INTEL)
    codes = (*gpus, "compute_70", "compute_90a", "compute_100f", "amdgcnspirv", "spir64")
    for gpu in gpus:
        runs = [code for code in codes if gpucode.CodeModule(code=(code,)).runs_on(gpu)]
        compiles = [code for code in codes if gpucode.CodeModule(ptx=(gpucode.Ptx(code),)).runs_on(gpu)]
        single = gpucode.CodeModule(code=(gpu,)).is_specific(), gpucode.is_tegra_arch(gpu), gpucode.instruction_set(gpu)
        yield f"{gpu}: {gpucode.vendor_of(gpu)} {single} runs {runs} compiles {compiles}"
    yield from sorted(codes, key=gpucode.arch_sort_key)
    shares = [gpucode.Share(runs, modules) for modules in range(9) for runs in range(modules + 1)]
    yield from (f"{one} {one.ratio:.3f} {one.is_enough} {one.is_next_to_nothing}" for one in shares)
    yield from _rows({v: gpucode.arch_of_capability(v) for v in ("8.6", "12.0", "120.0", "8.60", "8", "a.b", "")})
    values = (
        "10.3.0",
        " 9. 0. 10",
        "63.255.255",
        "64.0.0",
        "1.256.0",
        "1.0.256",
        "100.0.0",
        "9.0",
        "9.0.0 ",
        "9.0.0.0",
    )
    yield from _rows({v: gpucode.arch_of_override(v) for v in values})
    tries = (("gfx1032", ["gfx1030"]), ("gfx1032", ["gfx1032"]), ("gfx1150", ["gfx115a"]), ("gfx90a", ["gfx900"]))
    yield from _rows({(a, *c): gpucode.override_for(a, c) for a, c in tries})


def _versions() -> Iterable[str]:
    drivers = ("300.1", *cuda.first_drivers(), "999.1")
    yield from _rows({v: (cuda.cuda_max(v), cuda.branch_of(v)) for v in drivers})
    versions = ("9.0", "10", "11", "11.8", "12", "12.4", "12.4.1", "13.0", "14.0", "")
    for v in versions:
        yield f"{v}: {cuda.first_native_driver(v)} {cuda.minor_compatible_driver(v)} {cuda.compat_branches(v)}"
        yield f"{[driver for driver in drivers if cuda.is_minor_compatible(driver, v)]}"
    isas = ("1.0", "6.0", "7.8", "8.0", "8.5", "9.0", "99.0", "")
    yield from _rows({isa: (cuda.cuda_of_isa(isa), [v for v in versions if cuda.serves_ptx(v, isa)]) for isa in isas})
    yield from _rows({v: cuda.version_key(v) for v in ("12.0", "12", "12.4.0.0", "0", "", "1..2")})
    yield from _rows(cuda.frameworks())
    yield from map(repr, cuda.system_frameworks())
    named = [f.name for f in (*cuda.frameworks().values(), *cuda.system_frameworks())]
    yield from _rows({name: cuda.is_extension(name) for name in (*named, "another", None)})
    names = ("libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7", "librccl.so.1", "libc.so.6", "xlibhsa.so")
    yield from _rows({n: (rocm.is_rocms(n), rocm.release_with(["libx.so", n])) for n in names})
    table = data.table("rocm")
    yield from _rows({v: rocm.release_of_kernel(v) for v in (*table["kernel"], "1.0")})
    yield from _rows({r: rocm.bounds_of_kernel(r) for r in (*table["tested"], "1.0")})
    bounds = (("6.2", "6.4"), (None, "6.4"), ("6.2", None), (None, None))
    yield from _rows(
        {(r, b): rocm.is_outside(r, *b) for r in ("6.1.9", "6.2", "6.4.9", "6.5", "6", "7") for b in bounds}
    )


def _files() -> Iterable[str]:
    kinds = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK, stat.S_IFIFO, 0)
    facts = [Stat.from_lstat(kind | 0o7654, 1, 2, 345, (6, 7)) for kind in kinds]
    yield from (f"{one!r} {NOUNS[one.kind]} {one.rights()}" for one in facts)
    lists = ("", "user::rw-,user:9:rwx,group::r-x,group:8:-w-,mask::rw-,other::--x", "user::r--,group::rwx,other::---")
    for acl in lists:
        for mode in (0o754, 0o147, 0o070):
            node = Stat("char", mode, 1, 2, 0, acl=acl)
            who = ((0, (0,)), (1, (2,)), (9, ()), (5, (2,)), (5, (8,)), (5, (2, 8)), (5, ()))
            yield f"{acl} {mode:o} {node.rights()} {[node.permission_bits(*one) for one in who]}"
    yield from _rows({n: ANSWERS.get(n) for n in ERRNOS})
    for path in ("/sys/x", "/proc/x", "/dev/x"):
        yield f"{path} {[n for n in ERRNOS if answers.is_optional(path, OSError(n, 'x'))]}"
    yield from _constants(answers, "PASSING ATTRIBUTES OF_DEVICES CHANGED")
    yield from _rows(budget.BOUNDS)
    factors = (None, "", "0", "1", "7", "1000", "1001", "9999", "10000", "-1", "x", "\u0661")
    yield from _rows({value: budget.times_of(value) for value in factors})


def _questions() -> Iterable[str]:
    yield from questions.ASKED
    yield from _constants(trace, "_FORBIDDEN _ANSWERS _MORE_ANSWERS SMALL")
    yield from _constants(answer, "COMMANDS SWITCH ARGS_LIMIT _VARIABLES")
    yield from _constants(memo_files, "FORM SIZE_LIMIT ROOTS_DIRECTORY SECRET SECRET_SIZE")
    yield from _constants(filesystems, "_BLOCK _IN_MEMORY _HONEST _NETWORK YOUNG_NS SKEW_NS")
    yield from _constants(base, "PLAN_VARIABLES SEARCHED LIST_FILES GPUDIRECT_VARIABLES MIG_VARIABLES")
    yield from _constants(directories, "PATH_VARIABLES SITE_DIRECTORY LIST_LIMIT")
    yield from _constants(programs, "PROGRAM_DIRECTORIES ENVIRON")
    yield from hosts.__all__


def _surveyed() -> Iterable[str]:
    names = (
        "a.json",
        "b.icd",
        "c.conf",
        "d.yaml",
        "e.csv",
        "f.toml",
        "access",
        "config",
        "devices",
        "family",
        "gpu_id",
    )
    more = (
        "information",
        "initstate",
        "mig-minors",
        "model",
        "modeset",
        "monitor",
        "name",
        "nv_tegra_release",
        "version",
    )
    rest = ("os-release", "params", "properties", "registry", "enforce", "xversion", "a.jsonx", "container_use_devices")
    yield from _rows({name: surveyed._TEXT_NAME.search(name) is not None for name in (*names, *more, *rest)})
    gpu = (
        "nvidia",
        "cuda",
        "nvcuvid",
        "nvoptix",
        "nvsci",
        "nvmap",
        "libEGL.so",
        "xlibEGL",
        "gbm",
        "amd",
        "rocm",
        "hsa",
    )
    others = ("hip", "drm", "numa", "kfd", "dxcore", "mesa", "xpum", "comgr", "hc_am", "tls_test", "libvdpau", "libpci")
    yield from _rows(
        {name: surveyed.GPU_NAME.search(name) is not None for name in (*gpu, *others, "intel.icd", "libze_x", "libc")}
    )
    homes = (
        "/root",
        "/root/x",
        "/rootx",
        "/home/a",
        "/x/Users/b",
        "/home",
        "/home/kubernetes/bin",
        "/home/kubernetesx",
        "/h",
    )
    yield from _rows({path: surveyed.is_in_a_home(path) for path in homes})
    yield from (name for name in survey._TEXTS + survey._OF_DISPLAYS + survey._BELOW_LIBRARIES + survey._BELOW_ROCM)
    yield from _constants(fleet, "ANSWER_LIMIT HELD_LIMIT NOISE_LIMIT")
    yield from (" ".join(fleet.command_on_nodes(("check", "a b"), "N", 30, is_sent=sent)) for sent in (False, True))


TABLES: dict[str, Callable[[], Iterable[str]]] = {
    "architectures": _architectures,
    "directories": _directories,
    "vendors": _vendors,
    "chips": _chips,
    "codes": _codes,
    "versions": _versions,
    "files": _files,
    "questions": _questions,
    "surveyed": _surveyed,
}


@pytest.mark.parametrize("name", TABLES)
def test_each_row_of_a_table_is_as_recorded(name: str) -> None:
    assert_golden(GOLDEN / "tables" / f"{name}.txt", "".join(f"{line}\n" for line in TABLES[name]()))


class _Listening(surveyed.SurveyedTree):
    """A tree that writes down each path that it is asked for."""

    paths: dict[str, None]

    def resolve(self, path: str) -> Union[RootedPath, Missing]:
        self.paths[path] = None
        return super().resolve(path)


def test_a_survey_asks_for_the_recorded_paths(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/etc/os-release": "ID=debian\n", "/dev/nvidia0": b"", "/opt/rocm-6.1/lib/x": b""})
    live = LiveHost(str(tmp_path), str(tmp_path), {"PATH": "/p:q", "ROCM_PATH": "/r", "CUDA_MPS_PIPE_DIRECTORY": "/m"})
    host = surveyed.SurveyedHost(live)
    host.uname = Uname("6.1", "x86_64")
    host.driver = host.dev = tree = _Listening(live.driver, surveyed._RecordedAnswers())
    tree.paths = {}
    survey.look_around(host)
    rows: list[str] = []
    for path in tree.paths:
        head = rows[-1].partition(":")[0] if rows else "-"
        if path.startswith(f"{head}/"):
            rows[-1] += path.replace(f"{head}/", " ", 1)
        else:
            rows.append(f"{path}:")
    assert_golden(GOLDEN / "tables" / "survey.txt", "".join(f"{row}\n" for row in rows))
