"""What a start of the installed gpubind costs, with a memo and without, on the rig's GPU node, as the ordinary user.

    python benchmarks/memo.py [--runs N] [--at-once N] [--before CHECKOUT]

As root. In turns, in one run, each as a ratio to what stands beside it: the bare interpreter, or the runtime with the
very words that gpubind gives it. --before CHECKOUT measures the gpubind of another checkout in the same turns.
`tests/live/rig/build` makes the rig.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile

from node import INSIDE_CONTAINERS, INSTALLED, REPOSITORY, installed, measured, node_for

SANDBOX, SIF = f"{INSIDE_CONTAINERS}/bookworm-sb", f"{INSIDE_CONTAINERS}/bookworm.sif"
PYTHON = ["python3", "-c", "pass"]
NV = {"sandbox": ["apptainer", "exec", "--nv", SANDBOX, "true"], "SIF": ["apptainer", "exec", "--nv", SIF, "true"]}
STARTS = {name: ["exec", "-q", "--backend", "apptainer", words[3], "true"] for name, words in NV.items()}
BWRAP = ["exec", "-q", "--backend", "bwrap", SANDBOX, "true"]
CHECKS = {"directory": ["check", "-q", "--image", SANDBOX], "SIF": ["check", "-q", "--image", SIF]}
PLAN = ["plan", "--nv", "--json"]
ROWS = [
    # name, kind of the memo, arguments, beside what, target
    ("plan --nv --json", "memo", PLAN, "python", "1.2"),
    ("exec, apptainer, sandbox", "memo", STARTS["sandbox"], "nv sandbox", "1.20"),
    ("exec, apptainer, SIF", "memo", STARTS["SIF"], "nv SIF", "1.20"),
    ("exec, apptainer, SIF", "memo", STARTS["SIF"], "apptainer words, SIF", ""),
    ("exec, bwrap", "memo", BWRAP, "bwrap + python", "1.6"),
    ("check --image, directory", "memo", CHECKS["directory"], "python", "2"),
    ("check --image, SIF", "memo", CHECKS["SIF"], "python", "2"),
    ("wrap -- apptainer --version", "passed", ["wrap", "--", "apptainer", "--version"], "apptainer --version", ""),
    ("--version", "cold", ["--version"], "python", "1.6"),
    ("plan --nv --json", "cold", PLAN, "python", ""),
    ("plan --nv --json", "new", PLAN, "python", "5.4"),
    ("check --image, directory", "cold", CHECKS["directory"], "python", "8.5"),
    ("check --image, SIF", "cold", CHECKS["SIF"], "python", "11"),
    ("exec, apptainer, sandbox", "new", STARTS["sandbox"], "nv sandbox", "2.1"),
    ("exec, apptainer, SIF", "new", STARTS["SIF"], "nv SIF", "1.75"),
    ("exec, apptainer, sandbox", "first", STARTS["sandbox"], "nv sandbox", ""),
    ("exec, apptainer, SIF", "first", STARTS["SIF"], "nv SIF", ""),
]
# Runs on the node: medians in milliseconds, as JSON; and the words with which gpubind starts a runtime.
TIMER = """
import json, os, resource, statistics, subprocess, sys, tempfile, time
rows, runs, at_once = json.loads(sys.argv[1])
dependencies = os.environ["PYTHONPATH"].rpartition(":")[2]
del os.environ["PYTHONPYCACHEPREFIX"]  # what is installed has its byte code
own = tempfile.mkdtemp(dir=os.path.expanduser("~"))  # nothing of a shared directory is believed
def environ(memo, modules):
    # A memo of its own for each: `first` keeps the versions of programs, `new` keeps nothing.
    place = f"{own}/{memo}{modules.replace('/', '-')}"
    os.makedirs(place, 0o700, exist_ok=True)
    path = {"XDG_RUNTIME_DIR": place, "PYTHONPATH": f"{modules}:{dependencies}"}
    return {**os.environ, **path, "GPUBIND_MEMO": "off" if memo == "cold" else "on"}
def forget(memo, place):
    place = f"{place}/gpubind/memo"
    for name in os.listdir(place) if memo in ("first", "new") and os.path.exists(place) else ():
        if memo == "new" or name != "versions":
            os.unlink(f"{place}/{name}")
def words_of(command, name, modules):
    with tempfile.TemporaryDirectory() as place:
        version = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
        with open(f"{place}/{name}", "w") as file:
            file.write("#!/bin/sh\\n"
                f'[ "$1" = --version ] && {{ echo "{version.strip()}"; exit; }}\\n'
                f'for word; do printf "%s\\\\0" "$word"; done > {place}/words\\n')
        os.chmod(f"{place}/{name}", 0o755)
        path = f"{place}:{os.environ['PATH']}"
        subprocess.run(command, env={**environ("cold", modules), "PATH": path}, check=True)
        with open(f"{place}/words") as file:
            return [name, *file.read().split("\\0")[:-1]]
