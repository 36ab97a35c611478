"""The same host gives the same plan, in whatever order its directories are listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

import pytest

from gpubind import plan
from gpubind.documents.text import render_json
from gpubind.host.recorded import RecordedHost, RecordedTree
from gpubind.model import Missing, Request
from tests.support.driver import debian, kernel, rhel, ubuntu
from tests.support.trees import Spec, record


class BackwardsTree(RecordedTree):
    """A tree whose directories come in the opposite order: a file system may give any."""

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        names = super()._list(path)
        return names if isinstance(names, Missing) else sorted(names, reverse=True)


@pytest.mark.parametrize("layout", [ubuntu, rhel, debian])
@pytest.mark.parametrize("like", [None, "apptainer"])
def test_a_plan_does_not_depend_on_the_order_of_listings(layout: object, like: str) -> None:
    spec: Spec = {**layout(), **kernel()}  # type: ignore[operator]
    recorded = record(spec)
    forwards = RecordedHost(recorded, "test")
    backwards = RecordedHost(recorded, "test")
    backwards.driver = backwards.dev = BackwardsTree(recorded.driver, "test")
    request = Request(like=like)
    assert render_json(plan(backwards, request)) == render_json(plan(forwards, request))
