"""A blob whose content is known by its digest: it is held against that while it is read."""

from __future__ import annotations

import hashlib
from typing import Optional

from gpubind.errors import FormatError
from gpubind.files.blob import Blob

ALGORITHMS = ("sha256", "sha384", "sha512")
"""Those of the OCI image-spec, `descriptor.md`, that say that nobody has changed anything."""
STEP = 1 << 20


def verify(data: bytes, digest: str, label: str) -> None:
    """Hold *data* against its *digest*, `sha256:...`. Errors: `FormatError` (code `bad-oci`)."""
    algorithm, _, wanted = digest.partition(":")
    if algorithm in ALGORITHMS:
        _need(wanted, hashlib.new(algorithm, data), label)


class Verified(Blob):
    """*blob*, which should have *digest*. Whoever has read it from its start to its end calls `finish`."""

    def __init__(self, blob: Blob, digest: str, label: str) -> None:
        self.label = label
        self.quick, self.restarts, self.place = blob.quick, blob.restarts, blob.place
        self._blob = blob
        algorithm, _, self._wanted = digest.partition(":")
        self._hash = hashlib.new(algorithm) if algorithm in ALGORITHMS else None
        self._seen = 0  # bytes from the start that the hash has

    @property
    def size(self) -> Optional[int]:
        return self._blob.size

    def close(self) -> None:
        self._blob.close()

    def read_at(self, offset: int, size: int) -> bytes:
        data = self._blob.read_at(offset, size)
        if self._hash is not None and offset <= self._seen < offset + len(data):
            self._hash.update(data[self._seen - offset :])
            self._seen = offset + len(data)
        return data

    def finish(self) -> None:
        """Read what nobody has asked for yet. Errors: `FormatError` (code `bad-oci`) if the digest is another one."""
        if self._hash is None:
            return
        while self.read_at(self._seen, STEP):
            pass
        _need(self._wanted, self._hash, self.label)


def _need(wanted: str, found: hashlib._Hash, label: str) -> None:
    if found.hexdigest() != wanted:
        why = f"its digest is {found.name}:{found.hexdigest()}, not the one by which it is named"
        raise FormatError("bad-oci", "malformed image description", place="byte 0", why=why).in_file(label)
