"""The word that names an image, parsed once: `parse_reference`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, Optional, get_args

from gpubind.errors import HostReadError, UnseenError, UsageError
from gpubind.frozen import NamedTuple
from gpubind.machine.answers import exists, is_directory, is_file

if TYPE_CHECKING:
    from typing import Protocol

    class Starter(Protocol):
        """What the reading of a word depends on: a runtime, of `gpubind.runtimes`."""

        name: str
        title: str
        image_forms: tuple[ImageForm, ...]
        store: Optional[Store]


ImageForm = Literal[
    "directory",
    "bundle",
    "container",
    "sif",
    "squashfs",
    "file",
    "layout",
    "archive",
    "reference",
    "registry",
    "source",
]
"""How an image is given to a runtime: a directory, an OCI bundle, a directory in its own storage, by a name; a SIF, a
squashfs file, a file of another kind; an OCI layout (`oci:DIR`), an archive (`oci-archive:FILE`,
`docker-archive:FILE`); a name in a store, in a registry (`docker://`), in another source (`library://`, `oras://`,
`instance://`)."""
DIRECTORY_FORMS: tuple[ImageForm, ...] = ("directory", "bundle")
FILE_FORMS: tuple[ImageForm, ...] = ("sif", "squashfs", "file")
Store = Literal["podman", "docker"]
STORES: tuple[Store, ...] = get_args(Store)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,500}")
"""The name of an image in a store."""
FILE_ENDINGS = (".sif", ".sqsh", ".tar", ".tar.gz", ".tgz", ".tar.zst")
"""No image of a store is meant by a name that ends so."""
_BY_PREFIX: dict[str, ImageForm] = {"oci": "layout", "oci-archive": "archive", "docker-archive": "archive"}

BUNDLE_CONFIG = "config.json"
_SYSTEM = ("usr", "bin", "etc")
"""Names in a root file system, which may have a config.json, too, but not in a bundle."""


class ImageReference(NamedTuple):
    """The word that names an image, and its parts."""

    text: str
    """All of it."""
    form: Optional[ImageForm] = None
    """None: a path to nothing."""
    prefix: str = ""
    """Its first part, up to a colon: `oci`, `podman`, a scheme; empty for a path, and where there is no colon."""
    name: str = ""
    """The rest: a path, or a name in a store or registry."""
    store: Optional[Store] = None
    """The store that has the image: the one that the word names, else that of the runtime."""

    @property
    def word(self) -> str:
        """The image as its runtime takes it: without the name of the store."""
        return self.text if self.store is None else self.name

    @property
    def label(self) -> str:
        """The image as every command of gpubind takes it: with the name of the store."""
        return self.text if self.store is None else f"{self.store}:{self.name}"

    @property
    def is_path(self) -> bool:
        """Whether a runtime with a store takes it for a directory: names begin with neither a slash nor a dot."""
        return self.text.startswith(("/", "."))

    @property
    def is_local_file(self) -> bool:
        """Whether it is the path of a file or a directory of this machine."""
        return self.form in (*DIRECTORY_FORMS, *FILE_FORMS)


def is_bundle(directory: str) -> bool:
    """Return whether *directory* is a bundle, by the names in it."""
    if not is_file(f"{directory}/{BUNDLE_CONFIG}"):
        return False
    return not any(is_directory(f"{directory}/{name}") for name in _SYSTEM)


def parse_reference(text: str, runtime: Optional[Starter] = None) -> ImageReference:
    """Parse *text*, an argument of gpubind's command line, for *runtime*, if that is known.

    `podman:NAME` and `docker:NAME` always name an image of that store. A plain name is one of the store of *runtime*,
    as that reads it, except where it ends like a file. Errors: `UsageError` (`bad-image-name`; `other-store` for a
    store that is not the one of *runtime*); as `native_reference`.
    """
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

    An existing path takes precedence over what its name looks like, except with a runtime that has a store: to that,
    only a word that begins with a slash or a dot is a path. Errors: `UnseenError` where the path cannot be inspected.
    """
    image = _parse_parts(text)
    if runtime is None or runtime.store is None or image.is_path:
        return image
    if image.form in ("layout", "archive", "registry") and image.form in runtime.image_forms:
        return image
    return ImageReference(text, "reference", "", text, runtime.store)


def bad_name(store: Store, text: str) -> UsageError:
    """Return the error for *text*, which names no image of *store*."""
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
    """Return the form of the file *path* by its first bytes. Errors: `UnseenError` where it could not be inspected."""
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
