"""Images, each a base plus one change. Plain data: `build` makes them.

A base is a tree of the rig: `bookworm` a plain directory, `bookworm-sb` a sandbox.
"""

from __future__ import annotations

from typing import NamedTuple

STUB, OLD, COMPAT, OWN = "stub", "old", "compat", "own"
"""What a recipe may copy: libcuda as a stub, of driver 535, and for forward compatibility; a library of no driver's."""


class Step(NamedTuple):
    """One step of a change."""

    verb: str
    """`write`, `copy` (of one of the names above), `link`, `remove`, `run` (a command of the image's)."""
    path: str
    content: str = ""


class Image(NamedTuple):
    """A base and its change."""

    name: str
    base: str
    steps: tuple[Step, ...] = ()
    sif: bool = False
    """Whether the same is made as a SIF file, too."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """In which kinds it is started."""
        own = "sandbox" if self.base.endswith("-sb") else "directory"
        return (own, "SIF") if self.sif else (own,)


ENV10 = "/.singularity.d/env/10-docker2singularity.sh"
ENV90 = "/.singularity.d/env/90-environment.sh"
ENV91 = "/.singularity.d/env/91-environment.sh"
STUBS = "/opt/stubs"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def _env(text: str, path: str = ENV90) -> Step:
    return Step("write", path, f"#!/bin/sh\n{text}\n")


def _libcuda(which: str, directory: str, name: str = "libcuda.so.1") -> tuple[Step, Step]:
    return Step("copy", f"{directory}/{name}", which), Step("link", f"{directory}/libcuda.so", name)


def _driver(directory: str) -> tuple[Step, ...]:
    """The libcuda of an older driver, as an image gets it that was built on a GPU node."""
    return _versioned(directory, "535.261.03", OLD)


def _compat(directory: str) -> tuple[Step, ...]:
    """A directory as NVIDIA's cuda-compat packages make it."""
    return _versioned(directory, "580.65.06", COMPAT)


def _versioned(directory: str, version: str, which: str) -> tuple[Step, ...]:
    real = f"libcuda.so.{version}"
    links = [Step("link", f"{directory}/{name}", real) for name in ("libcuda.so.1", "libcuda.so")]
    return (Step("copy", f"{directory}/{real}", which), *links)


def _path(value: str, path: str = ENV90) -> Step:
    return _env(f"export LD_LIBRARY_PATH={value}", path)


_OWN = Step("copy", "/opt/own/lib/libown.so.1", OWN)
_LDCONFIG = Step("run", "/sbin/ldconfig")
_STUB = _libcuda(STUB, STUBS)
_SETVARS = Step("write", "/opt/x/env.sh", f"export LD_LIBRARY_PATH={STUBS}:$LD_LIBRARY_PATH\nexport FOO=sourced\n")

SHELL = {
    "source": ". /opt/x/env.sh",
    "source in bash's word": "source /opt/x/env.sh",
    "and": f"[ -d {STUBS} ] && export LD_LIBRARY_PATH={STUBS}",
    "two with and": f"export FOO=1 && export LD_LIBRARY_PATH={STUBS}",
    "if on a line": f"if [ -d {STUBS} ]; then export LD_LIBRARY_PATH={STUBS}; fi",
    "if that is not": f"if [ -e /nonexistent ]; then\n  export LD_LIBRARY_PATH={STUBS}\nfi",
    "for": f'for d in {STUBS} /opt/own/lib; do LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}$d"; done\n'
    "export LD_LIBRARY_PATH",
    "case": f"case $(uname -m) in x86_64) export LD_LIBRARY_PATH={STUBS};; esac",
    "eval": f'eval "export LD_LIBRARY_PATH={STUBS}"',
    "function": f"add() {{ export LD_LIBRARY_PATH=$1:$LD_LIBRARY_PATH; }}\nadd {STUBS}",
    "default value": f': "${{LD_LIBRARY_PATH:={STUBS}}}"\nexport LD_LIBRARY_PATH',
    "two on a line": f"F={STUBS}; export LD_LIBRARY_PATH=$F",
    "while read": "while read -r name value; do export \"$name=$value\"; done <<'END'\n"
    f"LD_LIBRARY_PATH {STUBS}\nFOO read\nEND",
    "set and unset": f"export LD_LIBRARY_PATH={STUBS} FOO=1\nunset LD_LIBRARY_PATH",
    "append": f"LD_LIBRARY_PATH={STUBS}\nLD_LIBRARY_PATH=$LD_LIBRARY_PATH:/opt/own/lib\nexport LD_LIBRARY_PATH",
    "command": f"export LD_LIBRARY_PATH=$(echo {STUBS})",
}
"""Forms of shell that put a stub first in LD_LIBRARY_PATH, or look as if they did."""

_FOO = 'export FOO="${FOO:-"of the image"}"\nexport PYTHONPATH=/opt/python OMP_NUM_THREADS=3'
_HOSTILE = (
    "export A='two words' B='it'\"'\"'s' C='a=1,b=2' D='$HOME `id` \\ \"q\"' E= F='x\ny' G=' edges '\n"
    "export H='{\"a\": \"b=c\"}' I='*' J='~'"
)
_CONDA = 'export PATH="/opt/conda/bin:$PATH" CONDA_PREFIX=/opt/conda\nexport LD_LIBRARY_PATH="/opt/conda/lib"'
_CONDAS = Step("copy", "/opt/conda/lib/libown.so.1", OWN)
_K8S = "/usr/local/nvidia/lib64"
_COMPAT, _COMPAT13, _REAL = "/usr/local/cuda/compat", "/usr/local/cuda-13.0/compat", "/usr/local/cuda/compat/lib.real"
_LIB = Step("link", f"{_COMPAT}/lib", "lib.real")
_CUDA13 = _env("export CUDA_VERSION=13.0", ENV10)

