"""A mutation fuzzer: every parser of gpubind's, and every document from what it has parsed. `make fuzz N=1000000`."""
