"""Which runtime `--backend auto` means."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cli import HOST, gpubind

from gpubind.caller import image_form
from gpubind.errors import RuntimeLimitError
from gpubind.preparation import choose_runtime

EVERY = (
    *("apptainer", "singularity", "bwrap", "podman", "docker", "ch-run", "proot", "udocker", "systemd-nspawn"),
    *("crun", "runc"),
)


def programs_in(directory: Path, *names: str) -> dict[str, str]:
    """An environment in whose PATH programs of these names are, and nothing else."""
    place = directory / "-".join(("programs", *names))
    place.mkdir(exist_ok=True)
    for name in names:
        (place / name).write_text("#!/bin/sh\n")
        (place / name).chmod(0o755)
    return {"PATH": str(place)}


def images(directory: Path) -> dict[str, str]:
    """An image of each form, by its name."""
    (directory / "tree/usr").mkdir(parents=True)
    (directory / "bundle").mkdir()
    (directory / "bundle/config.json").write_text("{}")
    (directory / "x.sif").touch()
    (directory / "layout").mkdir()
    return {
        "tree": f"{directory}/tree",
        "sif": f"{directory}/x.sif",
        "bundle": f"{directory}/bundle",
        "layout": f"oci:{directory}/layout:latest",
        "archive": f"oci-archive:{directory}/x.tar",
        "docker archive": "docker-archive:x.tar:name:tag",
        "registry": "docker://docker.io/library/debian:12",
        "library": "library://user/collection/image",
        "name": "debian:12",
        "podman": "podman:debian:12",
        "docker": "docker:debian:12",
        "gone": "/nonexistent/x",
        "gone.sif": "gone.sif",
    }


ABLE = {
    "tree": ("apptainer", "singularity", "bwrap", "podman", "ch-run", "proot", "systemd-nspawn"),
    "sif": ("apptainer", "singularity"),
    "bundle": ("crun", "runc"),
    "layout": ("apptainer", "singularity", "podman"),
    "archive": ("apptainer", "singularity", "podman"),
    "docker archive": ("apptainer", "singularity", "podman"),
    "registry": ("apptainer", "singularity", "podman"),
    "library": ("apptainer", "singularity"),
    "podman": ("podman",),
    "docker": ("docker",),
}
"""Those that start each, in the order in which they are taken."""


@pytest.mark.parametrize("kind", ABLE)
def test_the_first_that_is_there_and_starts_such_an_image_is_taken(tmp_path: Path, kind: str) -> None:
    image = images(tmp_path)[kind]
    there = list(EVERY)
    for name in ABLE[kind]:
        chosen = choose_runtime(image, programs_in(tmp_path, *there))
        assert chosen.runtime.name == name
        there.remove(name)
    with pytest.raises(RuntimeLimitError) as caught:
        choose_runtime(image, programs_in(tmp_path, *there))
    assert (caught.value.code, caught.value.where) == ("no-runtime", image)
    assert ", ".join(ABLE[kind]) in caught.value.why


def test_a_name_that_is_nothing_here_is_a_stores_or_else_the_matter_of_whoever_is_there(tmp_path: Path) -> None:
    chosen = choose_runtime("debian:12", programs_in(tmp_path, *EVERY))
    assert (chosen.runtime.name, chosen.image) == ("podman", "debian:12")
    assert choose_runtime("debian:12", programs_in(tmp_path, "bwrap", "udocker")).runtime.name == "udocker"
    assert choose_runtime("debian:12", programs_in(tmp_path, "apptainer")).runtime.name == "apptainer"
    for missing in ("/nonexistent/x", "./x", "gone.sif"):
        assert choose_runtime(missing, programs_in(tmp_path, *EVERY)).runtime.name == "apptainer"


def test_an_image_that_is_named_with_its_store_is_told_to_that_by_its_own_name(tmp_path: Path) -> None:
    for store in ("podman", "docker"):
        chosen = choose_runtime(f"{store}:docker:dind", programs_in(tmp_path, *EVERY))
        assert (chosen.runtime.name, chosen.image) == (store, "docker:dind")


def test_what_is_there_counts_before_what_its_name_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "oci:x").mkdir()
    (tmp_path / "docker:x").touch()
    monkeypatch.chdir(tmp_path)
    assert (image_form("oci:x"), image_form("docker:x")) == ("directory", "file")
    assert choose_runtime("docker:x", programs_in(tmp_path, *EVERY)).image == "docker:x"


def test_the_runtime_that_was_chosen_is_said_with_v_alone(tmp_path: Path) -> None:
    env = programs_in(tmp_path, "bwrap", "apptainer")
    words = ("--host", HOST, "--dry-run", images(tmp_path)["tree"], "true")
    said = "note: backend: apptainer, the first in PATH of those that start a directory\n"
    loud = gpubind("exec", "-v", *words, env=env)
    assert loud.stderr.startswith(said)
    assert said not in gpubind("exec", *words, env=env).stderr + loud.stdout
    assert said not in gpubind("exec", "-v", "--backend", "apptainer", *words, env=env).stderr
