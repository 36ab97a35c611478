"""Which runtime `--backend auto` means, and what a start on a recorded host is."""

from __future__ import annotations

import json
import os
import pwd
from copy import copy
from pathlib import Path
from typing import Optional

import pytest

from gpubind import open_host
from gpubind import start as started
from gpubind.api.render import PrintForm, print_plan
from gpubind.errors import HostReadError, RuntimeLimitError, UsageError
from gpubind.host import Host
from gpubind.image.open import open_image
from gpubind.image.reference import native_reference, parse_reference
from gpubind.launch.caller import read_start_facts
from gpubind.launch.choose import choose_runtime, parse_start
from gpubind.launch.prepare import host_for, layout_of, make_start, plan_start
from gpubind.launch.target import need_form
from gpubind.model import Request
from gpubind.planner.planning import PlanQuery
from gpubind.runtimes import RUNTIMES
from gpubind.runtimes.runtime import Start
from tests.support.commands import HOST, gpubind
from tests.support.driver import V, host, kernel, libraries, rhel
from tests.support.golden import assert_listed
from tests.support.images import glibc, image
from tests.support.layers import archive, docker_archive, oci_layout, tar, write
from tests.support.starts import start
from tests.support.trees import Node, Spec, make_tree

EVERY = tuple(RUNTIMES)


def programs_in(directory: Path, *names: str) -> dict[str, str]:
    """An environment in whose PATH programs of these names are, and nothing else."""
    place = directory / "-".join(("programs", *names))
    place.mkdir(exist_ok=True)
    for name in names:
        (place / name).write_text("#!/bin/sh\n")
        (place / name).chmod(0o755)
    return {"PATH": str(place)}


def images(directory: Path) -> dict[str, str]:
    """An image of each form, by its name."""
    (directory / "tree/usr").mkdir(parents=True)
    (directory / "bundle").mkdir()
    (directory / "bundle/config.json").write_text("{}")
    (directory / "x.sif").write_bytes(bytes(32) + b"SIF_MAGIC\0")
    (directory / "x.sqsh").write_bytes(b"hsqs")
    (directory / "x").touch()
    (directory / "layout").mkdir()
    return {
        "tree": f"{directory}/tree",
        "sif": f"{directory}/x.sif",
        "squashfs": f"{directory}/x.sqsh",
        "other file": f"{directory}/x",
        "bundle": f"{directory}/bundle",
        "layout": f"oci:{directory}/layout:latest",
        "archive": f"oci-archive:{directory}/x.tar",
        "docker archive": "docker-archive:x.tar:name:tag",
        "registry": "docker://docker.io/library/debian:12",
        "library": "library://user/collection/image",
        "name": "debian:12",
        "podman": "podman:debian:12",
        "docker": "docker:debian:12",
        "gone": "/nonexistent/x",
        "gone.sif": "gone.sif",
    }


ABLE = {
    "tree": ("apptainer", "singularity", "bwrap", "podman", "ch-run", "proot", "systemd-nspawn"),
    "sif": ("apptainer", "singularity"),
    "squashfs": ("apptainer", "singularity", "enroot"),
    "other file": ("apptainer", "singularity"),
    "bundle": ("crun", "runc"),
    "layout": ("apptainer", "singularity", "podman"),
    "archive": ("apptainer", "singularity", "podman"),
    "docker archive": ("apptainer", "singularity", "podman"),
    "registry": ("apptainer", "singularity", "podman"),
    "library": ("apptainer", "singularity"),
    "podman": ("podman",),
    "docker": ("docker",),
}
"""Those that start each, in the order in which they are taken."""


@pytest.mark.parametrize("kind", ABLE)
def test_the_first_that_is_there_and_starts_such_an_image_is_taken(tmp_path: Path, kind: str) -> None:
    image = images(tmp_path)[kind]
    there, taken = list(EVERY), list[str]()
    with pytest.raises(RuntimeLimitError) as caught:
        while True:
            taken.append(choose_runtime(image, programs_in(tmp_path, *there)).runtime.name)
            there.remove(taken[-1])
    assert_listed(
        taken,
        ABLE[kind],
        add=f"gpubind/runtimes: `images` of `{{}}` lacks the form of {kind}, or `--backend auto` refuses it",
        remove=f"tests/test_preparation.py: add `{{}}` to ABLE[{kind!r}]; or correct `images` of that runtime",
        order="gpubind/runtimes/__init__.py, _ROWS",
    )
    assert (caught.value.code, caught.value.where) == ("no-runtime", image)
    assert ", ".join(ABLE[kind]) in caught.value.why


