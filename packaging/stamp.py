"""What a build says of itself: `stamped` writes the commit of the sources into `gpubind.__version__`.

`0.1.0+g1a2b3c4d5e` is version 0.1.0 built from the commit 1a2b3c4d5e. `.dirty`: packed files differ from that commit.
A build from sources outside a git checkout has the version alone, or what the source archive already says.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import Optional

MODULE = "gpubind/__init__.py"
PACKED = ("gpubind", "etc", "packaging", "pyproject.toml", "README.md", "LICENSE")
"""What a build is made from."""
_DIGITS = 10
_PLAIN = re.compile(rb'^(__version__ = "[^"+]+)"$', re.MULTILINE)


def stamped(root: str) -> bytes:
    """Return the text of `gpubind/__init__.py` of the sources in *root*, with their commit if it is known."""
    with open(os.path.join(root, MODULE), "rb") as file:
        text = file.read()
    build = _build(root)
    return text if build is None else _PLAIN.sub(rb'\1+%s"' % build.encode(), text)


def built_version(root: str) -> str:
    """Return the version with the commit, as `gpubind --version` says it."""
    named: list[bytes] = re.findall(rb'^__version__ = "([^"]+)"$', stamped(root), re.MULTILINE)
    return named[0].decode()


def built_at(root: str) -> int:
    """Return the time of every file of a build: SOURCE_DATE_EPOCH, else that of the commit, else the year 2020."""
    named = os.environ.get("SOURCE_DATE_EPOCH")
    return int(named or (_git(root, "log", "-1", "--format=%ct") if _build(root) else 1577836800))


def _build(root: str) -> Optional[str]:
    if not os.path.exists(os.path.join(root, ".git")):  # a checkout around an unpacked archive is another project's
        return None
    try:
        commit = _git(root, "rev-parse", "--verify", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", *PACKED)
    except (OSError, subprocess.CalledProcessError):  # git is missing, or refuses the checkout of another user
        return None
    return f"g{commit[:_DIGITS]}" + (".dirty" if changed else "")


def _git(root: str, *args: str) -> str:
    command = ["git", "--no-optional-locks", "-C", root, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
