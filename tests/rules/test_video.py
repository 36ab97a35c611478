"""Whether the driver for video in an image knows Intel's GPU, and the kernel driver that has it."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind.image.facts import Image
from gpubind.model import Finding
from tests.rules.situations import Situation, found
from tests.support.amd import LIB, RENDER, VIDEO, merged
from tests.support.elf import elf
from tests.support.images import glibc, image_with_bytes
from tests.support.intel import BASE, device_table, devices_of, gpu, ihd, registrations
from tests.support.starts import bringing
from tests.support.trees import Item, Link, Spec, recorded_tree

OLD = ("bdw", "skl", "bxt", "glk", "kbl", "cfl", "icllp", "ehl", "tgllp", "rkl", "dg1", "adls", "adlp", "adln", "dg2")
NEW = (*OLD, "pvc", "mtl", "arl", "lnl", "bmg", "ptl")
DRI, JELLYFIN = f"{LIB}/dri", "/usr/lib/jellyfin-ffmpeg/lib"


def video(data: bytes, directory: str = DRI) -> Spec:
    return {f"{directory}/iHD_drv_video.so": data}


def libva(*kernel_drivers: str, directory: str = LIB) -> Spec:
    constants = "".join(f"\0{name}" for name in (*kernel_drivers, "iHD")) + "\0"
    return {f"{directory}/libva-drm.so.2": elf("libva-drm.so.2", more={".rodata": constants.encode()})}


def onevpl(name: str, *platforms: str) -> Spec:
    return {f"{LIB}/{name}": elf(name, more={".rodata": device_table(*devices_of(*platforms))})}


BOOKWORM, TRIXIE = video(ihd("23.1.1", *OLD, xe=False)), video(ihd("25.2.3", *NEW))
I965 = {f"{DRI}/i965_drv_video.so": elf("i965_drv_video.so")}
OLD_LIBVA, NEW_LIBVA = libva("i915"), libva("i915", "xe")
HASWELL, SKYLAKE = gpu("0000:00:02.0", 0, 128, "0x0412"), gpu("0000:00:02.0", 0, 128, "0x1912")
A770, B580 = gpu("0000:03:00.0", 0, 128), gpu("0000:03:00.0", 0, 128, "0xe20b", "xe")
A770_ON_XE = gpu("0000:03:00.0", 0, 128, driver="xe")


def every(host: Spec, *image: Spec, env: Optional[dict[str, str]] = None, **request: Any) -> list[Finding]:
    begun = bringing(options=tuple(word for pair in (env or {}).items() for word in ("--env", "=".join(pair))))
    facts = {"groups": (VIDEO, RENDER, 1000)}
    opened: Image = image_with_bytes(glibc("2.36"), *image)
    situation = Situation(
        (BASE, host), opened, {"vendors": ("intel",), **request}, facts, start=begun, local=recorded_tree({})
    )
    return list(found(situation))


def told(host: Spec, *image: Spec, **more: Any) -> list[Finding]:
    return [one for one in every(host, *image, **more) if one.code == "intel-video-unknown"]


def severities(host: Spec, *image: Spec, **more: Any) -> list[str]:
    return [one.severity for one in told(host, *image, **more)]


@pytest.mark.parametrize(
    ("host", "image", "why"),
    [
        (A770, BOOKWORM, None),
        (A770, TRIXIE, None),
        (A770, I965, "i965, does not support"),
        (A770, merged(BOOKWORM, I965), None),
        (B580, BOOKWORM, "iHD 23.1.1, does not support Intel Arc B580"),
        (B580, merged(BOOKWORM, I965), "iHD 23.1.1, does not support Intel Arc B580"),
        (B580, merged(TRIXIE, NEW_LIBVA), None),
        (B580, TRIXIE, None),
        (B580, merged(TRIXIE, OLD_LIBVA), "libva does not support the kernel driver xe"),
        (A770_ON_XE, BOOKWORM, "does not support the kernel driver xe, to which Intel Arc A770"),
        (A770_ON_XE, merged(TRIXIE, NEW_LIBVA), None),
        (SKYLAKE, I965, None),
        (SKYLAKE, TRIXIE, None),
        (HASWELL, TRIXIE, "does not support Intel integrated GPU 8086:0412"),
        (HASWELL, merged(TRIXIE, I965), None),
        (B580, video(elf("iHD_drv_video.so")), None),  # its devices cannot be read
        (B580, {}, None),
    ],
)
def test_a_driver_for_video_that_does_not_know_the_gpu_is_a_warning_where_that_is_certain(
    host: Spec, image: Spec, why: Optional[str]
) -> None:
    found = told(host, image)
    assert [one.severity for one in found] == (["warning"] if why else [])
    assert all(why in one.what for one in found if why)


def test_the_hint_names_the_first_release_for_the_gpu() -> None:
    assert [one.hint for one in told(B580, BOOKWORM)] == [
        "use an image with a newer intel-media-driver (iHD); 25.2.6 knows Battlemage"
    ]
    assert "needs i965" in str(told(HASWELL, TRIXIE)[0].hint)


def test_it_is_an_error_only_for_those_who_ask_for_video_alone() -> None:
    assert severities(B580, BOOKWORM, caps=("video",)) == ["error"]
    assert severities(B580, BOOKWORM, caps=("video", "compute")) == ["warning"]
    assert severities(merged(B580, gpu("0000:4d:00.0", 1, 129)), BOOKWORM, caps=("video",)) == ["warning"]


def test_one_driver_that_knows_the_gpu_is_enough_wherever_it_is() -> None:
    newer = video(ihd("25.2.3", *NEW), f"{JELLYFIN}/dri")
    assert severities(B580, BOOKWORM, newer, OLD_LIBVA, libva("i915", "xe", directory=JELLYFIN)) == []
    assert severities(B580, BOOKWORM, video(elf("iHD_drv_video.so"), f"{JELLYFIN}/dri")) == []


@pytest.mark.parametrize("host", [A770, A770_ON_XE, B580, SKYLAKE])
@pytest.mark.parametrize("caps", [None, ("video",)])
def test_jellyfin_is_healthy_on_a_gpu_that_its_driver_knows(host: Spec, caps: Optional[tuple[str, ...]]) -> None:
    own = (video(ihd("25.2.3", *NEW), f"{JELLYFIN}/dri"), libva("i915", "xe", directory=JELLYFIN))
    assert [one.code for one in every(host, *own, caps=caps) if one.severity != "note"] == []


def test_the_variables_of_libva_decide_which_driver_counts() -> None:
    both = merged(TRIXIE, I965)
    assert severities(A770, both, env={"LIBVA_DRIVER_NAME": "i965"}) == ["warning"]
    assert severities(A770, both, env={"LIBVA_DRIVER_NAME": "iHD"}) == []
    assert severities(B580, TRIXIE, OLD_LIBVA, env={"LIBVA_DRIVER_NAME": "iHD"}) == []
    other = video(ihd("25.2.3", *NEW), "/opt/dri")
    assert severities(B580, BOOKWORM, other, env={"LIBVA_DRIVERS_PATH": "/opt/dri"}) == []


@pytest.mark.parametrize(
    "env",
    [
        {"LIBVA_DRIVER_NAME": "radeonsi"},
        {"LIBVA_DRIVER_NAME": "i965"},
        {"LIBVA_DRIVER_NAME": "ihd"},
        {"LIBVA_DRIVER_NAME": "garbage"},
        {"LIBVA_DRIVERS_PATH": "/nowhere:/opt/dri"},
    ],
)
def test_a_variable_of_libva_that_names_none_of_the_image_s_drivers_for_the_gpu_is_reported(
    env: dict[str, str],
) -> None:
    others = {f"{DRI}/radeonsi_drv_video.so": elf("radeonsi_drv_video.so")}
    (one,) = told(B580, TRIXIE, others, NEW_LIBVA, env=env)
    assert (one.severity, next(iter(env.values())) in one.what) == ("warning", True)
    assert severities(B580, TRIXIE, others, NEW_LIBVA, env=env, caps=("video",)) == ["error"]
    assert severities(B580, others, NEW_LIBVA, env=env) == []  # without the variable, it would be no better


def test_a_driver_of_another_name_that_the_image_has_may_know_the_gpu() -> None:
    own = {f"{DRI}/own_drv_video.so": elf("own_drv_video.so")}
    assert severities(B580, TRIXIE, own, env={"LIBVA_DRIVER_NAME": "own"}) == []
    assert severities(B580, TRIXIE, env={"LIBVA_DRIVERS_PATH": "own"}) == []  # below the program's directory


@pytest.mark.parametrize("driver", [b"", b"text", TRIXIE[f"{DRI}/iHD_drv_video.so"][:300], Link("/opt/nowhere/iHD.so")])
def test_a_driver_that_the_loader_refuses_is_reported_where_there_is_no_other(driver: Item) -> None:
    (one,) = told(B580, {f"{DRI}/iHD_drv_video.so": driver}, NEW_LIBVA)
    assert (one.severity, "does not load" in one.what) == ("warning", True)
    other = video(ihd("25.2.3", *NEW), f"{JELLYFIN}/dri")
    assert severities(B580, {f"{DRI}/iHD_drv_video.so": driver}, NEW_LIBVA, other) == []


def test_libva_without_a_driver_is_reported_to_those_who_ask_for_video() -> None:
    found = every(B580, NEW_LIBVA, caps=("video",))
    assert [one.code for one in found if one.severity != "note"] == ["intel-video-unknown"]
    assert "install intel-media-driver" in str(told(B580, NEW_LIBVA, caps=("video",))[0].hint)
    assert severities(B580, NEW_LIBVA) == severities(B580, NEW_LIBVA, caps=("video", "compute")) == []
    assert severities(B580, caps=("video",)) == []


def test_a_driver_whose_constants_cannot_be_read_may_know_xe() -> None:
    code = elf("iHD_drv_video.so", more={".text": registrations(*devices_of(*NEW))})
    assert severities(B580, video(code), NEW_LIBVA) == []


def test_the_runtimes_of_onevpl_are_a_note() -> None:
    gen, older = onevpl("libmfx-gen.so.1.2", *OLD), onevpl("libmfxhw64.so.1", *OLD[:11])
    unknown = "no oneVPL runtime in the image supports"
    for host, image, is_told in (
        (A770, gen, False),
        (SKYLAKE, gen, True),  # its table has older GPUs, too, which it does not serve
        (SKYLAKE, older, False),
        (A770, older, True),
        (SKYLAKE, merged(gen, older), False),
        (B580, merged(gen, older), True),
        (B580, {f"{LIB}/libmfx-gen.so.1.2": elf("libmfx-gen.so.1.2")}, False),
    ):
        found = told(host, image, TRIXIE)
        assert [one.severity for one in found] == (["note"] if is_told else [])
        assert all(one.what.startswith(unknown) for one in found)
