"""The programs whose flags `--like` knows, by release: which lists they read, and how."""

from __future__ import annotations

from typing import NamedTuple

from gpubind.model import Vendor
from gpubind.planner.like.names import APPTAINER, ROCM_APPTAINER, ROCM_SINGULARITY_CE, SINGULARITY_CE


class Flavour(NamedTuple):
    """One program's behaviour."""

    name: str
    program: str
    directory: str
    """Where its list files are on a host."""
    names: dict[Vendor, tuple[str, ...]]
    """What its lists name in that release."""
    plain_files: bool
    """Whether an absolute entry without `.so` is a file at its own path; else it is a program."""
    inherits: bool
    """Whether libraries of a surrounding container are taken first."""
    together: bool
    """Whether both vendors' flags count; else NVIDIA's alone does."""


_APPTAINER_14 = Flavour(
    "apptainer-1.4",
    "Apptainer 1.4",
    "/etc/apptainer",
    {"nvidia": APPTAINER, "amd": ROCM_APPTAINER},
    plain_files=True,
    inherits=True,
    together=True,
)
FLAVOURS = {
    "apptainer": _APPTAINER_14,
    "apptainer-1.4": _APPTAINER_14,
    "apptainer-1.5": _APPTAINER_14._replace(name="apptainer-1.5", program="Apptainer 1.5"),
    "singularity": Flavour(
        "singularity",
        "SingularityCE 4.5",
        "/etc/singularity",
        {"nvidia": SINGULARITY_CE, "amd": ROCM_SINGULARITY_CE},
        plain_files=False,
        inherits=False,
        together=False,
    ),
}
