"""AMD: the chosen ROCm, the dependencies of its libraries, and the devices."""
