"""Record all queries of a host, so that the record gives the same answers.

Only this module decides what a record stores of a file: facts instead of bytes, small texts, and, of files that name
people, only what a plan needs.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Optional, TypeVar, Union

from gpubind.files import Tree
from gpubind.files.facts import ELF, STUB, FileFact
from gpubind.files.ldconfig import LD_CACHE_LIMIT, LD_CACHE_PATH
from gpubind.files.tree import TEXT_LIMIT, FactsTree
from gpubind.formats.driver.engines import DAEMON_FILE, redact_daemon_config
from gpubind.formats.driver.names import STUB_PREFIXES
from gpubind.formats.elf.elf import ElfFacts, ElfIdent, NotElf, parse_ident, split_library_path
from gpubind.host import record
from gpubind.host.base import LIBRARY_PATH, LIST_FILES, Host, ListFile, RunResult
from gpubind.model import ABSENT, Missing, Stat, layouts

GPU_NAME = re.compile(
    r"nvidia|cuda|nvcuvid|nvoptix|nvcu|nvrm|nvos|nvsci|nvsoc|nvtegra|nvmap|nvhost|nvgpu|nvngx|nv-fabric"
    r"|^lib(EGL|GL|OpenGL|OpenCL|vdpau)"
    r"|tls_test|gbm|amd|rocm|rocr|hsa|hip|roc|drm|numa|libpci|kfd|comgr|dxcore|mesa|cltrace|mcwamp|hc_am|CXLAct"
    r"|^libze_|^libig|opencl-clang|xpum|^intel.*\.icd$",
    re.IGNORECASE,
)
"""Names whose facts are recorded in every directory."""

CPUINFO = "/proc/cpuinfo"
CPUINFO_LIMIT = 8 << 20
GROUPS = "/etc/group"
LINK = Stat("link", 0o777, 0, 0, 0)
"""The facts of every link in a record."""

_TEXT_NAME = re.compile(
    r"\.(json|icd|conf|yaml|csv|toml)$"
    r"|^(access|config|devices|family|gpu_id|information|initstate|mig-minors|model|modeset|monitor|name|nv_tegra_release"
    r"|os-release|params|properties|registry|version"
    r"|apparmor_restrict_unprivileged_userns|max_user_namespaces|unprivileged_userns_clone"
    r"|container_use_devices|container_use_xserver_devices|enforce)$"
)
_ELF_NAME = re.compile(r"\.so(\.|$)|^(nvidia|nv-|rocm|amd|xpu)")
_HOME = re.compile(rf"/root(/|$)|.*/(home|users)(?!/{layouts.GKE_HOME_NAME}(/|$))(/|$)", re.IGNORECASE)
_RUNTIME_CONF = re.compile(r"/(apptainer|singularity)\.conf$")
_DIRECTIVES = re.compile(
    rb"^\s*(mount dev|enable overlay|enable underlay|always use nv|always use rocm|user bind control)\s*="
)
_PROCESSOR = re.compile(rb"^(vendor_id|flags)\s*:")


_Fact = TypeVar("_Fact", bound=Union[bytes, ElfIdent, NotElf, ElfFacts, Missing, bool])


class _RecordedAnswers:
    def __init__(self) -> None:
        self.entries: dict[str, record.RecordedEntry] = {}
        self.listings: dict[str, Union[tuple[str, ...], Missing]] = {}

    def directories(self) -> dict[str, record.RecordedDirectory]:
        """Return the answers by directory. Names that are absent are left out if the directory's listing is
        recorded.
        """
        directories = {}
        entries_in: dict[str, dict[str, record.RecordedEntry]] = {}
        for path, entry in self.entries.items():
            parent, _, name = path.rpartition("/")
            entries_in.setdefault(parent or "/", {})[name] = entry
        for path in sorted({*entries_in, *self.listings}):
            names, entries = self.listings.get(path), entries_in.get(path, {})
            if names is None or isinstance(names, Missing):
                directories[path] = record.RecordedDirectory(entries, (), names or False)
                continue
            listed_names = frozenset(names)
            entries = {name: entry for name, entry in entries.items() if name in listed_names or entry.stat != ABSENT}
            others = tuple(name for name in names if name not in entries)
            directories[path] = record.RecordedDirectory(entries, others, True)
        return directories


def is_in_a_home(path: str) -> bool:
    """Return whether *path* is in a user's home, and so names the user."""
    return _HOME.match(path) is not None


