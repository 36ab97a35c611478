"""The JSON documents of OCI images, and of the archives of `docker save`.

Source: OCI image-spec `image-index.md`, `manifest.md`, `config.md`, `descriptor.md`, `layer.md`; Docker "Image
Manifest V2, Schema 2" and its "Image Specification v1.2" (`manifest.json`). Unknown fields are ignored, as the
specification requires.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Optional

from gpubind.errors import Format
from gpubind.formats.text.json import parse_json
from gpubind.frozen import NamedTuple
from gpubind.model.plain import Decoder

DOCUMENT_LIMIT = 4 << 20
"""Maximum bytes of one document. Registries have the same limit."""
MEMBERS_LIMIT = 4096
"""Maximum members of one list, such as layers, images or variables."""
_NAME_ANNOTATIONS = ("org.opencontainers.image.ref.name", "io.containerd.image.name")
WHITEOUT = ".wh."
"""The prefix of a file that hides a file of lower layers."""
OPAQUE = ".wh..wh..opq"
"""A file that hides all files of lower layers in its directory."""
_OVERLAYS = ("overlay", "overlay2", "fuse-overlayfs")
"""The storage drivers that unpack each layer into a separate directory."""

SCHEMA_2 = "application/vnd.docker.distribution.manifest.v2+json"
INDEX_TYPES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFEST_TYPES = ("application/vnd.oci.image.manifest.v1+json", SCHEMA_2)
CONFIG_TYPES = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
_LAYER_TYPE = (
    r"application/vnd\.(oci\.image\.layer\.(v1|nondistributable\.v1)\.tar|docker\.image\.rootfs\.(diff|foreign\.diff)\.tar)"
    r"([+.](gzip|zstd))?"
)
_DIGEST = re.compile(r"(?=.{,200}\Z)[a-z0-9]+(?:[+._-][a-z0-9]+)*:[a-zA-Z0-9=_-]+")

_FORMAT = Format("bad-oci", "malformed image description")
damaged = _FORMAT.damaged
"""Returns the error about a malformed description, with the key or path."""
_OCI = Decoder(
    _FORMAT,
    prefix="key ",
    keys={"media_type": "mediaType", "os": "platform.os", "arch": "platform.architecture", "env": "config.Env"},
    members_limit=MEMBERS_LIMIT,
    allows_nul=False,
)
_DOCKER = Decoder(
    _FORMAT,
    prefix="key ",
    keys={
        "config": "Config",
        "tags": "RepoTags",
        "layers": "Layers",
        "env": "Config.Env",
        "driver": "GraphDriver.Name",
        "upper": "GraphDriver.Data.UpperDir",
        "lower": "GraphDriver.Data.LowerDir",
        "id": "Id",
        "arch": "Architecture",
        "parts": "RootFS.Layers",
    },
    members_limit=MEMBERS_LIMIT,
    allows_nul=False,
)


class OciDescriptor(NamedTuple):
    """A blob, as an index or a manifest describes it."""

    digest: Annotated[str, _DIGEST]
    """The digest, `sha256:...`. Its form is checked, so that it names a file and nothing else."""
    size: Annotated[int, range(1 << 64)]
    media_type: str = ""
    annotations: Optional[dict[str, Any]] = None
    os: Optional[str] = None
    arch: Optional[str] = None
    """Go's name of the architecture: `amd64`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Tags and names, from the annotations."""
        values = map((self.annotations or {}).get, _NAME_ANNOTATIONS)
        return tuple(name for name in values if isinstance(name, str))

    @property
    def path(self) -> str:
        """The path of the blob in a layout: `blobs/sha256/...`."""
        return "blobs/" + self.digest.replace(":", "/", 1)


class _Index(NamedTuple):
    manifests: tuple[OciDescriptor, ...]


class OciManifest(NamedTuple):
    """One image: its configuration, and its layers from the lowest up."""

    config: OciDescriptor
    layers: tuple[OciDescriptor, ...]


class _ImageConfig(NamedTuple):
    env: tuple[str, ...] = ()


class DockerImage(NamedTuple):
    """One image in an archive of `docker save`. Paths are those of the archive, unchecked."""

    config: str
    tags: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


class InspectedImage(NamedTuple):
    """An image in a store, as `podman image inspect` and `docker image inspect` print it."""

    env: tuple[str, ...] = ()
    driver: Optional[str] = None
    upper: str = ""
    lower: str = ""
    id: str = ""
    """The digest of its configuration, or of its manifests."""
    arch: str = ""
    parts: tuple[str, ...] = ()
    """The digests of its layers. They tell apart the architectures of one image, which share its ID."""

    @property
    def layers(self) -> tuple[str, ...]:
        """The directories of its unpacked layers, the uppermost first; empty for other storage drivers."""
        has_layers = self.upper and self.driver in _OVERLAYS
        return (self.upper, *filter(None, self.lower.split(":"))) if has_layers else ()


def parse_env_lines(env: Iterable[str]) -> dict[str, str]:
    """Return the variables of lines `NAME=VALUE`. The last value of a variable takes precedence."""
    return dict(line.partition("=")[::2] for line in env)


def is_layer_type(media_type: str) -> bool:
    """Return whether *media_type* is a supported layer: a tar, plain, gzip or zstd."""
    return re.fullmatch(_LAYER_TYPE, media_type) is not None


def parse_oci_index(data: bytes) -> tuple[OciDescriptor, ...]:
    """Return the descriptors of an index. Errors: `FormatError` (code `bad-oci`) with the key."""
    return _OCI.decode(_Index, parse_json(data, DOCUMENT_LIMIT, _FORMAT)).manifests


def parse_oci_manifest(data: bytes) -> OciManifest:
    """Return a manifest. Errors: `FormatError` (code `bad-oci`) with the key."""
    return _OCI.decode(OciManifest, parse_json(data, DOCUMENT_LIMIT, _FORMAT))


def parse_oci_config(data: bytes) -> dict[str, str]:
    """Return the variables of a configuration. Errors: `FormatError` (code `bad-oci`) with the key."""
    return parse_env_lines(_OCI.decode(_ImageConfig, parse_json(data, DOCUMENT_LIMIT, _FORMAT)).env)


def parse_docker_manifest(data: bytes) -> tuple[DockerImage, ...]:
    """Return the images in a `manifest.json`. Errors: `FormatError` (code `bad-oci`) with the key."""
    return _DOCKER.decode(tuple[DockerImage, ...], parse_json(data, DOCUMENT_LIMIT, _FORMAT))


def parse_inspected(data: bytes) -> InspectedImage:
    """Return the only image in *data*. Errors: `FormatError` (code `bad-oci`) with the key."""
    images = _DOCKER.decode(tuple[InspectedImage, ...], parse_json(data, DOCUMENT_LIMIT, _FORMAT))
    if len(images) != 1:
        raise damaged(f"{len(images)} images where one is wanted")
    return images[0]
