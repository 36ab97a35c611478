"""A plan as a document: everything that is not a runtime's words."""

FORMATS = ("table", "text", "json", "paths", "cdi")
