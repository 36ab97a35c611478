"""The NVIDIA inventory: which files, by which rule, on which kind of host."""

from __future__ import annotations

import json
from typing import Optional

import pytest

from gpubind.errors import BoundError, FormatError, NothingToBindError
from gpubind.host import ListFile
from gpubind.inventory.nvidia.inventory import read_inventory
from gpubind.machine.budget import one_command
from gpubind.model import CAPABILITIES, HostFile, Inventory, Request, RootedPath
from tests.support.driver import SONAMES, V, cache, debian, host, kernel, libraries, rhel, run_directory, ubuntu
from tests.support.elf import elf, stub
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Dir, File, Hidden, Item, Link, Node, Spec, Unread

LAYOUTS = {"ubuntu": ubuntu, "rhel": rhel, "debian": debian, "run": run_directory}
ALL = Request(caps=CAPABILITIES)
DEFAULT = Request()


def inventory(*parts: Spec, request: Request = DEFAULT, listfile: Optional[bytes] = None) -> Inventory:
    site = ListFile("site.conf", listfile, shipped=False) if listfile is not None else None
    return read_inventory(host(*parts), request, site)


def named(found: Inventory, name: str) -> HostFile:
    """The one file that is called *name* in a container."""
    (file,) = [f for f in found.files if name in f.names or f.target == name]
    return file


def decided(found: Inventory, subject: str) -> list[tuple[str, str]]:
    return [(d.verdict, d.rule) for d in found.decisions if d.subject == subject]


def codes(found: Inventory) -> set[str]:
    return {finding.code for finding in found.findings}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_each_library_under_its_soname(layout: str) -> None:
    found = inventory(LAYOUTS[layout](), kernel())
    for stem, soname in SONAMES.items():
        file = named(found, soname)
        assert (file.soname, file.version) == (soname, V)
        assert file.path.endswith(f"/{stem}.so.{V}")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_unversioned_names_that_programs_open(layout: str) -> None:
    found = inventory(LAYOUTS[layout](), kernel())
    for alias, soname in [
        ("libcuda.so", "libcuda.so.1"),
        ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
        ("libGLX_indirect.so.0", "libGLX_nvidia.so.0"),
        ("nvidia-drm_gbm.so", "libnvidia-allocator.so.1"),
    ]:
        assert named(found, alias).path == named(found, soname).path


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("module", [V, None], ids=["module", "no-module"])
def test_liblist_and_driver_find_the_same(layout: str, module: Optional[str]) -> None:
    def files(source: str) -> list[tuple[str, tuple[str, ...], Optional[str], Optional[str]]]:
        found = inventory(LAYOUTS[layout](), kernel(module), request=Request(source=source))
        return sorted((f.path, f.names, f.soname, f.capability) for f in found.files)

    assert files("liblist") == files("driver")


def test_the_module_of_sysfs_decides_and_procfs_stands_in() -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build  (x)\n"
    proc: Spec = {"/proc/driver/nvidia/version": text}
    assert inventory(ubuntu(), kernel(), proc).driver.version == V
    assert inventory(ubuntu("560.35.03"), kernel(None), proc).driver.kernel_version == "560.35.03"


def test_without_a_module_the_version_behind_libcuda_is_assumed_and_told() -> None:
    found = inventory(ubuntu(), kernel(None))
    assert (found.driver.version, found.driver.version_assumed, found.driver.kernel_version) == (V, True, None)
    assert "driver-not-loaded" in codes(found)


def test_where_nouveau_has_the_gpu_no_module_is_to_be_loaded() -> None:
    having: Spec = {"/sys/module/nouveau": Dir()}
    assert codes(inventory(rhel(), kernel(None, gpus=0), having)) == {"nouveau"}
    assert "nouveau" not in codes(inventory(rhel(), kernel(), having))


def test_of_two_driver_versions_the_modules_is_taken_and_the_other_reported() -> None:
    old = libraries("/usr/lib64", "535.54.03")
    found = inventory(ubuntu(), old, kernel())
    assert named(found, "libcuda.so.1").path == f"/usr/lib/x86_64-linux-gnu/libcuda.so.{V}"
    assert ("rejected", "other-driver-version") in decided(found, "libcuda.so.1")
    assert "other-driver-version" in codes(found)


def test_the_cache_may_name_the_wrong_version_first() -> None:
    spec: dict[str, Item] = {**libraries("/opt/old", "535.54.03"), **libraries("/usr/lib64")}
    names = [entry("libcuda.so.1", "/opt/old/libcuda.so.1"), entry("libcuda.so.1", "/usr/lib64/libcuda.so.1")]
    found = inventory(spec, {"/etc/ld.so.cache": build_ldcache(names)}, kernel())
    assert named(found, "libcuda.so.1").path == f"/usr/lib64/libcuda.so.{V}"


