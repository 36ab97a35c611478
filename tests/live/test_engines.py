"""docker and podman, started by gpubind: a private dockerd, podman of root and of an ordinary user, the real driver."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.live import c_library
from tests.live.containers import EXCLUDES, MOUNTED_IMAGES, PROBE, image, listing
from tests.live.driver_shown import PUBLIC_NODES, VERSION
from tests.live.engine_starts import (
    DAEMON,
    IMPORT,
    LIMITS,
    RIG_SCRIPTS,
    Engine,
    dockerd,
    gpubind,
    run,
    start,
)
from tests.live.machine import RIG, Machine
from tests.live.registry import Registry, registry
from tests.live.table import Shows
from tests.live.trials import need_right
from tests.support.images import glibc
from tests.support.layers import archive, docker_archive, tar
from tests.support.trees import File, Item, Link

pytestmark = pytest.mark.live

SUITES = ("bullseye", "bookworm")
OWN = "/own/lib"
"""The LD_LIBRARY_PATH of the images in the stores."""
CONFIGURATION = (f"ENV LD_LIBRARY_PATH={OWN}", "WORKDIR /opt", 'ENTRYPOINT ["/bin/echo","entry"]')
COMMIT = """
made=$(podman create --network=none rig:gl)
podman commit --quiet {changes} $made engines:gl
podman rm $made
"""


STORED = [Engine(p, f"engines:{s}", u) for p, u in (("docker", False), ("podman", True)) for s in SUITES]
DIRECTORIES = [Engine("podman", image(suite)) for suite in SUITES]
ROOTS = Engine("podman", "rig:gl")
ROOTS_CONFIGURED = Engine("podman", "engines:gl")
EACH = [
    Engine("docker", "engines:bookworm"),
    Engine("podman", image("bookworm")),
    Engine("podman", "engines:bookworm", True),
]
NAMES = ("rig:gl", "podman:rig:gl", "podman:localhost/rig:gl")
"""One image, with its store and without."""
LAYERED = "localhost/layered:1"
IN_STORES = [Engine("docker", LAYERED), Engine("podman", LAYERED), Engine("podman", LAYERED, True)]


def engines(listed: Sequence[Engine]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("engine", listed, ids=str)


@pytest.fixture(scope="module")
def stores(trixie: Machine) -> Iterator[Machine]:
    """The machine with a dockerd of its own, and with images in docker's store and the ordinary user's podman's."""
    with dockerd(trixie):
        try:
            changes = shlex.join([word for line in CONFIGURATION for word in ("--change", line)])
            for engine in STORED:
                _, _, suite = engine.image.partition(":")
                words = IMPORT.format(program=engine.program, suite=suite, changes=changes, excludes=EXCLUDES)
                run(trixie, engine, "sh", "-ec", words)
            run(trixie, ROOTS, "sh", "-ec", COMMIT.format(changes=changes))
            yield trixie
        finally:
            run(trixie, ROOTS, "podman", "rmi", "--force", ROOTS_CONFIGURED.image)
    run(trixie, STORED[-1], "podman", "rmi", "--force", *(f"engines:{suite}" for suite in SUITES))


@functools.cache
def look(machine: Machine, engine: Engine) -> dict[str, Any]:
    """What rig/inside.py says in a container."""
    report: dict[str, Any] = json.loads(start(machine, engine, "python3", "-c", PROBE))
    return report


@engines([*STORED, *DIRECTORIES, ROOTS])
def test_the_driver_runs_and_finds_no_gpu(stores: Machine, engine: Engine, shows: Shows) -> None:
    report = look(stores, engine)
    assert report["status"] == {"cuInit": 100, "nvmlInit": 9, "nvidia-smi": 9}
    assert len(report["libraries"]) > 30
    other = {name: why for name, why in report["unloadable"].items() if "cannot open shared object file" not in why}
    assert other == {}
    assert [line for lines in report["unlinked"].values() for line in lines if VERSION.search(line)] == []
    for suite in SUITES:
        if engine.image.endswith(suite):
            shows(engine.row, suite)
            shows(engine.row, f"{suite} loads")


