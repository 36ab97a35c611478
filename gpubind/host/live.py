"""LiveHost: this machine."""

from __future__ import annotations

import os
from typing import Optional, Union

from gpubind.errors import HostReadError
from gpubind.host.base import PLAN_VARIABLES, Host, Identity, ListFile, RunResult, Uname, shipped_liblist
from gpubind.model import Missing
from gpubind.tree import LiveTree

SITE_DIRECTORY = "/etc/gpubind"
PROGRAM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
OUTPUT_LIMIT = 1 << 20
LIST_LIMIT = 1 << 20


class LiveHost(Host):
    """This machine, with its driver below *root* and its devices below *dev_root*.

    Without *dev_root*: *root* if it has dev/nvidiactl, else `/`. Errors: `HostReadError` for a root that is none.
    """

    def __init__(self, root: str = "/", dev_root: Optional[str] = None) -> None:
        self.label = "live"
        self.driver = LiveTree(root)
        if dev_root is None:
            dev_root = root if not isinstance(self.driver.lstat("/dev/nvidiactl"), Missing) else "/"
        self.dev = self.driver if os.path.realpath(dev_root) == self.driver.root else LiveTree(dev_root)
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
            except OSError as error:
                raise unreadable_list(path, error.strerror or str(error)) from error
            if len(data) > LIST_LIMIT:
                raise unreadable_list(path, f"larger than {LIST_LIMIT} bytes")
            return ListFile(label, data, shipped=False)
        return shipped_liblist(name)

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Union[RunResult, Missing]:
        places = (f"{directory}/{argv[0]}" for directory in PROGRAM_DIRECTORIES)
        program = next((place for place in places if os.access(place, os.X_OK)), None)
        if program is None:
            return Missing("absent", f"no `{argv[0]}` in {':'.join(PROGRAM_DIRECTORIES)}")
        program = os.path.realpath(program)
        if os.geteuid() == 0 and (writable := writable_by_others(program)):
            return Missing("forbidden", f"`{writable}` can be written by others than root; not run as root")
        import subprocess

        try:
            done = subprocess.run(
                (program, *argv[1:]),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
                env={"PATH": ":".join(PROGRAM_DIRECTORIES), "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired:
            return Missing("unreadable", f"`{argv[0]}` did not answer within {timeout_s:g} s")
        except OSError as error:
            return Missing("unreadable", f"`{argv[0]}`: {error.strerror}")
        out, err = (s[:OUTPUT_LIMIT].decode("utf-8", "surrogateescape") for s in (done.stdout, done.stderr))
        return RunResult(done.returncode, out, err)


def list_file_places(name: str) -> tuple[tuple[str, str], ...]:
    """Where a user's or a site's list file may be: (path, label), the user's first."""
    places = [(f"{SITE_DIRECTORY}/{name}", f"{SITE_DIRECTORY}/{name}")]
    config = os.environ.get("XDG_CONFIG_HOME") or ""
    if not config.startswith("/"):  # the XDG specification: relative values are to be ignored
        home = os.environ.get("HOME") or ""
        config = f"{home}/.config" if home.startswith("/") else ""
    if config:
        places.insert(0, (f"{config}/gpubind/{name}", f"$XDG_CONFIG_HOME/gpubind/{name}"))
    return tuple(places)


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
