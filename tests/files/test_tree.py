"""Trees: links, directories and files inside a root. What holds for a live tree holds for a recorded one."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.files import Tree
from gpubind.files.live import LiveTree
from gpubind.formats.elf.elf import ElfFacts, ElfIdent, NotElf
from gpubind.model import Missing, ResolvedFile, Stat
from tests.support.elf import elf
from tests.support.trees import ABSENT, Dir, Fifo, File, Item, Link, Socket, Spec, make_tree, recorded_tree

Make = Callable[[Spec], Tree]


@pytest.fixture(params=["live", "recorded"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A tree from a spec, once on disk and once from a record."""
    return recorded_tree if request.param == "recorded" else lambda spec: make_tree(tmp_path / "root", spec)


def kind(found: Union[Stat, Missing]) -> str:
    return found.why if isinstance(found, Missing) else found.kind


# Where links lead.

LINKS: dict[str, Item] = {
    "/usr/lib/liba.so.1": b"a",
    "/usr/lib/liba.so": Link("liba.so.1"),
    "/usr/lib64": Link("lib"),
    "/lib": Link("usr/lib"),
    "/lib64": Link("/usr/lib64"),
    "/etc/up": Link("../lib/liba.so"),
    "/etc/above": Link("../../../../lib64/liba.so"),
    "/etc/absolute": Link("/lib64/liba.so"),
    "/etc/absolute-up": Link("/../../usr/lib/liba.so"),
    "/etc/slashes": Link("//usr///lib//liba.so"),
    "/etc/dots": Link("./.././usr/./lib/../lib/liba.so"),
    "/etc/directory": Link("/usr/lib/"),
    "/etc/root": Link("/"),
    "/etc/dangling": Link("/usr/lib/libb.so"),
    "/etc/through-a-file": Link("/usr/lib/liba.so.1/x"),
    "/etc/file-as-directory": Link("/usr/lib/liba.so.1/"),
    "/etc/self": Link("self"),
    "/etc/ping": Link("/etc/pong/x"),
    "/etc/pong": Link("ping"),
}


@pytest.mark.parametrize(
    ("path", "real"),
    [
        pytest.param("/", "/", id="the-root"),
        pytest.param("/usr/lib/liba.so.1", "/usr/lib/liba.so.1", id="no-link"),
        pytest.param("/usr/lib/liba.so", "/usr/lib/liba.so.1", id="relative"),
        pytest.param("/usr/lib64/liba.so", "/usr/lib/liba.so.1", id="linked-directory"),
        pytest.param("/lib64/liba.so", "/usr/lib/liba.so.1", id="link-to-link"),
        pytest.param("/etc/up", "/usr/lib/liba.so.1", id="up"),
        pytest.param("/etc/above", "/usr/lib/liba.so.1", id="above-the-root"),
        pytest.param("/etc/absolute", "/usr/lib/liba.so.1", id="absolute-counts-from-the-root"),
        pytest.param("/etc/absolute-up", "/usr/lib/liba.so.1", id="absolute-above-the-root"),
        pytest.param("/etc/slashes", "/usr/lib/liba.so.1", id="many-slashes"),
        pytest.param("/etc/dots", "/usr/lib/liba.so.1", id="dots"),
        pytest.param("/etc/directory", "/usr/lib", id="link-with-slash"),
        pytest.param("/etc/directory/", "/usr/lib", id="slash-behind-link"),
        pytest.param("/etc/directory/liba.so", "/usr/lib/liba.so.1", id="through-link-with-slash"),
        pytest.param("/etc/root", "/", id="link-to-the-root"),
        pytest.param("/etc/root/lib/liba.so", "/usr/lib/liba.so.1", id="through-the-root"),
        pytest.param("/usr/", "/usr", id="trailing-slash"),
        pytest.param("//usr//lib//liba.so", "/usr/lib/liba.so.1", id="slashes"),
        pytest.param("/usr/./lib/../lib/liba.so", "/usr/lib/liba.so.1", id="dots-in-path"),
        pytest.param("/../../usr", "/usr", id="path-above-the-root"),
        pytest.param("/lib64/..", "/usr", id="up-from-where-the-link-leads"),
        pytest.param("/lib/.", "/usr/lib", id="dot-behind-link"),
    ],
)
def test_a_path_leads_where_it_would_in_a_chroot(make: Make, path: str, real: str) -> None:
    assert make(LINKS).resolve(path) == real


