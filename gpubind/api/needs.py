"""needs: what an image asks of a host."""

from __future__ import annotations

from typing import Optional

from gpubind.api.verb import verb
from gpubind.image.facts import Image
from gpubind.image.needs import ImageNeeds, read_needs


@verb
def needs(image: Image, program: Optional[str] = None) -> ImageNeeds:
    """Return what *image* asks of a host, or what *program* in it does: a path, or a name in the image's PATH.

    Errors: `HostReadError` (code `program-not-found`).
    """
    return read_needs(image, program)
