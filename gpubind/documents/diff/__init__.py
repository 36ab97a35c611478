"""Differences between hosts. `snapshot_of` makes a snapshot of a plan, and `compare` a comparison of snapshots."""
