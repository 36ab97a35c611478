"""What a container that has the driver shows."""

from __future__ import annotations

import re

VERSION = re.compile(r"version `\S+' not found")
"""What the loader says of a library that wants a newer one than the image has."""


PUBLIC_NODES = ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm")
"""Nodes that everybody may open."""