@engines([*STORED, ROOTS])
def test_what_check_predicts_is_seen(stores: Machine, engine: Engine) -> None:
    image = engine.image if engine.image.startswith("/") else f"{engine.program}:{engine.image}"
    words = ["check", "--try", "--json", "--backend", engine.program, *engine.arguments, "--image", image]
    document = json.loads(run(stores, engine, "python3", "-m", "gpubind", *words).stdout)
    assert need_right(document)["loads", True, True] > 25


@engines([*STORED, *DIRECTORIES, ROOTS])
def test_every_mount_is_read_only_and_each_node_is_usable(stores: Machine, engine: Engine, shows: Shows) -> None:
    report = look(stores, engine)
    mounts = {path: found for path, found in report["mounts"].items() if not path.endswith("-init")}
    assert "/.gpubind/libs/libcuda.so.1" in mounts
    assert {path: options for path, (options, _) in mounts.items() if "ro" not in options.split(",")} == {}
    assert {answer for _, answer in mounts.values()} <= ({"EACCES", "EROFS"} if engine.user else {"EROFS"})
    assert {path: report["devices"].get(path) for path in PUBLIC_NODES} == dict.fromkeys(PUBLIC_NODES, "ENXIO")
    assert "/dev/kfd" not in report["devices"]
    for asked in ("read-only", "a write fails", "chosen ones usable"):
        shows(engine.row, asked)


@engines([STORED[0], STORED[2]])
def test_an_images_programs_run_on_the_hosts_c_library(stores: Machine, engine: Engine) -> None:
    options = [*c_library.VENDORS, *c_library.HOSTS]
    said = start(stores, engine, "python3", "-c", c_library.PROBE, options=options)
    who = "an ordinary user" if engine.user else "root"
    found = c_library.report(said)
    c_library.hold(stores, f"{engine.program}, {who}", "bullseye", found, but=("packages",))  # no /var


@engines([STORED[0], STORED[-1], ROOTS])
@pytest.mark.parametrize("flags", [("--gpus", "all"), ("--device=nvidia.com/gpu=all",)], ids=" ".join)
def test_a_line_of_their_own_gives_the_driver_that_exec_gives(
    stores: Machine, engine: Engine, flags: tuple[str, ...]
) -> None:
    own = [word.partition("=")[2] for word in engine.arguments]
    line = [engine.program, "run", "--rm", "--entrypoint", "", *own, *flags, engine.image, "python3", "-c", PROBE]
    report = json.loads(run(stores, engine, "python3", "-m", "gpubind", "wrap", "--", *line).stdout)
    seen = look(stores, engine)
    assert (report["status"], report["libraries"]) == (seen["status"], seen["libraries"])
    assert report["devices"] == seen["devices"]


@engines(EACH)
def test_chosen_nodes_alone_are_there(stores: Machine, engine: Engine, shows: Shows) -> None:
    script = "for n in 0 1; do test -e /dev/nvidia$n && echo $n; done; echo $CUDA_VISIBLE_DEVICES"
    assert start(stores, engine, "sh", "-c", script, options=["--gpus", "1"]) == "1\n0\n"
    shows(engine.row, "others absent")


@engines([*EACH, ROOTS_CONFIGURED])
def test_the_images_value_and_the_users_are_kept(stores: Machine, engine: Engine, shows: Shows) -> None:
    script = "import ctypes, os; print(os.environ['LD_LIBRARY_PATH'], ctypes.CDLL('libcuda.so.1').cuInit(0))"
    own = f":{OWN}" if engine.has_configuration else ""
    assert start(stores, engine, "python3", "-c", script) == f"/.gpubind/libs{own} 100\n"
    users = ["--backend-arg=-e", "--backend-arg=LD_LIBRARY_PATH=/users"]
    assert start(stores, engine, "python3", "-c", script, options=users) == f"/users:/.gpubind/libs{own} 100\n"
    shows(engine.row, "the user's")
    if own:
        shows(engine.row, "the image's")


