"""LiveHost: this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Optional, Union

from gpubind.errors import HostReadError
from gpubind.host.base import PLAN_VARIABLES, Host, Identity, ListFile, RunResult, Uname, shipped_liblist
from gpubind.model import HostPath, Missing
from gpubind.tree import LiveTree

SITE_DIRECTORY = "/etc/gpubind"
PROGRAM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
OUTPUT_LIMIT = 1 << 20
LIST_LIMIT = 1 << 20


class LiveHost(Host):
    """This machine, with its driver below *root* and its devices below *dev_root*.

    Without *dev_root*: *root* if it has dev/nvidiactl or dev/kfd, else `/`. Errors: `HostReadError` for a root that is
    none.
    """

    def __init__(self, root: str = "/", dev_root: Optional[str] = None) -> None:
        self.label = "live"
        self.driver = LiveTree(root)
        if dev_root is None:
            nodes = (self.driver.lstat(path) for path in ("/dev/nvidiactl", "/dev/kfd"))
            dev_root = "/" if all(isinstance(node, Missing) for node in nodes) else root
        self.dev = self.driver if os.path.realpath(dev_root) == self.driver.root else LiveTree(dev_root)
        trees = (tree for tree in (self.driver, self.dev) if tree.root == "/")
        self.local = next(trees, None) or LiveTree("/")
        self.environ = {name: os.environ[name] for name in PLAN_VARIABLES if name in os.environ}
        uname = os.uname()
        self.uname = Uname(uname.release, uname.machine)
        self.identity = Identity(os.geteuid(), tuple(sorted({os.getegid(), *os.getgroups()})))

    def liblist(self, name: str) -> ListFile:
        for path, label in list_file_places(name):
            try:
                with open(path, "rb") as file:
                    data = file.read(LIST_LIMIT + 1)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError as error:
                if not os.access(os.path.dirname(path), os.X_OK):  # somebody else's home: sudo, cron, a job's prologue
                    continue
                raise unreadable_list(path, error.strerror or "") from error
            except OSError as error:
                raise unreadable_list(path, error.strerror or str(error)) from error
            if len(data) > LIST_LIMIT:
                raise unreadable_list(path, f"larger than {LIST_LIMIT} bytes")
            return ListFile(label, data, shipped=False)
        return shipped_liblist(name)

    def may_open(self, path: HostPath) -> bool:
        # access(2) asks the device cgroup, too (fs/namei.c inode_permission), and opens nothing.
        return os.access(path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids)

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Union[RunResult, Missing]:
        places = (f"{directory}/{argv[0]}" for directory in PROGRAM_DIRECTORIES)
        program = next((place for place in places if os.access(place, os.X_OK)), None)
        if program is None:
            return Missing("absent", f"no `{argv[0]}` in {':'.join(PROGRAM_DIRECTORIES)}")
        program = os.path.realpath(program)
        if os.geteuid() == 0 and (writable := writable_by_others(program)):
            return Missing("forbidden", f"`{writable}` can be written by others than root; not run as root")
        environ = {"PATH": ":".join(PROGRAM_DIRECTORIES), "LC_ALL": "C"}
        return _answer(program, argv, environ, timeout_s)


def _answer(
    program: str, argv: tuple[str, ...], environ: dict[str, str], timeout_s: float
) -> Union[RunResult, Missing]:
    """What *program* prints, called as *argv*, in bounded time and memory; it is ended with all that it has started."""
    import selectors
    import signal
    import subprocess
    import time

    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            argv,
            executable=program,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=environ,
            start_new_session=True,
        )
    except OSError as error:
        return Missing("unreadable", f"`{argv[0]}`: {error.strerror}")
    assert process.stdout is not None
    assert process.stderr is not None
    printed = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
    deadline = time.monotonic() + timeout_s
    trouble = ""
    with process, selectors.DefaultSelector() as selector:
        for descriptor in printed:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and not trouble:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                trouble = f"did not answer within {timeout_s:g} s"
            for key, _ in ready:
                chunk = os.read(key.fd, 65536)
                printed[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
                if len(printed[key.fd]) > OUTPUT_LIMIT:
                    trouble = f"prints more than {OUTPUT_LIMIT} bytes"
        if trouble:
            os.killpg(process.pid, signal.SIGKILL)
    if trouble:
        return Missing("unreadable", f"`{argv[0]}` {trouble}")
    out, err = (text.decode("utf-8", "surrogateescape") for text in printed.values())
    return RunResult(process.returncode, out, err)


def list_file_places(name: str) -> tuple[tuple[str, str], ...]:
    """Where a user's or a site's list file may be: (path, label), the user's first."""
    places = [(f"{SITE_DIRECTORY}/{name}", f"{SITE_DIRECTORY}/{name}")]
    users = xdg_directory(os.environ, "XDG_CONFIG_HOME", ".config")
    if users:
        places.insert(0, (f"{users}/{name}", f"$XDG_CONFIG_HOME/gpubind/{name}"))
    return tuple(places)


def xdg_directory(environ: Mapping[str, str], variable: str, below_home: str) -> str:
    """gpubind's own directory below `$XDG_...`, else below the home; empty if the environment names neither.

    Source: XDG Base Directory Specification; relative values are to be ignored.
    """
    base = environ.get(variable, "")
    if not base.startswith("/"):
        home = environ.get("HOME", "")
        base = f"{home}/{below_home}" if home.startswith("/") else ""
    return f"{base}/gpubind" if base else ""


def writable_by_others(program: str) -> Optional[str]:
    """The first of *program* and the directories above it that someone other than root could change; None if none."""
    path = program
    while True:
        found = os.lstat(path)
        sticky_directory = path != program and found.st_mode & 0o1000
        if found.st_uid != 0 or (found.st_mode & 0o022 and not sticky_directory):
            return path
        if path == "/":
            return None
        path = os.path.dirname(path)


def unreadable_list(path: str, why: str) -> HostReadError:
    """The error for a list file that is there but cannot be read."""
    return HostReadError("unreadable-file", "a list file cannot be read", where=path, why=why)
