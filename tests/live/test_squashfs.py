"""squashfs as mksquashfs writes it, with each compressor, block size and option: its source again, file by file."""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from gpubind.errors import HostReadError
from gpubind.files import Tree
from gpubind.files.blob import open_blob
from gpubind.files.live import LiveTree
from gpubind.image.sif import SquashfsTree
from gpubind.model import HostPath, Missing

pytestmark = pytest.mark.live

COMPRESSORS = ("gzip", "lzma", "lzo", "lz4", "xz", "zstd")
VARIANTS = (
    *(f"-comp {name}" for name in COMPRESSORS),
    "-comp gzip -Xcompression-level 1 -Xwindow-size 8",
    "-comp gzip -Xstrategy huffman_only,fixed",
    "-comp xz -Xbcj x86 -Xdict-size 8K",
    "-comp xz -b 1M",
    "-comp lz4 -Xhc -b 1M",
    "-comp lzma -b 1M",
    "-comp zstd -Xcompression-level 22 -b 1M",
    "-comp zstd -noI -no-fragments",
    *(f"-b {size}" for size in ("4K", "8K", "16K", "32K", "64K", "256K", "512K", "1M")),
    "-noI",
    "-noId",
    "-noD",
    "-noF",
    "-noX",
    "-noI -noD -noF -noX",
    "-noI -noD -noF -noX -comp xz",
    "-no-fragments",
    "-no-fragments -b 4K",
    "-always-use-fragments",
    "-always-use-fragments -b 4K",
    "-nopad",
    "-no-exports",
    "-no-xattrs",
    "-no-duplicates",
    "-no-hardlinks",
    "-no-sparse",
)
READ_LIMIT = 64 << 20


def mksquashfs(source: Path, image: Path, options: str) -> Path:
    words = ["mksquashfs", str(source), str(image), "-quiet", "-no-progress", *options.split()]
    subprocess.run(words, check=True, capture_output=True)
    return image


def opened(image: Path) -> SquashfsTree:
    return SquashfsTree(open_blob(str(image)), HostPath(str(image)))


