"""One layout of a host: who has it, the tree, and what must be planned of it. `layouts` finds all of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple, Optional

from gpubind.host.record import RecordedRun
from gpubind.host.recorded import RecordedHost
from gpubind.model import Mount, Request
from tests.layouts import families
from tests.support.trees import Spec, record

Names = Mapping[str, tuple[str, ...]]
"""Base names of files in the plan, by category: `compute`, `video`, `graphics`, `programs`, `manifests`, ...; a 32-bit
library is `i386/NAME`.
"""


class HostLayout(NamedTuple):
    """A host as somebody has it."""

    name: str
    """`rhel9-run`."""
    who: str
    """Whose machines these are, in a few words: the first column of docs/hosts.md."""
    source: str
    """Where the facts are from: a public page, or the document's name."""
    spec: Spec
    """Everything that is on the host, as in `tests/support/trees.py`; without `dev`, the nodes, /proc and /sys, too."""
    planned: Names
    """What the plan must have."""
    nodes: tuple[str, ...]
    """The device nodes that the plan has: these and no others."""
    gpus: tuple[str, ...]
    """What `gpubind gpus` lists, as `--gpus` names it: `0`, `0:1/0`."""
    findings: tuple[str, ...] = ()
    """The codes that `check` has: these and no others."""
    not_served: Mapping[str, str] = {}
    """Names that are on such a host and not in the plan, with the reason, a sentence for docs/hosts.md."""
    dev: Optional[Spec] = None
    """The nodes, /proc and /sys, where `--root` names another tree than theirs."""
    root: str = "/"
    """What `--root` names, where `dev` is given."""
    machine: str = "x86_64"
    environ: Mapping[str, str] = {}
    groups: tuple[int, ...] = (1000,)
    runs: tuple[RecordedRun, ...] = ()
    request: Request = Request()
    main: str = "libcuda.so.1"
    """The library that `explain` is asked about."""
    remark: str = ""
    """What its user should know or do, a sentence for docs/hosts.md."""

    def host(self) -> RecordedHost:
        """Return the host of this tree."""
        made = record(
            self.spec, self.dev, environ=self.environ, machine=self.machine, groups=self.groups, runs=self.runs,
            root=self.root,
        )  # fmt: skip
        return RecordedHost(made, self.name)


def names_of(mounts: Iterable[Mount]) -> frozenset[str]:
    """Return the names of what is mounted, as a layout declares them."""
    prefixes = ((mount, "i386/" if mount.arch == "i386" else "") for mount in mounts)
    return frozenset(prefix + mount.target.rpartition("/")[2] for mount, prefix in prefixes)


@cache
def layouts() -> tuple[HostLayout, ...]:
    """Return the layouts of every family, sorted by name."""
    modules = sorted(module.name for module in pkgutil.iter_modules(families.__path__))
    loaded = (importlib.import_module(f"{families.__name__}.{name}") for name in modules)
    found: list[HostLayout] = [layout for module in loaded for layout in module.LAYOUTS]
    return tuple(sorted(found, key=lambda layout: layout.name))


def by_name(name: str) -> HostLayout:
    """Return the layout called *name*."""
    return next(layout for layout in layouts() if layout.name == name)


@cache
def host_of(name: str) -> RecordedHost:
    """Return the host of the layout called *name*: one for all tests."""
    return by_name(name).host()
