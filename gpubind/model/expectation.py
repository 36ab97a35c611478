"""What a node is to have: a few facts of a good one, without anything that names a machine or a GPU."""

from __future__ import annotations

from gpubind.frozen import NamedTuple


class Expectation(NamedTuple):
    """The facts that a host is compared with. What is empty is not compared."""

    origin: str = ""
    """The file that says so."""
    drivers: tuple[str, ...] = ()
    """Versions; `550` stands for every version of that branch."""
    gpus: tuple[tuple[str, int], ...] = ()
    """Models, each with the number of its GPUs; the model is empty for GPUs of any."""
    capabilities: tuple[str, ...] = ()
    """Those of which there are libraries."""
    libraries: tuple[str, ...] = ()
    """Libraries of the driver, without versions: `libcuda.so`."""
    partitions: tuple[str, ...] = ()
    """The modes in which AMD's GPUs may be divided, `CPX/NPS4`; `CPX` stands for every mode of their memory."""
