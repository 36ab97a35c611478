"""Every function of the machine's that gpubind calls is known here: recorded, no question, or the end of recording.

A new call of a function that is not listed makes this test fail. Whoever adds it says why the memo's law still holds.
"""

from __future__ import annotations

import ast
import os
import posix
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from gpubind.memo import recorder as recording
from gpubind.memo.recorder import Recorder
from tests.support.golden import assert_none

PACKAGE = Path(recording.__file__).parent.parent

RECORDED = {
    *(f"os.{name}" for name in recording.REPLACEMENTS if name != "scandir"),
    *("os.environ", "os.environ.get", "os.environ.copy", "pwd.getpwuid"),
    # These call the above by their names in `os`, as `test_what_the_library_asks_is_recorded` shows.
    *("os.path.exists", "os.path.getsize", "os.path.isdir", "os.path.isfile", "os.path.lexists", "os.path.realpath"),
    *("os.makedirs", "shutil.get_terminal_size", "shutil.rmtree"),
    "tempfile.TemporaryFile",  # it opens a file to write: nothing is kept
}
IN_THE_NAME_OF_THE_MEMO = {
    *("os.getcwd", "os.path.abspath", "os.geteuid", "os.getegid", "os.getuid", "os.getgroups", "os.uname", "os.isatty"),
    *("sys.executable", "sys.argv", "sys.version_info", "sys.byteorder", "sys.stdout.isatty"),
}
OF_A_DESCRIPTOR = {
    "os.close",
    "os.dup",
    "os.dup2",
    "os.fdopen",
    "os.fstat",
    "os.fsync",
    "os.pread",
    "os.read",
    "os.write",
}
"""`os.open` has signed what is read from it, or has said that something is written."""
NO_QUESTION = {
    *("os.path.basename", "os.path.dirname", "os.path.isabs", "os.path.join", "os.path.relpath", "os.path.split"),
    *(
        "os.PathLike",
        "os.fspath",
        "os.major",
        "os.minor",
        "os.makedev",
        "os.strerror",
        "os.stat_result",
        "os.defpath",
        "os.devnull",
        "os.path",
    ),
    "os.sysconf",  # the number of descriptors limits what stays open, and changes no answer
    *("os.supports_effective_ids", "os.execve", "os._exit", "time.sleep"),
    *(
        "sys.stdout",
        "sys.stdout.buffer",
        "sys.stdout.buffer.write",
        "sys.stdout.write",
        "sys.stdout.flush",
        "sys.stderr.flush",
    ),
    *(
        "sys.stderr",
        "sys.stderr.isatty",
        "sys.stderr.write",
        "sys.stderr.flush",
        "sys.unraisablehook",
        "sys.__unraisablehook__",
    ),
    *("sys.modules", "sys.path", "sys.exit"),  # of types of fields, of a traceback, and of the end
}
NEVER_THE_SAME = {"os.getpid", "os.urandom", "sys.stdin", "sys.stdin.buffer", "sys.stdin.buffer.read"}
"""The answer is not kept where the number of the process stands in it, or where standard input is read; random names
are those of files just written."""
OF_PROGRAMS = {
    *("subprocess.run", "subprocess.DEVNULL", "subprocess.PIPE", "from subprocess DEVNULL", "from subprocess Popen"),
    *("os.posix_spawn", "os.waitpid", "os.waitstatus_to_exitcode", "os.kill", "os.killpg"),
    *("os.pipe", "fcntl.fcntl", "fcntl.F_DUPFD_CLOEXEC", "posix.listdir", "select.poll", "select.POLLIN"),
    *(f"from _signal {name}" for name in ("SIGHUP", "SIGKILL", "SIGTERM", "raise_signal")),
    "time.monotonic",
}
MODULES_OF_PROGRAMS = {"launch/execute.py", "host/programs.py", "machine/programs.py"}
"""They say themselves that a program is asked (`cannot_sign`, `asked_program`), and nobody else may start any."""
OF_PROGRESS = {"os.getpgrp", "os.tcgetpgrp", "time.monotonic"}
"""Of cli/progress.py: what stands on a terminal while a command works is gone at its end, and no part of its answer."""
OF_THE_LIBRARY = {"logging.getLogger", "logging.INFO", "logging.WARNING", "logging.ERROR", "logging.NullHandler"}
"""Of api/start.py: what `gpubind.start` logs for a program that calls it; no command is answered so."""
OF_USERS = {"pwd.getpwnam", "os.getgrouplist"}
"""Of host/users.py, which says itself that no trace can sign them."""
OF_STORES = {"os.scandir", "os.DirEntry", "os.getxattr", "os.listxattr"}
"""Of files/overlay.py, which reads the store of a program that was asked where its images are: such an answer is not
kept."""
OF_NODES = {"os.pipe", "time.monotonic", "signal.SIGHUP", "signal.SIGTERM", "signal.SIG_DFL"}
OF_NODES |= {"signal.default_int_handler", "signal.getsignal", "signal.signal", "os.environ.pop"}
OF_NODES |= {"from zipfile ZIP_DEFLATED", "from zipfile ZipFile", "tempfile.NamedTemporaryFile"}
OF_NODES |= {"from logging NullHandler", "from logging getLogger"}
"""Of fleet/: what other machines answer is never kept."""

