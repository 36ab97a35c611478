"""The JSON documents of OCI images, and of the archives of `docker save`.

Source: OCI image-spec `image-index.md`, `manifest.md`, `config.md`, `descriptor.md`; Docker "Image Manifest V2, Schema
2" and its "Image Specification v1.2" (`manifest.json`). Unknown fields are ignored, as the specification asks for.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, Optional, Union

from gpubind.errors import FormatError

DOCUMENT_LIMIT = 4 << 20
"""Bytes of one document, as registries have it."""
DESCRIPTORS_LIMIT = 4096
ENV_LIMIT = 4096
NAME_ANNOTATIONS = ("org.opencontainers.image.ref.name", "io.containerd.image.name")

INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
CONFIG_TYPES = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
_LAYER_TYPE = re.compile(
    r"application/vnd\.(oci\.image\.layer\.(v1|nondistributable\.v1)\.tar|docker\.image\.rootfs\.(diff|foreign\.diff)\.tar)"
    r"([+.](gzip|zstd))?"
)
_DIGEST = re.compile(r"([a-z0-9]+(?:[+._-][a-z0-9]+)*):([a-zA-Z0-9=_-]+)")


class OciDescriptor(NamedTuple):
    """What an index or a manifest says of a blob."""

    media_type: str
    digest: str
    """`sha256:...`, checked to name a file and nothing else."""
    size: int
    names: tuple[str, ...]
    """Tags and names, from the annotations."""
    os: Optional[str]
    arch: Optional[str]
    """In Go's words: `amd64`."""

    @property
    def path(self) -> str:
        """Where the blob is in a layout: `blobs/sha256/...`."""
        return "blobs/" + self.digest.replace(":", "/", 1)


class OciManifest(NamedTuple):
    """One image: its configuration, and its layers from the lowest up."""

    config: OciDescriptor
    layers: tuple[OciDescriptor, ...]


class OciConfig(NamedTuple):
    """What concerns a plan in an image's configuration."""

    os: Optional[str]
    arch: Optional[str]
    env: dict[str, str]


class DockerImage(NamedTuple):
    """One image in an archive of `docker save`. Paths are those of the archive, unchecked."""

    config: str
    tags: tuple[str, ...]
    layers: tuple[str, ...]


def is_layer_type(media_type: str) -> bool:
    """Whether *media_type* is a layer that can be read: a tar, plain, gzip or zstd."""
    return _LAYER_TYPE.fullmatch(media_type) is not None


def parse_oci_index(data: bytes) -> tuple[OciDescriptor, ...]:
    """The descriptors in an index. Errors: `FormatError` (code `bad-oci`) with the key."""
    return _descriptors(_object(_document(data), ""), "manifests")


def parse_oci_manifest(data: bytes) -> OciManifest:
    """A manifest. Errors: `FormatError` (code `bad-oci`) with the key."""
    document = _object(_document(data), "")
    return OciManifest(_descriptor(document.get("config"), "config"), _descriptors(document, "layers"))


def parse_oci_config(data: bytes) -> OciConfig:
    """A configuration; of a variable that is set twice, the last value. Errors: `FormatError` (code `bad-oci`)."""
    document = _object(_document(data), "")
    config = document.get("config")
    lines = [] if config is None else _object(config, "config").get("Env")
    env = {}
    for line in _strings(lines, "config.Env", ENV_LIMIT):
        name, _, value = line.partition("=")
        env[name] = value
    return OciConfig(_optional(document, "os", ""), _optional(document, "architecture", ""), env)


def parse_docker_manifest(data: bytes) -> tuple[DockerImage, ...]:
    """The images in a `manifest.json`. Errors: `FormatError` (code `bad-oci`) with the key."""
    images = []
    for number, item in enumerate(_list(_document(data), "", DESCRIPTORS_LIMIT)):
        place = f"[{number}]"
        image = _object(item, place)
        images.append(
            DockerImage(
                _string(image.get("Config"), f"{place}.Config"),
                _strings(image.get("RepoTags"), f"{place}.RepoTags", DESCRIPTORS_LIMIT),
                _strings(image.get("Layers"), f"{place}.Layers", DESCRIPTORS_LIMIT),
            )
        )
    return tuple(images)


