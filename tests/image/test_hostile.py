"""Hostile images: each ends in facts or in an error of gpubind's, soon, in little memory, and never looks outside."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

import pytest
from build import damaged
from build.hostile import BASE, CASES, SECRET
from build.layers import archive as archived
from build.layers import docker_archive, oci_layout, packed, tar, write, zstd
from build.squashfs import SifObject, sif, squashfs
from build.trees import Link, Spec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpubind.errors import GpubindError
from gpubind.image import Image, open_image
from gpubind.model import Missing

SECONDS = 10
MEMORY = 300 << 20
LOOKED_AT = ("/", "/etc", "/lib", "/usr/lib", "/.singularity.d/env", "/bin", "/up", "/root/root", "/l", "/a", "/d/d/d")
READ = ("/etc/ld.so.conf", "/etc/ld.so.cache", "/lib/secret", "/secret", "/etc/passwd", "/lib/libc.so.6", "/up/secret")


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    made = {}
    for name, make in CASES.items():
        path = tmp_path_factory.mktemp("h")
        (path / "secret").write_text(SECRET)
        (path / "outside").mkdir()
        (path / "outside" / "10-docker.sh").write_text(f'export PATH="{SECRET}"\n')
        (path / "outside" / "secret").write_text(SECRET)
        made[name] = make(path)
    return made


def look(reference: str) -> str:
    """What became of an image: the code of an error, or `facts`. Everything in it is looked at, as far as that goes."""
    try:
        image = open_image(reference)
        assert SECRET not in repr(image.facts)
        _look_around(image)
    except GpubindError as error:
        assert error.what
        assert error.where, f"{error.code} says no place"
        assert "MemoryError" not in error.why
        assert SECRET not in error.why
        return error.code
    return "facts"


def _look_around(image: Image) -> None:
    tree = image.tree
    for path in LOOKED_AT:
        names = tree.list(path)
        assert isinstance(names, (tuple, Missing))
        for name in () if isinstance(names, Missing) else names[:50]:
            assert name not in ("", ".", "..")
            assert "/" not in name
            for answer in (tree.lstat(f"{path}/{name}"), tree.stat(f"{path}/{name}"), tree.resolve(f"{path}/{name}")):
                assert answer is not None
    for path in READ:
        assert SECRET.encode() != tree.read(path)
        tree.ident(path)
        tree.elf(path)


class Outcome(NamedTuple):
    """What became of one image, in the process that looked at all."""

    code: str
    seconds: float


@pytest.fixture(scope="module")
def outcomes(references: dict[str, str]) -> dict[str, Outcome]:
    """All of them, one after the other, in a process that may take 300 MiB more than its imports have."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(references)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    found = {}
    for line in done.stdout.splitlines():
        name, code, seconds = line.split(" ")
        found[name] = Outcome(code, float(seconds))
    missing = next((name for name in references if name not in found), None)
    assert missing is None, f"it ended at {missing}:\n{done.stderr[-4000:]}"
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_image_ends_in_facts_or_an_error(outcomes: dict[str, Outcome], name: str) -> None:
    assert not outcomes[name].code.startswith("!")
    assert outcomes[name].seconds < SECONDS


EXPECTED = {
    "a_gzip_bomb": "facts",  # zeros: the end of an archive, read no further
    "a_gzip_bomb_in_a_file": "image-bomb",
    "an_archive_that_is_a_bomb": "image-bomb",
    "an_archive_that_is_a_zstd_bomb": "image-bomb",
    "a_million_small_files": "image-bomb",
    "an_encrypted_layer": "encrypted-image",
    "sif_encrypted": "encrypted-image",
    "sif_of_ext3": "unsupported-image",
    "sif_of_oci_blobs": "unsupported-image",
    "squashfs_of_lzma": "unsupported-image",
    "windows": "unsupported-image",
    "a_digest_that_escapes_in_a_layout": "bad-oci",
    "a_blob_of_another_size": "bad-oci",
    "a_truncated_gzip_layer": "bad-archive",
    "a_truncated_layer": "bad-archive",
    "sif_truncated": "bad-sif",
    "squashfs_larger_than_its_file": "bad-squashfs",
    "squashfs_with_a_metadata_bomb": "bad-squashfs",
    "names_that_climb": "facts",
    "links_out_in_a_sif": "facts",
    "whiteouts_of_everything": "facts",
}


@pytest.mark.parametrize(("name", "code"), EXPECTED.items())
def test_the_error_names_the_harm(outcomes: dict[str, Outcome], name: str, code: str) -> None:
    assert outcomes[name].code == code


SMALL: Spec = {
    "/etc/ld.so.conf": "/opt\n",
    "/lib": Link("usr/lib"),
    "/usr/lib/libc.so.6": BASE["/usr/lib/x86_64-linux-gnu/libc.so.6"],
}
FILES = {
    "sif": sif(SifObject(squashfs(SMALL)), slots=2),
    "squashfs": squashfs(SMALL),
    "docker": archived(docker_archive([tar(dict(SMALL))])),
    "docker.gz": archived(docker_archive([packed(tar(dict(SMALL)))]), packed),
    "docker.zst": archived(docker_archive([zstd(tar(dict(SMALL)))]), zstd),
    "oci": archived(oci_layout([packed(tar(dict(SMALL)))])),
}


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damage_anywhere_ends_in_facts_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("d", numbered=True) / "image"
    path.write_bytes(data.draw(damaged(FILES[kind])))
    assert look(str(path))
    path.unlink()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_layer_ends_in_facts_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("d", numbered=True) / "image"
    layer = data.draw(damaged(tar(dict(SMALL))))
    assert look(write(path, oci_layout([layer])))


def _in_bounds(references: dict[str, str]) -> None:
    """Look at all, and print what became of each."""
    import resource

    look(next(iter(references.values())))
    for module in ("lz4.block", "lzma", "PySquashfsImage", "tempfile", "zstandard", "gpubind.image.squashfs"):
        importlib.import_module(module)
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    for name, reference in references.items():
        started = time.monotonic()
        try:
            code = look(reference)
        except Exception as error:  # noqa: BLE001
            code = f"!{type(error).__name__}"
            traceback.print_exc()
        sys.stdout.write(f"{name} {code} {time.monotonic() - started:.2f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _in_bounds(json.loads(sys.argv[1]))
