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
    from gpubind.facade import check, check_document, open_host, open_layout, open_runtime, plan, render, words
    from gpubind.host import Host, ListFile
    from gpubind.host.live import LiveHost
    from gpubind.host.recorded import RecordedHost
    from gpubind.image import Image, open_image
    from gpubind.model import (
        Capability,
        ContainerPath,
        CudaNote,
        Decision,
        DeviceNode,
        Driver,
        EnvVar,
        Finding,
        Gpu,
        HostPath,
        ImageCuda,
        ImageFacts,
        ImageLibrary,
        MigDevice,
        Mount,
        PassedOver,
        Plan,
        PlannedDriver,
        Request,
        RootedPath,
        Side,
        SourceUsed,
        Vendor,
    )
    from gpubind.planner.placement import Layout
    from gpubind.recording import record
    from gpubind.runtimes.edits import Bind, Words
    from gpubind.runtimes.start import Start

_PLACES = {
    "Bind": "gpubind.runtimes.edits",
    "Capability": "gpubind.model",
    "ContainerPath": "gpubind.model",
    "CudaNote": "gpubind.model",
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
    "HostPath": "gpubind.model",
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
    "RootedPath": "gpubind.model",
    "RuntimeLimitError": "gpubind.errors",
    "Side": "gpubind.model",
    "SourceUsed": "gpubind.model",
    "Start": "gpubind.runtimes.start",
    "UsageError": "gpubind.errors",
    "Vendor": "gpubind.model",
    "Words": "gpubind.runtimes.edits",
    "check": "gpubind.facade",
    "check_document": "gpubind.facade",
    "explain": "gpubind.explanation",
    "open_host": "gpubind.facade",
    "open_image": "gpubind.image",
    "open_layout": "gpubind.facade",
    "open_runtime": "gpubind.facade",
    "plan": "gpubind.facade",
    "record": "gpubind.recording",
    "render": "gpubind.facade",
    "words": "gpubind.facade",
}

__all__ = [
    "Bind",
    "Capability",
    "ContainerPath",
    "CudaNote",
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
    "HostPath",
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
    "RootedPath",
    "RuntimeLimitError",
    "Side",
    "SourceUsed",
    "Start",
    "UsageError",
    "Vendor",
    "Words",
    "__version__",
    "check",
    "check_document",
    "explain",
    "open_host",
    "open_image",
    "open_layout",
    "open_runtime",
    "plan",
    "record",
    "render",
    "words",
]


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
