"""Images of real stacks from PyPI, file by file as GNU tar lists them.

`python -m tests.live.stacks DIRECTORY torch==2.6.0` does by hand what the test does with CuPy: it needs three times the
room of the stack in DIRECTORY.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from gpubind.files import Tree
from gpubind.files.blob import open_blob
from gpubind.image.open import open_image
from gpubind.model import Missing
from tests.tars.readers import Seen, listed_by_gnu_tar, seen_by_gpubind

PLACE = "usr/local/lib/python3.11/dist-packages"
"""Where Debian's pip puts packages: the 100th byte of many names is a slash."""
OCI = "application/vnd.oci.image"
Format = Literal["gnu", "pax"]


class Stack(NamedTuple):
    """An image whose one layer has packages from PyPI."""

    layer: Path
    archive: Path
    """As `docker save` writes it."""
    layout: Path


def install(directory: Path, packages: Iterable[str]) -> Path:
    """Return a directory with a root file system that has *packages*."""
    root = directory / "root"
    wheels = ["--python-version", "3.11", "--implementation", "cp", "--only-binary", ":all:", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *wheels, "--target", str(root / PLACE), *packages]
    subprocess.run(pip, check=True)
    return root


def pack(root: Path, directory: Path, form: Format) -> Stack:
    """Return the image of the files below *root*, in *directory*, whose layer GNU tar writes in *form*."""
    directory.mkdir()
    layer, saved, layout = directory / "layer.tar", directory / "saved", directory / "layout"
    _run("tar", "--create", f"--format={form}", "--sort=name", f"--directory={root}", f"--file={layer}", ".")
    digest = _digest(layer)
    config = {"os": "linux", "architecture": "amd64", "config": {}, "rootfs": {"type": "layers", "diff_ids": [digest]}}
    saved.mkdir()
    os.link(layer, saved / "layer.tar")
    (saved / "config.json").write_text(json.dumps(config))
    manifest = [{"Config": "config.json", "RepoTags": ["stack:1"], "Layers": ["layer.tar"]}]
    (saved / "manifest.json").write_text(json.dumps(manifest))
    _run("tar", "--create", "--format=pax", f"--directory={saved}", f"--file={directory / 'saved.tar'}", ".")
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    os.link(layer, blobs / digest.partition(":")[2])
    described = {"mediaType": f"{OCI}.layer.v1.tar", "digest": digest, "size": layer.stat().st_size}
    image = {"schemaVersion": 2, "config": _blob(blobs, config, "config"), "layers": [described]}
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    index = {"schemaVersion": 2, "manifests": [_blob(blobs, image, "manifest")]}
    (layout / "index.json").write_text(json.dumps(index))
    return Stack(layer, directory / "saved.tar", layout)


def differences(stack: Stack) -> list[str]:
    """Return what gpubind reads of *stack* otherwise than GNU tar."""
    listed = listed_by_gnu_tar(str(stack.layer))
    ours = [(_plain(seen), place) for seen, place in seen_by_gpubind(open_blob(str(stack.layer)))]
    found = [f"{seen} is {theirs} to GNU tar" for (seen, _), theirs in zip(ours, map(_plain, listed)) if seen != theirs]
    if len(ours) != len(listed):
        found.append(f"{len(ours)} members, {len(listed)} to GNU tar")
    if _contents(stack.layer, [(at, seen.size) for seen, at in ours if seen.kind == "file"]) != _extracted(stack.layer):
        found.append("other contents")
    files = {f"/{seen.name}".rstrip("/"): (seen.kind, seen.mode, seen.size, seen.link) for seen in map(_plain, listed)}
    for image in (stack.archive, stack.layout):
        seen_here = dict(_everything(open_image(image).tree, files))
        found += [
            f"{image.name}: {path}" for path in sorted({*files, *seen_here}) if files.get(path) != seen_here.get(path)
        ]
    return found


def slashed(stack: Stack) -> int:
    """Return how many files have a slash as byte 100 of their names."""
    return sum(
        seen.kind == "file" and seen.name.encode()[99:100] == b"/" for seen in listed_by_gnu_tar(str(stack.layer))
    )


def _everything(
    tree: Tree, files: dict[str, tuple[str, int, int, str]]
) -> Iterator[tuple[str, tuple[str, int, int, str]]]:
    """Each path of *tree*, as GNU tar lists it; a hard link is the file that it names."""
    todo = [""]
    while todo:
        directory = todo.pop()
        for name in tree.names(directory or "/"):
            path = f"{directory}/{name}"
            stat = tree.lstat(path)
            assert not isinstance(stat, Missing), path
            if stat.kind == "dir":
                todo.append(path)
            link = tree.readlink(path) if stat.kind == "link" else ""
            assert isinstance(link, str), path
            size = stat.size if stat.kind == "file" else 0
            hard = files.get(path, ("",))[0] == "hardlink"
            yield path, files[path] if hard else (stat.kind, stat.mode, size, link)
    yield "", files[""]


def _plain(seen: Seen) -> Seen:
    """*seen* without the `./` that GNU tar writes before each name."""
    return seen._replace(name=seen.name.removeprefix(".").removeprefix("/"))


def _contents(archive: Path, places: Iterable[tuple[int, int]]) -> str:
    digest = hashlib.sha256()
    with archive.open("rb") as file:
        for offset, size in places:
            file.seek(offset)
            while size:
                piece = file.read(min(size, 1 << 20))
                digest.update(piece)
                size -= len(piece)
    return digest.hexdigest()


def _extracted(archive: Path) -> str:
    """The digest of all files that GNU tar extracts, one after the other."""
    words = f"tar --extract --to-stdout --file={archive} | sha256sum"
    return subprocess.run(["sh", "-c", words], check=True, capture_output=True, text=True).stdout.split()[0]


def _digest(path: Path) -> str:
    said = subprocess.run(["sha256sum", str(path)], check=True, capture_output=True, text=True).stdout
    return f"sha256:{said.split()[0]}"


def _blob(blobs: Path, document: object, kind: str) -> dict[str, object]:
    data = json.dumps(document).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": f"{OCI}.{kind}.v1+json", "digest": f"sha256:{digest}", "size": len(data)}


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def main() -> int:
    directory, *packages = sys.argv[1:]
    root = install(Path(directory), packages) if packages else Path(directory) / "root"
    forms: tuple[Format, ...] = ("gnu", "pax")
    status = 0
    for form in forms:
        stack = pack(root, Path(directory) / form, form)
        found = differences(stack)
        members = len(listed_by_gnu_tar(str(stack.layer)))
        sys.stdout.write(f"{form}: {members} members, {slashed(stack)} with a slash as byte 100, {len(found)} differ\n")
        sys.stdout.write("".join(f"  {line}\n" for line in found[:20]))
        status |= bool(found)
        shutil.rmtree(Path(directory) / form)
    return status


if __name__ == "__main__":
    sys.exit(main())
