"""NixOS and Guix System: each package in a directory of its own, and links to them; no ld.so.cache."""

from __future__ import annotations

from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import PROGRAMS, Places, libraries, manifests, nodes, planned
from tests.support.driver import V, kernel
from tests.support.elf import elf
from tests.support.trees import File, Item, Link, Spec

NIX, GUIX = f"/nix/store/0a1b2c-nvidia-x11-{V}", f"/gnu/store/0a1b2c-nvidia-driver-{V}"
OF_NIX, OF_GUIX = f"{NIX}-bin", GUIX
STORED = tuple(name for name in PROGRAMS if name != "nvidia-persistenced")
WANTED = planned(icd="nvidia_icd.x86_64.json") | {"programs": STORED}


def package(path: str) -> Spec:
    """Return the libraries and manifests of a driver in *path*; the manifests name libraries there."""
    at = Places(f"{path}/lib", share=f"{path}/share", etc=f"{path}/etc", vulkan=f"{path}/share/vulkan")
    return {
        **libraries(at.lib),
        **manifests(at._replace(icd="nvidia_icd.x86_64.json", icd_library=f"{path}/lib/libGLX_nvidia.so.0")),
    }


def changed(directory: str, glibc: str) -> Spec:
    """Return the programs, changed for the loader of *glibc*, which is there, too."""
    loader = f"{glibc}/lib/ld-linux-x86-64.so.2"
    made = {f"{directory}/{name}": File(elf(kind=2, interpreter=loader), 0o755) for name in STORED}
    return {**made, loader: elf("ld-linux-x86-64.so.2"), f"{glibc}/lib/libc.so.6": elf("libc.so.6")}


def environment(path: str, spec: Spec, prefix: str) -> Spec:
    """Return a directory *path* of links to what of *spec* is below *prefix*, as buildEnv makes it."""
    made: dict[str, Item] = {}
    for name in spec:
        if name.startswith(f"{prefix}/"):
            made[f"{path}/{name[len(prefix) + 1 :]}"] = Link(name)
    return made


def renamed(spec: Spec) -> Spec:
    """Return *spec* with the machine in the names of manifests, as nonguix has it."""
    made: dict[str, Item] = {}
    for path, item in spec.items():
        stem, dot, ending = path.rpartition(".")
        is_plain = ending in ("icd", "json") and not stem.endswith(".x86_64")
        made[f"{stem}.x86_64{dot}{ending}" if is_plain else path] = item
    return made


def nixos(*parts: Spec) -> Spec:
    """Return a NixOS with the driver, whose programs are *parts*."""
    driver = {path: item for path, item in package(NIX).items() if not path.endswith("nvoptix.bin")}
    driver[f"{NIX}/lib/nvoptix.bin"] = b"weights"
    spec: dict[str, Item] = {
        **driver,
        **environment("/nix/store/d4e5f6-graphics-drivers", driver, NIX),
        "/run/opengl-driver": Link("/nix/store/d4e5f6-graphics-drivers"),
        "/nix/store/789abc-etc/etc/os-release": "ID=nixos\nNAME=NixOS\n",
        "/etc/static": Link("/nix/store/789abc-etc/etc"),
        "/etc/os-release": Link("/etc/static/os-release"),
    }
    for part in parts:
        spec.update(part)
    for name in STORED:
        spec[f"/run/current-system/sw/bin/{name}"] = Link(f"{OF_NIX}/bin/{name}")
    return {**spec, **kernel()}


CHANGED_FOR_NIX = changed(f"{OF_NIX}/bin", "/nix/store/1d2e3f-glibc-2.40-66")
FOR_GUIX = renamed(package(GUIX))
MANIFESTS_OF_GUIX = tuple(
    path.rpartition("/")[2] for path in FOR_GUIX if path.endswith((".icd", ".json", "nvoptix.bin"))
)
NIXPKGS = "https://github.com/NixOS/nixpkgs/blob/master/pkgs/os-specific/linux/nvidia-x11/builder.sh"

LAYOUTS = (
    HostLayout(
        name="nixos",
        who="NixOS with `hardware.graphics.enable` and the driver of nixpkgs",
        source=NIXPKGS,
        spec=nixos(CHANGED_FOR_NIX),
        planned=WANTED | {"loader": ("lib",)},
        nodes=nodes(),
        gpus=("0", "1"),
        remark="Programs come with their loader and C library, at the same path.",
    ),
    HostLayout(
        name="guix",
        who="Guix System with nonguix' nvidia-service-type",
        source="https://gitlab.com/nonguix/nonguix/-/blob/master/nongnu/packages/nvidia.scm",
        spec={
            **FOR_GUIX,
            **changed(f"{OF_GUIX}/bin", "/gnu/store/1d2e3f-glibc-2.41"),
            "/run/current-system": Link("/var/guix/profiles/system"),
            "/var/guix/profiles/system": Link("/gnu/store/789abc-system"),
            "/gnu/store/789abc-system/profile": Link("/gnu/store/d4e5f6-profile"),
            **environment("/gnu/store/d4e5f6-profile", {**FOR_GUIX, **changed(f"{GUIX}/bin", "/x")}, GUIX),
            "/etc/os-release": 'NAME="Guix System"\nID=guix\n',
            **kernel(),
        },
        planned=WANTED | {"loader": ("lib",), "manifests": MANIFESTS_OF_GUIX},
        nodes=nodes(),
        gpus=("0", "1"),
        remark="Programs come with their loader and C library, at the same path. In a profile of one user: "
        "`--library-path ~/.guix-profile/lib`.",
    ),
)
