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

__version__ = "0.1.0"

TYPE_CHECKING = False  # `typing` costs a start that a memo serves a third of its time
if TYPE_CHECKING:
    from typing import Any

    from gpubind.errors import (
        FormatError,
        GpubindError,
        HostReadError,
        NothingToBindError,
        NotRecordedError,
        OutputError,
        RuntimeLimitError,
        UsageError,
    )
    from gpubind.explanation import Explanation, explain
    from gpubind.facade import check, open_host, open_image, open_runtime, plan, record, render, words
    from gpubind.host import Host, ListFile
    from gpubind.host.live import LiveHost
    from gpubind.host.recorded import RecordedHost
    from gpubind.image import Image
    from gpubind.model import (
        Capability,
        Decision,
        DeviceNode,
        Driver,
        EnvVar,
        Finding,
        Gpu,
        ImageCuda,
        ImageFacts,
        ImageLibrary,
        MigDevice,
        Mount,
        PassedOver,
        Plan,
        PlannedDriver,
        Request,
        Side,
        SourceUsed,
        Vendor,
    )
    from gpubind.planner.placement import Layout
    from gpubind.runtimes.edits import Bind, Words
    from gpubind.runtimes.start import Start

_PLACES = {
    "Bind": "gpubind.runtimes.edits",
    "Capability": "gpubind.model",
    "Decision": "gpubind.model",
    "DeviceNode": "gpubind.model",
    "Driver": "gpubind.model",
    "EnvVar": "gpubind.model",
    "Explanation": "gpubind.explanation",
    "Finding": "gpubind.model",
    "FormatError": "gpubind.errors",
    "Gpu": "gpubind.model",
    "GpubindError": "gpubind.errors",
    "Host": "gpubind.host",
    "HostReadError": "gpubind.errors",
    "Image": "gpubind.image",
    "ImageCuda": "gpubind.model",
    "ImageFacts": "gpubind.model",
    "ImageLibrary": "gpubind.model",
    "Layout": "gpubind.planner.placement",
    "ListFile": "gpubind.host",
    "LiveHost": "gpubind.host.live",
    "MigDevice": "gpubind.model",
    "Mount": "gpubind.model",
    "NotRecordedError": "gpubind.errors",
    "NothingToBindError": "gpubind.errors",
    "OutputError": "gpubind.errors",
    "PassedOver": "gpubind.model",
    "Plan": "gpubind.model",
    "PlannedDriver": "gpubind.model",
    "RecordedHost": "gpubind.host.recorded",
    "Request": "gpubind.model",
    "RuntimeLimitError": "gpubind.errors",
    "Side": "gpubind.model",
    "SourceUsed": "gpubind.model",
    "Start": "gpubind.runtimes.start",
    "UsageError": "gpubind.errors",
    "Vendor": "gpubind.model",
    "Words": "gpubind.runtimes.edits",
    "check": "gpubind.facade",
    "explain": "gpubind.explanation",
    "open_host": "gpubind.facade",
    "open_image": "gpubind.facade",
    "open_runtime": "gpubind.facade",
    "plan": "gpubind.facade",
    "record": "gpubind.facade",
    "render": "gpubind.facade",
    "words": "gpubind.facade",
}

__all__ = [
    "Bind",
    "Capability",
    "Decision",
    "DeviceNode",
    "Driver",
    "EnvVar",
    "Explanation",
    "Finding",
    "FormatError",
    "Gpu",
    "GpubindError",
    "Host",
    "HostReadError",
    "Image",
    "ImageCuda",
    "ImageFacts",
    "ImageLibrary",
    "Layout",
    "ListFile",
    "LiveHost",
    "MigDevice",
    "Mount",
    "NotRecordedError",
    "NothingToBindError",
    "OutputError",
    "PassedOver",
    "Plan",
    "PlannedDriver",
    "RecordedHost",
    "Request",
    "RuntimeLimitError",
    "Side",
    "SourceUsed",
    "Start",
    "UsageError",
    "Vendor",
    "Words",
    "__version__",
    "check",
    "explain",
    "open_host",
    "open_image",
    "open_runtime",
    "plan",
    "record",
    "render",
    "words",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
