"""File formats: each `parse_x` takes bytes or text and returns values. Pure. Malformed input raises `FormatError`."""
