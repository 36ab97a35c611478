"""Images in the stores of podman and Docker, through those programs' own commands.

Sources: podman-image-mount(1), podman-save(1), podman-image-inspect(1); `docker save`, `docker image inspect`.
As root, podman mounts an image and its files are read where they are; else the image is saved into a file without a
name, in TMPDIR, which takes as much room as the image has.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal, Optional

from gpubind.arch import Architecture
from gpubind.blob.base import FileBlob, closed_on_error
from gpubind.budget import tell
from gpubind.errors import HostReadError, UsageError, in_file
from gpubind.formats.oci import DOCUMENT_LIMIT, OciConfig, parse_inspected
from gpubind.host.programs import find_program, start_program, wait_for
from gpubind.host.trust import obeyed_environ
from gpubind.image.facts import Image, read_image
from gpubind.image.oci import open_archive
from gpubind.model import HostPath, Missing
from gpubind.tree.live import LiveTree

if TYPE_CHECKING:
    from typing import IO

Store = Literal["podman", "docker"]

ANSWER_S = 60.0  # a store on a slow file system, with many images
SAVE_S = 1800.0
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
"""What the programs find their store by."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,500}")


def open_stored(store: Store, name: str, reference: str, arch: Architecture) -> Image:
    """The image *name* in *store*; of several, the one for *arch*.

    Errors: `UsageError` (`bad-image-name`), `HostReadError` (`no-image-store` without the program, `image-store` for
    what it says: no such image, no daemon, no permission), and those of `open_archive`.
    """
    if not _NAME.fullmatch(name):
        hint = f"as in `{store}:ubuntu:24.04`"
        raise UsageError("bad-image-name", "this is not the name of an image", where=reference, hint=hint)
    inspected = _call(store, ("image", "inspect", name), reference)
    with in_file(f"{store} image inspect {name}"):
        config = parse_inspected(inspected)
    if store == "podman" and os.geteuid() == 0:
        mounted = _mounted(name, reference, config)
        if mounted is not None:
            return mounted
    import tempfile

    with tempfile.TemporaryFile() as file:
        # To standard output, into a file that has no name: nothing is left, whatever happens.
        words = ("save", "--format", "docker-archive", name) if store == "podman" else ("save", name)
        _call(store, words, reference, file)
        blob = FileBlob(os.dup(file.fileno()), reference)
    return closed_on_error(blob, lambda: open_archive(blob, HostPath(reference), reference, store, None, arch))


def _mounted(name: str, reference: str, config: OciConfig) -> Optional[Image]:
    """The image where podman mounts it; None if it cannot (a remote podman, a store that cannot mount)."""
    try:
        said = _call("podman", ("image", "mount", name), reference)
    except HostReadError:  # saving it may do all the same, or will say why not
        return None
    path = said.decode("utf-8", "surrogateescape").strip()
    if not path.startswith("/") or not os.path.isdir(path):
        _unmount(name)
        return None
    try:
        tree = LiveTree(path)
        image = closed_on_error(tree, lambda: read_image(tree, reference, "podman", config.env))
    except BaseException:
        _unmount(name)
        raise
    import weakref

    # Called when nobody has the tree any more, and when the interpreter ends; whoever becomes another program calls it.
    return image._replace(let_go=weakref.finalize(tree, _unmount, name))


def _unmount(name: str) -> None:
    from contextlib import suppress

    with suppress(HostReadError):  # it was not mounted any more
        _call("podman", ("image", "unmount", name), name)


def _call(store: Store, words: tuple[str, ...], reference: str, into: Optional[IO[bytes]] = None) -> bytes:
    """What the program of *store* prints for *words*, or nothing where it prints *into* a file.

    Errors: `HostReadError` (codes `no-image-store`, `image-store`).
    """
    import tempfile

    program = find_program(store)
    if isinstance(program, Missing):
        what = f"{store} is not there" if program.why == "absent" else f"{store} cannot be trusted"
        raise HostReadError("no-image-store", what, where=reference, why=program.detail)
    timeout = ANSWER_S if into is None else SAVE_S
    environ = obeyed_environ(VARIABLES)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:  # no pipes: nothing has to be read in time
        written = into or out
        process = start_program(program, (store, *words), stdout=written, stderr=err, environ=environ)
        status: Optional[int] = -1
        if not isinstance(process, Missing):
            status = wait_for(process, timeout, lambda: tell(reference, os.fstat(written.fileno()).st_size))
        out.seek(0)
        err.seek(0)
        said, message = out.read(DOCUMENT_LIMIT + 1), err.read(MESSAGE_LIMIT * 4).decode("utf-8", "surrogateescape")
    why = ""
    if isinstance(process, Missing):
        why = process.detail
    elif status is None:
        why = f"`{store} {words[0]}` did not end within {timeout:g} s"
    elif status != 0:
        why = message.strip()[:MESSAGE_LIMIT] or f"exit status {status}"
    elif len(said) > DOCUMENT_LIMIT:
        why = f"`{store} {words[0]}` prints more than {DOCUMENT_LIMIT} bytes"
    if why:
        hint = f"`{store} images` lists what is there, and `{store} pull` gets what is not"
        raise HostReadError("image-store", f"{store} does not give the image", where=reference, why=why, hint=hint)
    return said