@pytest.mark.parametrize(
    ("path", "why"),
    [
        pytest.param("/none", "absent", id="absent"),
        pytest.param("/none/x", "absent", id="in-absent"),
        pytest.param("/none/..", "absent", id="up-from-absent"),
        pytest.param("/etc/dangling", "absent", id="dangling"),
        pytest.param("/etc/through-a-file", "absent", id="link-through-a-file"),
        pytest.param("/etc/file-as-directory", "absent", id="link-to-file-with-slash"),
        pytest.param("/usr/lib/liba.so.1/x", "absent", id="through-a-file"),
        pytest.param("/usr/lib/liba.so/x/y", "absent", id="through-a-link-to-a-file"),
        pytest.param("/usr/lib/liba.so.1/", "absent", id="file-with-slash"),
        pytest.param("/usr/lib/liba.so.1/.", "absent", id="file-with-dot"),
        pytest.param("/usr/lib/liba.so.1/..", "absent", id="up-from-a-file"),
        pytest.param("/usr/lib/liba.so.1/../liba.so", "absent", id="up-from-a-file-and-down"),
        pytest.param("/etc/self", "loop", id="link-to-itself"),
        pytest.param("/etc/self/x", "loop", id="through-a-link-to-itself"),
        pytest.param("/etc/ping", "loop", id="ring"),
        pytest.param("/etc/pong/x", "loop", id="through-a-ring"),
    ],
)
def test_a_path_that_leads_nowhere_says_why(make: Make, path: str, why: str) -> None:
    tree = make(LINKS)
    for answer in (
        tree.resolve(path),
        tree.stat(path),
        tree.read(path),
        tree.list(path),
        tree.ident(path),
        tree.elf(path),
    ):
        assert isinstance(answer, Missing)
        assert answer.why == why


@pytest.mark.parametrize("form", ["l{}", "/l{}", "/d/../l{}", "/etc/../d/l{}"], ids=["name", "root", "up", "directory"])
@pytest.mark.parametrize(("links", "found"), [(40, "file"), (41, "loop")])
def test_forty_links_are_followed_and_no_more(make: Make, links: int, found: str, form: str) -> None:
    spec: dict[str, Item] = {"/d": Dir(), "/etc": Dir()}
    at = "/d/l{}" if "d/l" in form else "/l{}"
    spec.update({at.format(number): Link(form.format(number + 1)) for number in range(links)})
    spec[at.format(links)] = b"end"
    assert kind(make(spec).stat(at.format(0))) == found


def test_an_answer_does_not_depend_on_what_was_asked_before(make: Make) -> None:
    """Directories are remembered on the way; a file that was taken for one must not stay so."""
    tree = make(LINKS)
    for _ in range(2):
        assert tree.resolve("/usr/lib/liba.so/x") == ABSENT
        assert tree.resolve("/usr/lib/liba.so") == "/usr/lib/liba.so.1"
        assert tree.resolve("/usr/lib/liba.so/") == ABSENT


@pytest.mark.parametrize("question", ["resolve", "stat", "lstat", "readlink", "list"])
def test_only_absolute_paths_are_asked_for(make: Make, question: str) -> None:
    tree = make(LINKS)
    for path in ("usr/lib", "usr"):
        with pytest.raises(ValueError, match="not an absolute path"):
            getattr(tree, question)(path)


# lstat, readlink, stat.


def test_lstat_does_not_follow_the_last_link_but_those_above(make: Make) -> None:
    tree = make(LINKS)
    assert kind(tree.lstat("/lib64/liba.so")) == "link"
    assert kind(tree.stat("/lib64/liba.so")) == "file"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/", "dir"),
        ("/usr/..", "dir"),
        ("/lib", "link"),
        ("/lib/", "dir"),
        ("/lib/.", "dir"),
        ("/usr/", "dir"),
        ("/usr/lib/liba.so.1/", "absent"),
        ("/usr/lib/liba.so.1/x", "absent"),
        ("/etc/self/x", "loop"),
        ("/none/x", "absent"),
    ],
)
def test_lstat_takes_a_trailing_slash_for_a_directory(make: Make, path: str, found: str) -> None:
    assert kind(make(LINKS).lstat(path)) == found


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/lib", "usr/lib"),
        ("/lib64/liba.so", "liba.so.1"),
        ("/etc/above", "../../../../lib64/liba.so"),
        ("/etc/self", "self"),
        ("/usr/lib", ABSENT),
        ("/usr/lib/liba.so.1", ABSENT),
        ("/none", ABSENT),
        ("/", ABSENT),
    ],
)
def test_readlink_gives_the_target_as_written(make: Make, path: str, target: object) -> None:
    assert make(LINKS).readlink(path) == target


