"""Apptainer and SingularityCE."""
