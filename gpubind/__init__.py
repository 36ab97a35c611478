"""gpubind: what a container must get from a GPU host, and whether it will work.

The packages are the pipeline:

    host       1. which machine               planner    4. what a container gets
    image      2. which image                 rules      5. what will not work
    inventory  3. what the machine has        runtimes, documents  6. the plan as arguments, as text
                                              launch     7. doing it
    formats, files and loader are readers for all of them; api has a module for each verb, cli is its command line.

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

TYPE_CHECKING = False  # importing `typing` takes a third of a start that a memo serves
if TYPE_CHECKING:
    from gpubind.api.check import check as check
    from gpubind.api.check import check_document as check_document
    from gpubind.api.check import report as report
    from gpubind.api.diff import diff as diff
    from gpubind.api.explain import explain as explain
    from gpubind.api.image import needs as needs
    from gpubind.api.image import open_image as open_image
    from gpubind.api.open import open_host as open_host
    from gpubind.api.open import open_layout as open_layout
    from gpubind.api.open import open_runtime as open_runtime
    from gpubind.api.plan import plan as plan
    from gpubind.api.plan import words as words
    from gpubind.api.record import record as record
    from gpubind.api.render import render as render
    from gpubind.api.start import start as start
    from gpubind.api.start import wrap as wrap
    from gpubind.documents.diff.comparison import Comparison as Comparison
    from gpubind.documents.diff.comparison import Difference as Difference
    from gpubind.documents.diff.comparison import EqualHosts as EqualHosts
    from gpubind.documents.diff.comparison import HostsWith as HostsWith
    from gpubind.documents.diff.snapshot import ImageOutcome as ImageOutcome
    from gpubind.errors import CheckError as CheckError
    from gpubind.errors import CommandError as CommandError
    from gpubind.errors import FormatError as FormatError
    from gpubind.errors import GpubindError as GpubindError
    from gpubind.errors import HostReadError as HostReadError
    from gpubind.errors import NothingToBindError as NothingToBindError
    from gpubind.errors import NotRecordedError as NotRecordedError
    from gpubind.errors import OutputError as OutputError
    from gpubind.errors import RuntimeLimitError as RuntimeLimitError
    from gpubind.errors import StartError as StartError
    from gpubind.errors import UsageError as UsageError
    from gpubind.explanation.decisions import Explanation as Explanation
    from gpubind.host import Host as Host
    from gpubind.host import ListFile as ListFile
    from gpubind.host.live import LiveHost as LiveHost
    from gpubind.host.recorded import RecordedHost as RecordedHost
    from gpubind.image.facts import Image as Image
    from gpubind.image.needs import DriverLibrary as DriverLibrary
    from gpubind.image.needs import Fabric as Fabric
    from gpubind.image.needs import ImageNeeds as ImageNeeds
    from gpubind.image.needs import IntelRuntime as IntelRuntime
    from gpubind.image.needs import Requirement as Requirement
    from gpubind.loader.linkage import LinkedFile as LinkedFile
    from gpubind.loader.linkage import LinkUse as LinkUse
    from gpubind.model import Capability as Capability
    from gpubind.model import ContainerPath as ContainerPath
    from gpubind.model import CudaNote as CudaNote
    from gpubind.model import Decision as Decision
    from gpubind.model import DeviceNode as DeviceNode
    from gpubind.model import Driver as Driver
    from gpubind.model import EnvVar as EnvVar
    from gpubind.model import Finding as Finding
    from gpubind.model import Gpu as Gpu
    from gpubind.model import HostPath as HostPath
    from gpubind.model import ImageCuda as ImageCuda
    from gpubind.model import ImageFacts as ImageFacts
    from gpubind.model import ImageLibrary as ImageLibrary
    from gpubind.model import MigDevice as MigDevice
    from gpubind.model import Mount as Mount
    from gpubind.model import PassedOver as PassedOver
    from gpubind.model import Plan as Plan
    from gpubind.model import PlannedDriver as PlannedDriver
    from gpubind.model import Request as Request
    from gpubind.model import RootedPath as RootedPath
    from gpubind.model import Side as Side
    from gpubind.model import SourceUsed as SourceUsed
    from gpubind.model import Vendor as Vendor
    from gpubind.model.gpucode import CodeFile as CodeFile
    from gpubind.model.gpucode import CodeModule as CodeModule
    from gpubind.model.gpucode import GpuCode as GpuCode
    from gpubind.model.gpucode import Ptx as Ptx
    from gpubind.model.requirements import Expectation as Expectation
    from gpubind.model.trial import Prediction as Prediction
    from gpubind.model.trial import Trial as Trial
    from gpubind.model.trial import TrialOutcome as TrialOutcome
    from gpubind.planner.placement import Layout as Layout
    from gpubind.rules.outcome import Changed as Changed
    from gpubind.rules.outcome import Checked as Checked
    from gpubind.rules.outcome import Report as Report
    from gpubind.runtimes.edits import Bind as Bind
    from gpubind.runtimes.edits import RuntimeArguments as RuntimeArguments
    from gpubind.runtimes.runtime import Command as Command
    from gpubind.runtimes.runtime import StagedFile as StagedFile
    from gpubind.runtimes.runtime import Start as Start

_NAMES = {
    "gpubind.api.check": "check check_document report",
    "gpubind.api.diff": "diff",
    "gpubind.api.explain": "explain",
    "gpubind.api.image": "needs open_image",
    "gpubind.api.open": "open_host open_layout open_runtime",
    "gpubind.api.plan": "plan words",
    "gpubind.api.record": "record",
    "gpubind.api.render": "render",
    "gpubind.api.start": "start wrap",
    "gpubind.documents.diff.comparison": "Comparison Difference EqualHosts HostsWith",
    "gpubind.documents.diff.snapshot": "ImageOutcome",
    "gpubind.explanation.decisions": "Explanation",
    "gpubind.errors": """
        CheckError CommandError FormatError GpubindError HostReadError NotRecordedError NothingToBindError OutputError
        RuntimeLimitError StartError UsageError
    """,
    "gpubind.host": "Host ListFile",
    "gpubind.host.live": "LiveHost",
    "gpubind.host.recorded": "RecordedHost",
    "gpubind.image.facts": "Image",
    "gpubind.image.needs": "DriverLibrary Fabric ImageNeeds IntelRuntime Requirement",
    "gpubind.loader.linkage": "LinkUse LinkedFile",
    "gpubind.model": """
        Capability ContainerPath CudaNote Decision DeviceNode Driver EnvVar Finding Gpu HostPath ImageCuda
        ImageFacts ImageLibrary MigDevice Mount PassedOver Plan PlannedDriver Request RootedPath Side
        SourceUsed Vendor
    """,
    "gpubind.model.requirements": "Expectation",
    "gpubind.model.gpucode": "CodeFile CodeModule GpuCode Ptx",
    "gpubind.model.trial": "Prediction Trial TrialOutcome",
    "gpubind.planner.placement": "Layout",
    "gpubind.rules.outcome": "Changed Checked Report",
    "gpubind.runtimes.edits": "Bind RuntimeArguments",
    "gpubind.runtimes.runtime": "Command StagedFile Start",
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_PLACES, "__version__"])  # noqa: PLE0605 - mypy takes the names from the imports above


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> object:
        if name == "Tried":
            from warnings import warn

            warn("gpubind.Tried is gpubind.TrialOutcome now", DeprecationWarning, stacklevel=2)
            return __getattr__("TrialOutcome")
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(_PLACES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
