"""tree.py DIRECTORY KIND   write the files of a .deb or an .rpm (KIND: `debian`, `rpm`) below DIRECTORY.

Both have gpubind with the packages of pyz.txt, which no distribution has in these versions, in a directory that only
/usr/bin/gpubind reads. Every file has the time of the commit, and the mode that it is installed with.
"""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator

from man import man_page  # packaging is no package
from pyz import CHECKOUT, HERE, Members, own_members, package_members
from sbom import bill
from stamp import built_at

HOME = "usr/share/gpubind"
DOC = "usr/share/doc/gpubind"
ZSH = {"debian": "vendor-completions", "rpm": "site-functions"}
PROGRAMS = ("usr/bin/", "usr/libexec/", "usr/share/python3/runtime.d/", "DEBIAN/p")
IN_HOOKS = (b"/usr/local/bin/gpubind", b"/usr/bin/gpubind"), (b"/etc/slurm/gpubind/", b"/usr/libexec/gpubind/slurm/")
"""Where hooks and units look for gpubind and for each other, by hand and in a package."""


def main(directory: str, kind: str) -> None:
    """Write the tree."""
    write(directory, {**_program(kind), **_around(kind)})


def write(directory: str, files: Members) -> None:
    """Write *files*. Those of programs may be executed."""
    time = built_at(CHECKOUT)
    for path, content in files.items():
        whole = os.path.join(directory, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, "wb") as file:
            file.write(content)
        os.chmod(whole, 0o755 if path.startswith(PROGRAMS) else 0o644)
    for place, _, names in os.walk(directory, topdown=False):
        for name in names:
            os.utime(os.path.join(place, name), (time, time))
        os.chmod(place, 0o755)
        os.utime(place, (time, time))


def _program(kind: str) -> Members:
    """Return what runs, and the licenses of what is in it."""
    members = {**own_members(), **package_members()}
    own = [members.pop(name) for name in ("LICENSE", "__main__.py", "one_file.py")]
    licenses = {name: members.pop(name) for name in sorted(members) if name.startswith("licenses/")}
    texts = [b"\n--- %s\n\n%s" % (name.encode(), text) for name, text in licenses.items()]
    return {
        **{f"{HOME}/{name}": content for name, content in members.items()},
        "usr/bin/gpubind": read(f"{HERE}/{kind}/gpubind"),
        f"{DOC}/copyright": b"".join([read(f"{HERE}/copyright"), *texts]),
        **({"usr/share/licenses/gpubind/LICENSE": own[0]} if kind == "rpm" else {}),
    }


def _around(kind: str) -> Members:
    """Return the page of the manual, completions, units and hooks."""
    completions, shares = f"{HERE}/completion", "usr/share"
    return {
        f"{shares}/man/man1/gpubind.1.gz": gzipped(man_page().encode()),
        f"{shares}/bash-completion/completions/gpubind": read(f"{completions}/gpubind.bash"),
        f"{shares}/fish/vendor_completions.d/gpubind.fish": read(f"{completions}/gpubind.fish"),
        f"{shares}/zsh/{ZSH[kind]}/_gpubind": read(f"{completions}/_gpubind"),
        f"{DOC}/changelog.gz": gzipped(read(f"{CHECKOUT}/CHANGELOG.md")),
        f"{DOC}/gpubind.cdx.json": bill().encode(),
        **dict(_hooks()),
    }


def _hooks() -> Iterator[tuple[str, bytes]]:
    for where, target in (
        ("systemd", "usr/lib/systemd/system"),
        ("slurm", "usr/libexec/gpubind/slurm"),
        ("nhc", "usr/share/gpubind/nhc"),
    ):
        for name in sorted(os.listdir(f"{CHECKOUT}/contrib/{where}")):
            content = read(f"{CHECKOUT}/contrib/{where}/{name}")
            for by_hand, packaged in IN_HOOKS:
                content = content.replace(by_hand, packaged)
            yield f"{target}/{name}", content


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, 9, mtime=0)


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
