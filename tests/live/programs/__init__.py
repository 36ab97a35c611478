"""Programs that start in a container and programs that do not, and what is needed to try them."""
