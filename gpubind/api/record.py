"""A record that answers like its host: the fixed survey, and every query of planning.

gpubind makes plans for every source, vendor, capability, `--like` program, CDI device and runtime, with and without an
image. The record has all files that these plans query (`gpubind/host/surveyed.py`). Finally, the same plans are made
from the record; they must be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from gpubind import __version__
from gpubind.api.check import CheckRequest, errors_of
from gpubind.api.diff import without_job
from gpubind.api.verb import verb
from gpubind.errors import BoundError, GpubindError, HostReadError, NothingToBindError, UsageError
from gpubind.formats.driver.liblist import parse_liblist
from gpubind.formats.elf.elf import ElfFacts, ElfIdent
from gpubind.frozen import NamedTuple
from gpubind.host import Host, ListFile
from gpubind.host.record import (
    SIZE_LIMIT,
    Record,
    RecordedDirectory,
    RecordedEntry,
    RecordedRoot,
    dump_record,
    parse_record,
)
from gpubind.host.recorded import RecordedHost, RecordedTree
from gpubind.host.redaction import Redaction
from gpubind.host.survey import look_around
from gpubind.host.surveyed import SurveyedHost, is_in_a_home
from gpubind.image.facts import Image, read_image
from gpubind.inventory.cdi.specs import read_registry
from gpubind.launch.preflight import make_preflight
from gpubind.machine.budget import renew
from gpubind.model import CAPABILITIES, VENDORS, Finding, HostPath, Request, Stat
from gpubind.model.arch import Architecture, architecture
from gpubind.model.data import BUNDLED_HOSTS, read_data
from gpubind.model.requirements import Expectation
from gpubind.planner import empty_plan, like
from gpubind.planner.expected import make_expectation
from gpubind.planner.like import FLAVOURS
from gpubind.planner.placement import GPUBIND_LAYOUT
from gpubind.planner.planning import PlanQuery, plan_host
from gpubind.planner.request import SOURCES, validate_request
from gpubind.rules.table import check
from gpubind.runtimes import RUNTIMES

_FIRST_USER = 1000
"""Users with lower numbers belong to the system. Source: login.defs(5), UID_MIN."""
_COMMON_TEXTS = ("findings", "errors", "names", "plan.schema", *(f"hosts/{name}" for name in BUNDLED_HOSTS))
"""Data of gpubind whose words, those of gpubind and of drivers, name no user and no machine."""
_RECORD_TIMES = 10
"""The factor by which the usual bounds are multiplied: a record has all files of a host, such as a dozen releases
of ROCm.
"""


class Question(NamedTuple):
    """A plan for a host, and checks of it."""

    request: Request
    listfile: Optional[ListFile] = None
    image: Optional[Image] = None
    backends: tuple[str, ...] = ()
    """The runtimes for which the plan is checked. It is also checked without a runtime."""


@verb
def record(
    host: Host,
    description: str = "",
    hostname: Optional[str] = None,
    *,
    request: Request = Request(),  # noqa: B008 - a frozen value
    listfile: Optional[ListFile] = None,
    redact: bool = False,
) -> str:
    """Return *host* as the text of a record: what `--host FILE` reads.

    It answers like *host*, also to requests with the `library_path` and `cdi_directories` of *request* and with
    *listfile*. *redact*: replace the names of users, machines and GPUs. Errors: `UsageError` (code `home-in-record`)
    for such a directory in a home; `FormatError` for a malformed list file; `HostReadError` (code `unfaithful-record`)
    if the record would answer otherwise.
    """
    request = validate_request(request)
    if listfile is not None:
        parse_liblist(listfile.data, listfile.label)
    for path in (*request.library_path, *request.cdi_directories):
        if is_in_a_home(path):
            why, hint = "a record names nobody", "record the host without it, or have it elsewhere"
            raise UsageError(
                "home-in-record", "a record keeps nothing of home directories", where=path, why=why, hint=hint
            )
    renew(_RECORD_TIMES)
    surveyed = SurveyedHost(host)
    look_around(surveyed)
    questions = tuple(_questions(surveyed, request, listfile))
    expected = [_answer(surveyed.anew(), question) for question in questions]
    host_record = surveyed.recorded(description, hostname)
    redaction = redaction_of(host, host_record) if redact else None
    text = dump_record(host_record if redaction is None else redaction.record(host_record), __version__)
    if len(text) > SIZE_LIMIT:
        why = f"{len(text)} bytes; {SIZE_LIMIT} can be read again"
        raise HostReadError("unreadable-file", "this host is too large for a record", where=host.driver.root, why=why)
    again = parse_record(text.encode())
    for question, answer in zip(questions, expected):
        if redaction is not None:
            question, answer = question._replace(request=redaction.of(question.request)), redaction.text(answer)
        replayed = _answer(RecordedHost(again, host.label), question)
        is_same = replayed == answer if redaction is None else _in_any_order(replayed) == _in_any_order(answer)
        if not is_same:
            raise _unfaithful(host, question, answer, replayed)
    return text


def expectation(host: Host, query: PlanQuery, counted: CheckRequest) -> tuple[Expectation, list[Finding]]:
    """Return the expectation for nodes like *host*, and the *counted* errors of its check. Errors: as `plan_host`."""
    plan = plan_host(without_job(host), query)
    return make_expectation(plan), errors_of(host, plan, counted)


def redaction_of(host: Host, record: Record) -> Redaction:
    """Return the replacements for names in *record*, made from *host*."""
    trees = [tree for tree in (record.driver, record.dev) if tree is not None]
    entries = [
        entry for tree in trees for directory in tree.directories.values() for entry in directory.entries.values()
    ]
    uids = {record.euid, *(entry.stat.uid for entry in entries if isinstance(entry.stat, Stat))}
    users = [host.user_name(uid) for uid in sorted(uids) if uid >= _FIRST_USER]
    hosts = dict.fromkeys(name for name in (host.hostname, record.hostname) if name)
    common = b"".join(read_data(f"model/data/{name}.json") for name in _COMMON_TEXTS).decode()
    return Redaction(record, hosts, filter(None, users), common)


def _in_any_order(answer: str) -> str:
    """Return *answer* with its lines sorted, because their order may depend on names, and without the digest of
    names.
    """
    lines = sorted(line.strip().rstrip(",") for line in answer.splitlines())
    return "\n".join(line for line in lines if not line.startswith('"digest"'))


def _unfaithful(host: Host, question: Question, expected: str, answer: str) -> HostReadError:
    pairs = zip(expected.splitlines(), answer.splitlines())
    first = next((pair for pair in pairs if pair[0] != pair[1]), ("more", "less"))
    options = {name: value for name, value in question.request._asdict().items() if value != getattr(Request(), name)}
    return HostReadError(
        "unfaithful-record",
        "the record would answer otherwise than this host, and is not written",
        where=host.driver.root,
        why=f"asked for {options or 'a plan'}, the host answers `{first[0].strip()}`, the record `{first[1].strip()}`",
        hint="was the host changed meanwhile? Record it again; else it is a fault of gpubind: please report it",
    )


def _questions(host: Host, user_request: Request, listfile: Optional[ListFile]) -> Iterator[Question]:
    """Yield each question that may need files which no other question needs."""
    image = _old_image(architecture(host.uname.machine))
    for library_path in dict.fromkeys(((), user_request.library_path)):
        for directories in dict.fromkeys(((), user_request.cdi_directories)):
            at = Request(library_path=library_path, cdi_directories=directories)
            everything = at._replace(vendors=VENDORS, caps=CAPABILITIES)
            yield Question(at, backends=tuple(RUNTIMES))
            yield Question(everything)
            in_image = everything._replace(libc="host", userspace="host")
            yield Question(in_image._replace(completion=False), image=image)
            yield from (Question(in_image._replace(source=source), image=image) for source in SOURCES)
            devices = tuple(read_registry(host.lenient, directories).devices)
            if devices:
                yield Question(in_image._replace(cdi_devices=devices, source="cdi"), image=image)
            if listfile is not None:
                yield from (Question(in_image._replace(vendors=(vendor,)), listfile, image) for vendor in VENDORS)
    for flavour in FLAVOURS:
        yield from (
            Question(Request(vendors=vendors, like=flavour))
            for vendors in (*((vendor,) for vendor in like.VENDORS), like.VENDORS)
        )


def _answer(host: Host, question: Question) -> str:
    """Errors: `BoundError`; `HostReadError` for a host that cannot be read."""
    renew(_RECORD_TIMES)
    try:
        plan = plan_host(host, PlanQuery(question.request, question.listfile), question.image)
        texts = [plan.to_json()]
    except NothingToBindError as error:
        plan = empty_plan(GPUBIND_LAYOUT, None, question.request.vendors)
        texts = [_error_text(error)]
    except GpubindError as error:
        if isinstance(error, BoundError) or error.code == "unreadable-file":
            raise
        return _error_text(error)
    for runtime in (None, *map(RUNTIMES.__getitem__, question.backends)):
        texts += map(str, check(make_preflight(host, plan, question.image, runtime)))
    return "\n".join(texts)


def _error_text(error: GpubindError) -> str:
    return "\n".join((error.code, error.what, error.where, error.why, error.hint))


def _old_image(machine: Architecture) -> Image:
    """Return an image with the oldest glibc, for which a plan examines each file of the host."""
    entries = {"/usr/lib": {"libc.so.6": _libc(machine)}}
    if machine.compat32 is not None:
        entries["/usr/lib32"] = {"libc.so.6": _libc(architecture(machine.compat32))}
    below = _directories(path.rpartition("/")[2] for path in entries)
    directories = {path: RecordedDirectory(names, (), True) for path, names in entries.items()}
    directories.update({"/": RecordedDirectory(_directories(["usr"]), (), True)})
    directories["/usr"] = RecordedDirectory(below, (), True)
    return read_image(RecordedTree(RecordedRoot(HostPath("/"), directories), "an old image"), "an old image")


def _directories(names: Iterable[str]) -> dict[str, RecordedEntry]:
    return {name: RecordedEntry(Stat("dir", 0o755, 0, 0, 0)) for name in names}


def _libc(machine: Architecture) -> RecordedEntry:
    ident = ElfIdent(machine.bits, machine.byte_order, machine.elf_machine, 3)  # type: ignore[arg-type]  # as in its table
    facts = ElfFacts(ident, "libc.so.6", (), None, None, None, (), ("libc.so.6", "GLIBC_2.0"))
    return RecordedEntry(Stat("file", 0o755, 0, 0, 1), ident=ident, elf=facts)
