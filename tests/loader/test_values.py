"""Whole values: what a container finds and sees, and what a plan of each fit has. `tests/golden/loader/` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Optional

import pytest

from gpubind.files import Tree
from gpubind.loader.container import Container, host_closure
from gpubind.loader.hwcaps import Cpu
from gpubind.loader.linkage import linked_files, linked_in_plan, linked_outside
from gpubind.loader.namespace import UserBind, UserMounts
from gpubind.loader.search import Loader, unusual_glibc_directories
from gpubind.model import ContainerPath, EnvVar, HostPath, Missing, Mount, Plan, RootedPath
from tests.loader import test_bridge as bridge
from tests.loader import test_userspace as userspace
from tests.loader.test_container import LEVEL_3, mount
from tests.support.c_library import LIB, LOADER, c_library, converters, programs
from tests.support.driver import V
from tests.support.elf import AARCH64, I386, elf
from tests.support.golden import GOLDEN, assert_golden
from tests.support.images import GLVND, MUSL, OWN_PREFIX, STATIC, glibc, image
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Dir, Fifo, File, Link, Spec, recorded_tree

USR = "/usr/lib/x86_64-linux-gnu"
Rows = Iterator[tuple[object, object]]


def container(
    inside: Spec,
    *mounts: Mount,
    host: Optional[Spec] = None,
    binds: Optional[Spec] = None,
    env: tuple[EnvVar, ...] = (),
    cpu: Optional[Cpu] = None,
    version: str = "2.36",
    **users: Any,
) -> Container:
    own = UserMounts(tuple(UserBind(HostPath(f"/s{at}"), ContainerPath(at)) for at in binds or ()), **users)
    local = recorded_tree({f"/s{at}": item for at, item in (binds or {}).items()})
    return Container(
        image(glibc(version), inside).loader,
        recorded_tree(host or {}, "/host"),
        mounts,
        env,
        "/image/lib",
        own,
        local,
        lambda: cpu,
    )


def searches() -> Rows:
    """The candidates for a library, by rule, of several consumers, caches and processors."""
    entries = [
        entry("libx.so.1", f"{USR}/glibc-hwcaps/x86-64-v3/libx.so.1", hwcap="x86-64-v3"),
        entry("libx.so.1", f"{USR}/glibc-hwcaps/x86-64-v2/libx.so.1", hwcap="x86-64-v2"),
        entry("libx.so.1", "/usr/lib/tls/libx.so.1", hwcap="legacy"),
        entry("libx.so.1", "/opt/cached/libx.so.1"),
        entry("libx.so.1", "relative/libx.so.1"),
        entry("libx.so.1", f"{USR}/libx.so.1"),
    ]
    facts: dict[str, Any] = {
        "plain": {},
        "rpath": {"rpath": "/r:$ORIGIN/../o:/p/$PLATFORM:/l/${LIB}:rel:/gone"},
        "runpath": {"runpath": "/r:/gone", "rpath": "/hidden"},
        "no defaults": {"no_default_directories": True},
    }
    directories: Spec = {path: Dir() for path in ("/r/tls", "/r/glibc-hwcaps/x86-64-v3", "/o", "/p/x86_64", "/hidden")}
    env = (EnvVar("LD_LIBRARY_PATH", "prepend", "/plan", ":", "libraries"),)
    for cache in (None, build_ldcache(entries)):
        inside: Spec = {
            **directories,
            "/plan/x": b"",
            "/image/lib/x": b"",
            "/etc/ld.so.conf": "/conf\n",
            "/conf/x": b"",
        }
        inside = {**inside, **({} if cache is None else {"/etc/ld.so.cache": cache})}
        for cpu, version in ((None, "2.36"), (LEVEL_3, "2.36"), (LEVEL_3, "2.41"), (None, "2.31")):
            for name, more in facts.items():
                made = container({**inside, "/b/x": elf(kind=2, **more)}, env=env, cpu=cpu, version=version)
                closure = made.closure("/b/x")
                assert closure is not None
                found = tuple(made._search.candidates("libx.so.1", closure.objects[0]))
                yield (cache is not None, cpu is not None, version, name), found
                yield "its search paths", (closure.objects[0].rpaths, closure.objects[0].runpath)
        made = container({**inside, "/b/x": elf(kind=2, **facts["rpath"])}, env=env)
        yield "of an image's facts", tuple(made.image.paths("libx.so.1"))
        closure = made.closure("/b/x")
        assert closure is not None
        yield "for musl", tuple(made._search.candidates("libx.so.1", closure.objects[0], ("/lib",)))


LIBRARIES: Spec = {
    f"{USR}/liba.so.1": elf("liba.so.1", needed=("libb.so.1", "libgone.so.1")),
    f"{USR}/libb.so.1": elf("libb.so.1", needed=("libc.so.6",), needs={"libc.so.6": ("GLIBC_2.38", "GLIBC_2.17")}),
    f"{USR}/libtext.so.1": b"INPUT(libb.so.1)" * 9,
    f"{USR}/libempty.so.1": b"",
    f"{USR}/lib63.so.1": b"t" * 63,
    f"{USR}/lib64.so.1": b"t" * 64,
    f"{USR}/libcut.so.1": elf("libcut.so.1", needed=("libb.so.1",))[:120],
    f"{USR}/libother.so.1": elf("libother.so.1", machine=AARCH64),
    f"{USR}/libdir.so.1": Dir(),
    f"{USR}/libalias.so.1": elf("liba.so.1"),
    f"{USR}/libstack.so.1": elf("libstack.so.1", executable_stack=True),
    f"{USR}/libsecret.so.1": File(elf("libsecret.so.1"), 0o000),
    "/opt/libpre.so": elf("libpre.so", needed=("libb.so.1",)),
}


def loads() -> Rows:
    """What is loaded with a file, and the loader's errors."""
    names = ("libtext.so.1", "libempty.so.1", "libcut.so.1", "libother.so.1", "libdir.so.1", "libsecret.so.1")
    needed: Spec = {f"/p/needs-{name}": elf(kind=2, needed=(name,)) for name in names}
    needed = {
        **needed,
        "/p/all": elf(kind=2, needed=("liba.so.1", "libalias.so.1", "libstack.so.1", "/opt/libpre.so", "rel/x.so")),
        "/p/lib.so": elf("lib.so", needed=("libstack.so.1",)),
        "/p/run": elf(kind=2, needed=("libstack.so.1",), interpreter=f"/lib64/{LOADER}"),
        "/p/text": b"text",
        "/p/renamed": elf("self.so", needed=("self.so",)),
        "/p/nameless.so": elf(None, needed=("nameless.so",)),
    }
    preload = EnvVar("LD_PRELOAD", "set", "/opt/libpre.so:libgone.so libb.so.1", ":", "user")
    for version, env in (("2.36", ()), ("2.41", (preload,))):
        made = container({**LIBRARIES, **needed}, version=version)
        if env:
            own = UserMounts(env=env)
            made = Container(made.image, recorded_tree({}), (), (), "", own)
        for path in (*needed, *(path for path in LIBRARIES), "/p/none", "p/all"):
            result = made.load(path)
            yield (version, path), [file.path for file in result.files]
            for failure in result.failures:
                yield failure, failure.message
        yield "beside", made.load_with_directories("/p/all", ("/opt",)).failures
        yield "beside nothing", made.load_with_directories("/p/none", ("/opt",))
        for file in linked_files(made, ["/p/all", "/p/lib.so", "/p/text", "/p/none", f"{USR}/liba.so.1"]):
            yield file.path, file
        yield "as the host's", linked_files(made, ["/p/lib.so"], "host")
        tree = recorded_tree({"/x.so": elf("x.so", needed=("libb.so.1", "libn.so"), needs={"libb.so.1": ("B_1",)})})
        yield "outside", linked_outside(made, tree, RootedPath("/x.so"))
    several = tuple(
        EnvVar("LD_PRELOAD", op, f"lib{op}.so", ":", "user") for op in ("set", "prepend", "append", "default")
    )
    yield (
        "preloaded",
        Container(image(glibc()).loader, recorded_tree({}), (), (), "", UserMounts(env=several)).preloaded,
    )
    host = recorded_tree(
        {"/lib/text": b"x", "/lib/libx.so.1": elf("libx.so.1", needed=("liby.so.1", "libz.so.1"))}, "/host"
    )
    yield "in a plan", linked_in_plan(host, [mount("libx.so.1"), mount("liby.so.1"), mount("text")])
    roots = [RootedPath(f"{USR}/liba.so.1"), RootedPath(f"{USR}/libalias.so.1"), RootedPath("/p/none")]
    tree = recorded_tree(
        {**glibc(), **LIBRARIES, f"{USR}/liba.so.1": elf("liba.so.1", needed=("libb.so.1", "libgone.so.1"))}
    )
    yield "of a host", host_closure(tree, "x86_64", [*roots, *roots])
    yield "of a host with a directory", host_closure(tree, "x86_64", roots, ["/opt"])


