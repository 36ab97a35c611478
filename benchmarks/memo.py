"""What the memo is worth: starts on the rig's GPU node with a memo and without, as the ordinary user. As root.

    python benchmarks/memo.py [--runs N] [--at-once N]

In turns, in one run, each as a ratio to what stands beside it: the bare interpreter, or the runtime with the very words
that gpubind gives it. `tests/live/rig/build` makes the rig.
"""

from __future__ import annotations

import argparse
import json

from node import INSIDE_CONTAINERS, measured, node_for

SANDBOX, SIF = f"{INSIDE_CONTAINERS}/bookworm-sb", f"{INSIDE_CONTAINERS}/bookworm.sif"
GPUBIND = ["python3", "-c", "import sys; from gpubind.__main__ import main; sys.exit(main())"]
"""As the installed program does it: `python -m` loads more."""
PYTHON = ["python3", "-c", "pass"]
NV = {"sandbox": ["apptainer", "exec", "--nv", SANDBOX, "true"], "SIF": ["apptainer", "exec", "--nv", SIF, "true"]}
STARTS = {name: [*GPUBIND, "exec", "-q", "--backend", "apptainer", words[3], "true"] for name, words in NV.items()}
BWRAP = [*GPUBIND, "exec", "-q", "--backend", "bwrap", SANDBOX, "true"]
ROWS = [
    # name, memo or cold, command, beside what, target
    ("plan --nv --json", "memo", [*GPUBIND, "plan", "--nv", "--json"], "python", "1.6"),
    ("exec, apptainer, sandbox", "memo", STARTS["sandbox"], "nv sandbox", "1.05"),
    ("exec, apptainer, SIF", "memo", STARTS["SIF"], "nv SIF", "1.05"),
    ("exec, apptainer, SIF", "memo", STARTS["SIF"], "apptainer words, SIF", ""),
    ("exec, bwrap", "memo", BWRAP, "bwrap + python", "1.6"),
    ("check --image, directory", "memo", [*GPUBIND, "check", "-q", "--image", SANDBOX], "python", "2"),
    ("check --image, SIF", "memo", [*GPUBIND, "check", "-q", "--image", SIF], "python", "2"),
    (
        "wrap -- apptainer --version",
        "passed",
        [*GPUBIND, "wrap", "--", "apptainer", "--version"],
        "apptainer --version",
        "",
    ),
    ("plan --json", "cold", [*GPUBIND, "plan", "--json"], "python", "7"),
    ("--version", "cold", [*GPUBIND, "--version"], "python", "4"),
    ("exec, apptainer, sandbox", "cold", STARTS["sandbox"], "nv sandbox", "2"),
    ("exec, apptainer, SIF", "cold", STARTS["SIF"], "nv SIF", "2"),
    ("exec, apptainer, sandbox", "first", STARTS["sandbox"], "nv sandbox", ""),
    ("exec, apptainer, SIF", "first", STARTS["SIF"], "nv SIF", ""),
    ("check --image, directory", "cold", [*GPUBIND, "check", "-q", "--image", SANDBOX], "python", "15"),
    ("check --image, SIF", "cold", [*GPUBIND, "check", "-q", "--image", SIF], "python", "22"),
]
# Runs on the node: medians in milliseconds, as JSON; and the words with which gpubind starts a runtime.
TIMER = """
import json, os, resource, statistics, subprocess, sys, tempfile, time
rows, runs, at_once = json.loads(sys.argv[1])
own = tempfile.mkdtemp(dir=os.path.expanduser("~"))  # nothing of a shared directory is believed
def environ(memo):
    place = {"XDG_RUNTIME_DIR": own} if memo == "first" else {}
    return {**os.environ, **place, "GPUBIND_MEMO": "off" if memo == "cold" else "on"}
def forget():
    for name in os.listdir(f"{own}/gpubind/memo") if os.path.exists(f"{own}/gpubind/memo") else ():
        if name != "versions":
            os.unlink(f"{own}/gpubind/memo/{name}")
def words_of(command, name):
    with tempfile.TemporaryDirectory() as place:
        version = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
        with open(f"{place}/{name}", "w") as file:
            file.write("#!/bin/sh\\n"
                f'[ "$1" = --version ] && {{ echo "{version.strip()}"; exit; }}\\n'
                f'for word; do printf "%s\\\\0" "$word"; done > {place}/words\\n')
        os.chmod(f"{place}/{name}", 0o755)
        path = f"{place}:{os.environ['PATH']}"
        subprocess.run(command, env={**environ("cold"), "PATH": path}, check=True)
        with open(f"{place}/words") as file:
            return [name, *file.read().split("\\0")[:-1]]
commands = {name: (command, environ(memo)) for name, memo, command in rows if memo != "words"}
for name, memo, command in rows:
    if memo == "words":
        commands[name] = words_of(command, name.split(" ")[0]), os.environ
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
    for name, (command, env) in commands.items():
        forget()
        taken = timed(lambda: [start(command, env)])
        if number >= 3:
            times[name].append(taken)
together = {}
for name in ("memo: exec, apptainer, sandbox", "apptainer words"):
    together[name] = timed(lambda: [start(*commands[name]) for _ in range(at_once)])
middle = {name: [statistics.median(values) for values in zip(*taken)] for name, taken in times.items()}
print(json.dumps([middle, together]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="runs of each command [15]")
    parser.add_argument("--at-once", type=int, default=200, help="starts at once [200]")
    options = parser.parse_args()
    node = node_for("the memo was")
    if node is None:
        return
    rows = [
        ("python", "cold", PYTHON),
        ("apptainer --version", "cold", ["apptainer", "--version"]),
        *((f"nv {name}", "cold", words) for name, words in NV.items()),
        ("bwrap words", "words", BWRAP),
        ("apptainer words", "words", STARTS["sandbox"]),
        ("apptainer words, SIF", "words", STARTS["SIF"]),
        *{f"{memo}: {name}": (f"{memo}: {name}", memo, command) for name, memo, command, _, _ in ROWS}.values(),
    ]
    asked = json.dumps([rows, options.runs, options.at_once])
    medians, together = json.loads(measured(node, TIMER, [asked]))
    print("\n| work | ms | beside | ratio | of processor time | target |\n| --- | --- | --- | --- | --- | --- |")
    for name, memo, _, beside, target in ROWS:
        taken, python = medians[f"{memo}: {name}"], medians["python"]
        if beside == "bwrap + python":
            words = medians["bwrap words"]
            ratios = [(mine - bare) / base for mine, bare, base in zip(taken, words, python)]
            what = f"bwrap {words[0]:.1f} + x python"
        else:
            ratios = [mine / base for mine, base in zip(taken, medians[beside])]
            what = f"{beside} {medians[beside][0]:.1f}"
        print(f"| {memo}: {name} | {taken[0]:.1f} | {what} | {ratios[0]:.2f} | {ratios[1]:.2f} | {target} |")
    base = together["apptainer words"]
    for name, taken in together.items():
        ratios = [mine / bare for mine, bare in zip(taken, base)]
        at_once = f"{options.at_once} at once, {name}"
        print(
            f"| {at_once} | {taken[0]:.0f} | apptainer words {base[0]:.0f} | {ratios[0]:.2f} | {ratios[1]:.2f} | 1.3 |"
        )


if __name__ == "__main__":
    main()
