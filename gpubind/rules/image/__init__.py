"""Rules about an image."""
