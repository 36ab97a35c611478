"""Archives, images and bundles."""
