"""`python -m gpubind`, and the console script: an interrupt ends both at once, silently, with 130."""

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Optional

INTERRUPTED = 130


def _end(number: int, frame: "Optional[FrameType]") -> NoReturn:
    os._exit(INTERRUPTED)


def _tell(unraisable: "Any") -> None:
    """What an object's end raises is lost; an interrupt is not to be."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(unraisable)


IS_HEARD = signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""Not where the caller ignores it, as a shell does for what runs behind its back."""
if IS_HEARD:
    # While modules are loaded and when the interpreter ends, Python makes errors of all kinds of an interrupt.
    signal.signal(signal.SIGINT, _end)
    sys.unraisablehook = _tell

from gpubind.cli.main import main as run  # noqa: E402 - behind the above


def main() -> int:
    """The command line; the exit code. In between, an interrupt lets everybody clean up."""
    try:
        if IS_HEARD:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if IS_HEARD:
            signal.signal(signal.SIGINT, _end)


if __name__ == "__main__":
    raise SystemExit(main())
