"""What podman and docker print where they fail."""

from __future__ import annotations

import pytest

from gpubind.image.engine import parse_reason, reports_missing_image

NOISE = 'time="2026-01-01T00:00:00Z" level=warning msg="\\"/\\" is not a shared mount"\n'


@pytest.mark.parametrize(
    "reason",
    [
        "Error: No such image: x:latest",
        "Error response from daemon: No such image: x:latest",
        "Error: inspecting object: x: image not known",
        "Error: x: image not known",
        'Error: unsupported transport "dir" for looking up local images',
    ],
)
def test_a_store_without_the_image_is_told_from_one_that_does_not_answer(reason: str) -> None:
    assert reports_missing_image(parse_reason(f"{NOISE}{reason}\n"))


@pytest.mark.parametrize(
    "reason",
    [
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "permission denied while trying to connect to the Docker daemon socket",
        "Error: short-name resolution enforced but cannot prompt without a TTY",
    ],
)
def test_what_is_no_absence_is_not_taken_for_one(reason: str) -> None:
    assert not reports_missing_image(reason)


def test_a_reason_is_one_line_without_warnings_unless_there_is_nothing_else() -> None:
    assert parse_reason(f"{NOISE}WARN[0000] old\nWARNING: older\nError: a\nb\n") == "Error: a b"
    assert parse_reason(NOISE) == NOISE.strip()
    assert parse_reason("") == ""
