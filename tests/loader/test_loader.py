"""Where the loader of a tree finds a soname."""

from __future__ import annotations

import pytest

from gpubind.formats.elf.elf import is_glibc_file
from gpubind.formats.elf.ldcache import parse_ldsoconf
from gpubind.loader.container import host_closure
from gpubind.loader.search import Loader
from gpubind.model import RootedPath
from tests.support.elf import elf
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Dir, Link, Spec, recorded_tree

LIB = elf("libx.so.1")


def find(spec: Spec, soname: str = "libx.so.1", arch: str = "x86_64") -> object:
    return Loader(recorded_tree(spec), arch).find(soname)


def test_the_cache_comes_before_the_directories() -> None:
    cache = build_ldcache([entry("libx.so.1", "/opt/libx.so.1")])
    spec: Spec = {"/etc/ld.so.cache": cache, "/opt/libx.so.1": LIB, "/usr/lib64/libx.so.1": LIB}
    assert find(spec) == "/opt/libx.so.1"


def test_a_stale_cache_entry_gives_way_to_the_directories() -> None:
    cache = build_ldcache([entry("libx.so.1", "/opt/gone.so.1")])
    assert find({"/etc/ld.so.cache": cache, "/usr/lib64/libx.so.1": LIB}) == "/usr/lib64/libx.so.1"


def test_a_damaged_cache_is_no_cache() -> None:
    assert find({"/etc/ld.so.cache": b"glibc", "/usr/lib64/libx.so.1": LIB}) == "/usr/lib64/libx.so.1"


def test_another_architecture_is_passed_over() -> None:
    spec: Spec = {"/usr/lib64/libx.so.1": elf("libx.so.1", machine=183), "/usr/lib/libx.so.1": LIB}
    assert find(spec) == "/usr/lib/libx.so.1"


def test_the_directories_are_those_of_ld_so_conf_with_its_includes_then_multiarch_then_the_default_ones() -> None:
    spec: Spec = {
        "/etc/ld.so.conf": "# x\ninclude ld.so.conf.d/*.conf\n/opt/last\n",
        "/etc/ld.so.conf.d/a.conf": "/opt/a  # comment\n",
        "/etc/ld.so.conf.d/b.conf": "/opt/b=libc6\nhwcap 0 nosegneg\nrelative\n",
        "/opt/a": Dir(),
        "/opt/b": Dir(),
        "/opt/last": Dir(),
        "/usr/lib/x86_64-linux-gnu": Dir(),
        "/lib": Link("usr/lib"),
        "/usr/lib64": Dir(),
    }
    assert Loader(recorded_tree(spec)).directories == (
        "/opt/a",
        "/opt/b",
        "/opt/last",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    )


def test_an_include_that_includes_itself_ends() -> None:
    spec: Spec = {"/etc/ld.so.conf": "include /etc/ld.so.conf\n/opt/a\n", "/opt/a": Dir()}
    assert Loader(recorded_tree(spec)).directories == ("/opt/a",)


def test_a_name_with_a_slash_is_no_soname() -> None:
    assert find({"/usr/lib64/libx.so.1": LIB}, "../lib64/libx.so.1") is None


def test_includes_may_name_several_patterns() -> None:
    assert parse_ldsoconf("include a.conf b/*.conf") == (("include", "a.conf"), ("include", "b/*.conf"))


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("ld-linux-x86-64.so.2", True),
        ("libc.so.6", True),
        ("libnsl.so.1", True),
        ("libnss_files.so.2", True),
        ("libnsl.so.2", False),
        ("libnss_sss.so.2", False),
        ("libnss_systemd.so.2", False),
    ],
)
def test_the_closure_has_everything_but_what_the_bridge_takes_for_glibcs(name: str, is_one: bool) -> None:
    root = RootedPath("/usr/lib64/liba.so")
    tree = recorded_tree({root: elf("liba.so", needed=(name,)), f"/usr/lib64/{name}": elf(name)})
    assert is_glibc_file(name) == is_one
    assert [one.name for one in host_closure(tree, "x86_64", [root])] == ([] if is_one else [name])
