"""One image, stored in many ways: the same facts. And what is said of what is no image."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Optional

import pytest
from build.elf import elf
from build.images import GLVND, glibc, sandbox
from build.layers import (
    LAYER,
    OCI,
    TAG,
    Blobs,
    HardLink,
    archive,
    docker_archive,
    oci_layout,
    packed,
    tar,
    write,
    zstd,
)
from build.squashfs import SifObject, sif, squashfs
from build.trees import Dir, File, Item, Link, Node, Spec, make_tree

from gpubind.errors import GpubindError
from gpubind.image import Image, open_image
from gpubind.model import CudaNote, Missing

COMPAT = "/usr/local/cuda-12.9/compat/libcuda.so.575.57.08"
ENV = {"LD_LIBRARY_PATH": "/opt/lib:/usr/local/cuda/lib64", "NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VERSION": "12.9.0"}
SPEC: Spec = {
    **glibc("2.36"),
    **GLVND,
    **sandbox("\n".join(f'export {name}="${{{name}:-"{value}"}}"' for name, value in ENV.items())),
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6": elf("libstdc++.so.6", defines=("GLIBCXX_3.4", "GLIBCXX_3.4.30")),
    "/usr/local/cuda": Link("/etc/alternatives/cuda"),
    "/etc/alternatives/cuda": Link("/usr/local/cuda-12.9"),
    "/usr/local/cuda-12.9/version.json": '{"cuda": {"version": "12.9.0"}}',
    "/usr/local/cuda-12.9/compat/libcuda.so.1": Link("libcuda.so.575.57.08"),
    COMPAT: elf("libcuda.so.1", cuda_note=CudaNote("12.9", (535, 550, 570))),
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1": Link("libcuda.so.550.54.14"),
    "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14": elf("libcuda.so.1"),
    "/etc/ld.so.conf": "include ld.so.conf.d/*.conf\n",
    "/etc/ld.so.conf.d/opt.conf": "/opt/lib\n",
    "/opt/lib/libnvidia-ml.so.1": File(b"", 0o644),
    "/opt/rocm/.info/version": "6.1.2-90\n",
}
LINES = [f"{name}={value}" for name, value in ENV.items()]


def facts_of(path: Path) -> object:
    return open_image(str(path)).facts._replace(kind="directory", label="")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> object:
    root = tmp_path_factory.mktemp("sandbox")
    make_tree(root, SPEC)
    facts = open_image(str(root)).facts
    assert (facts.libc_version, facts.libstdcxx, facts.singularity) == ("2.36", "3.4.30", True)
    assert (facts.env, facts.cuda, facts.rocm) == (ENV, "12.9.0", "6.1.2")
    assert facts.compat[0].note == CudaNote("12.9", (535, 550, 570))
    assert facts.driver
    assert facts.vendor_neutral
    return facts._replace(label="")


@pytest.mark.parametrize("block_size", [4096, 131072, 1 << 20])
def test_a_sif_has_the_facts_of_its_sandbox(tmp_path: Path, expected: object, block_size: int) -> None:
    path = tmp_path / "image.sif"
    path.write_bytes(sif(SifObject(b"def", data_type=0x4001), SifObject(squashfs(SPEC, block_size=block_size))))
    assert facts_of(path) == expected
    assert open_image(str(path)).facts.kind == "sif"


@pytest.mark.parametrize("name", ["gzip", "lzma", "xz", "lz4", "zstd"])
def test_what_mksquashfs_writes_can_be_read(name: str) -> None:
    image = open_image(str(Path(__file__).parent.parent / "data" / "images" / f"{name}.squashfs"))
    tree = image.tree
    assert tree.list("/") == ("bin", "dev", "etc", "lib", "many", "usr")
    assert image.facts.libc_version == "2.36"
    assert len(tree.list("/many")) == 300
    assert tree.read("/many/name-of-a-file-277") == b"277\n"
    assert tree.readlink("/lib") == "usr/lib"
    assert tree.read("/lib/zeros") == bytes(300_000) + b"end"  # a hole, and a fragment behind it
    node = tree.lstat("/dev/node")
    assert not isinstance(node, Missing)
    assert (node.kind, node.mode, node.uid, node.gid, node.major, node.minor) == ("char", 0o640, 7, 9, 195, 255)
    fifo = tree.lstat("/dev/fifo")
    assert not isinstance(fifo, Missing)
    assert fifo.kind == "fifo"


def test_lzo_is_read_or_its_package_named() -> None:
    path = str(Path(__file__).parent.parent / "data" / "images" / "lzo.squashfs")
    try:
        assert open_image(path).facts.libc_version == "2.36"
    except GpubindError as error:
        assert (error.code, error.hint) == ("missing-package", "pip install python-lzo")


@pytest.mark.parametrize("pack", [bytes, packed, zstd], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("whole", [bytes, packed, zstd], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("kind", ["oci-layout", "oci-archive", "docker-archive"])
def test_layers_have_the_facts_of_the_directory(
    tmp_path: Path, expected: object, kind: str, pack: object, whole: object
) -> None:
    items = list(SPEC.items())
    layers = [pack(tar(dict(part))) for part in (items[:10], items[10:])]  # type: ignore[operator]
    files = docker_archive(layers, LINES) if kind == "docker-archive" else oci_layout(layers, LINES)
    path = tmp_path / "image"
    if kind == "oci-layout":
        write(path, files)
    else:
        path.write_bytes(archive(files, whole))  # type: ignore[arg-type]
    image = open_image(str(path))
    assert image.facts._replace(kind="directory", label="") == expected
    assert image.facts.kind == kind
    assert image.tree.root == str(path)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_tar_format_is_read(tmp_path: Path, form: int) -> None:
    long = "/" + "/".join(["directory-with-a-long-name"] * (4 if form == tarfile.USTAR_FORMAT else 8))
    link = {} if form == tarfile.USTAR_FORMAT else {"/link": Link(f"{long}/file")}
    spec = {f"{long}/file": "text", **link, "/dev/nvidia0": Node("char", 195, 0)}
    image = opened(tmp_path, [tar(spec, form=form)])  # type: ignore[arg-type]
    if link:
        assert image.tree.read("/link") == b"text"
    assert image.tree.read(f"{long}/file") == b"text"
    node = image.tree.lstat("/dev/nvidia0")
    assert not isinstance(node, Missing)
    assert (node.kind, node.major, node.minor) == ("char", 195, 0)


# Layers.


def opened(tmp_path: Path, layers: list[bytes], env: tuple[str, ...] = ()) -> Image:
    return open_image(write(tmp_path / "layout", oci_layout(layers, env, layer_type=LAYER)))


def test_a_whiteout_hides_a_file_and_a_directory_below(tmp_path: Path) -> None:
    lower = tar({"/a/file": "a", "/a/kept": "k", "/b/c/d": "d"})
    tree = opened(tmp_path, [lower, tar({"/a/.wh.file": "", "/.wh.b": ""})]).tree
    assert tree.list("/a") == ("kept",)
    assert tree.list("/") == ("a",)


@pytest.mark.parametrize("first", [True, False])
def test_an_opaque_directory_has_only_what_its_own_layer_put_there(tmp_path: Path, first: bool) -> None:
    upper: list[tuple[str, Item]] = [("a/new/file", "new"), ("a/.wh..wh..opq", "")]
    layers = [tar({"/a/old": "old", "/a/new/old": "old"}), tar(upper if first else upper[::-1], directories=False)]
    tree = opened(tmp_path, layers).tree
    assert tree.list("/a") == ("new",)
    assert tree.list("/a/new") == ("file",)


def test_a_whiteout_leaves_what_its_own_layer_put_there(tmp_path: Path) -> None:
    tree = opened(tmp_path, [tar({"/a": "old"}), tar([("a", "new"), (".wh.a", "")])]).tree
    assert tree.read("/a") == b"new"


def test_a_file_replaces_a_directory_and_a_directory_a_file(tmp_path: Path) -> None:
    lower = tar({"/a/b": "b", "/c": "c", "/d": Link("a")})
    tree = opened(tmp_path, [lower, tar({"/a": "file", "/c": Dir(), "/d": "d"})]).tree
    assert tree.read("/a") == b"file"
    assert tree.list("/c") == ()
    assert tree.read("/d") == b"d"


def test_hard_links_lead_into_their_own_layer_and_lower_ones(tmp_path: Path) -> None:
    layers = [
        tar({"/usr/lib/one": "one", "/other": HardLink("usr/lib/one")}),
        tar({"/lib": Link("usr/lib")}),
        tar([("third", HardLink("./lib/one")), ("usr/lib/one", "changed"), ("fourth", HardLink("nothing"))]),
    ]
    tree = opened(tmp_path, layers).tree
    assert [tree.read(path) for path in ("/other", "/third", "/lib/one")] == [b"one", b"one", b"changed"]
    assert isinstance(tree.lstat("/fourth"), Missing)


def test_members_below_a_link_go_where_it_leads(tmp_path: Path) -> None:
    layers = [tar({"/lib": Link("/usr/lib"), "/usr/lib/a": "a"}), tar({"/lib/b": "b"}, directories=False)]
    tree = opened(tmp_path, layers).tree
    assert tree.readlink("/lib") == "/usr/lib"
    assert tree.list("/usr/lib") == ("a", "b")


def test_a_directory_that_comes_again_keeps_what_is_in_it(tmp_path: Path) -> None:
    tree = opened(tmp_path, [tar({"/tmp/a": "a"}), tar({"/tmp": Dir(0o1777)})]).tree
    assert tree.list("/tmp") == ("a",)
    found = tree.lstat("/tmp")
    assert not isinstance(found, Missing)
    assert found.mode == 0o1777


def test_a_large_layer_is_read_back_and_forth(tmp_path: Path) -> None:
    """Several checkpoints; members from the end to the beginning, and larger than a chunk."""
    noise = os.urandom(1 << 16)
    bodies = {f"/{number:02}": bytes([number]) + noise * 16 for number in range(40)}  # 40 MiB
    for pack in (packed, zstd):
        layer = pack(tar(bodies))
        path = write(tmp_path / pack.__name__, oci_layout([layer]))
        tree = open_image(path).tree
        for name in ("/39", "/00", "/20", "/21", "/05"):
            assert tree.read(name, 4 << 20) == bodies[name]


def test_a_gzip_layer_of_many_members_is_read(tmp_path: Path) -> None:
    data = tar({"/etc/a": "a", "/etc/b": "b"})
    layer = b"".join(packed(data[at : at + 512]) for at in range(0, len(data), 512)) + bytes(100)
    assert open_image(write(tmp_path / "x", oci_layout([layer]))).tree.read("/etc/b") == b"b"


# Choosing.


def test_a_tag_chooses(tmp_path: Path) -> None:
    blobs = Blobs()
    images = [
        blobs.image([packed(tar({"/name": tag}))], annotations={TAG: tag})
        for tag in ("one:1", "registry.io/two:latest")
    ]
    path = write(tmp_path / "layout", blobs.layout(*images))
    for tag, name in (("one:1", "one:1"), ("1", "one:1"), ("two", "registry.io/two:latest")):
        assert open_image(f"oci:{path}:{tag}").tree.read_text("/name") == name
    assert code_of(path) == "several-images"
    assert code_of(f"oci:{path}:three") == "no-such-tag"


def test_a_tag_chooses_in_an_archive_too(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(archive(docker_archive([tar({"/name": "x"})], tags=("a/b:latest", "c:2"))))
    for reference in (f"docker-archive:{path}:c:2", f"docker-archive:{path}:b", f"docker-archive:{path}", str(path)):
        assert open_image(reference).tree.read("/name") == b"x"
    assert code_of(f"docker-archive:{path}:d") == "no-such-tag"


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [
        ("x86_64", b"amd64"),
        ("aarch64", b"arm64"),
        ("ppc64le", b"riscv64"),
        (None, {"x86_64": b"amd64", "aarch64": b"arm64"}.get(os.uname().machine, b"riscv64")),
    ],
)
def test_of_several_architectures_that_of_the_planned_host_counts(
    machine: Optional[str], wanted: bytes, tmp_path: Path
) -> None:
    blobs = Blobs()
    images = [
        blobs.image([tar({"/arch": arch})], arch=arch, layer_type=LAYER) for arch in ("riscv64", "arm64", "amd64")
    ]
    attestation = blobs.image([], arch="unknown", os_name="unknown")
    index = blobs.add({"manifests": [attestation, *images]}, f"{OCI}.index.v1+json", annotations={TAG: "x"})
    path = write(tmp_path / "layout", blobs.layout(index))
    assert open_image(path, machine).tree.read("/arch") == wanted


def test_links_in_an_archive_are_followed_inside_it(tmp_path: Path) -> None:
    files = docker_archive([tar({"/name": "x"})])
    spec = {f"/{path}": data for path, data in files.items() if not path.endswith("layer.tar")}
    path = tmp_path / "image.tar"
    path.write_bytes(tar({**spec, "/store/x": files["0/layer.tar"], "/0/layer.tar": Link("../store/x")}))
    assert open_image(str(path)).tree.read("/name") == b"x"


def code_of(reference: str) -> str:
    with pytest.raises(GpubindError) as caught:
        open_image(reference)
    return caught.value.code


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", "unknown-image", "empty"),
        (b"\xfd7zXZ\0....", "unknown-image", "xz"),
        (b"\x7fELF....", "unknown-image", "program"),
        (b"<!DOCTYPE html>", "unknown-image", "web page"),
        (bytes(1080) + b"\x53\xef" + bytes(100), "unknown-image", "ext"),
        (b"hello, world", "unknown-image", "hello"),
        (tar({"/etc/passwd": "x"}), "unknown-image", "manifest.json"),
        (packed(b"hello, world" * 100), "unknown-image", "no tar archive"),
    ],
)
def test_a_file_that_is_no_image_is_named_for_what_it_is(tmp_path: Path, data: bytes, code: str, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(GpubindError) as caught:
        open_image(str(path))
    assert caught.value.code == code
    assert words in caught.value.why
    assert str(path) in caught.value.where


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("docker://ubuntu:24.04", "unpulled-image"),
        ("library://lolcow", "unpulled-image"),
        ("oras://ghcr.io/x/y:z", "unpulled-image"),
        ("docker-daemon:ubuntu", "no-image"),
        ("containers-storage:ubuntu", "no-image"),
        ("/dev/null", "no-image"),
        ("/dev/zero", "no-image"),
        ("oci:/nonexistent:tag", "no-image"),
        ("oci-archive:/etc", "no-image"),
        ("oci:/etc/passwd", "no-image"),
        ("", "no-image"),
        ("nul\0byte", "no-image"),
        ("podman:", "bad-image-name"),
        ("podman:--all", "bad-image-name"),
        ("docker:a b", "bad-image-name"),
    ],
)
def test_references_that_name_no_image(reference: str, code: str) -> None:
    assert code_of(reference) == code


def test_a_fifo_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert code_of(str(tmp_path / "fifo")) == "no-image"


def test_a_plan_without_an_image_loads_nothing_of_this() -> None:
    code = (
        "import sys, gpubind.image, gpubind.cli.app\n"
        "heavy = {'gpubind.formats.squashfs', 'zstandard', 'lz4', 'tarfile', 'tempfile'}\n"
        "heavy |= {'gpubind.image.sources', 'gpubind.image.oci'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(not shutil.which("tar"), reason="GNU tar is not there")
def test_what_gnu_tar_writes_is_read(tmp_path: Path) -> None:
    make_tree(tmp_path / "root", {"/etc/a": "a", "/usr/b": File(b"b" * 1000, 0o4755), "/l": Link("etc/a")})
    with open(tmp_path / "root" / "sparse", "wb") as file:
        file.truncate(1 << 20)
    words = ["tar", "-cSf", "layer.tar", "-C", "root", "."]
    subprocess.run(words, cwd=tmp_path, check=True)
    tree = opened(tmp_path, [(tmp_path / "layer.tar").read_bytes()]).tree
    assert tree.list("/") == ("etc", "l", "sparse", "usr")
    assert tree.read("/l") == b"a"
    assert tree.read("/usr/b") == b"b" * 1000
    assert tree.read("/sparse") == Missing("unreadable", "a sparse file")
