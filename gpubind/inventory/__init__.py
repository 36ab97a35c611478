"""What is needed: the files, devices and facts of one vendor's driver on one host."""
