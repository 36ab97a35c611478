"""NVIDIA: the driver's version, what names its files, its devices, what is wrong with it."""
