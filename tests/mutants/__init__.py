"""Whether the tests notice a change of one expression of gpubind: `make mutants`."""
