"""gpubind in one file, as `make dist` packs it: however that file is named."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Optional

import pytest

import gpubind
from gpubind.model.data import BUNDLED_HOSTS

PACKAGE = Path(gpubind.__file__).parent
PACKAGING = PACKAGE.parent / "packaging"


def pack(made: Path, byte_code: Optional[Path] = None) -> Path:
    """Write the package into a zip with its list files beside its data, as in a wheel.

    With *byte_code* its sources are none that Python could run.
    """
    with zipfile.ZipFile(made, "w") as archive:
        for base, name in ((PACKAGE, ""), (PACKAGE.parent / "etc", "etc/")):
            for file in sorted(path for path in base.rglob("*") if path.suffix in (".py", ".json", ".conf")):
                is_broken = byte_code is not None and file.suffix == ".py"
                archive.writestr(f"gpubind/{name}{file.relative_to(base)}", "(" if is_broken else file.read_bytes())
        for file in sorted(byte_code.iterdir()) if byte_code else ():
            archive.write(file, f"bytecode/{file.name}")
        archive.write(PACKAGING / "guard.py", "__main__.py")
        archive.write(PACKAGING / "one_file.py", "one_file.py")
    return made


@pytest.fixture(scope="module", params=["sources", "byte code"])
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("packed")
    packed = pack(directory / "gpubind.pyz")
    if request.param == "byte code":
        (directory / "codes").mkdir()
        words = [sys.executable, str(PACKAGING / "byte_code.py"), str(packed), str(directory / "codes")]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        pack(packed, directory / "codes")
    return packed


@pytest.mark.parametrize("how", ["absolute", "relative", "dotted", "below"])
def test_one_file_finds_its_modules_and_data_however_it_is_named(packed: Path, how: str) -> None:
    above = packed.parent.parent
    at, name = {
        "absolute": (above, str(packed)),
        "relative": (packed.parent, packed.name),
        "dotted": (packed.parent, f"./{packed.name}"),
        "below": (above, f"./{packed.parent.name}/{packed.name}"),
    }[how]
    site = os.pathsep.join(path for path in sys.path if path not in ("", str(PACKAGE.parent)))
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": site, "GPUBIND_MEMO": "off"}
    words = [sys.executable, name, "check", "-q", "--nv", "--host", BUNDLED_HOSTS[0]]
    done = subprocess.run(words, capture_output=True, text=True, cwd=at, env=environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_each_python_can_read_what_refuses_the_older_ones() -> None:
    """Python 2 and 3.x before 3.9 parse the whole file before they run it."""
    tree = ast.parse((PACKAGING / "guard.py").read_text(encoding="ascii"))
    syntax = (
        ast.Module,
        ast.Expr,
        ast.Import,
        ast.If,
        ast.Assign,
        ast.Raise,
        ast.alias,
        ast.expr_context,
        ast.operator,
    )
    values = (ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.Call, ast.BinOp, ast.Compare, ast.Lt)
    assert [ast.dump(node) for node in ast.walk(tree) if not isinstance(node, syntax + values)] == []
    assert [node for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.cause] == []
    assert "from __future__" not in (PACKAGING / "guard.py").read_text()


def test_byte_code_is_the_same_each_time(tmp_path: Path) -> None:
    """Python's caches, which the machine's addresses order, hold some names of a program and not others."""
    made = pack(tmp_path / "gpubind.pyz")
    written: set[bytes] = set()
    for number in range(3):
        directory = tmp_path / str(number)
        directory.mkdir()
        words = [sys.executable, str(PACKAGING / "byte_code.py"), str(made), str(directory)]
        environ = {"PYTHONHASHSEED": "0", "LONG": "x" * 1000 * number}
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environ)
        written.update(file.read_bytes() for file in directory.iterdir())
    assert len(written) == 1


@pytest.mark.parametrize(("shell", "file"), [("bash", "gpubind.bash"), ("zsh", "_gpubind"), ("fish", "gpubind.fish")])
def test_a_wheel_has_the_completions_that_gpubind_prints(shell: str, file: str) -> None:
    done = subprocess.run([sys.executable, "-m", "gpubind", "completion", shell], capture_output=True, text=True)
    assert (PACKAGING / "completion" / file).read_text().startswith(done.stdout)
