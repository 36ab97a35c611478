"""A recorded host knows enough of its files to be planned for any image."""

from __future__ import annotations

import pytest

import gpubind
from gpubind.model import Request
from gpubind.model.data import BUNDLED_HOSTS
from tests.support.images import MUSL, glibc, image


@pytest.mark.parametrize("name", [name for name in BUNDLED_HOSTS if "nvidia" in name])
@pytest.mark.parametrize("newest", ["2.31", "2.36", "2.41"])
def test_a_shipped_host_can_be_planned_for_an_image(name: str, newest: str) -> None:
    made = gpubind.plan(gpubind.open_host(name), Request(), image=image(glibc(newest)))
    assert "/.gpubind/libs/libcuda.so.1" in [mount.target for mount in made.mounts]


@pytest.mark.parametrize("newest", ["2.31", "2.36", "2.41"])
def test_what_an_older_glibc_cannot_load_stays_out(newest: str) -> None:
    made = gpubind.plan(gpubind.open_host("debian13-nvidia550"), Request(), image=image(glibc(newest)))
    needs = {d.subject for d in made.decisions if d.rule == "libc"}
    # Debian 13 has glibc 2.41; its libglvnd and egl-wayland need 2.38.
    assert ("libnvidia-egl-wayland.so.1" in needs) == (newest in ("2.31", "2.36"))


@pytest.mark.parametrize("name", [name for name in BUNDLED_HOSTS if "nvidia" in name])
def test_a_shipped_host_gives_an_image_without_glibc_its_devices(name: str) -> None:
    made = gpubind.plan(gpubind.open_host(name), Request(), image=image(MUSL))
    assert "image-without-glibc" in [finding.code for finding in made.findings]
