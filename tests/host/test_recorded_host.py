"""A host from a record."""

from __future__ import annotations

from gpubind.host.recorded import RecordedHost
from gpubind.model import Missing
from tests.support.trees import record


def test_a_recorded_host_falls_back_to_the_shipped_list_and_runs_nothing() -> None:
    host = RecordedHost(record({}), "test")
    assert host.liblist("nvliblist.conf").shipped
    answer = host.run(("env",), 1)
    assert isinstance(answer, Missing)
    assert answer.why == "absent"
    assert host.dev is host.driver


def test_a_lenient_recorded_host_has_lenient_trees_and_is_the_same_otherwise() -> None:
    host = RecordedHost(record({"/a": b"x"}, {"/b": b"y"}, environ={"PATH": "/p"}), "test")
    assert (host.lenient.driver, host.lenient.dev) == (host.driver.lenient, host.dev.lenient)
    assert (host.lenient.label, host.lenient.environ, host.lenient.uname) == (host.label, host.environ, host.uname)
