"""Open an image, which functions of the library take. needs: its requirements on a host."""

from __future__ import annotations

from typing import Optional

from gpubind.api.verb import verb
from gpubind.image import open as images
from gpubind.image.facts import Image
from gpubind.image.needs import ImageNeeds, read_needs

open_image = verb(images.open_image)


@verb
def needs(image: Image, program: Optional[str] = None) -> ImageNeeds:
    """Return the requirements of *image*, or of *program* in it (a path, or a name in the image's PATH), on a host.

    Errors: `HostReadError` (code `program-not-found`).
    """
    return read_needs(image, program)
