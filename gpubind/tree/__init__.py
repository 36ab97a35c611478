"""A tree of files below a root, live or recorded. The only room that reads host files."""

from gpubind.tree.base import Tree, glob
from gpubind.tree.live import LiveTree

__all__ = ["LiveTree", "Tree", "glob"]
