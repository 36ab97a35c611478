"""Sets of nodes in ClusterShell's syntax: `gpu[001-256]`, `@rack3`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache

from gpubind.errors import RuntimeLimitError, UsageError, missing_package
from gpubind.machine import system
from gpubind.machine.trust import acts_as_root, is_trusted_path, trusted_environ
from gpubind.model import shorten_list

_CONFIG_VARIABLES = frozenset(("CLUSTERSHELL_CFGDIR", "XDG_CONFIG_HOME", "HOME"))
"""The variables that locate ClusterShell's configuration."""
_NODES_LIMIT = 100_000
_SET_LIMIT = 200
"""The limit of a set in a sentence, in characters."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,252}")
"""A name that has no special meaning in a shell, as an option, or in a path."""
_RANGE = re.compile(r"(\d+)-(\d+)")
_HINT = "such as `node[001-064,070]`, or `@group` of ClusterShell's configuration"


def parse_nodes(text: str) -> tuple[str, ...]:
    """Return the names of the nodes in the set *text*, in its order.

    Errors: `UsageError` (code `bad-nodes`), `HostReadError` (code `missing-package`), `RuntimeLimitError` (code
    `no-engine`) for a damaged configuration of ClusterShell.
    """
    _remove_untrusted_variables()
    try:
        import ClusterShell  # noqa: F401
    except ImportError as error:
        raise missing_package("ClusterShell", "sets of nodes") from error
    from configparser import Error as ConfigurationError

    try:
        return _parsed(text)
    except ConfigurationError as error:
        why = " ".join(str(error).split())
        raise RuntimeLimitError("no-engine", "ClusterShell cannot read its configuration", why=why) from error


def _parsed(text: str) -> tuple[str, ...]:
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolverError

    spans = [_NODES_LIMIT + 1 if len(last) > 9 else int(last) - int(first[:9]) for first, last in _RANGE.findall(text)]
    if sum(max(0, span) for span in spans) > _NODES_LIMIT:
        raise _bad_nodes_error(text, f"more than {_NODES_LIMIT} nodes")
    try:
        node_set = NodeSet(text)
        number = len(node_set)  # a product of ranges is counted, and not made
    except (NodeSetException, GroupResolverError, ValueError, RecursionError) as error:
        raise _bad_nodes_error(text, str(error)) from error
    except OverflowError as error:
        raise _bad_nodes_error(text, f"more than {_NODES_LIMIT} nodes") from error
    if not 0 < number <= _NODES_LIMIT:
        raise _bad_nodes_error(text, f"more than {_NODES_LIMIT} nodes" if number else "there is no node in it")
    names = tuple(map(str, node_set))
    wrong = next((name for name in names if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        raise _bad_nodes_error(text, f"`{wrong[:200]}` is not the name of a node")
    return names


def fold_nodes(nodes: Iterable[str]) -> str:
    """Return *nodes* as one set: `gpu[001-031,033-256]`."""
    from ClusterShell.NodeSet import NodeSet

    return str(NodeSet.fromlist(nodes))


@lru_cache(maxsize=16)  # documents repeat groups, and 10,000 names with three numbers take 7 s
def fold_hosts(names: tuple[str, ...]) -> str:
    """Return the host *names*, which may be arbitrary texts, as one set. If there is no short set, fold as
    `shorten_list`.

    There is none if ClusterShell is missing, or if a name, such as the path of a file, cannot be that of a node.
    """
    if len(names) < 2 or not all(map(_NAME.fullmatch, names)):
        return shorten_list(names)
    from configparser import Error as ConfigurationError

    _remove_untrusted_variables()
    try:
        from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
    except (ImportError, ConfigurationError):  # it is not installed, or reads a damaged file
        return shorten_list(names)
    folded = str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))
    return folded if "[" in folded and len(folded) <= _SET_LIMIT else shorten_list(names)


def _remove_untrusted_variables() -> None:
    """For root, remove from the environment each path that other users could change.

    ClusterShell runs programs in PATH, and the commands for groups in its configuration. Relative directories of PATH
    are removed as well.
    """
    if not acts_as_root():
        return
    for name in _CONFIG_VARIABLES.difference(trusted_environ(_CONFIG_VARIABLES)):
        system.set_variable(name, None)
    path = system.environ().get("PATH", os.defpath).split(":")
    system.set_variable("PATH", ":".join(place for place in path if place.startswith("/") and is_trusted_path(place)))


def _bad_nodes_error(text: str, why: str) -> UsageError:
    return UsageError("bad-nodes", "this is not a set of nodes", where=text[:200], why=why[:400], hint=_HINT)
