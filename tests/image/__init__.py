"""Tests of gpubind/image."""
