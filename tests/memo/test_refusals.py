"""Each kind of question, asked while it is answered and while it is refused: each change between these is found."""

from __future__ import annotations

import os
import pty
import pwd
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl
from itertools import permutations
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any, NamedTuple, Optional

import pytest

from gpubind.formats.driver.kernel import ACL_ATTRIBUTE
from gpubind.machine import listener, system
from gpubind.machine.system import OpenFile
from gpubind.memo import filesystems, questions
from gpubind.memo.questions import TEXT_LIMIT, digest, run_query
from gpubind.memo.recorder import Recorder
from tests.memo.test_kinds import OF_MOUNTS
from tests.support.acl import acl_for
from tests.support.apart import apart
from tests.support.golden import assert_listed
from tests.support.memo import IS_ROOT

State = Callable[[Path], None]
NOBODY = 65534
TERMINAL = 100
"""A descriptor that no test has."""


class Asked(NamedTuple):
    """A kind of question about a path."""

    ask: Callable[[Path], object]
    states: dict[str, State]
    """What the path may be: each has another answer, or another error."""
    trust: filesystems.Trust = "times"


def _nothing(path: Path) -> None:
    pass


def _file(text: str, mode: int = 0o644) -> State:
    def make(path: Path) -> None:
        path.write_text(text)
        path.chmod(mode)

    return make


def _link(target: str) -> State:
    return lambda path: path.symlink_to(target)


def _closed(path: Path) -> None:
    """In a directory that the caller may not enter."""
    path.write_text("one")
    path.parent.chmod(0)


def _directory(*names: str) -> State:
    def make(path: Path) -> None:
        path.mkdir()
        for name in names:
            (path / name).write_text("")

    return make


def _shut(path: Path) -> None:
    """A directory that the caller may not list."""
    path.mkdir(0)


def _listed_for(user: int, made: State) -> State:
    def make(path: Path) -> None:
        made(path)
        os.setxattr(path, ACL_ATTRIBUTE, acl_for(user, 6))

    return make


def _set(name: str, value: Optional[str]) -> State:
    def make(path: Path) -> None:
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value

    return make


def _known_as(home: Optional[str]) -> State:
    def getpwuid(uid: int) -> Any:
        if home is None:
            raise KeyError(uid)
        return pwd.struct_passwd(("one", "x", uid, uid, "", home, "/bin/sh"))

    return lambda path: setattr(pwd, "getpwuid", getpwuid)


def _terminal(width: int) -> State:
    def make(path: Path) -> None:
        _, terminal = pty.openpty()
        ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        os.dup2(terminal, TERMINAL)

    return make


def _no_terminal(path: Path) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), TERMINAL)


def _locale(environ: bytes) -> State:
    def make(path: Path) -> None:
        os.environ["LC_CTYPE"] = "C.UTF-8"
        path.write_bytes(environ)
        questions.OWN_ENVIRON = str(path)

    return make


def _read(path: Path) -> None:
    with system.open_file(str(path), os.O_RDONLY | os.O_NOFOLLOW) as file:
        file.read(100)


def _list(path: Path) -> None:
    """As the trees do: what refuses to be opened is not listed."""
    with system.open_directory(str(path)) as place:
        place.names()


def _user(path: Path) -> None:
    with suppress(KeyError):
        system.user(7)


def _printed(path: Path) -> None:
    listener.printed_by("/bin/cat", ("cat", str(path)), (), (), path.read_bytes())


PLACES: dict[str, State] = {"absent": _nothing, "a file": _file("one"), "in a closed directory": _closed}
FILES = {**PLACES, "another": _file("other", 0o640), "the caller may not read it": _file("one", 0)}


def _by_lists(made: State) -> dict[str, State]:
    """Return what only a list permits or refuses, with the same mode: to other users than the owner."""
    return {"a list permits": _listed_for(NOBODY, made), "a list refuses": _listed_for(1000, made)} if IS_ROOT else {}


