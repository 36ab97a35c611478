"""How rules look at a host: what cannot be known is an answer, too, and never the same as absent.

A record that an older gpubind made does not cover everything that rules ask. A rule says nothing about what it cannot
see: `is_there` and `is_absent` are both false then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional, TypeVar, Union

from gpubind.errors import FormatError, NotRecordedError
from gpubind.formats.procfs import parse_devices
from gpubind.host import Host
from gpubind.ldso.hwcaps import Cpu, parse_cpuinfo
from gpubind.model import Capability, Driver, Gpu, Missing, Plan
from gpubind.planner.plan import wanted_capabilities
from gpubind.tree import Tree

_Answer = TypeVar("_Answer")

CPUINFO_LIMIT = 8 << 20
PCI_DEVICES = "/sys/bus/pci/devices"


def ask(question: Callable[[str], Union[_Answer, Missing]], path: str) -> Union[_Answer, Missing]:
    """A tree's answer about *path*; a path that a record does not cover is `unreadable`, like any other unknown."""
    try:
        return question(path)
    except NotRecordedError as error:
        return Missing("unreadable", error.what)


def is_there(tree: Tree, path: str) -> bool:
    """Whether something is surely at *path*, or where its link leads."""
    return not isinstance(ask(tree.stat, path), Missing)


def is_absent(tree: Tree, path: str) -> bool:
    """Whether there is surely nothing at *path*."""
    found = ask(tree.stat, path)
    return isinstance(found, Missing) and found.why == "absent"


def names_in(tree: Tree, path: str) -> tuple[str, ...]:
    """The names in directory *path*; none if it is absent or unknown."""
    names = ask(tree.list, path)
    return () if isinstance(names, Missing) else names


def surely_empty(tree: Tree, path: str) -> bool:
    """Whether directory *path* is absent, or has no name in it."""
    names = ask(tree.list, path)
    return names.why == "absent" if isinstance(names, Missing) else not names


def text_of(tree: Tree, path: str) -> Optional[str]:
    """The text of a small file, without blanks around it; None if it is absent or unknown."""
    text = ask(tree.read_text, path)
    return None if isinstance(text, Missing) else text.strip()


def processor(host: Host) -> Optional[Cpu]:
    """The host's processor, as far as the loader asks; None if it is not known: no record has it."""
    data = ask(lambda path: host.dev.read(path, CPUINFO_LIMIT), "/proc/cpuinfo")
    return None if isinstance(data, Missing) else parse_cpuinfo(data.decode("utf-8", "surrogateescape"))


def majors(host: Host) -> dict[str, int]:
    """/proc/devices as name -> major; empty if it cannot be read or understood (that is another finding)."""
    try:
        return dict(parse_devices(text_of(host.dev, "/proc/devices") or ""))
    except FormatError:
        return {}


def pci_gpus(host: Host) -> tuple[str, ...]:
    """The PCI addresses of NVIDIA's display controllers (vendor 0x10de, class 0x03....), driver or not."""
    found = []
    for address in names_in(host.dev, PCI_DEVICES):
        base = f"{PCI_DEVICES}/{address}"
        is_display = (text_of(host.dev, f"{base}/class") or "").startswith("0x03")
        if is_display and text_of(host.dev, f"{base}/vendor") == "0x10de":
            found.append(address)
    return tuple(found)


def module_is_loaded(host: Host) -> bool:
    """Whether NVIDIA's kernel module is loaded; its /sys/module may be hidden where its /proc is not."""
    return is_there(host.dev, "/sys/module/nvidia") or is_there(host.dev, "/proc/driver/nvidia/version")


def is_linux_driver(plan: Plan) -> bool:
    """Whether a loaded Linux driver serves GPUs here; without one, other findings say more.

    False, too, where the container is to get none of them: then nothing is missing.
    """
    gpus = [gpu for gpu in plan.gpus if gpu.vendor == "nvidia" and gpu.index is not None]
    if gpus and not any(gpu.chosen for gpu in gpus):
        return False
    driver = nvidia_driver(plan)
    return driver is not None and driver.kind == "linux" and bool(driver.kernel_version)


def nvidia_driver(plan: Plan) -> Optional[Driver]:
    """NVIDIA's driver, if the plan is about it."""
    return next((planned.driver for planned in plan.drivers if planned.driver.vendor == "nvidia"), None)


def gpus_in_use(plan: Plan) -> tuple[Gpu, ...]:
    """NVIDIA's GPUs that the plan counts on."""
    return tuple(gpu for gpu in plan.gpus if gpu.vendor == "nvidia" and gpu.chosen)


def is_wanted(plan: Plan, capability: Capability) -> bool:
    """Whether *capability* is asked for, or implied by one that is."""
    return capability in wanted_capabilities(plan.request)


def is_wanted_by_name(plan: Plan, capability: Capability) -> bool:
    """As `is_wanted`, and the caller named the capabilities: what is named must not be missing silently."""
    return plan.request.caps_explicit and is_wanted(plan, capability)


def library_mounts(plan: Plan) -> dict[str, str]:
    """The names under which the container finds libraries, and the host's file behind each."""
    return {
        mount.target.rpartition("/")[2]: mount.source or ""
        for mount in plan.mounts
        if mount.kind == "library" and mount.vendor == "nvidia" and mount.capability != "compat32"
    }


def counted(number: int, noun: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
