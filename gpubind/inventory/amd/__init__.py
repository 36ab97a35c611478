"""AMD: which ROCm, what its libraries need, its devices."""
