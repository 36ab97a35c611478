"""`python -m gpubind`, and the console script."""

from gpubind.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
