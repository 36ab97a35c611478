"""The version of gpubind."""

__version__ = "0.1.0"
