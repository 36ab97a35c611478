"""Intel: GPUs, NPUs and Gaudi accelerators with their nodes, and the user space of the GPUs."""
