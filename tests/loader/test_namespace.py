"""What a process in a container sees: links across mounts, mounts over mounts, what the user brings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest

from gpubind.files.facts import NAMED_LIBRARIES
from gpubind.files.live import LiveTree
from gpubind.loader.container import Container
from gpubind.loader.namespace import UserBind, UserMounts
from gpubind.loader.search import Loader
from gpubind.model import ContainerPath, EnvVar, HostPath, Missing, Mount
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.trees import Dir, Link, Spec, make_tree, recorded_tree

LIBS = "/.gpubind/libs"
USR = "/usr/lib/x86_64-linux-gnu"


class Place:
    """A directory of this machine with *files*, and an image over which it can be bound."""

    def __init__(self, directory: Path, files: Spec) -> None:
        self.root = os.path.realpath(directory)
        self.local = make_tree(self.root, files)

    def bind(self, source: str, target: str) -> UserBind:
        return UserBind(HostPath(self.root + source), ContainerPath(target))

    def container(
        self, inside: Spec, *binds: tuple[str, str], plan: Sequence[str] = (), **own_mounts: object
    ) -> Container:
        """*inside* with *binds* over it, then *plan*: libraries of the host by target."""
        mounts = [planned(target) for target in plan]
        host = recorded_tree(
            {f"/lib/{m.source.rpartition('/')[2]}": elf("libhost.so") for m in mounts if m.source}, "/h"
        )
        own = str(own_mounts.pop("own", ""))
        values = UserMounts(tuple(self.bind(*bind) for bind in binds), **own_mounts)  # type: ignore[arg-type]
        env = (EnvVar("LD_LIBRARY_PATH", "prepend", LIBS, ":", "libraries"),)
        return Container(image(glibc(), inside).loader, host, mounts, env, own, values, self.local)

    def of(self, container: Container, path: str) -> Optional[str]:
        """Which file *path* is: `image:...`, `plan:...`, or a path in this place."""
        found = container.locate(path)
        if found is None:
            return None
        whose = "plan:" if found.mount else "" if found.bind else "image:"
        return whose + found.tree_path


def planned(target: str) -> Mount:
    source = HostPath(f"/h/lib/{target.rpartition('/')[2]}")
    return Mount(
        "nvidia", source, None, ContainerPath(target), "library", None, None, None, None, ("ro",), False, 1, "liblist"
    )


def setting(name: str, value: str, op: str = "set") -> EnvVar:
    return EnvVar(name, op, value, None, "user")  # type: ignore[arg-type]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """/site/lib/libmpi.so.12 by way of links, and more."""
    return Place(
        tmp_path,
        {
            "/site/1.2/libmpi.so.12": elf("libmpi.so.12"),
            "/site/1.2/tuned.so": elf("libmpi.so.12"),
            "/site/lib": Link("1.2"),
            "/site/absolute": Link("/site/1.2"),
            "/site/etc/conf": Link("/etc/passwd"),
            "/other/libmpi.so.12": elf("libmpi.so.12", defines=("libmpi.so.12", "MPI_2")),
            "/home/me/a.out": elf(kind=2, needed=("libmpi.so.12",)),
            "/home/me/link": Link("../me/a.out"),
        },
    )


def test_a_file_of_a_bound_directory_is_found(place: Place) -> None:
    made = place.container({}, ("/site", "/opt/site"))
    assert place.of(made, "/opt/site/1.2/libmpi.so.12") == "/site/1.2/libmpi.so.12"
    assert place.of(made, "/opt/site/lib/libmpi.so.12") == "/site/1.2/libmpi.so.12"
    assert place.of(made, "/opt/site/../site/lib/libmpi.so.12") == "/site/1.2/libmpi.so.12"
    assert place.of(made, "/site/1.2/libmpi.so.12") is None


def test_an_absolute_link_in_a_bind_counts_in_the_container(place: Place) -> None:
    assert place.of(place.container({}, ("/site", "/opt/site")), "/opt/site/absolute/libmpi.so.12") is None
    assert place.of(place.container({}, ("/site", "/site")), "/site/absolute/libmpi.so.12") == "/site/1.2/libmpi.so.12"
    assert place.of(place.container({}, ("/site", "/site")), "/site/etc/conf") == "image:/etc/passwd"


def test_a_link_of_the_image_leads_into_a_bind_and_into_the_plan(place: Place) -> None:
    links: Spec = {"/usr/mpi": Link("/opt/site/lib"), "/usr/lib/libcuda.so": Link(f"../..{LIBS}/libcuda.so.1")}
    made = place.container(links, ("/site", "/opt/site"), plan=[f"{LIBS}/libcuda.so.1"])
    assert place.of(made, "/usr/mpi/libmpi.so.12") == "/site/1.2/libmpi.so.12"
    assert place.of(made, "/usr/lib/libcuda.so") == "plan:/lib/libcuda.so.1"


def test_a_bind_onto_a_link_lies_where_the_link_leads(place: Place) -> None:
    made = place.container({"/usr/mpi": Link("/opt/mpi"), "/opt/mpi/old": b""}, ("/site/lib", "/usr/mpi"))
    assert place.of(made, "/opt/mpi/libmpi.so.12") == "/site/1.2/libmpi.so.12"
    assert place.of(made, "/opt/mpi/old") is None
    made = place.container({"/usr/mpi": Link("/opt/mpi/lib")}, ("/site/lib", "/usr/mpi/deep"))
    assert place.of(made, "/usr/mpi/deep/libmpi.so.12") == "/site/1.2/libmpi.so.12"


def test_a_later_bind_covers_an_earlier_one(place: Place) -> None:
    path = "/opt/mpi/libmpi.so.12"
    one, other = ("/site/lib", "/opt/mpi"), ("/other", "/opt/mpi")
    assert place.of(place.container({}, one, other), path) == "/other/libmpi.so.12"
    assert place.of(place.container({}, other, one), path) == "/site/1.2/libmpi.so.12"


def test_a_bind_of_a_directory_covers_what_was_bound_below_it(place: Place) -> None:
    file = ("/other/libmpi.so.12", "/opt/mpi/sub/libmpi.so.12")
    directory = ("/site/lib", "/opt/mpi")
    assert place.of(place.container({}, directory, file), file[1]) == "/other/libmpi.so.12"
    assert place.of(place.container({}, file, directory), file[1]) is None
    assert place.of(place.container({}, file, directory), "/opt/mpi/libmpi.so.12") == "/site/1.2/libmpi.so.12"


def test_a_bind_of_a_file_covers_that_of_the_image(place: Place) -> None:
    made = place.container({f"{USR}/libmpi.so.12": elf("libmpi.so.12")}, ("/other/libmpi.so.12", f"{USR}/libmpi.so.12"))
    assert place.of(made, f"{USR}/libmpi.so.12") == "/other/libmpi.so.12"
    assert place.of(made, f"{USR}/libc.so.6") == f"image:{USR}/libc.so.6"


def test_the_plan_lies_over_what_the_user_binds(place: Place) -> None:
    made = place.container({}, ("/other", LIBS), plan=[f"{LIBS}/libcuda.so.1"])
    assert place.of(made, f"{LIBS}/libcuda.so.1") == "plan:/lib/libcuda.so.1"
    assert place.of(made, f"{LIBS}/libmpi.so.12") == "/other/libmpi.so.12"


def test_a_bind_of_the_whole_root_leaves_nothing_of_the_image(place: Place) -> None:
    made = place.container({}, ("/site", "/"))
    assert place.of(made, "/lib/libmpi.so.12") == "/site/1.2/libmpi.so.12"
    assert place.of(made, f"{USR}/libc.so.6") is None


def test_a_file_is_no_directory(place: Place) -> None:
    made = place.container({}, ("/site", "/opt/site"))
    for path in ("/opt/site/1.2/libmpi.so.12/", "/opt/site/1.2/libmpi.so.12/..", "/opt/site/1.2"):
        assert place.of(made, path) is None


def test_links_in_circles_across_binds_end(tmp_path: Path) -> None:
    place = Place(tmp_path, {"/a/x": Link("/b/x"), "/b/x": Link("/a/x"), "/c": Link("/c")})
    made = place.container({}, ("/a", "/a"), ("/b", "/b"))
    assert place.of(made, "/a/x") is None
    assert place.container({"/loop": Link("/loop")}, ("/a", "/loop/x")).locate("/loop/x/x") is None


def test_a_bind_of_what_is_not_there_brings_nothing(place: Place) -> None:
    made = place.container({}, ("/nowhere", "/opt"))
    assert made.unreadable_mounts == ()
    assert place.of(made, "/opt/x") is None


def test_binds_of_a_host_that_is_elsewhere_are_not_seen(place: Place) -> None:
    binds = (place.bind("/site", "/opt/site"),)
    made = Container(
        image(glibc()).loader, recorded_tree({}), (), (), "", UserMounts(binds, unknown_options=("--overlay x",))
    )
    assert made.unreadable_mounts == ("--overlay x", f"{place.root}/site, bound to /opt/site")
    assert made.locate("/opt/site/lib/libmpi.so.12") is None


def test_a_relative_path_counts_from_the_working_directory(place: Place) -> None:
    home = ("/home", "/home")
    made = place.container({}, home, working_directory=ContainerPath("/home/me"))
    for path in ("a.out", "./a.out", "link", "../me/./a.out"):
        assert place.of(made, path) == "/home/me/a.out"
    assert place.of(made, "./b.out") is None
    assert place.of(place.container({}, home), "./a.out") is None


def test_the_users_library_path_comes_first_then_the_plans_then_the_images(place: Place) -> None:
    env = (setting("LD_LIBRARY_PATH", "/u:/v"), setting("LD_LIBRARY_PATH", "/w", "append"))
    made = place.container({}, own="/own", env=env)
    assert made.library_path == ("/u", "/v", LIBS, "/own", "/w")
    assert place.container({}).library_path == (LIBS,)
    gone = (EnvVar("LD_LIBRARY_PATH", "unset", None, None, "user"),)
    assert place.container({}, own="/own", env=gone).library_path == ()


def test_an_empty_element_of_the_library_path_is_the_working_directory(place: Place) -> None:
    env = (setting("LD_LIBRARY_PATH", ":lib"),)
    made = place.container({}, env=env, working_directory=ContainerPath("/home/me"))
    assert made.library_path == ("/home/me", "/home/me/lib", LIBS)
    assert place.container({}, env=env).library_path == (LIBS,)


@pytest.mark.parametrize(
    ("name", "value", "fails"),
    [
        ("LD_LIBRARY_PATH", "/opt/site/lib", False),
        ("LD_LIBRARY_PATH", "/opt/site", True),
        ("LD_PRELOAD", "/opt/site/lib/libmpi.so.12", False),
        ("LD_PRELOAD", "/opt/nothing.so /opt/site/lib/libmpi.so.12", False),
        ("LD_PRELOAD", "/opt/site/lib/tuned.so", False),
        ("LD_PRELOAD", "/opt/nothing.so", True),
        ("PATH", "/opt/site/lib", True),
    ],
)
def test_a_program_of_the_home_finds_what_the_user_brings(place: Place, name: str, value: str, fails: bool) -> None:
    made = place.container({}, ("/home", "/home"), ("/site", "/opt/site"), env=(setting(name, value),))
    assert bool(made.failures("/home/me/a.out")) == fails


def test_what_is_bound_over_a_default_directory_is_found(place: Place) -> None:
    made = place.container({}, ("/home", "/home"), ("/other/libmpi.so.12", f"{USR}/libmpi.so.12"))
    assert made.failures("/home/me/a.out") == ()


def test_the_tree_of_a_container_answers_as_the_tree_that_holds_the_file(tmp_path: Path) -> None:
    names = {".rodata": b"\0libnvidia-ml.so.1\0" + bytes(2 << 20)}
    place = Place(tmp_path / "place", {"/site/libbig.so": elf("libbig.so", more=names)})
    inside = make_tree(tmp_path / "image", {**glibc(), "/opt/libown.so": elf("libown.so", more=names)})
    binds = UserMounts((place.bind("/site", "/opt/site"),))
    tree = Container(Loader(inside), recorded_tree({}), (), (), "", binds, place.local).tree
    for path, there, at in [
        ("/opt/libown.so", inside, "/opt/libown.so"),
        ("/opt/site/libbig.so", place.local, "/site/libbig.so"),
    ]:
        assert tree.head(path, 16) == there.head(at, 16) == elf()[:16]
        assert tree.fact(path, NAMED_LIBRARIES) == there.fact(at, NAMED_LIBRARIES)
        assert not isinstance(tree.fact(path, NAMED_LIBRARIES), Missing)


def test_a_directory_of_the_plan_is_looked_into(tmp_path: Path) -> None:
    host = make_tree(tmp_path, {"/opt/rocm/lib/libhip.so": elf("libhip.so"), "/opt/rocm/empty": Dir()})
    mount = planned("/opt/rocm")._replace(kind="directory", source=HostPath(f"{host.root}/opt/rocm"))
    made = Container(image(glibc()).loader, host, (mount,), (), "")
    found = made.locate("/opt/rocm/lib/libhip.so")
    assert found is not None
    assert found.mount == mount


def test_a_tree_of_this_machine_is_asked_for_a_path_of_another_root_as_for_none() -> None:
    local = LiveTree("/proc")
    bind = UserBind(HostPath("/etc"), ContainerPath("/etc"))
    made = Container(image(glibc()).loader, recorded_tree({}), (), (), "", UserMounts((bind,)), local)
    assert made.unreadable_mounts == ("/etc, bound to /etc",)
