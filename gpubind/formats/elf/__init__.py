"""ELF files and the cache of ld.so: `parse_ident`, `parse_elf`, `parse_ldcache`."""
