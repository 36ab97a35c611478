"""An image that podman's or docker's store does not have yet: it is pulled as a start by that program would pull it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpubind.errors import HostReadError

if TYPE_CHECKING:
    from gpubind.runtimes.runtime import Pull


def pulled(pull: Pull, program: str, image: str, environ: Mapping[str, str]) -> str:
    """Return the name or ID of *image* in the store, after *program* has pulled it in the caller's terminal.

    Errors: `HostReadError` (code `image-store`), `StartError`. A newer image that cannot be pulled is no error.
    """
    from gpubind.launch.execute import run_in_front
    from gpubind.model.budget import tell

    tell("")  # the program writes on the terminal now
    status, printed = run_in_front((program, *pull.words), environ, keeps_output=pull.prints_name)
    names = printed.decode("utf-8", "surrogateescape").split()
    if status == 0:
        return names[-1] if names else image
    if pull.when == "newer":
        return image
    # Without its options: credentials may be among them.
    why = f"`{program} pull` ended with exit status {status}; its own message stands above"
    raise HostReadError("image-store", "the image cannot be pulled", where=image, why=why)
