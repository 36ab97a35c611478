"""What is said of why a file of the host is not bound: the one place where such reasons become sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubind.ldso.verdict import Theirs, Unfit


def unfit_text(unfit: Unfit) -> str:
    """Why the image cannot load, or run, a file."""
    if unfit.rule == "architecture":
        return f"it is {unfit.wanted}, the image is {unfit.has}"
    if unfit.rule == "no-loader":
        return f"its loader {unfit.wanted} is not in the image"
    if unfit.rule == "no-libc" and unfit.wanted is not None:
        return f"it is {unfit.wanted}, and the image has no C library for that"
    if unfit.rule == "no-libc":
        has = "no C library" if unfit.has == "none" else unfit.has
        return f"it needs glibc, the image has {has}" if has else "it needs glibc, which the image has not"
    if unfit.wanted is not None:
        return f"it needs {unfit.wanted} of {unfit.library}, the image has {unfit.has or 'none of that kind'}"
    return f"it needs {unfit.library}, which " + ("is left out" if unfit.is_left_out else "the image does not have")


def theirs_text(theirs: Theirs) -> str:
    """Why a library of the host's user space stays on the host."""
    if theirs == "complete":
        return "the image has its own, and it defines all that is needed of it"
    if theirs == "unneeded":
        return "nothing that needs it comes from the host"
    return (
        f"the image's does not define {theirs.wanted}, which {theirs.needed_by} needs; "
        f"the host's does not define {theirs.lost}, which programs of the image may need"
    )
