"""Images: what a container is made of. Entry: `open_image`, which returns the tree of the files and their facts."""

from gpubind.image.facts import Image
from gpubind.image.open import open_image

__all__ = ["Image", "open_image"]
