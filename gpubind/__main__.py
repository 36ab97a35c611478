"""`python -m gpubind`, `python PLACE/gpubind/__main__.py`, and the console script.

The memo runs first, before anything heavy is loaded. An interrupt ends the process at once, silently, with status 130.
"""

from __future__ import annotations

import os
import sys
from _signal import SIGINT, default_int_handler, getsignal, signal  # type: ignore[import-not-found]  # `signal` is slow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn, Optional, Union

if not __package__:  # started by its path: then sys.path begins with the package's own directory
    _PLACE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:1] = [] if _PLACE in sys.path[1:] else [_PLACE]

INTERRUPTED = 130
_GC_THRESHOLD = 50_000
"""Garbage-collection threshold. Most commands allocate fewer objects; collecting took 10 % of their time. A command
about many hosts drops each host before the next, and each has cycles."""


def _exit_on_sigint(number: int, frame: Optional[FrameType]) -> NoReturn:
    os._exit(INTERRUPTED)


def _report_unraisable(unraisable: Any) -> None:
    """Exit on an interrupt in a finalizer, which Python would print and ignore."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(unraisable)


_HANDLES_SIGINT = getsignal(SIGINT) is default_int_handler
"""Whether Python handles SIGINT. It does not if the caller ignores the signal, as a shell does for background jobs."""
if _HANDLES_SIGINT:
    # During imports and at the end of the interpreter, Python turns an interrupt into errors of all kinds.
    signal(SIGINT, _exit_on_sigint)
    sys.unraisablehook = _report_unraisable

from gpubind.memo.answer import Unfinished, memo_keys, serve  # noqa: E402 - its import takes as long as all code above


def main(argv: Optional[list[str]] = None) -> int:
    """Run `gpubind` with *argv*: answer from the memo, else run the command and store its answer.

    Command lines that `wrap` or `oci-runtime` passes through do not wait for the memo.
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
    """Print the version. Return False if that fails: the parser of command lines then repeats it and reports the
    error.
    """
    from gpubind import __version__

    try:
        sys.stdout.write(f"gpubind {__version__}\n")
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError):
        return False
    return True


def _run_uncached(args: list[str], keys: tuple[str, ...], outcome: Union[str, Unfinished]) -> int:
    """Run the command without a memo. An interrupt becomes a `KeyboardInterrupt`, so that `finally` blocks run."""
    import gc

    gc.set_threshold(_GC_THRESHOLD)
    from gpubind.cli.main import finish
    from gpubind.cli.main import main as run

    try:
        if _HANDLES_SIGINT:
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
        if _HANDLES_SIGINT:
            signal(SIGINT, _exit_on_sigint)


def run() -> NoReturn:
    """End the process with the status of `main`.

    The interpreter's own shutdown takes up to a tenth of a command. gpubind has no `atexit` handlers or threads.
    """
    status = main()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):  # the interpreter reports it, and exits with the status
        raise SystemExit(status) from None
    os._exit(status)


if __name__ == "__main__":
    run()
