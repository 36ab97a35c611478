"""Open OCI bundles: directories with a config.json that names a root file system."""

from __future__ import annotations

import os

from gpubind.errors import HostReadError, UnseenError, in_file
from gpubind.files.blob import close_on_error
from gpubind.files.live import LiveTree
from gpubind.formats.archive.bundle import SIZE_LIMIT, Bundle, absolute_path, parse_bundle
from gpubind.host.open import read_file
from gpubind.image.facts import Image, read_image
from gpubind.image.reference import BUNDLE_CONFIG
from gpubind.machine import system
from gpubind.machine.answers import has_access


def with_directory(bundle: Bundle, directory: str) -> Bundle:
    """Return *bundle* with its directory, and whether its root is writable."""
    bundle = bundle._replace(directory=system.absolute(directory))
    root = absolute_path(bundle, bundle.root)
    return bundle._replace(is_writable=has_access(root, os.W_OK | os.X_OK))


def open_bundle(directory: str, label: str) -> Image:
    """Return the image in the bundle in *directory*.

    Errors: `HostReadError` (`unreadable-file`, `no-image`), `FormatError` (`bad-bundle`).
    """
    path = f"{directory.rstrip('/')}/{BUNDLE_CONFIG}"
    with in_file(path):
        bundle = parse_bundle(read_file(path, SIZE_LIMIT))
    return read_bundle_image(with_directory(bundle, directory), label)


def read_bundle_image(bundle: Bundle, label: str) -> Image:
    """Return the root file system of *bundle*. Errors: `HostReadError` (code `no-image`) if there is none."""
    root = absolute_path(bundle, bundle.root)
    try:
        tree = LiveTree(root)
    except HostReadError as error:
        if isinstance(error, UnseenError):
            raise
        message = "the root file system of the bundle cannot be read"
        hint = f"root.path of {BUNDLE_CONFIG} names it"
        raise HostReadError("no-image", message, where=root, why=error.why, hint=hint) from error
    image = close_on_error(tree, lambda: read_image(tree, label, "bundle", bundle.variables))
    return image._replace(bundle=bundle)