OF_PAGES = {"time.time", "time.gmtime", "time.strftime"}
"""Of cli/output.py: a page with the time of the clock is never kept; a given time is a variable that is asked for."""

OF_LINKS = {"fcntl.flock", "fcntl.LOCK_EX"}
"""Of launch/links.py, which waits for others that write the same directory; nothing is kept of it."""

KNOWN = RECORDED | IN_THE_NAME_OF_THE_MEMO | OF_A_DESCRIPTOR | NO_QUESTION | NEVER_THE_SAME
MACHINE = {
    *("os", "posix", "posixpath", "genericpath", "io", "codecs", "pathlib", "glob", "shutil", "tempfile", "fileinput"),
    *(
        "time",
        "datetime",
        "pwd",
        "grp",
        "spwd",
        "getpass",
        "locale",
        "platform",
        "socket",
        "subprocess",
        "sys",
        "signal",
    ),
    *("selectors", "select", "fcntl", "mmap", "ctypes", "termios", "tty", "resource", "random", "secrets", "uuid"),
    *("importlib", "pkgutil", "zipimport", "linecache", "multiprocessing", "threading", "asyncio", "urllib", "http"),
    *("_signal", "_io", "zipfile", "tarfile", "gzip", "bz2", "sqlite3", "dbm", "logging", "netrc", "mimetypes"),
}
"""Modules that ask this machine something."""
PURE = {
    *("io.BufferedReader", "io.BytesIO", "io.RawIOBase", "io.StringIO", "from importlib import_module"),
    *(f"from posixpath {name}" for name in ("basename", "dirname", "join", "normpath")),
    *(f"from _signal {name}" for name in ("SIGINT", "SIGPIPE", "SIGXFSZ", "SIG_DFL")),
    *(f"from _signal {name}" for name in ("default_int_handler", "getsignal", "signal")),
    *("from subprocess PIPE", "from subprocess Popen"),  # for type checking, and beside `cannot_sign`
}
"""What asks nothing, and may be taken out of its module: it is the same while somebody records."""


def modules() -> list[Path]:
    found = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "memo" and path.name != "mounts.py"]
    assert len(found) > 100
    return found


def asked_in(tree: ast.AST) -> Iterator[str]:
    """The dotted names of the machine's modules that *tree* uses."""
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                modules[one.asname or one.name.partition(".")[0]] = one.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MACHINE:
            yield from (f"from {node.module} {one.name}" for one in node.names)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            name, module = dotted(node, modules)
            if module.partition(".")[0] in MACHINE:
                yield name


