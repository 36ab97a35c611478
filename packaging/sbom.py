"""sbom.py OUT   write gpubind.cdx.json: what gpubind.pyz, the .deb and the .rpm have inside, as CycloneDX 1.5.

A library that lists installed packages would describe the machine that builds. What is packed is in pyz.txt, with the
digest of each wheel, so this reads that file. Same sources in, same bytes out.
Source: CycloneDX 1.5, JSON reference.
"""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from typing import Any

from stamp import built_version

HERE = os.path.dirname(os.path.abspath(__file__))
_PINNED = re.compile(r"^([\w.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$", re.MULTILINE)


def main(out: str) -> None:
    """Write the bill."""
    with open(out, "w") as file:
        file.write(bill())


def bill() -> str:
    """Return the document."""
    with open(f"{HERE}/pyz.txt") as file:
        pinned = _PINNED.findall(file.read())
    own = _component("application", "gpubind", built_version(os.path.dirname(HERE)))
    own["licenses"] = [{"license": {"id": "Apache-2.0"}}]
    parts = []
    for name, version, digest in pinned:
        hashes = [{"alg": "SHA-256", "content": digest}]
        parts.append({**_component("library", name.replace("_", "-"), version), "hashes": hashes})
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own},
        "components": parts,
        "dependencies": [
            {"ref": own["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"]} for part in parts),
        ],
    }
    # A number for each content, so that equal builds have equal bills.
    number = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document))
    return json.dumps({**document, "serialNumber": f"urn:uuid:{number}"}, indent=1) + "\n"


def _component(kind: str, name: str, version: str) -> dict[str, Any]:
    address = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    return {"type": kind, "bom-ref": address, "name": name, "version": version, "purl": address}


if __name__ == "__main__":
    main(*sys.argv[1:])
