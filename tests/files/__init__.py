"""Tests of gpubind/blob."""
