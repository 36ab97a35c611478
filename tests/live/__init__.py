"""Tests on real machines, with real runtimes: `python -m pytest -m live tests/live`; see rig/build."""
