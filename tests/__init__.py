"""The tests."""

import sys

sys.dont_write_bytecode = False  # each process of pytest would rewrite every test module: more than half of collecting
