"""A tree of files below a root, live or recorded. Links are chased here, and files of hosts are read here."""

from gpubind.tree.base import Tree
from gpubind.tree.glob import glob
from gpubind.tree.live import LiveTree

__all__ = ["LiveTree", "Tree", "glob"]
