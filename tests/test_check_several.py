"""`check` of several images on several hosts, and options that can be said once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from referencing import Registry, Resource

from gpubind.host.record import dump_record
from gpubind.model.data import BUNDLED_HOSTS, read_data
from tests.support.commands import BARE, HOST, gpubind, images
from tests.support.driver import kernel, rhel
from tests.support.golden import assert_fits
from tests.support.images import glibc
from tests.support.squashfs import squashfs
from tests.support.trees import make_tree, record

BOTH = ("--host", BUNDLED_HOSTS[0], "--host", BUNDLED_HOSTS[1])


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, ...]:
    """An image that is too new for HOST, and one that is not."""
    return ("--image", images(tmp_path), "--image", str(make_tree(tmp_path / "plain", glibc()).root))


def test_the_table_has_a_row_an_image_and_a_column_a_host(two: tuple[str, ...]) -> None:
    done = gpubind("check", "--caps", "compute", *two, *BOTH)
    head, first, second, hint = done.stdout.splitlines()
    assert head.split() == ["image", *BUNDLED_HOSTS]
    assert first.startswith(two[1])
    assert "error cuda-too-new" in first
    assert second.startswith(two[3])
    assert hint == "-v shows each check in full, -q a line of each"
    assert done.returncode == 1


def test_a_column_has_the_name_in_the_record_else_that_of_its_file_and_the_path_where_two_are_alike(
    two: tuple[str, ...], tmp_path: Path
) -> None:
    lame = {path: item for path, item in kernel().items() if "uvm" not in path and "235" not in path}
    hosts = {"a/x": record({**rhel(), **kernel()}), "b/x": record({**rhel(), **lame})}
    hosts["y"] = hosts["b/x"]._replace(hostname="gpu001")
    for name, made in hosts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.json").write_text(dump_record(made, "test"))

    def titles(*names: str) -> list[str]:
        words = [f"--host={name}.json" for name in names]
        done = gpubind("check", "--nv", "--caps=compute", *two, *words, cwd=tmp_path)
        return done.stdout.splitlines()[0].split()[1:]

    assert titles("a/x", "y") == ["x", "gpu001"]
    assert titles("a/x", "b/x") == ["a/x.json", "b/x.json"]


def test_of_one_image_each_host_has_a_row_and_of_no_image_too(tmp_path: Path) -> None:
    for image in ((), ("--image", images(tmp_path))):
        lines = gpubind("check", *image, *BOTH).stdout.splitlines()
        assert [line.split()[0] for line in lines[:3]] == ["host", *BUNDLED_HOSTS]


def test_json_is_a_list_and_each_member_is_what_one_check_gives(two: tuple[str, ...]) -> None:
    members = json.loads(gpubind("check", "--json", *two, *BOTH).stdout)
    for member in members:
        assert_fits(member, "check")
    several = json.loads(read_data("model/data/checks.schema.json"))
    one = Resource.from_contents(json.loads(read_data("model/data/check.schema.json")))
    jsonschema.Draft202012Validator(several, registry=Registry().with_resource("gpubind.check/1", one)).validate(
        members
    )
    asked = [(image, host) for image in (two[1], two[3]) for host in BUNDLED_HOSTS]
    assert [(member["checked"]["image"], member["checked"]["host"]) for member in members] == asked
    assert members[0] == json.loads(gpubind("check", "--json", *two[:2], *BOTH[:2]).stdout)


def test_junit_is_one_document_with_a_suite_each(two: tuple[str, ...]) -> None:
    suites = ElementTree.fromstring(gpubind("check", "--format", "junit", *two, *BOTH).stdout)
    assert suites.tag == "testsuites"
    assert [suite.get("hostname") for suite in suites] == [*BUNDLED_HOSTS, *BUNDLED_HOSTS]
    assert suites[0].get("failures") != "0"


def test_quietly_there_is_a_line_a_check_and_as_columns_each_is_named(two: tuple[str, ...]) -> None:
    lines = gpubind("check", "-q", *two, *BOTH).stdout.splitlines()
    assert lines[0].startswith(f"{two[1]} on {BUNDLED_HOSTS[0]}: error ")
    assert len(lines) == 4
    columns = gpubind("check", "--format", "tsv", *two, *BOTH).stdout.splitlines()
    assert f"# {two[3]} on {BUNDLED_HOSTS[1]}" in columns
    full = gpubind("check", "-v", *two, *BOTH).stdout
    assert full.startswith(f"{two[1]} on {BUNDLED_HOSTS[0]}\nerror: ")


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "--host", HOST, "--host", HOST),
        ("plan", "--caps", "compute", "--caps=utility"),
        ("plan", "-o", "a", "--output", "b"),
        ("exec", "--backend", "bwrap", "--backend", "apptainer", "image", "true"),
        ("check", "--program", "a", "--program", "b", "--image", "c"),
        ("wrap", "--gpus", "0", "--gpus", "1", "--", "apptainer", "exec", "--nv", "image", "true"),
    ],
)
def test_an_option_with_one_value_is_refused_the_second_time(words: tuple[str, ...]) -> None:
    done = gpubind(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: given-twice: --")


def test_a_switch_may_be_repeated_and_so_may_what_is_a_list() -> None:
    words = ("--nv", "--nv", "-q", "-q", "--library-path", "/a", "--library-path", "/b")
    assert gpubind("plan", "--host", HOST, *words).returncode == 0


def megabytes_of(*words: str) -> int:
    """The most memory that a command had."""
    code = (
        "import sys; from gpubind.__main__ import main; status = main(sys.argv[1:])\n"
        "lines = open('/proc/self/status').read().splitlines()\n"
        "print(status, next(int(line.split()[1]) // 1024 for line in lines if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True, env=BARE, check=True)
    status, most = done.stdout.splitlines()[-1].split()
    assert status in ("0", "1")
    return int(most)


@pytest.mark.parametrize("words", [("check", "-q", "--nv"), ("diff", "--nv")], ids=lambda words: words[0])
def test_a_host_that_is_checked_or_compared_leaves_the_memory(words: tuple[str, ...]) -> None:
    def of(count: int) -> int:
        hosts = [HOST] * count if words[0] == "diff" else [f"--host={HOST}"] * count
        return megabytes_of(*words, *hosts)

    assert of(40) - of(20) < 7


@pytest.fixture
def broken(two: tuple[str, ...], tmp_path: Path) -> tuple[str, ...]:
    """An image and HOST; an image and a record that cannot be read."""
    record, archive = tmp_path / "torn.json", tmp_path / "torn.sif"
    record.write_text('{"schema": "gpubind.')
    archive.write_bytes(b"no image at all")
    return (*two[2:], "--image", str(archive), "--host", HOST, "--host", str(record))


def test_what_cannot_be_read_is_told_in_its_cells_and_the_others_are_checked(broken: tuple[str, ...]) -> None:
    done = gpubind("check", "--caps", "compute", *broken)
    head, first, second, *told = done.stdout.splitlines()
    assert first.split("  ")[-1].strip() == "error not-checked"
    assert "error not-checked" not in first.replace("error not-checked", "", 1)
    assert second.count("error not-checked") == 2
    assert told[0].startswith(f"error: not-checked: {broken[5 + 2]} was not checked: bad-record: ")
    assert told[1].startswith(f"error: not-checked: {broken[3]} was not checked: unknown-image: ")
    assert told[2:] == ["-v shows each check in full, -q a line of each"]
    assert (done.returncode, done.stderr) == (1, "")
    assert head.split() == ["image", HOST, "torn"]


def test_a_cell_that_cannot_be_read_is_told_in_every_form(broken: tuple[str, ...]) -> None:
    lines = gpubind("check", "-q", *broken).stdout.splitlines()
    assert [line.endswith(": error not-checked") for line in lines] == [False, True, True, True]
    members = json.loads(gpubind("check", "--json", *broken).stdout)
    for member in members:
        assert_fits(member, "check")
    (finding,) = members[1]["findings"]
    assert (finding["code"], finding["subject"]) == ("not-checked", broken[7])
    assert finding["where"].startswith(broken[7])
    assert (members[1]["verdict"], members[1]["plan"], members[1]["image"]) == ("error", None, None)
    suites = ElementTree.fromstring(gpubind("check", "--format", "junit", *broken).stdout)
    assert [(suite.get("tests"), suite.get("failures")) for suite in suites][1:] == [("1", "1")] * 3
    full = gpubind("check", "-v", *broken).stdout
    assert f"{broken[1]} on {broken[7]}\nerror: not checked\nerror: not-checked:" in full


def test_a_cell_that_cannot_be_read_counts_whatever_only_names_and_can_be_ignored_by_name(
    broken: tuple[str, ...],
) -> None:
    some = (*broken[:2], *broken[4:])
    assert gpubind("check", "--only", "no-gpu", *some).returncode == 1
    done = gpubind("check", "-q", "--only", "no-gpu", "--ignore", f"not-checked:{broken[7]}=it is down", *some)
    assert (done.returncode, done.stdout.splitlines()[1].endswith(": ok")) == (0, True)


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        (("--image", "/nonexistent.sif", *BOTH), "no-image", 4),
        (("--caps", "everything", *BOTH), "unknown-capability", 2),
        (("--image", "docs/examples/cuda13.sif", "--host", "nowhere"), "unknown-host", 2),
        (("--host", "driver:535,gpu:a100", "--host", "driver:53,gpu:a100"), "bad-typical-host", 2),
    ],
)
def test_what_is_wrong_with_all_checks_alike_ends_them(words: tuple[str, ...], code: str, status: int) -> None:
    done = gpubind("check", *words)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"error: {code}: ")


def with_32_descriptors(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", 'ulimit -n 32; exec "$@"', "sh", sys.executable, "-m", "gpubind", *words]
    return subprocess.run(command, capture_output=True, text=True, env=BARE)


def many(directory: Path, number: int) -> list[str]:
    """Directories without a file, as images or roots."""
    places = [directory / f"{at}" for at in range(number)]
    for place in places:
        place.mkdir(parents=True)
    return list(map(str, places))


def test_more_images_than_descriptors_are_checked(tmp_path: Path) -> None:
    words = [f"--image={image}" for image in many(tmp_path, 66)]
    done = with_32_descriptors("check", "-q", "--caps=compute", "--host", HOST, *words)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr, len(lines)) == (1, "", 66)
    assert {line.partition(": ")[2] for line in lines} == {"error image-without-glibc"}


def test_files_and_directories_are_checked_on_each_of_many_hosts_and_compared_with_32_descriptors(
    tmp_path: Path,
) -> None:
    tree = str(make_tree(tmp_path / "tree", glibc()).root)
    file = tmp_path / "image.sqfs"
    file.write_bytes(squashfs(glibc()))
    names = [tmp_path / f"{at}.sif" for at in range(15)]
    for name in names:
        name.symlink_to(file)
    trees = [tmp_path / f"{at}" for at in range(15)]
    for name in trees:
        name.symlink_to(tree)
    words = [f"--image={image}" for image in (*names, *trees)]
    for where in ((), tuple(f"--host={HOST}" for _ in range(2))):
        done = with_32_descriptors("check", "-q", "--caps=compute", *where, *words)
        assert "open files" not in done.stdout + done.stderr
        assert len({line.partition(": ")[2] for line in done.stdout.splitlines()}) == 1
        assert done.stdout.count("\n") == len(words) * max(1, len(where))
    done = with_32_descriptors("diff", "--caps=compute", "live", HOST, BUNDLED_HOSTS[1], *words)
    assert ("open files" in done.stderr, done.returncode) == (False, 1)


def test_many_driver_roots_are_compared_with_32_descriptors(tmp_path: Path) -> None:
    done = with_32_descriptors("diff", "--nv", *many(tmp_path, 50))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("equal (50)\n")