def views() -> Rows:
    """What a process sees at each path of a container with mounts."""
    text = mount("libtext.so.1", "/etc/gpu.conf")._replace(source=None, kind="text", content="x")  # type: ignore[arg-type]
    made = container(
        {"/old/f": b"1", "/old/l": Link("f"), "/old/up": Link("../l"), "/l": Link("/new/made/here"), "/file": b"2"},
        mount("libx.so.1", "/new/made/here/libx.so.1"),
        mount("libx.so.1", "/l/liby.so.1"),
        text,
        mount("data", "/old/data")._replace(kind="directory"),
        host={"/lib/libx.so.1": elf("libx.so.1"), "/lib/liby.so.1": elf("liby.so.1"), "/lib/data/d/e": b"3"},
        binds={"/old/bound/b": b"4", "/file": b"5", "/pipe": Fifo(), "/gone/x": b"6"},
        working_directory=ContainerPath("/old/"),
    )
    paths = (
        "/", "/old", "/old/f", "/old/l", "/old/up", "/old/bound", "/old/bound/b", "/new", "/new/made", "/new/made/here",
        "/new/made/here/libx.so.1", "/l", "/l/liby.so.1", "/l/libx.so.1", "/etc/gpu.conf", "/old/data", "/old/data/d",
        "/old/data/d/e", "/file", "/file/x", "/pipe",
        "/none", "/none/x", "/old/../file", "/new/made/here/..", "f", "./l", "",
    )  # fmt: skip
    tree: Tree = made.tree
    for path in paths:
        file = made.locate(path)
        yield (
            path,
            None if file is None else (file.path, file.tree_path, file.resolved_path, bool(file.mount), file.bind),
        )
        yield "is", (made.absolute(path), made.kind(path))
        if path.startswith("/"):
            yield "has", (tree.lstat(path), tree.readlink(path), tree.list(path))
            yield "holds", (short(tree.read(path, 9)), short(tree.head(path, 2)), tree.ident(path))
    yield "unreadable", made.unreadable_mounts
    bare = container({}, working_directory=None)
    yield "relative", (bare.locate("x"), bare.absolute("x"), bare.kind("x"))


