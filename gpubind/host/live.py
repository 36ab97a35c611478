"""This machine as a host, also with the rights of another user."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Optional, Union

from gpubind.errors import UsageError
from gpubind.files import Tree
from gpubind.files.live import LiveTree, PermittedTree
from gpubind.host.base import Host, Identity, ListFile, RunResult, Uname, Untrusted, plan_variables, shipped_liblist
from gpubind.host.directories import active_list_file, distrusted, untrusted, untrusted_variables
from gpubind.machine import system
from gpubind.machine.answers import has_access
from gpubind.machine.listener import mark_uncacheable
from gpubind.machine.trust import acts_as_root
from gpubind.model import Missing, ResolvedFile
from gpubind.model.layouts import DXG

_DRIVER_NODES = ("/dev/nvidiactl", "/dev/nvmap", "/dev/kfd", DXG)
"""Device nodes of which each driver has at least one, whatever the GPUs."""


class LiveHost(Host):
    """This machine, with its driver below *root* and its devices below *dev_root*.

    *dev_root* is by default *root* if it has one of `_DRIVER_NODES`, and `/` otherwise. *environ* is the environment of
    the task of the plan, if that differs from this process's. Errors: `HostReadError` for a root that is not a
    directory.
    """

    def __init__(
        self, root: str = "/", dev_root: Optional[str] = None, environ: Optional[Mapping[str, str]] = None
    ) -> None:
        self.label = "live"
        self.driver: Tree = LiveTree(root)
        if dev_root is None:
            nodes = (self.driver.lstat(path) for path in _DRIVER_NODES)
            dev_root = "/" if all(isinstance(node, Missing) for node in nodes) else root
            self.assumes_dev_root = dev_root != root
        dev = LiveTree(dev_root)
        self.dev = self.driver if dev.root == self.driver.root else dev
        trees = (tree for tree in (self.driver, self.dev) if tree.root == "/")
        self.local: Tree = next(trees, None) or LiveTree("/")
        self.task = environ
        self._ignored = tuple(untrusted_variables(self._environ, self.driver.root, self.dev.root))
        ignored = {entry.variable for entry in self._ignored}
        variables = plan_variables(self._environ)
        self.environ = {name: value for name, value in variables.items() if name not in ignored}
        uname = system.uname()
        self.uname = Uname(uname.release, uname.machine)
        self.hostname = uname.nodename
        self.identity = Identity(system.effective_user(), system.groups())

    def liblist(self, name: str) -> ListFile:
        return active_list_file(name, self._environ) or shipped_liblist(name)

    def untrusted(self, below: Iterable[str] = (), files: Iterable[str] = ()) -> tuple[Untrusted, ...]:
        return (*self._ignored, *untrusted(self._environ, (self.driver.root, self.dev.root), below, files))

    def distrusted(self, variable: str, path: str) -> Optional[Untrusted]:
        return distrusted(variable, path, self.driver.root) if acts_as_root() else None

    @property
    def _environ(self) -> Mapping[str, str]:
        return system.environ() if self.task is None else self.task

    def as_user(self, name: str) -> Host:
        identity = _identity_of_user(name, self.dev)
        host = self.copy()
        host.identity = identity
        if identity.euid == 0:  # modes do not apply
            return host
        trees = {tree.root: PermittedTree(tree.root, *identity) for tree in (self.driver, self.dev, self.local)}
        host.driver, host.dev, host.local = (trees[tree.root] for tree in (self.driver, self.dev, self.local))
        return host

    def user_name(self, uid: int) -> Optional[str]:
        try:
            return system.user(uid).pw_name if self.driver.root == "/" else None
        except KeyError:
            return None

    def access(self, node: ResolvedFile) -> str:
        if self.identity.euid != system.effective_user():
            return super().access(node)  # the kernel answers only for this process
        # access(2) respects the device cgroup (fs/namei.c inode_permission), and opens nothing.
        path = self.dev.real(node.path)
        rights = (("rw", os.R_OK | os.W_OK), ("r", os.R_OK), ("w", os.W_OK))
        return next((name for name, mode in rights if has_access(path, mode, effective=True)), "none")

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Union[RunResult, Missing]:
        from gpubind.host.programs import run_program  # few hosts run a program

        return run_program(argv, timeout_s)


def _identity_of_user(name: str, tree: Tree) -> Identity:
    """Return the user *name*: of this machine if *tree* is its root, or else from the tree's /etc/passwd and
    /etc/group.

    Errors: `UsageError` (code `unknown-user`).
    """
    mark_uncacheable("a user is asked about")
    if tree.root == "/":
        try:
            return Identity(*system.user_called(name))
        except (KeyError, ValueError) as error:
            raise _unknown(name, "this machine knows no such user") from error
    rows = (line.split(":") for line in (tree.text("/etc/passwd") or "").split("\n"))
    row = next((row for row in rows if len(row) > 3 and row[0] == name and row[2].isdigit() and row[3].isdigit()), None)
    if row is None:
        raise _unknown(name, "the host's /etc/passwd has no such user")
    groups = {int(row[3])}
    for line in (tree.text("/etc/group") or "").split("\n"):
        fields = line.split(":")
        if len(fields) > 3 and fields[2].isdigit() and name in fields[3].strip().split(","):
            groups.add(int(fields[2]))
    return Identity(int(row[2]), tuple(sorted(groups)))


def _unknown(name: str, why: str) -> UsageError:
    return UsageError("unknown-user", f"unknown user `{name}`", why=why)
