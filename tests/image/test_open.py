"""One image, stored in many ways: the same facts. And what is said of what is no image."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpubind.errors import GpubindError
from gpubind.image.open import open_image
from gpubind.model import CudaNote
from tests.support.elf import elf
from tests.support.images import GLVND, glibc, sandbox
from tests.support.layers import archive, docker_archive, oci_layout, packed, tar, write, zstd
from tests.support.squashfs import SifObject, sif, squashfs
from tests.support.trees import File, Link, Spec, make_tree

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
        (tar({"/etc/passwd": "x"}), "unknown-image", "saved by `docker save` or `podman save`"),
        (packed(b"hello, world" * 100), "unknown-image", "not a tar archive"),
    ],
)
def test_a_file_that_is_no_image_is_named_for_what_it_is(tmp_path: Path, data: bytes, code: str, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(GpubindError) as caught:
        open_image(str(path))
    assert caught.value.code == code
    assert words in f"{caught.value.why}; {caught.value.hint}"
    assert caught.value.what in ("this is not an image", "an archive that holds no image")
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


ACCEPTED = (
    "an image is a directory, an OCI bundle, a SIF file, an OCI layout, an archive of `docker save` or `podman save`, "
    "podman:NAME, docker:NAME"
)
UNPULLED = "`apptainer pull image.sif {0}` gets it; then give image.sif"
UNPULLED_DOCKER = f"{UNPULLED}; or `podman pull` and podman:NAME"
OF_PROGRAM = "`{0}:NAME` takes an image from the program's own store"
LONG = "x" * 501


@pytest.mark.parametrize(
    ("reference", "why", "hint"),
    [
        ("docker://ubuntu:24.04", "", UNPULLED_DOCKER.format("docker://ubuntu:24.04")),
        ("docker://a b", "", UNPULLED_DOCKER.format("IMAGE")),
        ("library://lolcow", "", UNPULLED.format("library://lolcow")),
        ("docker-daemon:x", "it has no images of the kind `docker-daemon`", OF_PROGRAM.format("docker")),
        ("containers-storage:x", "it has no images of the kind `containers-storage`", OF_PROGRAM.format("podman")),
        ("dir:x", "it has no images of the kind `dir`", OF_PROGRAM.format("podman")),
        ("/dev/null", "it is neither a file nor a directory", ACCEPTED),
        ("oci-archive:/etc", "it is a directory, not an archive", "for an OCI layout: `oci:/etc`"),
        ("docker-archive:/etc", "it is a directory, not an archive", "for an OCI layout: `oci:/etc`"),
        ("oci:/etc/passwd", "it is a file, not a directory", "for an archive: `oci-archive:/etc/passwd`"),
        ("oci:gone:tag", "it does not exist", ACCEPTED),
        ("a b", "it does not exist", ACCEPTED),
        *(
            (f"gone{end}", "it does not exist", ACCEPTED)
            for end in (".sif", ".sqsh", ".tar", ".tar.gz", ".tgz", ".tar.zst")
        ),
        ("x:1", "it does not exist", "name the store of an image that is in one: `podman:x:1` or `docker:x:1`"),
        (LONG, "it does not exist", f"name the store of an image that is in one: `podman:{LONG}` or `docker:{LONG}`"),
        (f"{LONG}x", "it does not exist", ACCEPTED),
        ("./imagee", "it does not exist", "did you mean `image`?"),
        ("podman:--all", "", "as in `podman:ubuntu:24.04`"),
        ("docker:a b", "", "as in `docker:ubuntu:24.04`"),
    ],
)
def test_a_reference_that_names_no_image_says_why_and_what_would(
    reference: str, why: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "image").write_bytes(b"")
    with pytest.raises(GpubindError) as caught:
        open_image(reference)
    error = caught.value
    what = {
        "no-image": "the image cannot be read",
        "unpulled-image": "the image is not on this machine",
        "bad-image-name": "this is not the name of an image",
    }
    assert (error.what, error.where, error.why, error.hint) == (what[error.code], reference, why, hint)


@pytest.mark.parametrize(
    ("marker", "what"), [("conda-meta", "a conda environment"), ("pyvenv.cfg", "a virtual environment of Python")]
)
def test_an_environment_of_python_is_no_image_but_an_image_may_have_one_at_its_top(
    tmp_path: Path, marker: str, what: str
) -> None:
    environment: Spec = {"/bin/python": File(elf(kind=2), 0o755), "/lib/libz.so.1": elf("libz.so.1"), f"/{marker}": "x"}
    with pytest.raises(GpubindError) as caught:
        open_image(make_tree(tmp_path / "env", environment).root)
    assert (caught.value.code, caught.value.what) == ("unknown-image", f"this is {what}, not an image")
    assert (caught.value.why, caught.value.hint) == (
        f"it has {marker} and no C library: its programs run with the C library of an image, or of this machine",
        "name the image that it runs in, `--image IMAGE --program ENV/bin/python`; here: `check --image ENV` "
        "without --host, --require and --backend",
    )
    with open_image(make_tree(tmp_path / "image", {**glibc(), f"/{marker}": "x"}).root) as image:
        assert image.facts.libc_family == "glibc"


def test_a_fifo_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert code_of(str(tmp_path / "fifo")) == "no-image"


def test_a_plan_without_an_image_loads_nothing_of_this() -> None:
    code = (
        "import sys, gpubind.image.open, gpubind.cli.reader\n"
        "heavy = {'gpubind.formats.archive.squashfs', 'zstandard', 'lz4', 'tarfile', 'tempfile'}\n"
        "heavy |= {'gpubind.files.compressed', 'gpubind.image.oci'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
