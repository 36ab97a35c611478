"""Real stacks, built from PyPI and Debian: do LLVM's tools, gpubind and tests/data/stacks.json say the same of them?"""
