"""The values of a fit: which files of a host load in an image, and whose copy of each library is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, Optional, Union

from gpubind.frozen import NamedTuple
from gpubind.model import FileGroup, HostFile, ImageFacts, RootedPath


class Unfit(NamedTuple):
    """The reason why a file of the host cannot be loaded or executed in an image."""

    rule: Literal["libc", "architecture", "no-libc", "no-loader", "dependency"]
    library: Optional[str] = None
    """The library that is missing, or that does not define a version."""
    needed: Optional[str] = None
    """The newest missing version, `GLIBC_2.38`; else the file's architecture or loader."""
    image_has: Optional[str] = None
    """The image's counterpart: a version, an architecture, `musl`; None without one."""
    is_left_out: bool = False
    """Whether the host has *library*, and the plan leaves it out."""

    @property
    def is_total(self) -> bool:
        """Whether the image can load no file of the host; one finding then reports it for all files."""
        return self.rule == "architecture" or (self.rule == "no-libc" and self.needed is None)

    @property
    def message(self) -> str:
        """The reason as a sentence."""
        if self.rule == "architecture":
            return f"it is {self.needed}, the image is {self.image_has}"
        if self.rule == "no-loader":
            return f"its loader {self.needed} is not in the image"
        if self.rule == "no-libc" and self.needed is not None:
            return f"it is {self.needed}, and the image has no C library for that"
        if self.image_has == "damaged":
            return f"it needs glibc, and that of the image cannot be used: {self.library}"
        if self.rule == "no-libc":
            has = "no C library" if self.image_has in ("none", "no-root") else self.image_has
            return f"it needs glibc, the image has {has}" if has else "it needs glibc, which the image has not"
        if self.needed is not None:
            return f"it needs {self.needed} of {self.library}, the image has {self.image_has or 'none of that kind'}"
        return f"it needs {self.library}, which " + ("is left out" if self.is_left_out else "the image does not have")


class Conflict(NamedTuple):
    """A soname for which neither the image's copy nor the host's satisfies all consumers."""

    soname: str
    undefined_in_image: str
    """A version that the image's copy does not define."""
    needed_by: str
    """The file that needs that version."""
    undefined_in_host: str
    """A version that the host's copy does not define, and that programs of the image may need."""

    @property
    def message(self) -> str:
        """Why the library stays on the host."""
        return (
            f"the image's does not define {self.undefined_in_image}, which {self.needed_by} needs; "
            f"the host's does not define {self.undefined_in_host}, which programs of the image may need"
        )


class LibcReplacement(NamedTuple):
    """The host's glibc, which is newer than the image's."""

    version: str
    """The host's version, `2.41`."""
    files: tuple[HostFile, ...]
    """The files that would replace the image's; empty if the replacement is refused."""
    refusal: tuple[str, ...] = ()
    """Why the replacement is refused: a case of the finding `libc-refused`, and its subject."""
    enables: tuple[RootedPath, ...] = ()
    """The host files that load only with this glibc."""
    is_used: bool = False
    """Whether this glibc replaces the image's."""


ImageSideReason = Union[Literal["complete", "unneeded"], Conflict]
"""Why the image's copy of a library is used: it defines every needed version; no file of the host needs the library; or
neither copy satisfies all consumers.
"""


class ImageFit(NamedTuple):
    """The fit of the files of a host with an image."""

    facts: ImageFacts
    unfit: Mapping[RootedPath, Unfit]
    """Why a file of the host cannot be loaded, by its path."""
    image_groups: tuple[tuple[FileGroup, bool], ...]
    """The vendor-neutral groups that the image provides, each with whether it is for 32-bit programs."""
    image_userspaces: Mapping[FileGroup, str] = MappingProxyType({})
    """The libraries that show that the image has a user space, by the group of the user space."""
    for_video: tuple[FileGroup, ...] = ()
    """The user spaces that the image neither has nor needs: it only has video drivers, which need only nodes."""
    for_others: tuple[FileGroup, ...] = ()
    """The user spaces that the image neither has nor needs: it has the software of the vendor's accelerators."""
    image_side: Mapping[RootedPath, ImageSideReason] = MappingProxyType({})
    """Why the image's copy replaces a file of the host's user space, by the file's path."""
    conflicts: tuple[Conflict, ...] = ()
    unfit_compat: Mapping[RootedPath, Unfit] = MappingProxyType({})
    """Why the image cannot load its own compat libcuda, by the library's path."""
    serves: Optional[str] = None
    """The newest CUDA version that the host's libcuda supports, from its note; None without one."""
    libc: Optional[LibcReplacement] = None
    """The host's glibc, if it is newer, and requested or needed."""
    gbm: tuple[str, ...] = ()
    """The directories in which the image's copies of libgbm look for backends, if the host provides one."""
    manifests: tuple[tuple[str, ...], ...] = ()
    """The manifests that each variable of a loader names, if the image has none of them that is NVIDIA's."""

    @property
    def lacks_glibc(self) -> bool:
        """Whether a file of the host needs a newer glibc than the image's."""
        return any((unfit.needed or "").startswith("GLIBC_") for unfit in self.unfit.values())


def lacking(versions: Iterable[str], defined: Iterable[str]) -> tuple[str, ...]:
    """Return those of *versions* that are not in *defined*. A library that defines no versions satisfies every need."""
    definitions = frozenset(defined)
    return tuple([version for version in versions if version not in definitions]) if definitions else ()
