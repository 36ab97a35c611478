"""gpubind for an ordinary user, whoever runs the tests: the containers of root's host use no directory below /tmp."""

from __future__ import annotations


def main(words: list[str]) -> int:
    import gpubind.launch.stage
    from gpubind.cli.main import main as run

    gpubind.launch.stage.acts_as_root = lambda: False  # type: ignore[attr-defined]
    return run(words)
