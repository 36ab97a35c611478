"""Random access to the bytes of what is stored: a file, a part of one, what a compressed one unpacks to."""
