"""The word that names an image, parsed once: `parse_reference`."""

from __future__ import annotations

from typing import Literal, Optional, get_args

from gpubind.errors import UnseenError
from gpubind.frozen import NamedTuple
from gpubind.model.answers import exists, is_directory, is_file

ImageForm = Literal["directory", "file", "bundle", "layout", "archive", "reference", "registry", "source"]
"""How an image is given to a runtime: a directory, a file that holds a file system (SIF, squashfs), an OCI bundle; an
OCI layout (`oci:DIR`), an archive (`oci-archive:FILE`, `docker-archive:FILE`); a name in a store, in a registry
(`docker://`), in another source (`library://`, `oras://`, `instance://`)."""
Store = Literal["podman", "docker"]
STORES: tuple[Store, ...] = get_args(Store)
_BY_PREFIX: dict[str, ImageForm] = {"oci": "layout", "oci-archive": "archive", "docker-archive": "archive"}

CONFIG = "config.json"
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

    @property
    def store(self) -> Optional[Store]:
        """The store that is named with the image, `podman:debian:12`."""
        return next((store for store in STORES if self.form == "reference" and self.prefix == store), None)

    @property
    def is_path(self) -> bool:
        """Whether a runtime with a store takes it for a directory: names begin with neither a slash nor a dot."""
        return self.text.startswith(("/", "."))

    @property
    def is_here(self) -> bool:
        """Whether it is the path of a file or a directory of this machine."""
        return self.form in ("directory", "file", "bundle")


def is_bundle(directory: str) -> bool:
    """Return whether *directory* is a bundle, by the names in it."""
    if not is_file(f"{directory}/{CONFIG}"):
        return False
    return not any(is_directory(f"{directory}/{name}") for name in _SYSTEM)


def parse_reference(text: str) -> ImageReference:
    """Return the parts of *text*. An existing path takes precedence over what its name looks like.

    Errors: `UnseenError` where the path cannot be inspected.
    """
    prefix, colon, name = text.partition(":")
    try:
        is_here = exists(text)
    except UnseenError as error:
        from gpubind.files.blob import WHAT

        error.what = WHAT
        raise
    if is_here:
        return ImageReference(text, "file" if not is_directory(text) else "bundle" if is_bundle(text) else "directory")
    if colon and name.startswith("//"):
        return ImageReference(text, "registry" if prefix == "docker" else "source", prefix, name[2:])
    if colon and prefix in _BY_PREFIX:
        return ImageReference(text, _BY_PREFIX[prefix], prefix, name)
    is_nothing = not text or text.startswith(("/", ".", "-")) or text.endswith(".sif")
    return ImageReference(text, None if is_nothing else "reference", prefix if colon else "", name)
