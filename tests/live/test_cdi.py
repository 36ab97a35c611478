"""CDI on the node: podman, as root and rootless, gives containers what gpubind's spec says, without NVIDIA's tools.

podman looks for specs in /etc/cdi and /var/run/cdi; here in a /run of the test's own. The specs are written with a
kernel module, podman is started without one: what stands in for the module covers parts of /proc, and the kernel gives
no new /proc to a user namespace whose own is covered.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpubind
from gpubind.loader.container import Container
from gpubind.planner.placement import cdi_layout
from tests.live.containers import CONTAINERS, EXCLUDES, image
from tests.live.machine import CHECKOUT, INSIDE_CONTAINERS, RIG, Bind, Machine, document, pairs

pytestmark = pytest.mark.live

IMAGES = ("bullseye", "bookworm")
UUID = "GPU-00000001-0000-0000-0000-000000000000"
DEVICES = {"all": ("0", "1"), "0": ("0",), UUID: ("1",)}
WHO = pytest.mark.parametrize("user", [False, True], ids=["root", "user"])

INSIDE = """
import ctypes, errno, glob, json, os
def node(path):
    try:
        os.close(os.open(path, os.O_RDWR))
        return "open"
    except OSError as error:
        return errno.errorcode[error.errno]
def load(name):
    try:
        ctypes.CDLL(name)
        return ""
    except OSError as error:
        return str(error)
names = ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "dri/renderD128"]
print(json.dumps({
    "library_path": os.environ.get("LD_LIBRARY_PATH"),
    "environ": sorted(name for name in os.environ if "NVIDIA" in name or "GBM" in name or "VDPAU" in name),
    "cuInit": ctypes.CDLL("libcuda.so.1").cuInit(0),
    "nodes": {name: node("/dev/" + name) for name in names},
    "smi": os.access("/usr/bin/nvidia-smi", os.X_OK),
    "loads": {name: load(name) for name in open("/srv/libraries").read().split()},
}))
"""

PODMAN = """
set -e
cd /tmp
umask 022
mine=/srv/store/$(id -u)
mkdir -p "$mine/xdg"
chmod 700 "$mine/xdg"
export PODMAN_IGNORE_CGROUPSV1_WARNING=1
podman="podman --root $mine/root --runroot $mine/run"
limits='--ulimit nofile=20000:20000 --ulimit nproc=32768:32768'
if [ "$(id -u)" != 0 ]; then limits=; export XDG_RUNTIME_DIR=$mine/xdg; fi
for image in bullseye bookworm; do
  tar -C /srv/ct/$image EXCLUDES -c . 2>/dev/null |
    $podman import --quiet -c 'ENV LD_LIBRARY_PATH=/opt/of/the/image' - cdi:$image >/dev/null
  for device in DEVICES; do
    $podman run --rm $limits --network none --device nvidia.com/gpu=$device \\
      -v /srv/store/inside.py:/srv/inside.py:ro -v /srv/store/libraries:/srv/libraries:ro \\
      localhost/cdi:$image python3 /srv/inside.py > "$mine/$image.$device"
  done
done
$podman system migrate
""".replace("EXCLUDES", EXCLUDES)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that the ordinary user may use, too; what podman leaves in it belongs to several."""
    directory = Path(tempfile.mkdtemp(prefix="gpubind-cdi-", dir="/var/tmp"))
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@functools.cache
def started(machine: Machine, place: Path, user: bool) -> dict[str, Any]:
    """What containers of each image with each device see, by `IMAGE.DEVICE`; all are started once."""
    spec = written(machine, user=user)
    run = place / f"run-{user}" / "cdi"
    run.mkdir(parents=True)
    (run / "nvidia.json").write_text(json.dumps(spec))
    targets = [mount["containerPath"] for mount in spec["containerEdits"]["mounts"]]
    names = sorted({os.path.basename(path) for path in targets if path.startswith("/usr/lib64/lib")})
    (place / "libraries").write_text("\n".join(names))
    (place / "inside.py").write_text(INSIDE)
    (place / "podman.sh").write_text(PODMAN.replace("DEVICES", " ".join(DEVICES)))
    for path in (*place.iterdir(), run / "nvidia.json"):
        path.chmod(0o755)
    binds = [CONTAINERS, Bind(str(place), "/srv/store", readonly=False), Bind(str(run.parent), "/run", readonly=False)]
    machine.run(["bash", "/srv/store/podman.sh"], user=user, binds=binds)
    mine = place / ("1000" if user else "0")
    return {path.name: json.loads(path.read_text()) for path in mine.iterdir() if path.is_file()}


def written(machine: Machine, *options: str, user: bool = False) -> dict[str, Any]:
    """The spec that gpubind writes on the node."""
    spec: dict[str, Any] = json.loads(
        machine.gpubind("plan", "--nv", "--format", "cdi", "-q", *options, user=user, driver=True)
    )
    return spec


