"""A registry that serves one OCI layout, on a port of this machine: the machines of the rig share its network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple, Optional

_PATH = re.compile(r"/v2/[^/]+/(?:manifests|blobs)/(.+)")


class Registry(NamedTuple):
    """A registry that is up."""

    address: str
    asked: list[str]
    """The paths that were asked for, in their order."""
    configuration: str
    """The digest of the image's, which each store fetches once."""

    @property
    def pulls(self) -> int:
        """How often the image was fetched."""
        return sum(path.endswith(self.configuration) for path in self.asked)


@contextmanager
def registry(layout: str) -> Iterator[Registry]:
    """Serve the image of *layout* by any name and tag while inside. Source: OCI distribution-spec 1.1, "Pull"."""
    (described,) = json.loads(Path(layout, "index.json").read_text())["manifests"]
    manifest = json.loads(Path(layout, "blobs", *described["digest"].split(":")).read_text())
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            file = self._answer()
            if file is not None:
                self.wfile.write(file.read_bytes())

        def _answer(self) -> Optional[Path]:
            asked.append(self.path)
            match = _PATH.fullmatch(self.path)
            name = match[1] if match else ""
            digest = name if name.startswith("sha256:") else described["digest"]
            file = Path(layout, "blobs", *digest.split(":"))
            is_found = match is not None and file.is_file()
            self.send_response(200 if is_found or self.path == "/v2/" else 404)
            is_manifest = is_found and digest == described["digest"]
            self.send_header("Content-Type", described["mediaType"] if is_manifest else "application/octet-stream")
            self.send_header("Docker-Content-Digest", digest)
            self.send_header("Content-Length", str(file.stat().st_size if is_found else 0))
            self.end_headers()
            return file if is_found else None

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Registry(f"127.0.0.1:{server.server_address[1]}", asked, manifest["config"]["digest"])
    finally:
        server.shutdown()
        server.server_close()
