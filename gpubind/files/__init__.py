"""A tree of files below a root, live or recorded. Links are chased here, and files of hosts are read here.

Each kind of tree is a separate module, loaded on demand.
"""

from gpubind.files.glob import glob
from gpubind.files.tree import Tree

__all__ = ["Tree", "glob"]
