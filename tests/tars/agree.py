"""Whether gpubind, tarfile and GNU tar read an archive alike: path, type, size, mode, owner, link target, contents."""

from __future__ import annotations

import random
from typing import Optional

from tests.tars.generate import archive
from tests.tars.readers import by_gnu_tar, by_gpubind, by_tarfile


def case_of(seed: str, number: int) -> bytes:
    """Return the archive of a case: the same ever after."""
    return archive(random.Random(f"{seed}:{number}"))


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
