"""What a program is linked with, as `explain --tree` shows it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from posixpath import normpath
from typing import Optional

import pytest

from gpubind.documents.tree import DEPTH_LIMIT, LinkageTree, render_tree_dot, render_tree_json, render_tree_text
from gpubind.loader.linkage import LinkedFile, LinkUse, linked_files
from gpubind.loader.search import SearchRule
from tests.loader.test_container import container
from tests.support.commands import HOST, gpubind
from tests.support.elf import elf
from tests.support.golden import assert_fits
from tests.support.images import glibc
from tests.support.trees import File, make_tree

LOADER = "/lib64/ld-linux-x86-64.so.2"
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
TREE = LinkageTree(
    "solve",
    ("/usr/bin/solve",),
    "app.sif",
    (
        LinkedFile(
            "/usr/bin/solve",
            "image",
            (
                LinkUse("libcuda.so.1", "/.gpubind/libs/libcuda.so.1", "found", found_by="library-path"),
                LinkUse("libgone.so.2", None, "missing"),
                LinkUse("libc.so.6", LIBC, "found", ("GLIBC_2.38",), ("GLIBC_2.38",), "cache"),
            ),
        ),
        LinkedFile(
            "/.gpubind/libs/libcuda.so.1",
            "plan",
            (
                LinkUse("libc.so.6", LIBC, "found"),
                LinkUse("libbad.so", None, "missing", fault="/opt/libbad.so: file too short"),
            ),
            source="/usr/lib64/libcuda.so.550.163.01",
        ),
        LinkedFile(LIBC, "image"),
    ),
)


def test_a_file_is_expanded_below_the_first_that_needs_it_and_named_below_the_others() -> None:
    assert render_tree_text(TREE).splitlines() == [
        "/usr/bin/solve (image)",
        "|-- libcuda.so.1 [LD_LIBRARY_PATH] plan: /.gpubind/libs/libcuda.so.1 <- /usr/lib64/libcuda.so.550.163.01",
        "|   |-- libc.so.6 (repeated)",
        "|   `-- libbad.so not found: /opt/libbad.so: file too short",
        "|-- libgone.so.2 not found",
        f"`-- libc.so.6 [ld.so.cache] image: {LIBC}, lacks GLIBC_2.38",
        "3 files: 2 image, 1 plan",
        "not found: libbad.so, libgone.so.2",
    ]


@pytest.mark.parametrize(
    ("found_by", "shown"),
    [
        *(("interpreter", "PT_INTERP"), ("path", "its path"), ("rpath", "DT_RPATH"), ("runpath", "DT_RUNPATH")),
        *(("library-path", "LD_LIBRARY_PATH"), ("cache", "ld.so.cache"), ("default", "default directory")),
        (None, "LD_PRELOAD"),
    ],
)
def test_a_line_has_the_name_that_the_loaders_manual_gives_to_the_rule(
    found_by: Optional[SearchRule], shown: str
) -> None:
    program = LinkedFile("/bin/a", "image", (LinkUse("libb.so", "/b/libb.so", "found", found_by=found_by),))
    tree = LinkageTree("a", ("/bin/a",), None, (program, LinkedFile("/b/libb.so", "image")))
    assert render_tree_text(tree).splitlines()[1] == f"`-- libb.so [{shown}] image: /b/libb.so"


def test_the_document_fits_its_schema() -> None:
    document = json.loads(render_tree_json(TREE))
    assert_fits(document, "tree")
    assert document["missing"] == ["libbad.so", "libgone.so.2"]


def test_a_graph_has_a_node_for_each_file_and_an_edge_for_each_need() -> None:
    graph = render_tree_dot(TREE)
    assert graph.count(" -> ") == sum(len(file.uses) for file in TREE.files)
    assert f'"/usr/bin/solve" -> "{LIBC}" [label="ld.so.cache, lacks GLIBC_2.38", color=red];' in graph
    assert '"libgone.so.2" [label="libgone.so.2\\nnot found", color=red, style=dashed];' in graph


def test_a_hostile_name_breaks_no_line_and_no_string() -> None:
    name = 'a"];\nb\\\x1b[2J'
    tree = LinkageTree(name, (name,), None, (LinkedFile(f"/{name}", "host", (LinkUse(name, None, "missing"),)),))
    assert len(render_tree_text(tree).splitlines()) == 4
    for line in render_tree_dot(tree).splitlines():
        assert line.isprintable()
        assert len(re.findall(r'(?<!\\)(?:\\\\)*"', line)) % 2 == 0


def test_libraries_that_need_each_other_end() -> None:
    loop = {
        "/usr/lib/liba.so": elf("liba.so", needed=("libb.so",)),
        "/usr/lib/libb.so": elf("libb.so", needed=("liba.so",)),
    }
    made = container(loop)
    text = render_tree_text(LinkageTree("liba.so", ("liba.so",), None, linked_files(made, ("/usr/lib/liba.so",))))
    assert text.splitlines()[1:3] == [
        "`-- libb.so [default directory] image: /usr/lib/libb.so",
        "    `-- liba.so (repeated)",
    ]


def test_a_chain_of_thousands_of_libraries_is_shown_to_a_depth() -> None:
    files = tuple(
        LinkedFile(f"/lib/{at}.so", "image", (LinkUse(f"{at + 1}.so", f"/lib/{at + 1}.so", "found", found_by="cache"),))
        for at in range(4000)
    )
    text = render_tree_text(LinkageTree("0.so", ("0.so",), None, files))
    assert len(text.splitlines()) == DEPTH_LIMIT + 3
    assert f"deeper than {DEPTH_LIMIT} levels" in text


@pytest.mark.parametrize(
    ("asks", "rule"),
    [
        ({"rpath": "/opt/own"}, "rpath"),
        ({"runpath": "$ORIGIN/../own"}, "runpath"),
        ({"runpath": "/opt/own:/opt/path"}, "library-path"),
        ({"rpath": "/opt/own:/opt/path", "runpath": "/opt/none"}, "library-path"),
        ({"rpath": "/opt/path"}, "rpath"),
        ({}, "default"),
    ],
)
def test_the_rule_is_the_one_that_the_loader_applies_first(asks: dict[str, str], rule: str) -> None:
    places = {"rpath": "/opt/own", "runpath": "/opt/own", "library-path": "/opt/path", "default": "/usr/lib64"}
    place = "/opt/path" if asks.get("rpath") == "/opt/path" else places[rule]
    program = elf(kind=2, needed=("libown.so",), interpreter=LOADER, **asks)  # type: ignore[arg-type]
    made = container(
        {"/opt/bin/app": File(program, 0o755), f"{place}/libown.so": elf("libown.so"), "/opt/path/other": ""},
        own="/opt/path",
    )
    (use,) = linked_files(made, ("/opt/bin/app",))[0].uses
    assert use.path is not None
    assert (normpath(use.path), use.found_by) == (f"{place}/libown.so", rule)


def test_it_is_what_the_loader_of_this_machine_says_of_a_program() -> None:
    program = os.path.realpath(sys.executable)
    said = subprocess.run([program], env={"LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True, check=True)
    expected = dict(re.findall(r"(\S+) => (/\S+)", said.stdout))
    done = gpubind("explain", program, "--tree", "--json")
    shown = {use["name"]: use["path"] for file in json.loads(done.stdout)["files"] for use in file["uses"]}
    assert expected
    assert {name: os.path.realpath(path) for name, path in expected.items()} == {
        name: os.path.realpath(path) for name, path in shown.items() if name in expected
    }
    assert set(shown) - set(expected) <= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def test_a_program_of_an_image_has_the_plans_libraries_and_their_host_files(tmp_path: Path) -> None:
    program = elf(kind=2, needed=("libcuda.so.1", "libgone.so.2"), interpreter=LOADER)
    script = b"#!/usr/bin/env solve\n"
    programs = {
        "/usr/bin/solve": File(program, 0o755),
        "/usr/bin/run": File(script, 0o755),
        "/usr/bin/env": File(program, 0o755),
    }
    image = make_tree(tmp_path / "image", {**glibc(), **programs}).root
    done = gpubind("explain", "solve", "--tree", "--image", str(image), "--host", HOST)
    assert "libcuda.so.1 [LD_LIBRARY_PATH] plan: /.gpubind/libs/libcuda.so.1 <- /usr/lib/" in done.stdout
    assert "`-- libgone.so.2 not found\n" in done.stdout
    script_done = gpubind("explain", "run", "--tree", "--image", str(image), "--host", HOST)
    assert script_done.stdout.startswith("run -> /usr/bin/solve (image)\n")
    assert script_done.stdout.partition("\n")[2] == done.stdout.partition("\n")[2]


def test_what_a_record_does_not_cover_is_not_said_to_be_missing() -> None:
    done = gpubind("explain", "libcuda.so.1", "--tree", "--host", HOST)
    assert done.returncode == 0
    assert "libdl.so.2 not known" in done.stdout
    assert "not found" not in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        (["no-such-program", "--tree"], "unreadable-file", 4),
        (["/etc/passwd", "--tree"], "unreadable-file", 4),
        (["--tree"], "no-program", 2),
        (["-", "--tree"], "no-program", 2),
        (["ls", "--format", "dot"], "unknown-format", 2),
        (["ls", "--tree", "--format", "svg"], "unknown-format", 2),
        (["ls", "--tree", "--format", "dot", "--json"], "two-formats", 2),
    ],
)
def test_what_cannot_be_shown_is_an_error_with_a_code(words: list[str], code: str, status: int) -> None:
    done = gpubind("explain", *words)
    assert done.returncode == status
    assert f"error: {code}: " in done.stderr


def test_what_is_there_and_not_a_program_is_not_said_to_be_missing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "text").write_text("x = 1")
    image = tmp_path / "image"
    make_tree(image, {**glibc("2.36"), "/run": File(b"#!/bin/gone\n", 0o755)})

    def said(*words: object) -> str:
        return gpubind("explain", "--tree", *map(str, words)).stderr

    assert f"{tmp_path} is a directory, not a program" in said(tmp_path)
    assert "is not a regular file: a FIFO" in said(tmp_path / "fifo")
    assert "why:   not an ELF file: starts with b'x = '" in said(tmp_path / "text")
    assert "`/run` needs `/bin/gone`, which is not in the container\n" in said("/run", "--image", image, "--host", HOST)
    gone = "/usr/bin/no-such-program"
    assert f"`{gone}` is not on this host\n" in said(gone)
    assert f"`{gone}` is not in the record of the host\n" in said(gone, "--host", HOST)
    assert f"`{gone}` is not in the container\n  where: {image}\n" in said(gone, "--image", image, "--host", HOST)
