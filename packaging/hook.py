"""What hatchling runs for a wheel: it has the man page of the sources that it is made from."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPage(BuildHookInterface):  # type: ignore[misc]
    """Write the page into a directory of its own, and remove it when the wheel is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the page to the wheel."""
        self._made = tempfile.TemporaryDirectory()
        page = os.path.join(self._made.name, "gpubind.1")
        command = [sys.executable, "-B", os.path.join(self.root, "packaging/man.py"), page]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": self.root})
        build_data["shared_data"][page] = "share/man/man1/gpubind.1"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove it."""
        self._made.cleanup()
