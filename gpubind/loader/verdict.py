"""What a look at an image beside the files of a host comes to: which would load, whose copy of a library serves."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, Optional, Union

from gpubind.model import Group, HostFile, ImageFacts, RootedPath


class Unfit(NamedTuple):
    """Why a file of the host cannot be loaded, or run, in an image."""

    rule: Literal["libc", "architecture", "no-libc", "no-loader", "dependency"]
    library: Optional[str] = None
    """The library that is not there, or that does not define a version that is wanted of it."""
    wanted: Optional[str] = None
    """The newest such version, `GLIBC_2.38`; the file's architecture; its loader."""
    has: Optional[str] = None
    """What the image has in its place: a version, an architecture, `musl`; None if nothing of that kind."""
    is_left_out: bool = False
    """Whether the host has *library*, and it is left out itself."""

    @property
    def is_total(self) -> bool:
        """Whether the image cannot load anything of the host's: one finding says so for all."""
        return self.rule == "architecture" or (self.rule == "no-libc" and self.wanted is None)

    @property
    def message(self) -> str:
        """The same as a sentence."""
        if self.rule == "architecture":
            return f"it is {self.wanted}, the image is {self.has}"
        if self.rule == "no-loader":
            return f"its loader {self.wanted} is not in the image"
        if self.rule == "no-libc" and self.wanted is not None:
            return f"it is {self.wanted}, and the image has no C library for that"
        if self.has == "damaged":
            return f"it needs glibc, and that of the image cannot be used: {self.library}"
        if self.rule == "no-libc":
            has = "no C library" if self.has in ("none", "no-root") else self.has
            return f"it needs glibc, the image has {has}" if has else "it needs glibc, which the image has not"
        if self.wanted is not None:
            return f"it needs {self.wanted} of {self.library}, the image has {self.has or 'none of that kind'}"
        return f"it needs {self.library}, which " + ("is left out" if self.is_left_out else "the image does not have")


class Conflict(NamedTuple):
    """A soname of which neither the image's copy nor the host's serves everybody."""

    soname: str
    wanted: str
    """A version that the image's copy does not define."""
    needed_by: str
    """Who needs it."""
    lost: str
    """A version that the host's copy does not define, and that programs of the image may need."""

    @property
    def message(self) -> str:
        """Why the library stays on the host."""
        return (
            f"the image's does not define {self.wanted}, which {self.needed_by} needs; "
            f"the host's does not define {self.lost}, which programs of the image may need"
        )


class Bridge(NamedTuple):
    """The host's glibc beside an older one of the image's."""

    version: str
    """The host's, `2.41`."""
    files: tuple[HostFile, ...]
    """What would take the place of the image's; empty where it cannot."""
    refused: tuple[str, ...] = ()
    """Why it cannot: a case of the finding `libc-refused`, and what that is about."""
    helps: tuple[RootedPath, ...] = ()
    """The files of the host that only load with it."""
    acts: bool = False
    """Whether it takes that place."""


Theirs = Union[Literal["complete", "unneeded"], Conflict]
"""Why a library is the image's: the image's copy defines all that is needed of it; nothing that needs it comes from the
host; or neither copy serves everybody.
"""


class ImageFit(NamedTuple):
    """An image beside the files of a host: what would load, and which shared loaders the image has of its own."""

    facts: ImageFacts
    unfit: dict[RootedPath, Unfit]
    """By the host file's path."""
    own_groups: tuple[tuple[Group, bool], ...]
    """The vendor-neutral groups of which the image has its own copy, each with whether it is for 32-bit programs."""
    own_userspace: Optional[str] = None
    """Where the image has a ROCm of its own: its HSA runtime."""
    theirs: Mapping[RootedPath, Theirs] = MappingProxyType({})
    """Files of the host's user space that a container does without: by path, why."""
    conflicts: tuple[Conflict, ...] = ()
    unfit_compat: Mapping[RootedPath, Unfit] = MappingProxyType({})
    """By path, why the image itself cannot load a compat libcuda that it has."""
    serves: Optional[str] = None
    """The newest CUDA version that the host's libcuda serves, by its own note; None if it has none."""
    libc: Optional[Bridge] = None
    """The host's glibc, where it was asked for, or files that the image cannot load need it, and it is newer."""

    @property
    def lacks_glibc(self) -> bool:
        """Whether a file of the host's wants a newer glibc than the image's."""
        return any((unfit.wanted or "").startswith("GLIBC_") for unfit in self.unfit.values())
