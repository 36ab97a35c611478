"""`python -m gpubind`, `python PLACE/gpubind/__main__.py`, and the console script.

The memo answers first: nothing heavy is loaded before it is asked.

An interrupt ends both at once, silently, with 130.
"""

from __future__ import annotations

import os
import sys
from _signal import SIGINT, default_int_handler, getsignal, signal  # type: ignore[import-not-found]  # `signal` is slow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn, Optional, Union

if not __package__:  # started by its path, and the directory of that holds no modules
    _PLACE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:1] = [] if _PLACE in sys.path[1:] else [_PLACE]

INTERRUPTED = 130
_GC_THRESHOLD = 50_000
"""New objects after which Python looks for cycles, a tenth of the time of most commands, which make fewer. A command
about many hosts drops each before the next, and each has cycles."""


def _exit_on_sigint(number: int, frame: Optional[FrameType]) -> NoReturn:
    os._exit(INTERRUPTED)


def _tell(unraisable: Any) -> None:
    """Exit on an interrupt in a finalizer, which Python would print and ignore."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(unraisable)


_IS_HEARD = getsignal(SIGINT) is default_int_handler
"""Not where the caller ignores it, as a shell does for background jobs."""
if _IS_HEARD:
    # While modules are loaded and when the interpreter ends, Python makes errors of all kinds of an interrupt.
    signal(SIGINT, _exit_on_sigint)
    sys.unraisablehook = _tell

from gpubind.memo.answer import Unfinished, memo_keys, serve  # noqa: E402 - it takes as long as all that is above


def main(argv: Optional[list[str]] = None) -> int:
    """Run `gpubind` with *argv*: by its memo, or as if there were none, and then the answer is kept for next time.

    What `wrap` or `oci-runtime` passes through does not even wait for the memo.
    """
    args = sys.argv[1:] if argv is None else argv
    if args[:1] in (["--version"], ["-V"]) and _has_printed_version():
        return 0
    if args[:1] == ["wrap"]:
        from gpubind.launch.wrap.passing import pass_through

        pass_through(args)
    if args[:1] == ["oci-runtime"]:
        from gpubind.launch.oci.passing import hand_over

        hand_over(args[1:])
    keys = memo_keys(args)
    outcome = serve(args, keys) if keys else ""
    return outcome if isinstance(outcome, int) else _run_uncached(args, keys, outcome)


def _has_printed_version() -> bool:
    """Print the version. Where that fails, the reader of command lines does it again, and reports it."""
    from gpubind import __version__

    try:
        sys.stdout.write(f"gpubind {__version__}\n")
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError):
        return False
    return True


def _run_uncached(args: list[str], keys: tuple[str, ...], outcome: Union[str, Unfinished]) -> int:
    """Return the command line without a memo; an interrupt lets everybody clean up."""
    import gc

    gc.set_threshold(_GC_THRESHOLD)
    from gpubind.cli.main import finish
    from gpubind.cli.main import main as run

    try:
        if _IS_HEARD:
            signal(SIGINT, default_int_handler)
        if isinstance(outcome, Unfinished):
            return finish(outcome, args)
        if not keys:
            return run(args)
        from gpubind.memo.storing import run_and_keep

        return run_and_keep(run, args, keys, outcome)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if _IS_HEARD:
            signal(SIGINT, _exit_on_sigint)


def run() -> NoReturn:
    """End the process with the status of `main`.

    To dismantle the interpreter takes up to a tenth of a command. Nothing of gpubind waits for it (`atexit`, threads).
    """
    status = main()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):  # the interpreter reports it, and knows the status
        raise SystemExit(status) from None
    os._exit(status)


if __name__ == "__main__":
    run()