class SurveyedTree(FactsTree):
    """A wrapper of *tree* that records its answers in *answers*."""

    def __init__(self, tree: Tree, answers: _RecordedAnswers) -> None:
        super().__init__(tree.root)
        self._tree = tree
        self._answers = answers

    @cached_property
    def lenient(self) -> Tree:
        lenient = self._tree.lenient
        if lenient is self._tree:
            return self
        lenient_tree = SurveyedTree(lenient, self._answers)
        lenient_tree.unseen = self.unseen
        return lenient_tree

    def recorded(self) -> record.RecordedRoot:
        """Return the answers so far."""
        return record.RecordedRoot(self.root, self._answers.directories())

    def look_at(self, path: str, *, text: bool = False, elf: bool = False) -> None:
        """Record *path*, and, according to its name, its text or the facts of a program or library.

        *text*, *elf*: treat it as a text or an ELF file, whatever its name.
        """
        file = self.find(path)
        if isinstance(file, Missing) or file.stat.kind != "file":
            return
        resolved, name = file.path, file.path.rpartition("/")[2]
        if text or _TEXT_NAME.search(name) or resolved.startswith(("/proc/driver/", "/sys/module/")):
            self.read(resolved)
            return
        if not _ELF_NAME.search(name) and not file.stat.mode & 0o111:
            return
        if isinstance(self.ident(resolved), ElfIdent) and (elf or GPU_NAME.search(name) or "nvidia" in resolved):
            self.elf(resolved)
        if name.startswith(STUB_PREFIXES):
            self.is_stub(resolved)

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        return self._entry(path).stat

    def _readlink(self, path: str) -> Union[str, Missing]:
        link = self._entry(path).link
        return ABSENT if link is None else link

    def _list(self, path: str) -> Union[tuple[str, ...], Missing]:
        names = self._tree.list(path)
        if isinstance(names, Missing):
            if names.why != "unrecorded":
                self._answers.listings[path] = names
            return names
        self._answers.listings[path] = names
        lenient = self.lenient
        assert isinstance(lenient, SurveyedTree)
        for name in names:
            if GPU_NAME.search(name):
                lenient.look_at(f"{path.rstrip('/')}/{name}")
        return names

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        body = self._entry(path).body
        if body is None:
            body = self._record_fact(path, "body", self._body(path))
        if isinstance(body, bytes) and len(body) > limit:
            return Missing("unreadable", f"larger than {limit} bytes")
        return body

    def _recorded_fact(self, path: str, fact: FileFact[Any]) -> Any:
        if fact is STUB:
            return self._record_fact(path, fact.name, self._tree.fact(path, fact) is True)
        value = getattr(self._entry(path), fact.name)
        if value is None:
            if fact is ELF:
                self.ident(path)
            value = self._record_fact(path, fact.name, self._tree.fact(path, fact))
        return value

    def _entry(self, path: str) -> record.RecordedEntry:
        entry = self._answers.entries.get(path)
        if entry is None:
            stat = self._tree.lstat(path)
            entry = record.RecordedEntry(stat)
            if isinstance(stat, Stat) and stat.kind == "link":
                target = self._tree.readlink(path)
                entry = record.RecordedEntry(LINK, link=target if isinstance(target, str) else "")
            if not _is_unrecorded(stat):
                self._answers.entries[path] = entry
        return entry

    def _record_fact(self, path: str, fact: str, answer: _Fact) -> _Fact:
        if not _is_unrecorded(answer):
            self._answers.entries[path] = self._entry(path)._replace(**{fact: answer})  # type: ignore[arg-type]  # as its field
        return answer

    def _body(self, path: str) -> Union[bytes, Missing]:
        """Return the bytes of *path* that a record stores: all of a small text, less of a file that names people."""
        if path == self.lenient.resolve(GROUPS):
            return self._groups(self._tree.read(path))
        if path == self.lenient.resolve(LD_CACHE_PATH):
            return self._tree.read(path, LD_CACHE_LIMIT)
        if path == self.lenient.resolve(DAEMON_FILE):
            body = self._tree.read(path, TEXT_LIMIT)
            return body if isinstance(body, Missing) else redact_daemon_config(body)
        if path == CPUINFO:
            return _select_lines(self._tree.read(path, CPUINFO_LIMIT), _PROCESSOR, within=b"\n\n")
        body = self._tree.read(path, TEXT_LIMIT)
        if isinstance(body, Missing):
            return body
        if _RUNTIME_CONF.search(path):
            return _select_lines(body, _DIRECTIVES)
        if path.endswith(".conf"):
            return re.sub(rb"(?m)^([ \t]*#).*$", rb"\1", body)  # without comments
        if isinstance(parse_ident(body), ElfIdent) and not _TEXT_NAME.search(path.rpartition("/")[2]):
            return Missing("unrecorded", "a record holds facts of programs and libraries, and no bytes")
        return body

    def _groups(self, body: Union[bytes, Missing]) -> Union[bytes, Missing]:
        if isinstance(body, Missing):
            return body
        dev, gids = self._tree.lenient, set()
        for directory in ("/dev", "/dev/accel", "/dev/dri", "/dev/nvidia-caps", "/dev/nvgpu/igpu0"):
            for name in dev.names(directory):
                stat = dev.stat(f"{directory}/{name}")
                is_gpus = directory != "/dev" or name.startswith(("kfd", "hl", "dxg")) or GPU_NAME.search(name)
                if not isinstance(stat, Missing) and is_gpus:
                    gids.add(b"%d" % stat.gid)
        lines = [line.split(b":") for line in body.split(b"\n")]
        return b"".join(b"%s:x:%s:\n" % (line[0], line[2]) for line in lines if len(line) > 2 and line[2] in gids)