@engines(EACH)
def test_nothing_of_the_callers_comes_in_by_itself(stores: Machine, engine: Engine) -> None:
    words = gpubind(engine, "sh", "-c", "pwd; echo $SECRET; echo $NVIDIA_VISIBLE_DEVICES")
    done = run(stores, engine, *words, env={"SECRET": "1", "NVIDIA_VISIBLE_DEVICES": "all"})
    assert done.stdout == f"{'/opt' if engine.has_configuration else '/'}\n\nvoid\n"


@engines([EACH[0], EACH[2]])
def test_run_has_the_images_entrypoint(stores: Machine, engine: Engine) -> None:
    assert run(stores, engine, *gpubind(engine, "a", "b", action="run")).stdout == "entry a b\n"
    assert run(stores, engine, *gpubind(engine, "-c", "echo shell", action="shell")).stdout == "shell\n"


@engines(EACH)
@pytest.mark.parametrize(("command", "status"), [("exit 0", 0), ("exit 42", 42), ("exit 255", 255)])
def test_the_exit_code_is_the_childs(stores: Machine, engine: Engine, command: str, status: int, shows: Shows) -> None:
    start(stores, engine, "sh", "-c", command, options=["-q"], status=status)
    shows(engine.row, "exit code")


@engines(EACH)
@pytest.mark.parametrize(("command", "status"), [("/etc/passwd", 126), ("nothere", 127)])
def test_a_command_that_cannot_start_is_told_as_by_a_shell(
    stores: Machine, engine: Engine, command: str, status: int
) -> None:
    start(stores, engine, command, options=["-q"], status=status)


SIGNALLED = """
out=$(mktemp)
env --default-signal=INT {start} sh -c 'echo ready; exec sleep 30' > $out < /dev/null &
pid=$!
until grep -q ready $out; do sleep 0.1; kill -0 $pid; done
kill -{signal} $pid
wait $pid && echo ended 0 || echo ended $?
rm $out
"""


@engines(EACH)
@pytest.mark.parametrize(("signal", "status"), [("TERM", 143), ("INT", 130)])
def test_a_signal_to_the_process_ends_the_child(
    stores: Machine, engine: Engine, signal: str, status: int, shows: Shows
) -> None:
    script = SIGNALLED.format(start=shlex.join([*gpubind(engine)[:-1], "-q", engine.image]), signal=signal)
    assert run(stores, engine, "sh", "-ec", script).stdout == f"ended {status}\n"
    shows(engine.row, f"SIG{signal}")


@engines(EACH)
def test_standard_input_is_the_childs_and_so_is_a_terminal(stores: Machine, engine: Engine, shows: Shows) -> None:
    piped = f"echo through | {shlex.join(gpubind(engine, 'cat', options=['-q']))} | cat"
    assert run(stores, engine, "sh", "-ec", piped).stdout == "through\n"
    # podman may lose what a container writes to a terminal in its very last moment: it ends when that was read.
    asks = ["sh", "-c", "test -t 0 && test -t 1 && echo a terminal && read answer"]
    words = shlex.quote(shlex.join(gpubind(engine, *asks, options=["-q"])))
    script = f"""
        out=$(mktemp)
        (for try in $(seq 300); do ! grep -q 'a terminal' $out || break; sleep 0.1; done; echo) |
            script -qfec {words} $out > /dev/null
        cat $out; rm $out
    """
    assert "a terminal\n" in run(stores, engine, "sh", "-ec", script).stdout  # beside what the terminal echoes
    shows(engine.row, "standard input")
    shows(engine.row, "terminal")


