"""The values of a fit: which files of a host load in an image, and whose copy of each library is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, Optional, Union

from gpubind.frozen import NamedTuple
from gpubind.model import FileGroup, HostFile, ImageFacts, RootedPath


class Unfit(NamedTuple):
    """Why a file of the host cannot be loaded, or run, in an image."""

    rule: Literal["libc", "architecture", "no-libc", "no-loader", "dependency"]
    library: Optional[str] = None
    """The library that is missing, or that does not define a version."""
    needed: Optional[str] = None
    """The newest such version, `GLIBC_2.38`; the file's architecture; its loader."""
    image_has: Optional[str] = None
    """What the image has instead: a version, an architecture, `musl`; None if nothing of that kind."""
    is_left_out: bool = False
    """Whether the host has *library*, and it is left out, too."""

    @property
    def is_total(self) -> bool:
        """Whether the image cannot load any file of the host: one finding reports it for all."""
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
    """A soname of which neither the image's copy nor the host's satisfies all consumers."""

    soname: str
    undefined_in_image: str
    """A version that the image's copy does not define."""
    needed_by: str
    """The file that needs it."""
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
    """The host's, `2.41`."""
    files: tuple[HostFile, ...]
    """The files that would replace the image's; empty if they cannot."""
    refusal: tuple[str, ...] = ()
    """Why they cannot: a case of the finding `libc-refused`, and its subject."""
    enables: tuple[RootedPath, ...] = ()
    """The files of the host that only load with it."""
    is_used: bool = False
    """Whether it replaces the image's."""


ImageSideReason = Union[Literal["complete", "unneeded"], Conflict]
"""Why a library is the image's: the image's copy defines all that is needed of it; no file of the host needs it; or
neither copy satisfies all consumers.
"""


class ImageFit(NamedTuple):
    """The fit of the files of a host with an image."""

    facts: ImageFacts
    unfit: Mapping[RootedPath, Unfit]
    """By the host file's path."""
    image_groups: tuple[tuple[FileGroup, bool], ...]
    """The vendor-neutral groups of which the image has its own copy, each with whether it is for 32-bit programs."""
    image_userspaces: Mapping[FileGroup, str] = MappingProxyType({})
    """By group, the library that shows that the image has that user space."""
    for_video: tuple[FileGroup, ...] = ()
    """The user spaces that the image neither has nor needs: what it has for the GPUs is video, and needs nodes only."""
    for_others: tuple[FileGroup, ...] = ()
    """The user spaces that the image neither has nor needs: it has the software of the vendor's accelerators."""
    image_side: Mapping[RootedPath, ImageSideReason] = MappingProxyType({})
    """By path, why a file of the host's user space is left out in favour of the image's."""
    conflicts: tuple[Conflict, ...] = ()
    unfit_compat: Mapping[RootedPath, Unfit] = MappingProxyType({})
    """By path, why the image cannot load its own compat libcuda."""
    serves: Optional[str] = None
    """The newest CUDA version that the host's libcuda supports, by its note; None if it has none."""
    libc: Optional[LibcReplacement] = None
    """The host's glibc, if it is newer, and is asked for or needed."""

    gbm: tuple[str, ...] = ()
    """Where the image's copies of libgbm look for backends, if the host provides one."""

    @property
    def lacks_glibc(self) -> bool:
        """Whether a file of the host needs a newer glibc than the image's."""
        return any((unfit.needed or "").startswith("GLIBC_") for unfit in self.unfit.values())


def lacking(versions: Iterable[str], defined: Iterable[str]) -> tuple[str, ...]:
    """Return those of *versions* that are not *defined*; a library that defines none satisfies everybody."""
    definitions = frozenset(defined)
    return tuple([version for version in versions if version not in definitions]) if definitions else ()
