"""Images in a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubind import plan
from gpubind.errors import HostReadError
from gpubind.image.open import open_image
from gpubind.model import Request
from tests.support.driver import host, kernel, ubuntu
from tests.support.elf import I386, elf
from tests.support.images import GCOMPAT, GLIBC, MUSL, OWN_PREFIX, STATIC, glibc, image, sandbox
from tests.support.trees import Dir, File, Hidden, Item, Link, Spec, make_tree


def test_glibc_is_told_from_its_version_definitions() -> None:
    facts = image(glibc("2.36")).facts
    assert (facts.libc_family, facts.libc_version, facts.arch) == ("glibc", "2.36", "x86_64")


def test_musl_and_none_are_told_apart() -> None:
    assert image(MUSL).facts.libc_family == "musl"
    assert image(MUSL, GCOMPAT).facts.libc_family == "musl"
    stored = {
        f"/nix/store/{name}/lib/libc.so.6": glibc(version)["/usr/lib/x86_64-linux-gnu/libc.so.6"]
        for name, version in (("a1-glibc-2.38-27", "2.38"), ("0f-glibc-2.40-66", "2.40"))
    }
    assert image({**stored, "/nix/store/0f-glibc-locales-2.40/lib/locale": Dir()}).facts.libc_version == "2.40"
    assert image(glibc("2.36"), stored).facts.libc_version == "2.36"
    own = image(MUSL, OWN_PREFIX).facts
    assert (own.libc_family, own.libc_version) == ("glibc", "2.34")
    assert (image(STATIC).facts.libc_family, image(STATIC).facts.arch) == ("none", "x86_64")


def test_an_empty_image_has_no_architecture() -> None:
    assert image({"/etc/hostname": "x"}).facts.arch is None


def test_a_sandbox_is_told_from_a_plain_directory() -> None:
    assert image(glibc(), sandbox()).facts.singularity
    assert not image(glibc()).facts.singularity


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("export LD_LIBRARY_PATH=/a:/b", "/a:/b"),
        ('export LD_LIBRARY_PATH="/a b"', "/a b"),
        ("LD_LIBRARY_PATH='/a'", "/a"),
        ('export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-"/usr/local/nvidia/lib"}"', "/usr/local/nvidia/lib"),
        ("export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-/a}", "/a"),
        ("export LD_LIBRARY_PATH=$(touch /tmp/owned)", None),
        ("export LD_LIBRARY_PATH=`id`", None),
        ("# export LD_LIBRARY_PATH=/a", None),
    ],
)
def test_environment_files_are_read_and_never_run(line: str, value: object) -> None:
    assert image(glibc(), sandbox(line)).facts.env.get("LD_LIBRARY_PATH") == value


def test_what_singularity_itself_appends_is_not_the_images_own_value() -> None:
    assert image(glibc(), sandbox()).facts.env == {}


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostReadError) as caught:
        open_image(str(tmp_path / "gone"))
    assert caught.value.code == "no-image"


def test_a_link_out_of_the_image_stays_inside(tmp_path: Path) -> None:
    spec: Spec = {"/lib": Link("../../../../../../usr/lib"), "/usr/lib/x86_64-linux-gnu/libc.so.6": Link("/etc/shadow")}
    make_tree(tmp_path, spec)
    assert open_image(str(tmp_path)).facts.libc_family == "none"


def test_an_image_with_forbidden_parts_is_read_as_far_as_it_goes() -> None:
    assert image(glibc(), {"/.singularity.d/env/90-environment.sh": Hidden()}).facts.libc_family == "glibc"


@pytest.mark.parametrize(
    ("spec", "directory"),
    [
        ({"/usr/lib": Hidden(directory=True), "/lib": Link("usr/lib")}, "/lib"),
        ({"/usr/lib/libc.so.6": Hidden(), "/etc/hostname": "x"}, "/usr/lib"),
    ],
    ids=["directory", "file"],
)
def test_a_c_library_that_may_not_be_looked_at_is_not_absent(spec: Spec, directory: str) -> None:
    with pytest.raises(HostReadError) as caught:
        image(spec)
    assert (caught.value.code, caught.value.where) == ("unreadable-file", "test")
    assert (caught.value.what, caught.value.why, caught.value.hint) == (
        "the image cannot be read",
        f"you may not look into {directory} in it",
        "ask its owner, or use an image that you may read",
    )


def test_a_forbidden_directory_says_nothing_where_the_c_library_is_found() -> None:
    assert image(glibc(), {"/lib32": Hidden(directory=True)}).facts.libc_family == "glibc"


def test_an_image_with_32_bit_libraries_is_for_the_machine_of_its_shell() -> None:
    """Without a cache, i386-linux-gnu comes before x86_64-linux-gnu, in ld.so.conf.d, too."""
    small: Spec = {"/usr/lib/i386-linux-gnu/libc.so.6": elf("libc.so.6", machine=I386, bits=32, defines=GLIBC[:9])}
    assert image(glibc(), small).facts.arch == "x86_64"
    only = {path: item for path, item in glibc().items() if "64" not in path}
    opened = image(only, small, {"/usr/bin/sh": File(elf(kind=2, machine=I386, bits=32), 0o755)})
    assert opened.facts.arch == "i386"
    damaged = image(glibc(), small, {"/usr/lib/x86_64-linux-gnu/libc.so.6": b""})
    assert (damaged.facts.arch, damaged.facts.libc_family) == ("x86_64", "none")
    assert "x86_64-linux-gnu/libc.so.6: the file is empty" in (damaged.facts.libc_fault or "")


SHORT = elf("libc.so.6", defines=GLIBC)
DAMAGED: dict[str, Item] = {
    "the file is empty": b"",
    "starts with b'text'": b"text",
    "damaged ELF file: the file ends before its program headers": SHORT[:70],
    "damaged ELF file: the file is truncated": SHORT[:300],
    "it defines no version of glibc": elf("libc.so.6"),
    "leads to no file of the image": Link("/proc/1/root/libc.so.6"),
    "leads to no file": Link("libc.so.6"),
}


@pytest.mark.parametrize("why", DAMAGED)
def test_a_damaged_c_library_is_not_one_that_is_absent(why: str) -> None:
    path = "/usr/lib/x86_64-linux-gnu/libc.so.6"
    opened = image(glibc(), {path: DAMAGED[why]})
    fault = opened.facts.libc_fault or ""
    assert fault.startswith(path)
    assert why in fault
    made = plan(host(ubuntu(), kernel()), Request(libc="host"), image=opened)
    (finding,) = [finding for finding in made.findings if finding.code == "image-without-glibc"]
    assert f"the image's glibc is unusable: {fault}" in finding.what
    assert "install" not in (finding.hint or "")
    assert {image(glibc()).facts.libc_fault, image(MUSL).facts.libc_fault, image(STATIC).facts.libc_fault} == {None}


@pytest.mark.parametrize("name", ["bin", "etc", "lib", "lib64", "nix", "sbin", "usr"])
def test_a_directory_with_any_of_the_usual_names_has_a_root(name: str) -> None:
    assert image({f"/{name}": Dir()}).facts.has_root
    assert not image({"/other": Dir()}).facts.has_root


@pytest.mark.parametrize("shell", ["/bin/sh", "/usr/bin/env", "/bin/busybox"])
def test_an_image_without_a_c_library_has_the_architecture_of_its_shell(shell: str) -> None:
    assert image({shell: File(elf(kind=2, machine=183), 0o755)}).facts.arch == "aarch64"
    assert image({"/bin/other": File(elf(kind=2, machine=183), 0o755)}).facts.arch is None


@pytest.mark.parametrize("toolkit", ["cuda", "cuda-12.9"])
@pytest.mark.parametrize("below", ["", "/lib.real", "/lib"])
def test_a_compat_libcuda_is_found_where_nvidias_packages_and_images_have_it(toolkit: str, below: str) -> None:
    directory = f"/usr/local/{toolkit}/compat{below}"
    spec: Spec = {
        f"{directory}/libcuda.so.1": Link("libcuda.so.575.57.08"),
        f"{directory}/libcuda.so.575.57.08": elf("libcuda.so.1"),
    }
    (found,) = image(glibc(), spec).facts.compat
    assert (found.soname, found.path, found.version) == (
        "libcuda.so.1",
        f"{directory}/libcuda.so.575.57.08",
        "575.57.08",
    )
    (other,) = (f"/opt/compat{below}/libcuda.so.1",)
    assert image(glibc(), {other: elf("libcuda.so.1")}).facts.compat == ()


def test_an_images_own_libcuda_is_the_first_before_those_of_the_host() -> None:
    own: Spec = {f"/{name}/libcuda.so.1": elf("libcuda.so.1") for name in ("a", "b")}

    def found(path: str) -> object:
        return image(glibc(), own, sandbox(f"export LD_LIBRARY_PATH={path}")).facts.own_libcuda

    assert found("/none:/b:/a") == "/b/libcuda.so.1"
    assert found("a:/a") == "/a/libcuda.so.1"
    assert found("/.singularity.d/libs:/a") is None
    assert found("/none") is None


def test_an_image_says_what_it_is_in_a_line() -> None:
    opened = image(glibc("2.36"), {"/usr/local/cuda/version.txt": "CUDA Version 10.2.89\n"})
    assert repr(opened) == "<Image 'test': directory, x86_64, glibc 2.36, CUDA 10.2.89>"
    assert repr(image(MUSL)) == "<Image 'test': directory, x86_64, musl>"
    assert repr(image({"/etc/hostname": "x"})) == "<Image 'test': directory, of unknown architecture, no C library>"
