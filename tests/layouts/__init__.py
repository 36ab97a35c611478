"""The layouts of hosts: where each distribution, cloud and operator puts a driver.

`frame.HostLayout` is one of them. A file of `families/` has the layouts of one family in a tuple `LAYOUTS`; a new
file is found by itself. `nvidia.py` has what a driver consists of, and builds the trees. docs/hosts.md is made of them.
Hosts by chance are in `tests/support/layouts.py`.
"""
