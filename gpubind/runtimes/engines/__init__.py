"""podman and docker."""
