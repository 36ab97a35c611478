"""Each kind of question is needed: a trace without it gives a wrong answer after some change."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import NamedTuple

import pytest

from gpubind.formats.driver.kernel import ACL_ATTRIBUTE
from gpubind.memo import answer, questions
from tests.support.acl import acl_for
from tests.support.changes import CDI
from tests.support.elf import elf
from tests.support.golden import assert_listed
from tests.support.images import glibc
from tests.support.layers import archive, docker_archive, packed, tar
from tests.support.ldcache import build_ldcache
from tests.support.memo import IS_ROOT, Bench


class Case(NamedTuple):
    """A change that one kind of question alone finds out."""

    command: str
    before: Callable[[Bench], None]
    change: Callable[[Bench], None]


def _nothing(bench: Bench) -> None:
    pass


def _text(path: str, text: str) -> Callable[[Bench], None]:
    def write(bench: Bench) -> None:
        place = bench.base / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    return write


def _link(path: str, target: str) -> Callable[[Bench], None]:
    def link(bench: Bench) -> None:
        (bench.base / path).unlink(missing_ok=True)
        (bench.base / path).symlink_to(target)

    return link


def _set(name: str, value: str) -> Callable[[Bench], None]:
    def change(bench: Bench) -> None:
        bench.environ[name] = value

    return change


def _earlier_program(bench: Bench) -> None:
    path = bench.base / "early" / "apptainer"
    path.write_bytes(b"\x7fELF apptainer version 1.4.5\n")
    path.chmod(0o755)


def _a_program(bench: Bench) -> None:
    """In a directory that nobody lists."""
    (bench.host / "usr/bin/nvidia-debugdump").write_bytes(elf(kind=2))


def _two_caches(bench: Bench) -> None:
    cache = bench.host / "etc/ld.so.cache"
    cache.rename(cache.with_name("one"))
    cache.with_name("two").write_bytes(build_ldcache([]))
    _link("host/etc/ld.so.cache", "one")(bench)


def _on_a_terminal(bench: Bench) -> None:
    bench.has_terminal = True


def _narrow(bench: Bench) -> None:
    bench.width = 60


def _moved_home(bench: Bench) -> None:
    bench.user_home = "/home/two"


def _refused_program(bench: Bench) -> None:
    """By an access control list or a security module, which `stat` does not show."""
    _earlier_program(bench)
    bench.refused.add(str(bench.base / "early" / "apptainer"))


def _permitted_program(bench: Bench) -> None:
    bench.refused.clear()


def _open_to(user: int) -> Callable[[Bench], None]:
    """A node that an access control list gives to *user*; its mode is the same for every user."""

    def change(bench: Bench) -> None:
        os.setxattr(bench.host / "dev/nvidia0", ACL_ATTRIBUTE, acl_for(user, 6))

    return change


STORED = """#!/bin/sh
case "$*" in
"image inspect test:1") cat BASE/inspected ;;
"save test:1") cat BASE/saved ;;
esac
"""


def _inspected(number: str) -> str:
    digest = f"sha256:{number * 64}"
    config = {"Env": [f"LD_LIBRARY_PATH=/{number}"]}
    return json.dumps([{"Id": digest, "RootFS": {"Layers": [digest]}, "Config": config}])


def _a_store(bench: Bench) -> None:
    """With an image, and a program that only plays docker."""
    (bench.base / "inspected").write_text(_inspected("1"))
    (bench.base / "saved").write_bytes(archive(docker_archive([packed(tar(dict(glibc())))], [])))
    for path, text in (("early/docker", "\x7fELF docker version 26.1.5\n"), ("standard/docker", STORED)):
        (bench.base / path).write_text(text.replace("BASE", str(bench.base)))
        (bench.base / path).chmod(0o755)


def _another_image(bench: Bench) -> None:
    (bench.base / "inspected").write_text(_inspected("2"))


CASES = {
    "lstat": Case("plan", _nothing, _a_program),
    "stat": Case("apptainer", _nothing, _earlier_program),
    "link": Case("plan", _two_caches, _link("host/etc/ld.so.cache", "two")),
    "written": Case(
        "cdi",
        _text("host/etc/cdi/a.json", CDI.replace("NUMBER", "1")),
        _text("host/etc/cdi/a.json", CDI.replace("NUMBER", "2")),
    ),
    "opened": Case(
        "plan",
        _text("home/.config/gpubind/config.toml", 'gpus = "0"\n'),
        _text("home/.config/gpubind/config.toml", 'gpus = "1"\n'),
    ),
    "content": Case("plan", _nothing, _text("host/sys/module/nvidia/version", "550.54.15\n")),
    "names": Case(
        "plan",
        _nothing,
        _text("host/proc/driver/nvidia/gpus/0000:09:00.0/information", "GPU UUID: GPU-9\nDevice Minor: 9\n"),
    ),
    "variable": Case("plan", _nothing, _set("GPUBIND_CAPS", "compute")),
    "variables": Case("bwrap", _nothing, _set("NOBODY_ASKS_FOR_THIS", "1")),
    "user": Case("user", _nothing, _moved_home),
    "terminal": Case("table", _on_a_terminal, _narrow),
    "access": Case("apptainer", _refused_program, _permitted_program),
    "locale": Case("apptainer", _set("LC_CTYPE", "C.UTF-8"), _text("environ", "LC_CTYPE=C.UTF-8\0")),
    "output": Case("docker", _a_store, _another_image),
}


ROOTS_CASES = {"attribute": Case("check", _open_to(0), _open_to(1000))}
"""Only root can make the device nodes in them."""
OF_MOUNTS = {"inode", "mounted", "device", "owner"}
"""They find out that another file system is mounted: tests/live/test_memo_mounts.py and test_trust.py."""


def test_every_kind_of_question_has_its_case() -> None:
    assert_listed(
        [*CASES, *ROOTS_CASES, *OF_MOUNTS],
        questions.ASKED,
        add="tests/memo/test_kinds.py: add `{}` to CASES: a change that only this kind of question finds",
        remove="tests/memo/test_kinds.py: remove `{}`, which ASKED in gpubind/memo/questions.py does not have",
    )


@pytest.mark.parametrize("kind", [*CASES, *(ROOTS_CASES if IS_ROOT else ())])
def test_without_one_kind_of_question_the_law_does_not_hold(
    kind: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = {**CASES, **ROOTS_CASES}[kind]
    case.before(bench)
    words = bench.docker if case.command == "docker" else bench.commands()[case.command]
    bench.settle()
    bench.with_memo(words)  # which writes generated files, and the next start finds them
    bench.settle()
    bench.with_memo(words)
    bench.served = 0
    assert bench.with_memo(words) == bench.without(words)
    assert bench.served == 1
    case.change(bench)
    right = bench.without(words)
    whole = questions.first_change
    with monkeypatch.context() as patch:
        patch.setattr(answer, "first_change", lambda asked: whole({k: q for k, q in asked.items() if k != kind}))
        assert bench.with_memo(words) != right, "the change shows without this kind of question, too"
    assert bench.with_memo(words) == right
    assert bench.served == 2
