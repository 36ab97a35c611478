"""What could not be looked at, of what a plan can do without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from gpubind.files import Tree
from gpubind.host.base import Host
from gpubind.model import Finding
from gpubind.model.findings import finding


def not_looked_at(host: Host, image: Optional[Tree] = None) -> Iterator[Finding]:
    """Yield a finding about each path of *host* and of *image* that could not be looked at so far."""
    trees = (("host", host.driver), ("host", host.dev), ("image", image))
    told = {(of, path): why for of, tree in trees if tree is not None for path, why in sorted(tree.unseen.items())}
    for (of, path), why in told.items():
        yield finding("not-looked-at", case=of, subject=path, why=why)
