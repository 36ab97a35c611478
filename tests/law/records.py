"""`python -m tests.law.records --hosts 100 --seed 7`: a record answers what its host answers.

Hosts by chance (`build/layouts.py`), each recorded, each asked many things by chance: plans, checks, explanations,
lists of GPUs, snapshots. The record's answer is the host's, byte for byte. What a record was not told of (`--list`,
`--library-path`, `--cdi-dir`) it may refuse, and never answers otherwise.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Optional

import gpubind
from gpubind.documents.diff.snapshot import snapshot_of
from gpubind.documents.explanation import render_json
from gpubind.documents.gpus import list_gpus, render_gpus_json
from gpubind.errors import GpubindError, NotRecordedError
from gpubind.explanation.answer import Answer
from gpubind.explanation.decisions import explain
from gpubind.host import Host, ListFile
from gpubind.host.base import Untrusted
from gpubind.host.live import LiveHost
from gpubind.host.record import parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.image.facts import Image
from gpubind.inventory.vendors import read_inventories
from gpubind.model import CAPABILITIES, VENDORS, ContainerPath, Request
from gpubind.model.plain import dump_document
from gpubind.planner.gpus.selection import select
from gpubind.planner.like import FLAVOURS
from gpubind.planner.request import SOURCES
from gpubind.runtimes import RUNTIMES
from tests.support.images import GLVND, MUSL, STATIC, glibc, image
from tests.support.layouts import CDI_DIRECTORY, LIBRARY_PATH, OWN_LIST, Layout, layout
from tests.support.trees import File, Hidden, Node, Spec, make_tree
from tests.support.trials import BrokenLawError, Engine, Kinds, Tally, main

ASKED = 200
"""Questions to each host."""
MOUNTED = 0.3
"""The share of hosts that are real files; they have no device nodes."""
REDACTED = 0.3
"""The share of hosts of which a redacted record is made, too: it has the same plan."""
SIDES = ("auto", "host", "image")
FORMS = ("cdi", "compose", "kubernetes")
NAMES = (
    "libcuda.so.1",
    "libcuda.so",
    "nvidia-smi",
    "libnvidia-gone.so.1",
    "gsp_ga10x.bin",
    "libamdhip64.so.6",
    "nvidia0",
)
LEVELS: Spec = {"/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libcuda.so.1": File(b"")}
IMAGES: tuple[tuple[Spec, ...], ...] = (
    *((glibc(newest),) for newest in ("2.17", "2.31", "2.41")),
    *((glibc("2.36"), GLVND), (glibc("2.36"), LEVELS), (MUSL,), (STATIC,)),
)


class Question(NamedTuple):
    """Something to ask, and whether a record may have to refuse it."""

    request: Request
    listfile: Optional[ListFile]
    image: Optional[Image]
    backend: Optional[str]
    name: str
    program: Optional[str]
    form: Optional[str]
    """Of a document of mounts, in whose layout it is planned, too."""
    may_be_refused: bool


class Mounted(LiveHost):
    """A host in a real directory tree, asked as a record is: as another machine."""

    def __init__(self, root: str, like: Host) -> None:
        super().__init__(root, root)
        self.local = None  # type: ignore[assignment]
        self.environ = like.environ

    def untrusted(self, below: Iterable[str] = (), files: Iterable[str] = ()) -> tuple[Untrusted, ...]:
        return ()


def mounted(at: Layout, root: str) -> Host:
    """The host of *at* as real files, as far as any user can make them."""
    make_tree(root, {path: item for path, item in at.spec.items() if not isinstance(item, (Node, Hidden))})
    return Mounted(root, at.host)


def question(rng: random.Random, at: Layout) -> Question:
    """A question by *rng* about the host of *at*."""
    like = rng.choice((None, None, None, None, *FLAVOURS))
    devices = ("nvidia.com/gpu=all", "nvidia.com/gpu=0", "vendor.com/x=all", "amd.com/gpu=0")
    library_path = rng.choice(((), at.library_path, tuple(path for path in LIBRARY_PATH if rng.random() < 0.3)))
    directories = rng.choice(((), (), at.cdi_directories, (CDI_DIRECTORY,)))
    listfile = rng.choice((None, None, None, at.listfile, OWN_LIST))
    request = Request(
        vendors=rng.choice(((), ("nvidia",), ("amd",), ("nvidia", "amd"), ("intel",), VENDORS)),
        caps=rng.choice((None, None, CAPABILITIES, ("compute", "utility"), ("graphics", "compat32"))),
        source=rng.choice((*SOURCES, "auto", "auto")),
        completion=rng.random() < 0.8,
        library_path=library_path,  # type: ignore[arg-type]
        like=like,
        vendor_neutral=rng.choice(SIDES),  # type: ignore[arg-type]
        gpus=rng.choice((None, None, None, "all", "none", "0", "1", "GPU-0", "0:0/0")),
        cdi_directories=directories,
        cdi_devices=rng.choice(((), (), (), (), (rng.choice(devices),))),
        userspace=rng.choice(SIDES),  # type: ignore[arg-type]
        cuda_compat=rng.choice(SIDES),  # type: ignore[arg-type]
        libc=rng.choice(SIDES),  # type: ignore[arg-type]
        libdir=ContainerPath("/opt/driver") if like is None and rng.random() < 0.1 else None,
    )
    unknown = [path for path in library_path if path not in at.library_path]
    unknown += [path for path in directories if path not in at.cdi_directories]
    opened = image(*rng.choice(IMAGES)) if rng.random() < 0.4 and like is None else None
    return Question(
        request,
        listfile,
        opened,
        rng.choice((None, None, None, *RUNTIMES)),
        rng.choice(NAMES),
        rng.choice((None, "sh", "nvidia-smi", "/usr/bin/python3", "./a.out")) if opened is not None else None,
        rng.choice((None, None, *FORMS)),
        bool(unknown) or listfile not in (None, at.listfile),
    )


def answer(host: Host, asked: Question) -> str:
    """What commands print for *asked* on *host*."""
    told: list[str] = []
    try:
        found = read_inventories(host, Request(vendors=asked.request.vendors, gpus=asked.request.gpus))
        selections = select(found.inventories, asked.request.gpus, host.environ, isolated=True)
        told.append(render_gpus_json(list_gpus(found.inventories, selections)))
    except NotRecordedError:
        raise
    except GpubindError as error:
        told.append(_told(error))
    try:
        backend = asked.backend if asked.request.like is None else None
        start = gpubind.open_runtime(host, backend) if backend is not None else None
        made = gpubind.plan(host, asked.request, asked.listfile, asked.image, start=start)
        told.append(made.to_json())
        findings = gpubind.check(host, made, asked.image, backend=backend, program=asked.program)
        told.append(dump_document(gpubind.check_document(made, findings, asked.image)))
        told.append(render_json(Answer(asked.name, explanation=explain(made, asked.name))))
        told.append(str(snapshot_of("host", made, findings)))
        if asked.form is not None and asked.request.like is None:
            layout = gpubind.open_layout(host, asked.form, asked.image)
            told.append(gpubind.plan(host, asked.request, asked.listfile, asked.image, layout).to_json())
    except NotRecordedError:
        raise
    except GpubindError as error:
        told.append(_told(error))
    return "\n".join(told)


def _told(error: GpubindError) -> str:
    return "\n".join((error.code, error.what, error.where, error.why, error.hint))


def digest(host: Host) -> str:
    """That of the plan of everything on *host*; the code of the error where it has none."""
    try:
        return gpubind.plan(host, Request(gpus="all", caps=CAPABILITIES)).digest
    except GpubindError as error:
        return error.code


def broken(seed: str, asked: int = ASKED) -> str:
    """How the law is broken by the host of *seed*; empty if it is not."""
    with tempfile.TemporaryDirectory() as place:
        return _broken(seed, asked, place)


def _broken(seed: str, asked: int, place: str) -> str:
    rng = random.Random(seed)
    at = layout(rng)
    wanted = Request(library_path=at.library_path, cdi_directories=at.cdi_directories)  # type: ignore[arg-type]
    host: Host = mounted(at, place) if rng.random() < MOUNTED else at.host
    text = gpubind.record(host, request=wanted, listfile=at.listfile)
    recorded = RecordedHost(parse_record(text.encode()), host.label)
    if rng.random() < REDACTED:
        text = gpubind.record(host, hostname="nvidia", request=wanted, listfile=at.listfile, redact=True)
        if digest(RecordedHost(parse_record(text.encode()), host.label)) != digest(host):
            return f"seed {seed}: the redacted record has another plan"
    for number in range(asked):
        said = question(rng, at)
        expected = answer(host, said)
        try:
            told = answer(recorded, said)
        except NotRecordedError as error:
            if said.may_be_refused:
                continue
            return f"seed {seed}, question {number}: {said}\nnot recorded: {error.where}"
        if told != expected:
            pairs = zip(expected.splitlines(), told.splitlines())
            first = next((pair for pair in pairs if pair[0] != pair[1]), ("more", "less"))
            return f"seed {seed}, question {number}: {said}\nhost: {first[0]}\nrecord: {first[1]}"
    return ""


@contextmanager
def opened(tally: Tally, options: argparse.Namespace) -> Iterator[Kinds]:
    """Return the case: one host, which is asked many things."""

    def case(rng: random.Random) -> None:
        fault = broken(f"{rng.getrandbits(32)}", options.asked)
        if fault:
            raise BrokenLawError(fault)

    yield {"host": case}


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--asked", type=int, default=ASKED, help=f"questions to each [{ASKED}]")


if __name__ == "__main__":
    # A host is one number, and a smaller one is no smaller host.
    sys.exit(main(Engine("tests.law.records", __doc__, "hosts", 100, opened, shrinks=False, declare=declare)))
