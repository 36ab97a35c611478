"""2. Images: what a container is made of. Entry: `open.open_image`: the tree of the files, and their facts."""
