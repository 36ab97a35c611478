"""Whether gpubind, tarfile and GNU tar read an archive alike: path, type, size, mode, owner, link target, contents."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Optional

from tests.support.trials import BrokenLawError, Kinds, Tally
from tests.tars.generate import archive
from tests.tars.readers import by_gnu_tar, by_gpubind, by_tarfile


@contextmanager
def opened(tally: Tally, options: Namespace) -> Iterator[Kinds]:
    """Return the case: one archive, which all readers read alike."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:

        def case(rng: Random) -> None:
            found = difference(archive(rng), file.name)
            if found is not None:
                raise BrokenLawError(found)

        yield {"archive": case}


def difference(data: bytes, path: str) -> Optional[str]:
    """Return where the readers of *data*, which is written to *path*, differ; None where they agree."""
    with open(path, "wb") as file:
        file.write(data)
    ours, bodies = by_gpubind(data)
    theirs, their_bodies = by_tarfile(data)
    gnu, gnu_bodies = by_gnu_tar(path)
    if not ours == theirs == gnu:
        return f"gpubind {ours}\ntarfile {theirs}\nGNU tar {gnu}"
    if b"".join(their_bodies) != gnu_bodies:
        return "tarfile and GNU tar read other contents"
    if bodies != their_bodies:
        return "gpubind reads other contents"
    return None
