"""Parse the argument that names an image. Entry: `parse_reference`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, Optional, get_args

from gpubind.errors import HostReadError, UnseenError, UsageError
from gpubind.frozen import NamedTuple
from gpubind.machine.answers import exists, is_directory, is_file

if TYPE_CHECKING:
    from typing import Protocol

    class Starter(Protocol):
        """The facts of a runtime, of `gpubind.runtimes`, on which the parsing of an argument depends."""

        name: str
        title: str
        image_forms: tuple[ImageForm, ...]
        store: Optional[Store]


_DirectoryForm = Literal["directory", "bundle"]
_FileForm = Literal["sif", "squashfs", "file"]
ImageForm = Literal[_DirectoryForm, _FileForm, "container", "layout", "archive", "reference", "registry", "source"]
"""The forms of an image argument of a runtime.

`container` is the name of a directory in the runtime's own storage; `file` is a file of another kind; `layout` is
`oci:DIR`; `archive` is `oci-archive:FILE` or `docker-archive:FILE`; `reference` is a name in a store; `registry` is
`docker://`; `source` is another scheme: `library://`, `oras://`, `instance://`.
"""
DIRECTORY_FORMS: tuple[ImageForm, ...] = get_args(_DirectoryForm)
FILE_FORMS: tuple[ImageForm, ...] = get_args(_FileForm)
Store = Literal["podman", "docker"]
STORES: tuple[Store, ...] = get_args(Store)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,500}")
"""Pattern of the name of an image in a store."""
FILE_ENDINGS = (".sif", ".sqsh", ".tar", ".tar.gz", ".tgz", ".tar.zst")
"""Endings of names that never mean an image in a store."""
STDIN = "-"
"""The image that `check` and `needs` read from standard input."""
STANDARD_INPUT = "standard input"
"""Its name in documents."""
_BY_PREFIX: dict[str, ImageForm] = {"oci": "layout", "oci-archive": "archive", "docker-archive": "archive"}

BUNDLE_CONFIG = "config.json"
_SYSTEM = ("usr", "bin", "etc")
"""Directories of a root file system. With one of them, a directory is not a bundle, even if it contains a
config.json.
"""


class ImageReference(NamedTuple):
    """The argument that names an image, and its parts."""

    text: str
    """The whole argument."""
    form: Optional[ImageForm] = None
    """The form of the argument; None for a missing path."""
    prefix: str = ""
    """The part before a colon: `oci`, `podman`, a scheme; empty for a path, and without a colon."""
    name: str = ""
    """The rest: a path, or a name in a store or a registry."""
    store: Optional[Store] = None
    """The store of the image: the one in the argument, else that of the runtime."""

    @property
    def word(self) -> str:
        """The argument for the image's runtime: without the name of the store."""
        return self.text if self.store is None else self.name

    @property
    def label(self) -> str:
        """The argument for commands of gpubind: with the name of the store."""
        return self.text if self.store is None else f"{self.store}:{self.name}"

    @property
    def is_path(self) -> bool:
        """Whether a runtime with a store treats it as a directory: names begin with neither a slash nor a dot."""
        return self.text.startswith(("/", "."))

    @property
    def is_local_file(self) -> bool:
        """Whether it is the path of a file or a directory of this machine."""
        return self.form in (*DIRECTORY_FORMS, *FILE_FORMS)


def image_label(text: str) -> str:
    """Return the name in documents of the image that the argument *text* names."""
    return STANDARD_INPUT if text == STDIN else text


def is_bundle(directory: str) -> bool:
    """Return whether *directory* is a bundle, by the names in it."""
    if not is_file(f"{directory}/{BUNDLE_CONFIG}"):
        return False
    return not any(is_directory(f"{directory}/{name}") for name in _SYSTEM)


def parse_reference(text: str, runtime: Optional[Starter] = None) -> ImageReference:
    """Parse *text*, an argument of gpubind's command line, for *runtime*, if that is known.

    `podman:NAME` and `docker:NAME` always name an image of that store. Any other text is parsed as *runtime* parses it,
    unless it ends like the name of a file. Errors: `UsageError` (`bad-image-name`; `other-store` for a store that is
    not the one of *runtime*); as `native_reference`.
    """
    if text == STDIN:
        return ImageReference(text)
    prefix, _, name = text.partition(":")
    store = next((store for store in STORES if text.startswith(f"{store}:") and not name.startswith("//")), None)
    if store is None:
        return native_reference(text, None if text.endswith(FILE_ENDINGS) else runtime)
    if not NAME.fullmatch(name):
        raise bad_name(store, text)
    if runtime is not None and runtime.store != store:
        hint = f"use --backend {store}"
        if runtime.store is not None:
            hint += f"; an image that is itself called `{store}` is `{runtime.store}:{text}`"
        message = f"the image is in {store}'s store, and {runtime.title} does not start it from there"
        raise UsageError("other-store", message, where=text, why=f"the backend is {runtime.name}", hint=hint)
    return ImageReference(text, "reference", prefix, name, store)


def native_reference(text: str, runtime: Optional[Starter] = None) -> ImageReference:
    """Parse *text*, an argument of the command line of *runtime*, as its program does.

    An existing path takes precedence over other forms. For a runtime with a store, only a text that begins with a slash
    or a dot is a path. Errors: `UnseenError` where the path cannot be inspected.
    """
    image = _parse_parts(text)
    if runtime is None or runtime.store is None or image.is_path:
        return image
    if image.form in ("layout", "archive", "registry") and image.form in runtime.image_forms:
        return image
    return ImageReference(text, "reference", "", text, runtime.store)


def bad_name(store: Store, text: str) -> UsageError:
    hint = f"as in `{store}:ubuntu:24.04`"
    return UsageError("bad-image-name", "this is not the name of an image", where=text, hint=hint)


def _parse_parts(text: str) -> ImageReference:
    prefix, colon, name = text.partition(":")
    try:
        is_here = exists(text)
    except UnseenError as error:
        from gpubind.files.blob import IMAGE_UNREADABLE

        error.what = IMAGE_UNREADABLE
        raise
    if is_here and is_directory(text):
        return ImageReference(text, "bundle" if is_bundle(text) else "directory")
    if is_here:
        return ImageReference(text, _form_of_file(text))
    if colon and name.startswith("//"):
        return ImageReference(text, "registry" if prefix == "docker" else "source", prefix, name[2:])
    if colon and prefix in _BY_PREFIX:
        return ImageReference(text, _BY_PREFIX[prefix], prefix, name)
    is_nothing = not text or text.startswith(("/", ".", "-")) or text.endswith(FILE_ENDINGS)
    return ImageReference(text, None if is_nothing else "reference", prefix if colon else "", name)


def _form_of_file(path: str) -> ImageForm:
    """Read the first bytes of *path*. Errors: `UnseenError` where it could not be inspected."""
    from contextlib import closing

    from gpubind.files.blob import open_blob
    from gpubind.formats.archive.magic import HEAD_SIZE, is_sif, is_squashfs

    try:
        with closing(open_blob(path)) as blob:
            head = blob.read_at(0, HEAD_SIZE)
    except UnseenError:
        raise
    except HostReadError:  # opening the image raises it again
        return "file"
    return "sif" if is_sif(head) else "squashfs" if is_squashfs(head) else "file"