def test_a_file_tells_its_mode_and_size(make: Make) -> None:
    found = make({"/bin/x": File(b"1234", 0o4755)}).stat("/bin/x")
    assert isinstance(found, Stat)
    assert (found.kind, found.mode, found.size) == ("file", 0o4755, 4)


def test_every_kind_of_file_is_told_apart_and_only_files_have_a_size(make: Make) -> None:
    tree = make({"/file": b"x", "/dir": Dir(), "/link": Link("file"), "/fifo": Fifo(), "/socket": Socket()})
    for name in ("file", "dir", "link", "fifo", "socket"):
        found = tree.lstat(f"/{name}")
        assert isinstance(found, Stat)
        assert (found.kind, found.size) == (name, 1 if name == "file" else 0)


# list.


def test_names_come_sorted_with_hidden_ones_and_every_kind(make: Make) -> None:
    tree = make({"/d/b": b"", "/d/a": Link("none"), "/d/.c": Dir(), "/d/B": Fifo(), "/d/\udcff": b""})
    assert tree.list("/d") == (".c", "B", "a", "b", "\udcff")
    assert tree.list("/d/") == tree.list("/d")


def test_a_directory_is_listed_through_links(make: Make) -> None:
    tree = make(LINKS)
    assert tree.list("/lib64") == tree.list("/etc/directory/") == ("liba.so", "liba.so.1")
    assert tree.list("/etc/root") == tree.list("/") == ("etc", "lib", "lib64", "usr")


def test_what_is_no_directory_has_no_list(make: Make) -> None:
    tree = make(LINKS)
    assert tree.list("/usr/lib/liba.so") == ABSENT
    assert make({"/empty": Dir()}).list("/empty") == ()


# read, ident, elf.


def test_a_file_is_read_through_links(make: Make) -> None:
    tree = make(LINKS)
    assert tree.read("/etc/absolute") == b"a"
    assert tree.read_text("/lib/liba.so") == "a"


def test_text_that_is_not_utf8_comes_as_surrogate_escapes(make: Make) -> None:
    assert make({"/x": b"a\xffb"}).read_text("/x") == "a\udcffb"


@pytest.mark.parametrize(("limit", "found"), [(4, b"1234"), (3, Missing("unreadable", "larger than 3 bytes"))])
def test_a_file_over_the_limit_is_unreadable(make: Make, limit: int, found: object) -> None:
    assert make({"/x": b"1234"}).read("/x", limit) == found


@pytest.mark.parametrize(
    ("item", "noun"),
    [(Dir(), "a directory"), (Fifo(), "a FIFO"), (Socket(), "a socket")],
    ids=["dir", "fifo", "socket"],
)
def test_only_regular_files_are_read(make: Make, item: Union[Dir, Fifo, Socket], noun: str) -> None:
    tree = make({"/x": item, "/y": Link("x")})
    for path in ("/x", "/y"):
        for answer in (tree.read(path), tree.read_text(path), tree.ident(path), tree.elf(path)):
            assert answer == Missing("unreadable", f"{noun}, not a regular file")


def test_an_elf_file_tells_its_identification_and_facts(make: Make) -> None:
    tree = make({"/a.so": elf("a.so.1", needed=["b.so"]), "/b.so": Link("a.so")})
    ident, facts = tree.ident("/b.so"), tree.elf("/b.so")
    assert isinstance(ident, ElfIdent)
    assert isinstance(facts, ElfFacts)
    assert (ident.arch, facts.soname, facts.needed) == ("x86_64", "a.so.1", ("b.so",))


