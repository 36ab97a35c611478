"""A tree of files below a root, live or recorded. Links are chased here, and files of hosts are read here.

Each kind of tree is a module of its own, loaded by those who need it.
"""

from gpubind.tree.base import Tree
from gpubind.tree.glob import glob

__all__ = ["Tree", "glob"]
