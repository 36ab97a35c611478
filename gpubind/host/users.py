"""Who a user is on this machine, or on one whose root is mounted here."""

from __future__ import annotations

import os
import pwd

from gpubind.errors import UsageError
from gpubind.files import Tree
from gpubind.host.base import Identity
from gpubind.observe import cannot_sign


def identity_of(name: str, tree: Tree) -> Identity:
    """The user called *name*: of this machine, asked as a login would ask, if *tree* is its root; else by the tree's
    own /etc/passwd and /etc/group.

    Errors: `UsageError` (code `unknown-user`).
    """
    cannot_sign("a user is asked about")
    if tree.root == "/":
        try:
            user = pwd.getpwnam(name)
        except (KeyError, ValueError) as error:
            raise _unknown(name, "this machine knows no such user") from error
        return Identity(user.pw_uid, tuple(sorted({user.pw_gid, *os.getgrouplist(name, user.pw_gid)})))
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
