"""`make stacks`: build the images, and say where they, LLVM's tools and gpubind differ from tests/data/stacks.json."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpubind.formats.gpucode.sycl import EMPTY
from gpubind.image.gpucode import read_gpu_code
from gpubind.image.needs import read_needs
from gpubind.image.open import open_image
from tests.image.cuda_trees import SITE
from tests.stacks.build import base, build, compile_program
from tests.stacks.llvm import SYCL, needed, processors, sections, tool
from tests.support.stacks import AMD, on_amd, on_intel_machines, worst

DATA = Path(__file__).parent.parent / "data" / "stacks.json"
LIBRARY = re.compile(r"lib[\w-]+\.so\.[0-9]+")
CODE = ("gpu-code-missing", "gpu-code-unread")


def of_amd(stack: dict[str, Any], image: Path, scratch: Path) -> Iterator[str]:
    """Yield how the *image* of a *stack* differs from what is known of it, and from what gpubind says."""
    real = {path for path in image.rglob("*.so*") if path.is_file() and ".hip_fatbin" in sections(path)}
    recorded = {place(image, path): set(archs.split()) for path, ((archs, _),) in stack["files"].items()}
    for path in sorted({path.resolve() for path in real} - {path.resolve() for path in recorded}):
        yield f"{path} has code, and is not in the table"
    with open_image(str(image)) as opened:
        read = {place(image, one.path): set(one.gpu_code.code) for one in read_gpu_code(opened)}
        for path, archs in recorded.items():
            told = archs if path.is_dir() else processors(path, scratch)
            if not told == archs == read.get(path):
                yield f"{path}: {archs} in the table, {told} by LLVM, {read.get(path)} by gpubind"
        for name, libraries in stack["needed"].items():
            if not set(libraries) <= set(needed(place(image, name))):
                yield f"{name} does not need all of {libraries}"
        verdicts = "".join(worst(on_amd(machine, opened, "6.2.4", *CODE)) for machine in AMD)
        if verdicts != stack["verdicts"]:
            yield f"verdicts about code: {verdicts}, not {stack['verdicts']}"
        for finding in on_amd("MI100", opened, None, "framework-library"):
            named, lacking = set(LIBRARY.findall(finding.what)), missing(image, finding.where or "")
            if named != lacking:
                yield f"{finding.where} lacks {lacking} by the loader, {named} by gpubind"
        for rocm in ("6.2.4", None):
            codes = ("framework-library", *(("userspace-missing",) if stack["libraries"] == "E" else ()))
            verdicts = "".join(worst(on_amd(machine, opened, rocm, *codes)) for machine in AMD)
            if verdicts != stack["libraries"] * len(AMD):
                yield f"verdicts about libraries on hosts with ROCm {rocm}: {verdicts}"


def of_intel(stack: dict[str, Any], image: Path) -> Iterator[str]:
    """Yield how the *image* of a *stack* for Intel differs from what is known of it."""
    libraries = (path for path in image.rglob("*.so*") if path.is_file() and not path.is_symlink())
    real = {path for path in libraries if any(size > EMPTY for name, (_, size) in sections(path).items() if SYCL(name))}
    with open_image(str(image)) as opened:
        needs, verdicts = read_needs(opened), on_intel_machines(opened)
    read = {place(image, one.path) for one in needs.gpu_code if "intel" in one.gpu_code.vendors}
    yield from (f"{path} has code of SYCL, and gpubind reads none" for path in sorted(real - read))
    yield from (f"gpubind reads code of SYCL in {path}, which has no section for it" for path in sorted(read - real))
    if verdicts != stack["verdicts"].replace(" ", ""):
        yield f"verdicts: {verdicts}, not {stack['verdicts']}"
    if [one.name for one in needs.intel] != stack["uses"]:
        yield f"gpubind says {[one.name for one in needs.intel]}, not {stack['uses']}"


def of_programs(programs: dict[str, str], image: Path, scratch: Path) -> Iterator[str]:
    """Yield the *programs* that LLVM, or gpubind, reads otherwise than they were made."""
    base(image)
    for number, (archs, known) in enumerate(programs.items()):
        program = image / f"usr/bin/program{number}"
        compile_program(archs, tool("clang"), program)
        if processors(program, scratch) != set(archs.split()):
            yield f"{archs}: {processors(program, scratch)} by LLVM"
        with open_image(str(image)) as opened:
            name = f"/usr/bin/{program.name}"
            found = (on_amd(machine, opened, None, "gpu-code-missing", program=name) for machine in AMD)
            verdicts = "".join(map(worst, found))
        if verdicts != known:
            yield f"{archs}: {verdicts}, not {known}"


def missing(image: Path, file: str) -> set[str]:
    """Return the libraries that the loader of *image* does not find for its *file*."""
    script = 'LD_TRACE_LOADED_OBJECTS=1 exec /lib64/ld-linux-x86-64.so.2 "$0"'
    command = ["unshare", "--map-root-user", "--root", str(image), "/bin/sh", "-c", script, file]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the loader of an image was not started: {done.stderr}")
    return set(re.findall(r"(\S+) => not found", done.stdout))


def place(image: Path, path: str) -> Path:
    """Return the file *path* of the table, or of the image, as it is in *image*."""
    below = path if path.startswith("/") else f"{SITE}/{path}"
    return Path(f"{image}{below}")


def main(directory: Path, *names: str) -> int:
    """Compare the stacks whose names begin with one of *names*, or all, in *directory*; return the exit status."""
    data = json.loads(DATA.read_text())
    wrong = 0
    groups = {**data["amd"], "programs": {}}, data["intel"]
    for stacks in groups:
        for name, stack in stacks.items():
            if (names and not name.startswith(names)) or (stack and "build" not in stack):
                continue
            image = Path(tempfile.mkdtemp(dir=directory))
            scratch = directory / "piece"
            if name == "programs":
                found = list(of_programs(data["programs"], image, scratch))
            else:
                build(stack, directory / "downloads", image)
                found = list(of_intel(stack, image) if stacks is data["intel"] else of_amd(stack, image, scratch))
            print(f"{name}: {'; '.join(found) or 'as known'}", flush=True)  # noqa: T201
            wrong += bool(found)
            shutil.rmtree(image)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
