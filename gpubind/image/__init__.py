"""2. Images: the tree of an image's files, and its facts. Entry: `open.open_image`."""
