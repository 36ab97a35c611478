"""Hostile images: each ends in facts or in an error of gpubind's, soon, in little memory, and never looks outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import damaged
from tests.support.greedy import GREEDY
from tests.support.hostile import BASE, CASES
from tests.support.layers import archive as archived
from tests.support.layers import docker_archive, oci_layout, packed, tar, write, zstd
from tests.support.looked_at import SECRET, look
from tests.support.squashfs import SifObject, sif, squashfs
from tests.support.trees import Link, Spec

PIECES = 1000


def written(directory: Path) -> dict[str, str]:
    """Each case, written below *directory*: its path. `test_hostile_inputs` has the greatest ones."""
    made = {}
    for name, make in ((name, make) for name, make in CASES.items() if name not in GREEDY):
        path = directory / name
        path.mkdir()
        (path / "secret").write_text(SECRET)
        (path / "outside").mkdir()
        (path / "outside" / "10-docker.sh").write_text(f'export PATH="{SECRET}"\n')
        (path / "outside" / "secret").write_text(SECRET)
        made[name] = make(path)
    return made


class Outcome(NamedTuple):
    """What became of one image, in the process that looked at all."""

    code: str
    pieces: float
    """Of work: see `tests.support.measure`."""


def outcomes(references: dict[str, str]) -> dict[str, Outcome]:
    """Look at all, one after the other, in a process that may take 300 MiB more than its imports have."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.looked_at", json.dumps(references)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    found = {}
    for line in done.stdout.splitlines():
        name, code, pieces = line.split(" ")
        found[name] = Outcome(code, float(pieces))
    missing = next((name for name in references if name not in found), None)
    assert missing is None, f"it ended at {missing}:\n{done.stderr[-4000:]}"
    return found


EXPECTED = {
    "a_gzip_bomb": "facts",  # zeros: the end of an archive, read no further
    "a_gzip_bomb_in_a_file": "image-bomb",
    "an_archive_that_is_a_bomb": "image-bomb",
    "an_archive_that_is_a_zstd_bomb": "image-bomb",
    "an_encrypted_layer": "encrypted-image",
    "sif_encrypted": "encrypted-image",
    "sif_of_ext3": "unsupported-image",
    "sif_of_oci_blobs": "unsupported-image",
    "squashfs_of_lzma": "bad-squashfs",
    "squashfs_of_an_unknown_compression": "unsupported-image",
    "squashfs_directory_with_the_mode_of_a_device": "bad-squashfs",
    "squashfs_of_seven_directories_with_parts_of_one_listing": "image-bomb",
    "squashfs_of_xz_that_ends_early": "bad-squashfs",
    "squashfs_of_zstd_that_is_a_bomb": "bad-squashfs",
    "squashfs_of_zstd_that_claims_nothing": "bad-squashfs",
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


def test_hostile_images_end_in_facts_or_an_error_that_names_the_harm(tmp_path: Path) -> None:
    found = outcomes(written(tmp_path))
    assert {name: found[name].code for name in EXPECTED} == EXPECTED
    assert {name: seen for name, seen in found.items() if seen.code.startswith("!") or seen.pieces >= PIECES} == {}


SMALL: Spec = {
    "/etc/ld.so.conf": "/opt\n",
    "/lib": Link("usr/lib"),
    "/usr/lib/libc.so.6": BASE["/usr/lib/x86_64-linux-gnu/libc.so.6"],
}
FILES = {
    "sif": sif(SifObject(squashfs(SMALL)), slots=2),
    "squashfs": squashfs(SMALL),
    "squashfs of nothing packed": squashfs(SMALL, pack=bytes),
    "docker": archived(docker_archive([tar(dict(SMALL))])),
    "docker.gz": archived(docker_archive([packed(tar(dict(SMALL)))]), packed),
    "docker.zst": archived(docker_archive([zstd(tar(dict(SMALL)))]), zstd),
    "oci": archived(oci_layout([packed(tar(dict(SMALL)))])),
}


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damage_anywhere_ends_in_facts_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("d", numbered=True) / "image"
    path.write_bytes(data.draw(damaged(FILES[kind])))
    assert look(str(path))
    path.unlink()


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_layer_ends_in_facts_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("d", numbered=True) / "image"
    layer = data.draw(damaged(tar(dict(SMALL))))
    assert look(write(path, oci_layout([layer])))
