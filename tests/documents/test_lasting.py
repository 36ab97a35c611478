"""Documents that somebody reads later: by the command line, with a place for generated files that stays."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gpubind.cli.commands.plan import _need_hook
from gpubind.documents import PERSISTENT_DOCUMENTS
from gpubind.errors import HostReadError
from tests.support.driver import kernel, rhel
from tests.support.forked import run_forked
from tests.support.images import glibc
from tests.support.trees import Node, Spec, make_tree

HOST = "debian13-nvidia550"
ALL = (*PERSISTENT_DOCUMENTS, "oci")
"""Those of a runtime's, too, that somebody reads later."""
KEPT = [name for name in ALL if name not in PERSISTENT_DOCUMENTS or PERSISTENT_DOCUMENTS[name].outlives_command]
NIX = "/nix/store/x/lib"
ICD: Spec = {
    "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json": json.dumps(
        {"file_format_version": "1.0.1", "ICD": {"library_path": f"{NIX}/libGLX_nvidia.so.0"}}
    )
}


def gpubind(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GPUBIND_", "APPTAINER", "CUDA_"))}
    return run_forked(words, {**kept, "GPUBIND_MEMO": "off", **environ}, module="tests.support.ordinary")


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A host with a manifest that must be changed for any container."""
    directory = tmp_path / "root"
    files: Spec = {**rhel(), **kernel(), **ICD}
    make_tree(directory, {path: item for path, item in files.items() if not isinstance(item, Node)})
    return str(directory)


@pytest.mark.parametrize("name", PERSISTENT_DOCUMENTS)
def test_every_document_is_data_on_stdout_and_the_same_each_time(name: str) -> None:
    first, second = (gpubind("plan", "-q", "--format", name, "--host", HOST) for _ in range(2))
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == second.stdout
    assert first.stdout.endswith("\n")


def words(directory: Path, name: str) -> tuple[str, ...]:
    """The options for the document *name*; `oci` edits what there is."""
    if name in PERSISTENT_DOCUMENTS:
        return ("--format", name)
    if not (directory / "bundle").exists():
        make_tree(directory / "bundle/rootfs", glibc())
    document = {"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {"cwd": "/", "args": ["x"]}}
    (directory / "bundle/config.json").write_text(json.dumps(document))
    return ("--format", name, "--image", str(directory / "bundle"))


@pytest.mark.parametrize("name", KEPT)
def test_a_document_that_is_kept_points_to_nothing_that_is_cleaned_up(tmp_path: Path, root: str, name: str) -> None:
    cache = tmp_path / "cache"
    done = gpubind("plan", "-q", *words(tmp_path, name), "--root", root, XDG_CACHE_HOME=str(cache))
    assert done.returncode == 6
    assert done.stdout == ""
    assert "error: no-stage-dir: " in done.stderr
    assert "nvidia_icd.x86_64.json" in done.stderr
    assert "hint: " in done.stderr
    assert not cache.exists()


@pytest.mark.parametrize("name", ALL)
def test_a_directory_that_stays_holds_the_generated_files(tmp_path: Path, root: str, name: str) -> None:
    stays, cache = tmp_path / "stays", tmp_path / "cache"
    plan = ("plan", "-q", *words(tmp_path, name), "--root", root)
    done = gpubind(*plan, "--stage-dir", str(stays), XDG_CACHE_HOME=str(cache))
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = os.listdir(stays)
    assert f"{stays}/{file}" in done.stdout
    assert not cache.exists()
    assert gpubind(*plan, GPUBIND_STAGE_DIR=str(stays)).stdout == done.stdout
    assert os.listdir(stays) == [file]


def test_a_relative_directory_is_written_whole(tmp_path: Path, root: str) -> None:
    directory = os.path.relpath(tmp_path / "stays")
    done = gpubind("plan", "-q", "--format", "cdi", "--root", root, "--stage-dir", directory)
    assert f'"hostPath": "{tmp_path}/stays/' in done.stdout


def test_lines_of_a_taskprolog_are_read_at_once_and_may_point_to_the_cache(tmp_path: Path, root: str) -> None:
    done = gpubind("plan", "-q", "--format", "taskprolog", "--root", root, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 0
    assert f"{tmp_path}/cache/gpubind/" in done.stdout


@pytest.mark.parametrize("name", [name for name in KEPT if name in PERSISTENT_DOCUMENTS])
def test_what_the_callers_job_has_is_in_no_document_that_is_kept(name: str) -> None:
    words = ("plan", "-q", "--format", name, "--host", HOST)
    mine = gpubind(*words, CUDA_VISIBLE_DEVICES="1", APPTAINER_BIND="/x", APPTAINERENV_LD_LIBRARY_PATH="/y")
    assert mine.stdout == gpubind(*words).stdout
    assert "CUDA_VISIBLE_DEVICES" not in mine.stdout


@pytest.mark.parametrize("name", PERSISTENT_DOCUMENTS)
def test_what_a_flavour_would_bind_is_no_document(name: str) -> None:
    done = gpubind("plan", "--format", name, "--like", "apptainer", "--host", HOST)
    assert done.returncode == 2
    assert "like-in-words" in done.stderr


@pytest.mark.parametrize("name", PERSISTENT_DOCUMENTS)
def test_no_document_is_quoted_for_a_shell_nor_takes_a_runtimes_own_words(name: str) -> None:
    for more in (("--format", "sh"), ("--backend-arg=--contain",)):
        assert gpubind("plan", "--format", name, *more, "--host", HOST).returncode == 2


@pytest.mark.parametrize("name", ["compose", "kubernetes", "lmod"])
def test_libraries_that_no_loader_would_find_are_refused(name: str) -> None:
    done = gpubind("plan", "--format", name, "--libdir", "/x", "--host", HOST)
    assert done.returncode == 2
    assert "fixed-libdir" in done.stderr


def test_a_hook_that_others_could_change_is_none_for_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = tmp_path / "nvidia-cdi-hook"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    monkeypatch.setattr("gpubind.machine.trust.acts_as_root", lambda: True)
    monkeypatch.setattr("gpubind.machine.trust.writable_by_others", lambda path: str(tmp_path))
    with pytest.raises(HostReadError) as caught:
        _need_hook(str(hook))
    assert (caught.value.code, caught.value.where) == ("no-cdi-hook", str(hook))


def test_a_stage_directory_that_cannot_be_made_is_named(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").write_text("")
    done = gpubind("plan", "-q", "--format", "cdi", "--root", root, "--stage-dir", str(tmp_path / "file" / "x"))
    assert done.returncode == 4
    assert "unwritable-file" in done.stderr
    assert str(tmp_path / "file" / "x") in done.stderr