@engines([*EACH, ROOTS])
def test_nothing_is_left(stores: Machine, engine: Engine, shows: Shows) -> None:
    before = listing(f"{RIG}/ct/bookworm")
    command = shlex.join(gpubind(engine, "sh", "-c", "echo > /x; ! echo > /.gpubind/libs/libcuda.so.1", options=["-q"]))
    # Another test's containers are called made-...
    left = f"({engine.program} ps --all --format '{{{{.Names}}}}' | grep -v ^made- || true)"
    left += MOUNTED_IMAGES if engine == ROOTS else ""
    assert run(stores, engine, "sh", "-ec", f"{command}; {left}").stdout == ""
    assert listing(f"{RIG}/ct/bookworm") == before
    shows(engine.row, "nothing left")


@engines([EACH[0], EACH[2]])
@pytest.mark.parametrize("is_known", [True, False], ids=["image", "no-image"])
def test_the_printed_words_bring_the_same_driver(stores: Machine, engine: Engine, is_known: bool) -> None:
    script = "import ctypes, os; print(os.environ['LD_LIBRARY_PATH'], ctypes.CDLL('libcuda.so.1').cuInit(0))"
    looked = f"--image {engine.program}:{engine.image}" if is_known else ""
    plan = f"words=$(python3 -m gpubind plan -q --nv --format {engine.program} {looked})"
    rig = "--pid host" if engine.user else ""
    entry = f"--entrypoint '' --network none {rig} $words {engine.image} python3 -c {shlex.quote(script)}"
    done = run(stores, engine, "sh", "-ec", f"{plan}; {engine.program} run --rm {entry}")
    assert done.stdout == (f"/.gpubind/libs:{OWN} 100\n" if is_known else f"{OWN} 100\n")


@engines(EACH)
def test_shared_memory_is_as_large_as_the_hosts(stores: Machine, engine: Engine) -> None:
    room = "df --output=size,target /dev/shm | tail -1"
    host = int(run(stores, engine, "sh", "-c", room).stdout.split()[0])
    size, place = start(stores, engine, "sh", "-c", room).split()
    assert (int(size), place) == (host, "/dev/shm")
    fill = "head -c 80000000 /dev/zero > /dev/shm/f && stat -c %a /dev/shm"
    assert start(stores, engine, "sh", "-c", fill) == "1777\n"


@engines(EACH)
def test_a_container_gets_the_same_bytes_of_a_hostile_name_or_the_name_is_said(stores: Machine, engine: Engine) -> None:
    words = ["python3", f"{RIG_SCRIPTS.target}/hostile.py", engine.program, engine.image, *engine.arguments]
    report = json.loads(run(stores, engine, *words).stdout)
    assert report["b'plain'"]["same"] == ["libcuda.so.1", "libnvidia-ml.so.1"]
    wrong = {
        name: (found["status"], found["said"][-300:])
        for name, found in report.items()
        if (found["status"] != 0 or found["other"])
        and not (found["status"] in (6, 125) and "error: " in found["said"] and found["root"] in found["said"])
    }
    assert wrong == {}


def test_a_daemon_on_another_machine_is_refused(stores: Machine) -> None:
    done = run(stores, EACH[0], *gpubind(EACH[0], "true"), env={"DOCKER_HOST": "tcp://127.0.0.1:1"}, status=125)
    assert "remote-engine" in done.stderr


def test_an_ordinary_users_podman_starts_no_directory_of_roots(stores: Machine) -> None:
    engine = Engine("podman", image("bookworm"), True)
    assert "rootfs-of-another" in run(stores, engine, *gpubind(engine, "true"), status=125).stderr


def test_bubblewrap_leaves_no_image_of_podmans_mounted(stores: Machine) -> None:
    words = ["python3", "-m", "gpubind", "exec", "--backend", "bwrap", "podman:rig:gl", "true"]
    assert "other-store" in run(stores, ROOTS, *words, status=2).stderr
    assert run(stores, ROOTS, "sh", "-c", MOUNTED_IMAGES).stdout == ""


