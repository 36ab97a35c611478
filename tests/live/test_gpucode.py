"""The GPU code of files that NVIDIA's own tools write, and what `cuobjdump` says of it.

The wheels have 48 MB. The code does nothing: only its architectures matter.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpubind.files.facts import GPU_CODE
from gpubind.files.live import LiveTree
from gpubind.model import Missing
from gpubind.model.gpucode import GpuCode
from tests.support.elf import elf

pytestmark = pytest.mark.live

WHEELS = ("nvidia-cuda-nvcc==13.5.37", "nvidia-cuda-cuobjdump==13.5.37")
TRIES = 3
PTX = ".version 9.0\n.target sm_{}\n.address_size 64\n.visible .entry k() {{ret;}}\n"
ARCHS = (
    *("75", "80", "86", "89", "90", "90a", "100", "100a", "100f"),
    *("103", "103a", "103f", "110f", "120", "120a", "120f", "121", "121a", "121f"),
)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of `ptxas`, `fatbinary` and `cuobjdump`."""
    place = tmp_path_factory.mktemp("cuda")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place), *WHEELS]
    for number in range(TRIES):
        if subprocess.run(pip).returncode == 0:
            break
        time.sleep(5 * number)
    directory = place / "nvidia" / "cu13" / "bin"
    for name in ("ptxas", "fatbinary", "cuobjdump"):
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def images(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with PTX and machine code for each architecture."""
    place = tmp_path_factory.mktemp("images")
    for arch in ARCHS:
        (place / f"{arch}.ptx").write_text(PTX.format(arch))
        subprocess.run(
            [tools / "ptxas", "-arch", f"sm_{arch}", f"{arch}.ptx", "-o", f"{arch}.cubin"], cwd=place, check=True
        )
    return place


@pytest.mark.parametrize("options", [(), ("--compress-all",), ("--concat", "--compress-all")], ids=" ".join)
def test_the_code_that_fatbinary_packs_is_what_cuobjdump_lists(
    tools: Path, images: Path, tmp_path: Path, options: Sequence[str]
) -> None:
    words = [
        f"--image3=kind={kind},sm={arch},file={arch}.{end}"
        for arch in ARCHS
        for kind, end in (("elf", "cubin"), ("ptx", "ptx"))
    ]
    packed = tmp_path / "packed.fatbin"
    subprocess.run([tools / "fatbinary", f"--create={packed}", "--64", *options, *words], cwd=images, check=True)
    library = tmp_path / "libx.so"
    library.write_bytes(elf("libx.so", more={".nv_fatbin": packed.read_bytes()}))
    code = LiveTree(str(tmp_path)).fact("/libx.so", GPU_CODE)
    assert isinstance(code, GpuCode)
    assert code.unread is None
    assert {*code.code} == {f"sm_{arch}" for arch in ARCHS}
    assert {*code.ptx} == {f"compute_{arch}" for arch in ARCHS}
    # It calls machine code for sm_100f sm_100.
    assert {one.rstrip("f") for one in code.code} == listed(tools, library, "elf")
    assert {one.replace("compute", "sm") for one in code.ptx} == listed(tools, library, "ptx")


def listed(tools: Path, library: Path, kind: str) -> set[str]:
    """The architectures of what `cuobjdump` lists of that *kind*."""
    done = subprocess.run([tools / "cuobjdump", f"--list-{kind}", library], capture_output=True, text=True, check=True)
    return set(re.findall(r"\.(sm_[0-9]+[af]?)\.", done.stdout))


def test_the_tools_themselves_have_no_gpu_code(tools: Path) -> None:
    code = LiveTree(str(tools)).fact("/ptxas", GPU_CODE)
    assert not isinstance(code, Missing)
    assert not code
