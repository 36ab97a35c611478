"""Small files of users and sites."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import gpubind
from gpubind.errors import HostReadError
from gpubind.host.directories import active_list_file
from gpubind.host.open import read_listfile
from tests.support.trees import Dir, Fifo, Item, make_tree


@pytest.mark.parametrize("item", [Fifo(), Dir()], ids=["fifo", "directory"])
def test_what_is_no_regular_file_is_refused_and_never_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, item: Item
) -> None:
    make_tree(tmp_path, {"/gpubind/nvliblist.conf": item})
    path = f"{tmp_path}/gpubind/nvliblist.conf"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for read in (
        lambda: read_listfile(path),
        lambda: gpubind.open_host(path),
        lambda: active_list_file("nvliblist.conf"),
    ):
        with pytest.raises(HostReadError) as caught:
            read()
        assert (caught.value.code, caught.value.where) == ("unreadable-file", path)


def test_a_device_is_refused() -> None:
    with pytest.raises(HostReadError, match="cannot be read") as caught:
        read_listfile("/dev/zero")
    assert caught.value.why == "it is not a regular file"


def test_a_file_in_a_home_that_may_not_be_entered_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    make_tree(tmp_path, {"/gpubind/nvliblist.conf": "libcuda.so\n"})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(os, "open", forbidden)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert active_list_file("nvliblist.conf") is None
    monkeypatch.setattr(os, "access", lambda *_, **__: True)
    with pytest.raises(HostReadError):
        active_list_file("nvliblist.conf")
