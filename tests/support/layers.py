"""Images of tar layers: layers from specs, OCI layouts, OCI archives and archives of `docker save` from layers."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Optional, Union

from tests.support.trees import Dir, Fifo, File, Item, Link, Node, file_of

OCI = "application/vnd.oci.image"
LAYER = f"{OCI}.layer.v1.tar"
TAG = "org.opencontainers.image.ref.name"


class HardLink(NamedTuple):
    """A hard link; the target as in the archive."""

    target: str


class Claim(NamedTuple):
    """A file whose header claims *size* bytes, with *data* behind it."""

    size: int
    data: bytes = b""


Members = Union[Mapping[str, Any], Iterable[tuple[str, Any]]]
"""Path or name -> what is there: an item of a spec, a `HardLink` or a `Claim`."""


def packed(data: bytes) -> bytes:
    """*data* as a gzip file, fast."""
    return gzip.compress(data, 1, mtime=0)


def zstd(data: bytes) -> bytes:
    """*data* as a zstd file."""
    import zstandard

    return zstandard.ZstdCompressor(level=1).compress(data)


def tar(
    spec: Members, *, directories: bool = True, form: Literal[0, 1, 2] = tarfile.PAX_FORMAT, end: bool = True
) -> bytes:
    """A tar archive; names without their leading slash, all else as written. Parents are added where they miss."""
    out = io.BytesIO()
    seen = {""}
    for name, item in spec.items() if isinstance(spec, Mapping) else spec:
        name = name[1:] if name.startswith("/") and isinstance(spec, Mapping) else name
        parts = name.split("/")[:-1]
        for depth in range(1, len(parts) + 1) if directories else ():
            parent = "/".join(parts[:depth])
            if parent not in seen and parent.strip("./"):
                seen.add(parent)
                out.write(_header(parent, Dir(), form)[0])
        seen.add(name)
        head, data = _header(name, item, form)
        out.write(head + data + bytes(-len(data) % 512))
    return out.getvalue() + (bytes(1024) if end else b"")


def _header(name: str, item: Union[Item, HardLink, Claim], form: Literal[0, 1, 2]) -> tuple[bytes, bytes]:
    info = tarfile.TarInfo(name)
    info.mode = 0o755
    data = b""
    if isinstance(item, Dir):
        info.type, info.mode = tarfile.DIRTYPE, item.mode
    elif isinstance(item, Link):
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, item.target, 0o777
    elif isinstance(item, HardLink):
        info.type, info.linkname = tarfile.LNKTYPE, item.target
    elif isinstance(item, Node):
        info.type = tarfile.CHRTYPE if item.kind == "char" else tarfile.BLKTYPE
        info.devmajor, info.devminor, info.mode = item.major, item.minor, item.mode
    elif isinstance(item, Fifo):
        info.type = tarfile.FIFOTYPE
    elif isinstance(item, Claim):
        info.size, data = item.size, item.data
    elif isinstance(item, (bytes, str, File)):
        file = file_of(item)
        data, info.mode = file.data, file.mode
        info.size = len(data)
    else:
        raise TypeError(f"{name}: {item!r}")
    return info.tobuf(form, "utf-8", "surrogateescape"), data


class Blobs:
    """The blobs of a layout, by digest."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def add(self, data: Union[bytes, object], media_type: str, **more: object) -> dict[str, object]:
        """A descriptor of *data*, which is put in; what is no bytes is written as JSON."""
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        digest = hashlib.sha256(body).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = body
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(body), **more}

    def image(
        self,
        layers: Sequence[bytes],
        env: Optional[Sequence[str]] = (),
        *,
        layer_type: str = f"{LAYER}+gzip",
        arch: str = "amd64",
        os_name: str = "linux",
        **more: object,
    ) -> dict[str, object]:
        """The descriptor of an image with these layers."""
        config = {"os": os_name, "architecture": arch, "config": {"Env": env}, "rootfs": {"type": "layers"}}
        manifest = {
            "schemaVersion": 2,
            "config": self.add(config, f"{OCI}.config.v1+json"),
            "layers": [self.add(layer, layer_type) for layer in layers],
        }
        return self.add(manifest, f"{OCI}.manifest.v1+json", platform={"os": os_name, "architecture": arch}, **more)

    def layout(self, *manifests: object, index: Optional[bytes] = None) -> dict[str, bytes]:
        """The files of an OCI layout, by path."""
        document = {"schemaVersion": 2, "manifests": list(manifests)}
        return {
            "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            "index.json": json.dumps(document).encode() if index is None else index,
            **self.files,
        }


def oci_layout(layers: Sequence[bytes], env: Optional[Sequence[str]] = (), **more: object) -> dict[str, bytes]:
    """The files of an OCI layout with one image."""
    blobs = Blobs()
    return blobs.layout(blobs.image(layers, env, **more))  # type: ignore[arg-type]


def docker_archive(
    layers: Sequence[bytes], env: Optional[Sequence[str]] = (), tags: Sequence[str] = ("test:latest",)
) -> dict[str, bytes]:
    """The files in an archive of `docker save` (before 25), by path; a layer that comes twice is a link."""
    files = {f"{number}/layer.tar": layer for number, layer in enumerate(layers)}
    digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    rootfs = {"type": "layers", "diff_ids": digests}
    config = {"os": "linux", "architecture": "amd64", "config": {"Env": env}, "rootfs": rootfs}
    manifest = [{"Config": "config.json", "RepoTags": list(tags), "Layers": list(files)}]
    return {**files, "config.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}


def write(directory: Union[str, os.PathLike[str]], files: Mapping[str, bytes]) -> str:
    """*files* below *directory*."""
    base = os.fspath(directory)
    for path, data in files.items():
        os.makedirs(os.path.dirname(f"{base}/{path}"), exist_ok=True)
        with open(f"{base}/{path}", "wb") as file:
            file.write(data)
    return base


def archive(files: Mapping[str, bytes], pack: Callable[[bytes], bytes] = bytes) -> bytes:
    """*files* as a tar archive, packed as a whole."""
    return pack(tar({f"/{path}": data for path, data in files.items()}))
