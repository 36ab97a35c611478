"""File formats: bytes or text in, values out. Pure; a malformed input is a `FormatError` that says where."""
