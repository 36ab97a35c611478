"""Which GPUs a container gets: what the caller and the environment say, the choice, how the container is told. Pure."""
