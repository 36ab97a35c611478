"""Open images in the stores of podman and Docker, by those programs' commands.

Sources: podman-save(1), podman-image-inspect(1); `docker save`, `docker image inspect`. The files are read in the
directories of the store if these are the caller's (`files/overlay.py`); else the image is saved into an unnamed file in
TMPDIR, of the size of the image.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Optional, Union, cast

from gpubind.errors import HostReadError, NotStoredError, in_file
from gpubind.files.blob import FileBlob, closed_on_error
from gpubind.files.overlay import Layer, OverlayTree
from gpubind.files.trust import obeyed_environ
from gpubind.formats.archive.oci import DOCUMENT_LIMIT, parse_inspected, variables
from gpubind.host.programs import ENVIRON, ask, find_program
from gpubind.image.facts import Image, read_image
from gpubind.image.reference import NAME, Store, bad_name
from gpubind.model import HostPath, Missing
from gpubind.model.answers import reason
from gpubind.model.arch import Architecture
from gpubind.model.budget import tell
from gpubind.observe import cannot_sign

if TYPE_CHECKING:
    from typing import IO

    from gpubind.files.opened import OpenedTree


ANSWER_S = 60.0  # a store on a slow file system, with many images
SAVE_S = 1800.0
VERSION_S = 10.0
MESSAGE_LIMIT = 2000
VARIABLES = (
    "HOME",
    "TMPDIR",
    "USER",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINER_CONNECTION",
    "CONTAINER_HOST",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "DOCKER_TLS_VERIFY",
    "DBUS_SESSION_BUS_ADDRESS",
)
"""The variables by which the programs find their store."""
_ABSENT = re.compile("no such image|image not known|unsupported transport", re.IGNORECASE)
"""Messages of docker 26.1 and podman 5.4. The last is of `dir:PATH` and its kin, which podman copies into its store."""
_WARNING = re.compile(r'time="[^"]*" level=(?:debug|info|warning) |(?:WARN|INFO|DEBU)\[|WARNING: ')
"""How a line of their messages begins that is not the reason of a failure."""


def open_stored(store: Store, name: str, reference: str, arch: Architecture) -> Image:
    """Return the image *name* in *store*; of several, the one for *arch*.

    Errors: `UsageError` (`bad-image-name`), `HostReadError` (`no-image-store` without the program, `image-store` for
    what it says: no daemon, no permission), `NotStoredError` (`image-store`), and those of `open_archive`.
    """
    if not NAME.fullmatch(name):
        raise bad_name(store, reference)
    inspected = _call(store, ("image", "inspect", name), reference)
    with in_file(f"{store} image inspect {name}"):
        found = parse_inspected(inspected)

    saved = partial(_saved, store, name, reference, arch)
    layers = _layers(found.layers)
    if not layers:
        return saved()
    tree = OverlayTree(layers, HostPath(reference), lambda: cast("OpenedTree", saved().tree))
    return closed_on_error(tree, lambda: read_image(tree, reference, store, variables(found.env)))


def _layers(directories: Sequence[str]) -> list[Layer]:
    """Return the layers in *directories*; none if one of them cannot be used."""
    try:
        layers = [Layer(directory) for directory in directories]
        # A storage's own program may mount something there for a container: podman-hpc does, for its squashed images.
        is_mounted = not layers or layers[-1].list("/") == ()
        return layers if not is_mounted and all(layer.is_exact() for layer in layers) else []
    except (HostReadError, OSError):
        return []


def _saved(store: Store, name: str, reference: str, arch: Architecture) -> Image:
    """Return the image that its program saves into an unnamed file, which leaves nothing."""
    import tempfile

    from gpubind.image.oci import open_archive

    with tempfile.TemporaryFile() as file:
        words = ("save", "--format", "docker-archive", name) if store == "podman" else ("save", name)
        _call(store, words, reference, file)
        blob = FileBlob(os.dup(file.fileno()), reference)
    return closed_on_error(blob, lambda: open_archive(blob, HostPath(reference), reference, store, None, arch))


def _call(store: Store, words: tuple[str, ...], reference: str, into: Optional[IO[bytes]] = None) -> bytes:
    """Return what the program of *store* prints for *words*; empty if it prints *into* a file.

    Errors: `HostReadError` (codes `no-image-store`, `image-store`), `NotStoredError`.
    """
    program = find_program(store)
    if isinstance(program, Missing):
        what = f"{store} is not there" if program.why == "absent" else f"{store} cannot be trusted"
        raise HostReadError("no-image-store", what, where=reference, why=program.detail)
    answer = _answer(program, store, words, reference, ANSWER_S if into is None else SAVE_S, into)
    if isinstance(answer, bytes):
        return answer
    hint = f"`{store} images` lists what is there, and `{store} pull` gets what is not"
    kind = NotStoredError if is_absence(answer) else HostReadError
    raise kind("image-store", f"{store} does not give the image", where=reference, why=answer, hint=hint)


def why_silent(store: Store) -> Optional[str]:
    """Return why the daemon of *store* does not answer its program; None if it does, or the program is not there."""
    program = find_program(store)
    answer = b"" if isinstance(program, Missing) else _answer(program, store, ("version",), store, VERSION_S)
    return answer if isinstance(answer, str) else None


def _answer(
    program: str,
    store: Store,
    words: tuple[str, ...],
    reference: str,
    time_s: float,
    into: Optional[IO[bytes]] = None,
) -> Union[bytes, str]:
    """Return what *program* prints; if it fails, the reason."""
    cannot_sign(f"`{store}` was asked")
    try:
        status, printed, message = ask(
            program,
            (store, *words),
            f"`{store} {words[0]}`",
            time_s,
            {**obeyed_environ(VARIABLES), **ENVIRON},
            limit=DOCUMENT_LIMIT,
            into=into,
            meanwhile=lambda: None if into is None else tell(reference, os.fstat(into.fileno()).st_size),
        )
    except OSError as error:
        return reason(error)
    if status == 0:
        return printed
    text = message[: MESSAGE_LIMIT * 4].decode("utf-8", "surrogateescape")
    return parse_reason(text)[:MESSAGE_LIMIT] or f"exit status {status}"


def parse_reason(message: str) -> str:
    """Return the reason in *message*, which a failing program printed, as one line without the warnings before it."""
    lines = message.strip().splitlines()
    return " ".join([line for line in lines if not _WARNING.match(line)] or lines)


def is_absence(reason: str) -> bool:
    """Return whether *reason* is that the store does not have the image."""
    return _ABSENT.search(reason) is not None
