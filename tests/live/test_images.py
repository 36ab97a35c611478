"""Images in every form, made by the real programs: the same facts, plan and findings; and starts that check first."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.containers import CONTAINERS, MOUNTED_IMAGES, Case, image, start
from tests.live.machine import RIG, Machine, here

pytestmark = pytest.mark.live

FORMS = {
    "bookworm-gl.sif": "sif",
    "bookworm-gl.oci": "oci-layout",
    "bookworm-gl.oci.tar": "oci-archive",
    "bookworm-gl.docker.tar": "docker-archive",
    "bookworm-gl.docker.tar.gz": "docker-archive",
}
USER = Case("apptainer", "bookworm-gl.sif", True)


def checked(machine: Machine, reference: str, *, user: bool = True) -> dict[str, Any]:
    words = ["check", "--nv", "--json", "--image", reference]
    document: dict[str, Any] = json.loads(machine.gpubind(*words, user=user, driver=True, binds=[CONTAINERS]))
    return document


def without_kind(document: dict[str, Any]) -> dict[str, Any]:
    """The document but for what names the form, and the settings that an archive's configuration adds."""
    facts = {key: value for key, value in document["image"].items() if key not in ("kind", "env")}
    return {**document, "image": facts, "checked": {**document["checked"], "image": None}}


@pytest.mark.parametrize("name", FORMS)
def test_an_image_is_the_same_in_every_form(trixie: Machine, name: str) -> None:
    directory, other = checked(trixie, image("bookworm-gl")), checked(trixie, image(name))
    assert other["image"]["kind"] == FORMS[name]
    assert without_kind(other) == without_kind(directory)


def test_an_image_of_podmans_store_is_the_same_as_its_archive(trixie: Machine) -> None:
    archive = checked(trixie, image("bookworm-gl.docker.tar"), user=False)
    stored = checked(trixie, "podman:rig:gl", user=False)
    assert stored["image"]["kind"] == "podman"
    assert without_kind(stored) == without_kind(archive)
    assert trixie.run(["sh", "-c", MOUNTED_IMAGES]).stdout == ""


def test_an_image_that_the_store_lacks_is_named(trixie: Machine) -> None:
    done = trixie.tried("check", "--image", "podman:nowhere:latest", driver=True, status=4)
    assert done.stderr.startswith("error: ")
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_sif_cannot_load_is_left_out(trixie: Machine) -> None:
    done = start(trixie, USER._replace(options=("-v",)), "sh", "-c", "ls /.singularity.d/libs")
    assert "libcuda.so.1" in done.stdout
    assert "libnvidia-egl-wayland.so.1" not in done.stdout
    assert "image-libc" in done.stderr


def test_a_start_that_checks_first_starts_where_there_is_no_error(trixie: Machine) -> None:
    case = USER._replace(options=("--check",))
    assert start(trixie, case, "sh", "-c", "echo started").stdout == "started\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [(("solve",), "program-missing"), (("/usr/bin/nvidia-smi",), None), (("/etc/passwd",), "program-not-executable")],
)
def test_a_start_that_checks_first_looks_at_the_program(trixie: Machine, command: tuple[str, ...], code: str) -> None:
    case = USER._replace(options=("--check",))
    done = start(trixie, case, *command, status=125 if code else 9)
    if code:
        assert "error: check-failed: " in done.stderr
        assert f"error: {code}: " in done.stderr


def test_a_start_that_checks_first_stops_without_a_driver(trixie: Machine) -> None:
    case = USER._replace(options=("--check",))
    done = start(trixie, case, "true", driver=False, status=125)
    assert "error: driver-not-loaded: " in done.stderr


PROGRAMS = ("rocminfo", "nvidia-persistenced", "fusermount3", "squashfuse_ll")
"""Programs of the node, for which images lack this or that."""


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("suite", ["bullseye", "bookworm", "trixie"])
def test_what_a_program_lacks_is_what_the_loader_says(
    tmp_path: Path, trixie: Machine, suite: str, program: str
) -> None:
    root = tmp_path / "image"
    subprocess.run(["cp", "-al", f"{RIG}/ct/{suite}", root], check=True)
    shutil.copy(f"{trixie.root}/usr/bin/{program}", root / "srv/program")
    words = ["/usr/sbin/chroot", str(root), "/bin/sh", "-c", "LD_TRACE_LOADED_OBJECTS=1 exec /srv/program"]
    said = subprocess.run(words, capture_output=True, text=True, env={"LC_ALL": "C"})
    text = said.stdout + said.stderr
    missing = set(re.findall(r"(\S+) => not found", text))
    versions = set(re.findall(r"version `(\S+)' not found", text))
    document = json.loads(
        here(sys.executable, "-m", "gpubind", *checking(str(root)), status=int(bool(missing or versions)))
    )
    found = {code: {f["subject"] for f in document["findings"] if f["code"] == code} for code in CODES}
    assert found == {"program-library-missing": missing, "program-library-version": versions}


CODES = ("program-library-missing", "program-library-version")


def checking(root: str) -> tuple[str, ...]:
    only = [word for code in CODES for word in ("--only", code)]
    return ("check", "--json", "--host", "debian13-nvidia550", "--image", root, "--program", "/srv/program", *only)
