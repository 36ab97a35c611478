"""`gpubind diff` on the command line: what may be compared, what it is called, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import pytest

from gpubind.documents.diff.comparison import compare
from gpubind.documents.diff.snapshot import Snapshot
from gpubind.documents.diff.text import render_diff_text
from gpubind.fleet.nodes import fold_hosts
from gpubind.host.record import SIZE_LIMIT, dump_record
from gpubind.model.data import BUNDLED_HOSTS, read_data
from tests.support.commands import BARE, HOST, gpubind, images
from tests.support.driver import V, debian, kernel, libraries, rhel
from tests.support.elf import elf
from tests.support.golden import assert_fits
from tests.support.images import glibc
from tests.support.trees import Spec, make_tree, record

ROOT = Path(__file__).parent.parent
RECORD = read_data(f"model/data/hosts/{HOST}.json")


def recorded(path: Path, *parts: Spec, hostname: Optional[str] = None) -> str:
    """A record of the host that has all of *parts*, in the file *path*."""
    spec = {name: item for part in parts for name, item in part.items()}
    path.parent.mkdir(exist_ok=True)
    path.write_text(dump_record(record(spec)._replace(hostname=hostname), "test"))
    return str(path)


def planned(path: Path, *words: str) -> str:
    gpubind("plan", "--json", "-o", str(path), *words)
    return str(path)


def differences(*words: str) -> list[tuple[Any, ...]]:
    done = gpubind("diff", "--json", *words)
    document = json.loads(done.stdout)
    assert_fits(document, "diff")
    assert done.returncode == (1 if document["groups"][1:] else 0)
    return [
        (one["section"], one["name"], one["field"], one["from"], one["to"])
        for one in document["differences"]
        if one["follows"] is None
    ]


@pytest.fixture
def three(tmp_path: Path) -> tuple[str, str, str]:
    """Two equal hosts, and one with another driver."""
    old = [recorded(tmp_path / f"{name}.json", rhel(), kernel()) for name in ("a", "b")]
    return (*old, recorded(tmp_path / "c.json", rhel("570.1"), kernel("570.1")))  # type: ignore[return-value]


def test_equal_hosts_are_one_line_and_exit_0(three: tuple[str, str, str]) -> None:
    done = gpubind("diff", *three[:2])
    assert (done.stdout, done.stderr, done.returncode) == ("a, b: equal (2)\n", "", 0)


def test_a_different_host_is_told_with_what_differs_and_exits_1(three: tuple[str, str, str]) -> None:
    done = gpubind("diff", *three)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["a, b: equal (2)", "c differs from a:", f"  driver  nvidia  {V} -> 570.1"]
    assert (done.stderr, done.returncode) == ("", 1)
    assert differences(*three) == [("driver", "nvidia", "version", V, "570.1")]


def test_a_host_is_called_by_its_recorded_name_else_as_its_file_else_as_it_was_given(tmp_path: Path) -> None:
    named = recorded(tmp_path / "x.json", debian(), kernel(), hostname="gpu001")
    others = [recorded(tmp_path / name / "y.json", debian(), kernel()) for name in ("1", "2")]
    assert gpubind("diff", named, others[0], BUNDLED_HOSTS[1]).stdout.startswith("gpu001, y: equal (2)\n")
    assert gpubind("diff", *others).stdout == f"{others[0]}, {others[1]}: equal (2)\n"


def test_a_plan_is_compared_with_a_plan_and_with_a_host(tmp_path: Path) -> None:
    plan = planned(tmp_path / "plan.json", "--host", HOST)
    sorted_by_jq = tmp_path / "sorted.json"
    sorted_by_jq.write_text(json.dumps(json.loads(Path(plan).read_text()), sort_keys=True, indent=2))
    assert gpubind("diff", plan, str(sorted_by_jq), HOST).returncode == 0
    compute = planned(tmp_path / "compute.json", "--host", HOST, "--caps", "compute")
    assert ("library", "libnvoptix.so.1", "presence", "present", "absent") in differences(plan, compute)


def test_standard_input_is_a_host(three: tuple[str, str, str]) -> None:
    words = [sys.executable, "-m", "gpubind", "diff", three[0], "-"]
    done = subprocess.run(words, input=Path(three[1]).read_bytes(), capture_output=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (b"a, -: equal (2)\n", b"", 0)


def test_two_directories_are_two_drivers_and_nothing_of_this_machine_counts(tmp_path: Path) -> None:
    old, new = (str(make_tree(tmp_path / version, libraries("/usr/lib64", version)).root) for version in (V, "570.1"))
    assert differences(old, new) == [("driver", "nvidia", "version", V, "570.1")]
    node = recorded(tmp_path / "r.json", libraries("/usr/lib64"), kernel())
    assert differences(old, node) == []
    (tmp_path / V / f"usr/lib64/libcuda.so.{V}").write_bytes(b"\x7fELF")
    assert ("finding", "no-libcuda(libcuda.so.1)", "severity", None, "error") in differences("--nv", new, old)


def test_this_machine_is_live(tmp_path: Path) -> None:
    assert gpubind("diff", "live", "live").returncode == 0


def test_a_flavour_is_compared_with_the_own_plan_and_two_with_each_other(tmp_path: Path) -> None:
    own = gpubind("diff", "--like", "apptainer-1.4", HOST).stdout
    assert own.startswith(f"{HOST} (apptainer-1.4) differs from {HOST} (gpubind):\n")
    assert "  lacks     libnvidia-allocator.so.1\n" in own
    assert "without the name libcuda.so\n" in own
    assert "driver" not in own
    two = gpubind("diff", "--like", "apptainer-1.4", "--like", "singularity", HOST).stdout
    assert "  lacks  libcudadebugger.so.1\n" in two
    assert "driver" not in two


def test_of_images_only_what_changes_for_them_is_told(tmp_path: Path) -> None:
    hosts = [
        recorded(tmp_path / f"{name}.json", rhel(version), kernel(version))
        for name, version in (("old1", "470.1"), ("old2", "470.1"), ("new", "570.1"))
    ]
    old, always = (str(make_tree(tmp_path / name, glibc()).root) for name in ("plain", "other"))
    new = images(tmp_path)
    version = tmp_path / "image/usr/local/cuda/version.json"
    version.write_text('{"cuda": {"version": "12.4.0"}}')
    told = differences("--nv", *(word for image in (old, always, new) for word in ("--image", image)), *hosts)
    assert told == [("image", new, "verdict", "error cuda-too-new", "ok")]
    text = gpubind("diff", "--nv", "--image", new, *hosts).stdout
    assert text.splitlines()[:4] == [
        "old[1-2]: nvidia 470.1, CUDA 11.3",
        "new: nvidia 570.1, CUDA 12.7",
        "new differs from old1:",
        f"  image  {new}  error cuda-too-new -> full support",
    ]


@pytest.fixture
def upgrade(tmp_path: Path) -> dict[str, str]:
    """Records of hosts with three drivers, by the CUDA that these support."""
    versions = {"12.4": "550.163.01", "12.2": "535.261.03", "11.4": "470.256.02"}
    return {
        cuda: recorded(tmp_path / f"{version[:3]}.json", rhel(version), kernel(version))
        for cuda, version in versions.items()
    }


def of_cuda(directory: Path, version: str) -> str:
    """An image for that CUDA."""
    spec: Spec = {**glibc(), "/usr/local/cuda/version.json": f'{{"cuda": {{"version": "{version}"}}}}'}
    return str(make_tree(directory / f"cuda-{version}", spec).root)


def sentences(text: str) -> str:
    """What is in the indented lines of *text*, without the ends of lines."""
    return " ".join(line.strip() for line in text.splitlines() if line.startswith("    "))


def test_an_image_that_falls_back_to_minor_version_compatibility_is_a_difference(
    upgrade: dict[str, str], tmp_path: Path
) -> None:
    image = of_cuda(tmp_path, "12.4.1")
    words = ("--nv", "--image", image, upgrade["12.4"], upgrade["12.2"])
    assert differences(*words) == [("image", image, "verdict", "ok", "ok cuda-minor-version")]
    done = gpubind("diff", *words)
    assert f"  image  {image}  full support -> minor-version compatibility" in done.stdout.splitlines()
    assert done.returncode == 1
    assert sentences(done.stdout) == (
        "Today it runs with full support; after the change it runs with minor-version compatibility: programs run, but "
        "PTX that is compiled at run time may fail with CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222), the provided PTX "
        "was compiled with an unsupported toolchain. What to do: build for the GPU's own architecture, or use driver "
        "550.54.14 or newer."
    )


def test_the_sentence_about_an_image_that_fails_has_both_drivers_and_what_to_do(
    upgrade: dict[str, str], tmp_path: Path
) -> None:
    image = of_cuda(tmp_path, "12.2.2")
    text = gpubind("diff", "--nv", "--image", image, upgrade["12.4"], upgrade["11.4"]).stdout
    assert text.splitlines()[:2] == ["550: nvidia 550.163.01, CUDA 12.4", "470: nvidia 470.256.02, CUDA 11.4"]
    assert sentences(text).startswith(
        "Today it runs with full support; after the change it fails: the image is for CUDA 12.2, the driver 470.256.02 "
        "supports up to 11.4. What to do: use an image for CUDA 11.4 or older, a host with driver 525.60.13 or newer"
    )


def test_hosts_with_other_drivers_are_not_said_to_be_equal_and_images_that_do_not_change_are_counted(
    upgrade: dict[str, str], tmp_path: Path
) -> None:
    images = [of_cuda(tmp_path, version) for version in ("11.2.0", "12.2.2", "13.0.0")]
    words = ("--nv", *(word for image in images for word in ("--image", image)), upgrade["12.4"], upgrade["12.2"])
    done = gpubind("diff", *words)
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "550: nvidia 550.163.01, CUDA 12.4",
            "535: nvidia 535.261.03, CUDA 12.2",
            "no verdict changes for 3 images: 2 full support, 1 error cuda-too-new",
        ],
    )
    assert "equal" not in gpubind("diff", "--format", "markdown", *words).stdout


def test_the_outcomes_of_images_are_the_same_after_they_were_sent(upgrade: dict[str, str], tmp_path: Path) -> None:
    words = ("diff", "--snapshot", "--nv", "--image", of_cuda(tmp_path, "12.4.1"))
    sent = [Snapshot.from_dict(json.loads(gpubind(*words, upgrade[cuda]).stdout)) for cuda in ("12.4", "12.2")]
    assert [one.driver for one in sent] == ["nvidia 550.163.01, CUDA 12.4", "nvidia 535.261.03, CUDA 12.2"]
    assert [image.verdict for one in sent for image in one.images] == ["ok", "ok cuda-minor-version"]
    assert "full support -> minor-version compatibility" in render_diff_text(compare(sent))


def test_of_more_than_two_hosts_the_sentence_names_the_hosts_and_no_time(
    upgrade: dict[str, str], tmp_path: Path
) -> None:
    text = gpubind("diff", "--nv", "--image", of_cuda(tmp_path, "12.4.1"), *upgrade.values()).stdout
    assert "On 550 it runs with full support; on 535 it runs with minor-version" in sentences(text)
    assert "oday" not in text


def test_as_markdown_a_changed_image_is_a_sentence_and_any_other_difference_a_row(
    upgrade: dict[str, str], tmp_path: Path
) -> None:
    images = [of_cuda(tmp_path, version) for version in ("11.2.0", "12.2.2")]
    words = ("--format", "markdown", "--nv", upgrade["12.4"], upgrade["11.4"])
    lines = gpubind("diff", *words, *(f"--image={image}" for image in images)).stdout.splitlines()
    assert "| `470` | 1 | `nvidia 470.256.02, CUDA 11.4` |" in lines
    (told,) = (line for line in lines if line.startswith(f"- `{images[1]}`: "))
    assert "Today it runs with full support; after the change it fails: " in told
    assert lines[-1] == "No verdict changes for 1 image: 1 full support."
    assert "| driver | `nvidia` | `version` | `550.163.01` | `470.256.02` |" in gpubind("diff", *words).stdout


def test_names_of_nodes_are_one_set_and_other_names_a_list(tmp_path: Path) -> None:
    names = ("gpu00001", "gpu00002", "gpu00004", "gpu00003", "gpu00011")
    hosts = [recorded(tmp_path / f"{name}.json", rhel(), kernel(), hostname=name) for name in names]
    assert gpubind("diff", *hosts).stdout == "gpu[00001-00004,00011]: equal (5)\n"
    odd = recorded(tmp_path / "odd.json", rhel(), kernel(), hostname="gpu[00001-99999]")
    assert gpubind("diff", *hosts, odd).stdout == "gpu00001, gpu00002, gpu00004, gpu00003 and 2 others: equal (6)\n"
    group = recorded(tmp_path / "group.json", rhel(), kernel(), hostname="@all")
    assert gpubind("diff", hosts[0], group).stdout == "gpu00001, @all: equal (2)\n"


def test_a_set_that_is_no_shorter_than_a_sentence_is_a_list() -> None:
    every_third = tuple(f"gpu{number:05}" for number in range(0, 300, 3))
    assert fold_hosts(every_third) == "gpu00000, gpu00003, gpu00006, gpu00009 and 96 others"
    assert fold_hosts(tuple(f"gpu{number:05}" for number in range(300))) == "gpu[00000-00299]"


def test_without_clustershell_names_of_nodes_are_a_list(tmp_path: Path) -> None:
    hosts = [recorded(tmp_path / f"n{at}.json", rhel(), kernel()) for at in range(6)]
    code = (
        "import sys; sys.modules['ClusterShell'] = None; from gpubind.cli.main import main\n"
        "raise SystemExit(main(['diff', *sys.argv[1:]]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *hosts], capture_output=True, text=True, check=True, env=BARE)
    assert (done.stdout, done.stderr) == ("n0, n1, n2, n3 and 2 others: equal (6)\n", "")


def test_a_damaged_configuration_of_clustershell_is_nothing_to_a_comparison(tmp_path: Path) -> None:
    (tmp_path / "defaults.conf").write_text("no section\n")
    hosts = [recorded(tmp_path / f"n{at}.json", rhel(), kernel()) for at in range(2)]
    done = gpubind("diff", *hosts, env={"CLUSTERSHELL_CFGDIR": str(tmp_path)})
    assert (done.returncode, done.stderr, done.stdout.endswith(": equal (2)\n")) == (0, "", True)


def test_a_fault_of_a_host_is_told_once_and_not_for_each_image(tmp_path: Path) -> None:
    lame = {path: item for path, item in kernel().items() if "uvm" not in path and "235" not in path}
    hosts = [recorded(tmp_path / "good.json", rhel(), kernel()), recorded(tmp_path / "lame.json", rhel(), lame)]
    plain = [str(make_tree(tmp_path / name, glibc()).root) for name in ("one", "two")]
    told = differences("--nv", "--image", plain[0], "--image", plain[1], *hosts)
    assert [one[0] for one in told] == ["finding"]
    assert told[0][1:] == ("uvm-missing(/dev/nvidia-uvm)", "severity", None, "error")


def test_a_driver_that_no_node_has_yet_is_compared_from_its_directory(tmp_path: Path) -> None:
    old = recorded(tmp_path / "old.json", rhel("470.1"), kernel("470.1"))
    new = str(make_tree(tmp_path / "570", rhel("570.1")).root)
    image = images(tmp_path)
    (tmp_path / "image/usr/local/cuda/version.json").write_text('{"cuda": {"version": "12.4.0"}}')
    assert differences("--nv", "--image", image, old, new) == [("image", image, "verdict", "error cuda-too-new", "ok")]
    assert differences("--nv", old, new) == [("driver", "nvidia", "version", "470.1", "570.1")]


def test_an_image_that_cannot_be_read_is_an_error_and_not_equal(tmp_path: Path) -> None:
    done = gpubind("diff", "--image", str(tmp_path / "none.sif"), HOST, HOST)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: ")


def test_a_host_with_nothing_to_bind_is_compared_too(tmp_path: Path) -> None:
    empty = recorded(tmp_path / "empty.json", {"/etc/motd": "x"})
    told = differences(HOST, empty)
    assert ("driver", "nvidia", "version", "550.163.01", None) in told
    assert ("finding", "nothing-to-bind(host)", "severity", None, "error") in told


REFUSED: dict[str, tuple[Optional[bytes], str, int]] = {
    "nothing": (b"", "bad-record", 5),
    "a truncated record": (RECORD[:5000], "bad-record", 5),
    "a truncated plan": (b'{"schema": "gpubind.plan/1", "gpubind', "bad-plan", 5),
    "a document of a check": (b'{"schema": "gpubind.check/1"}', "bad-record", 5),
    "a plan of a newer schema": (b'{"schema": "gpubind.plan/2"}', "bad-plan", 5),
    "a record of a newer schema": (RECORD.replace(b"gpubind.record/1", b"gpubind.record/9"), "newer-record", 5),
    "a forged plan": (b'{"schema": "gpubind.plan/1", "request": {}, "drivers": 7}', "bad-plan", 5),
    "a forged record": (RECORD.replace(b'"uname"', b'"eman"'), "bad-record", 5),
    "a list": (b"[1, 2]", "bad-record", 5),
    "deep nesting": (b'{"schema": "gpubind.record/1", "a": ' + b"[" * 100_000, "bad-record", 5),
    "a million values": (b'{"schema": "gpubind.plan/1", "a": [' + b"1," * 1_100_000 + b"1]}", "bad-plan", 5),
    "an image": (b"\x7fELF" + b"\0" * 500, "bad-record", 5),
    "no file": (None, "unreadable-file", 4),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_host_is_refused_by_its_name_and_nothing_is_printed(case: str, tmp_path: Path) -> None:
    data, code, status = REFUSED[case]
    path = tmp_path / "odd.json"
    if data is not None:
        path.write_bytes(data)
    done = gpubind("diff", HOST, str(path))
    assert (done.stdout, done.returncode) == ("", status)
    assert done.stderr.startswith(f"error: {code}: ")
    assert f"where: {path}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_of_a_gigabyte_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    with path.open("wb") as stream:
        stream.truncate(1 << 30)
    done = gpubind("diff", HOST, str(path))
    assert (done.returncode, done.stdout) == (4, "")
    assert f"larger than {SIZE_LIMIT} bytes" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((HOST,), "nothing-to-compare"),
        (("live",), "nothing-to-compare"),
        ((HOST, "no-such-host"), "unknown-host"),
        (("--like", "docker", HOST), "unknown-flavour"),
        ((), "missing-argument"),
    ],
)
def test_wrong_use_says_what_is_wanted(words: tuple[str, ...], code: str) -> None:
    done = gpubind("diff", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {code}: ")


def test_a_plan_has_no_image_and_no_flavour(tmp_path: Path) -> None:
    plan = planned(tmp_path / "plan.json", "--host", HOST)
    for words in (("--like", "singularity"), ("--image", str(tmp_path))):
        done = gpubind("diff", *words, plan, HOST)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: plan-not-host: a plan takes the place of a host\n  where: {plan}\n")


def test_an_error_of_a_json_comparison_is_a_document(tmp_path: Path) -> None:
    done = gpubind("diff", "--json", HOST, str(tmp_path / "none.json"))
    assert json.loads(done.stdout)["code"] == "unreadable-file"


def altered(path: Path, name: str, **changes: Any) -> None:
    """The bundled record as that of the machine *name*, in *path*: see `nodes`."""
    document = json.loads(RECORD)
    directories = document["trees"]["driver"]["directories"]
    for directory, names in changes.items():
        for entry, values in names.items():
            directories[directory]["entries"][entry] = values and {**directories[directory]["entries"][entry], **values}
    for number in range(2):
        gpu = directories[f"/proc/driver/nvidia/gpus/0000:0{number + 1}:00.0"]["entries"]["information"]
        gpu["text"] = gpu["text"].replace("-0000-0000", f"-{name[-3:]}0-0000")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**document, "hostname": name}))


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """A directory with what the transcripts of docs/diff.md are about."""
    driver = "/usr/lib/x86_64-linux-gnu/nvidia/current"
    odd: dict[str, dict[str, Any]] = {
        "gpu008": {"/proc/driver/nvidia/gpus": {"0000:02:00.0": None}, "/dev": {"nvidia1": None}},
        "gpu011": {
            driver: {"libnvidia-ml.so.550.163.01": {"size": 2082361}},
            "/usr/share/vulkan/icd.d": {"nvidia_icd.json": None},
        },
    }
    for number in range(1, 13):
        name = f"gpu{number:03}"
        altered(tmp_path / "nodes" / f"{name}.json", name, **odd.get(name, {}))
    for name, version in (("old", "550.163.01"), ("new", "580.95.05")):
        nvvm = {"/usr/lib64/libnvidia-nvvm70.so.4": elf("libnvidia-nvvm70.so.4")}
        recorded(tmp_path / f"{name}.json", rhel(version), kernel(version), nvvm)
    make_tree(tmp_path / "plain", glibc())
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    return tmp_path


def transcripts() -> list[tuple[str, str]]:
    found = re.findall(r"^```\n\$ gpubind (.*?)\n(.*?)^```", (ROOT / "docs/diff.md").read_text(), re.M | re.S)
    assert len(found) == 2
    return found


@pytest.mark.parametrize(("command", "output"), transcripts())
def test_the_page_shows_what_the_command_prints(command: str, output: str, nodes: Path) -> None:
    words = [
        word
        for words in shlex.split(command)
        for word in (sorted(str(path.relative_to(nodes)) for path in nodes.glob(words)) if "*" in words else [words])
    ]
    done = gpubind(*words, cwd=nodes)
    assert (done.stdout, done.stderr) == (output, "")


def test_the_snapshots_of_several_hosts_are_one_document_after_the_other(three: tuple[str, str, str]) -> None:
    documents = gpubind("diff", "--snapshot", *three).stdout.replace("\n}\n{\n", "\n},{\n")
    assert [document["schema"] for document in json.loads(f"[{documents}]")] == ["gpubind.snapshot/1"] * 3


def test_a_snapshot_has_no_other_format() -> None:
    done = gpubind("diff", "--snapshot", "--format=html", HOST)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: two-formats: --snapshot and --format exclude each other\n"
