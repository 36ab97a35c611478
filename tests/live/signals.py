"""Signals that reach a started program."""

from __future__ import annotations

NUMBERS = {"HUP": 1, "INT": 2, "TERM": 15}


SIGNALLED = """
ready=/tmp/ready.$$
env --default-signal=INT {start} sh -c 'echo $$ > '$ready'; exec sleep 60' > /dev/null &
pid=$!
until [ -s $ready ]; do sleep 0.05; kill -0 $pid; done
child=$(cat $ready)
rm $ready
tr '\\0' '\\n' < /proc/$pid/cmdline | head -n 1
kill -{signal} $pid
wait $pid && echo ended 0 || echo ended $?
# Each dies in its own time, and an orphan that has ended may wait for init to notice.
for try in $(seq 100); do grep -sq '^State:.[^ZX]' /proc/$child/status || break; sleep 0.3; done
if grep -sq '^State:.[^ZX]' /proc/$child/status; then kill -KILL $child; echo the child goes on; fi
"""
"""Starts a container, sends its process a signal, and says how it ended and whether the child did, too."""
