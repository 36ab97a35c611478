"""Images: what a container will be made of."""

from gpubind.image.directory import Image, open_image

__all__ = ["Image", "open_image"]
