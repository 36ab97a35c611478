"""Open the image that a reference names, whatever it is stored in. Entry: `open_image`."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Optional, Union

from gpubind.errors import FormatError, GpubindError, HostReadError, OutputError, UnseenError, UsageError, did_you_mean
from gpubind.files.blob import IMAGE_UNREADABLE, FileBlob, close_on_error, open_blob
from gpubind.files.live import LiveTree
from gpubind.files.tree import Tree
from gpubind.formats.archive.magic import HEAD_SIZE, describe_header, is_sif, is_squashfs
from gpubind.formats.elf.elf import split_library_path
from gpubind.frozen import FrozenDict
from gpubind.image.cuda import cuda_of_python
from gpubind.image.facts import Image, compat_libraries, read_image
from gpubind.image.reference import (
    FILE_ENDINGS,
    NAME,
    STANDARD_INPUT,
    STDIN,
    ImageReference,
    is_bundle,
    parse_reference,
)
from gpubind.machine import answers, system
from gpubind.machine.budget import report_progress, spend
from gpubind.model import HostPath, ImageFacts, ImageKind
from gpubind.model.arch import Architecture, architecture
from gpubind.model.files import ABSENT

if TYPE_CHECKING:
    from typing import IO, BinaryIO

ACCEPTED = (
    "a directory, an OCI bundle, a SIF file, an OCI layout, an archive of `docker save` or `podman save`, podman:NAME, "
    "docker:NAME"
)
PREFIXES: dict[str, ImageKind] = {"oci": "oci-layout", "oci-archive": "oci-archive", "docker-archive": "docker-archive"}
_FOREIGN_TRANSPORTS = {"docker-daemon": "docker:NAME", "containers-storage": "podman:NAME", "dir": "podman:NAME"}
"""Transports of containers/image, and the names of the same stores in gpubind."""
ENVIRONMENTS = {
    "conda-meta": "a conda environment, not an image",
    "pyvenv.cfg": "a virtual environment of Python, not an image",
}
"""Descriptions of directories that are not images, by a name that each contains at its top."""
_OPEN_LIMIT = 4
"""Limit of open images of several checks: each needs file descriptors, of which a process has few."""
_COPY_STEP = 1 << 20

StrPath = Union[str, os.PathLike[str]]


def open_image(reference: StrPath, machine: Optional[str] = None) -> Image:
    """Return the image that *reference* names: the path of an `ACCEPTED` kind of file, or kind and name, `oci:DIR:TAG`.

    *machine* chooses the architecture of a multi-architecture image: `Host.uname.machine` of the host of the plan, by
    default that of this machine.

    Errors: `HostReadError` (`no-image`, `unreadable-file`, `unsupported-image`, `encrypted-image`, `missing-package`,
    `no-image-store`, `image-store`), `FormatError` (`unknown-image`, `bad-bundle`, `bad-sif`, `bad-squashfs`,
    `bad-oci`, `bad-archive`, `image-bomb`), `UsageError` (`unpulled-image`, `several-images`, `no-such-tag`).
    """
    return _open_root(parse_reference(os.fspath(reference)), machine)


class PythonEnvironmentError(FormatError):
    """An environment of Python in the place of an image; `where` is its directory."""


def host_as_image(tree: Tree, library_path: str) -> Image:
    """Return the files of this machine as an image, for a program that runs without a container.

    *library_path* is the caller's LD_LIBRARY_PATH, which may lead to a compat libcuda in any directory.
    """
    image = read_image(tree, "this machine", "host", {})
    paths = (f"{directory}/libcuda.so.1" for directory in split_library_path(library_path) if directory[:1] == "/")
    compat = dict.fromkeys((*image.facts.compat, *compat_libraries(tree, paths)))
    return image._replace(facts=image.facts._replace(compat=tuple(compat)))


class OpenImages:
    """The images that several checks share; the last `_OPEN_LIMIT` of them stay open.

    An image that cannot be opened raises the same error each time. *standard_input* is the image `-`, which is copied
    into an unnamed file, as it can be read only once.

    Errors: of the copy, `HostReadError` (`no-image`), `UnseenError`, `OutputError` (`unwritable-file`), `BoundError`.
    """

    def __init__(self, standard_input: Optional[BinaryIO] = None) -> None:
        self._copy = None if standard_input is None else _copy_input(standard_input)
        self._images: dict[tuple[ImageReference, Optional[str]], Image] = {}
        self._errors: dict[tuple[ImageReference, Optional[str]], GpubindError] = {}

    def __enter__(self) -> OpenImages:
        return self

    def __exit__(self, *error: object) -> None:
        while self._images:
            self._close_oldest()
        if self._copy is not None:
            self._copy.close()

    def image(self, reference: ImageReference, machine: Optional[str]) -> Image:
        """Return the image *reference* for *machine*. It stays open until `_OPEN_LIMIT` others are used. Errors: as
        `open_image`.
        """
        key = reference, machine
        if key in self._errors:
            raise self._errors[key]
        image = self._images.pop(key, None)
        if image is None:
            while len(self._images) >= _OPEN_LIMIT:
                self._close_oldest()
            try:
                image = self._open(reference, machine)
            except GpubindError as error:
                self._errors[key] = error
                raise
        self._images[key] = image
        return image

    def image_or_environment(self, reference: ImageReference) -> Image:
        """Return *reference*, or the files of an environment of Python on this machine. Errors: as `open_image`."""
        try:
            return self.image(reference, None)
        except PythonEnvironmentError as error:
            environment = self._images[reference, None] = _open_environment(error.where)
            return environment

    def _open(self, reference: ImageReference, machine: Optional[str]) -> Image:
        if self._copy is None or reference.text != STDIN:
            return _open_root(reference, machine)
        blob, arch = FileBlob(system.same_file(self._copy, STANDARD_INPUT), STANDARD_INPUT), _arch_of(machine)
        return close_on_error(blob, lambda: _read_file(blob, HostPath(STDIN), STANDARD_INPUT, None, None, arch))

    def has_raised(self, error: GpubindError) -> bool:
        """Return whether *error* was raised for an image."""
        return any(error is raised for raised in self._errors.values())

    def _close_oldest(self) -> None:
        self._images.pop(next(iter(self._images))).close()


def _open_environment(reference: str) -> Image:
    """Return the environment of Python *reference*: it has no C library, no driver, and no variables."""
    tree = LiveTree("/")
    return close_on_error(
        tree, lambda: _read_environment(host_as_image(tree, ""), answers.real_path(reference), reference)
    )


def _read_environment(machine: Image, prefix: str, label: str) -> Image:
    from gpubind.loader.container import Container
    from gpubind.loader.python import PythonPaths, find_python_paths

    files = map(
        Container(machine.loader, machine.tree, (), (), "").locate, (f"{prefix}/bin/python", f"{prefix}/bin/python3")
    )
    python = next(filter(None, files), None)
    paths = PythonPaths("", (prefix,), ()) if python is None else find_python_paths(machine.tree, python, {})
    cuda = cuda_of_python(machine.tree, paths, machine.loader.find)
    facts = ImageFacts(
        kind="host",
        label=label,
        arch=machine.facts.arch,
        libc_family="none",
        libc_version=None,
        libstdcxx=None,
        loader_directories=(),
        singularity=False,
        env=FrozenDict({"PATH": f"{prefix}/bin"}),
        undecided=(),
        driver=(),
        vendor_neutral=(),
        cuda=cuda[0].version if cuda else None,
        compat=(),
        rocm=None,
        every_cuda=cuda,
    )
    return machine._replace(facts=facts, environment=paths)


def _copy_input(stream: BinaryIO) -> IO[bytes]:
    """Return an unnamed file with the content of *stream*. Errors: as `OpenImages`."""
    try:
        copy = system.temporary_file()
        close_on_error(copy, lambda: _fill(copy, stream))
    except OSError as error:
        why, hint = answers.reason(error), "set TMPDIR to a directory with enough space"
        raise OutputError("unwritable-file", "standard input cannot be copied", why=why, hint=hint) from error
    return copy


def _fill(copy: IO[bytes], stream: BinaryIO) -> None:
    """Copy *stream*, or only its beginning if no image begins like that."""
    data = _read_input(stream, HEAD_SIZE)
    if not data:
        hint = "the program before the pipe has failed: look at its messages"
        raise HostReadError("no-image", "no image came from standard input", why="it is empty", hint=hint)
    is_image = is_sif(data) or is_squashfs(data) or _is_archive(data)
    while data:
        spend("copied", len(data))
        copy.write(data)
        report_progress(STANDARD_INPUT, copy.tell())
        data = _read_input(stream, _COPY_STEP) if is_image else b""
    copy.flush()


def _read_input(stream: BinaryIO, size: int) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:
        raise answers.inspection_error(STANDARD_INPUT, error, IMAGE_UNREADABLE) from error


def _open_root(reference: ImageReference, machine: Optional[str] = None) -> Image:
    """Open *reference*, and refuse a Python environment, which a start can complete and a check cannot."""
    image = open_reference(reference, machine)
    marker = next((name for name in ENVIRONMENTS if image.tree.has(f"/{name}")), None)
    if marker is None or image.facts.libc_family != "none":
        return image
    image.close()
    why = f"it has {marker} and no C library: its programs run with the C library of an image, or of this machine"
    hint = (
        "name the image that it runs in, `--image IMAGE --program ENV/bin/python`; here: `check --image ENV` "
        "without --host, --require and --backend"
    )
    message = f"this is {ENVIRONMENTS[marker]}"
    raise PythonEnvironmentError("unknown-image", message, where=reference.text, why=why, hint=hint)


def open_reference(image: ImageReference, machine: Optional[str] = None) -> Image:
    """Open the image that *image* names, even a Python environment. Errors: as `open_image`."""
    arch = _arch_of(machine)
    if image.store is not None:
        from gpubind.image.engine import open_stored

        return open_stored(image.store, image.name, image.label, arch)
    if image.form in ("registry", "source"):
        raise _unpulled(image)
    if image.prefix in _FOREIGN_TRANSPORTS:
        why = f"it has no images of the kind `{image.prefix}`"
        hint = f"`{_FOREIGN_TRANSPORTS[image.prefix]}` takes an image from the program's own store"
        raise _no_image(image.text, why, hint)
    kind = PREFIXES.get(image.prefix)
    path, tag = (image.text, None) if kind is None else _split_tag(image.name)
    return _open_path(path, image.text, kind, tag, arch)


def _arch_of(machine: Optional[str]) -> Architecture:
    return architecture(machine or system.uname().machine)


def _open_path(path: str, label: str, kind: Optional[ImageKind], tag: Optional[str], arch: Architecture) -> Image:
    try:
        mode = answers.retry_transient(lambda: system.stat(path)).st_mode
    except (OSError, ValueError) as error:
        answer = answers.missing_from(error)
        if answer is None:
            raise answers.inspection_error(label, error, IMAGE_UNREADABLE) from error
        hint = suggest_path(path) or ("" if kind else _store_hint(label)) if answer == ABSENT else ""
        raise _no_image(label, answers.why_unusable(error), hint) from error
    if stat.S_ISDIR(mode):
        if kind in ("oci-archive", "docker-archive"):
            raise _no_image(label, "it is a directory, not an archive", f"for an OCI layout: `oci:{path}`")
        if kind == "oci-layout" or (answers.is_file(f"{path}/oci-layout") and answers.is_file(f"{path}/index.json")):
            from gpubind.image.oci import open_layout

            return open_layout(path, label, tag, arch)
        if is_bundle(path):
            from gpubind.image.bundle import open_bundle

            return open_bundle(path, label)
        try:
            tree = LiveTree(path)
        except HostReadError as error:
            if isinstance(error, UnseenError):
                raise
            raise _no_image(label, error.why) from error
        return close_on_error(tree, lambda: read_image(tree, label))
    if not stat.S_ISREG(mode):
        raise _no_image(label, "it is neither a file nor a directory")
    if kind == "oci-layout":
        raise _no_image(label, "it is a file, not a directory", f"for an archive: `oci-archive:{path}`")
    blob = open_blob(path)
    return close_on_error(blob, lambda: _read_file(blob, HostPath(answers.real_path(path)), label, kind, tag, arch))


def _is_archive(head: bytes) -> bool:
    from gpubind.files.compressed import GZIP_MAGIC, ZSTD_MAGIC

    return head[257:262] == b"ustar" or head.startswith((GZIP_MAGIC, ZSTD_MAGIC))


def _read_file(
    blob: FileBlob, root: HostPath, label: str, kind: Optional[ImageKind], tag: Optional[str], arch: Architecture
) -> Image:
    head = blob.read_at(0, HEAD_SIZE)
    if kind is None and is_sif(head):
        from gpubind.image.sif import sif_tree

        return read_image(sif_tree(blob, root), label, "sif")
    if kind is None and is_squashfs(head):
        from gpubind.image.sif import SquashfsTree

        return read_image(SquashfsTree(blob, root), label, "sif")
    if kind is not None or _is_archive(head):
        from gpubind.image.oci import archive_tree

        tree, env, image_kind = archive_tree(blob, root, kind, tag, arch)
        return read_image(tree, label, image_kind, env)
    if not head:
        raise FormatError("unknown-image", "this is not an image", where=label, why="the file is empty")
    why, remedy = describe_header(head)
    hint = remedy or f"an image is {ACCEPTED}"
    raise FormatError("unknown-image", "this is not an image", where=label, why=why, hint=hint)


def _split_tag(file_and_tag: str) -> tuple[str, Optional[str]]:
    """Split `FILE:TAG` after the longest path that exists. Both parts may contain colons."""
    path, tag = file_and_tag, ""
    while not answers.lexists(path) and ":" in path:
        path, _, more = path.rpartition(":")
        tag = f"{more}:{tag}" if tag else more
    if answers.lexists(path):
        return path, tag or None
    return file_and_tag, None


def _unpulled(image: ImageReference) -> UsageError:
    is_plain = re.fullmatch(r"[\w.:/@+-]+", image.text)
    hint = f"`apptainer pull image.sif {image.text if is_plain else 'IMAGE'}` gets it; then give image.sif"
    if image.prefix == "docker":
        hint += "; or `podman pull` and podman:NAME"
    return UsageError("unpulled-image", "the image is not on this machine", where=image.text, hint=hint)


def _store_hint(label: str) -> str:
    if label == STDIN:
        return "`gpubind check --image -` and `gpubind needs -` read standard input; a file of that name is `./-`"
    if not NAME.fullmatch(label) or label.endswith(FILE_ENDINGS):
        return ""
    return f"name the store of an image that is in one: `podman:{label}` or `docker:{label}`"


def suggest_path(path: str) -> str:
    """Return a hint to a similar name in the directory of the missing *path*; empty if there is none."""
    directory, slash, name = path.rpartition("/")
    try:
        names = sorted(system.listdir(directory + slash or "."))
    except OSError:
        return ""
    return did_you_mean(names, name).rstrip()


def _no_image(reference: str, why: str, hint: str = "") -> HostReadError:
    hint = hint or f"an image is {ACCEPTED}"
    return HostReadError("no-image", "the image cannot be read", where=reference, why=why, hint=hint)
