"""Files of this machine, of a record or of an image (`Tree`), and their bytes (`blob.Blob`)."""

from gpubind.files.glob import glob, glob_or_note
from gpubind.files.tree import Tree

__all__ = ["Tree", "glob", "glob_or_note"]
