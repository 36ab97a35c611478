"""`python -m gpubind`, and the console script. The memo answers first: nothing heavy is loaded before it is asked."""

from __future__ import annotations

import sys

from gpubind.memo.reading import memo_keys, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


def main(argv: Optional[list[str]] = None) -> int:
    """Run `gpubind` with *argv*: by its memo, or as if there were none, and then the answer is kept for next time."""
    words = sys.argv[1:] if argv is None else argv
    keys = memo_keys(words)
    served = serve(words, keys) if keys else ""
    if isinstance(served, int):
        return served
    from gpubind.cli.main import main as run
    from gpubind.cli.main import print_again

    if isinstance(served, bytes):
        return print_again(served)
    if not keys:
        return run(words)
    from gpubind.memo.storing import run_and_keep

    return run_and_keep(run, words, keys, served)


if __name__ == "__main__":
    raise SystemExit(main())
