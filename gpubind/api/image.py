"""Open an image, which functions of the library take."""

from __future__ import annotations

from gpubind.api.verb import verb
from gpubind.image import open as images

open_image = verb(images.open_image)