def test_an_image_that_is_named_with_its_store_is_the_one_that_is_checked_and_started(stores: Machine) -> None:
    words = ["python3", "-m", "gpubind", "exec", "--backend", "podman", "--", "--network=none", "--pull=never"]
    systems = {run(stores, ROOTS, *words, name, "cat", "/etc/os-release").stdout for name in NAMES}
    assert ["bookworm" in system for system in systems] == [True]
    for name in NAMES:
        words = ["python3", "-m", "gpubind", "check", "-q", "--backend", "podman", "--image", name]
        assert run(stores, ROOTS, *words).stdout == "ok\n"


@engines(IN_STORES)
def test_an_image_in_a_store_is_read_as_the_same_image_saved(stores: Machine, engine: Engine) -> None:
    """Whiteouts, opaque directories, files in place of directories and the reverse, as the real stores keep them."""
    with _loaded(stores, engine):
        report = _looked(stores, engine, "/etc/passwd")
        assert (report["direct"], report["facts"], report["text"]) == (True, True, "root:x:0:0::/root:/bin/sh")
        report = _looked(stores, engine)
        assert (report["direct"], report["facts"], report["other"]) == (True, True, [])
        assert report["files"] > 25


def test_what_only_the_containers_user_may_read_is_read_in_the_saved_image(stores: Machine) -> None:
    engine = IN_STORES[-1]
    with _loaded(stores, engine, {"/srv/shut": File(b"in there", 0)}):
        report = _looked(stores, engine, "/srv/shut")
    assert (report["direct"], report["facts"], report["text"]) == (True, True, "in there")


@engines([ROOTS, Engine("podman", "engines:bookworm", True), Engine("docker", "engines:bookworm")])
def test_a_real_image_in_a_store_is_read_as_the_same_image_saved(stores: Machine, engine: Engine) -> None:
    report = _looked(stores, engine)
    assert (report["direct"], report["facts"], report["other"]) == (True, True, [])
    assert report["files"] > 4000


def _looked(machine: Machine, engine: Engine, *path: str) -> dict[str, Any]:
    words = ["python3", f"{RIG_SCRIPTS.target}/stored.py", engine.program, engine.image, *path]
    # Without a memo, the tree is that of the store itself, and nothing in it is remembered.
    report: dict[str, Any] = json.loads(run(machine, engine, *words, env={"GPUBIND_MEMO": "off"}).stdout)
    return report


@contextmanager
def _loaded(machine: Machine, engine: Engine, more: Mapping[str, Item] = {}) -> Iterator[None]:
    """An image of three layers in the store of *engine*."""
    lowest = {
        **glibc("2.36"),
        **{f"/opt/{path}": b"x" for path in ("a/one", "a/two", "b/x", "c/deep/f", "d/file", "e/sub/x")},
        "/etc/gone": b"g",
        "/usr/bin/su": File(b"s", 0o4755),
        "/opt/l": Link("a"),
        **more,
    }
    middle = {"/opt/a/.wh..wh..opq": b"", "/opt/a/three": b"3", "/etc/.wh.gone": b"", "/opt/b": b"now a file"}
    middle.update({"/opt/d/.wh.file": b"", "/opt/d/other": b"o", "/opt/.wh.c": b"", "/opt/e/.wh.sub": b""})
    upper = {"/opt/c/new": b"n", "/opt/b/y": b"y", "/opt/d/file": b"again", "/opt/e/sub/y": b"y"}
    path = f"{DAEMON}/layered.tar"
    with open(machine.root + path, "wb") as file:
        file.write(archive(docker_archive([tar(lowest), tar(middle), tar(upper)], tags=(LAYERED,))))
    run(machine, engine, engine.program, "load", "--input", path)
    try:
        yield
    finally:
        run(machine, engine, engine.program, "rmi", "--force", LAYERED)


@pytest.fixture
def images() -> Iterator[Registry]:
    with registry(f"{RIG}/ct/bookworm-gl.oci") as made:
        yield made


