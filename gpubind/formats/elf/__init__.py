"""ELF files and the cache of ld.so."""
