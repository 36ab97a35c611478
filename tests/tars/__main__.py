"""`python -m tests.tars --archives 100000 --seed 7`: generated archives, as gpubind, tarfile and GNU tar read each."""

from __future__ import annotations

import argparse
import sys
import tempfile

from tests.tars.agree import case_of, difference


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tars", description=__doc__)
    parser.add_argument("--archives", type=int, default=100_000)
    parser.add_argument("--seed", default="1")
    asked = parser.parse_args()
    differing = 0
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        for number in range(asked.archives):
            found = difference(case_of(asked.seed, number), file.name)
            if found is not None:
                differing += 1
                sys.stderr.write(f"seed {asked.seed}, archive {number}: {found}\n")
    sys.stdout.write(f"{asked.archives} archives, {differing} read differently\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
