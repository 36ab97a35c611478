"""The GPUs that a container gets, by `--gpus` or the environment, and their variables in the container. Pure.

Entry: `selection.select`.
"""
