"""Tests on real machines, with real runtimes: `python -m pytest -m tests.live tests/live`; see rig/build."""