def test_who_has_docker_alone_is_told_its_name_for_an_image_of_a_registry(tmp_path: Path) -> None:
    with pytest.raises(RuntimeLimitError, match="no-runtime") as caught:
        choose_runtime("docker://ubuntu:24.04", programs_in(tmp_path, "docker"))
    assert caught.value.hint == "docker starts it by its name: `ubuntu:24.04`"


def test_a_store_that_is_named_with_the_image_needs_no_program_for_another_machine(tmp_path: Path) -> None:
    chosen = choose_runtime("podman:debian:12", programs_in(tmp_path), elsewhere=True)
    assert (chosen.runtime.name, chosen.image.word) == ("podman", "debian:12")
    with pytest.raises(RuntimeLimitError):
        choose_runtime("podman:debian:12", programs_in(tmp_path))


def test_a_name_that_is_nothing_here_is_a_stores_or_else_the_matter_of_whoever_is_there(tmp_path: Path) -> None:
    chosen = choose_runtime("debian:12", programs_in(tmp_path, *EVERY))
    assert (chosen.runtime.name, chosen.image.text) == ("podman", "debian:12")
    assert choose_runtime("debian:12", programs_in(tmp_path, "bwrap", "udocker")).runtime.name == "udocker"
    assert choose_runtime("debian:12", programs_in(tmp_path, "apptainer")).runtime.name == "apptainer"
    for missing in ("/nonexistent/x", "./x", "gone.sif"):
        assert choose_runtime(missing, programs_in(tmp_path, *EVERY)).runtime.name == "apptainer"


def test_an_image_that_is_named_with_its_store_is_told_to_that_by_its_own_name(tmp_path: Path) -> None:
    for store in ("podman", "docker"):
        chosen = choose_runtime(f"{store}:docker:dind", programs_in(tmp_path, *EVERY))
        assert (chosen.runtime.name, chosen.image.word) == (store, "docker:dind")


def test_what_is_there_counts_before_what_its_name_looks_like_but_a_store_is_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "oci:x").mkdir()
    (tmp_path / "docker:x").touch()
    monkeypatch.chdir(tmp_path)
    assert parse_reference("oci:x").form == "directory"
    chosen = choose_runtime("docker:x", programs_in(tmp_path, *EVERY))
    assert (chosen.runtime.name, chosen.image.word) == ("docker", "x")
    assert parse_reference("./docker:x").form == "file"


@pytest.mark.parametrize("word", ["podman:bb", "podman:5", "podman:docker:27", "podman:registry.example.org/a/b:1@c"])
def test_the_name_of_a_store_names_it_for_every_backend(tmp_path: Path, word: str) -> None:
    environ = programs_in(tmp_path, *EVERY)
    lines = [parse_start("exec", (word, "true"), backend, environ) for backend in ("auto", "podman")]
    references = {parse_reference(word), *(line.image for line in lines)}
    assert {line.runtime.name for line in lines} == {"podman"}
    assert [(one.store, one.word, one.label) for one in references] == [("podman", word.partition(":")[2], word)]


@pytest.mark.parametrize("backend", [name for name in RUNTIMES if name != "podman"])
def test_a_store_that_is_not_the_backends_is_an_error_that_names_both(tmp_path: Path, backend: str) -> None:
    with pytest.raises(UsageError, match="other-store") as caught:
        parse_start("exec", ("podman:bb", "true"), backend, programs_in(tmp_path, *EVERY))
    assert caught.value.where == "podman:bb"
    assert caught.value.why == f"the backend is {backend}"
    assert caught.value.hint.startswith("use --backend podman")
    assert ("`docker:podman:bb`" in caught.value.hint) == (backend == "docker")


