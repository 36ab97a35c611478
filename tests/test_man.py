"""The man page: made of the commands as they are, and without a complaint of troff's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "packaging"))

from man import man_page  # packaging is no package

from tests.test_help import COMMANDS, pages


def test_every_command_option_and_sentence_of_the_help_is_in_the_man_page() -> None:
    text = re.sub(r"\\(fB|fR|fI)", "", man_page()).replace("\\-", "-").replace("\\(ga", "`").replace("\\(aq", "'")
    for command, page in pages().items():
        assert command in ("", *COMMANDS)
        for _, rows in page.sections:
            for name, sentence in rows:
                assert f".TP\n{name}\n{sentence}\n" in text, name
        assert all(f"\n{line}\n" in text for _, line in page.examples)


def test_the_page_has_the_sections_that_man_pages_have() -> None:
    heads = re.findall(r"^\.SH (.*)$", man_page(), re.MULTILINE)
    assert heads[:2] == ["NAME", "SYNOPSIS"]
    assert heads[-3:] == ["EXAMPLES", "EXIT STATUS", "SEE ALSO"]
    assert man_page().partition(".SH NAME\n")[2].startswith("gpubind \\- ")


def test_no_line_is_taken_for_a_macro_that_there_is_none_of() -> None:
    macros = {line.split()[0] for line in man_page().splitlines() if line.startswith((".", "'"))}
    assert macros == {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".RS", ".RE", ".nf", ".fi"}
    groff = shutil.which("groff")
    if groff is not None:  # where it is there, it has nothing to say
        done = subprocess.run([groff, "-man", "-ww", "-Tutf8", "-z"], input=man_page(), capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
