"""Which image a reference names, and what it is stored in."""

from __future__ import annotations

import os

from gpubind.errors import HostReadError
from gpubind.image.facts import Image, read_image
from gpubind.tree import LiveTree


def open_image(reference: str) -> Image:
    """The image that *reference* names: a directory.

    Errors: `HostReadError` (code `no-image`) if it is none.
    """
    if not os.path.isdir(reference):
        why = "it is no directory" if os.path.lexists(reference) else "it does not exist"
        hint = "only images in a directory can be looked at: `apptainer build --sandbox DIR IMAGE` makes one"
        raise HostReadError("no-image", "the image cannot be read", where=reference, why=why, hint=hint)
    return read_image(LiveTree(reference), reference)
