"""Query nodes through ClusterShell, with the worker of its configuration: ssh by default.

The output of a node is read in chunks, not in lines: an endless line would fill the memory.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Optional

from gpubind.errors import RuntimeLimitError
from gpubind.fleet.answers import AnswerCollector, FleetRequest
from gpubind.machine import system

WORKERS = ("ssh", "rsh", "exec")
"""The workers that start one program for each node. All others start one program for many nodes."""


def ask_clustershell(
    request: FleetRequest, argv: Sequence[str], program: Optional[str], listener: AnswerCollector
) -> None:
    """Run *argv* on the nodes of *request*, with the file *program* as input, and pass their output to *listener*.

    Errors: `RuntimeLimitError` (code `no-engine`).
    """
    from logging import NullHandler, getLogger

    from ClusterShell import Event, NodeSet, Task

    # It logs a node that does not read its input under the name of a Python object; the node's row has the reason.
    getLogger("ClusterShell").addHandler(NullHandler())
    task = Task.task_self()
    worker_name = task.default("distant_workername")
    if worker_name not in WORKERS:
        hint = f"set `distant_workername` in ClusterShell's defaults.conf: {', '.join(WORKERS)}"
        raise RuntimeLimitError("no-engine", f"ClusterShell's worker `{worker_name}` is not supported", hint=hint)
    kind: Any = task.default("distant_worker")
    client: Any = kind.SHELL_CLASS

    def read(self: Any, stream: str) -> None:
        if not listener.receive(str(self.key), stream == self.worker.SNAME_STDERR, self._read(stream)):
            self.abort()

    def close(self: Any, abort: bool, timeout: bool) -> None:
        client._close(self, abort, timeout)
        if timeout:
            listener.finish_node(str(self.key), None, f"no answer within {request.timeout_s:g} s", "timed-out")

    def hung_up(self: Any, worker: Any, node: Any, status: int) -> None:
        listener.finish_node(str(node), status)

    node_client = type("NodeClient", (client,), {"_handle_read": read, "_close": close})
    node_worker = type("NodeWorker", (kind,), {"SHELL_CLASS": node_client})
    handler = type("NodeHandler", (Event.EventHandler,), {"ev_hup": hung_up})()
    if request.fanout is not None:
        task.set_info("fanout", request.fanout)
    nodes, command = NodeSet.NodeSet.fromlist(request.nodes), shlex.join(argv)
    worker = node_worker(nodes, handler=handler, timeout=request.timeout_s, command=command, stderr=True)
    if program is not None:
        with system.open_file(program).stream() as content:
            worker.write(content.read())
    worker.set_write_eof()
    task.schedule(worker)
    try:
        task.resume()
    finally:
        task.abort()