def dotted(node: ast.expr, modules: dict[str, str]) -> tuple[str, str]:
    """`os.path.join` for such an expression, and the module of its first name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    module = modules.get(node.id, "") if isinstance(node, ast.Name) else ""
    return ".".join((module, *reversed(names))), module


def is_flag(name: str) -> bool:
    """`os.O_RDONLY`, `os.W_OK`, `os.SEEK_SET`."""
    last = name.rpartition(".")[2]
    return name.startswith("os.") and last.isupper()


def unknown_in(tree: ast.AST, module: str) -> set[str]:
    known = KNOWN | PURE | (OF_PROGRAMS if module in MODULES_OF_PROGRAMS else set())
    known |= OF_PROGRESS if module == "cli/progress.py" else set()
    known |= OF_THE_LIBRARY if module == "api/start.py" else set()
    known |= OF_USERS if module == "host/live.py" else set()
    known |= OF_STORES if module == "files/overlay.py" else set()
    known |= OF_NODES if module.startswith("fleet/") else set()
    known |= OF_PAGES if module == "cli/output.py" else set()
    known |= OF_LINKS if module == "launch/links.py" else set()
    return {name for name in asked_in(tree) if name not in known and not is_flag(name)}


def test_every_question_that_gpubind_asks_is_known_to_the_recorder() -> None:
    unknown = []
    for path in modules():
        module = str(path.relative_to(PACKAGE))
        names = sorted(unknown_in(ast.parse(path.read_text()), module))
        unknown += [f"gpubind/{module}: `{name}`" for name in names]
    assert_none(
        unknown,
        "{} asks the machine and nothing records it: call a function of RECORDED (tests/memo/test_asked.py) instead; "
        'CONTRIBUTING.md, "Read something new of the machine", has the other ways',
    )


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.getloadavg()",
        "from os import stat",
        "import os as system\nsystem.statvfs('/')",
        "def f():\n    import socket\n    socket.gethostname()",
        "from pathlib import Path",
        "from glob import iglob",
        "import time\ntime.time()",
        "import subprocess\nsubprocess.run(())",
    ],
)
def test_a_question_that_nobody_knows_is_seen(text: str) -> None:
    assert unknown_in(ast.parse(text), "caller.py")


def test_no_function_is_kept_from_before_the_recorder_stands() -> None:
    """A name, a default or a constant that is set when a module is loaded holds what was there then."""
    kept = []
    for path in modules():
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                node.body = [] if isinstance(node.body, list) else ast.Constant(None)
        names = sorted({name for name in asked_in(tree) if name in RECORDED})
        kept += [f"gpubind/{path.relative_to(PACKAGE)}: `{name}`" for name in names]
    assert_none(kept, "{} is used while the module loads: call it by this name in a function that a command runs")


def test_nothing_is_asked_of_a_file_that_its_signature_does_not_have() -> None:
    had = {"st_mode", "st_uid", "st_gid", "st_rdev", "st_size"}
    # trust.py notes the device itself. The others tell one opened file from another, and whether it is written to while
    # it is read; no answer has them.
    noted = {"machine/trust.py": {"st_dev"}, "machine/answers.py": {"st_mtime_ns"}}
    noted["files/blob.py"] = {"st_dev", "st_ino", "st_mtime_ns"}
    other = []
    for path in modules():
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        module = str(path.relative_to(PACKAGE))
        found = {name for name in names if name.startswith("st_")} - had
        other += [f"gpubind/{module}: `{name}`" for name in sorted(found - noted.get(module, set()))]
    assert_none(other, "{} is not in a file's signature: ask only what `facts` in gpubind/memo/questions.py has")


LIBRARY: dict[str, tuple[Callable[[str], Any], str]] = {
    "exists": (os.path.exists, "stat"),
    "isfile": (os.path.isfile, "stat"),
    "isdir": (os.path.isdir, "stat"),
    "getsize": (os.path.getsize, "stat"),
    "lexists": (os.path.lexists, "lstat"),
    "realpath": (os.path.realpath, "lstat"),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_what_the_library_asks_is_recorded(name: str, tmp_path: Path) -> None:
    ask, kind = LIBRARY[name]
    (tmp_path / "file").touch()
    path = str(tmp_path / "file")
    with Recorder(lambda status: None) as recorder:
        ask(path)
    assert path in recorder.questions[kind]


def test_below_an_open_directory_the_whole_path_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("x")
    (tmp_path / "a/b/link").symlink_to("file")
    with Recorder(lambda status: None) as recorder:
        top = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
        below = os.open("a", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
        (tmp_path / "a").rename(tmp_path / "c")  # what was asked for was below `a`, whatever it is called by now
        place = os.open("b", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=below)
        os.stat("file", dir_fd=place, follow_symlinks=False)
        os.readlink("link", dir_fd=place)
        os.listdir(place)
        for descriptor in (top, below, place):
            os.close(descriptor)
    inner = f"{tmp_path}/a/b"
    assert {f"{tmp_path}/a", inner, f"{inner}/file"} <= recorder.questions["lstat"].keys()
    assert f"{inner}/link" in recorder.questions["link"]
    assert inner in {**recorder.questions["names"], **recorder.questions["written"]}


def test_below_a_directory_that_the_recorder_did_not_see_opened_nothing_is_kept(tmp_path: Path) -> None:
    place = posix.open(tmp_path, os.O_RDONLY)
    try:
        with Recorder(lambda status: None) as recorder:
            assert not os.access("x", os.R_OK, dir_fd=place)
        assert recorder.refused
    finally:
        posix.close(place)


CHANGES: tuple[Callable[[str], Any], ...] = (
    lambda path: os.mkdir(path),  # by its name, as gpubind calls it  # noqa: PLW0108
    lambda path: os.close(os.open(path, os.O_CREAT | os.O_WRONLY)),
    lambda path: open(path, "wb").close(),
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_command_that_changes_something_is_not_kept(change: Callable[[str], Any], tmp_path: Path) -> None:
    with Recorder(lambda status: None) as recorder:
        change(str(tmp_path / "new"))
    assert recorder.refused


def test_after_an_error_nothing_is_looked_at_any_more(tmp_path: Path) -> None:
    before = {name: getattr(os, name) for name in recording.REPLACEMENTS}
    with pytest.raises(RuntimeError), Recorder(lambda status: None) as recorder:
        raise RuntimeError
    assert {name: getattr(os, name) for name in recording.REPLACEMENTS} == before
    assert recorder.refused
