"""3. The files, devices and facts of each vendor's driver on one host. Entry: `vendors.read_inventories`."""
