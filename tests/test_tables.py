"""How tables are laid out: no name is broken, whatever the width."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Union

import pytest

from gpubind import open_host, plan
from gpubind.cli.tables import render_tables
from gpubind.documents.gpus import gpus_table, list_gpus
from gpubind.documents.tables import Column, Row, RowHeading, make_table, plan_tables
from gpubind.errors import HostReadError
from gpubind.model import Plan, Request
from gpubind.planner.gpus.selection import select
from tests.planner.gpus.hosts import HOSTS
from tests.support.commands import BARE, HOST
from tests.support.driver import uuid

COLUMNS = (Column("name"), Column("size", align_right=True), Column("mode"), Column("path"))
ROWS = (("a", "1", "0666", "/dev/a"), ("bb", "22", "0666", "/dev/b b"))
PLANS = [plan(open_host(host), Request()) for host in ("debian13-nvidia550", "mi300x-rocm62")]


def test_without_rich_a_table_is_refused_by_name_and_json_needs_none() -> None:
    code = (
        "import sys; sys.modules['rich'] = sys.modules['rich.cells'] = None\n"
        "from gpubind.cli.main import main\n"
        f"raise SystemExit(main(['gpus', '--host', '{HOST}', *sys.argv[1:]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=BARE)
    assert (done.returncode, done.stdout) == (HostReadError.exit_code, "")
    assert done.stderr.startswith("error: missing-package: the Python package `rich` ")
    assert subprocess.run([sys.executable, "-c", code, "--json"], capture_output=True, env=BARE).returncode == 0


def laid_out(*rows: Union[Row, RowHeading], width: int) -> list[str]:
    return render_tables([make_table(COLUMNS, rows)], width).splitlines()


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert laid_out(*ROWS, width=40) == [
        "name  size  path",
        "a        1  /dev/a",
        "bb      22  /dev/b b",
        "each: mode 0666",
    ]


def test_a_cell_that_is_too_wide_continues_below_between_two_words() -> None:
    assert laid_out(*ROWS, width=18)[1:4] == ["a        1  /dev/a", "bb      22  /dev/b", "            b"]


def test_where_words_are_too_wide_a_row_is_a_list() -> None:
    assert laid_out(*ROWS, width=17)[:6] == [
        "a",
        "    size 1",
        "    path /dev/a",
        "bb",
        "    size 22",
        "    path /dev/b b",
    ]


def test_a_name_that_is_longer_than_a_line_is_whole() -> None:
    lines = laid_out(("x" * 50, "1", "", "/" + "y" * 50), width=30)
    assert lines == ["x" * 50, "    size 1", "    path", "    /" + "y" * 50]


def test_a_number_stays_with_its_unit() -> None:
    rows = (("a", "1 KiB", "0666", "e f g h"), ("b", "22 KiB", "0666", "x"))
    assert laid_out(*rows, width=18)[:3] == ["name    size  path", "a      1 KiB  e f", "              g h"]


def test_rows_stand_below_their_heading_which_widens_no_column() -> None:
    long = "second, which is longer than all"
    assert laid_out(RowHeading("first"), ROWS[0], RowHeading(long), ROWS[1], width=40)[:5] == [
        "name    size  path",
        "first",
        "  a        1  /dev/a",
        long,
        "  bb      22  /dev/b b",
    ]


def test_colour_is_ours_and_changes_no_word() -> None:
    plain = render_tables([make_table(COLUMNS, ROWS)], 40, "end")
    coloured = render_tables([make_table(COLUMNS, ROWS)], 40, "end", colour=True)
    assert coloured.startswith("\x1b[1mname")
    stripped = re.sub(r"\x1b\[[0-9]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


def test_the_environment_turns_no_colour_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "JUPYTER_COLUMNS", "COLUMNS"):
        monkeypatch.setenv(name, "7")
    assert laid_out(*ROWS, width=40)[0] == "name  size  path"


def test_a_table_without_rows_has_no_lines_and_tables_stand_apart() -> None:
    assert laid_out(width=40) == []
    one = make_table(COLUMNS[:1], [("a",)])
    assert render_tables([make_table(COLUMNS, ()), one, one], 40, "end") == "name\na\n\nname\na\n\nend\n"


@pytest.mark.parametrize("made", PLANS, ids=["nvidia", "amd"])
@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_every_name_in_a_plan_is_whole_and_lines_fit_where_names_do(made: Plan, width: int) -> None:
    text = render_tables(plan_tables(made), width)
    for mount in made.mounts:
        name = mount.target.rpartition("/")[2] if mount.kind in ("library", "binary") else mount.target
        assert re.search(rf"(?m)(^|[ ,]){re.escape(name)}($|[ ,])", text), name
    long = [line.split() for line in text.splitlines() if len(line) > width]
    assert [words for words in long if len(words) > 1] == []


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_table_of_gpus_fits_and_every_uuid_is_whole(width: int) -> None:
    text = render_tables(
        [gpus_table(list_gpus(HOSTS["eight"], select(HOSTS["eight"], "all", {}, isolated=True)))], width
    )
    assert max(map(len, text.splitlines())) <= width
    assert all(uuid(number) in text for number in range(8))
