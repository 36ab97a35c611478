"""Files of this machine, a record or an image (`Tree`), their bytes (`blob.Blob`), and whom root trusts."""

from gpubind.files.glob import glob, glob_or_note
from gpubind.files.tree import Tree

__all__ = ["Tree", "glob", "glob_or_note"]
