"""A record answers what its host answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional, Union

import pytest

import gpubind
from gpubind.errors import FormatError, HostReadError, NotRecordedError, UsageError
from gpubind.files.live import LiveTree
from gpubind.host import Host, ListFile
from gpubind.host.live import LiveHost
from gpubind.host.record import parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.model import Missing, Request, RootedPath
from gpubind.model.data import BUNDLED_HOSTS
from gpubind.model.layouts import library_directories
from tests.law.records import broken
from tests.support.driver import V, cache, debian, host, kernel, libraries, rhel, ubuntu
from tests.support.images import glibc, image
from tests.support.trees import Dir, File, Link, Spec, make_tree, record

HOSTS_TRIED, ASKED = 3, 30
"""`make law` tries more."""
SITE = "/opt/site/nvidia/550/lib64"
STORE = "/nix/store/0a1b2c-nvidia-x11/lib"
TESLA, LEGACY = (f"/usr/lib/x86_64-linux-gnu/nvidia/{name}" for name in ("tesla-470", "legacy-390xx"))


def links(directory: str, target: str) -> Spec:
    """A link in *directory* to each of the driver's sonames in *target*."""
    names = [path.rpartition("/")[2] for path, item in libraries(target).items() if isinstance(item, Link)]
    return {f"{directory}/{name}": Link(f"{target}/{name}") for name in names}


def in_cache(spec: Spec, directory: str) -> Spec:
    return {**spec, "/etc/ld.so.cache": cache(spec, [directory])}


LAYOUTS: dict[str, Spec] = {
    "firmware": {**ubuntu(), f"/usr/lib/firmware/nvidia/{V}/gsp_ga10x.bin": b"\0firmware"},
    "tesla-470": in_cache(libraries(TESLA), TESLA),
    "legacy": in_cache({**libraries(LEGACY), "/usr/lib64": Dir()}, LEGACY),
    "links": {**libraries(SITE), **links("/usr/lib64", SITE), f"{SITE}/vdpau/libvdpau_nvidia.so.1": b""},
    "store": {**libraries(STORE), **links("/run/opengl-driver/lib", STORE)},
    "alternatives": {**debian(), "/etc/alternatives/nvidia": Link("/usr/lib/nvidia/current")},
    "installer": {**rhel(), "/usr/lib/nvidia/a/b.sh": "#!/bin/sh\n", "/etc/modprobe.d/nvidia.conf": "options nvidia\n"},
}


def again(made: Host, request: Request = Request()) -> RecordedHost:  # noqa: B008 - a frozen value
    return RecordedHost(parse_record(gpubind.record(made, request=request).encode()), made.label)


@pytest.mark.parametrize("seed", range(HOSTS_TRIED))
def test_a_record_answers_what_its_host_answers_whatever_the_layout_and_the_options(seed: int) -> None:
    assert broken(f"sample:{seed}", ASKED) == ""


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_record_of_a_real_layout_can_be_planned_checked_and_asked_for_its_gpus(name: str) -> None:
    machine = host(LAYOUTS[name], kernel())
    recorded, opened = again(machine), image(glibc("2.31"))
    for request in (Request(), Request(libc="host"), Request(source="driver", vendors=("nvidia",))):
        made = gpubind.plan(machine, request, image=opened)
        assert gpubind.plan(recorded, request, image=opened).to_json() == made.to_json()
        assert gpubind.check(recorded, made, opened) == gpubind.check(machine, made, opened)
        assert [mount for mount in made.mounts if "libcuda.so.1" in mount.target]


@pytest.mark.parametrize("name", BUNDLED_HOSTS)
def test_a_record_can_be_made_of_a_record_and_answers_the_same(name: str) -> None:
    shipped = gpubind.open_host(name)
    assert gpubind.plan(again(shipped), Request()).to_json() == gpubind.plan(shipped, Request()).to_json()


def test_a_directory_that_is_known_since_is_no_question_to_an_older_record_and_a_named_one_is() -> None:
    made = record({**ubuntu(), **kernel(), "/usr/local": Dir()})
    local = made.driver.directories["/usr/local"]._replace(listed=False)  # what is not in it was not looked for
    directories = {**made.driver.directories, "/usr/local": local}
    older = RecordedHost(made._replace(driver=made.driver._replace(directories=directories)), "older")
    assert "/usr/local/nvidia/lib64" in library_directories("x86_64")
    assert gpubind.plan(older, Request()).mounts == gpubind.plan(RecordedHost(made, "all"), Request()).mounts
    with pytest.raises(NotRecordedError):
        gpubind.plan(older, Request(library_path=(RootedPath("/usr/local/nvidia/lib64"),)))


