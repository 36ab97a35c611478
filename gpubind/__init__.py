"""gpubind: what a container must get from a GPU host, and whether it will work.

    >>> import gpubind
    >>> host = gpubind.open_host("debian13-nvidia550")
    >>> plan = gpubind.plan(host, gpubind.Request())
    >>> plan.drivers[0].driver.version
    '550.163.01'
    >>> start = gpubind.open_runtime(host, "apptainer", ["--contain"])
    >>> gpubind.plan(host, gpubind.Request(), start=start).libdir
    '/.singularity.d/libs'

Names load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gpubind.errors import GpubindError
    from gpubind.explanation import explain
    from gpubind.facade import check, open_host, open_image, open_runtime, plan, plan_json, record, words
    from gpubind.host.live import LiveHost
    from gpubind.host.recorded import RecordedHost
    from gpubind.model import Plan, Request

_PLACES = {
    "GpubindError": "gpubind.errors",
    "LiveHost": "gpubind.host.live",
    "Plan": "gpubind.model",
    "RecordedHost": "gpubind.host.recorded",
    "Request": "gpubind.model",
    "check": "gpubind.facade",
    "explain": "gpubind.explanation",
    "open_host": "gpubind.facade",
    "open_image": "gpubind.facade",
    "open_runtime": "gpubind.facade",
    "plan": "gpubind.facade",
    "plan_json": "gpubind.facade",
    "record": "gpubind.facade",
    "words": "gpubind.facade",
}

__all__ = [
    "GpubindError",
    "LiveHost",
    "Plan",
    "RecordedHost",
    "Request",
    "__version__",
    "check",
    "explain",
    "open_host",
    "open_image",
    "open_runtime",
    "plan",
    "plan_json",
    "record",
    "words",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
