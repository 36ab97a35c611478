"""A plan as JSON: the schema is tested with the golden plans, the form here."""

from __future__ import annotations

import json

from gpubind import plan
from gpubind.documents.text import render_json
from gpubind.model import Request
from tests.support.driver import host, kernel, rhel
from tests.support.images import glibc, image

PLAN = plan(host(rhel(), kernel()), Request(), image=image(glibc()))


def test_the_text_is_the_document() -> None:
    assert json.loads(render_json(PLAN)) == PLAN.to_dict()


def test_each_member_of_an_array_is_a_line_so_that_plans_can_be_compared() -> None:
    lines = [line.strip().rstrip(",") for line in render_json(PLAN).splitlines()]
    for mount in PLAN.mounts:
        assert json.dumps(mount._asdict()) in lines


def test_every_byte_is_ascii_whatever_a_file_is_called() -> None:
    mount = PLAN.mounts[0]._replace(rule="\udcff\u4e2d")
    assert render_json(PLAN._replace(mounts=(mount,))).isascii()


def test_verbose_changes_nothing() -> None:
    assert render_json(PLAN, verbose=True) == render_json(PLAN)


def test_the_label_of_an_image_stays_out_for_it_may_name_a_user() -> None:
    assert PLAN.image is not None
    hidden = PLAN.image._replace(label="/home/somebody/x.sif")
    assert hidden.to_dict() == PLAN.image.to_dict()
