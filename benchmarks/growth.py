"""Growth: how time, memory and opened files of one command grow with what it has to look at. No rig, no root.

    python benchmarks/growth.py [--small]

Each row is one command in a process of its own: processor time, the best of three runs. The last column is how many
times as long it took as the row before, beside how many times as much there was to look at. --small leaves out the
largest sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from gpubind import __version__
from gpubind.host.record import dump_record
from tests.support.driver import V, cache, kernel, libraries
from tests.support.elf import elf
from tests.support.layers import archive, docker_archive, tar
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import File, Item, Spec, make_tree, record

DIRECTORY = "/usr/lib/x86_64-linux-gnu"
RUNS = 3
# Runs in the measured process: what it took, as JSON on standard error.
MEASURED = """
import sys
opened = 0
def count(event, arguments):
    global opened
    opened += event == "open"
sys.addaudithook(count)
import json, time
start = time.process_time()
from gpubind.cli.main import main
status = main(sys.argv[1:])
sys.stdout.flush()
took = (time.process_time() - start) * 1e3
with open("/proc/self/status") as file:
    peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024
sys.stderr.write("\\n" + json.dumps([status, took, peak, opened]))
"""


class Took(NamedTuple):
    """What a command took."""

    ms: float
    mib: float
    opened: int


class Case(NamedTuple):
    """A thing that may be large."""

    name: str
    sizes: tuple[int, ...]
    words: Callable[[Path, int], list[str]]
    """Makes it, of a size, in an empty directory; the words of the command that looks at it."""


def took(words: list[str]) -> Took:
    """What `gpubind WORDS` takes, at best."""
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "GPUBIND_MEMO": "off", "GPUBIND_BOUNDS": "10"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    best = None
    for _ in range(RUNS + 1):  # the first fills caches
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=environ, check=True,
        )  # fmt: skip
        status, *facts = json.loads(done.stderr.splitlines()[-1])
        if status not in (0, 1):
            raise SystemExit(f"gpubind {' '.join(words)} ended with {status}:\n{done.stderr}")
        best = min(best, Took(*facts)) if best else Took(*facts)
    assert best is not None
    return best


def host(directory: Path, *parts: Spec) -> list[str]:
    """The words for a plan for a host with two GPUs and *parts*: a record, as device nodes need root."""
    spec: dict[str, Item] = {**libraries(DIRECTORY), **kernel()}
    spec["/etc/ld.so.cache"] = cache(spec, [DIRECTORY])
    for part in parts:
        spec.update(part)
    (directory / "host.json").write_text(dump_record(record(spec), __version__))
    return ["plan", "--nv", "--json", "--host", str(directory / "host.json")]


def driver_libraries(directory: Path, size: int) -> list[str]:
    """A driver with that many libraries."""
    spec: dict[str, Item] = {**libraries(DIRECTORY), "/sys/module/nvidia/version": f"{V}\n"}
    spec |= {
        f"{DIRECTORY}/libnvidia-x{n}.so.{V}": elf(f"libnvidia-x{n}.so.1", needed=["libc.so.6"]) for n in range(size)
    }
    spec["/etc/ld.so.cache"] = cache(spec, [DIRECTORY])
    make_tree(directory, spec)
    return ["plan", "--nv", "--json", "--root", str(directory), "--dev-root", str(directory)]


def cache_entries(directory: Path, size: int) -> list[str]:
    """A host whose ld cache has that many entries."""
    spec: dict[str, Item] = {**libraries(DIRECTORY), "/sys/module/nvidia/version": f"{V}\n"}
    own = [entry(path.rpartition("/")[2], path) for path in spec if path.startswith(DIRECTORY)]
    spec["/etc/ld.so.cache"] = build_ldcache([*own, *(entry(f"libother{n}.so.1") for n in range(size))])
    make_tree(directory, spec)
    return ["plan", "--nv", "--json", "--root", str(directory), "--dev-root", str(directory)]


def image_spec(files: int = 0, libraries_: int = 0) -> Iterator[tuple[str, Item]]:
    """An image with a C library, a program, that many other files and that many libraries that the program needs."""
    names = [f"libx{n}.so.1" for n in range(libraries_)]
    yield f"{DIRECTORY}/libc.so.6", elf("libc.so.6", defines=["libc.so.6", "GLIBC_2.2.5", "GLIBC_2.36"])
    yield "/lib64/ld-linux-x86-64.so.2", File(elf("ld-linux-x86-64.so.2"), mode=0o755)
    program = elf(kind=2, interpreter="/lib64/ld-linux-x86-64.so.2", needed=[*names[:1000], "libc.so.6"])
    yield "/opt/program", File(program, mode=0o755)
    for name, following in zip(names, [*names[1:], "libc.so.6"]):
        yield f"{DIRECTORY}/{name}", elf(name, needed=[following, "libc.so.6"])
    for number in range(files):
        yield f"/opt/tree/{number // 1000}/{number % 1000}.py", b"pass\n"


def in_image(directory: Path, image: Path) -> list[str]:
    return [*host(directory)[2:], "--image", str(image)]


def image_files(directory: Path, size: int) -> list[str]:
    """An image as a directory with that many files."""
    make_tree(directory / "image", dict(image_spec(files=size)))
    return ["check", "--nv", *in_image(directory, directory / "image")]


def image_libraries(directory: Path, size: int) -> list[str]:
    """An image whose program needs that many libraries."""
    make_tree(directory / "image", dict(image_spec(libraries_=size)))
    return ["check", "--nv", *in_image(directory, directory / "image"), "--program", "/opt/program"]


def archive_layers(directory: Path, size: int) -> list[str]:
    """An archive of docker's with that many layers of 200 files."""
    layers = [tar(dict(image_spec()))]
    layers += [tar({f"/opt/layer{n}/{number}.py": b"pass\n" for number in range(200)}) for n in range(size - 1)]
    (directory / "image.tar").write_bytes(archive(docker_archive(layers)))
    return ["check", "--nv", *in_image(directory, directory / "image.tar")]