def short(data: object) -> object:
    return data if isinstance(data, Missing) else repr(data)[:20]


def loaders() -> Rows:
    """The facts of the loader of an image."""
    specs: dict[str, Spec] = {
        "glibc": glibc("2.36"),
        "musl": MUSL,
        "static": STATIC,
        "elsewhere": OWN_PREFIX,
        "forbidden": {**glibc(), f"{USR}/libc.so.6": File(elf("libc.so.6"), 0o000)},
        "stores": {
            f"/{store}/store/h-glibc-2.{minor}/lib/libc.so.6": elf("libc.so.6", defines=(f"GLIBC_2.{minor}",))
            for store in ("nix", "gnu")
            for minor in range(30, 40)
        },
        "32 bits": {
            **glibc(),
            "/usr/lib32/libx.so.1": elf("libx.so.1", machine=I386, bits=32),
            "/lib32": Link("usr/lib32"),
        },
        "configured": {
            **glibc(),
            "/etc/ld.so.conf": "/conf\n/none\n",
            "/conf/x": b"",
            "/etc/ld.so.cache": build_ldcache([]),
        },
    }
    for name, spec in specs.items():
        tree = recorded_tree(spec)
        for arch in ("x86_64", "i386", None):
            loader = Loader(tree, arch, None, ("/more",))
            yield (
                (name, arch),
                (loader.directories, loader.default_directories, loader.glibc, loader.forbidden_directory),
            )
            yield (
                "finds",
                (loader.find("libc.so.6"), loader.find("libx.so.1"), loader.for_arch("i386").find("libx.so.1")),
            )
        yield "unusual", unusual_glibc_directories(tree)


def summary(plan: Plan) -> Rows:
    """The files of *plan*, what it leaves out, and its findings."""
    for one in plan.mounts:
        yield one.target, (one.kind, one.source, one.rule, one.options, one.content)
    for decision in plan.decisions:
        if decision.verdict == "left-out":
            yield decision.subject, (decision.step, decision.rule, decision.detail)
    for finding in plan.findings:
        yield finding.code, (finding.severity, finding.what, finding.where, finding.why, finding.hint)


