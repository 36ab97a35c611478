"""JSON, YAML, shell and other text: `parse_json`, `parse_yaml`, `parse_record`, `parse_exports`."""
