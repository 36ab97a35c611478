"""Driver roots with names that no syntax likes: a container gets the same bytes, or the name is refused and said."""

from __future__ import annotations

import json

import pytest

from tests.live.containers import CONTAINERS, exec_words, gone_wrong, image
from tests.live.machine import CHECKOUT, PYTHON_ENV, Bind, Machine

pytestmark = pytest.mark.live

RIG_SCRIPTS = Bind(f"{CHECKOUT}/tests/live/rig", "/srv/rig")


@pytest.mark.parametrize("backend", ["bwrap", "apptainer"])
@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
def test_a_container_gets_the_same_bytes_or_the_name_is_said(trixie: Machine, backend: str, user: bool) -> None:
    _, _, _, *words = exec_words(backend, user=user)
    done = trixie.run(
        ["python3", f"{RIG_SCRIPTS.target}/hostile.py", backend, image("bookworm"), *words],
        user=user,
        driver=True,
        binds=[*trixie.modules, CONTAINERS, RIG_SCRIPTS],
        env=PYTHON_ENV,
    )
    report = json.loads(done.stdout)
    assert report["b'plain'"]["same"] == ["libcuda.so.1", "libnvidia-ml.so.1"]
    assert gone_wrong(report) == {}
