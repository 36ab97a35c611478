"""Open images in the stores of podman and Docker, by those programs' commands.

Sources: podman-save(1), podman-image-inspect(1); `docker save`, `docker image inspect`. If the caller owns the
directories of the store, gpubind reads the files there (`files/overlay.py`). Otherwise the program saves the image into
an unnamed file in TMPDIR, which is as large as the image. The answers are stored under the image's ID, which identifies
its content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Optional, TypeVar, Union

from gpubind.errors import Format, FormatError, GpubindError, HostReadError, NotStoredError, UnseenError, in_file
from gpubind.files import Tree
from gpubind.files.blob import FileBlob, close_on_error
from gpubind.files.overlay import Layer, OverlayTree
from gpubind.files.remembered import Answers, RememberedTree
from gpubind.formats.archive.oci import DOCUMENT_LIMIT, InspectedImage, parse_env_lines, parse_inspected
from gpubind.formats.text.json import parse_json
from gpubind.host.programs import ENVIRON, find_program
from gpubind.image.facts import Image, read_image
from gpubind.image.reference import NAME, Store, bad_name
from gpubind.machine import system
from gpubind.machine.answers import reason
from gpubind.machine.budget import report_progress
from gpubind.machine.listener import mark_uncacheable, printed_by
from gpubind.machine.programs import run_captured
from gpubind.machine.trust import trusted_environ
from gpubind.memo.answer import is_enabled
from gpubind.memo.versions import content_name, keep_content, known_content
from gpubind.model import HostPath, Missing
from gpubind.model.arch import Architecture

if TYPE_CHECKING:
    from typing import IO

    from gpubind.files.opened import OpenedTree

T = TypeVar("T")

QUERY_TIMEOUT_S = 60.0  # a store on a slow file system, with many images
_SAVE_TIMEOUT_S = 1800.0
_VERSION_S = 10.0
MESSAGE_LIMIT = 2000
VARIABLES = (
    *("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINER_CONNECTION", "CONTAINER_HOST"),
    *("DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_HOST", "DOCKER_TLS_VERIFY"),
)
"""Variables by which the programs find their store."""
_OF_A_SESSION = ("DBUS_SESSION_BUS_ADDRESS", "USER", "XDG_RUNTIME_DIR")
"""Further variables that the programs need; their values differ from session to session."""
_INFO = Format("image-store", "malformed answer of docker")
_ABSENT = re.compile("no such image|image not known|unsupported transport", re.IGNORECASE)
"""Messages of docker 26.1 and podman 5.4; the last is about `dir:PATH`, which podman would copy into its store."""
_WARNING = re.compile(r'time="[^"]*" level=(?:debug|info|warning) |(?:WARN|INFO|DEBU)\[|WARNING: ')
"""The beginning of a line of their messages that is not the reason for a failure."""


def open_stored(store: Store, name: str, reference: str, arch: Architecture) -> Image:
    """Return the image *name* in *store*; of several, the one for *arch*.

    Errors: `UsageError` (`bad-image-name`), `HostReadError` (`no-image-store` without the program, `image-store` if it
    fails: no daemon, no permission), `NotStoredError` (`image-store`), and those of `archive_tree`.
    """
    if not NAME.fullmatch(name):
        raise bad_name(store, reference)
    inspected = _run_store_command(store, ("image", "inspect", name), reference)
    with in_file(f"{store} image inspect {name}"):
        metadata = parse_inspected(inspected)

    def whole() -> Tree:
        mark_uncacheable(f"the image was read in the store of {store}")
        layers, saved = _layers(metadata.layers), partial(_saved, store, name, reference, arch)
        return OverlayTree(layers, HostPath(reference), partial(_open_later, saved)) if layers else saved()

    def keep(key: str, answers: Answers) -> None:
        with suppress(GpubindError, OSError):
            # A removal deletes the name before the files: if the name still exists, all files were there.
            if _run_store_command(store, ("image", "inspect", name), reference) == inspected:
                keep_content(key, answers)

    key = _key(store, metadata, arch)
    if key is None:
        tree = whole()
    else:
        cached_answers = known_content(key)
        opened = None if cached_answers else whole()
        tree = RememberedTree(
            HostPath(reference), cached_answers, lambda: opened or _open_later(whole), partial(keep, key)
        )
    return close_on_error(tree, lambda: read_image(tree, reference, store, parse_env_lines(metadata.env)))


def _key(store: Store, metadata: InspectedImage, arch: Architecture) -> Optional[str]:
    """Return the key of the stored answers about an image; None if the store does not identify its content.

    The key contains the store, because another store may report a false ID.
    """
    program = find_program(store)
    if not (metadata.id and metadata.parts) or isinstance(program, Missing) or not is_enabled():
        return None
    of_store = (store, program, sorted(trusted_environ(VARIABLES).items()))
    return content_name(repr((of_store, arch.name, metadata.id, metadata.arch, metadata.parts)))


def _open_later(make: Callable[[], T]) -> T:
    """Open the files of an image that was opened before: a failure does not mean that there is no such image.

    Errors: `UnseenError` for any `HostReadError`, so that a plan can be made from the files that were read.
    """
    try:
        return make()
    except HostReadError as error:
        raise UnseenError(error.code, error.what, where=error.where, why=error.why, hint=error.hint) from error


def _layers(directories: Sequence[str]) -> list[Layer]:
    try:
        layers = [Layer(directory) for directory in directories]
        # The uppermost layer may be a mount of a container: podman-hpc mounts its squashed images there.
        is_mounted = not layers or layers[-1].list("/") == ()
        return layers if not is_mounted and all(layer.is_exact() for layer in layers) else []
    except (HostReadError, OSError):
        return []


def _saved(store: Store, name: str, reference: str, arch: Architecture) -> OpenedTree:
    """Save the image into an unnamed file, which the kernel deletes when it is closed."""
    from gpubind.image.oci import archive_tree

    with system.temporary_file() as file:
        args = ("save", "--format", "docker-archive", name) if store == "podman" else ("save", name)
        _run_store_command(store, args, reference, file)
        blob = FileBlob(system.same_file(file, reference), reference)
    return close_on_error(blob, lambda: archive_tree(blob, HostPath(reference), store, None, arch))[0]


def _run_store_command(store: Store, args: tuple[str, ...], reference: str, into: Optional[IO[bytes]] = None) -> bytes:
    """Return the output of the program of *store* for *args*; empty if it is written *into* a file.

    Errors: `HostReadError` (codes `no-image-store`, `image-store`), `NotStoredError`.
    """
    program = find_program(store)
    if isinstance(program, Missing):
        message = f"{store} is not there" if program.why == "absent" else f"{store} cannot be trusted"
        raise HostReadError("no-image-store", message, where=reference, why=program.detail)
    answer = _answer(program, store, args, reference, QUERY_TIMEOUT_S if into is None else _SAVE_TIMEOUT_S, into)
    if isinstance(answer, bytes):
        return answer
    hint = f"`{store} images` lists what is there, and `{store} pull` gets what is not"
    kind = NotStoredError if reports_missing_image(answer) else HostReadError
    raise kind("image-store", f"{store} does not give the image", where=reference, why=answer, hint=hint)


def why_silent(store: Store) -> Optional[str]:
    """Return why the daemon of *store* does not answer its program; None if it answers, or without the program."""
    program = find_program(store)
    answer = b"" if isinstance(program, Missing) else _answer(program, store, ("version",), store, _VERSION_S)
    return answer if isinstance(answer, str) else None


def cdi_directories_of_daemon(store: Store) -> tuple[str, ...]:
    """Return the directories in which the daemon of *store* finds CDI specs; none if it reads none, or does not
    answer.
    """
    program = find_program(store)
    args = ("info", "--format", "{{json .CDISpecDirs}}")
    answer = "" if isinstance(program, Missing) else _answer(program, store, args, store, _VERSION_S)
    try:
        directories = parse_json(answer, DOCUMENT_LIMIT, _INFO) if isinstance(answer, bytes) else []
    except FormatError:
        return ()
    return tuple(path for path in directories if isinstance(path, str)) if isinstance(directories, list) else ()


def _answer(
    program: str, store: Store, args: tuple[str, ...], reference: str, time_s: float, into: Optional[IO[bytes]] = None
) -> Union[bytes, str]:
    # Jobs differ in TMPDIR: a memo that depended on it would serve no other job.
    environ = trusted_environ((*VARIABLES, *_OF_A_SESSION, *(() if into is None else ("TMPDIR",))))
    try:
        status, printed, message = run_captured(
            program,
            (store, *args),
            f"`{store} {args[0]}`",
            time_s,
            {**environ, **ENVIRON},
            limit=DOCUMENT_LIMIT,
            into=into,
            meanwhile=lambda: None if into is None else report_progress(reference, system.size_of(into)),
        )
    except OSError as error:
        mark_uncacheable(f"`{store}` does not answer")
        return reason(error)
    if status == 0 and into is None:
        printed_by(program, (store, *args), tuple(environ), tuple(ENVIRON.items()), printed)
        return printed
    mark_uncacheable(f"`{store}` was asked")
    if status == 0:
        return printed
    text = message[: MESSAGE_LIMIT * 4].decode("utf-8", "surrogateescape")
    return parse_reason(text)[:MESSAGE_LIMIT] or f"exit status {status}"


def parse_reason(message: str) -> str:
    """Join the lines of a failing program's *message* without warnings, or all lines if all are warnings."""
    lines = message.strip().splitlines()
    return " ".join([line for line in lines if not _WARNING.match(line)] or lines)


def reports_missing_image(reason: str) -> bool:
    """Return whether *reason* means that the store does not have the image."""
    return _ABSENT.search(reason) is not None
