"""python -m tests.support.pci_ids /usr/share/misc/pci.ids: write the devices of each chip in data/nvidia_gpus.json.

The capability of a chip and the drivers for it are in that file, and were written by hand: a new chip is a row with
no devices.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import gpubind

TABLE = Path(gpubind.__file__).parent / "model/data/nvidia_gpus.json"
_OTHERS = re.compile(r"Audio|NVSwitch|USB|UCSI|bridge|host|Reserved|Controller")
"""Words in the names of devices that are no GPUs."""


def devices(pci_ids: str) -> dict[str, list[str]]:
    """The device IDs of NVIDIA's GPUs by the name of the chip, without its variants: `GB203GLM` is GB203."""
    found: dict[str, list[str]] = {}
    vendor = ""
    for line in pci_ids.splitlines():
        if re.match(r"[0-9a-f]{4}  ", line):
            vendor = line[:4]
        match = re.match(r"\t([0-9a-f]{4})  ([A-Z]{2}[0-9]{2,3}B?)", line)
        if match and vendor == "10de" and not _OTHERS.search(line):
            found.setdefault(match.group(2), []).append(match.group(1))
    return found


def main(pci_ids: str) -> None:
    """Write the table, a row a line."""
    table = json.loads(TABLE.read_text())
    found = devices(Path(pci_ids).read_text(encoding="utf-8"))
    known = {row["chip"] for row in table["chips"]}
    for row in table["chips"]:
        names = [row["chip"], *([f"{row['chip']}B"] if f"{row['chip']}B" not in known else [])]
        row["devices"] = " ".join(sorted(device for name in names for device in found.get(name, ())))
    rows = ",\n".join(f"    {json.dumps(row)}" for row in table["chips"])
    sources = "".join(f"  {json.dumps(name)}: {json.dumps(table[name])},\n" for name in ("source", "drivers"))
    TABLE.write_text(f'{{\n{sources}  "chips": [\n{rows}\n  ]\n}}\n')


if __name__ == "__main__":
    main(sys.argv[1])