commands = {name: (command, environ(memo, place), memo) for name, memo, place, command in rows if memo != "words"}
for name, memo, place, command in rows:
    if memo == "words":
        commands[name] = words_of(command, name.split(" ")[0], place), os.environ, memo
times = {name: [] for name in commands}
def start(command, env):
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
def used():
    of = resource.getrusage(resource.RUSAGE_CHILDREN)
    return of.ru_utime + of.ru_stime
def timed(started):
    begin, before = time.perf_counter(), used()
    for process in started():
        process.wait()
    return (time.perf_counter() - begin) * 1e3, (used() - before) * 1e3
for number in range(runs + 3):
    for name, (command, env, memo) in commands.items():
        forget(memo, env.get("XDG_RUNTIME_DIR"))
        taken = timed(lambda: [start(command, env)])
        if number >= 3:
            times[name].append(taken)
together = {}
for name in ("memo: exec, apptainer, sandbox", "apptainer words") if at_once else ():
    together[name] = timed(lambda: [start(*commands[name][:2]) for _ in range(at_once)])
middle = {name: [statistics.median(values) for values in zip(*taken)] for name, taken in times.items()}
print(json.dumps([middle, together]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="runs of each command [15]")
    parser.add_argument("--at-once", type=int, default=200, help="starts at once; 0: none [200]")
    parser.add_argument("--before", help="another checkout, measured in the same turns")
    options = parser.parse_args()
    node = node_for("starts of the installed gpubind were")
    if node is None:
        return
    versions = {"": (str(REPOSITORY), INSTALLED)}
    if options.before:
        versions["before: "] = (options.before, "/srv/before")
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        binds = [
            installed(node, f"{scratch}/{number}", checkout, place)
            for number, (checkout, place) in enumerate(versions.values())
        ]
        now = [f"{INSTALLED}/bin/gpubind"]
        rows = [
            ("python", "cold", "", PYTHON),
            ("apptainer --version", "cold", "", ["apptainer", "--version"]),
            *((f"nv {name}", "cold", "", words) for name, words in NV.items()),
            ("bwrap words", "words", INSTALLED, [*now, *BWRAP]),
            ("apptainer words", "words", INSTALLED, [*now, *STARTS["sandbox"]]),
            ("apptainer words, SIF", "words", INSTALLED, [*now, *STARTS["SIF"]]),
        ]
        for name, memo, words in {f"{memo}: {name}": (name, memo, words) for name, memo, words, _, _ in ROWS}.values():
            for prefix, (_, place) in versions.items():
                rows.append((f"{prefix}{memo}: {name}", memo, place, [f"{place}/bin/gpubind", *words]))
        load = os.getloadavg()[0]
        asked = json.dumps([rows, options.runs, options.at_once])
        medians, together = json.loads(measured(node, TIMER, [asked], binds))
    loads, python = f"load {load:.1f} to {os.getloadavg()[0]:.1f}", medians["python"][1]
    print(f"\n{options.runs} runs in turns, {loads}; an interpreter takes {python:.1f} ms of processor time")
    print("\n| work | ms | beside | ratio | of processor time | before | target |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, memo, _, beside, target in ROWS:
        what, ratios = compared(medians, f"{memo}: {name}", beside)
        before = f"{compared(medians, f'before: {memo}: {name}', beside)[1][1]:.2f}" if options.before else ""
        taken = medians[f"{memo}: {name}"][0]
        print(f"| {memo}: {name} | {taken:.1f} | {what} | {ratios[0]:.2f} | {ratios[1]:.2f} | {before} | {target} |")
    for name, taken in together.items():
        base = together["apptainer words"]
        ratios = [mine / bare for mine, bare in zip(taken, base)]
        at_once = f"{options.at_once} at once, {name}"
        what = f"apptainer words {base[0]:.0f}"
        print(f"| {at_once} | {taken[0]:.0f} | {what} | {ratios[0]:.2f} | {ratios[1]:.2f} | | 1.3 |")


def compared(medians: dict[str, list[float]], name: str, beside: str) -> tuple[str, list[float]]:
    """What stands beside *name*, and the ratios to that: by the clock, and of processor time."""
    taken, python = medians[name], medians["python"]
    if beside == "bwrap + python":
        words = medians["bwrap words"]
        ratios = [(mine - bare) / base for mine, bare, base in zip(taken, words, python)]
        return f"bwrap {words[0]:.1f} + x python", ratios
    return f"{beside} {medians[beside][0]:.1f}", [mine / base for mine, base in zip(taken, medians[beside])]


if __name__ == "__main__":
    main()