@WHO
@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("device", DEVICES)
def test_podman_gives_what_the_spec_says(trixie: Machine, place: Path, user: bool, name: str, device: str) -> None:
    seen = started(trixie, place, user)[f"{name}.{device}"]
    assert seen["cuInit"] == 100  # no device: the library is there, is whole, and looks for one
    assert seen["library_path"] == "/opt/of/the/image"
    assert seen["environ"] == []
    assert seen["smi"]
    for number in ("0", "1"):
        assert seen["nodes"][f"nvidia{number}"] == ("ENXIO" if number in DEVICES[device] else "ENOENT")
    assert {seen["nodes"][name] for name in ("nvidiactl", "nvidia-uvm", "nvidia-modeset")} == {"ENXIO"}


@WHO
def test_a_render_node_stays_with_its_group(trixie: Machine, place: Path, user: bool) -> None:
    seen = started(trixie, place, user)
    assert seen["bookworm.0"]["nodes"]["dri/renderD128"] == ("EACCES" if user else "ENXIO")
    assert seen[f"bookworm.{UUID}"]["nodes"]["dri/renderD128"] == "ENOENT"


@pytest.mark.parametrize("name", IMAGES)
def test_what_check_predicts_of_each_library_is_so(trixie: Machine, place: Path, name: str) -> None:
    seen = started(trixie, place, False)[f"{name}.all"]["loads"]
    host = gpubind.open_host("debian13-nvidia550")
    opened = gpubind.open_image(f"{RIG}/ct/{name}")
    made = gpubind.plan(host, gpubind.Request(), layout=cdi_layout("x86_64"))
    # What the test has podman set names no directory that is there.
    container = Container(opened.loader, host.driver, made.mounts, made.env, "/opt/of/the/image")
    predicted = {}
    for library in seen:
        found = container.find(library)
        assert found is not None
        failures = container.failures(found.path)
        predicted[library] = failures[0].message if failures else ""
    assert len(predicted) > 30
    assert seen == predicted


@WHO
def test_no_tool_of_nvidias_is_there_to_help(trixie: Machine, user: bool) -> None:
    tools = "nvidia-ctk nvidia-cdi-hook nvidia-container-cli nvidia-container-runtime"
    done = trixie.run(["sh", "-c", f"for t in {tools}; do ! command -v $t || exit 1; done"], user=user)
    assert done.stdout == ""


@WHO
def test_the_real_spec_as_source_gives_the_plan_of_every_other_source(trixie: Machine, user: bool) -> None:
    binds = [Bind(f"{CHECKOUT}/tests/data/cdi", "/srv/cdi")]
    arguments = ("plan", "--json", "--cdi-dir", "/srv/cdi/nvml", "--source", "cdi")
    plan = document(trixie.gpubind(*arguments, user=user, driver=True, binds=binds))
    assert plan["drivers"][0]["source"]["served"] == "cdi"
    other = document(trixie.gpubind("plan", "--json", user=user, driver=True))
    assert (pairs(plan), plan["digest"]) == (pairs(other), other["digest"])


@WHO
@pytest.mark.parametrize("device", DEVICES)
def test_bubblewrap_gives_what_a_real_spec_means(trixie: Machine, user: bool, device: str) -> None:
    """A runtime that knows nothing of CDI; its /dev holds what the plan names alone."""
    binds = [CONTAINERS, Bind(f"{CHECKOUT}/tests/data/cdi", "/srv/cdi")]
    words = [
        "exec",
        "-q",
        "--backend",
        "bwrap",
        "--cdi-dir",
        "/srv/cdi/nvml",
        "--cdi-device",
        f"nvidia.com/gpu={device}",
    ]
    script = (
        "import ctypes, os; print(ctypes.CDLL('libcuda.so.1').cuInit(0)); "
        "print(*[n for n in ('0', '1') if os.path.exists('/dev/nvidia' + n)])"
    )
    command = (*words, image("bookworm"), "python3", "-c", script)
    done = trixie.tried(*command, user=user, driver=True, binds=binds)
    assert done.stdout.splitlines() == ["100", " ".join(DEVICES[device])]


def test_a_spec_that_gpubind_wrote_is_a_source_too(trixie: Machine, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "nvidia.json").write_text(json.dumps(written(trixie)))
    binds = [Bind(str(tmp_path), "/srv/cdi")]
    plan = document(
        trixie.gpubind("plan", "--json", "--cdi-dir", "/srv/cdi", "--source", "cdi", driver=True, binds=binds)
    )
    other = document(trixie.gpubind("plan", "--json", driver=True))
    assert plan["drivers"][0]["source"]["served"] == "cdi"
    assert plan["digest"] == other["digest"]


def test_images_are_where_the_script_says() -> None:
    assert INSIDE_CONTAINERS == "/srv/ct"
