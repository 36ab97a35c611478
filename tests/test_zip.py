"""gpubind in one file, as `make dist` packs it: however that file is named."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gpubind
from gpubind.model.data import HOSTS

PACKAGE = Path(gpubind.__file__).parent


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in a zip with its list files beside its data, as in a wheel."""
    made = tmp_path_factory.mktemp("packed") / "gpubind.pyz"
    with zipfile.ZipFile(made, "w") as archive:
        for base, name in ((PACKAGE, ""), (PACKAGE.parent / "etc", "etc/")):
            for file in sorted(path for path in base.rglob("*") if path.suffix in (".py", ".json", ".conf")):
                archive.write(file, f"gpubind/{name}{file.relative_to(base)}")
        archive.writestr("__main__.py", "from gpubind.__main__ import main\nraise SystemExit(main())\n")
    return made


@pytest.mark.parametrize("how", ["absolute", "relative", "dotted", "below"])
def test_one_file_finds_its_data_however_it_is_named(packed: Path, how: str) -> None:
    above = packed.parent.parent
    at, name = {
        "absolute": (above, str(packed)),
        "relative": (packed.parent, packed.name),
        "dotted": (packed.parent, f"./{packed.name}"),
        "below": (above, f"./{packed.parent.name}/{packed.name}"),
    }[how]
    site = os.pathsep.join(path for path in sys.path if path not in ("", str(PACKAGE.parent)))
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": site, "GPUBIND_MEMO": "off"}
    words = [sys.executable, name, "check", "-q", "--nv", "--host", HOSTS[0]]
    done = subprocess.run(words, capture_output=True, text=True, cwd=at, env=environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
