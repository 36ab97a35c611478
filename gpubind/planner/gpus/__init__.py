"""The GPUs that a container gets: by `--gpus`, else by the environment; how the container is told. Pure.

Entry: `selection.select`.
"""
