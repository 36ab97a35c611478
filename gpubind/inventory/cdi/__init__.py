"""CDI: the specs of a host, the edits of their devices and hooks, and stale entries."""