def test_only_another_version_on_the_host_is_a_mismatch() -> None:
    found = inventory(ubuntu("535.54.03"), kernel())
    assert not [f for f in found.files if "libcuda.so.1" in f.names]
    assert "driver-mismatch" in codes(found)


def test_devices_without_libraries_are_an_error_finding() -> None:
    assert "no-libcuda" in codes(inventory(kernel()))


def test_neither_library_nor_device_is_nothing_to_bind() -> None:
    with pytest.raises(NothingToBindError) as caught:
        inventory({"/usr/lib64": Dir(), "/sys/module/nouveau": Dir()})
    assert "nouveau" in caught.value.why
    assert "/usr/lib64" in caught.value.where


def test_the_loaders_of_any_desktop_are_no_driver() -> None:
    desktop: Spec = {"/usr/lib64/libGL.so.1": elf("libGL.so.1"), "/usr/lib64/libGLdispatch.so.0": elf("x")}
    with pytest.raises(NothingToBindError):
        inventory(desktop)


def test_a_directory_that_cannot_be_read_is_told_where_nothing_is_found() -> None:
    with pytest.raises(NothingToBindError) as caught:
        inventory({"/usr/lib64": Hidden(directory=True)})
    assert caught.value.why.endswith("; /usr/lib64, /usr/lib64/nvidia cannot be read")


BAD_FILES: list[tuple[str, Spec, str]] = [
    ("stub", {"/usr/local/cuda/lib64/stubs/libcuda.so.1": elf("libcuda.so.1")}, "stub"),
    ("copy of a stub", {"/usr/local/lib/libcuda.so.1": stub()}, "stub"),
    ("link to a copy", {"/bad/libcuda.so.1": Link("cuda-stub"), "/bad/cuda-stub": stub()}, "stub"),
    ("dangling", {"/bad/libcuda.so.1": Link("gone.so")}, "dangling"),
    ("loop", {"/bad/libcuda.so.1": Link("libcuda.so.1")}, "path-loop"),
    ("linker script", {"/bad/libcuda.so.1": "/* GNU ld script */\nGROUP ( libx.so )\n"}, "linker-script"),
    ("zero bytes", {"/bad/libcuda.so.1": b""}, "zero-byte"),
    ("text", {"/bad/libcuda.so.1": "hello, world: not a library"}, "not-elf"),
    ("truncated", {"/bad/libcuda.so.1": elf("libcuda.so.1")[:18]}, "truncated-elf"),
    ("machine", {"/bad/libcuda.so.1": elf("libcuda.so.1", machine=183)}, "wrong-machine"),
    ("big endian", {"/bad/libcuda.so.1": elf("libcuda.so.1", machine=21, order="big")}, "wrong-machine"),
    ("x32", {"/bad/libcuda.so.1": elf("libcuda.so.1", bits=32)}, "wrong-machine"),
    ("forbidden", {"/bad/libcuda.so.1": Hidden()}, "path-forbidden"),
    (
        "compat",
        {f"/bad/compat/libcuda.so.{V}": elf("libcuda.so.1"), "/bad/libcuda.so.1": Link(f"compat/libcuda.so.{V}")},
        "cuda-compat",
    ),
    ("directory", {"/bad/libcuda.so.1": Dir()}, "unreadable"),
]


@pytest.mark.parametrize(("bad", "rule"), [b[1:] for b in BAD_FILES], ids=[b[0] for b in BAD_FILES])
def test_a_bad_file_that_the_cache_names_first_is_passed_over_with_its_rule(bad: Spec, rule: str) -> None:
    place = next(path for path in bad if path.endswith("libcuda.so.1"))
    names = [entry("libcuda.so.1", place), entry("libcuda.so.1", "/usr/lib64/libcuda.so.1")]
    found = inventory(libraries("/usr/lib64"), bad, {"/etc/ld.so.cache": build_ldcache(names)}, kernel())
    assert named(found, "libcuda.so.1").path == f"/usr/lib64/libcuda.so.{V}"
    assert ("rejected", rule) in decided(found, "libcuda.so.1")


@pytest.mark.parametrize("suffix", [".gone", ".bak", "~", ".dpkg-new", ".orig.1"])
def test_a_backup_of_a_library_does_not_take_its_place(suffix: str) -> None:
    parts = dict(libraries("/usr/lib64"))
    backup = f"/usr/lib64/libnvidia-ml.so.{V}{suffix}"
    parts[backup] = parts.pop(f"/usr/lib64/libnvidia-ml.so.{V}")
    found = inventory(parts, kernel())
    assert backup not in [file.path for file in found.files]
    assert ("rejected", "backup-name") in decided(found, backup.rpartition("/")[2])


