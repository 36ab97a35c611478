"""What is beside the driver's libraries: its programs, manifests and data."""

from __future__ import annotations

import pytest

from gpubind.host import ListFile
from gpubind.inventory.nvidia.inventory import read_inventory
from gpubind.model import Inventory, Request, RootedPath
from tests.support.driver import V, cache, host, kernel, libraries, run_directory, ubuntu
from tests.support.elf import elf
from tests.support.trees import Item, Link, Spec

ICD = '{"file_format_version": "1.0.1", "ICD": {"library_path": "libGLX_nvidia.so.0"}}'
PLACE = "/usr/share/vulkan/icd.d/nvidia_icd.json"
PROGRAM = elf(kind=2)


def inventory(*parts: Spec, request: Request = Request(), path: str = "", listed: str = "") -> Inventory:  # noqa: B008
    on = host(*parts, kernel(), environ={"PATH": path} if path else {})
    return read_inventory(on, request, ListFile("own.conf", listed.encode(), shipped=False) if listed else None)


def found(inventory: Inventory, name: str) -> list[str]:
    """Return the paths on the host of what is called *name* in a container."""
    return [file.path for file in inventory.files if (file.target or "") == name or name in file.names]


def prefixed(prefix: str, lib: str = "lib64") -> Spec:
    return {
        **libraries(f"{prefix}/{lib}"),
        f"{prefix}/bin/nvidia-smi": PROGRAM,
        f"{prefix}/sbin/nvidia-persistenced": PROGRAM,
        f"{prefix}/share/vulkan/icd.d/nvidia_icd.json": ICD,
        f"{prefix}/share/nvidia/nvoptix.bin": b"weights",
    }


def named(prefix: str, lib: str = "lib64") -> Request:
    return Request(library_path=(RootedPath(f"{prefix}/{lib}"),))


@pytest.mark.parametrize("lib", ["lib64", "lib", "lib/x86_64-linux-gnu", "lib64/nvidia/current", "driver"])
def test_programs_and_data_are_found_in_the_prefix_of_the_libraries(lib: str) -> None:
    of = inventory(prefixed("/opt/site", lib), request=named("/opt/site", lib))
    assert found(of, "nvidia-smi") == ["/opt/site/bin/nvidia-smi"]
    assert found(of, "nvidia-persistenced") == ["/opt/site/sbin/nvidia-persistenced"]
    assert found(of, PLACE) == ["/opt/site/share/vulkan/icd.d/nvidia_icd.json"]
    assert found(of, "/usr/share/nvidia/nvoptix.bin") == ["/opt/site/share/nvidia/nvoptix.bin"]


def test_etc_is_beside_a_prefix_that_is_called_usr() -> None:
    spec: Spec = {
        **libraries("/run/nvidia/driver/usr/lib64"),
        "/run/nvidia/driver/etc/OpenCL/vendors/nvidia.icd": "libnvidia-opencl.so.1\n",
    }
    there = found(inventory(spec), "/etc/OpenCL/vendors/nvidia.icd")
    assert there == ["/run/nvidia/driver/etc/OpenCL/vendors/nvidia.icd"]


def test_a_program_of_a_standard_directory_comes_before_one_beside_the_libraries_and_that_before_path() -> None:
    spec = prefixed("/opt/site")
    elsewhere: Spec = {"/srv/old/nvidia-smi": PROGRAM}
    request = named("/opt/site")
    assert found(inventory(spec, elsewhere, request=request, path="/srv/old"), "nvidia-smi") == [
        "/opt/site/bin/nvidia-smi"
    ]
    standard: Spec = {"/usr/bin/nvidia-smi": PROGRAM}
    assert found(inventory(spec, standard, request=request), "nvidia-smi") == ["/usr/bin/nvidia-smi"]


def test_data_is_of_the_driver_whose_libcuda_is_first() -> None:
    """An nvoptix.bin serves one version of the driver, and its name does not tell which."""
    left: Spec = {"/usr/share/nvidia/nvoptix.bin": b"of another driver", PLACE: ICD}
    with_left = inventory(prefixed("/opt/site"), left, request=named("/opt/site"))
    assert found(with_left, "/usr/share/nvidia/nvoptix.bin") == ["/opt/site/share/nvidia/nvoptix.bin"]
    both = inventory(prefixed("/opt/site"), ubuntu(), left, request=named("/opt/site"))
    assert found(both, "/usr/share/nvidia/nvoptix.bin") == ["/usr/share/nvidia/nvoptix.bin"]
    assert found(both, PLACE) == [PLACE]


def test_nothing_is_taken_from_beside_another_driver() -> None:
    old: Spec = {**prefixed("/opt/site"), **libraries("/opt/site/lib64", "470.57.02")}
    spec: dict[str, Item] = {path: item for path, item in old.items() if V not in path}
    of = inventory(ubuntu(), spec, request=named("/opt/site"))
    assert found(of, "nvidia-persistenced") == found(of, PLACE) == []


def test_links_to_the_libraries_lead_to_what_is_beside_them() -> None:
    site = prefixed("/opt/site")
    links: Spec = {f"/usr/lib64/{path.rpartition('/')[2]}": Link(path) for path in site if ".so" in path}
    of = inventory(site, links, {"/etc/ld.so.cache": cache({**site, **links}, ["/usr/lib64"])})
    assert found(of, "nvidia-smi") == ["/opt/site/bin/nvidia-smi"]
    assert found(of, PLACE) == ["/opt/site/share/vulkan/icd.d/nvidia_icd.json"]


def test_an_extracted_run_directory_may_be_named_as_a_directory_of_libraries() -> None:
    top = "/srv/NVIDIA-Linux-x86_64-550.54.14"
    spec: Spec = {top + path: item for path, item in run_directory().items()}
    of = inventory(spec, request=Request(library_path=(RootedPath(top),)))
    assert found(of, "nvidia-smi") == [f"{top}/nvidia-smi"]
    assert found(of, PLACE) == [f"{top}/nvidia_icd.json"]
    assert found(of, "/etc/OpenCL/vendors/nvidia.icd") == [f"{top}/nvidia.icd"]


def test_a_path_of_a_list_that_is_not_of_a_driver_is_taken_from_its_own_place_only() -> None:
    spec: Spec = {**prefixed("/opt/site"), "/opt/site/etc/hosts": "", "/opt/site/share/fonts/a.ttf": b""}
    lines = "libcuda.so\n/etc/hosts\n/usr/share/fonts/*\n"
    of = inventory(spec, request=named("/opt/site"), listed=lines)
    assert found(of, "/etc/hosts") == found(of, "/usr/share/fonts/a.ttf") == []
