"""The sources of `gpubind explain`: codes, messages of programs, decisions about a name.

`codes` has gpubind's own codes, `gpu_codes` those of CUDA, HIP and the like, `messages` the messages of any program.
"""