def make_source(root: Path) -> None:
    """A tree with everything that squashfs knows."""
    made = random.Random(1)  # the same every time; half of it does not shrink
    (root / "sizes").mkdir(parents=True)
    for size in (0, 1, 4095, 4096, 4097, 65536, 131071, 131072, 131073, 262144, 1 << 20, (1 << 20) + 7, 3_000_001):
        (root / "sizes" / str(size)).write_bytes((made.randbytes(size // 2) + b"text " * size)[:size])
    (root / "sizes" / "twice").write_bytes((root / "sizes" / "131073").read_bytes())
    make_sparse(root / "sparse")
    shutil.copy("/bin/ls", root / "program")
    os.link(root / "program", root / "sizes" / "hard-link")
    make_names(root / "names")
    make_special(root / "special")
    deep = "/".join(["deep"] * 300)
    (root / deep).mkdir(parents=True)
    (root / deep / "file").write_text("down here")
    (root / "indexed").mkdir()
    for number in range(3000):
        (root / "indexed" / f"{number:04}{'-name' * 20}").write_text(f"{number}\n" * (number % 9))
    os.setxattr(root / "program", "user.note", b"x" * 200)
    os.setxattr(root / "deep", "user.note", b"x")


def make_sparse(root: Path) -> None:
    root.mkdir()
    for name, parts in {
        "start": ((500_000, b"end"),),
        "middle": ((0, b"start"), (700_000, b"end" * 99_999)),
        "end": ((0, b"start"), (1 << 20, b"")),
        "all": ((3 << 20, b""),),
        "all-and-a-tail": (((3 << 20) + 5, b""),),
    }.items():
        with open(root / name, "wb") as file:
            for offset, data in parts:
                file.truncate(offset)
                file.seek(offset)
                file.write(data)


def make_names(root: Path) -> None:
    root.mkdir()
    for name in ("n" * 255, " ", "a\nb", "-x", "grün", "\udcff\udcfe", "*", "...", ".hidden", "0", "~", "\x01"):
        (root / name).write_text(name.encode("utf-8", "surrogateescape").hex())
    for name, target in {"l1": "n" * 4000, "l2": "/nowhere", "l3": "\udcff", "l4": "../program", "l5": "."}.items():
        (root / name).symlink_to(target)


def make_special(root: Path) -> None:
    root.mkdir()
    os.mkfifo(root / "fifo", 0o600)
    os.mknod(root / "char", 0o020666, os.makedev(195, 255))
    os.mknod(root / "block", 0o060660, os.makedev(259, 0x12345))
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(root)  # a socket's path may have 108 bytes
        made.bind("socket")
        os.chdir(here)
    (root / "empty").mkdir()
    (root / "link").symlink_to("fifo")
    for name in ("fifo", "char", "block", "socket", "empty", "link"):
        os.setxattr(root / name, "trusted.note", name.encode(), follow_symlinks=False)
        os.mkfifo(root / f"plain-{name}")
    for number, (mode, uid, gid) in enumerate(((0o4755, 0, 0), (0o1777, 65534, 65534), (0, 0xFFFFFFFE, 1000000))):
        path = root / f"mode-{number}"
        path.write_text("x")
        os.chown(path, uid, gid)
        path.chmod(mode)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source") / "root"
    make_source(root)
    return root


def assert_same(found: Tree, expected: Tree, path: str = "/") -> int:
    """That both say the same of *path* and all that is below it; how many files that were."""
    todo = [path]
    count = 0
    while todo:
        path = todo.pop()
        count += 1
        stat = expected.lstat(path)
        assert not isinstance(stat, Missing)
        assert found.lstat(path) == stat, path
        assert found.readlink(path) == expected.readlink(path), path
        if stat.kind == "file":
            assert found.read(path, READ_LIMIT) == expected.read(path, READ_LIMIT), path
            assert found.ident(path) == expected.ident(path), path
        elif stat.kind == "dir":
            names = expected.list(path)
            assert not isinstance(names, Missing)
            assert found.list(path) == names
            todo += [f"{path.rstrip('/')}/{name}" for name in names]
    return count


def has_lzo() -> bool:
    try:
        import lzo  # noqa: F401
    except ImportError:
        return False
    return True


@pytest.mark.parametrize("options", VARIANTS)
def test_what_mksquashfs_writes_is_its_source(tmp_path: Path, source: Path, options: str) -> None:
    image = mksquashfs(source, tmp_path / "image", options)
    if options == "-comp lzo" and not has_lzo():
        with pytest.raises(HostReadError) as caught:
            opened(image)
        assert caught.value.code == "missing-package"
        return
    tree = opened(image)
    assert assert_same(tree, LiveTree(str(source))) > 3300
    facts = tree.elf("/program")
    assert not isinstance(facts, Missing)
    assert facts == LiveTree(str(source)).elf("/program")


def test_no_compressor_is_forgotten(tmp_path: Path) -> None:
    words = ["mksquashfs", str(tmp_path), str(tmp_path / "image"), "-comp", "none-of-that-name"]
    said = subprocess.run(words, capture_output=True, text=True)
    _, available, names = (said.stdout + said.stderr).partition("ompressors available:\n")
    assert available
    assert set(re.findall(r"^\t(\w+)(?: \(default\))?$", names, re.MULTILINE)) == set(COMPRESSORS)


def test_an_image_that_was_appended_to_is_all_its_sources(tmp_path: Path, source: Path) -> None:
    first = tmp_path / "first"
    (first / "before").mkdir(parents=True)
    for number in range(500):
        (first / "before" / str(number)).write_text(f"{number}\n" * number)
    image = mksquashfs(first, tmp_path / "image", "-b 4K")
    mksquashfs(source, image, "")
    tree = opened(image)
    assert_same(tree, LiveTree(str(first)), "/before")
    for name in os.listdir(source):
        assert_same(tree, LiveTree(str(source)), f"/{name}")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("many") / "root"
    (root / "many").mkdir(parents=True)
    for number in range(100_000):
        (root / "many" / f"name-of-a-file-{number}").touch()
    return root


@pytest.mark.parametrize("options", ["", "-noI", "-comp zstd"])
def test_a_directory_of_many_files_is_its_source(tmp_path: Path, many: Path, options: str) -> None:
    tree = opened(mksquashfs(many, tmp_path / "image", options))
    assert assert_same(tree, LiveTree(str(many))) == 100_002


def test_unsquashfs_lists_the_same(tmp_path: Path, source: Path) -> None:
    image = mksquashfs(source, tmp_path / "image", "")
    said = subprocess.run(
        ["unsquashfs", "-l", "-d", "", str(image), "sizes", "special"], capture_output=True, text=True
    )
    listed = {line for line in said.stdout.splitlines() if line.count("/") == 2}
    tree = opened(image)
    names = {f"/{top}/{name}" for top in ("sizes", "special") for name in tree.list(f"/{top}")}
    assert listed == names
