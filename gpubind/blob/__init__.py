"""Random access to bytes: a file, a part of one, what a compressed one unpacks to."""