def test_a_record_holds_the_directories_that_it_is_told_of(tmp_path: Path) -> None:
    make_tree(tmp_path, {**libraries("/opt/apps/lib64"), "/usr/lib64": Dir(), "/opt/other/libcuda.so.1": b""})
    machine = gpubind.open_host(root=tmp_path, dev_root=tmp_path)
    asked = Request(library_path=(RootedPath("/opt/apps/lib64"),))
    assert gpubind.plan(again(machine, asked), asked).to_json() == gpubind.plan(machine, asked).to_json()
    with pytest.raises(NotRecordedError):
        gpubind.plan(again(machine, asked), Request(library_path=(RootedPath("/opt/other"),)))


@pytest.mark.parametrize(
    ("words", "environ"),
    [(("--library-path", "/opt/apps/lib64"), {}), ((), {"GPUBIND_LIBRARY_PATH": "/opt/apps/lib64"})],
    ids=["option", "variable"],
)
def test_the_command_records_the_library_path_that_plan_would_search(
    roots_own: Path, words: tuple[str, ...], environ: dict[str, str]
) -> None:
    root, file = roots_own / "root", roots_own / "r.json"
    make_tree(root, {**libraries("/opt/apps/lib64"), "/usr/lib64": Dir()})
    at = ("--root", str(root), "--dev-root", str(root))
    assert run("record", "-o", str(file), *at, *words, environ=environ).returncode == 0
    search = ("--library-path", "/opt/apps/lib64")
    live, recorded = run("plan", "--json", *at, *search), run("plan", "--json", "--host", str(file), *search)
    assert (live.returncode, live.stdout) == (recorded.returncode, recorded.stdout)
    assert "libcuda.so.1" in live.stdout


def run(*words: str, environ: Optional[dict[str, str]] = None) -> subprocess.CompletedProcess[str]:
    around = {**os.environ, **(environ or {})}
    return subprocess.run(
        [sys.executable, "-m", "gpubind", *words], capture_output=True, text=True, env=around, check=False
    )


@pytest.mark.parametrize(
    "request_",
    [Request(library_path=(RootedPath("/home/alice/lib"),)), Request(cdi_directories=("/root/cdi",))],
    ids=["library-path", "cdi-dir"],
)
def test_a_directory_in_somebodys_home_is_refused(request_: Request) -> None:
    with pytest.raises(UsageError, match="home") as caught:
        gpubind.record(host(rhel(), kernel()), request=request_)
    assert caught.value.code == "home-in-record"


def test_a_malformed_list_is_told_and_no_record_is_written() -> None:
    with pytest.raises(FormatError, match="list file"):
        gpubind.record(host(rhel(), kernel()), listfile=ListFile("mine.conf", b"[none\n", shipped=False))


class Changing(LiveTree):
    """Files of which one is gone after its directory was listed."""

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        names = super()._list(path)
        if path == "/usr/lib64":
            os.unlink(f"{self.root}/usr/lib64/libcuda.so")
        return names


def test_a_record_that_would_answer_otherwise_is_an_error(tmp_path: Path) -> None:
    make_tree(tmp_path, rhel())
    machine = LiveHost(str(tmp_path), str(tmp_path))
    machine.driver = machine.dev = Changing(str(tmp_path))
    with pytest.raises(HostReadError) as caught:
        gpubind.record(machine)
    assert (caught.value.code, caught.value.where) == ("unfaithful-record", str(tmp_path))


def test_of_the_processor_a_record_has_what_the_loader_asks_for() -> None:
    text = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: avx2 fma\nserial\t: 7\n\nflags\t: none\n"
    recorded = again(host(rhel(), kernel(), {"/proc/cpuinfo": text}))
    assert recorded.dev.read("/proc/cpuinfo") == b"vendor_id\t: GenuineIntel\nflags\t\t: avx2 fma\n"


def test_a_program_is_kept_as_facts_and_never_as_bytes() -> None:
    machine = host(rhel(), kernel(), {"/etc/vulkan/icd.d/nvidia_icd.json": File(b"\x7fELF" + bytes(60))})
    bodies = [
        entry.body
        for directory in parse_record(gpubind.record(machine).encode()).driver.directories.values()
        for name, entry in directory.entries.items()
        if "libcuda" in name
    ]
    assert set(bodies) == {None}
