"""Command lines to wrap."""

from __future__ import annotations

from tests.live.containers import image


def line(*options: str, user: bool, name: str = "bookworm-sb", flags: tuple[str, ...] = ("--nv",)) -> tuple[str, ...]:
    """A command line of Apptainer's up to the image. Root of the rig lacks capabilities that it would give to root."""
    own = () if user else ("--no-privs",)
    return ("apptainer", "exec", *flags, *own, *options, image(name))


def bwrap_line(*options: str, name: str = "bookworm", bind: str = "--ro-bind") -> tuple[str, ...]:
    return ("bwrap", bind, image(name), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", *options)
