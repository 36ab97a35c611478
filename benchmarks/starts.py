"""Container starts on the rig's GPU node, as the ordinary user: gpubind exec beside apptainer exec --nv. As root.

    python benchmarks/starts.py [--runs N]

The same image and command for all, in turns, in one run; `tests/live/rig/build` makes the rig.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import tempfile
from statistics import median

from node import INSIDE_CONTAINERS, INSTALLED, RIG, Bind, installed, measured, node_for

from gpubind.formats.archive.sif import DESCRIPTOR_SIZE, HEADER_SIZE, parse_sif_descriptors, parse_sif_header

IMAGE = f"{INSIDE_CONTAINERS}/bookworm-sb"
OLDER = f"{INSIDE_CONTAINERS}/bullseye-sb"
SIF = f"{INSIDE_CONTAINERS}/bookworm.sif"
HUGE = "/srv/huge.sif"
HUGE_SIZE = 10 << 30
DESCRIPTOR_OFFSET_AT = 17
"""Where in a SIF descriptor the place of its object stands."""
GPUBIND = [f"{INSTALLED}/bin/gpubind"]
COMMANDS = {
    "python3 -c pass": ["python3", "-c", "pass"],
    "apptainer exec": ["apptainer", "exec", IMAGE, "true"],
    "apptainer exec --nv": ["apptainer", "exec", "--nv", IMAGE, "true"],
    "gpubind exec --backend apptainer": [*GPUBIND, "exec", "-q", "--backend", "apptainer", IMAGE, "true"],
    "gpubind exec --backend bwrap": [*GPUBIND, "exec", "-q", "--backend", "bwrap", IMAGE, "true"],
    "apptainer exec --nv, SIF": ["apptainer", "exec", "--nv", SIF, "true"],
    "gpubind check": [*GPUBIND, "check", "-q"],
    "gpubind check --image, directory": [*GPUBIND, "check", "-q", "--image", IMAGE],
    "gpubind check --image, SIF": [*GPUBIND, "check", "-q", "--image", SIF],
    "gpubind check --image, SIF of 10 GiB": [*GPUBIND, "check", "-q", "--image", HUGE],
    "gpubind plan --json": [*GPUBIND, "plan", "--json"],
}  # fmt: skip
LIBC = {
    f"{backend}, {memo}": [
        ["env", f"GPUBIND_MEMO={switch}", *GPUBIND, "exec", "-q", "--backend", backend, "--nv",
         "--libc", side, OLDER, "true"]
        for side in ("image", "host")
    ]
    for backend in ("apptainer", "bwrap")
    for memo, switch in (("memo", "on"), ("cold", "off"))
}  # fmt: skip
# Runs on the node: milliseconds of each run, as JSON.
TIMER = """
import json, subprocess, sys, time
commands, runs = json.loads(sys.argv[1]), int(sys.argv[2])
times = {name: [] for name in commands}
for number in range(runs + 2):
    for name, command in commands.items():
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if number >= 2:
            times[name].append((time.perf_counter() - start) * 1e3)
print(json.dumps(times))
"""


def make_huge(sif: str, path: str) -> str:
    """*sif* with its file system 10 GiB into the file, which is sparse; *path*."""
    with open(sif, "rb") as file:
        data = bytearray(file.read())
    table, size = parse_sif_header(bytes(data[:HEADER_SIZE]))
    descriptors = parse_sif_descriptors(bytes(data[table:][:size]), table, size, len(data))
    number = next(n for n, descriptor in enumerate(descriptors) if descriptor.primary)
    system = descriptors[number]
    at = table + number * DESCRIPTOR_SIZE
    struct.pack_into("<q", data, at + DESCRIPTOR_OFFSET_AT, HUGE_SIZE)
    with open(path, "wb") as file:
        file.write(data[: table + size])
        file.seek(HUGE_SIZE)
        file.write(data[system.offset : system.offset + system.size])
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="runs of each command [15]")
    options = parser.parse_args()
    node = node_for("container starts were")
    if node is None:
        return
    with tempfile.TemporaryDirectory(dir=RIG) as directory:
        os.chmod(directory, 0o755)
        huge = make_huge(f"{RIG}/ct/bookworm.sif", f"{directory}/huge.sif")
        pairs = {f"{name}, {side}": words for name, both in LIBC.items() for side, words in enumerate(both)}
        words = [json.dumps({**COMMANDS, **pairs}), str(options.runs)]
        binds = [installed(node, f"{directory}/installed"), Bind(huge, HUGE)]
        times = json.loads(measured(node, TIMER, words, binds))
    medians = {name: median(times[name]) for name in COMMANDS}
    bare, nv = medians["python3 -c pass"], medians["apptainer exec --nv"]
    print(f"\n{'on the rig, as a user':<44}{'median ms':>10}{'x bare':>8}{'x apptainer --nv':>18}")
    for name, took in medians.items():
        print(f"{name:<44}{took:>10.1f}{took / bare:>8.2f}{took / nv:>18.2f}")
    print(f"\n{'--libc image and host, bullseye-sb':<44}{'median ms':>10}{'with it':>9}{'more, of pairs':>16}")
    for name in LIBC:
        own, hosts = times[f"{name}, 0"], times[f"{name}, 1"]
        more = median(after - before for before, after in zip(own, hosts))
        print(f"{name:<44}{median(own):>10.1f}{median(hosts):>9.1f}{more:>16.1f}")


if __name__ == "__main__":
    main()
