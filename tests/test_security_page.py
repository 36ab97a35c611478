"""docs/security.md names tests that exist, all bounds of a command, and the numbers that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpubind.api import explain
from gpubind.cli import settings
from gpubind.explanation import messages
from gpubind.files import ldconfig, live
from gpubind.files.glob import GLOB_LIMIT
from gpubind.files.ldconfig import LD_CACHE_LIMIT
from gpubind.formats.archive import oci, squashfs
from gpubind.formats.driver import cdi, liblist
from gpubind.formats.elf import ldcache
from gpubind.formats.elf.dynamic import NEEDED_LIMIT
from gpubind.formats.gpucode import fatbin, hip
from gpubind.formats.text import json as json_format
from gpubind.formats.text import shell, toml, yaml
from gpubind.host import open as host_files
from gpubind.host import record
from gpubind.image import cuda, environment, facts, gpucode, layers
from gpubind.image import oci as images
from gpubind.image import tar as archives
from gpubind.inventory.cdi import specs as cdi_specs
from gpubind.loader import container
from gpubind.machine import programs
from gpubind.machine.budget import BOUNDS
from gpubind.model.files import LINKS_LIMIT
from tests.support.golden import assert_listed

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text()
BOUNDS_PAGE = "tests/test_bounds.py"
NAMED = re.findall(r"`(?:(tests/[\w/]+\.py)(?:::(\w+))?|(test_\w+))`", PAGE)


def _rows(head: str) -> dict[str, str]:
    """The table below *head*, by its first column."""
    lines = PAGE.partition(head)[2].partition("\n\n")[0].splitlines()[2:]
    return {line.split(" | ")[0].strip("| `"): line for line in lines}


OF_A_COMMAND = _rows("| bound | for one command |")
OF_READERS = _rows("| what | bound | more than that | test |")


def _bytes(count: int) -> str:
    unit = next(unit for unit in (30, 20, 10) if not count % (1 << unit))
    return f"{count >> unit} {dict(zip((30, 20, 10), ('GiB', 'MiB', 'KiB')))[unit]}"


@pytest.mark.parametrize(("file", "test", "here"), NAMED, ids=str)
def test_a_test_that_the_page_names_exists(file: str, test: str, here: str) -> None:
    text = (ROOT / (file or BOUNDS_PAGE)).read_text()
    assert not (test or here) or f"def {test or here}(" in text, (
        f"docs/security.md: {file or BOUNDS_PAGE} has no test `{test or here}`: write its name of now"
    )


def test_the_page_has_every_bound_of_a_command() -> None:
    table = 'docs/security.md, the table "bound | for one command"'
    assert_listed(OF_A_COMMAND, BOUNDS, add=f"{table}: add `{{}}`", remove=f"{table}: remove `{{}}`", order=table)
    for name, bound in BOUNDS.items():
        in_bytes = name in ("read", "unpacked", "texts", "copied")
        _, _, amount, each, *_ = (part.strip() for part in OF_A_COMMAND[name].split("|"))
        due = [_bytes(bound.amount) if in_bytes else f"{bound.amount:,}"]
        due += [(_bytes(bound.each) if in_bytes else str(bound.each)) if bound.each else ""]
        assert [amount, each] == due, f"{table}, `{name}`: write {due}"


NUMBERS: dict[str, tuple[str, ...]] = {
    "an ld.so.cache": (_bytes(LD_CACHE_LIMIT), f"{ldcache.ENTRIES_LIMIT:,}", str(ldcache.ENTRIES_OF_A_NAME)),
    "what one program lacks": (str(container.MISSING_LIMIT),),
    "libraries that one program loads": (f"{container.OBJECTS_LIMIT:,}",),
    "DT_NEEDED, versions of one ELF file": (f"{NEEDED_LIMIT:,}",),
    "GPU code of one file, and files of one image": (
        f"{fatbin.ENTRIES_LIMIT:,}",
        f"{hip.ALL_ENTRIES_LIMIT:,}",
        f"{hip.STEPS_LIMIT:,}",
        f"{hip.BARREN_LIMIT:,}",
        str(fatbin.ARCHITECTURES_LIMIT),
        str(gpucode.FILES_LIMIT),
        str(gpucode.LIBRARIES_LIMIT),
        _bytes(gpucode.RECORD_LIMIT),
    ),
    "a log for `explain": (_bytes(explain._LONGEST_LOG), f"{messages._ATTEMPT_LIMIT:,}"),
    "environment files of an image": (str(environment.FILES_LIMIT), _bytes(environment.BYTES_LIMIT)),
    "values of an environment file": (_bytes(shell.VALUE_LIMIT), _bytes(shell.TOTAL_LIMIT)),
    "directories in ld.so.conf": (f"{ldconfig.CONFIGURED_LIMIT:,}", str(ldconfig.INCLUDES_LIMIT)),
    "compat libraries of CUDA in an image": (str(facts.COMPAT_LIMIT),),
    "prefixes and directories in which CUDA is looked for": (str(cuda.DIRECTORIES_LIMIT),),
    "a JSON document of an image": (_bytes(oci.DOCUMENT_LIMIT), f"{oci.MEMBERS_LIMIT:,}"),
    "any JSON document": (f"{json_format.VALUES_LIMIT:,}",),
    "YAML": (f"{yaml.VALUES_LIMIT:,}", str(yaml.DEPTH_LIMIT)),
    "CDI specs": (_bytes(cdi.SIZE_LIMIT), _bytes(cdi_specs.SPECS_LIMIT)),
    "conflicts of CDI devices": (str(cdi_specs.CONFLICTS_LIMIT),),
    "a record": (_bytes(record.SIZE_LIMIT),),
    "config.toml": (_bytes(settings.SIZE_LIMIT), str(toml.DOTS_LIMIT)),
    "a list file": (_bytes(host_files.FILE_LIMIT), f"{liblist.ENTRIES_LIMIT:,}", f"{liblist.LINE_LIMIT:,}"),
    "layers": (str(images.LAYERS_LIMIT), f"{layers.STEPS_LIMIT:,}"),
    "records before a member of an archive": (str(archives.RECORDS_LIMIT),),
    "the map of a sparse file in an archive": (f"{archives.PIECES_LIMIT:,}",),
    "unpacking one blob": ("200", "64 MiB"),
    "squashfs": (
        f"{squashfs.NAMES_LIMIT:,}",
        _bytes(squashfs.ALL_LISTINGS_LIMIT),
        _bytes(squashfs.FILE_UNPACKED_LIMIT),
    ),
    "links on the way to a file": (str(LINKS_LIMIT),),
    "directories that one pattern lists": (f"{GLOB_LIMIT:,}",),
    "directories that stay open": (str(live.DIRECTORIES_LIMIT),),
    "what a helper program prints": (_bytes(programs.OUTPUT_LIMIT),),
}


def test_the_page_has_the_numbers_of_the_readers() -> None:
    assert_listed(
        OF_READERS,
        NUMBERS,
        add="docs/security.md, the table of readers: add `{}`, which NUMBERS of tests/test_security_page.py has",
        remove="tests/test_security_page.py: add `{}` and the constants of its bound to NUMBERS",
        order="docs/security.md, the table of readers",
    )
    for what, numbers in NUMBERS.items():
        said = OF_READERS[what].split(" | ")[1]
        for number in numbers:
            assert re.search(rf"(?<![0-9,]){re.escape(number)}(?![0-9,]*[0-9])", said), (
                f"docs/security.md, `{what}`: write {number}"
            )


def test_the_page_has_a_test_for_every_bound_of_a_reader() -> None:
    for what, line in OF_READERS.items():
        assert re.search(r"test_\w+`(, `[^`]+`)* \|$", line), f"docs/security.md, `{what}`: name its test"