def _is_unrecorded(answer: object) -> bool:
    return isinstance(answer, Missing) and answer.why == "unrecorded"


def _select_lines(
    body: Union[bytes, Missing], pattern: re.Pattern[bytes], within: Optional[bytes] = None
) -> Union[bytes, Missing]:
    """Return the lines of *body* that match *pattern*; with *within*, only those before that separator."""
    if isinstance(body, Missing):
        return body
    text = body if within is None else body.partition(within)[0]
    return b"".join(line + b"\n" for line in text.split(b"\n") if pattern.match(line))


class SurveyedHost(Host):
    """A wrapper of *host* that records its answers. Like a record it has no users and no `local` tree."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._kept = _RecordedAnswers(), _RecordedAnswers()
        self._begin()
        self.label = host.label
        environ = {}
        for name, value in sorted(host.environ.items()):
            parts = value.split(":")
            if name == LIBRARY_PATH:  # only directories that may hold the driver's libcuda
                absolute = (part for part in split_library_path(value) if part.startswith("/"))
                parts = [part for part in absolute if host.driver.lenient.has(f"{part}/libcuda.so.1")]
            environ[name] = ":".join(part for part in parts if not is_in_a_home(part))
        self.environ = {name: value for name, value in environ.items() if value}
        self.uname, self.identity = host.uname, host.identity
        self._lists = {name: host.liblist(name) for name in LIST_FILES}
        self._runs: dict[tuple[str, ...], Union[RunResult, Missing]] = {}

    def _begin(self) -> None:
        self.driver: Tree = SurveyedTree(self._host.driver, self._kept[0])
        apart = self._host.dev is not self._host.driver
        self.dev: Tree = SurveyedTree(self._host.dev, self._kept[1]) if apart else self.driver

    def anew(self) -> SurveyedHost:
        """Return this host with new trees, whose caches are empty."""
        host = self.copy()
        host._begin()
        return host

    def liblist(self, name: str) -> ListFile:
        return self._lists[name]

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Union[RunResult, Missing]:
        if argv not in self._runs:
            self._runs[argv] = self._host.run(argv, timeout_s)
        return self._runs[argv]

    def recorded(self, description: str = "", hostname: Optional[str] = None) -> record.Record:
        """Return the record of the answers so far. *hostname* is stored only if given."""
        driver, dev = self.driver, self.dev
        assert isinstance(driver, SurveyedTree)
        assert isinstance(dev, SurveyedTree)
        return record.Record(
            description=description,
            hostname=hostname,
            driver=driver.recorded(),
            dev=None if dev is driver else dev.recorded(),
            environ=dict(self.environ),
            release=self.uname.release,
            machine=self.uname.machine,
            euid=self.identity.euid,
            groups=self.identity.groups,
            lists=tuple(
                record.RecordedList(name, file.label, file.data.decode("utf-8", "surrogateescape"))
                for name, file in self._lists.items()
                if not file.shipped
            ),
            runs=tuple(
                record.RecordedRun(argv, missing=answer)
                if isinstance(answer, Missing)
                else record.RecordedRun(argv, *answer)
                for argv, answer in self._runs.items()
                if not (isinstance(answer, Missing) and answer.why == "absent")
            ),
        )
