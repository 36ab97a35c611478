"""Open images in OCI layouts, and in archives of `docker save` and `podman save`.

Source: OCI image-spec `image-layout.md`; containers/image's `oci-archive` and `docker-archive`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Optional, TypeVar

from gpubind.errors import FormatError, HostReadError, UsageError, in_file
from gpubind.files.blob import Blob, BlobPart, BytesBlob, close_on_error
from gpubind.files.compressed import unpacked
from gpubind.files.live import LiveTree
from gpubind.files.opened import OpenedTree
from gpubind.formats.archive import oci
from gpubind.formats.archive.magic import UNSUPPORTED_COMPRESSIONS
from gpubind.image.facts import Image, read_image
from gpubind.image.layers import LayeredTree, LayerIndex, collect_members, members_with_ident
from gpubind.image.tar import Member
from gpubind.machine.answers import real_path
from gpubind.model import HostPath, ImageKind, Missing
from gpubind.model.arch import Architecture

T = TypeVar("T")

LAYERS_LIMIT = 512  # Docker makes up to 127
_ALGORITHMS = ("sha256", "sha384", "sha512")
"""Digests that are checked. Source: OCI image-spec, `descriptor.md`."""
STEP = 1 << 20
_INDEX_DEPTH_LIMIT = 4
_INDEXES_LIMIT = 16
_TAGS_SHOWN = 8


class OciLayout:
    """The files of a layout, in a directory or in an archive."""

    def __init__(self, tree: OpenedTree, label: str) -> None:
        self.tree = tree
        self.label = label
        self._layers: list[Blob] = []

    def close(self) -> None:
        """Close the layout and its opened layers."""
        for layer in self._layers:
            layer.close()
        self.tree.close()

    def has(self, path: str) -> bool:
        """Return whether *path* is a regular file."""
        entry = self.tree.find("/" + path)
        return not isinstance(entry, Missing) and entry.stat.kind == "file"

    def read_document(self, path: str, parse: Callable[[bytes], T], expected: Optional[oci.OciDescriptor] = None) -> T:
        """Return the document *path*. Errors: `FormatError` (`bad-oci`) if it is missing, too large or changed."""
        data = self.tree.read("/" + path, oci.DOCUMENT_LIMIT)
        if isinstance(data, Missing):
            raise oci.damaged(str(data), path).in_file(self.label)
        if expected is not None:
            self._check_size(path, len(data), expected.size)
            VerifiedBlob(BytesBlob(data), expected.digest, f"{self.label}: {path}").finish()
        with in_file(f"{self.label}: {path}"):
            return parse(data)

    def layer(self, path: str, expected: Optional[oci.OciDescriptor]) -> Blob:
        """Open the layer *path*. Errors: as `read_document`; `VerifiedBlob.finish` checks the digest."""
        entry = self.tree.find("/" + path)
        if isinstance(entry, Missing) or entry.stat.kind != "file":
            why = str(entry) if isinstance(entry, Missing) else "it is not a regular file"
            raise oci.damaged(why, path).in_file(self.label)
        if expected is not None:
            self._check_size(path, entry.stat.size, expected.size)
        blob = self.tree.open(entry.path, f"{self.label}: {path}")
        if isinstance(blob, Missing):
            raise oci.damaged(str(blob), path).in_file(self.label)
        self._layers.append(blob)
        return blob if expected is None else VerifiedBlob(blob, expected.digest, blob.label)

    def _check_size(self, path: str, size: int, expected: int) -> None:
        if expected != size:
            raise oci.damaged(f"{size} bytes instead of {expected}", path).in_file(self.label)


def open_layout(path: str, label: str, tag: Optional[str], arch: Architecture) -> Image:
    """Return the image in the OCI layout directory *path*, called *label*. Errors: as `archive_tree`."""
    blobs, root = OciLayout(LiveTree(path), path), HostPath(real_path(path))
    tree, env = close_on_error(blobs, lambda: _from_index(blobs, root, tag, arch))
    image = close_on_error(tree, lambda: read_image(tree, label, "oci-layout", env))
    blobs.tree.close()  # the layers are files that stay open
    return image


def archive_tree(
    blob: Blob, root: HostPath, kind: Optional[ImageKind], tag: Optional[str], arch: Architecture
) -> tuple[OpenedTree, dict[str, str], ImageKind]:
    """Return the files of the image in the tar archive *blob*, the variables of its configuration, and its kind.

    *kind* is the kind that the caller named, if any. Of several images, the one with *tag*, or for *arch*, is chosen.

    Errors: `FormatError` (`bad-oci`, `bad-archive`, `image-bomb`, `unknown-image`), `HostReadError`
    (`unsupported-image`, `encrypted-image`), `UsageError` (`several-images`, `no-such-tag`).
    """
    plain = unpacked(blob)
    if kind is None and plain.read_at(257, 5) != b"ustar":
        why = "it is compressed, and what is in it is not a tar archive"
        raise FormatError("unknown-image", "this is not an image", where=blob.label, why=why)
    index = LayerIndex(whiteouts=False)
    index.add(plain, members_with_ident(plain))
    blobs = OciLayout(LayeredTree(index, root, near=False), blob.label)  # its files are layers
    is_docker, is_oci = blobs.has("manifest.json"), blobs.has("index.json")
    if kind is None and not is_docker and not is_oci:
        message = "an archive that holds no image"
        why = "neither manifest.json nor index.json is in it"
        hint = "an image is saved by `docker save` or `podman save`, not by `docker export`"
        raise FormatError("unknown-image", message, where=blob.label, why=why, hint=hint)
    if kind in ("docker-archive", "podman", "docker") or (kind is None and is_docker):
        images = blobs.read_document("manifest.json", oci.parse_docker_manifest)
        image = _find_tagged(images, [image.tags for image in images], tag, blobs.label)
        env = blobs.read_document(image.config, oci.parse_oci_config)
        tree = _layered_tree(blobs, root, [(layer, None) for layer in image.layers])
        return tree, env, kind or "docker-archive"
    return *_from_index(blobs, root, tag, arch), "oci-archive"


def _from_index(
    blobs: OciLayout, root: HostPath, tag: Optional[str], arch: Architecture
) -> tuple[OpenedTree, dict[str, str]]:
    descriptors = blobs.read_document("index.json", oci.parse_oci_index)
    images = [d for d in descriptors if d.media_type in (*oci.INDEX_TYPES, *oci.MANIFEST_TYPES, "")]
    if not images and descriptors:
        raise _unsupported(f"its parts are of type {descriptors[0].media_type[:100]!r}", blobs.label)
    if tag is None and len({names for names in (d.names for d in images) if names}) <= 1:
        chosen = images  # images with one name, or with none, are for different platforms
    else:
        chosen = [_find_tagged(images, [image.names for image in images], tag, blobs.label)]
        chosen = [image for image in images if image.names == chosen[0].names]
    manifests = _find_manifests(blobs, chosen)
    descriptor = _choose_platform(manifests, arch, blobs.label)
    manifest = blobs.read_document(descriptor.path, oci.parse_oci_manifest, descriptor)
    # Old registries name no type in schema 2.
    is_unnamed = (manifest.config.media_type, descriptor.media_type) == ("application/octet-stream", oci.SCHEMA_2)
    if manifest.config.media_type not in oci.CONFIG_TYPES and not is_unnamed:
        raise _unsupported(f"its configuration is of type {manifest.config.media_type[:100]!r}", blobs.label)
    for layer in manifest.layers:
        if layer.media_type.endswith("+encrypted"):
            why = f"a layer is {layer.media_type!r}"
            raise HostReadError("encrypted-image", "the image is encrypted", where=blobs.label, why=why)
        if not oci.is_layer_type(layer.media_type):
            raise _unsupported(f"a layer is of type {layer.media_type[:100]!r}", blobs.label)
    env = blobs.read_document(manifest.config.path, oci.parse_oci_config, manifest.config)
    layers = [(layer.path, layer) for layer in manifest.layers]
    return _layered_tree(blobs, root, layers), env


def _layered_tree(
    blobs: OciLayout, root: HostPath, layers: Sequence[tuple[str, Optional[oci.OciDescriptor]]]
) -> OpenedTree:
    """Return the tree of *layers*. The layers of a packed archive are read in the order of the archive.

    `docker save` sorts them by digest: going back to each would unpack the archive again each time.
    """
    if len(layers) > LAYERS_LIMIT:
        raise oci.damaged(f"{len(layers)} layers", "layers").in_file(blobs.label)
    index = LayerIndex()
    opened = {path: blobs.layer(path, descriptor) for path, descriptor in layers}
    unread = iter(sorted(opened, key=lambda path: opened[path].place))
    read: dict[str, tuple[Blob, Iterable[Member]]] = {}
    for path, _ in layers:
        while path not in read:
            following = next(unread, path)  # a layer that is listed twice is read twice
            plain, layer_members = _read_layer(opened[following])
            read[following] = plain, layer_members if following == path else collect_members(layer_members)
        index.add(*read.pop(path))
    return LayeredTree(index, root)


def _read_layer(blob: Blob) -> tuple[Blob, Iterator[Member]]:
    """Return the unpacked layer *blob*, and its members.

    After the last member, the digest of a packed layer is checked. An unpacked layer is only read in part.

    Errors: `HostReadError` (code `unsupported-image`); those of `members_with_ident` and `VerifiedBlob.finish`.
    """
    head = blob.read_at(0, 512)
    for compression, magic in UNSUPPORTED_COMPRESSIONS.items():
        if head.startswith(magic) and head[257:262] != b"ustar":
            raise _unsupported(f"a layer is compressed with {compression}; gzip and zstd can be read", blob.label)
    plain = unpacked(blob)

    def members() -> Iterator[Member]:
        yield from members_with_ident(plain)
        if plain is not blob and isinstance(blob, VerifiedBlob):
            blob.finish()

    return plain, members()


def _find_manifests(blobs: OciLayout, descriptors: Sequence[oci.OciDescriptor]) -> list[oci.OciDescriptor]:
    manifests = []
    todo = [(descriptor, 0) for descriptor in reversed(descriptors)]
    opened = 0
    while todo:
        descriptor, depth = todo.pop()
        if descriptor.media_type in oci.INDEX_TYPES:
            opened += 1
            if depth >= _INDEX_DEPTH_LIMIT or opened > _INDEXES_LIMIT:
                raise oci.damaged("indexes in indexes, without end", descriptor.path).in_file(blobs.label)
            inner = blobs.read_document(descriptor.path, oci.parse_oci_index, descriptor)
            todo.extend((item, depth + 1) for item in reversed(inner))
        elif descriptor.media_type in (*oci.MANIFEST_TYPES, ""):
            manifests.append(descriptor)
    return manifests


def _choose_platform(manifests: Sequence[oci.OciDescriptor], arch: Architecture, label: str) -> oci.OciDescriptor:
    """Return the first manifest for *arch*; else the first for Linux, whose architecture `check` reports."""
    linux = [manifest for manifest in manifests if manifest.os in (None, "linux")]
    if not linux:
        platforms = sorted({f"{manifest.os}/{manifest.arch}" for manifest in manifests})
        raise _unsupported(f"no image for Linux is in it, but {', '.join(platforms[:_TAGS_SHOWN]) or 'nothing'}", label)
    return next((manifest for manifest in linux if manifest.arch in (None, arch.goarch)), linux[0])


def _find_tagged(images: Sequence[T], tags: Sequence[tuple[str, ...]], tag: Optional[str], label: str) -> T:
    if not images:
        raise oci.damaged("no image is in it", "byte 0").in_file(label)
    known_tags = [name for names in tags for name in names]
    if tag is None:
        if len(images) == 1:
            return images[0]
        shown = ", ".join(known_tags[:_TAGS_SHOWN]) + (", ..." if len(known_tags) > _TAGS_SHOWN else "")
        hint = "name one: `docker-archive:FILE:TAG`, `oci-archive:FILE:TAG` or `oci:DIRECTORY:TAG`"
        why = f"it has {len(images)}: {shown or 'without tags'}"
        raise UsageError("several-images", "which image is meant?", where=label, why=why, hint=hint)
    for image, names in zip(images, tags):
        # The whole name, or without the registry, without `:latest`, or only the tag.
        spellings = (full for name in names for full in (name, re.sub(":latest$", "", name)))
        if any(full == tag or full.endswith((f"/{tag}", f":{tag}")) for full in spellings):
            return image
    why = f"it has {', '.join(known_tags[:_TAGS_SHOWN])}" if known_tags else "its images have no tags"
    raise UsageError("no-such-tag", f"no image is tagged `{tag}`", where=label, why=why)


def _unsupported(why: str, label: str) -> HostReadError:
    return HostReadError("unsupported-image", "this kind of image cannot be looked at", where=label, why=why)


class VerifiedBlob(BlobPart):
    """A blob with an expected *digest* (`sha256:...`), which is computed while the blob is read from its start."""

    def __init__(self, blob: Blob, digest: str, label: str) -> None:
        super().__init__(blob, 0, blob.size or 0, label)
        algorithm, _, self._wanted = digest.partition(":")
        self._hash = hashlib.new(algorithm) if algorithm in _ALGORITHMS else None
        self._seen = 0  # bytes from the start in the hash

    def read_at(self, offset: int, size: int) -> bytes:
        data = super().read_at(offset, size)
        if self._hash is not None and offset <= self._seen < offset + len(data):
            self._hash.update(data[self._seen - offset :])
            self._seen = offset + len(data)
        return data

    def finish(self) -> None:
        """Read the rest, and check the digest. Errors: `FormatError` (code `bad-oci`) if it differs."""
        while self._hash is not None and self.read_at(self._seen, STEP):
            pass
        if self._hash is not None and self._hash.hexdigest() != self._wanted:
            why = f"its digest is {self._hash.name}:{self._hash.hexdigest()}, not the one by which it is named"
            raise oci.damaged(why, "byte 0").in_file(self.label)
