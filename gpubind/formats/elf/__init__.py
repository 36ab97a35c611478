"""ELF files and what ldconfig reads and writes: `parse_ident`, `parse_elf`, `parse_ldcache`, `parse_ldsoconf`."""
