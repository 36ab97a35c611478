"""From which directories a Python of a container imports."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from gpubind.loader.container import Container
from gpubind.loader.python import PythonPaths, find_python_paths, is_python, site_packages
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.trees import File, Link, Spec, recorded_tree

PYTHON: Spec = {"/usr/bin/python3.11": File(elf(kind=2), 0o755), "/usr/bin/python3": Link("python3.11")}
SITE = "/lib/python3.11/site-packages"
DIST = "/lib/python3/dist-packages"


def paths(inside: Spec, path: str = "/usr/bin/python3", env: Mapping[str, str] = MappingProxyType({})) -> PythonPaths:
    made = Container(image(glibc(), PYTHON, inside).loader, recorded_tree({}), (), (), "")
    file = made.locate(path)
    assert file is not None
    assert is_python(file)
    return find_python_paths(made.tree, file, env)


def packages(*directories: str) -> Spec:
    return {f"{directory}/x.py": "" for directory in directories}


def test_a_systems_python_has_packages_in_usr_local_and_usr() -> None:
    inside = packages(f"/usr{DIST}", f"/usr{SITE}", f"/usr/local{SITE}", "/usr/lib64/python3.11/site-packages")
    found = paths({**inside, **packages("/usr/lib/python3.12/site-packages", "/opt/lib/python3/site-packages")})
    assert found == PythonPaths(
        "/usr/bin/python3",
        ("/usr/local", "/usr"),
        (f"/usr/local{SITE}", f"/usr{DIST}", f"/usr{SITE}", "/usr/lib64/python3.11/site-packages"),
    )


ENVIRONMENT: Spec = {"/venv/bin/python": Link("/usr/bin/python3.11"), **packages(f"/venv{SITE}", f"/usr{SITE}")}


@pytest.mark.parametrize(
    ("place", "text", "prefixes", "more"),
    [
        ("/venv", "home = /usr/bin\n", ("/venv",), False),
        ("/venv", "home = /usr/bin\ninclude-system-site-packages = true\n", ("/venv", "/usr/local", "/usr"), True),
        ("/venv", "HOME=/usr/bin\nInclude-System-Site-Packages = TRUE", ("/venv", "/usr/local", "/usr"), True),
        ("/venv", "home = usr\ninclude-system-site-packages = true\n", ("/venv",), False),
        ("/venv", "include-system-site-packages = false\nhome = /usr/bin\n", ("/venv",), False),
        ("/venv/bin", "", ("/venv/bin",), False),
    ],
)
def test_a_virtual_environment_has_its_own_packages_and_perhaps_the_systems(
    place: str, text: str, prefixes: tuple[str, ...], more: bool
) -> None:
    inside: Spec = {**ENVIRONMENT, f"{place}/pyvenv.cfg": text, **packages(f"/home/me/.local{SITE}")}
    found = paths(inside, "/venv/bin/python", {"HOME": "/home/me"})
    own = (f"/venv{SITE}",) if place == "/venv" else ()
    users = (f"/home/me/.local{SITE}",) if "include-system-site-packages = true" in text.lower() else ()
    assert found == PythonPaths("/venv/bin/python", prefixes, (*users, *own, *((f"/usr{SITE}",) if more else ())))


@pytest.mark.parametrize(
    ("env", "directories"),
    [
        ({}, ()),
        ({"HOME": "/home/me"}, (f"/home/me/.local{SITE}",)),
        ({"HOME": "home/me"}, ()),
        ({"HOME": "/home/me", "PYTHONNOUSERSITE": "1"}, ()),
        ({"HOME": "/home/me", "PYTHONUSERBASE": "/base"}, (f"/base{SITE}",)),
        ({"HOME": "/home/me", "PYTHONUSERBASE": "base"}, ()),
        ({"PYTHONPATH": "/a:b:/none:/c/../c/"}, ("/a", "/c")),
        ({"PYTHONPATH": "/c", "HOME": "/home/me"}, ("/c", f"/home/me/.local{SITE}")),
    ],
)
def test_variables_add_directories_in_front(env: Mapping[str, str], directories: tuple[str, ...]) -> None:
    inside = packages(f"/home/me/.local{SITE}", f"/base{SITE}", "/a", "/b", "/c", f"/usr{SITE}")
    assert paths(inside, env=env).packages == (*directories, f"/usr{SITE}")


@pytest.mark.parametrize(
    ("home", "prefixes"),
    [("/opt/py", ("/opt/py",)), ("/opt/py:/x", ("/opt/py",)), ("/usr", ("/usr/local", "/usr")), ("", None)],
)
def test_pythonhome_is_the_prefix(home: str, prefixes: object) -> None:
    found = paths(packages(f"/opt/py{SITE}"), env={"PYTHONHOME": home})
    assert found.prefixes == (prefixes or ("/usr/local", "/usr"))
    assert found.packages == ((f"/opt/py{SITE}",) if "/opt/py" in found.prefixes else ())


def test_a_link_elsewhere_has_the_prefixes_of_both_places() -> None:
    inside: Spec = {"/opt/py/bin/python3": File(elf(kind=2), 0o755), "/app/bin/python": Link("/opt/py/bin/python3")}
    inside = {**inside, **packages("/opt/py/lib/python3.9/site-packages", "/app/lib/python3.9/site-packages")}
    assert paths(inside, "/app/bin/python") == PythonPaths(
        "/app/bin/python",
        ("/app", "/opt/py"),
        ("/app/lib/python3.9/site-packages", "/opt/py/lib/python3.9/site-packages"),
    )


@pytest.mark.parametrize(("names", "found"), [(("python3.9",), True), (("python3.9", "python3.10"), False)])
def test_the_version_is_that_of_the_only_directory_of_libraries(names: tuple[str, ...], found: bool) -> None:
    inside: Spec = {"/opt/bin/python3": File(elf(kind=2), 0o755), **packages(*(f"/opt/lib/{name}/x" for name in names))}
    inside = {**inside, **packages("/home/.local/lib/python3.9/site-packages")}
    users = "/home/.local/lib/python3.9/site-packages"
    assert (users in paths(inside, "/opt/bin/python3", {"HOME": "/home"}).packages) == found


def test_pth_files_add_existing_directories() -> None:
    lines = "# x\n\nimport sys\nimport\tos\n/more/a\nsub/../rel\n/none\n/more/a\n"
    inside: Spec = {**packages(f"/usr{SITE}", "/more/a", f"/usr{SITE}/rel", "/more/b"), f"/usr{SITE}/a.pth": lines}
    inside = {**inside, f"/usr{SITE}/b.txt": "/more/b\n"}
    assert paths(inside).packages == (f"/usr{SITE}", "/more/a", f"/usr{SITE}/rel")


def test_64_pth_files_and_64_lines_of_each_are_read() -> None:
    site = f"/usr{SITE}"
    inside: Spec = {f"{site}/{number:03}.pth": f"/d/{number}\n" for number in range(65)}
    found = paths({**inside, **packages(*(f"/d/{number}" for number in range(65)))}).packages
    assert found == (site, *(f"/d/{number}" for number in range(64)))
    inside = {f"{site}/a.pth": "".join(f"/d/{number}\n" for number in range(65))}
    found = paths({**inside, **packages(*(f"/d/{number}" for number in range(65)))}).packages
    assert found == (site, *(f"/d/{number}" for number in range(64)))


def test_without_a_version_the_packages_of_every_python_are_given() -> None:
    tree = recorded_tree(packages("/p/lib/python3.9/x", "/p/lib64/python3/x", "/p/lib/python2.7/x", "/p/lib/perl/x"))
    assert list(site_packages(tree, "/p")) == [
        "/p/lib/python3.9/site-packages",
        "/p/lib/python3.9/dist-packages",
        "/p/lib64/python3/site-packages",
        "/p/lib64/python3/dist-packages",
    ]