def test_a_damaged_elf_file_has_an_identification_but_no_facts(make: Make) -> None:
    tree = make({"/a.so": elf("a.so.1")[:200], "/b.so": b"text"})
    assert isinstance(tree.ident("/a.so"), ElfIdent)
    assert kind(tree.elf("/a.so")) == "unreadable"  # type: ignore[arg-type]  # a Missing, so it has a `why`
    assert isinstance(tree.ident("/b.so"), NotElf)


# find, has, lacks, names, text.


def test_one_question_tells_where_a_path_leads_and_what_is_there(make: Make) -> None:
    tree = make({"/a/file": b" text\n", "/link": Link("a/file"), "/dangling": Link("none")})
    found = tree.find("/link")
    assert isinstance(found, ResolvedFile)
    assert (found.path, found.stat.kind, found.stat.size) == ("/a/file", "file", 6)
    assert tree.find("/dangling") == ABSENT
    assert (tree.has("/link"), tree.has("/dangling"), tree.lacks("/dangling"), tree.lacks("/link")) == (1, 0, 1, 0)
    assert (tree.text("/link"), tree.text("/dangling"), tree.text("/a")) == ("text", None, None)
    assert (tree.names("/a"), tree.names("/link"), tree.names("/none")) == (("file",), (), ())


# The kernel's own answer: openat2(2) with RESOLVE_IN_ROOT.

_OPENAT2, _RESOLVE_IN_ROOT = 437, 0x10
_TRIES = 1000  # `..` while anything on the machine is renamed is EAGAIN, and openat2(2) says to try again
_PARTS = st.sampled_from(["a", "b", "c", "f", "l", "m", "..", ".", ""])
_PATHS = st.lists(_PARTS, min_size=1, max_size=5).map("/".join)
_TARGETS = st.tuples(st.sampled_from(["", "/"]), _PATHS).map("".join).filter(bool)
_PLACES = ("/l", "/m", "/a/l", "/a/m", "/a/b/l", "/a/b/m", "/c/l", "/a/b/c")


def of_kernel(root: int, path: str, follow: bool) -> str:
    """Where *path* leads below the directory that is open as *root*, or why nowhere."""
    how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW), 0, _RESOLVE_IN_ROOT)
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor, number = -1, errno.EAGAIN
    for _ in range(_TRIES):
        descriptor = libc.syscall(_OPENAT2, root, path.encode(), how, len(how))
        number = ctypes.get_errno()
        if descriptor >= 0 or number != errno.EAGAIN:
            break
    if descriptor < 0:
        if number not in (2, 20, 40):
            raise OSError(number, os.strerror(number))
        return "loop" if number == 40 else "absent"
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


@given(st.dictionaries(st.sampled_from(_PLACES), _TARGETS, max_size=6), st.lists(_PATHS, min_size=1, max_size=6))
@settings(max_examples=66, deadline=None)
def test_every_path_leads_where_the_kernel_says(links: dict[str, str], paths: list[str]) -> None:
    spec: dict[str, Item] = {"/a/b": Dir(), "/c": Dir(), "/f": b"", "/a/f": b"", "/a/b/f": b""}
    spec.update({place: Link(target) for place, target in links.items()})
    with tempfile.TemporaryDirectory() as directory:
        root = os.path.realpath(directory)
        trees: list[Tree] = [make_tree(root, spec), recorded_tree(spec, root)]
        opened = os.open(root, os.O_PATH)
        try:
            for path in ("/" + path for path in paths):
                want, itself = of_kernel(opened, path, True), of_kernel(opened, path, False)
                for tree in trees:
                    resolved = tree.resolve(path)
                    assert (resolved.why if isinstance(resolved, Missing) else tree.real(resolved)) == want
                    assert kind(tree.lstat(path)) == kind_of(itself)
        finally:
            os.close(opened)


def kind_of(real: str) -> str:
    if not real.startswith("/"):
        return real
    return "link" if os.path.islink(real) else "dir" if os.path.isdir(real) else "file"


def test_a_head_costs_what_is_asked_for_whatever_the_size_of_the_file(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/script": b"#!/bin/sh\n"})
    os.truncate(tmp_path / "script", 1 << 40)
    assert LiveTree(str(tmp_path)).head("/script", 10) == b"#!/bin/sh\n"
    assert recorded_tree({"/script": b"#!/bin/sh\n"}).head("/script", 3) == b"#!/"