@pytest.mark.parametrize("name", ["", "-v", "--privileged", "/etc", "./here", ".", "a b", "//x\n"])
def test_what_follows_a_store_is_a_name_and_no_option_or_path(tmp_path: Path, name: str) -> None:
    for backend in ("auto", "docker"):
        if name.startswith("//"):
            assert parse_reference(f"docker:{name}").form == "registry"
            continue
        with pytest.raises(UsageError, match="bad-image-name"):
            parse_start("exec", (f"docker:{name}", "true"), backend, programs_in(tmp_path, *EVERY))


def test_a_plain_name_is_one_of_the_store_of_a_backend_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app").mkdir()
    monkeypatch.chdir(tmp_path)
    for store in ("podman", "docker"):
        read = parse_reference("app", RUNTIMES[store])
        assert (read.store, read.word, read.label) == (store, "app", f"{store}:app")
        assert parse_reference("./app", RUNTIMES[store]).form == "directory"
    assert parse_reference("app", RUNTIMES["apptainer"]).form == "directory"
    assert parse_reference("oci:x", RUNTIMES["podman"]).form == "layout"
    assert parse_reference("oci:x", RUNTIMES["docker"]).store == "docker"  # an image that is called oci


@pytest.mark.parametrize("word", ["app.sif", "saved.tar", "saved.tar.gz"])
def test_a_word_that_ends_like_a_file_is_one_for_every_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_reference(word, RUNTIMES["docker"]).form is None
    (tmp_path / word).touch()
    assert parse_reference(word, RUNTIMES["docker"]).form == "file"


def test_the_first_bytes_of_a_file_say_what_it_is_and_not_its_name(tmp_path: Path) -> None:
    forms = {"sif": bytes(32) + b"SIF_MAGIC\0", "squashfs": b"hsqs" + bytes(92), "file": b"hsq"}
    for form, head in forms.items():
        (tmp_path / "a.sif").write_bytes(head)
        assert parse_reference(f"{tmp_path}/a.sif").form == form
    os.mkfifo(tmp_path / "pipe")
    assert parse_reference(f"{tmp_path}/pipe").form == "file"


@pytest.mark.parametrize(
    ("backend", "kinds", "only"),
    [
        ("bwrap", ("sif", "squashfs", "other file"), "bubblewrap starts only directories"),
        ("docker", ("sif", "tree"), "docker starts only the images of its own store"),
        ("podman", ("sif", "squashfs"), "podman starts only the images of its own store and directories"),
        ("crun", ("sif",), "crun starts only OCI bundles"),
        ("udocker", ("tree",), "udocker starts only the images of its own store"),
    ],
)
def test_a_form_that_a_runtime_does_not_start_is_refused_by_those_that_it_starts(
    tmp_path: Path, backend: str, kinds: tuple[str, ...], only: str
) -> None:
    for kind in kinds:
        reference = parse_reference(images(tmp_path / kind)[kind], RUNTIMES[backend])
        with pytest.raises(HostReadError, match="no-image") as caught:
            need_form(reference, RUNTIMES[backend])
        assert caught.value.what == only


def test_in_a_command_line_of_the_runtimes_own_a_prefix_is_part_of_the_name() -> None:
    for word in ("docker:dind", "podman:5", "app.sif"):
        for store in ("podman", "docker"):
            read = native_reference(word, RUNTIMES[store])
            assert (read.store, read.word) == (store, word)


def test_the_runtime_that_was_chosen_is_said_with_v_alone(tmp_path: Path) -> None:
    env = programs_in(tmp_path, "bwrap", "apptainer")
    words = ("--host", HOST, "--dry-run", images(tmp_path)["tree"], "true")
    said = "note: backend: apptainer, the first in PATH that starts such an image\n"
    loud = gpubind("exec", "-v", *words, env=env)
    assert loud.stderr.startswith(said)
    assert said not in gpubind("exec", *words, env=env).stderr + loud.stdout
    assert said not in gpubind("exec", "-v", "--backend", "apptainer", *words, env=env).stderr


# A start on another machine.


