"""`python -m tests.tars --archives 100000 --seed 7`: generated archives, as gpubind, tarfile and GNU tar read each."""

from __future__ import annotations

import sys

from tests.support.trials import Engine, main
from tests.tars.agree import opened

if __name__ == "__main__":
    sys.exit(main(Engine("tests.tars", __doc__, "archives", 100_000, opened)))
