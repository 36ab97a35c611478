"""CDI: the specs of a host, what their devices and hooks bring, what in them is stale."""