@pytest.mark.parametrize("soname", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_a_copy_of_a_stub_takes_no_name_from_the_driver(soname: str) -> None:
    development = soname[:-2]
    names = [entry(development, f"/usr/local/lib/{development}"), entry(soname, f"/usr/lib64/{soname}")]
    parts: Spec = {f"/usr/local/lib/{development}": stub(soname), "/etc/ld.so.cache": build_ldcache(names)}
    found = inventory(libraries("/usr/lib64"), parts, kernel())
    assert [file.path for file in found.files if {soname, development} & set(file.names)] == [
        f"/usr/lib64/{development}.{V}"
    ]
    assert ("rejected", "stub") in decided(found, development)


@pytest.mark.parametrize("place", [f"/usr/lib64/libcuda.so.{V}", "/usr/lib64/libcuda.so.1"])
def test_a_stub_in_the_drivers_own_place_is_no_libcuda_and_named(place: str) -> None:
    parts = {**libraries("/usr/lib64"), place: stub()}
    if place.endswith(".1"):
        del parts[f"/usr/lib64/libcuda.so.{V}"]
    found = inventory(parts, kernel())
    assert not any("libcuda.so.1" in file.names for file in found.files)
    (finding,) = [finding for finding in found.findings if finding.code == "no-libcuda"]
    assert finding.where == f"{place} (a stub)"
    why = "the file of that name is a stub for linking; programs fail with CUDA_ERROR_STUB_LIBRARY (34)"
    assert finding.why == why


def test_a_small_libcuda_that_can_load_another_is_the_drivers() -> None:
    loader: Spec = {"/usr/lib/wsl/lib/libcuda.so.1": stub(imports=("dlopen", "dlsym"))}
    found = inventory(without_libcuda(), loader, kernel())
    assert named(found, "libcuda.so.1").path == "/usr/lib/wsl/lib/libcuda.so.1"


def test_the_driver_behind_a_link_in_a_directory_of_stubs_is_the_driver() -> None:
    names = [entry("libcuda.so.1", "/opt/cuda/lib64/stubs/libcuda.so.1")]
    link: Spec = {"/opt/cuda/lib64/stubs/libcuda.so.1": Link(f"/usr/lib64/libcuda.so.{V}")}
    found = inventory(libraries("/usr/lib64"), link, {"/etc/ld.so.cache": build_ldcache(names)}, kernel())
    assert named(found, "libcuda.so.1").path == f"/usr/lib64/libcuda.so.{V}"
    assert ("rejected", "stub") not in decided(found, "libcuda.so.1")


def without_libcuda() -> Spec:
    return {path: item for path, item in libraries("/usr/lib64").items() if "libcuda" not in path}


def test_a_cache_entry_with_a_relative_path_is_ignored() -> None:
    names = [entry("libcuda.so.1", "lib/libcuda.so.1"), entry("libcuda.so.1", "/usr/lib64/libcuda.so.1")]
    found = inventory(libraries("/usr/lib64"), {"/etc/ld.so.cache": build_ldcache(names)}, kernel())
    assert named(found, "libcuda.so.1").path == f"/usr/lib64/libcuda.so.{V}"


def test_a_libgl_that_is_not_nvidias_is_passed_over() -> None:
    mesa: Spec = {"/usr/lib64/libGL.so.1": Link("libGL.so.1.2.0"), "/usr/lib64/libGL.so.1.2.0": elf("libGL.so.1")}
    found = inventory(libraries("/usr/lib64"), mesa, kernel())
    assert ("rejected", "not-nvidia") in decided(found, "libGL.so.1")


def test_a_vendor_neutral_libgl_belongs_to_its_family() -> None:
    glvnd: Spec = {
        "/usr/lib64/libGL.so.1": elf("libGL.so.1"),
        "/usr/lib64/libGLdispatch.so.0": elf("libGLdispatch.so.0"),
    }
    found = inventory(libraries("/usr/lib64"), glvnd, kernel())
    assert named(found, "libGL.so.1").group == named(found, "libGLdispatch.so.0").group == "glvnd"


def test_a_libgl_that_carries_the_version_is_nvidias_own_and_graphics() -> None:
    own: Spec = {"/usr/lib64/libGL.so.1": Link(f"libGL.so.{V}"), f"/usr/lib64/libGL.so.{V}": elf("libGL.so.1")}
    assert named(inventory(libraries("/usr/lib64"), own, kernel()), "libGL.so.1").capability == "graphics"


CACHES: dict[str, Spec] = {
    "absent": {},
    "truncated": {"/etc/ld.so.cache": b"glibc-ld.so.cache1.1\x05"},
    "musl": {"/etc/ld.so.cache": b"/lib:/usr/lib\n"},
    "forbidden": {"/etc/ld.so.cache": Hidden()},
    "directory": {"/etc/ld.so.cache": Dir()},
    "empty": {"/etc/ld.so.cache": b""},
}


@pytest.mark.parametrize("state", CACHES)
@pytest.mark.parametrize(
    "directory", ["/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib"]
)
def test_without_a_usable_cache_the_known_directories_are_searched(state: str, directory: str) -> None:
    found = inventory(libraries(directory), CACHES[state], kernel())
    assert named(found, "libcuda.so.1").found_by == directory
    assert named(found, f"libnvidia-eglcore.so.{V}").soname == f"libnvidia-eglcore.so.{V}"
    assert {"no-ldcache", "bad-ldcache"} & codes(found)


@pytest.mark.parametrize(
    ("release", "reported"),
    [("ID=nixos\n", False), ('NAME=x\nID="alpine"\n', False), ("ID=debian\n", True), ("VARIANT_ID=nixos\n", True)],
)
def test_that_there_is_no_cache_is_not_reported_where_there_is_none_by_design(release: str, reported: bool) -> None:
    found = inventory(libraries("/usr/lib"), kernel(), {"/etc/os-release": release})
    assert ("no-ldcache" in codes(found)) is reported
    assert "no-ldcache" in [decision.rule for decision in found.decisions]


@pytest.mark.parametrize(
    ("release", "said"),
    [("ID=nixos\n", "hardware.graphics.enable"), ("ID=guix\n", "$GUIX_ENVIRONMENT/lib"), ("ID=suse\n", "install the")],
)
def test_where_libcuda_is_missing_the_hint_is_of_the_system(release: str, said: str) -> None:
    (one,) = (one for one in inventory(kernel(), {"/etc/os-release": release}).findings if one.code == "no-libcuda")
    assert said in (one.hint or "")


def test_library_path_names_a_place_that_nobody_knows() -> None:
    spec = libraries("/cm/local/apps/cuda-driver/libs/current/lib64")
    request = Request(library_path=(RootedPath("/cm/local/apps/cuda-driver/libs/current/lib64"),))
    assert named(inventory(spec, kernel(), request=request), "libcuda.so.1")


def test_the_drivers_modules_for_vdpau_and_gbm_are_found_in_their_directories() -> None:
    found = inventory(rhel(), kernel())
    assert named(found, "libvdpau_nvidia.so.1").capability == "video"
    assert named(found, "nvidia-drm_gbm.so").capability == "graphics"


def test_a_library_that_no_list_knows_is_taken_if_it_carries_the_version() -> None:
    new: Spec = {f"/usr/lib64/libnvidia-brandnew.so.{V}": elf(f"libnvidia-brandnew.so.{V}")}
    found = inventory(libraries("/usr/lib64"), new, kernel())
    file = named(found, f"libnvidia-brandnew.so.{V}")
    assert (file.named_by, file.capability) == ("completion", None)


def test_the_drivers_own_file_list_names_what_carries_no_version() -> None:
    names = [{"name": "libnvnew.so.1", "type": "LIB", "category": ["cuda"]}, {"name": "libgone.so.2", "type": "LIB"}]
    more: Spec = {
        "/usr/lib64/libnvnew.so.1": elf("libnvnew.so.1"),
        "/usr/share/nvidia/files.d/sandboxutils-filelist.json": json.dumps(names),
    }
    found = inventory(libraries("/usr/lib64"), more, kernel())
    assert named(found, "libnvnew.so.1").named_by == "completion"
    assert decided(found, "libgone.so.2") == [("absent", "no-match")]


def test_a_damaged_file_list_is_a_finding() -> None:
    spec: Spec = {"/usr/share/nvidia/files.d/sandboxutils-filelist.json": "[{"}
    assert "bad-filelist" in codes(inventory(ubuntu(), kernel(), spec))


def test_without_completion_only_the_list_counts() -> None:
    new: Spec = {f"/usr/lib64/libnvidia-brandnew.so.{V}": elf(f"libnvidia-brandnew.so.{V}")}
    found = inventory(libraries("/usr/lib64"), new, kernel(), request=Request(completion=False))
    assert decided(found, f"libnvidia-brandnew.so.{V}") == [("left-out", "not-in-list")]


def test_a_sites_list_is_the_law_and_what_it_lacks_is_a_finding() -> None:
    found = inventory(ubuntu(), kernel(), listfile=b"libcuda.so\nnvidia-smi\n")
    assert {f.names for f in found.files if f.kind == "library"} == {("libcuda.so", "libcuda.so.1")}
    finding = next(f for f in found.findings if f.code == "not-in-list")
    assert finding.hint is not None
    assert "libnvidia-ml.so" in finding.hint.partition(": ")[2].split(", ")


def test_an_entry_that_matches_nothing_is_a_decision() -> None:
    found = inventory(
        ubuntu(), kernel(), listfile=b"libcuda.so\nlibnothing.so\nno-program\n/no/file\n/no/lib.so\n/no/*.json\n"
    )
    for subject in ("libnothing.so", "no-program", "/no/file", "/no/lib.so", "/no/*.json"):
        assert decided(found, subject) == [("absent", "no-match")]


def test_a_relative_program_is_rejected() -> None:
    assert decided(inventory(ubuntu(), kernel(), listfile=b"bin/nvidia-smi\n"), "bin/nvidia-smi") == [
        ("rejected", "relative-path")
    ]


def test_an_absolute_library_entry_takes_the_links_beside_it() -> None:
    spec: Spec = {
        "/opt/x/libspecial.so.2.5": elf("libspecial.so.2"),
        "/opt/x/libspecial.so.2": Link("libspecial.so.2.5"),
        "/opt/x/libspecial.so": Link("libspecial.so.2"),
    }
    found = inventory(spec, kernel(), listfile=b"[video]\n/opt/x/libspecial.so.2.5\n")
    file = named(found, "libspecial.so.2")
    assert (file.names, file.capability) == (("libspecial.so", "libspecial.so.2"), "video")


def test_a_site_list_without_sections_takes_capabilities_from_the_shipped_table() -> None:
    found = inventory(ubuntu(), kernel(), listfile=b"libcuda.so\nlibGLX_nvidia.so\nnvidia-smi\n")
    assert named(found, "libcuda.so.1").capability == "compute"
    assert named(found, "libGLX_nvidia.so.0").capability == "graphics"
    assert named(found, "nvidia-smi").capability == "utility"


@pytest.mark.parametrize("entry", ["/", "/etc/../etc/hostname", "/etc/./hostname", "//etc/hostname", "/etc/"])
def test_a_path_that_is_not_plain_is_rejected(entry: str) -> None:
    found = inventory(ubuntu(), kernel(), {"/etc/hostname": "x"}, listfile=f"libcuda.so\n{entry}\n".encode())
    assert decided(found, entry) == [("rejected", "unclean-path")]


@pytest.mark.parametrize("entry", ["/dev", "/usr/lib", "/etc", "/usr/lib/x86_64-linux-gnu", "/usr/libexec", "/var/lib"])
def test_a_directory_that_a_container_has_of_its_own_is_rejected(entry: str) -> None:
    found = inventory(ubuntu(), kernel(), {f"{entry}/x": "x"}, listfile=f"libcuda.so\n{entry}\n".encode())
    assert decided(found, entry) == [("rejected", "system-directory")]


def test_patterns_are_bounded_all_together() -> None:
    wide: dict[str, Item] = {f"/a/{number}": Dir() for number in range(300)}
    patterns = "".join(f"/a/*/x{number}*\n" for number in range(100))
    with one_command(), pytest.raises(BoundError) as caught:
        inventory(ubuntu(), kernel(), wide, listfile=patterns.encode())
    assert caught.value.where == "bound `listings`"


def test_a_byte_order_mark_would_hide_the_first_entry_and_is_an_error() -> None:
    with pytest.raises(FormatError) as caught:
        inventory(ubuntu(), kernel(), listfile=b"\xef\xbb\xbflibcuda.so\n")
    assert caught.value.where == "site.conf:1"


def test_a_sites_list_without_libcuda_is_an_error_finding() -> None:
    found = inventory(ubuntu(), kernel(), listfile=b"libnvidia-ml.so\n")
    assert [f.severity for f in found.findings if f.code == "not-in-list"] == ["error"]


def test_a_malformed_list_is_an_error_with_its_line() -> None:
    with pytest.raises(FormatError) as caught:
        inventory(ubuntu(), kernel(), listfile=b"libcuda.so\n[compute\n")
    assert caught.value.where == "site.conf:2"


def test_32_bit_libraries_come_only_when_asked_for_and_apart() -> None:
    i386 = libraries("/usr/lib/i386-linux-gnu", machine=3, bits=32)
    spec: dict[str, Item] = {**ubuntu(), **i386}
    both = cache(spec, ["/usr/lib/x86_64-linux-gnu", "/usr/lib/i386-linux-gnu"])
    parts = (spec, {"/etc/ld.so.cache": both}, kernel())
    assert ("left-out", "compat32") in decided(inventory(*parts), "libcuda.so.1")
    asked = inventory(*parts, request=ALL)
    arches = {f.arch: f.capability for f in asked.files if "libcuda.so.1" in f.names}
    assert arches == {"x86_64": "compute", "i386": "compute"}


def test_a_second_copy_of_a_library_is_shadowed() -> None:
    found = inventory(ubuntu(), libraries("/usr/lib64", stems=("libcuda",)), kernel())
    assert ("left-out", "shadowed") in decided(found, "libcuda.so.1")


def test_a_soname_that_no_name_tells_is_read_from_the_file() -> None:
    found = inventory(run_directory(), kernel())
    assert named(found, "libcuda.so.1").names == ("libcuda.so", "libcuda.so.1")


HOSTILE_SONAMES = [
    "../../etc/passwd",
    "..",
    "",
    "a/b",
    "libc.so.6",
    "ld-linux-x86-64.so.2",
    "libnvidia-evil.so.1:x",
    "libnvidia-evil.so\n",
]


@pytest.mark.parametrize("soname", HOSTILE_SONAMES)
def test_a_hostile_soname_is_no_file_name(soname: str) -> None:
    spec: Spec = {f"/libnvidia-evil.so.{V}": elf(soname)}
    found = inventory(run_directory(), spec, kernel())
    assert named(found, f"libnvidia-evil.so.{V}").names == (f"libnvidia-evil.so.{V}",)


def test_a_manifest_of_a_run_directory_lands_where_the_installer_puts_it() -> None:
    found = inventory(run_directory(), kernel())
    assert named(found, "/usr/share/vulkan/icd.d/nvidia_icd.json").path == "/nvidia_icd.json"
    assert named(found, "/etc/OpenCL/vendors/nvidia.icd").path == "/nvidia.icd"


def test_a_manifest_below_usr_local_share_lands_where_loaders_look() -> None:
    """Source: nvidia-container-toolkit, TestGraphicsConfigsDiscoverer."""
    text = '{"ICD": {"library_path": "libEGL_nvidia.so.0"}}'
    local: Spec = {
        "/usr/local/share/glvnd/egl_vendor.d/10_nvidia.json": text,
        "/usr/local/share/vulkan/icd.d/nvidia_icd.json": text,
        "/usr/local/share/nvidia/nvoptix.bin": "x",
    }
    there: Spec = {"/usr/share/vulkan/icd.d/nvidia_icd.json": text}
    found = inventory(ubuntu(), local, there, kernel())
    egl = named(found, "/usr/share/glvnd/egl_vendor.d/10_nvidia.json")
    assert (egl.path, egl.kind) == ("/usr/local/share/glvnd/egl_vendor.d/10_nvidia.json", "manifest")
    assert named(found, "/usr/share/vulkan/icd.d/nvidia_icd.json").path == "/usr/share/vulkan/icd.d/nvidia_icd.json"
    assert named(found, "/usr/share/nvidia/nvoptix.bin").path == "/usr/local/share/nvidia/nvoptix.bin"


def test_a_damaged_manifest_is_rejected() -> None:
    bad: Spec = {"/usr/share/glvnd/egl_vendor.d/10_nvidia.json": "{"}
    found = inventory(ubuntu(), kernel(), bad)
    assert decided(found, "/usr/share/glvnd/egl_vendor.d/10_nvidia.json") == [("rejected", "bad-icd")]
    assert "bad-icd" in codes(found)


def test_a_program_of_another_machine_is_rejected() -> None:
    spec: Spec = {"/usr/bin/nvidia-smi": elf(kind=2, machine=183)}
    assert decided(inventory(ubuntu(), spec, kernel()), "nvidia-smi") == [("rejected", "wrong-machine")]


def test_a_program_is_found_in_path_after_the_standard_directories() -> None:
    spec: Spec = {"/opt/modules/nvidia/bin/nvidia-smi": elf(kind=2), "/usr/bin/nvidia-smi": Dir()}
    parts = (ubuntu(), kernel(), spec)
    found = read_inventory(host(*parts, environ={"PATH": "relative:/opt/modules/nvidia/bin"}), Request())
    assert named(found, "nvidia-smi").path == "/opt/modules/nvidia/bin/nvidia-smi"


def test_what_stays_on_the_host_has_a_decision() -> None:
    spec: Spec = {"/usr/bin/nvidia-modprobe": File(elf(kind=2), 0o4755)}
    assert decided(inventory(ubuntu(), kernel(), spec), "/usr/bin/nvidia-modprobe") == [("left-out", "host-only")]


def test_every_candidate_has_a_decision_or_is_taken() -> None:
    found = inventory(ubuntu(), libraries("/usr/lib64", "535.54.03"), kernel())
    subjects = {d.subject for d in found.decisions} | {name for f in found.files for name in f.names}
    for stem in SONAMES:
        assert any(subject.startswith(f"{stem}.so") for subject in subjects)
    assert all(decision.rule for decision in found.decisions)


@pytest.mark.parametrize(
    ("mark", "kind"), [({"/dev/dxg": b""}, "wsl"), ({"/etc/nv_tegra_release": "# R35\n"}, "tegra"), ({}, "linux")]
)
def test_the_kind_of_driver_is_told(mark: Spec, kind: str) -> None:
    assert inventory(ubuntu(), kernel(), mark).driver.kind == kind


@pytest.mark.parametrize(
    ("version", "cuda"),
    [("470.256.02", "11.4"), ("535.54.02", "12.1"), ("550.54.14", "12.4"), ("999.1", "13.3"), ("340.1", None)],
)
def test_the_driver_tells_its_newest_cuda(version: str, cuda: Optional[str]) -> None:
    assert inventory(ubuntu(version), kernel(version)).driver.cuda_max == cuda


@pytest.mark.parametrize(
    "second", ["/usr/lib64/libnvidia-egl-gbm.so.1.1.0", "/usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2"]
)
def test_the_file_that_a_soname_leads_to_serves_and_not_another_version_of_it(second: str) -> None:
    name, soname = "libnvidia-egl-gbm.so.1.1.1", "libnvidia-egl-gbm.so.1"
    platform: Spec = {f"/usr/lib64/{name}": elf(soname), f"/usr/lib64/{soname}": Link(name), second: elf(soname)}
    found = inventory(rhel(), kernel(), platform, {"/etc/ld.so.cache": build_ldcache([entry(soname)])})
    assert named(found, soname).path == f"/usr/lib64/{name}"
    assert decided(found, second.rpartition("/")[2]) == [("left-out", "shadowed")]


LIBCUDA = "/usr/lib64/libcuda.so.1"
NO_MODULE = "/sys/module/nvidia, /proc/driver/nvidia"
NO_DRIVER = "on a GPU node: install the driver, or give --root"


@pytest.mark.parametrize(
    ("parts", "cache_and_directories", "why", "hint"),
    [
        ({}, "/", "no NVIDIA kernel module is loaded", NO_DRIVER),
        (
            {"/dev/dxg": Node("char", 10, 125)},
            *("/", "/dev/dxg is there, and no driver of NVIDIA's in Windows", "install NVIDIA's driver in Windows"),
        ),
        (
            {"/sys/module/nouveau/x": ""},
            *("/", "the open-source driver nouveau owns the GPU", "with this GPU: `gpubind explain nouveau`"),
        ),
        (
            {"/usr/lib64": Hidden(True)},
            *("/usr/lib64, /", "no NVIDIA kernel module is loaded; /usr/lib64, /usr/lib64/nvidia cannot be read"),
            NO_DRIVER,
        ),
        (
            {"/sys/module/nvidia/version": "junk"},
            *("/", "/sys/module/nvidia/version: `junk` is not a version", NO_DRIVER),
        ),
        (
            {"/sys/module/nvidia/version": Hidden()},
            *("/", "/sys/module/nvidia/version: forbidden: permission denied", NO_DRIVER),
        ),
        (
            {"/proc/driver/nvidia/version": "bad"},
            *("/", "/proc/driver/nvidia/version: no `NVRM version:` line with a version", NO_DRIVER),
        ),
    ],
)
def test_where_nothing_is_found_each_place_and_the_reason_are_told(
    parts: Spec, cache_and_directories: str, why: str, hint: str
) -> None:
    with pytest.raises(NothingToBindError) as caught:
        inventory(parts)
    error = caught.value
    assert (error.code, error.what) == ("nothing-to-bind", "no NVIDIA driver library and no NVIDIA device on this host")
    assert error.where == f"no usable ld.so.cache, {cache_and_directories}, /dev/nvidia*, {NO_MODULE}"
    assert (error.why, error.hint) == (why, f"on a login node: a job (`srun --gpus=1`), or --host; {hint}")


def test_where_the_module_is_loaded_and_nothing_is_found_no_file_matches() -> None:
    with pytest.raises(NothingToBindError) as caught:
        inventory({"/sys/module/nvidia/version": V})
    assert caught.value.why == "no file matches"
    assert caught.value.where == "no usable ld.so.cache, /, /dev/nvidia*, /sys/module/nvidia/version"


def told(found: Inventory, code: str) -> list[tuple[object, ...]]:
    return [(f.severity, f.subject, f.where, f.what, f.why) for f in found.findings if f.code == code]


def test_an_empty_file_of_a_gpu_is_told_with_its_node_where_that_is_known() -> None:
    file = "/proc/driver/nvidia/gpus/0000:0{}:00.0/information"
    what = "the driver's file about the GPU at 0000:0{}:00.0 is empty: its {}"
    why = "the GPU keeps its index, {}; its UUID, model and minor number are unknown"
    nothing, forbidden = "it has none of the lines of a GPU", "forbidden: permission denied"
    one = inventory(rhel(), kernel(), {file.format(1): ""})
    node = what.format(1, "node is assumed to be /dev/nvidia0")
    assert told(one, "gpu-unreadable") == [
        ("warning", "0000:01:00.0", f"{file.format(1)}: {nothing}", node, why.format(0))
    ]
    two = inventory(rhel(), kernel(), {file.format(1): "", file.format(2): Hidden()})
    assert told(two, "gpu-unreadable") == [
        (
            "warning",
            f"0000:0{at}:00.0",
            f"{file.format(at)}: {fault}",
            what.format(at, "device node is unknown"),
            why.format(at - 1),
        )
        for at, fault in ((1, nothing), (2, forbidden))
    ]


def test_a_module_that_is_not_loaded_is_told_with_the_reason_and_the_assumed_version() -> None:
    ends = "programs fail with CUDA_ERROR_NO_DEVICE (100) or `Driver Not Loaded`"
    what = "no NVIDIA kernel module is loaded on this host"
    assumed = f"no NVIDIA kernel module is loaded; {ends}. The plan assumes version {V}, that of libcuda's file"
    assert told(inventory(rhel()), "driver-not-loaded") == [("error", "nvidia", NO_MODULE, what, assumed)]
    damaged = inventory(kernel(), {"/sys/module/nvidia/version": "x"})
    why = f"/sys/module/nvidia/version: `x` is not a version; {ends}"
    assert told(damaged, "driver-not-loaded") == [("error", "nvidia", NO_MODULE, what, why)]
    pci = "/sys/bus/pci/devices/0000:01:00.0"
    nouveau: Spec = {"/sys/module/nouveau/x": "", f"{pci}/class": "0x030000", f"{pci}/vendor": "0x10de"}
    (row,) = told(inventory(rhel(), nouveau), "nouveau")
    assert row[:3] == ("error", "nouveau", "/sys/module/nouveau, 0000:01:00.0")
    assert told(inventory(rhel(), nouveau), "driver-not-loaded") == []


def test_files_of_another_version_are_told_with_the_first_and_their_number() -> None:
    first = "/sys/module/nvidia/version; /usr/lib64/libEGL_nvidia.so.535.1.1"
    why = "programs fail with `Driver/library version mismatch`"
    several = f"13 files of another driver version, 535.1.1, exist on this host; {V} is used"
    both = inventory(rhel(), rhel("535.1.1"), kernel())
    assert told(both, "other-driver-version") == [("warning", "535.1.1", first, several, why)]
    only_other = inventory(rhel("535.1.1"), kernel())
    what = f"the kernel module is {V}, the libraries on this host are 535.1.1"
    assert told(only_other, "driver-mismatch") == [("error", "535.1.1", first, what, why)]
    assert told(only_other, "other-driver-version") == told(only_other, "no-libcuda") == []


FAILS = "programs fail with `libcuda.so.1: "
DAMAGED = f"{FAILS}file too short`, `invalid ELF header` or `cannot open shared object file`"
NOT_OF_DRIVER = "named libcuda.so.1, is not a library of this host's driver"


@pytest.mark.parametrize(
    ("item", "where", "what", "why"),
    [
        (
            None,
            "no usable ld.so.cache, /usr/lib64, /",
            "there are NVIDIA devices, but no libcuda.so.1 of this driver",
            f"{FAILS}cannot open shared object file`",
        ),
        (
            Hidden(),
            LIBCUDA,
            f"the driver's libcuda.so.1 is in a directory without search permission: {LIBCUDA}",
            f"{FAILS}cannot open shared object file: Permission denied`",
        ),
        (
            b"\x7fELFjunk",
            f"{LIBCUDA} (mode 0644, 8 bytes)",
            f"the file {LIBCUDA} (mode 0644, 8 bytes), {NOT_OF_DRIVER}: 8 bytes",
            DAMAGED,
        ),
        (
            Unread(),
            f"{LIBCUDA} (mode 0444, 4096 bytes)",
            f"the file {LIBCUDA} (mode 0444, 4096 bytes), {NOT_OF_DRIVER}: unreadable: Input/output error",
            DAMAGED,
        ),
    ],
    ids=["absent", "hidden", "damaged", "unread"],
)
def test_why_libcuda_cannot_be_used_is_told_with_its_file(
    item: Optional[Item], where: str, what: str, why: str
) -> None:
    found = inventory(without_libcuda(), {} if item is None else {LIBCUDA: item}, kernel())
    assert told(found, "no-libcuda") == [("error", "libcuda.so.1", where, what, why)]


def test_where_libcuda_is_absent_the_search_path_of_the_caller_is_named() -> None:
    on = host(without_libcuda(), kernel(), environ={"LD_LIBRARY_PATH": "/x"})
    (row,) = told(read_inventory(on, DEFAULT), "no-libcuda")
    assert row[2] == "no usable ld.so.cache, /usr/lib64, /, LD_LIBRARY_PATH"


def test_what_a_list_of_the_site_lacks_is_told_with_the_lines_to_add() -> None:
    names = ("libnvidia-nvvm.so.4", f"libnvidia-nvvm.so.{V}")
    for listed, severity in ((b"libcuda.so\n", "warning"), (b"libnvidia-ml.so\n", "error")):
        found = inventory(rhel(), kernel(), listfile=listed)
        (finding,) = [finding for finding in found.findings if finding.code == "not-in-list"]
        where = (finding.where or "").split(", ")
        assert (finding.severity, finding.subject, set(names) <= {*where}) == (severity, "site.conf", True)
        assert finding.what == f"the driver has {len(where)} libraries that the active list does not name"
        stems = sorted({f"{name.partition('.so')[0]}.so" for name in where})
        assert finding.hint == f"add them to the list, each on a line: {', '.join(stems)}"


def test_a_damaged_file_list_of_the_driver_is_told_with_the_place() -> None:
    path = "/usr/share/nvidia/files.d/sandboxutils-filelist.json"
    (row,) = told(inventory(rhel(), kernel(), {path: "{"}), "bad-filelist")
    fault = "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    assert (*row[:3], row[4]) == ("warning", path, f"{path}: byte 1", fault)
