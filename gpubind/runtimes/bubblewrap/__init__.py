"""bubblewrap."""
