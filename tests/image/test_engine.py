"""Images in the stores of podman and Docker, with programs that only play them."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from gpubind.errors import GpubindError, HostReadError, NotStoredError, UnseenError
from gpubind.files.overlay import COMPOSEFS, OverlayTree
from gpubind.host import programs as programs_of_hosts
from gpubind.image import engine
from gpubind.image.open import open_image
from gpubind.memo import files, versions
from gpubind.model import ABSENT, RootedPath
from tests.support.images import glibc
from tests.support.layers import archive, docker_archive, packed, tar
from tests.support.trees import Spec, make_tree

ENV = ["PATH=/usr/bin", "NVIDIA_VISIBLE_DEVICES=all"]
ID = {"Id": f"sha256:{'1' * 64}", "RootFS": {"Type": "layers", "Layers": [f"sha256:{'2' * 64}"]}}
"""What stands for the content of an image; the tests in which it is missing remember nothing."""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a `podman` and a `docker` that have the image `test:1`, and write down how they were called."""
    inspected = [{"Os": "linux", "Architecture": "amd64", "Config": {"Env": ENV}}]
    (tmp_path / "inspected").write_text(json.dumps(inspected))
    (tmp_path / "saved").write_bytes(archive(docker_archive([packed(tar(dict(glibc("2.36"))))], ENV)))
    script = f"""#!/bin/sh
cd {tmp_path}
echo "$(basename "$0") $* HOME=$HOME SECRET=$SECRET" >> calls
case "$*" in
*nowhere*)
    echo 'time="2026-01-01T00:00:00Z" level=warning msg="\\"/\\" is not a shared mount"' >&2
    echo "WARN[0000] The cgroupv2 manager is set to systemd but there is no systemd user session" >&2
    echo "Error: nowhere: image not known" >&2; exit 125 ;;
"image inspect test:1") cat inspected ;;
"save test:1" | "save --format docker-archive test:1") cat saved ;;
*slow*) sleep infinity & wait ;;
*) exit 3 ;;
esac
"""
    for name in ("podman", "docker"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(script)
        program.chmod(0o755)
    monkeypatch.setattr(programs_of_hosts, "PROGRAM_DIRECTORIES", (str(tmp_path / "bin"), "/usr/bin", "/bin"))
    monkeypatch.setattr(programs_of_hosts, "writable_by_others", lambda program: None)
    monkeypatch.setenv("SECRET", "kept")
    monkeypatch.setenv("HOME", "/home/someone")
    return tmp_path


def calls(programs: Path) -> list[str]:
    return [line.partition(" HOME")[0] for line in (programs / "calls").read_text().splitlines()]


def as_user(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)


def test_docker_saves_into_a_file_without_a_name(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (programs / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(programs / "tmp"))
    image = open_image("docker:test:1")
    assert (image.facts.kind, image.facts.label, image.facts.libc_version) == ("docker", "docker:test:1", "2.36")
    assert image.facts.env == dict(line.split("=") for line in ENV)
    assert image.tree.read_text("/etc/passwd") == "root:x:0:0::/root:/bin/sh\n"
    assert calls(programs) == ["docker image inspect test:1", "docker save test:1"]
    assert os.listdir(programs / "tmp") == []


def test_podman_of_a_user_saves_too(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, 1000)
    assert open_image("podman:test:1").facts.kind == "podman"
    assert calls(programs)[-1] == "podman save --format docker-archive test:1"


def in_layers(programs: Path, *specs: Spec, driver: str = "overlay") -> list[Path]:
    """Have the store keep each of *specs*, the lowest first, in a directory of its own."""
    directories = [programs / "store" / str(number) / "diff" for number in range(len(specs))]
    for directory, spec in zip(directories, specs):
        make_tree(directory, spec)
    lower, upper = directories[-2::-1], directories[-1]
    data = {"UpperDir": str(upper), "LowerDir": ":".join(map(str, lower)), "WorkDir": "/nowhere"}
    image = {"Os": "linux", "Config": {"Env": ENV}, "GraphDriver": {"Name": driver, "Data": data}}
    (programs / "inspected").write_text(json.dumps([image]))
    return directories


@pytest.mark.parametrize(("store", "driver"), [("podman", "overlay"), ("docker", "overlay2")])
def test_an_image_is_read_where_the_store_has_its_layers(programs: Path, store: str, driver: str) -> None:
    in_layers(programs, glibc("2.31"), {**glibc("2.36"), "/opt/new": b"n"}, driver=driver)
    image = open_image(f"{store}:test:1")
    assert (image.facts.kind, image.facts.label, image.facts.libc_version) == (store, f"{store}:test:1", "2.36")
    assert image.facts.env == dict(line.split("=") for line in ENV)
    assert calls(programs) == [f"{store} image inspect test:1"]


def test_the_facts_are_those_of_the_saved_image(programs: Path) -> None:
    saved = open_image("podman:test:1").facts
    in_layers(programs, glibc("2.36"))
    assert open_image("podman:test:1").facts == saved


@pytest.mark.parametrize("driver", ["vfs", "overlayfs", "btrfs"])
def test_a_store_without_a_directory_for_each_layer_saves(programs: Path, driver: str) -> None:
    in_layers(programs, glibc("2.31"), driver=driver)
    assert open_image("docker:test:1").facts.libc_version == "2.36"
    assert calls(programs)[-1] == "docker save test:1"


def test_layers_that_this_user_cannot_vouch_for_are_saved(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_layers(programs, glibc("2.31"))
    with monkeypatch.context() as patched:
        as_user(patched, os.geteuid() + 1)  # an overlay's marks are hidden from all but its owner
        assert open_image("podman:test:1").facts.libc_version == "2.36"
    (programs / "store/0" / COMPOSEFS).mkdir()
    assert open_image("podman:test:1").facts.libc_version == "2.36"
    shutil.rmtree(programs / "store")
    assert open_image("podman:test:1").facts.libc_version == "2.36"
    assert calls(programs)[1::2] == ["podman save --format docker-archive test:1"] * 3


def test_a_lowest_layer_without_a_file_is_saved(programs: Path) -> None:
    """podman-hpc mounts a squashed image there, for a container alone."""
    in_layers(programs, {"/etc/passwd": b""}, glibc("2.31"))
    shutil.rmtree(programs / "store/0/diff/etc")
    assert open_image("podman:test:1").facts.libc_version == "2.36"


def test_what_a_layer_does_not_answer_is_saved_once(programs: Path) -> None:
    """The archive has the file: it was in the store a moment ago, or only the container's user may read it."""
    (layer,) = in_layers(programs, {**glibc("2.36"), "/data/a": b"a"})
    image = open_image("podman:test:1")
    assert image.tree.list("/data") == ("a",)
    (layer / "data/a").unlink()
    (layer / "etc/passwd").unlink()
    for _ in range(2):
        assert image.tree.read_text("/etc/passwd") == "root:x:0:0::/root:/bin/sh\n"
        assert image.tree.lacks("/data/a")  # in the archive of this test
        assert isinstance(image.tree, OverlayTree)
        assert image.tree.open(RootedPath("/data/a")) == ABSENT
    assert calls(programs) == ["podman image inspect test:1", "podman save --format docker-archive test:1"]


def test_only_what_finds_the_store_is_handed_on(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_store = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF")
    of_podman = ("CONTAINER_CONNECTION", "CONTAINER_HOST")
    of_docker = ("DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_HOST", "DOCKER_TLS_VERIFY")
    of_session = ("DBUS_SESSION_BUS_ADDRESS", "USER", "XDG_RUNTIME_DIR")
    given = dict.fromkeys((*of_store, *of_podman, *of_docker, *of_session), "/etc")
    for name, value in {**given, "TMPDIR": "/etc"}.items():
        monkeypatch.setenv(name, value)
    program = programs / "bin/docker"
    record = f'tr "\\0" "\\n" < /proc/$$/environ | sort > {programs}/environ-$1\n'
    program.write_text(program.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{record}"))
    open_image("docker:test:1")
    always = {**given, "LC_ALL": "C", "PATH": f"{programs}/bin:/usr/bin:/bin"}
    for args, expected in (("image", always), ("save", {**always, "TMPDIR": "/etc"})):
        lines = (programs / f"environ-{args}").read_text().splitlines()
        found = dict(line.split("=", 1) for line in lines)
        assert {**found, "PATH": ""} == {**expected, "PATH": ""}


def test_the_programs_own_message_is_the_reason_without_its_warnings(programs: Path) -> None:
    with pytest.raises(NotStoredError) as caught:
        open_image("podman:nowhere")
    assert (caught.value.code, caught.value.what, caught.value.where, caught.value.why, caught.value.hint) == (
        "image-store",
        "podman does not give the image",
        "podman:nowhere",
        "Error: nowhere: image not known",
        "`podman images` lists what is there, and `podman pull` gets what is not",
    )


def test_a_failure_without_a_message_is_its_status_and_another_error(programs: Path) -> None:
    with pytest.raises(HostReadError) as caught:
        open_image("docker:other")
    assert (type(caught.value), caught.value.why) == (HostReadError, "exit status 3")
    (programs / "bin/docker").write_text("#!/bin/sh\nprintf %02001d 0 >&2; exit 1\n")
    with pytest.raises(HostReadError) as caught:
        open_image("docker:other")
    assert caught.value.why == "0" * 2000


@pytest.mark.parametrize(
    ("printed", "directories"),
    [
        ('["/etc/cdi", "/run/cdi", 7]', ("/etc/cdi", "/run/cdi")),
        ("[]", ()),
        ("null", ()),
        ('"/etc/cdi"', ()),
        ("no JSON", ()),
    ],
)
def test_the_daemons_directories_of_cdi_specs_are_those_that_it_names(
    programs: Path, printed: str, directories: tuple[str, ...]
) -> None:
    script = f"#!/bin/sh\necho \"$@\" > {programs}/args; echo '{printed}'\n"
    (programs / "bin/docker").write_text(script)
    assert engine.cdi_directories_of_daemon("docker") == directories
    assert (programs / "args").read_text() == "info --format {{json .CDISpecDirs}}\n"


def test_a_daemon_that_does_not_answer_has_no_directories_and_says_why(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.why_silent("docker") == "exit status 3"
    assert engine.cdi_directories_of_daemon("docker") == ()
    (programs / "bin/docker").write_text(f'#!/bin/sh\necho "$@" > {programs}/args; echo fine\n')
    assert engine.why_silent("docker") is None
    assert (programs / "args").read_text() == "version\n"
    monkeypatch.setattr(programs_of_hosts, "PROGRAM_DIRECTORIES", (str(programs / "empty"),))
    assert (engine.why_silent("docker"), engine.cdi_directories_of_daemon("docker")) == (None, ())


def test_a_program_that_does_not_end_is_ended(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "QUERY_TIMEOUT_S", 0.2)
    with pytest.raises(GpubindError) as caught:
        open_image("docker:slow")
    assert "did not answer within 0.2 s" in caught.value.why


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # nobody has seen its end
def test_a_program_that_even_sigkill_does_not_end_is_not_waited_for(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk or a network file system may hold it in the kernel."""
    killed: list[int] = []
    monkeypatch.setattr(engine, "QUERY_TIMEOUT_S", 0.2)
    with monkeypatch.context() as patched:
        patched.setattr("os.killpg", lambda group, number: killed.append(group))
        with pytest.raises(GpubindError):
            open_image("docker:slow")
    os.killpg(killed[0], signal.SIGKILL)
    os.waitpid(killed[0], 0)


def test_what_is_saved_may_be_no_archive(programs: Path) -> None:
    (programs / "saved").write_bytes(b"hello")
    with pytest.raises(GpubindError) as caught:
        open_image("docker:test:1")
    assert caught.value.code == "bad-archive"


def test_what_is_inspected_may_be_no_document(programs: Path) -> None:
    (programs / "inspected").write_text("[" * 100_000)
    with pytest.raises(GpubindError) as caught:
        open_image("docker:test:1")
    assert caught.value.code == "bad-oci"


def test_a_program_that_is_missing_or_not_roots_is_not_run(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs_of_hosts, "writable_by_others", lambda program: program)
    as_user(monkeypatch, 0)
    with pytest.raises(GpubindError) as caught:
        open_image("docker:test:1")
    assert (caught.value.code, "can be written" in caught.value.why) == ("no-image-store", True)
    assert (caught.value.what, caught.value.where) == ("docker cannot be trusted", "docker:test:1")
    monkeypatch.setattr(programs_of_hosts, "PROGRAM_DIRECTORIES", (str(tmp_path / "empty"),))
    with pytest.raises(GpubindError) as caught:
        open_image("podman:test:1")
    assert (caught.value.code, "no `podman` in" in caught.value.why) == ("no-image-store", True)
    assert (caught.value.what, caught.value.where) == ("podman is not there", "podman:test:1")
    assert not (programs / "calls").exists()


@pytest.fixture
def memory(programs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`programs` whose image has an ID, and a place in which its content is remembered."""
    inspect(programs)
    (programs / "memos").mkdir(mode=0o700)
    monkeypatch.setenv("GPUBIND_MEMO", "on")
    monkeypatch.setattr(files, "directories", lambda: iter([str(programs / "memos")]))
    monkeypatch.setattr(files, "secret_directory", lambda: str(programs / "state"))
    monkeypatch.setattr(files, "_above", lambda path: [os.path.dirname(path)])  # the test may lie in root's /tmp
    monkeypatch.setattr(versions, "note_modules", lambda trace, **_: None)
    return programs


def inspect(programs: Path, **changed: object) -> None:
    image = {"Os": "linux", "Architecture": "amd64", "Config": {"Env": ENV}, **ID, **changed}
    (programs / "inspected").write_text(json.dumps([image]))


def look(reference: str = "docker:test:1", path: str = "/etc/passwd") -> str:
    with open_image(reference) as image:
        assert image.tree.has(path)
        return image.facts.libc_version or ""


def saves(programs: Path) -> int:
    return sum(" save " in line for line in calls(programs))


@pytest.mark.parametrize("store", ["podman", "docker"])
def test_an_image_is_saved_once_as_long_as_its_id_is_the_same(memory: Path, store: str) -> None:
    first = open_image(f"{store}:test:1")
    first.close()
    for number in range(3):
        inspect(memory, RepoTags=[f"test:{number}"], Metadata={"LastTagTime": f"{number}"})  # pulled again, say
        with open_image(f"{store}:test:1") as image:
            assert image.facts == first.facts
            assert image.tree.lacks("/nowhere")
    assert saves(memory) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"Id": f"sha256:{'3' * 64}"},
        {"Architecture": "arm64"},
        {"RootFS": {"Layers": [f"sha256:{'4' * 64}"]}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_another_image_under_the_same_name_is_saved(memory: Path, changed: dict[str, object]) -> None:
    assert look() == "2.36"
    (memory / "saved").write_bytes(archive(docker_archive([packed(tar(dict(glibc("2.31"))))], ENV)))
    inspect(memory, **changed)
    assert look() == "2.31"


def test_the_variables_are_those_of_the_image_now(memory: Path) -> None:
    look()
    inspect(memory, Config={"Env": ["PATH=/other"]})
    assert open_image("docker:test:1").facts.env == {"PATH": "/other"}


@pytest.mark.parametrize("name", ["DOCKER_HOST", "DOCKER_CONTEXT", "HOME"])
def test_another_store_has_a_memory_of_its_own(memory: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may say of any image that it has that ID."""
    look()
    monkeypatch.setenv(name, "/run/other")
    look()
    assert saves(memory) == 2


@pytest.mark.parametrize("name", ["TMPDIR", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"])
def test_what_differs_from_job_to_job_is_no_other_store(
    memory: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look()
    monkeypatch.setenv(name, "/run/other")
    look()
    assert saves(memory) == 1


def test_for_what_nobody_has_asked_before_the_image_is_saved_once_more(memory: Path) -> None:
    look()
    for _ in range(2):
        with open_image("docker:test:1") as image:
            assert image.tree.read_text("/etc/passwd") == "root:x:0:0::/root:/bin/sh\n"
        assert saves(memory) == 2


def test_an_image_without_an_id_and_one_for_which_nothing_is_kept_are_saved_each_time(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect(memory, Id=None)
    look()
    inspect(memory)
    monkeypatch.setenv("GPUBIND_MEMO", "off")
    look()
    assert saves(memory) == 2
    assert list((memory / "memos").iterdir()) == []


def test_of_an_image_that_is_removed_while_it_is_read_nothing_is_remembered(memory: Path) -> None:
    """Its layers go one by one: a file that is gone already was not absent."""
    in_layers(memory, glibc("2.36"))
    inspected = json.loads((memory / "inspected").read_text())
    (memory / "inspected").write_text(json.dumps([{**inspected[0], **ID}]))
    with open_image("podman:test:1") as image:
        assert image.tree.has("/etc/passwd")
        (memory / "inspected").write_text("[]")
    assert list((memory / "memos").iterdir()) == []


def test_an_image_that_is_remembered_and_cannot_be_saved_any_more_is_not_taken_for_a_bad_one(memory: Path) -> None:
    """With a full TMPDIR, for example: a start goes on without what it cannot see."""
    look()
    (memory / "saved").unlink()
    with open_image("docker:test:1") as image, pytest.raises(UnseenError) as caught:
        image.tree.read("/usr/bin/env")
    assert caught.value.code == "image-store"


def test_the_image_that_was_used_longest_ago_is_forgotten_first(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look()
    (file,) = (memory / "memos").iterdir()
    os.utime(file, (1, 1))
    look()
    assert file.stat().st_mtime > 1
