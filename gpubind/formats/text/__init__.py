"""JSON, YAML, shell and other text."""
