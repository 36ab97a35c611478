"""One host, one plan: from inside and outside, live and recorded, whichever source, interpreter or hash seed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.machine import Bind, Machine, document, here

pytestmark = pytest.mark.live

WHO = pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
LOADED = pytest.mark.parametrize("driver", [True, False], ids=["loaded", "unloaded"])
VARIANTS = {
    "default": (),
    "like": ("--like", "apptainer"),
    "source-driver": ("--source", "driver"),
    "compute": ("--caps", "compute"),
    "all": ("--caps", "all"),
    "no-completion": ("--no-completion",),
}
ARGUMENTS = pytest.mark.parametrize("arguments", VARIANTS.values(), ids=VARIANTS)
INSIDE_RECORD = "/srv/record.json"


def plan_here(*arguments: str) -> str:
    """What `gpubind plan` says on this machine."""
    return here(sys.executable, "-m", "gpubind", "plan", "--json", *arguments)


@WHO
@LOADED
def test_a_record_gives_the_bytes_of_the_live_host(node: Machine, tmp_path: Path, user: bool, driver: bool) -> None:
    file = written(tmp_path / "record.json", node.gpubind("record", "-o", "-", user=user, driver=driver))
    binds = [Bind(file, INSIDE_RECORD)]
    for arguments in VARIANTS.values():
        live = node.gpubind("plan", "--json", *arguments, user=user, driver=driver)
        replay = ("plan", "--json", *arguments, "--host", INSIDE_RECORD)
        assert node.gpubind(*replay, user=user, driver=driver, binds=binds) == live, arguments
        assert plan_here(*arguments, "--host", file) == live, arguments


@pytest.mark.parametrize("tree", ["trixie", "nv535", "flat550"])
def test_a_record_of_a_root_directory_gives_its_bytes(rig: str, tmp_path: Path, tree: str) -> None:
    root = ("--root", f"{rig}/hosts/{tree}", "--dev-root", f"{rig}/hosts/{tree}")
    file = written(tmp_path / "record.json", here(sys.executable, "-m", "gpubind", "record", "-o", "-", *root))
    for arguments in VARIANTS.values():
        assert plan_here(*arguments, "--host", file) == plan_here(*arguments, *root), arguments


@WHO
def test_a_record_is_the_same_twice(trixie: Machine, user: bool) -> None:
    first, second = (
        trixie.gpubind("record", "-o", "-", user=user, driver=True, env={"PYTHONHASHSEED": seed}) for seed in ("1", "2")
    )
    assert first == second


@WHO
@ARGUMENTS
def test_the_hash_seed_changes_nothing(trixie: Machine, user: bool, arguments: tuple[str, ...]) -> None:
    first, second = (
        trixie.gpubind("plan", "--json", *arguments, user=user, driver=True, env={"PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    )
    assert first == second


@ARGUMENTS
def test_a_root_directory_gives_the_plan_of_the_host_that_it_is(trixie: Machine, arguments: tuple[str, ...]) -> None:
    inside = document(trixie.gpubind("plan", "--json", *arguments))
    outside = document(plan_here(*arguments, "--root", trixie.root))
    assert outside["digest"] == inside["digest"]
    expected = without_root(outside, trixie.root)
    for key, value in inside.items():
        assert expected[key] == value, key


@ARGUMENTS
def test_the_root_is_the_default_of_the_dev_root(trixie: Machine, arguments: tuple[str, ...]) -> None:
    root = ("--root", trixie.root)
    assert plan_here(*arguments, *root, "--dev-root", trixie.root) == plan_here(*arguments, *root)


@WHO
@LOADED
def test_the_digest_is_the_same_whichever_source_served(node: Machine, user: bool, driver: bool) -> None:
    plans = {
        source: document(node.gpubind("plan", "--json", "--source", source, user=user, driver=driver))
        for source in ("liblist", "driver")
    }
    contents = {source: [contained(mount) for mount in plan["mounts"]] for source, plan in plans.items()}
    assert contents["driver"] == contents["liblist"]
    assert plans["driver"]["digest"] == plans["liblist"]["digest"]


def test_every_interpreter_gives_the_same_bytes(interpreters: dict[str, Machine]) -> None:
    arguments = ("--host", "debian13-nvidia550")
    expected = plan_here(*arguments)
    for python, machine in interpreters.items():
        assert machine.gpubind("plan", "--json", *arguments) == expected, python


def written(path: Path, text: str) -> str:
    """*path*, with *text* in it, open to the ordinary user."""
    path.write_text(text)
    path.chmod(0o644)
    return str(path)


def contained(mount: dict[str, Any]) -> tuple[str, ...]:
    """What a container sees of *mount*, and where it comes from."""
    return (mount["target"], mount["source"], mount["capability"])


def without_root(plan: dict[str, Any], root: str) -> dict[str, Any]:
    """*plan*, made from outside, as it would be inside *root*: other paths on the host, else the same."""
    for driver in plan["drivers"]:
        assert driver["root"] == root
        driver["root"] = "/"
    for member in (*plan["mounts"], *plan["devices"]):
        if member["source"] is not None:
            assert member["source"].startswith(f"{root}/")
            member["source"] = member["source"][len(root) :]
    for finding in plan["findings"]:
        finding["where"] = finding["where"] and finding["where"].replace(f"{root}/", "/")
    return plan
