"""One search, by two readers of a tree: the container follows its ld cache, an image's facts distrust it."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind.loader.container import Container
from gpubind.loader.search import Loader
from tests.support.elf import AARCH64, elf
from tests.support.images import OWN_PREFIX, glibc, image
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Spec, recorded_tree

LIB = elf("libx.so.1")
STALE = build_ldcache([entry("libx.so.1", "/opt/gone/libx.so.1")])
OWN_DIRECTORY = "/usr/glibc-compat/lib"
CONFIGURED: Spec = {"/etc/ld.so.conf": "/opt/a\n", "/opt/a/libx.so.1": LIB}


def found(*parts: Spec) -> tuple[Optional[str], Optional[str]]:
    """Where the loader of an image finds libx.so.1, and a program in a container of it."""
    loader = image(glibc("2.36"), *parts).loader
    located = Container(loader, recorded_tree({}), (), (), "").find("libx.so.1")
    return loader.find("libx.so.1"), None if located is None else located.path


def test_both_search_the_directories_of_ld_so_conf_if_there_is_no_cache() -> None:
    assert found(CONFIGURED) == ("/opt/a/libx.so.1", "/opt/a/libx.so.1")


@pytest.mark.parametrize("cache", [STALE, build_ldcache([entry("liby.so.1")])], ids=["leads-nowhere", "lacks-it"])
def test_only_the_facts_of_an_image_search_ld_so_conf_behind_a_stale_cache(cache: bytes) -> None:
    """ld.so does not: the container reports the library as missing. `ldconfig` may run before the program starts."""
    assert found(CONFIGURED, {"/etc/ld.so.cache": cache}) == ("/opt/a/libx.so.1", None)


def test_both_search_the_directory_of_a_glibc_in_an_unusual_place() -> None:
    loader = image(OWN_PREFIX, {f"{OWN_DIRECTORY}/libx.so.1": LIB}).loader
    container = Container(loader, recorded_tree({}), (), (), "").find("libx.so.1")
    assert loader.find("libx.so.1") == f"{OWN_DIRECTORY}/libx.so.1"
    assert container is not None
    assert container.path == f"{OWN_DIRECTORY}/libx.so.1"


def test_both_search_the_default_directories_behind_a_stale_cache() -> None:
    assert found({"/etc/ld.so.cache": STALE, "/usr/lib64/libx.so.1": LIB}) == ("/usr/lib64/libx.so.1",) * 2


def test_both_pass_over_a_library_for_another_machine() -> None:
    cache = build_ldcache([entry("libx.so.1", "/opt/a/libx.so.1"), entry("libx.so.1", "/opt/b/libx.so.1")])
    libraries: Spec = {"/opt/a/libx.so.1": elf("libx.so.1", machine=AARCH64), "/opt/b/libx.so.1": LIB}
    assert found(libraries, {"/etc/ld.so.cache": cache}) == ("/opt/b/libx.so.1",) * 2


def test_a_text_of_that_name_ends_the_search_of_a_program_and_not_that_for_the_facts_of_an_image() -> None:
    text: Spec = {"/usr/lib/x86_64-linux-gnu/libx.so.1": b"INPUT(libx.so)"}
    assert found(text, {"/usr/lib64/libx.so.1": LIB}) == ("/usr/lib64/libx.so.1", None)


def test_only_the_facts_of_an_image_take_a_library_for_some_processors_for_any() -> None:
    """Which one a program loads depends on the machine: the container, which knows none, takes the plain library."""
    level = "/usr/lib64/glibc-hwcaps/x86-64-v3/libx.so.1"
    cache = build_ldcache([entry("libx.so.1", level, hwcap="x86-64-v3"), entry("libx.so.1", "/usr/lib64/libx.so.1")])
    assert found({level: LIB, "/usr/lib64/libx.so.1": LIB, "/etc/ld.so.cache": cache}) == (
        level,
        "/usr/lib64/libx.so.1",
    )


def test_the_loader_of_no_machine_takes_any() -> None:
    tree = recorded_tree({"/usr/lib64/libx.so.1": elf("libx.so.1", machine=AARCH64)})
    assert Loader(tree).find("libx.so.1") == "/usr/lib64/libx.so.1"
    assert Loader(tree, "x86_64").find("libx.so.1") is None
