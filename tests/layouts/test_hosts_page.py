"""docs/hosts.md says what the plans of the layouts say; `pytest --update-golden` writes its tables."""

from __future__ import annotations

from tests.layouts.page import formats_table, hosts_table
from tests.support.page import hold


def test_the_page_has_a_row_for_each_host(update_golden: bool) -> None:
    hold("hosts.md", "hosts", hosts_table(), update=update_golden)


def test_the_page_says_what_each_format_gives(update_golden: bool) -> None:
    hold("hosts.md", "formats", formats_table(), update=update_golden)
