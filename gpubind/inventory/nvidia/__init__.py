"""NVIDIA: the driver's version, the sources of its files, its devices, and findings about it."""
