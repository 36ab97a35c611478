"""ld.so's view of a tree: where it looks for a soname, and whether one file fits what the others define.

And the kernel's, which starts programs and ld.so itself.
"""
