"""Documents of a check: text, JSON, JUnit, GitHub annotations."""