READ = {**FILES, "a directory": _directory(), **_by_lists(_file("one"))}
ASKED: dict[str, Asked] = {
    "lstat": Asked(lambda path: system.lstat(str(path)), {**FILES, "a link": _link("none")}),
    "stat": Asked(lambda path: system.stat(str(path)), {**FILES, "a link to itself": _link("it")}),
    "link": Asked(
        lambda path: system.readlink(str(path)), {**PLACES, "a link": _link("one"), "another link": _link("two")}
    ),
    "written": Asked(_read, READ),
    "opened": Asked(_read, READ, "opened"),
    "content": Asked(_read, READ, "none"),
    "names": Asked(
        lambda path: system.listdir(str(path)),
        {
            **PLACES,
            "empty": _directory(),
            "with a name": _directory("one"),
            "the caller may not list it": _shut,
        },
    ),
    "access": Asked(
        lambda path: system.access(str(path), os.X_OK, effective=True),
        {"refused": _file("one"), "permitted": _file("one", 0o755)},
    ),
    "access to a directory": Asked(_list, {**PLACES, "a directory": _directory(), **_by_lists(_directory())}),
    "attribute": Asked(
        lambda path: system.get_xattr(str(path), ACL_ATTRIBUTE),
        {
            **PLACES,
            "a list": _listed_for(0, _file("one")),
            "another list": _listed_for(1000, _file("one")),
        },
    ),
    "variable": Asked(
        lambda _: system.environ().get("ONE"),
        {"unset": _set("ONE", None), "set": _set("ONE", "1"), "otherwise": _set("ONE", "")},
    ),
    "variables": Asked(lambda _: [*system.environ()], {"unset": _set("ONE", None), "set": _set("ONE", "1")}),
    "user": Asked(
        _user,
        {"unknown": _known_as(None), "one": _known_as("/home/one"), "two": _known_as("/home/two")},
    ),
    "terminal": Asked(
        lambda _: system.columns(TERMINAL),
        {"none": _no_terminal, "wide": _terminal(100), "narrow": _terminal(60)},
    ),
    "locale": Asked(
        lambda _: listener.recorder.own_locale(),
        {"Python's": _locale(b"A=1\0"), "the caller's": _locale(b"LC_CTYPE=C.UTF-8\0")},
    ),
    "output": Asked(_printed, {"one": _file("one"), "two": _file("two")}),
}
"""What a program prints is not kept where it fails; access is refused by a mode here, and by more in test_kinds.py."""


def _not_found(asked: Asked, path: Path) -> list[str]:
    """Return the changes that no question finds, and those after which nothing was kept."""
    filesystems.FileSystems.trust = lambda *_: asked.trust  # type: ignore[method-assign]
    filesystems.YOUNG_NS = 0
    if IS_ROOT:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
    lost = []
    for before, after in permutations(asked.states, 2):
        asked.states[before](path)
        with _as_nobody():
            recorder = Recorder(lambda status: None)
            with recorder, suppress(OSError):
                asked.ask(path)
            is_same = questions.first_change(recorder.questions) is None
        _remove(path)
        asked.states[after](path)
        with _as_nobody():
            is_found = questions.first_change(recorder.questions) is not None
        _remove(path)
        if recorder.refused or not is_same or not is_found:
            lost.append(f"{before}, then {after}: {recorder.refused or 'the same answer'}")
    return lost


@contextmanager
def _as_nobody() -> Iterator[None]:
    """Be an ordinary user: root is refused nothing."""
    if IS_ROOT:
        os.setresuid(NOBODY, NOBODY, 0)
    yield
    if IS_ROOT:
        os.setresuid(0, 0, 0)


def _remove(path: Path) -> None:
    path.parent.chmod(0o755)
    if path.is_dir() and not path.is_symlink():
        path.chmod(0o755)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.fixture
def path() -> Iterator[Path]:
    """A path that every user may reach."""
    with tempfile.TemporaryDirectory() as base:
        place = Path(base, "place")
        place.mkdir(0o755)
        os.chmod(base, 0o755)
        yield place / "it"


def test_every_kind_of_question_is_asked_and_refused() -> None:
    assert_listed(
        [*(name.partition(" ")[0] for name in ASKED), *OF_MOUNTS],
        questions.ASKED,
        add="tests/memo/test_refusals.py: add `{}` to ASKED: how it is asked, and what it is answered and refused by",
        remove="tests/memo/test_refusals.py: remove `{}`, which ASKED in gpubind/memo/questions.py does not have",
    )


@pytest.mark.parametrize("kind", ASKED)
def test_each_change_between_the_answers_and_refusals_of_a_question_is_found(kind: str, path: Path) -> None:
    assert apart(lambda: _not_found(ASKED[kind], path)) == []


@pytest.mark.parametrize("ask", [lambda file: file.attribute(ACL_ATTRIBUTE), lambda file: file.attributes()])
def test_after_an_attribute_of_an_open_file_nothing_is_kept(ask: Callable[[OpenFile], object], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    with Recorder(lambda status: None) as recorder, system.open_file(str(file)) as opened, suppress(OSError):
        recorder.refused = None  # the file was just written
        ask(opened)
    assert recorder.refused is not None


@pytest.mark.parametrize("size", [0, TEXT_LIMIT, TEXT_LIMIT + 1])
def test_a_file_is_compared_by_content_up_to_a_limit(size: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(size))
    facts = os.stat(tmp_path / "file")
    whole = (digest(bytes(size)), facts.st_mode, facts.st_uid, facts.st_gid)
    assert run_query("content", f"{tmp_path}/file") == (whole if size <= TEXT_LIMIT else ())
