"""needs: what an image needs of a host."""

from __future__ import annotations

from typing import Optional

from gpubind.cli import declarations as declared
from gpubind.cli.declarations import Argument, Option, Subcommand
from gpubind.cli.options import standard_input_for
from gpubind.documents import NEEDS_DOCUMENTS
from gpubind.errors import UsageError

FORMATS = ("text", *NEEDS_DOCUMENTS)


def needs(*, image: str, program: Optional[str], format_: Optional[str], output: Optional[str], quiet: bool) -> None:
    """Show what an image requires of a host, without reading a host.

    Shown are CUDA and the oldest driver for it, ROCm, the architectures of its GPU code, its C library, the driver's
    libraries that its programs use, the capabilities to which these belong, and its libraries for RDMA. All is read
    from files; nothing is started.
    """
    from gpubind.cli.output import progress, tables_as_text, write_document
    from gpubind.image.needs import read_needs
    from gpubind.image.open import OpenImages
    from gpubind.image.reference import image_label, parse_reference

    chosen = format_ or "text"
    if program == "":
        raise UsageError("no-program", "--program is empty", hint="give a name, or a path in the image")
    with progress(quiet=quiet), OpenImages(standard_input_for([image])) as opened:
        image_needs = read_needs(opened.image_or_environment(parse_reference(image)), program)
    if chosen == "text":
        from gpubind.documents.needs import needs_table

        text = tables_as_text([needs_table(image_needs)], output)
    else:
        text = NEEDS_DOCUMENTS[chosen].render(image_needs, image_label(image))
    write_document(text, output)


NEEDS = Subcommand(
    needs,
    (
        Option("--program PATH", "Only what this program or library asks, as it is found in the image.", "The image"),
        declared.format_option(FORMATS),
        declared.JSON,
        declared.OUTPUT,
        declared.QUIET._replace(help="Do not show progress."),
    ),
    (
        Argument(
            "image",
            "IMAGE",
            declared.IMAGE_HELP.replace("The image that will be started: a", "A") + declared.STDIN_HELP,
        ),
    ),
    common=("--program", "--format", "--json", "--output", "--quiet"),
    examples=(
        ("see it", "gpubind needs app.sif"),
        ("a table for a README", "gpubind needs app.sif --format markdown"),
        ("of one program", "gpubind needs app.sif --program /opt/app/solve"),
    ),
    exit_codes=(("0", "done"), *(declared.EXIT_CODES[at] for at in (0, 2, 3))),
    shared=(),
)
