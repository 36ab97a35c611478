"""AMD: the ROCm that serves, the dependencies of its libraries, its devices."""
