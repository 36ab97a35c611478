"""The shape of the house: who may import whom, and where files, environment and processes are touched."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.golden import assert_listed, assert_none
from tests.support.sources import PACKAGE, modules, nodes

ROW = re.compile(r"^\| `([a-z]+)/` \| (M?) *\| ", re.MULTILINE)
TABLE = {room: bool(may) for room, may in ROW.findall((PACKAGE.parent / "ARCHITECTURE.md").read_text())}
"""The table of rooms in ARCHITECTURE.md: from the first, which imports none, to the last; whether each may import
machine/."""
ROOMS = ("frozen", "errors", *TABLE, "__main__")
IO = (*(room for room, may in TABLE.items() if may and room != "api"), "__main__.py")
"""The rooms and files that touch files, the environment or processes. A verb of api/ has others do it."""
IO_MODULES = {"subprocess", "tempfile", "shutil", "pathlib", "glob", "socket"}
IO_NAMES = {"open", "input", "print", "exec", "eval", "__import__"}
FUNCTION_LINES = 50


def room_of(module: Path) -> str:
    first = module.relative_to(PACKAGE).parts[0]
    return first[:-3] if first.endswith(".py") else first


def file_of(module: Path) -> str:
    return module.relative_to(PACKAGE.parent).as_posix()


def imports(module: Path) -> set[str]:
    """The gpubind rooms that *module* imports, wherever the import stands; those for type checking alone count too."""
    return {name.split(".")[1] for name in imported_names(module) if name.startswith("gpubind.")}


def imported_names(module: Path) -> Iterator[str]:
    """The dotted name of everything that *module* imports, wherever the import stands.

    Without `gpubind.__version__`: the package itself is always loaded before any of its modules.
    """
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name != "__version__")
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def dotted(module: Path) -> str:
    """The name by which *module* is imported."""
    parts = module.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph() -> dict[str, list[str]]:
    """What each module of the package imports of it. `from gpubind.files import Tree` is an import of that package."""
    names = {dotted(module): module for module in modules()}
    graph = {}
    for name, module in names.items():
        there = {i if i in names else i.rpartition(".")[0] for i in imported_names(module)}
        graph[name] = sorted(there & {*names} - {name})
    return graph


def circle_through(name: str, graph: dict[str, list[str]]) -> list[str]:
    """The shortest way along imports from *name* back to it; empty if there is none."""
    ways = [[name]]
    seen = set()
    for way in ways:  # grows: breadth first
        for imported in graph[way[-1]]:
            if imported == name:
                return [*way, name]
            if imported not in seen:
                seen.add(imported)
                ways.append([*way, imported])
    return []


def functions() -> list[tuple[str, int]]:
    """Every function of the package with its number of lines, from `def` to its end, docstring included."""
    found = []
    for module in modules():
        for node in nodes(module):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.append((f"{dotted(module)}.{node.name}", (node.end_lineno or 0) - node.lineno + 1))
    return found


def test_a_room_imports_only_from_rooms_above_it() -> None:
    order = {room: place for place, room in enumerate(ROOMS)}
    inner = [module for module in modules() if room_of(module) != "__init__"]
    below = ((m, room) for m in inner for room in sorted(imports(m)) if order[room] > order[room_of(m)])
    assert_none(
        (f"{file_of(m)} imports `{room}`, which is below `{room_of(m)}`" for m, room in below),
        "{}: move what both need into a room above, or give it as an argument (ARCHITECTURE.md has the order)",
    )


def test_a_room_without_an_m_does_not_import_machine() -> None:
    users = (file_of(m) for m in modules() if not TABLE.get(room_of(m), True) and "machine" in imports(m))
    assert_none(users, "{}: let a caller's `Host` or `Tree` do it")


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports in functions and for type checking alone count, too: who reads one file must read the whole circle."""
    graph = import_graph()
    circles = {name: circle_through(name, graph) for name in graph}
    found = (" -> ".join(circle) for circle in circles.values() if circle)
    assert_none(found, "{}: move what both need into a module that imports neither")


def test_no_function_is_longer_than_50_lines() -> None:
    assert_none(f"{name} has {lines} lines: divide it" for name, lines in functions() if lines > FUNCTION_LINES)


def test_every_module_lives_in_a_known_room() -> None:
    assert_listed(
        sorted({room_of(module) for module in modules()}),
        [*ROOMS, "__init__"],
        add="ARCHITECTURE.md, the table of rooms: remove `{}`",
        remove="ARCHITECTURE.md, the table of rooms: add `{}` to its place",
    )


