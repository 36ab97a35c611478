"""List files of users and sites. Each test asks a fresh interpreter, with an environment of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import pytest

from gpubind.host.directories import LIST_LIMIT
from tests.support.commands import ask
from tests.support.trees import Dir, File, Item, Link, make_tree


def places(environ: Mapping[str, str]) -> list[list[str]]:
    found = ask(
        "import json; from gpubind.host.directories import list_file_paths as places\n"
        "print(json.dumps(places('x.conf')))",
        environ,
    )
    assert isinstance(found, list)
    return found


def liblist(environ: Mapping[str, str]) -> Any:
    code = (
        "import json; from gpubind.host.live import LiveHost; from gpubind.errors import GpubindError\n"
        "try: found = list(LiveHost('/', '/').liblist('nvliblist.conf')); found[1] = len(found[1])\n"
        "except GpubindError as error: found = [error.code, error.where, error.why, error.exit_code]\n"
        "print(json.dumps(found))"
    )
    return ask(code, environ)


SITE = ["/etc/gpubind/x.conf", "/etc/gpubind/x.conf"]


@pytest.mark.parametrize(
    ("environ", "user"),
    [
        pytest.param({"HOME": "/h"}, "/h/.config/gpubind/x.conf", id="home"),
        pytest.param({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}, "/c/gpubind/x.conf", id="xdg-before-home"),
        pytest.param({"XDG_CONFIG_HOME": "/c"}, "/c/gpubind/x.conf", id="xdg-alone"),
        pytest.param({"HOME": "/h", "XDG_CONFIG_HOME": ""}, "/h/.config/gpubind/x.conf", id="xdg-empty"),
        pytest.param({"HOME": "/h", "XDG_CONFIG_HOME": "c"}, "/h/.config/gpubind/x.conf", id="xdg-relative"),
        pytest.param({}, None, id="neither"),
        pytest.param({"HOME": ""}, None, id="home-empty"),
        pytest.param({"HOME": "h"}, None, id="home-relative"),
        pytest.param({"HOME": "h", "XDG_CONFIG_HOME": "./c"}, None, id="both-relative"),
    ],
)
def test_the_users_list_comes_before_the_sites(environ: dict[str, str], user: Optional[str]) -> None:
    assert places(environ) == ([[user, "$XDG_CONFIG_HOME/gpubind/x.conf"]] if user else []) + [SITE]


def test_a_users_list_is_the_law_and_its_label_names_nobody(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/gpubind/nvliblist.conf": "libcuda.so\n"})
    assert liblist({"XDG_CONFIG_HOME": str(tmp_path)}) == ["$XDG_CONFIG_HOME/gpubind/nvliblist.conf", 11, False]


@pytest.mark.parametrize("spec", [{}, {"/gpubind": b"a file"}], ids=["no-directory", "a-file-in-its-place"])
def test_without_a_users_list_the_next_one_counts(tmp_path: Path, spec: dict[str, Item]) -> None:
    make_tree(tmp_path, spec)
    label, size, shipped = liblist({"XDG_CONFIG_HOME": str(tmp_path)})
    assert label in ("etc/nvliblist.conf", "/etc/gpubind/nvliblist.conf")  # a machine may have a site's list
    assert shipped is (label == "etc/nvliblist.conf")
    assert size > 0


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (Dir(), "Is a directory"),
        (Link("nvliblist.conf"), "Too many levels of symbolic links"),
        (File(b"x" * (LIST_LIMIT + 1)), f"larger than {LIST_LIMIT} bytes"),
    ],
    ids=["directory", "loop", "too-large"],
)
def test_a_list_that_cannot_be_read_is_an_error_and_not_passed_over(tmp_path: Path, item: Item, why: str) -> None:
    make_tree(tmp_path, {"/gpubind/nvliblist.conf": item})
    path = f"{tmp_path}/gpubind/nvliblist.conf"
    assert liblist({"XDG_CONFIG_HOME": str(tmp_path)}) == ["unreadable-file", path, why, 4]