PULLED = [Engine("docker", "pulled"), Engine("podman", "pulled"), Engine("podman", "pulled", True)]
LOOK = ("sh", "-c", "nvidia-smi -L; echo $?; echo $LD_LIBRARY_PATH")
"""Without a GPU NVML is not initialized, and nvidia-smi ends with 9."""


@engines(PULLED)
def test_an_image_of_a_registry_is_pulled_once_and_started_with_its_plan(
    stores: Machine, engine: Engine, images: Registry
) -> None:
    name = f"{images.address}/pulled:1"
    own = [word.removeprefix("--backend-arg=") for word in engine.arguments]
    own += ["--tls-verify=false"] if engine.program == "podman" else []
    flags = ["--device", "nvidia.com/gpu=all"]
    line = ["python3", "-m", "gpubind", "wrap", "--", engine.program, "run", "--rm", *flags, *own, name, *LOOK]
    try:
        done = run(stores, engine, *line)
        assert done.stdout.splitlines()[-2:] == ["9", "/.gpubind/libs"]
        assert "image-unknown" not in done.stderr
        assert images.pulls == 1
        run(stores, engine, *line)
        assert images.pulls == 1
        run(stores, engine, engine.program, "rmi", "--force", name)
        words = [f"--backend-arg={word}" for word in own]
        started = ["python3", "-m", "gpubind", "exec", "--backend", engine.program, *words, name, *LOOK]
        assert run(stores, engine, *started).stdout.splitlines()[-2:] == ["9", "/.gpubind/libs"]
        assert images.pulls == 2
    finally:
        run(stores, engine, engine.program, "rmi", "--force", name)


@pytest.mark.parametrize("policy", ["always", "newer"])
def test_a_policy_of_the_line_is_obeyed_once_a_start(stores: Machine, images: Registry, policy: str) -> None:
    engine, name = PULLED[1], f"{images.address}/pulled:2"
    own = ["--tls-verify=false", f"--pull={policy}", "--network=none", *(f"--ulimit={word}" for word in LIMITS)]
    line = ["python3", "-m", "gpubind", "wrap", "--", "podman", "run", "--rm", "--gpus=all", *own, name, *LOOK]
    try:
        assert run(stores, engine, *line).stdout.splitlines()[-2:] == ["9", "/.gpubind/libs"]
        assert images.pulls == 1
        run(stores, engine, *line)
        assert images.pulls == 2
    finally:
        run(stores, engine, "podman", "rmi", "--force", name)


def test_an_image_that_no_registry_has_is_the_programs_to_tell(stores: Machine, images: Registry) -> None:
    engine, name = PULLED[1], f"{images.address}/a/b/c:1"
    line = ["python3", "-m", "gpubind", "wrap", "--", "podman", "run", "--gpus=all", "--tls-verify=false", name, "true"]
    done = run(stores, engine, *line, status=125)
    assert "error: image-store: the image cannot be pulled" in done.stderr


def test_what_podman_pulls_from_a_directory_is_looked_at(stores: Machine) -> None:
    engine = PULLED[1]
    place = "/var/tmp/gpubind-pulled-dir"
    own = ["--network=none", *(f"--ulimit={word}" for word in LIMITS)]
    line = [
        "python3",
        "-m",
        "gpubind",
        "wrap",
        "--",
        "podman",
        "run",
        "--rm",
        "--gpus=all",
        *own,
        f"dir:{place}",
        *LOOK,
    ]
    try:
        run(stores, engine, "podman", "save", "--quiet", "--format=docker-dir", "-o", place, ROOTS.image)
        assert run(stores, engine, *line).stdout.splitlines()[-2:] == ["9", "/.gpubind/libs"]
    finally:
        run(stores, engine, "rm", "-rf", place)
        run(stores, engine, "podman", "rmi", "--force", "--ignore", f"localhost{place}")
