"""Generated files, and a disk that has no room for them."""

from __future__ import annotations

import pytest

from tests.live.machine import PYTHON_ENV, Machine

pytestmark = pytest.mark.live

FULL = """
mount -t tmpfs -o mode=1777 tmpfs /tmp
for place in $PLACES; do
  mkdir -p $place; mount -t tmpfs -o size=16k tmpfs $place
  head -c 65536 /dev/zero > $place/full 2> /dev/null || true
done
mkdir -p /tmp/cache /tmp/other
"""
STAGE = """python3 -c "
from gpubind.errors import OutputError
from gpubind.launch.stage import stage
try:
    print(*stage({'/etc/a.json': 'a' * 3000}, {'XDG_CACHE_HOME': '/tmp/cache', 'TMPDIR': '/tmp/other'}).values())
except OutputError as error:
    print(error.code, error.why)
"
find $PLACES -type f -not -name full
"""


def staged(machine: Machine, places: str) -> list[str]:
    """What is said where *places* are full, and which files are there afterwards."""
    words = ["env", f"PLACES={places}", "sh", "-ec", FULL + STAGE]
    return machine.run(words, binds=machine.modules, env=PYTHON_ENV).stdout.splitlines()


def test_what_a_full_disk_cannot_take_goes_to_the_next_place_and_leaves_no_part(trixie: Machine) -> None:
    (path,) = staged(trixie, "/tmp/cache")
    assert path.startswith("/tmp/other/gpubind-0/")


def test_where_no_place_has_room_the_error_says_so(trixie: Machine) -> None:
    lines = staged(trixie, "/tmp")
    assert lines[0].startswith("unwritable-file")
    assert "No space left on device" in lines[0]
    assert lines[1:] == []
