"""What hatchling runs for a wheel and a source archive: both name their commit, and a wheel has the man page."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from stamp import MODULE, stamped  # packaging is no package


class Generated(BuildHookInterface):  # type: ignore[misc]
    """Write the generated files into a directory of their own, and remove it when the archive is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to the archive. An editable install uses the checkout, whose commit changes."""
        self._made = tempfile.TemporaryDirectory()
        if version != "editable":
            module = os.path.join(self._made.name, "__init__.py")
            with open(module, "wb") as file:
                file.write(stamped(self.root))
            build_data["force_include"][module] = MODULE
        if self.target_name == "wheel":
            page = os.path.join(self._made.name, "gpubind.1")
            command = [sys.executable, "-B", os.path.join(self.root, "packaging/man.py"), page]
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": self.root})
            build_data["shared_data"][page] = "share/man/man1/gpubind.1"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove them."""
        self._made.cleanup()
