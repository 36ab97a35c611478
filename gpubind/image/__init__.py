"""Images: what a container will be made of."""

from gpubind.image.facts import Image
from gpubind.image.open import open_image

__all__ = ["Image", "open_image"]
