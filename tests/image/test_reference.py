"""The argument that names an image: its form, and its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

from gpubind.errors import UsageError
from gpubind.image.reference import ImageReference, is_bundle, parse_reference
from gpubind.runtimes import RUNTIMES
from tests.support.squashfs import SifObject, sif, squashfs
from tests.support.trees import Dir, Spec, make_tree

TREE: Spec = {
    "/bundle/config.json": "{}",
    **{
        f"/root-{name}/{item}": made
        for name in ("usr", "bin", "etc")
        for item, made in ((name, Dir()), ("config.json", "{}"))
    },
    "/directory/usr": "a file",
    "/file": "x",
    "/image.sif": sif(SifObject(squashfs({"/a": "x"}))),
    "/image.sqsh": squashfs({"/a": "x"}),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path, TREE)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "form", "prefix", "name", "store"),
    [
        ("bundle", "bundle", "", "", None),
        *((f"root-{name}", "directory", "", "", None) for name in ("usr", "bin", "etc")),
        ("directory", "directory", "", "", None),
        ("file", "file", "", "", None),
        ("image.sif", "sif", "", "", None),
        ("image.sqsh", "squashfs", "", "", None),
        ("docker://x:1", "registry", "docker", "x:1", None),
        ("library://x", "source", "library", "x", None),
        ("oci:dir:t", "layout", "oci", "dir:t", None),
        ("oci-archive:f:t", "archive", "oci-archive", "f:t", None),
        ("docker-archive:f:t", "archive", "docker-archive", "f:t", None),
        ("ubuntu:24.04", "reference", "ubuntu", "24.04", None),
        ("ubuntu", "reference", "", "", None),
        *((f"gone{end}", None, "", "", None) for end in (".sif", ".sqsh", ".tar", ".tar.gz", ".tgz", ".tar.zst")),
        *((text, None, "", "", None) for text in ("./gone", "/gone", "-x", "")),
        ("podman:x", "reference", "podman", "x", "podman"),
        ("docker:x:1", "reference", "docker", "x:1", "docker"),
        ("podman://x", "source", "podman", "x", None),
    ],
)
def test_an_argument_has_a_form_and_parts(
    text: str, form: Optional[str], prefix: str, name: str, store: Optional[str]
) -> None:
    image = parse_reference(text)
    assert image == ImageReference(text, form, prefix, name, store)  # type: ignore[arg-type]
    assert image.is_local_file == (form in ("directory", "bundle", "sif", "squashfs", "file"))
    assert (image.word, image.label) == ((name, f"{store}:{name}") if store else (text, text))


def test_a_bundle_is_a_directory_with_a_configuration_and_no_system() -> None:
    assert [is_bundle(name) for name in ("bundle", "directory", "file", "root-usr")] == [True, False, False, False]


@pytest.mark.parametrize(
    ("text", "runtime", "word", "label"),
    [
        ("ubuntu", "podman", "ubuntu", "podman:ubuntu"),
        ("file", "podman", "file", "podman:file"),
        ("podman:ubuntu", "podman", "ubuntu", "podman:ubuntu"),
        ("./file", "podman", "./file", "./file"),
        ("gone.sif", "podman", "gone.sif", "gone.sif"),
        ("docker:ubuntu", "docker", "ubuntu", "docker:ubuntu"),
        ("ubuntu", "apptainer", "ubuntu", "ubuntu"),
    ],
)
def test_a_name_is_one_of_the_store_of_the_runtime(text: str, runtime: str, word: str, label: str) -> None:
    image = parse_reference(text, RUNTIMES[runtime])
    assert (image.word, image.label) == (word, label)
    assert (image.form == "reference") == ("ubuntu" in text or label == "podman:file")


@pytest.mark.parametrize(
    ("runtime", "more"),
    [("docker", "; an image that is itself called `podman` is `docker:podman:x`"), ("apptainer", "")],
)
def test_another_store_than_the_runtimes_is_refused(runtime: str, more: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference("podman:x", RUNTIMES[runtime])
    title = RUNTIMES[runtime].title
    assert (caught.value.code, caught.value.where) == ("other-store", "podman:x")
    assert caught.value.what == f"the image is in podman's store, and {title} does not start it from there"
    assert (caught.value.why, caught.value.hint) == (f"the backend is {runtime}", f"use --backend podman{more}")
