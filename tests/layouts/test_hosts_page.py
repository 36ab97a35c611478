"""docs/hosts.md says what the plans of the layouts say; `pytest --update-golden` writes its tables."""

from __future__ import annotations

from tests.layouts.page import formats_table, hosts_table
from tests.support.golden import DOCS, assert_golden


def test_the_page_has_a_row_for_each_host() -> None:
    assert_golden(DOCS / "hosts.md", hosts_table(), part="hosts")


def test_the_page_says_what_each_format_gives() -> None:
    assert_golden(DOCS / "hosts.md", formats_table(), part="formats")
