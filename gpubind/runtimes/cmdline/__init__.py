"""Readers of the command lines of other programs."""
