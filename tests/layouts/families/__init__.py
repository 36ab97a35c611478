"""A file for each family of hosts, with a tuple `LAYOUTS` of `HostLayout`s."""
