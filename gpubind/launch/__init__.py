"""Prepare a start and execute it."""