IMAGES = (
    *(Image(base, base) for base in ("bullseye", "bookworm", "trixie")),
    *(Image(f"{base}-sb", f"{base}-sb", sif=True) for base in ("bullseye", "bookworm", "trixie")),
    Image("bookworm-gl", "bookworm-gl"),
    Image("variables, 10", "bookworm-sb", (_env(_FOO, ENV10),), sif=True),
    Image("variables, 90", "trixie-sb", (_env(_FOO),)),
    Image("variables, 91", "bullseye-sb", (_env(_FOO, ENV91),)),
    Image("hostile values", "bookworm-sb", (_env(_HOSTILE),)),
    Image("a GPU is chosen", "bookworm-sb", (_env("export CUDA_VISIBLE_DEVICES=1 NVIDIA_VISIBLE_DEVICES=all"),)),
    Image("own libraries, 10", "bookworm-sb", (_OWN, _path("/opt/own/lib", ENV10))),
    Image("own libraries, 91", "trixie-sb", (_OWN, _path("/opt/own/lib", ENV91))),
    Image("an empty element", "bookworm-sb", (_OWN, _path("/opt/a::/opt/own/lib:"))),
    Image("the driver's directory first", "bookworm-sb", (_OWN, _path("/.singularity.d/libs:/opt/own/lib"))),
    Image("the driver's directory last", "bookworm-sb", (_OWN, _path("/opt/own/lib:/.singularity.d/libs"))),
    Image("odd paths", "bookworm-sb", (_OWN, _path("'/opt/own/lib:/opt/a b:/opt/$c'"))),
    Image("own PATH", "bookworm-sb", (Step("link", "/opt/t/owntool", "/bin/true"), _env("export PATH=/opt/t:$PATH"))),
    Image("module paths", "bookworm-sb", (_env("export GBM_BACKENDS_PATH=/opt/gbm VDPAU_DRIVER_PATH=/opt/vdpau"),)),
    Image("stub first, 10", "bookworm-sb", (*_STUB, _path(STUBS, ENV10))),
    Image("stub first, 90", "bullseye-sb", (*_STUB, _path(f"{STUBS}:$LD_LIBRARY_PATH"))),
    Image("stub first, 91", "bookworm-sb", (*_STUB, _path(STUBS, ENV91)), sif=True),
    *(
        Image(f"shell: {name}", "bookworm-sb", (*_STUB, _OWN, _SETVARS, _env(text)), sif=name == "source")
        for name, text in SHELL.items()
    ),
    Image(
        "stub in ld.so.conf.d", "bookworm-sb", (*_STUB, Step("write", "/etc/ld.so.conf.d/000.conf", STUBS), _LDCONFIG)
    ),
    Image("stub in a default directory", "bookworm", (*_libcuda(STUB, LIBRARIES), _LDCONFIG)),
    Image("old driver in a default directory", "trixie-sb", (*_driver(LIBRARIES), _LDCONFIG)),
    Image("old driver in Kubernetes' place, 10", "bookworm-sb", (*_driver(_K8S), _path(_K8S, ENV10)), sif=True),
    Image("old driver in Kubernetes' place, 91", "bookworm-sb", (*_driver(_K8S), _path(_K8S, ENV91))),
    Image("old compat first", "bookworm-sb", (*_driver(_COMPAT), _path(_COMPAT, ENV10))),
    Image("new compat first, 90", "bookworm-sb", (*_compat(_COMPAT13), _CUDA13, _path(_COMPAT13)), sif=True),
    Image("new compat first, 91", "bookworm-sb", (*_compat(_COMPAT13), _CUDA13, _path(_COMPAT13, ENV91))),
    Image("new compat first, lib.real", "bookworm-sb", (*_compat(_REAL), _LIB, _CUDA13, _path(f"{_COMPAT}/lib"))),
    Image("new compat, not first", "bookworm-sb", (*_compat(_COMPAT13), _CUDA13)),
    Image("no ld cache", "bookworm-sb", (Step("remove", "/etc/ld.so.cache"),)),
    Image("no ld cache, no /.singularity.d", "bookworm", (Step("remove", "/etc/ld.so.cache"),)),
    Image("absolute /lib64", "bookworm-sb", (Step("link", "/lib64", "/usr/lib64"),)),
    Image("conda", "bookworm-sb", (_CONDAS, Step("link", "/opt/conda/bin/python3", "/usr/bin/python3"), _env(_CONDA))),
    Image("own nvidia-smi", "bookworm-sb", (Step("write", "/usr/local/bin/nvidia-smi", "#!/bin/sh\necho own\n"),)),
    Image("own /.singularity.d/libs", "bookworm-sb", (Step("copy", "/.singularity.d/libs/libown.so.1", OWN),)),
    Image("preloaded library", "bookworm-sb", (_OWN, _env("export LD_PRELOAD=/opt/own/lib/libown.so.1"))),
)