def parse_inspected(data: bytes) -> OciConfig:
    """What `podman image inspect` or `docker image inspect` prints of one image. Errors: as `parse_oci_config`."""
    inspected = _object(next(iter(_list(_document(data), "", 1)), None), "[0]")
    config = inspected.get("Config")
    lines = [] if config is None else _object(config, "[0].Config").get("Env")
    env = dict(line.partition("=")[::2] for line in _strings(lines, "[0].Config.Env", ENV_LIMIT))
    return OciConfig(_optional(inspected, "Os", "[0]."), _optional(inspected, "Architecture", "[0]."), env)


def _descriptors(document: dict[str, Any], key: str) -> tuple[OciDescriptor, ...]:
    items = _list(document.get(key), key, DESCRIPTORS_LIMIT)
    return tuple(_descriptor(item, f"{key}[{number}]") for number, item in enumerate(items))


def _descriptor(value: object, place: str) -> OciDescriptor:
    found = _object(value, place)
    digest = _string(found.get("digest"), f"{place}.digest")
    if len(digest) > 200 or not _DIGEST.fullmatch(digest):
        raise _malformed(f"{digest[:100]!r} is no digest", f"key {place}.digest")
    size = found.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise _malformed("not a number of bytes", f"key {place}.size")
    annotations, platform = found.get("annotations"), found.get("platform")
    names = []
    for name in NAME_ANNOTATIONS if annotations is not None else ():
        said = _object(annotations, f"{place}.annotations").get(name)
        if isinstance(said, str):
            names.append(said)
    where = {} if platform is None else _object(platform, f"{place}.platform")
    return OciDescriptor(
        _optional(found, "mediaType", f"{place}.") or "",
        digest,
        size,
        tuple(names),
        _optional(where, "os", f"{place}.platform."),
        _optional(where, "architecture", f"{place}.platform."),
    )


def _document(data: bytes) -> object:
    if len(data) > DOCUMENT_LIMIT:
        raise _malformed(f"{len(data)} bytes", "byte 0")
    try:
        return json.loads(data.decode("utf-8"), parse_int=_integer)
    except RecursionError as error:
        raise _malformed("nested too deeply", "byte 0") from error
    except UnicodeDecodeError as error:
        raise _malformed("not UTF-8", f"byte {error.start}") from error
    except ValueError as error:
        raise _malformed(str(error)[:200], f"byte {getattr(error, 'pos', 0)}") from error


def _integer(digits: str) -> Union[int, float]:
    """Converting digits costs quadratic time; numbers of more than 64 bits serve nothing here."""
    return int(digits) if len(digits) < 20 else float("inf")


def _object(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _malformed("not an object", f"key {place}" if place else "byte 0")
    return value


def _list(value: object, place: str, limit: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > limit:
        why = f"not a list of at most {limit}" if isinstance(value, list) else "not a list"
        raise _malformed(why, f"key {place}" if place else "byte 0")
    return value


def _strings(value: object, place: str, limit: int) -> tuple[str, ...]:
    items = [] if value is None else _list(value, place, limit)
    return tuple(_string(item, f"{place}[{number}]") for number, item in enumerate(items))


def _string(value: object, place: str) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise _malformed("not a string", f"key {place}")
    return value


def _optional(holder: dict[str, Any], key: str, place: str) -> Optional[str]:
    value = holder.get(key)
    return None if value is None else _string(value, place + key)


def _malformed(why: str, place: str) -> FormatError:
    return FormatError("bad-oci", "malformed image description", place=place, why=why)
