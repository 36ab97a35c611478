"""What `gpubind explain` looks up: codes, messages of programs, decisions about a name; documents/ renders it.

`codes` are gpubind's own, `gpu_codes` those of CUDA, HIP and the like, `messages` of any program.
"""
