"""Open the arguments of the library's functions: a host, a runtime, the layout of a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from gpubind.api.verb import verb
from gpubind.errors import UsageError, suggest_known
from gpubind.host import Host
from gpubind.host import open as hosts
from gpubind.planner.placement import Layout, cdi_layout

if TYPE_CHECKING:
    from gpubind.image.facts import Image
    from gpubind.runtimes.runtime import Start

open_host = verb(hosts.open_host)


@verb
def open_layout(host: Host, form: str, image: Optional[Image] = None) -> Layout:
    """Return the layout of a plan for a document of mounts: *form* is `cdi`, `compose` or `kubernetes`.

    `render` prints a plan with this layout in that form. Errors: `UsageError` (code `unknown-format`).
    """
    from gpubind.documents import PERSISTENT_DOCUMENTS

    form_names = [name for name, lasting in PERSISTENT_DOCUMENTS.items() if lasting.content == "mounts"]
    if form not in form_names:
        what = f"`{form}` is not a document with a layout of its own"
        raise UsageError("unknown-format", what, hint=suggest_known(form_names, form))
    return cdi_layout(host.uname.machine, image.facts.loader_directories if image is not None else None)


@verb
def open_runtime(host: Host, backend: str, arguments: Sequence[str] = ()) -> Start:
    """Return a start by the runtime *backend* on *host*, with the user's *arguments* for it.

    It has the runtime's version and configuration, and an environment: that of the task for which *host* was opened, or
    else that of this process; none for a recorded host without a task. Errors: `UsageError` for an unknown runtime, or
    for arguments that end in the middle of an option; `HostReadError`.
    """
    from gpubind.launch.prepare import make_start
    from gpubind.runtimes import get_runtime

    return make_start(host, get_runtime(backend), tuple(arguments))