def archive_files(directory: Path, size: int) -> list[str]:
    """An archive of docker's with that many files in one layer."""
    (directory / "image.tar").write_bytes(archive(docker_archive([tar(dict(image_spec(files=size)))])))
    return ["check", "--nv", *in_image(directory, directory / "image.tar")]


def divided_gpus(directory: Path, size: int) -> list[str]:
    """A host with that many GPUs, each in seven parts."""
    spec: dict[str, Item] = dict(kernel(gpus=size))
    table = ["config 1", "monitor 2"]
    for gpu in range(size):
        pci = f"0000:{gpu + 1:02x}:00.0"
        spec[f"/proc/driver/nvidia/gpus/{pci}/information"] = (
            f"Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-{gpu:08x}-1111-2222-3333-444444444444\n"
            f"Bus Location: \t {pci}\nDevice Minor: \t {gpu}\nGPU Excluded:\t No\n"
        )
        for part in range(7):
            for name, minor in ((f"gi{part}", 0), (f"gi{part}/ci0", 1)):
                number = 3 + (gpu * 7 + part) * 2 + minor
                place = f"/proc/driver/nvidia/capabilities/gpu{gpu}/mig/{name}/access"
                spec[place] = f"DeviceFileMinor: {number}\nDeviceFileMode: 292\n"
                table.append(f"gpu{gpu}/{name}/access {number}")
    spec["/proc/driver/nvidia-caps/mig-minors"] = "\n".join(table) + "\n"
    return host(directory, spec)


CASES = (
    Case("libraries of the driver", (50, 500, 5_000), driver_libraries),
    Case("entries of the ld cache", (1_000, 10_000, 60_000), cache_entries),
    Case("GPUs of seven MIG devices", (1, 4, 16), divided_gpus),
    Case("files of an image, directory", (2_000, 20_000, 200_000), image_files),
    Case("files of an image, archive", (2_000, 20_000, 200_000), archive_files),
    Case("layers of an archive", (1, 10, 100), archive_layers),
    Case("libraries that a program needs", (50, 500, 5_000), image_libraries),
)


def at_once(directory: Path, sizes: tuple[int, ...]) -> None:
    """Cold plans that start together, beside bare interpreters that do."""
    plan = [sys.executable, "-m", "gpubind", *driver_libraries(directory, 50)]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "GPUBIND_MEMO": "off", "GPUBIND_BOUNDS": "10"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print("\n| starts at once | s | ms a start | x bare interpreters |\n| --- | ---: | ---: | ---: |")
    for size in sizes:
        times = []
        for words in ([sys.executable, "-c", "pass"], plan):
            start = time.perf_counter()
            running = [subprocess.Popen(words, stdout=subprocess.DEVNULL, env=environ) for _ in range(size)]
            if any(process.wait() for process in running):
                raise SystemExit("a start failed")
            times.append(time.perf_counter() - start)
        print(f"| {size} | {times[1]:.2f} | {times[1] / size * 1e3:.1f} | {times[1] / times[0]:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="without the largest sizes")
    parser.add_argument("--only", help="the cases whose name has this in it")
    options = parser.parse_args()
    print("| what | how many | CPU ms | peak MiB | opened |\n| --- | --- | --- | --- | --- |")
    for case in CASES:
        if (options.only or "") not in case.name:
            continue
        rows = []
        for size in case.sizes[: 2 if options.small else 3]:
            with tempfile.TemporaryDirectory() as directory:
                found = took(case.words(Path(directory), size))
            rows.append([f"{number:,.0f}" for number in (size, found.ms, found.mib, found.opened)])
        print("|", " | ".join([case.name, *map(" / ".join, zip(*rows))]), "|", flush=True)
    if not options.only:
        with tempfile.TemporaryDirectory() as directory:
            at_once(Path(directory), (1, 20) if options.small else (1, 20, 200))


if __name__ == "__main__":
    main()
