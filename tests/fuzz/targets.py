"""What is fuzzed: each target has good inputs, and takes any bytes. It may raise gpubind's own errors alone."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Optional

from gpubind import check, open_host, plan
from gpubind.documents import CHECK_DOCUMENTS, DIFF_DOCUMENTS, PERSISTENT_DOCUMENTS, PLAN_DOCUMENTS
from gpubind.documents.diff.comparison import compare
from gpubind.documents.diff.snapshot import Snapshot, outcome_of, snapshot_of, snapshot_of_images
from gpubind.documents.expectation import render_expectation
from gpubind.documents.explanation import render_explanation, render_json, render_text
from gpubind.documents.fleet import AnswerGroups, answers_table, render_answer, render_group_findings
from gpubind.documents.text import printable, render_finding
from gpubind.documents.tree import LinkageTree, render_tree_dot, render_tree_json, render_tree_text
from gpubind.errors import Format, GpubindError
from gpubind.explanation.answer import Answer
from gpubind.explanation.decisions import explain
from gpubind.explanation.messages import find_message, heading, messages, nearest_messages, search
from gpubind.files.blob import Blob
from gpubind.files.compressed import unpacked
from gpubind.fleet.answers import AnswerCollector
from gpubind.formats.archive.bundle import parse_bundle
from gpubind.formats.archive.oci import (
    parse_docker_manifest,
    parse_inspected,
    parse_oci_config,
    parse_oci_index,
    parse_oci_manifest,
)
from gpubind.formats.archive.tar import parse_pax
from gpubind.formats.driver.cdi import parse_cdi
from gpubind.formats.driver.filelist import parse_filelist
from gpubind.formats.driver.gpu_names import parse_gpu_id, parse_gpus_option
from gpubind.formats.driver.icd import parse_icd, with_library_paths
from gpubind.formats.driver.kernel import (
    parse_devices,
    parse_driver_version,
    parse_fields,
    parse_gpu_information,
    parse_groups,
    parse_mig_minors,
    parse_module_version,
    parse_properties,
)
from gpubind.formats.driver.liblist import parse_liblist
from gpubind.formats.driver.nvidia import parse_failure, parse_list
from gpubind.formats.driver.require import evaluate
from gpubind.formats.driver.tegra import parse_mount_specs
from gpubind.formats.elf.dynamic import parse_cuda_note, parse_elf
from gpubind.formats.elf.elf import is_stub, parse_ident
from gpubind.formats.elf.ldcache import parse_ldcache, parse_ldsoconf
from gpubind.formats.elf.named import parse_named_libraries
from gpubind.formats.gpucode.sections import parse_gpu_code
from gpubind.formats.text.json import parse_json
from gpubind.formats.text.requirements import parse_expectation, parse_policy
from gpubind.formats.text.shell import Exports, parse_exports
from gpubind.formats.text.yaml import parse_yaml
from gpubind.host import Host
from gpubind.host.record import dump_record, parse_record
from gpubind.image.facts import Image, read_image
from gpubind.image.open import open_image
from gpubind.image.tar import members
from gpubind.loader.hwcaps import parse_cpuinfo
from gpubind.machine.budget import one_command
from gpubind.model import CudaNote, HostPath, Plan, Request, finding
from gpubind.model.data import read_data
from gpubind.rules.linkage import linkage_of
from gpubind.rules.outcome import Report
from gpubind.rules.preflight import preflight
from gpubind.runtimes import RUNTIMES
from gpubind.runtimes.runtime import Stage
from tests.fuzz.seeds import CDI, ICD, JSON_WORDS, SEEDS, SHELL_WORDS, YAML_WORDS
from tests.support.driver import V, cache, kernel, libraries
from tests.support.elf import elf
from tests.support.gpucode import bundle, compressed, container
from tests.support.images import glibc, sandbox
from tests.support.layers import archive, docker_archive, oci_layout, packed, tar, zstd
from tests.support.ldcache import build_ldcache, entry
from tests.support.squashfs import SifObject, sif, squashfs
from tests.support.starts import start_by
from tests.support.surveys import survey
from tests.support.trees import Item, Link, Spec, recorded_host, recorded_tree

DATA = Path(__file__).parent.parent / "data"
HOST = "debian13-nvidia550"
PROGRAM = "/opt/app"


class Target(NamedTuple):
    """One thing that is fuzzed."""

    seeds: Callable[[], Sequence[bytes]]
    """Good inputs; made when they are first wanted."""
    take: Callable[[bytes], object]
    words: Sequence[bytes] = ()
    """What the format has in it."""
    weight: int = 40
    """How often it is its turn, beside the others."""


def _text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: parse(data.decode("utf-8", "surrogateescape"))


def _files(pattern: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(DATA.glob(pattern)) if path.stat().st_size < 1 << 16)


# Parsers.


def _requirement(text: str) -> object:
    return evaluate(text, {"cuda": "12.4", "driver": "550.163.01"})


def _elf_seeds() -> tuple[bytes, ...]:
    return (
        elf("liba.so.1", needed=("libb.so.1", "libc.so.6"), runpath="$ORIGIN/../lib:/opt"),
        elf(kind=2, interpreter="/lib64/ld-linux-x86-64.so.2", needs={"libc.so.6": ["GLIBC_2.2.5", "GLIBC_2.34"]}),
        elf("libc.so.6", defines=["libc.so.6", "GLIBC_2.2.5", "GLIBC_2.36"], bits=32, machine=3),
        elf("libx.so", rpath="/a:/b", executable_stack=True, no_default_directories=True),
        elf("libcuda.so.1", defines=["libcuda.so.1"], cuda_note=CudaNote("12.9", (575,)), order="big", machine=21),
    )


def _elf(data: bytes) -> None:
    parse_ident(data[:256])
    is_stub(data)
    parse_elf(io.BytesIO(data))


def _gpu_code_seeds() -> tuple[bytes, ...]:
    one = container("sm_80", "sm_90a", "compute_90") + container("sm_100f", "sm_120", packed=True)
    amd = bundle("gfx90a:xnack-", "gfx1100")
    sections = (
        {".nv_fatbin": one},
        {"__nv_relfatbin": one},
        {".hip_fatbin": amd + compressed(amd).ljust(4096, b"\0") + compressed(amd, 3, method=1)},
    )
    return tuple(elf("libx.so", more=more) for more in sections)


class _Counting(io.BytesIO):
    """A file, and how often it was read."""

    reads = 0

    def read(self, size: Optional[int] = -1) -> bytes:
        self.reads += 1
        assert size is not None
        assert 0 <= size <= 1 << 22
        return super().read(size)


def _gpu_code(data: bytes) -> None:
    """Any file costs a bounded number of reads, and no text of it gets into a name of an architecture."""
    stream = _Counting(data)
    code = parse_gpu_code(stream)
    assert stream.reads <= (1 << 16) + 100
    assert all(
        re.fullmatch(r"(sm|compute)_[0-9]+[af]?|gfx[0-9a-z:+-]+|amdgcnspirv", one) for one in code.code + code.ptx
    )


def _named(data: bytes) -> None:
    """Any file costs a bounded number of reads, and what it names are names."""
    stream = _Counting(data)
    found = parse_named_libraries(stream)
    assert stream.reads <= 100
    assert all(re.fullmatch(r"lib[\w+-]+\.so(\.[0-9]+)*", name) for name in found.names)


POLICIES = (b'driver = "525"\ngpus = ["sm_80+", "gfx90a"]\ncapabilities = ["compute"]\nbrings-driver = false\n',)


def _policy(data: bytes) -> None:
    policy = parse_policy(data)
    assert all(re.fullmatch(r"sm_[0-9]+|gfx[0-9a-f]+(:\w+[+-])*", gpu) for gpu in policy.gpus)


def _caches() -> tuple[bytes, ...]:
    entries = [entry("libcuda.so.1"), entry("libc.so.6", hwcap="x86-64-v3"), entry("libc.so.6", hwcap="legacy")]
    layouts = [build_ldcache(entries[:2], layout, generator="ldconfig 2.36") for layout in ("new", "combined")]
    return (*layouts, build_ldcache(entries, flag=0))


def _cache(data: bytes) -> None:
    parsed = parse_ldcache(data)
    found = [*parsed, *parsed.entries_with_prefix(["lib"])]
    for name in {known.name for known in found[:8]}:
        parsed.entries_named(name)


EXPECTATIONS = (
    b'driver = "550"\ncapabilities = ["compute"]\n[gpus]\n"NVIDIA A100" = 8\n',
    b'driver = ["6.2"]\ngpus = 4\n',
)


def _expectation(data: bytes) -> None:
    expected = parse_expectation(data)
    if all(number and model for model, number in expected.gpus) and expected.drivers:
        written = parse_expectation(render_expectation(expected).encode("utf-8"))
        assert [number for _, number in written.gpus] == [number for _, number in expected.gpus]


def _record(data: bytes) -> None:
    record = parse_record(data)
    assert parse_record(dump_record(record, "1").encode()) == record


def _snapshot_seeds() -> tuple[bytes, ...]:
    minor = finding("cuda-minor-version", subject="12.4", libcuda="the driver", serves="12.2", driver="driver 550")
    of_image = snapshot_of_images("node1", _plan(), (), [outcome_of("app.sif", [minor])])
    whole = snapshot_of("node1", _plan(), release="6.1")
    return tuple(json.dumps(one.to_dict()).encode() for one in (whole, of_image))


def _snapshot(data: bytes) -> None:
    """What a node says of itself: compared with a good one, as text, as documents and as a page."""
    told = Snapshot.from_dict(parse_json(data, 1 << 20, SNAPSHOT, allow_surrogates=True))
    good = snapshot_of_images("node2", _plan(), (), [outcome_of("app.sif", ())])
    compared = compare([snapshot_of("node2", _plan()) if not told.images else good, told])
    for document in DIFF_DOCUMENTS.values():
        _encoded(document.render(compared))


def _node_answers() -> tuple[bytes, ...]:
    finding = {"code": "x-y", "severity": "error", "vendor": None, "subject": "s", "what": "w", "where": "/a"}
    check = {"checked": {"drivers": [{"vendor": "nvidia", "version": "550.1"}]}, "plan": "d", "findings": [finding]}
    error = {"schema": "gpubind.error/1", "code": "no-image", "what": "w", "hint": "h"}
    documents = ({"schema": "gpubind.check/1", **check}, error, snapshot_of("node1", _plan()).to_dict())
    line = '{"fleet":"0","node":"n1","document":%s,"exit":1,"end":"0"}\n'
    return tuple((line % json.dumps(document)).encode() for document in documents)


def _node_answer(data: bytes) -> None:
    """What a node prints: in a table, in full, and as a line of JSON that any reader takes."""
    folding = AnswerGroups()
    listener = AnswerCollector("0", ["n1"], folding.add)
    listener.receive("n1", False, data)
    listener.finish_node("n1", 0)
    groups = folding.groups()
    _encoded(render_group_findings(groups, ",".join, verbose=True))
    _encoded(repr(answers_table(groups, ",".join)))
    line = render_answer(groups[0].answer)
    assert line.index("\n") == len(line) - 1
    assert not {"NaN", "Infinity"} & set(re.findall(r"[A-Za-z]+", re.sub(r'"(?:[^"\\]|\\.)*"', "", line)))
    json.loads(line)


def _shell(data: bytes) -> None:
    before = Exports({"PATH": None})
    exports = parse_exports(data.decode("utf-8", "surrogateescape"), before)
    parse_exports("export A=$LD_LIBRARY_PATH${PATH:-x}", exports)


def _log(data: bytes) -> None:
    """What a log has is found once, in its lines, and can be told."""
    log = search([data])
    assert all(1 <= one.line <= log.lines for one in log.found)
    assert len({one.message.name for one in log.found}) == len(log.found)
    text = data.decode("utf-8", "surrogateescape")
    found = find_message(text)
    for one in found:
        _encoded(heading(one))
    nearest_messages(log.complaints)
    for answer in (Answer(text, found), Answer(None, log.found)):
        if answer.messages:
            _encoded(render_text(answer, 80))
            _encoded(render_json(answer))


def _seen_lines() -> tuple[bytes, ...]:
    """Return the lines that each known message was seen in."""
    return tuple("\n".join((row.message, *(line for _, line, _ in row.seen))).encode() for row in messages())


def _icd(data: bytes) -> None:
    found = parse_icd(data)
    with_library_paths(found, dict.fromkeys(found.libraries, "/x")).encode("utf-8", "surrogateescape")


class _Memory(Blob):
    def __init__(self, data: bytes) -> None:
        self.label, self.size = "memory", len(data)
        self._data = data

    def read_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size] if size > 0 else b""


def _tar(data: bytes) -> None:
    for member, _ in zip(members(unpacked(_Memory(data))), range(10_000)):
        assert 0 <= member.start < member.data


SNAPSHOT = Format("bad-snapshot", "no snapshot")
SMALL_TAR = tar({"/etc/ld.so.conf": "/opt\n", "/lib": Link("usr/lib"), "/" + "n" * 200: "x", "/a": Link("t" * 200)})
LISTS = (read_data("etc/nvliblist.conf"), b"[libs]\nlibcuda.so\n")


def _gpu_ids(text: str) -> None:
    parse_gpus_option(text)
    for part in text.split(","):
        parse_gpu_id(part)


def _of_seeds(name: str, take: Callable[[bytes], object], words: Sequence[bytes] = (), weight: int = 40) -> Target:
    return Target(lambda: SEEDS[name], take, words, weight)


PARSERS: dict[str, Target] = {
    "elf": Target(_elf_seeds, _elf, (b"\x7fELF", b"\xfe\xff\xff\x6f", b"\xfc\xff\xff\x6f"), 6),
    "gpu-code": Target(_gpu_code_seeds, _gpu_code, (b"\x50\xed\x55\xba", b"CCOB", b"__CLANG_OFFLOAD_BUNDLE__"), 6),
    "ld-cache": Target(_caches, _cache, (b"glibc-ld.so.cache1.1", b"ld.so-1.7.0\0", b"\x24\xa0\xd7\x42")),
    "record": Target(lambda: (_small_record(),), _record, JSON_WORDS, 2),
    "snapshot": Target(_snapshot_seeds, _snapshot, JSON_WORDS, 2),
    "node-answer": Target(_node_answers, _node_answer, (*JSON_WORDS, b"NaN", b"1e999"), 2),
    "tar": Target(lambda: (SMALL_TAR, packed(SMALL_TAR), zstd(SMALL_TAR)), _tar, (b"ustar\0", b"ustar  \0"), 5),
    "named": Target(
        lambda: (elf("libx.so", more={".rodata": b"\0libcuda.so.1\0"}),), _named, (b".rodata", b"lib", b".so"), 4
    ),
    "policy": Target(lambda: POLICIES, _policy, (b"gpus", b"driver", b"sm_", b"= ")),
    "expectation": Target(lambda: EXPECTATIONS, _expectation, (b"[gpus]", b"driver", b"capabilities", b"= ")),
    "list": Target(lambda: LISTS, lambda data: parse_liblist(data, "l"), (b"[", b"]")),
    "shell": _of_seeds("shell", _shell, SHELL_WORDS),
    "icd": _of_seeds("icd", _icd, JSON_WORDS),
    "tegra-list": _of_seeds(
        "tegra-list", parse_mount_specs, (b"dev, ", b"lib,", b"sym,/", b"dir", b"../", b"//", b"*")
    ),
    "file-list": _of_seeds("file-list", parse_filelist, JSON_WORDS),
    "oci-config": _of_seeds("oci-config", parse_oci_config, JSON_WORDS),
    "oci-index": _of_seeds("oci-index", parse_oci_index, JSON_WORDS),
    "oci-manifest": _of_seeds("oci-manifest", parse_oci_manifest, JSON_WORDS),
    "docker-manifest": _of_seeds("docker-manifest", parse_docker_manifest, JSON_WORDS),
    "inspected": _of_seeds("inspected", parse_inspected, JSON_WORDS),
    "bundle": _of_seeds("bundle", parse_bundle, JSON_WORDS),
    "cdi": _of_seeds("cdi", parse_cdi, (*JSON_WORDS, *YAML_WORDS)),
    "yaml": _of_seeds("yaml", parse_yaml, YAML_WORDS),
    "pax": _of_seeds("pax", parse_pax),
    "ld.so.conf": _of_seeds("ld.so.conf", _text(parse_ldsoconf)),
    "cuda-note": _of_seeds("cuda-note", lambda data: parse_cuda_note(data, "little"), JSON_WORDS),
    "driver-version": _of_seeds("driver-version", _text(parse_driver_version)),
    "module-version": _of_seeds("module-version", _text(parse_module_version)),
    "gpu-information": _of_seeds("gpu-information", _text(parse_gpu_information)),
    "params": _of_seeds("params", _text(parse_fields)),
    "devices": _of_seeds("devices", _text(parse_devices)),
    "groups": _of_seeds("groups", _text(parse_groups)),
    "mig-minors": _of_seeds("mig-minors", _text(parse_mig_minors)),
    "nvidia-cli": _of_seeds("nvidia-cli", _text(parse_list)),
    "nvidia-cli-failure": _of_seeds("nvidia-cli-failure", _text(parse_failure)),
    "require": _of_seeds("require", _text(_requirement)),
    "gpu-ids": _of_seeds("gpu-ids", _text(_gpu_ids)),
    "kfd": _of_seeds("kfd", _text(parse_properties)),
    "cpuinfo": _of_seeds("cpuinfo", _text(parse_cpuinfo)),
    "log": Target(_seen_lines, _log, (b"libcuda.so.1", b"GLIBC_2.34", b"\x1b[31m", b"Xid", b": "), 10),
    "printable": _of_seeds("printable", _text(lambda text: _encoded(printable(text))), weight=2),
}


# Images: from the bytes to every document of a check, and every runtime's words.


@lru_cache(maxsize=1)
def _host() -> Host:
    return open_host(HOST)


@lru_cache(maxsize=1)
def _plan() -> Plan:
    return plan(_host(), Request(vendors=("nvidia",)))


SPEC: Spec = {
    **glibc("2.36"),
    **sandbox("export LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH"),
    "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n/opt/lib\n",
    "/etc/ld.so.cache": build_ldcache([entry("liba.so.1", "/opt/lib/liba.so.1"), entry("libc.so.6")]),
    "/opt/lib/liba.so.1": elf("liba.so.1", needed=("libc.so.6",)),
    "/opt/lib/libcuda.so.1": elf("libcuda.so.1"),
    "/usr/local/cuda": Link("cuda-12.4"),
    "/usr/local/cuda-12.4/version.json": '{"cuda": {"version": "12.4.1"}}',
    "/usr/local/cuda-12.4/compat/libcuda.so.1": elf("libcuda.so.1", needed=("libc.so.6",)),
    PROGRAM: elf(kind=2, needed=("liba.so.1", "libcuda.so.1"), interpreter="/lib64/ld-linux-x86-64.so.2"),
}
IN_IMAGE = (
    "/.singularity.d/env/10-docker2singularity.sh", "/etc/ld.so.conf", "/etc/ld.so.cache", "/opt/lib/liba.so.1",
    "/usr/local/cuda-12.4/version.json", "/usr/local/cuda-12.4/compat/libcuda.so.1", PROGRAM,
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
)  # fmt: skip


def _of(spec: Spec, path: str) -> bytes:
    item = spec[path]
    item = item if isinstance(item, (bytes, str)) else getattr(item, "data", b"")
    return item.encode() if isinstance(item, str) else item


def _open(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        image = open_image(file.name)
        image.loader.find("libcuda.so.1")
        for path in ("/etc", "/opt/lib", "/.singularity.d/env"):
            for name in image.tree.names(path)[:20]:
                image.tree.find(f"{path}/{name}")
                image.tree.elf(f"{path}/{name}")


def _look(image: Image) -> None:
    """All that is made of an image: the findings in every form, the plan for every runtime, its words."""
    findings = check(_host(), _plan(), image, program=PROGRAM)
    made = plan(_host(), Request(vendors=("nvidia",)), image=image)
    linked = linkage_of(preflight(_host(), made, image, program=PROGRAM))
    for document in CHECK_DOCUMENTS.values():
        _encoded(document.render(Report(made, findings, (), linked=linked)))
    if linked:
        tree = LinkageTree(PROGRAM, (PROGRAM,), "image", linked)
        for render in (render_tree_text, render_tree_json, render_tree_dot):
            _encoded(render(tree))
    _write(made, image)


def _write(made: Plan, image: Optional[Image] = None) -> None:
    for document in PLAN_DOCUMENTS.values():
        _encoded(document.render(made, verbose=True))
    for each in made.findings:
        _encoded(render_finding(each))
    staged = dict.fromkeys(made.generated, HostPath("/staged"))
    for lasting in PERSISTENT_DOCUMENTS.values():
        if lasting.content == "mounts":
            with contextlib.suppress(GpubindError):
                _encoded(lasting.document.render(made, staged))
    for name in RUNTIMES:
        with contextlib.suppress(GpubindError):
            start = start_by(name, tree=image.tree if image else None)
            said = RUNTIMES[name].arguments(made, start, Stage(staged))
            _encoded(" ".join((*said.options, said.document)) if said is not None else "")


def _encoded(text: str) -> None:
    text.encode("utf-8", "surrogateescape")


def _in_image(path: str) -> Target:
    """The file *path* of an image is fuzzed."""

    def take(data: bytes) -> None:
        _look(read_image(recorded_tree({**SPEC, path: data}, "/images/fuzzed"), "fuzzed"))

    return Target(lambda: (_of(SPEC, path),), take, SHELL_WORDS if path.endswith(".sh") else (), 1)


TINY: Spec = {path: SPEC[path] for path in ("/etc/ld.so.conf", "/opt/lib/liba.so.1", "/lib")}
IMAGES: dict[str, Target] = {
    "sif": Target(lambda: (sif(SifObject(squashfs(TINY)), slots=2)[:30_000],), _open, (b"SIF_MAGIC\0", b"hsqs"), 3),
    "squashfs": Target(lambda: (squashfs(TINY), squashfs(TINY, pack=bytes)), _open, (b"hsqs",), 6),
    "squashfs-files": Target(lambda: _files("images/*.squashfs"), _open, (), 3),
    "docker-archive": Target(lambda: (archive(docker_archive([tar(dict(TINY))])),), _open, JSON_WORDS, 3),
    "oci-archive": Target(lambda: (archive(oci_layout([packed(tar(dict(TINY)))])),), _open, JSON_WORDS, 3),
    **{f"image{path}": _in_image(path) for path in IN_IMAGE},
}


# Hosts: from one file of a host to every document of a plan.

DRIVER: Spec = {
    **libraries("/usr/lib64"),
    **kernel(V, 2),
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": ICD,
    "/usr/share/nvidia/files.d/sandboxutils-filelist.json": SEEDS["file-list"][0].replace(b".1", b"." + V.encode()),
    "/etc/cdi/nvidia.json": CDI,
}
IN_HOST = (
    "/etc/ld.so.cache", f"/usr/lib64/libcuda.so.{V}", "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/nvidia/files.d/sandboxutils-filelist.json", "/etc/cdi/nvidia.json", "/proc/devices", "/etc/group",
    "/sys/module/nvidia/version", "/proc/driver/nvidia/gpus/0000:01:00.0/information",
)  # fmt: skip


def _host_spec() -> dict[str, Item]:
    return {"/etc/ld.so.cache": cache(DRIVER, ("/usr/lib64",)), "/etc/group": "root:x:0:\nvideo:x:44:\n", **DRIVER}


def _in_host(path: str) -> Target:
    """The file *path* of a host is fuzzed."""

    def take(data: bytes) -> None:
        host = recorded_host({**_host_spec(), path: data})
        for source in ("auto", "driver", "cdi"):
            with contextlib.suppress(GpubindError):
                made = plan(host, Request(source=source))
                _write(made)
                report = Report(made, check(host, made), ())
                for document in CHECK_DOCUMENTS.values():
                    _encoded(document.render(report))
                _encoded(render_explanation(explain(made, "libcuda.so.1")))

    return Target(lambda: (_of(_host_spec(), path),), take, JSON_WORDS, 1)


def _small_record() -> bytes:
    return dump_record(survey(recorded_host(_host_spec())), "1").encode()


HOSTS = {f"host{path}": _in_host(path) for path in IN_HOST}
TARGETS: dict[str, Target] = {**PARSERS, **IMAGES, **HOSTS}


def take(name: str, data: bytes) -> None:
    """Give *data* to the target called *name*. Whatever gets out is a fault."""
    try:
        with one_command():
            TARGETS[name].take(data)
    except GpubindError as error:
        assert error.what
        assert "MemoryError" not in error.why
        _encoded(printable(f"{error.code} {error.what} {error.where} {error.why} {error.hint}"))


def seeds_of(name: str) -> Iterator[bytes]:
    """The good inputs of the target called *name*, no larger than what is made of them."""
    yield from (seed[: 1 << 16] for seed in TARGETS[name].seeds())


if os.environ.get("GPUBIND_BOUNDS"):
    raise SystemExit("GPUBIND_BOUNDS is set: fuzz with the bounds that users have")
