"""The shape of the house: who may import whom, and where files, environment and processes are touched."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "gpubind"

# A room imports only from rooms above it. errors and model are free to all.
ROOMS = (
    "errors",
    "model",
    "arch",
    "formats",
    "data",
    "findings",
    "blob",
    "tree",
    "layouts",
    "cuda",
    "host",
    "ldso",
    "image",
    "sources",
    "gpus",
    "planner",
    "like",
    "runtimes",
    "wrap",
    "rules",
    "documents",
    "explanation",
    "facade",
    "stage",
    "execute",
    "cli",
    "__main__",
)
IO_ROOMS = {"data", "blob", "tree", "host", "image", "stage", "execute", "cli", "__main__"}
IO_MODULES = {"subprocess", "tempfile", "shutil", "pathlib", "glob", "socket"}
IO_NAMES = {"open", "input", "print", "exec", "eval", "__import__"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(module: Path) -> str:
    first = module.relative_to(PACKAGE).parts[0]
    return first[:-3] if first.endswith(".py") else first


def imports(module: Path) -> set[str]:
    """The gpubind rooms that *module* imports, wherever the import stands; those for type checking alone count too."""
    rooms = set()
    for node in ast.walk(ast.parse(module.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "gpubind" else [f"gpubind.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("gpubind.") and name != "gpubind.__version__"}
    return rooms


@pytest.mark.parametrize("module", modules(), ids=lambda m: str(m.relative_to(PACKAGE)))
def test_a_room_imports_only_from_rooms_above_it(module: Path) -> None:
    room = room_of(module)
    if room == "__init__":
        return
    above = set(ROOMS[: ROOMS.index(room) + 1])
    assert imports(module) <= above, f"{module.name} imports from below: {imports(module) - above}"


def test_every_module_lives_in_a_known_room() -> None:
    assert {room_of(module) for module in modules()} == {*ROOMS, "__init__"}


def touches(module: Path) -> set[str]:
    """What *module* uses that reaches outside the process."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] in IO_MODULES | {"os", "sys"}}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in IO_MODULES | {"os"}:
            found.add(node.module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IO_NAMES:
            found.add(node.func.id)
    return found - {"sys"}


@pytest.mark.parametrize("module", modules(), ids=lambda m: str(m.relative_to(PACKAGE)))
def test_files_environment_and_processes_stay_at_the_ends(module: Path) -> None:
    if room_of(module) not in IO_ROOMS:
        assert touches(module) == set()


def test_rich_is_imported_by_render_alone() -> None:
    users = {
        str(m.relative_to(PACKAGE)) for m in modules() if "import rich" in m.read_text() or "from rich" in m.read_text()
    }
    assert users == {"cli/render.py"}


def test_click_is_never_imported() -> None:
    assert not [m for m in modules() if "import click" in m.read_text()]


def test_there_is_no_drawer() -> None:
    drawers = {"utils.py", "util.py", "helpers.py", "common.py", "base_utils.py", "misc.py"}
    assert not [m for m in modules() if m.name in drawers]


def test_no_set_is_iterated_where_order_shows() -> None:
    """`for x in {...}` and `for x in set(...)` would make output depend on the hash seed."""
    for module in modules():
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, (ast.For, ast.comprehension)):
                source = node.iter
                is_set = isinstance(source, (ast.Set, ast.SetComp)) or (
                    isinstance(source, ast.Call)
                    and isinstance(source.func, ast.Name)
                    and source.func.id in ("set", "frozenset")
                )
                assert not is_set, f"{module}:{source.lineno}"