def recorded(euid: int = 0, machine: str = "x86_64") -> Host:
    made = copy(open_host(HOST))
    made.identity = made.identity._replace(euid=euid)
    made.uname = made.uname._replace(machine=machine)
    return made


@pytest.mark.parametrize("mine", [0, 1000])
@pytest.mark.parametrize("theirs", [0, 1000])
def test_who_starts_on_a_recorded_host_is_who_recorded_it(
    mine: int, theirs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: mine)
    start = read_start_facts(RUNTIMES["crun"], "/usr/bin/crun", (), {}, recorded(theirs))
    assert (start.caller.is_root, start.caller.uid) == (theirs == 0, None)


@pytest.mark.parametrize(("machine", "directory"), [("x86_64", "x86_64-linux-gnu"), ("aarch64", "aarch64-linux-gnu")])
def test_where_loaders_look_is_a_matter_of_the_hosts_architecture(machine: str, directory: str) -> None:
    host = recorded(machine=machine)
    layout = layout_of(make_start(host, RUNTIMES["udocker"], ()), None)
    assert layout.libdir == f"/usr/lib/{directory}"


def test_an_edited_bundle_is_the_same_whoever_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rootfs").mkdir()
    document = {"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {"cwd": "/", "args": ["x"]}}
    (tmp_path / "config.json").write_text(json.dumps(document))
    texts = set()
    for euid, may_write in ((0, True), (1000, False)):
        monkeypatch.setattr("os.geteuid", lambda euid=euid: euid)
        monkeypatch.setattr("os.access", lambda path, mode, may=may_write, **_: may)
        _, text = print_plan(PrintForm("oci"), open_host(HOST), PlanQuery(), open_image(tmp_path))
        texts.add(text)
    assert len(texts) == 1


@pytest.mark.parametrize("form", ["apptainer-env", "docker", "podman", "proot", "ch-run", "systemd-nspawn"])
def test_the_words_for_a_recorded_host_are_the_same_whoever_asks(form: str) -> None:
    others = {
        "LD_LIBRARY_PATH": "/mine",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1",
        "DOCKER_HOST": "ssh://a",
        "APPTAINER_CONTAIN": "1",
        "APPTAINERENV_LD_LIBRARY_PATH": "/a",
    }
    words = ("plan", "-q", "--host", HOST, "--format", form)
    assert gpubind(*words, env={}).stdout == gpubind(*words, env=others).stdout != ""


@pytest.mark.parametrize(
    ("form", "value", "is_told"),
    [
        ("apptainer-env", "/mine:$LD_LIBRARY_PATH", True),
        ("singularity-env", "${LD_LIBRARY_PATH:-/other}:/mine", True),
        ("apptainer-env", "/mine", False),
        ("apptainer-env", "$HOME/lib", False),
        ("apptainer-env", "/mine:/.singularity.d/libs:$LD_LIBRARY_PATH", False),
        ("apptainer", "/mine:$LD_LIBRARY_PATH", False),
    ],
)
def test_lines_whose_library_path_a_word_of_the_users_replaces_are_told(form: str, value: str, is_told: bool) -> None:
    own = ("--backend-arg=--env", f"--backend-arg=LD_LIBRARY_PATH={value}")
    said = gpubind("plan", "--host", HOST, "--format", form, *own).stderr
    assert ("library-path-last: --env LD_LIBRARY_PATH" in said) == is_told


def test_a_start_on_this_machine_alone_asks_the_program_in_path(tmp_path: Path) -> None:
    program = tmp_path / "apptainer"
    program.write_text("#!/bin/sh\necho apptainer version 1.2.3\n")
    program.chmod(0o755)
    for place, version in (({"root": str(tmp_path)}, (1, 2, 3)), ({"host": HOST}, None)):
        node = open_host(**place, environ={"PATH": str(tmp_path)})
        assert make_start(node, RUNTIMES["apptainer"], ()).facts.version == version


@pytest.mark.parametrize("home", ["/home/of/passwd", None])
def test_the_home_of_a_start_is_that_of_the_user_database(home: Optional[str], monkeypatch: pytest.MonkeyPatch) -> None:
    known = {os.getuid(): pwd.struct_passwd(("me", "x", 1, 1, "", home, "/bin/sh"))} if home else {}
    monkeypatch.setattr(pwd, "getpwuid", known.__getitem__)
    begun = read_start_facts(RUNTIMES["apptainer"], None, (), {"HOME": "/home/of/variable"}, open_host(HOST))
    assert begun.caller.home == home


@pytest.mark.parametrize("kind", ["oci-layout", "oci-archive", "docker-archive"])
def test_a_layout_or_an_archive_that_is_named_without_its_prefix_is_refused_with_it(tmp_path: Path, kind: str) -> None:
    files = (docker_archive if kind == "docker-archive" else oci_layout)([tar({"/etc/passwd": "x"})])
    path = tmp_path / "image"
    if kind == "oci-layout":
        write(path, files)
    else:
        path.write_bytes(archive(files))
    with pytest.raises(HostReadError) as caught:
        started(str(path), ["true"], backend="apptainer", host=open_host(HOST), dry_run=True)
    prefix = "oci" if kind == "oci-layout" else kind
    assert (caught.value.code, caught.value.hint) == ("no-image", f"`{prefix}:{path}`")


# What a check knows of a start.


@pytest.mark.parametrize(
    ("begun", "wanted"),
    [
        (start("--compat32"), True),
        (start("--compat32=false", environ={"APPTAINER_COMPAT32": "1"}), False),
        (start(environ={"APPTAINER_COMPAT32": "1"}), True),
        (start(environ={"NVIDIA_DRIVER_CAPABILITIES": "utility,compat32"}, version=(1, 6, 0)), True),
        (start(environ={"NVIDIA_DRIVER_CAPABILITIES": "compat32"}), False),
        (start(environ={"NVIDIA_DRIVER_CAPABILITIES": "compat32"}, program="singularity", version=(4, 5)), False),
        (start(), False),
    ],
)
def test_apptainers_words_for_32_bit_libraries_bring_them(begun: Start, wanted: bool) -> None:
    node = host(rhel(), libraries("/usr/lib", machine=3, bits=32), kernel())
    asked = Request(vendors=("nvidia",))
    for request, expected in ((asked, wanted), (asked._replace(caps=("compute",)), False)):
        _, made = plan_start(node, PlanQuery(request), begun, None, or_empty=False)
        assert ("/.gpubind/libs32/libcuda.so.1" in {mount.target for mount in made.mounts}) is expected


def test_where_the_site_has_apptainers_own_flag_look_the_driver_is_found() -> None:
    there, gone = "/opt/driver/lib", "/opt/driver/lib32"
    node = host(libraries(there), kernel())
    for value, found in ((f"{there}, {gone}", True), (f"{gone},opt/driver/lib", False)):
        begun = start(site_config={"gpu library path": (value,)})
        _, made = plan_start(node, PlanQuery(Request(vendors=("nvidia",))), begun, None, or_empty=False)
        assert (f"{there}/libcuda.so.{V}" in {mount.source for mount in made.mounts}) is found
        assert "unlisted-directory" not in {one.code for one in made.findings}


@pytest.mark.parametrize("backend", ["proot", "ch-run"])
def test_a_check_knows_that_the_user_accepts_what_can_be_written(tmp_path: Path, backend: str) -> None:
    files: Spec = {**rhel(), **kernel()}
    make_tree(tmp_path / "root", {path: item for path, item in files.items() if not isinstance(item, Node)})
    make_tree(tmp_path / "image", glibc())
    words = ("check", "--root", str(tmp_path / "root"), "--backend", backend, "--image", str(tmp_path / "image"))
    env = {**programs_in(tmp_path, backend)}
    refused, accepted = gpubind(*words, env=env).stdout, gpubind(*words, "--allow-writable", env=env).stdout
    assert "--allow-writable was given" not in refused
    assert "--allow-writable was given" in accepted


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ((), False),
        (("--setenv", "OTHER", "1"), False),
        (("--setenv", "CUDA_VISIBLE_DEVICES", "1"), True),
        (("--setenv", "NVIDIA_VISIBLE_DEVICES", "all"), True),
        (("--unsetenv", "CUDA_VISIBLE_DEVICES"), True),
        (("--clearenv",), True),
    ],
)
def test_what_bubblewrap_is_told_for_the_container_chooses_there_and_nothing_else(
    words: tuple[str, ...], chosen: bool
) -> None:
    host = copy(open_host(HOST))
    host.environ, host.local = {**host.environ, "CUDA_VISIBLE_DEVICES": "0"}, host.driver
    start = read_start_facts(RUNTIMES["bwrap"], None, words, host.environ, host)
    assert ("CUDA_VISIBLE_DEVICES" not in host_for(host, start, None).environ) == chosen