def touches(module: Path) -> set[str]:
    """What *module* uses that reaches outside the process."""
    found = set()
    for node in nodes(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] in IO_MODULES | {"os", "sys"}}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in IO_MODULES | {"os"}:
            found.add(node.module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IO_NAMES:
            found.add(node.func.id)
    return found - {"sys"}


def test_files_environment_and_processes_stay_at_the_ends() -> None:
    pure = [module for module in modules() if not module.relative_to(PACKAGE).as_posix().startswith(IO)]
    of_types = {"gpubind.frozen": {"eval"}}  # the types of fields, which are text of gpubind's own
    found = ((module, touches(module) - of_types.get(dotted(module), set())) for module in pure)
    assert_none(
        (f"{file_of(module)} uses {', '.join(sorted(names))}" for module, names in found if names),
        "{}, and its room is pure: a room with an M in ARCHITECTURE.md is to do it and give it the result",
    )


def test_a_verb_prints_nothing_and_exits_nowhere() -> None:
    """It has no stream of its own, either: standard input is a value of its request."""
    names = {module: {node.id for node in nodes(module) if isinstance(node, ast.Name)} for module in modules()}
    found = (
        (module, names[module] & {"SystemExit", "exit", "sys"}) for module in modules() if room_of(module) == "api"
    )
    assert_none(
        (f"{file_of(module)} uses {', '.join(sorted(used))}" for module, used in found if used),
        "{}: the command reads, prints and exits; give the verb a value, or let it return one",
    )


def test_the_librarys_only_door_is_the_package() -> None:
    (door,) = (module for module in modules() if dotted(module) == "gpubind.api")
    assert_none(
        (f"{file_of(door)} imports {name}" for name in imported_names(door)),
        "{}: gpubind/__init__.py names what it has",
    )


def test_rich_is_imported_by_render_alone() -> None:
    users = (file_of(m) for m in modules() if "import rich" in m.read_text() or "from rich" in m.read_text())
    assert_listed(users, ["gpubind/cli/tables.py"], add="", remove="{}: tables are made by gpubind/cli/tables.py only")


def test_click_is_never_imported() -> None:
    assert_none(file_of(m) for m in modules() if "import click" in m.read_text())


def test_there_is_no_drawer() -> None:
    drawers = {"utils.py", "util.py", "helpers.py", "common.py", "base_utils.py", "misc.py"}
    assert_none((file_of(m) for m in modules() if m.name in drawers), "{}: name it for the one thing that it does")


def test_no_set_is_iterated_where_order_shows() -> None:
    """`for x in {...}` and `for x in set(...)` would make output depend on the hash seed."""
    for module in modules():
        for node in nodes(module):
            if isinstance(node, (ast.For, ast.comprehension)):
                source = node.iter
                is_set = isinstance(source, (ast.Set, ast.SetComp)) or (
                    isinstance(source, ast.Call)
                    and isinstance(source.func, ast.Name)
                    and source.func.id in ("set", "frozenset")
                )
                assert not is_set, f"{file_of(module)}:{source.lineno}: iterate over `sorted(...)` or a tuple"


def folder_of(name: str, graph: dict[str, list[str]]) -> str:
    """The package that the module *name* is in; a package's own file is in it."""
    return name if any(other.startswith(f"{name}.") for other in graph) else name.rpartition(".")[0]


def test_no_two_folders_import_each_other() -> None:
    """A folder and one inside it may: they are one story."""
    graph = import_graph()
    pairs = {(folder_of(name, graph), folder_of(other, graph)) for name in graph for other in graph[name]}
    both = {pair for pair in pairs if pair[::-1] in pairs and not f"{max(pair)}.".startswith(f"{min(pair)}.")}
    pairs_of = (" and ".join(pair) for pair in sorted(both) if pair[0] < pair[1])
    assert_none(pairs_of, "{} import each other: move what both need into a third folder, or all of one into the other")


def test_a_class_name_has_one_meaning() -> None:
    names: dict[str, list[str]] = {}
    for module in modules():
        for node in nodes(module):
            if isinstance(node, ast.ClassDef):
                names.setdefault(node.name, []).append(dotted(module))
    twice = (f"{name} in {' and '.join(places)}" for name, places in names.items() if len(places) > 1)
    assert_none(twice, "{}: give one of the classes another name")
