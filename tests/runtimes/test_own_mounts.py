"""The user's own mount over a place of the plan: every runtime leaves it to the user, and reports what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import HOST, gpubind
from tests.support.images import glibc
from tests.support.trees import make_tree

BINDS = {
    "apptainer": ("--bind=/data:/usr/share",),
    "singularity": ("--bind=/data:/usr/share",),
    "bwrap": ("--ro-bind", "/data", "/usr/share"),
    "podman": ("--volume=/data:/usr/share",),
    "docker": ("--volume=/data:/usr/share",),
    "ch-run": ("--bind=/data:/usr/share",),
    "proot": ("--bind=/data:/usr/share",),
    "udocker": ("--volume=/data:/usr/share",),
    "systemd-nspawn": ("--bind=/data:/usr/share",),
    "enroot": ("--mount=/data:/usr/share",),
}
"""An option of each runtime that has one; the mounts of crun and runc are in their bundle."""
PLANNED = "/usr/share/vulkan"


@pytest.mark.parametrize("backend", BINDS)
def test_nothing_of_the_plan_is_bound_inside_what_the_user_binds(backend: str, tmp_path: Path) -> None:
    image = str(make_tree(tmp_path / "image", glibc()).root) if backend not in ("docker", "udocker") else "name"
    image, env = ("image", {"ENROOT_DATA_PATH": str(tmp_path)}) if backend == "enroot" else (image, None)
    asked = ("exec", "--nv", "--backend", backend, "--host", HOST, "--dry-run", "--allow-writable", "-v")
    free = gpubind(*asked, image, "sh", env=env)
    assert PLANNED in free.stdout, free.stderr
    bound = gpubind(*asked, "--", *BINDS[backend], image, "sh", env=env)
    assert bound.returncode == 0, bound.stderr
    assert PLANNED not in bound.stdout
    assert "no-mount-point" in bound.stderr


@pytest.mark.parametrize("environ", [{}, {"VDPAU_DRIVER_PATH": "/mine"}])
def test_a_default_is_left_to_the_value_of_the_caller(environ: dict[str, str], tmp_path: Path) -> None:
    image = str(make_tree(tmp_path / "image", glibc()).root)
    line = ("wrap", "--dry-run", "--nv", "--host", HOST, "--", "bwrap", "--ro-bind", image, "/", "sh")
    printed = gpubind(*line, env=environ).stdout.replace(" \\\n ", "")
    assert "/.gpubind/libs" in printed
    assert ("--setenv VDPAU_DRIVER_PATH /.gpubind/libs " in printed) == (not environ)
    assert "--unsetenv VDPAU_DRIVER_PATH" not in printed
