"""Rules about the host and its driver."""
