"""An image and a host give back what is open, at once, and answer nothing afterwards."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import gpubind
from gpubind.errors import GpubindError, UsageError
from tests.support.driver import rhel
from tests.support.elf import elf
from tests.support.images import glibc
from tests.support.layers import Blobs, archive, docker_archive, oci_layout, packed, tar, write, zstd
from tests.support.squashfs import SifObject, sif, squashfs
from tests.support.trees import File, Spec, make_tree

SPEC: Spec = {**glibc("2.36"), "/opt/app": File(elf(kind=2, needed=("libc.so.6",)), 0o755)}
LAYERS = [tar(SPEC), packed(tar({"/etc/b": "b"})), zstd(tar({"/etc/c": "c"}))]


def written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def bundle(path: Path) -> str:
    make_tree(path / "image" / "rootfs", SPEC)
    process = {"cwd": "/", "args": ["sh"], "env": ["PATH=/bin"]}
    config = {"ociVersion": "1.0.0", "process": process, "root": {"path": "rootfs"}}
    (path / "image" / "config.json").write_text(json.dumps(config))
    return str(path / "image")


KINDS: dict[str, Callable[[Path], str]] = {
    "directory": lambda path: str(make_tree(path / "image", SPEC).root),
    "bundle": bundle,
    "sif": lambda path: written(path / "image.sif", sif(SifObject(squashfs(SPEC)))),
    "squashfs": lambda path: written(path / "image.sqfs", squashfs(SPEC)),
    "layout": lambda path: write(path / "image", oci_layout(LAYERS)),
    "docker archive": lambda path: written(path / "image.tar", archive(docker_archive(LAYERS))),
    "packed archive": lambda path: written(path / "image.tar.gz", packed(archive(docker_archive(LAYERS)))),
    "zstd archive": lambda path: written(path / "image.tar.zst", zstd(archive(docker_archive(LAYERS)))),
    "oci archive": lambda path: written(path / "image.tar", archive(oci_layout(LAYERS))),
}


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.freeze()  # what other tests left is not looked through
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def open_files() -> list[str]:
    """Return what each descriptor of this process is open on."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(found)


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_image_has_no_open_file(tmp_path: Path, kind: str) -> None:
    reference = KINDS[kind](tmp_path)
    before = open_files()
    with gpubind.open_image(reference) as image:
        assert not isinstance(image.tree.elf("/opt/app"), gpubind.HostReadError)
        assert open_files() != before
        facts = image.facts
    assert open_files() == before
    assert image.facts is facts
    image.close()
    assert open_files() == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_image_is_wrong_use(tmp_path: Path, kind: str) -> None:
    image = gpubind.open_image(KINDS[kind](tmp_path))
    host = gpubind.open_host("debian13-nvidia550")
    plan = gpubind.plan(host, gpubind.Request(), image=image)
    image.close()
    uses: dict[str, Callable[[], object]] = {
        "plan": lambda: gpubind.plan(host, gpubind.Request(), image=image),
        "check": lambda: gpubind.check(host, plan, image),
        "read": lambda: image.tree.read("/etc/passwd"),
        "list": lambda: image.tree.list("/opt"),
    }
    for name, use in uses.items():
        with pytest.raises(UsageError) as caught:
            use()
        assert (caught.value.code, name) == ("closed", name)


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("directory", "bundle")])
def test_an_image_that_cannot_be_opened_leaves_no_open_file(tmp_path: Path, kind: str) -> None:
    reference = Path(KINDS[kind](tmp_path))
    damaged = [reference] if reference.is_file() else [*reference.glob("blobs/*/*")]
    for file in damaged:
        file.write_bytes(file.read_bytes()[:200])
    before = open_files()
    with pytest.raises(GpubindError):
        gpubind.open_image(reference)
    assert open_files() == before


@pytest.mark.usefixtures("without_collector")
def test_a_layout_whose_last_layer_is_damaged_leaves_no_open_file(tmp_path: Path) -> None:
    blobs = Blobs()
    reference = write(tmp_path / "image", blobs.layout(blobs.image([*LAYERS, packed(tar(SPEC))[:-100]])))
    before = open_files()
    with pytest.raises(GpubindError):
        gpubind.open_image(reference)
    assert open_files() == before


@pytest.mark.usefixtures("without_collector")
def test_a_closed_host_has_no_open_directory_and_is_wrong_use(tmp_path: Path) -> None:
    make_tree(tmp_path / "root", rhel())
    before = open_files()
    with gpubind.open_host(root=tmp_path / "root", dev_root=tmp_path / "root") as host:
        assert not host.driver.lacks("/usr/lib64")
        assert open_files() != before
    assert open_files() == before
    for use in (lambda: gpubind.plan(host, gpubind.Request()), lambda: gpubind.open_runtime(host, "apptainer")):
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.code == "closed"


def test_a_recorded_host_can_be_closed_like_any_other() -> None:
    with gpubind.open_host("debian13-nvidia550") as host:
        pass
    with pytest.raises(UsageError, match="closed"):
        gpubind.plan(host, gpubind.Request())
