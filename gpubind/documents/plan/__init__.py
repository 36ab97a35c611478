"""A plan as JSON or as a table."""
