"""stored.py STORE NAME [PATH]   how an image looks in its store, and as the store's program saves it; as JSON.

`direct`     whether it was read in the directories of the store, and nothing was saved for that
`facts`      whether its facts are the same in both
`files`      how many paths there are; `other`: those that differ
`text`       what PATH holds, which is saved for where the directories do not say
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from unittest.mock import patch

from gpubind.files import Tree
from gpubind.files.overlay import OverlayTree
from gpubind.image import engine
from gpubind.image.open import open_image
from gpubind.model import Missing


def main(store: str, name: str, path: str = "") -> None:
    image = open_image(f"{store}:{name}")
    with patch.object(engine, "_saved", side_effect=AssertionError("the image is saved")):
        direct = isinstance(image.tree, OverlayTree) and open_image(f"{store}:{name}").facts == image.facts
        found = look(image.tree) if not path else {}
    words = ["--format=docker-archive"] if store == "podman" else []
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        subprocess.run([store, "save", *words, "--output", file.name, name], check=True, capture_output=True)
        saved = open_image(f"docker-archive:{file.name}")
        wanted = look(saved.tree) if not path else {}
    other = sorted(each for each in {*found, *wanted} if found.get(each) != wanted.get(each))
    same = image.facts._replace(kind="docker-archive", label=saved.facts.label) == saved.facts
    report = {"direct": direct, "facts": same, "files": len(wanted), "other": other}
    if path:
        report["text"] = image.tree.text(path)
    sys.stdout.write(json.dumps(report))


def look(tree: Tree) -> dict[str, object]:
    """Everything but device nodes, which a rootless store cannot have."""
    found: dict[str, object] = {}
    todo = ["/"]
    while todo:
        directory = todo.pop().rstrip("/")
        for name in tree.names(directory or "/"):
            path = f"{directory}/{name}"
            facts = tree.lstat(path)
            if isinstance(facts, Missing):
                found[path] = str(facts)
            elif facts.kind == "link":
                found[path] = tree.readlink(path)
            elif facts.kind == "dir":
                found[path] = facts.mode
                todo.append(path)
            elif facts.kind == "file":
                found[path] = (facts.mode, facts.size, hash(tree.read(path)) if facts.size < 100_000 else 0)
    return found


main(*sys.argv[1:])