@pytest.mark.parametrize(
    ("own", "words", "left"),
    [
        ("", (), {"ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY"}),
        ("ZE_FLAT_DEVICE_HIERARCHY", (), {"ZE_AFFINITY_MASK"}),
        ("ZE_AFFINITY_MASK", (), {"ZE_FLAT_DEVICE_HIERARCHY"}),
        ("CUDA_VISIBLE_DEVICES", (), set()),
        ("", ("--setenv", "ZE_AFFINITY_MASK", "1"), set()),
        ("", ("--setenv", "ZE_FLAT_DEVICE_HIERARCHY", "FLAT"), set()),
    ],
)
def test_what_an_image_or_the_user_sets_for_level_zero_takes_the_place_of_the_callers(
    own: str, words: tuple[str, ...], left: set[str]
) -> None:
    host = copy(open_host(HOST))
    mask = {"ZE_AFFINITY_MASK": "1", "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}
    host.environ, host.local = mask, host.driver
    start = read_start_facts(RUNTIMES["bwrap"], None, words, host.environ, host)
    opened = image(glibc(), {"/.singularity.d/env/10-docker.sh": f"export {own}=0\n"} if own else {})
    assert set(host_for(host, start, opened).environ) == left


def test_an_instance_gets_all_gpus_because_later_commands_bring_variables_of_their_own() -> None:
    host = copy(open_host(HOST))
    host.environ, host.local = {**host.environ, "CUDA_VISIBLE_DEVICES": "1"}, host.driver
    begun = read_start_facts(RUNTIMES["apptainer"], None, ("--contain",), host.environ, host)
    assert host_for(host, begun, None).environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in host_for(host, begun._replace(is_entered=True), None).environ


@pytest.mark.parametrize(("words", "there", "runtime", "image"), [
    (("--rm", "-e", "A=b", "podman:debian:12", "true"), EVERY, "podman", "debian:12"),
    (("--rm", "-eA=b", "docker:debian:12", "true"), EVERY, "docker", "debian:12"),
    (("--contain", "-B", "/scratch", "x.sif", "true"), EVERY, "apptainer", "x.sif"),
    (("--nv", "docker://debian:12", "true"), ("singularity", "podman"), "singularity", "docker://debian:12"),
])  # fmt: skip
def test_behind_options_of_a_runtimes_own_the_image_is_looked_at(
    tmp_path: Path, words: tuple[str, ...], there: tuple[str, ...], runtime: str, image: str
) -> None:
    line = parse_start("exec", words, "auto", programs_in(tmp_path, *there))
    assert (line.runtime.name, line.image.word, line.options, line.argv) == (runtime, image, words[:-2], ("true",))


def test_for_a_record_the_usual_runtime_is_taken_where_none_is_here(tmp_path: Path) -> None:
    nothing = programs_in(tmp_path)
    with pytest.raises(RuntimeLimitError, match="no-runtime"):
        choose_runtime("app.sif", nothing)
    assert choose_runtime("app.sif", nothing, elsewhere=True).runtime.name == "apptainer"
    assert choose_runtime("app.sif", programs_in(tmp_path, "singularity"), elsewhere=True).runtime.name == "singularity"


@pytest.mark.parametrize("missing", ["/nonexistent/x", "./x", "gone.sif"])
def test_a_file_that_is_not_there_is_not_looked_for_in_a_store(tmp_path: Path, missing: str) -> None:
    with pytest.raises(HostReadError, match="no-image") as caught:
        choose_runtime(missing, programs_in(tmp_path, "docker"))
    assert "does not exist" in caught.value.why