SMALL: dict[str, Any] = {"directory": "/usr/lib/i386-linux-gnu", "loader": "/lib/ld-linux.so.2", "machine": I386}
BRIDGES: dict[str, Callable[[], Plan]] = {
    "split": lambda: bridge.planned(image(*bridge.SPLIT), libc="host"),
    "merged": lambda: bridge.planned(image(*bridge.MERGED), libc="host"),
    "auto": lambda: bridge.planned(image(*bridge.MERGED), bridge.NEEDY_CUDA, libc="auto"),
    "auto for other uses": lambda: bridge.planned(image(*bridge.MERGED), libc="auto", caps=("utility",)),
    "the image's": lambda: bridge.planned(image(*bridge.MERGED), libc="image"),
    "by default": lambda: bridge.planned(image(*bridge.MERGED)),
    "with modules": lambda: bridge.planned(
        image(*bridge.MERGED, converters(), programs("iconv", "getconf", "ldd")),
        converters(),
        programs("iconv", "getconf", "ldd"),
        c_library("2.41", ("libmvec.so.1", "libnss_dns.so.2")),
        libc="host",
    ),
    "incomplete": lambda: bridge.planned(
        image(*bridge.SPLIT), hosts=c_library("2.41", ("libm.so.6", "libdl.so.2")), libc="host"
    ),
    "shared": lambda: bridge.planned(
        image(*bridge.MERGED, {f"{LIB}/libm.so.6": Link("/tmp/libm"), "/tmp/libm": elf("libm.so.6")}), libc="host"
    ),
    "none": lambda: bridge.planned(image(*bridge.MERGED), hosts={}, libc="host"),
    "newer": lambda: bridge.planned(image(glibc("2.41"), c_library("2.41")), hosts=c_library("2.38"), libc="host"),
    "32 bits": lambda: bridge.planned(
        image(*bridge.MERGED, c_library("2.36", **SMALL), {"/etc/ld.so.conf": f"{LIB}\n"}),
        hosts={
            **bridge.HOSTS,
            **c_library("2.41", **SMALL),
            f"/usr/lib/i386-linux-gnu/libcuda.so.{V}": elf("libcuda.so.1", machine=I386, bits=32),
        },
        libc="host",
        caps=("compute", "compat32"),
    ),
    "musl": lambda: bridge.planned(image(MUSL), libc="host"),
    "another machine": lambda: bridge.planned(image(glibc("2.36", machine=AARCH64))),
    "glvnd": lambda: bridge.planned(image(glibc("2.36"), GLVND), caps=("graphics",)),
}
RUNTIME, library, defining = userspace.RUNTIME, userspace.library, userspace.defining
OLD_LIBC: dict[str, tuple[str, ...]] = {"libc.so.6": ("GLIBC_2.38",)}
CHAIN = userspace.host_of(
    library("libamdhip64.so.6", RUNTIME),
    library(RUNTIME, "libx.so.1"),
    library("libx.so.1", needs=OLD_LIBC),
    library("librocm_smi64.so.7", "libonly.so.1"),
    library("libonly.so.1"),
)
USERSPACES: dict[str, Callable[[], Plan]] = {
    **{
        f"the image defines {versions}": lambda versions=versions: userspace.planned(  # type: ignore[misc]
            userspace.WANTS_V2, image(glibc("2.36"), defining("libx.so.1", *versions))
        )
        for versions in (("V_1",), ("V_1", "V_2"), ("V_1", "V_OF_THE_IMAGE"))
    },
    "two kinds of versions": lambda: userspace.planned(
        userspace.host_of(
            library(RUNTIME, "libx.so.1", needs={"libx.so.1": ("A_2", "A_3", "B_9"), "libc.so.6": ("X",)})
        ),
        image(glibc("2.36"), defining("libx.so.1", "A_1", "B_1")),
    ),
    "a chain": lambda: userspace.planned(CHAIN, image(glibc("2.36"))),
    "a chain with the image's": lambda: userspace.planned(CHAIN, image(glibc("2.36"), library("libx.so.1"))),
    "the host's in any case": lambda: userspace.planned(
        CHAIN, image(glibc("2.41"), library(RUNTIME)), userspace="host"
    ),
    "the image's own": lambda: userspace.planned(
        CHAIN, image(glibc("2.36"), {"/opt/rocm-6.1.0/lib/libhsa-runtime64.so.1": elf(RUNTIME)})
    ),
    "musl": lambda: userspace.planned(CHAIN, image(MUSL)),
    "no C library": lambda: userspace.planned(CHAIN, image(STATIC)),
    "another machine": lambda: userspace.planned(CHAIN, image(glibc("2.36", machine=AARCH64))),
    "no image": lambda: userspace.planned(CHAIN, None),
}


def plans(made: dict[str, Callable[[], Plan]]) -> Rows:
    for name, planned in made.items():
        yield "plan", name
        yield from summary(planned())


VALUES: dict[str, Callable[[], Rows]] = {
    "searches": searches,
    "loads": loads,
    "views": views,
    "loaders": loaders,
    "bridges": lambda: plans(BRIDGES),
    "userspaces": lambda: plans(USERSPACES),
}


@pytest.mark.parametrize("name", VALUES)
def test_each_value_is_whole(name: str) -> None:
    lines = [f"{value!r:.400} -> {effect!r:.1800}\n" for value, effect in VALUES[name]()]
    assert_golden(GOLDEN / "loader" / f"{name}.txt", "".join(lines))
