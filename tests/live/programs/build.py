"""Make the programs below a directory that becomes /opt/t of each image.

With gcc, without any C library: what a program needs is then exactly what its case says, and the same file can be tried
in images of every age.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

INSIDE = "/opt/t"
START = {
    "64": 'void _start(void){ long r; const char t[]="main runs\\n";'
    '__asm__ volatile("syscall":"=a"(r):"a"(1),"D"(1),"S"(t),"d"(10):"rcx","r11","memory");'
    '__asm__ volatile("syscall"::"a"(60),"D"(0)); __builtin_unreachable(); }\n',
    "32": 'void _start(void){ int r; const char t[]="main runs\\n";'
    '__asm__ volatile("int $0x80":"=a"(r):"a"(4),"b"(1),"c"(t),"d"(10):"memory");'
    '__asm__ volatile("int $0x80"::"a"(1),"b"(0)); __builtin_unreachable(); }\n',
}
FUNCTION = "int function(void){ return 0; }\n"
CALLER = "int function(void); int caller(void){ return function(); }\n"
USES = "int function(void); int never(void){ return function(); }\n"
PLAIN = "-nostdlib -fno-stack-protector -O1"


class Shop:
    """Compiles into *directory*, which is INSIDE in the container."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        os.makedirs(f"{directory}/src")
        for name, text in (("start64.c", START["64"]), ("start32.c", START["32"]), ("function.c", FUNCTION)):
            self.text(f"src/{name}", text)
        self.text("src/caller.c", CALLER)
        self.text("src/uses.c", USES)

    def text(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.path(name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)

    def path(self, name: str) -> str:
        path = f"{self.directory}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def gcc(self, words: str) -> None:
        subprocess.run(["gcc", *shlex.split(words)], cwd=self.directory, check=True)

    def library(self, place: str, words: str = "", source: str = "function", soname: str = "", bits: int = 64) -> None:
        """A library at *place*; *words* are further ones of gcc's."""
        soname = soname or os.path.basename(place)
        self.path(place)
        self.gcc(f"{PLAIN} -m{bits} -shared -fPIC src/{source}.c -Wl,-soname,{soname} -o {place} {words}")

    def program(self, place: str, words: str = "", bits: int = 64) -> None:
        """A dynamic program at *place* that writes `main runs` by itself; what it is linked with, it only needs."""
        self.path(place)
        dtags = "" if "new-dtags" in words else "-Wl,--enable-new-dtags"
        fixed = f"{PLAIN} -m{bits} -no-pie src/start{bits}.c src/uses.c -o {place} -Wl,--no-as-needed {dtags}"
        self.gcc(f"{fixed} -Wl,--unresolved-symbols=ignore-all -z lazy {words}")

    def copy(self, source: str, place: str, mode: int = 0o755) -> None:
        shutil.copy(self.path(source), self.path(place))
        os.chmod(self.path(place), mode)

    def patched(self, source: str, place: str, at: int, data: bytes) -> None:
        """*source* with *data* at byte *at*."""
        self.copy(source, place)
        with open(self.path(place), "r+b") as file:
            file.seek(at)
            file.write(data)


def build(directory: str) -> None:
    """Everything that the cases name, below *directory*."""
    shop = Shop(directory)
    _libraries(shop)
    _search_paths(shop)
    _processors(shop)
    _versions(shop)
    _machines(shop)
    _stacks(shop)
    _damage(shop)
    _scripts(shop)
    shutil.rmtree(shop.path("src"))


def _libraries(shop: Shop) -> None:
    for place in ("lib/libt.so", "default/libtdefault.so", "usrlib/libtusr.so", "local/libtlocal.so", "env/libtenv.so"):
        shop.library(place)
    shop.library("cached/libtcached.so")
    shop.library("chain/libb.so")
    # liba needs libb, and says nothing, says where by RUNPATH, or says something wrong by RUNPATH.
    needs_b = "-Wl,--no-as-needed -Lchain -lb"
    shop.library("chain/liba.so", needs_b, "caller")
    shop.library("own/liba.so", f"{needs_b} -Wl,--enable-new-dtags,-rpath,{INSIDE}/chain", "caller")
    shop.library("wrong/liba.so", f"{needs_b} -Wl,--enable-new-dtags,-rpath,/nowhere", "caller")
    shop.library("origin/liba.so", f"{needs_b} -Wl,--enable-new-dtags,-rpath,'$ORIGIN/../chain'", "caller")


def _search_paths(shop: Shop) -> None:
    old, new = "-Wl,--disable-new-dtags", "-Wl,--enable-new-dtags"
    t = "-Llib -lt"
    shop.program("rpath", f"{t} {old} -Wl,-rpath,{INSIDE}/lib")
    shop.program("runpath", f"{t} {new} -Wl,-rpath,{INSIDE}/lib")
    shop.program("second", f"{t} {new} -Wl,-rpath,/nowhere:{INSIDE}/lib")
    shop.program("bin/rpath-origin", f"{t} {old} -Wl,-rpath,'$ORIGIN/../lib'")
    shop.program("bin/runpath-origin", f"{t} {new} -Wl,-rpath,'${{ORIGIN}}/../lib'")
    shop.program("nowhere", t)
    shop.program("wrong-path", f"{t} -Wl,-rpath,{INSIDE}/libs")
    shop.program("empty-path", f"{t} -Wl,-rpath,''")
    for name, place in (("default", "default"), ("usr", "usrlib"), ("local", "local"), ("env", "env")):
        shop.program(f"in-{name}", f"-L{place} -lt{name}")
    shop.program("in-cached", "-Lcached -ltcached")
    for kind, tags in (("rpath", old), ("runpath", new)):
        for place in ("chain", "own", "wrong", "origin"):
            words = f"-L{place} -la {tags} -Wl,-rpath,{INSIDE}/{place}:{INSIDE}/chain"
            shop.program(f"{kind}-{place}", words)
    for name in ("lib/libabsolute.so", "lib/libgone.so"):
        shop.library(name, soname=f"{INSIDE}/{name}")
        shop.program(f"needs-{os.path.basename(name)}", name)
    os.remove(shop.path("lib/libgone.so"))
    shop.program("nodeflib", "-Ldefault -ltdefault -z nodefaultlib")
    shop.program("nodeflib-cached", "-Lcached -ltcached -z nodefaultlib")
    shop.program("nodeflib-rpath", f"{t} -z nodefaultlib -Wl,-rpath,{INSIDE}/lib")
    shop.program("now", f"{t} -Wl,-rpath,{INSIDE}/lib -z now")
    shop.library("undefined/libt.so", source="caller", soname="libt.so")
    shop.program("undefined-now", f"{t} -Wl,-rpath,{INSIDE}/undefined -z now")
    shop.program("undefined-lazy", f"{t} -Wl,-rpath,{INSIDE}/undefined")
    for name, target in (("link", "bin/rpath-origin"), ("link-runpath", f"{INSIDE}/bin/runpath-origin")):
        os.symlink(target, shop.path(name))
    os.symlink("nobody", shop.path("dangling"))
    os.symlink("loop", shop.path("loop"))
    for name in ("rpath", "bin/rpath-origin", "in-env"):
        shop.copy(name, f"{name}-setuid", 0o4755)
    shop.copy("rpath", "path2/by-name")
    shop.copy("rpath", "path1/by-name", 0o644)
    shop.copy("rpath", "path1/only-here", 0o644)


def _processors(shop: Shop) -> None:
    below = ("glibc-hwcaps/x86-64-v2", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v4", "glibc-hwcaps/other")
    for name in (*below, "tls", "x86_64", "haswell", "tls/x86_64", "haswell/avx512_1", "avx512_1"):
        flat = name.replace("/", "-")
        shop.copy("lib/libt.so", f"cpu/{flat}/{name}/libt.so")
        shop.program(f"rpath-{flat}", f"-Llib -lt -Wl,--disable-new-dtags,-rpath,{INSIDE}/cpu/{flat}")
        shop.program(f"runpath-{flat}", f"-Llib -lt -Wl,-rpath,{INSIDE}/cpu/{flat}")
    # The one for the processor comes first, and lacks something.
    shop.copy("lib/libt.so", "cpu/both/libt.so")
    shop.copy("chain/liba.so", "cpu/both/glibc-hwcaps/x86-64-v2/libt.so")
    shop.program("cpu-first", f"-Llib -lt -Wl,-rpath,{INSIDE}/cpu/both")
    shop.library("default-hwcaps/libtlevel.so")
    shop.program("in-default-hwcaps", "-Ldefault-hwcaps -ltlevel")


def _versions(shop: Shop) -> None:
    def script(name: str, *versions: str) -> str:
        nodes = [f"{version} {{ {'global: function;' if not n else ''} }};" for n, version in enumerate(versions)]
        shop.text(f"src/{name}.map", "\n".join(nodes) + "\n")
        return f"-Wl,--version-script,src/{name}.map"

    shop.library("v1/libv.so", script("v1", "V_1"))
    shop.library("v2/libv.so", script("v2", "V_2", "V_1"))
    shop.library("v0/libv.so")
    for wants, has in (("v1", "v1"), ("v1", "v2"), ("v2", "v1"), ("v2", "v0"), ("v2", "v2")):
        shop.program(f"wants-{wants}-has-{has}", f"-L{wants} -lv -Wl,-rpath,{INSIDE}/{has}")
    of_libc = ("GLIBC_2.2.5", "GLIBC_2.29", "GLIBC_2.34", "GLIBC_2.38", "GLIBC_2.41", "GLIBC_2.99")
    of_libstdcxx = ("GLIBCXX_3.4.28", "GLIBCXX_3.4.30", "GLIBCXX_3.4.33", "CXXABI_1.3.15")
    for soname, versions in (("libc.so.6", of_libc), ("libstdc++.so.6", of_libstdcxx)):
        for version in versions:
            shop.library(f"stub/{version}/{soname}", script(version, version))
            shop.program(f"wants-{version}", f"-Lstub/{version} -l:{soname}")
    shutil.rmtree(shop.path("stub"))
    shop.text("src/hello.c", '#include <stdio.h>\nint main(void){ puts("main runs"); return 0; }\n')
    shop.text("src/hello.cc", '#include <iostream>\nint main(){ std::cout << "main runs" << std::endl; }\n')
    shop.gcc("src/hello.c -o hello")
    shop.gcc("-static src/hello.c -o hello-static")
    shop.gcc("-static-pie src/hello.c -o hello-static-pie")
    subprocess.run(["g++", "src/hello.cc", "-o", "hello-c++"], cwd=shop.directory, check=True)
    shop.copy("hello-static", "setuid-static", 0o4755)
    shop.library("cuda/libcuda.so.1")
    shop.program("cuda-linked", "-Lcuda -l:libcuda.so.1")
    shutil.rmtree(shop.path("cuda"))


def _machines(shop: Shop) -> None:
    shop.gcc(f"{PLAIN} -static src/start64.c -o static")
    shop.gcc(f"{PLAIN} -m32 -static -fno-pie -no-pie src/start32.c -o i386-static")
    shop.library("lib32/libt.so", bits=32)
    shop.library("default32/libtdefault32.so", bits=32)
    loader = "-fno-pie -Wl,--dynamic-linker,/lib/ld-linux.so.2"
    shop.program("i386-rpath", f"{loader} -Llib32 -lt -Wl,-rpath,{INSIDE}/lib32", 32)
    shop.program("i386-wrong-class", f"{loader} -Llib32 -lt -Wl,-rpath,{INSIDE}/lib", 32)
    shop.program("i386-both", f"{loader} -Llib32 -lt -Wl,-rpath,{INSIDE}/lib:{INSIDE}/lib32", 32)
    shop.program("i386-default", f"{loader} -Ldefault32 -ltdefault32", 32)
    shop.program(
        "i386-64-loader",
        f"-fno-pie -Llib32 -lt -Wl,-rpath,{INSIDE}/lib32 -Wl,--dynamic-linker,/lib64/ld-linux-x86-64.so.2",
        32,
    )
    shop.program("wrong-class", f"-Llib -lt -Wl,-rpath,{INSIDE}/lib32")
    for name, machine in (("aarch64", 183), ("ppc64le", 21), ("riscv64", 243)):
        shop.patched("static", name, 18, machine.to_bytes(2, "little"))


def _stacks(shop: Shop) -> None:
    shop.library("stack/libt.so", "-z execstack")
    shop.program("stack-program", f"-Llib -lt -Wl,-rpath,{INSIDE}/lib -z execstack")
    shop.program("stack-library", f"-Llib -lt -Wl,-rpath,{INSIDE}/stack")
    shop.program("stack-both", f"-Llib -lt -Wl,-rpath,{INSIDE}/stack -z execstack")


def _damage(shop: Shop) -> None:
    for loader, name in (
        ("/lib/ld-nowhere.so.1", "loader-missing"),
        ("/etc/passwd", "loader-text"),
        ("/opt", "loader-directory"),
        (f"{INSIDE}/loader-644", "loader-not-executable"),
        ("/lib/ld-musl-x86_64.so.1", "loader-musl"),
    ):
        shop.program(name, f"-Llib -lt -Wl,-rpath,{INSIDE}/lib -Wl,--dynamic-linker,{loader}")
    shop.copy("static", "loader-644", 0o644)
    shop.text("text/libt.so", "INPUT(libother.so)\n" * 20)
    shop.text("short/libt.so", "short")
    shop.text("zero/libt.so", "")
    for name in ("text", "short", "zero"):
        shop.program(f"library-{name}", f"-Llib -lt -Wl,-rpath,{INSIDE}/{name}:{INSIDE}/lib")
    shop.copy("lib/libt.so", "secret/libt.so", 0o600)
    shop.program("library-secret", f"-Llib -lt -Wl,-rpath,{INSIDE}/secret")
    shop.program("library-secret-first", f"-Llib -lt -Wl,-rpath,{INSIDE}/secret:{INSIDE}/lib")
    shop.text("empty", "", 0o755)
    for mode in (0o644, 0o600, 0o700, 0o750, 0o711, 0o755, 0o555):
        shop.copy("static", f"mode-{mode:04o}", mode)
    os.mkdir(shop.path("directory"))
    shop.copy("static", "closed/inside")
    os.chmod(shop.path("closed"), 0o700)
    shop.text("garbage", "\1\2\3\0" * 100, 0o755)


def _scripts(shop: Shop) -> None:
    lines = {
        "sh": "#!/bin/sh",
        "sh-e": "#! /bin/sh -e",
        "tab": "#!\t/bin/sh\t-e",
        "bash": "#!/bin/bash",
        "env": "#!/usr/bin/env sh",
        "env-blank": "#!/usr/bin/env sh -e",
        "env-S": "#!/usr/bin/env -S sh -e",
        "env-vS": "#!/usr/bin/env -vS sh -e",
        "env-i": "#!/usr/bin/env -i sh",
        "env-iS": "#!/usr/bin/env -iS sh",
        "env-S-i": "#!/usr/bin/env -S -i A=1 sh -e",
        "env-S-u": "#!/usr/bin/env -S -u HOME sh",
        "env-S-path": "#!/usr/bin/env -S PATH=/nowhere sh",
        "env-long": "#!/usr/bin/env --split-string=sh -e",
        "env-unknown": "#!/usr/bin/env --nonsense sh",
        "env-missing": "#!/usr/bin/env no-such-program",
        "env-elsewhere": "#!/usr/local/bin/env sh",
        "by-name": "#!/usr/bin/env by-name",
        "missing": "#!/opt/conda/bin/python",
        "crlf": "#!/bin/sh\r",
        "none": "",
        "mark-alone": "#!",
        "directory": "#!/opt",
        "refused": f"#!{INSIDE}/mode-0644",
        "i386": f"#!{INSIDE}/i386-static",
        "dangling": f"#!{INSIDE}/dangling",
        "missing-library": f"#!{INSIDE}/nowhere",
        "rpath": f"#!{INSIDE}/rpath",
        "itself": f"#!{INSIDE}/script/itself",
    }
    for name, line in lines.items():
        shop.text(f"script/{name}", f"{line}\necho main runs\n", 0o755)
    shop.text("script/long", f"#!/{'x' * 300}\necho main runs\n", 0o755)
    shop.text("script/long-argument", f"#!/bin/sh -{'e' * 300}\necho main runs\n", 0o755)
    shop.text("script/0644", "#!/bin/sh\necho main runs\n")
    shop.text("script/0700", "#!/bin/sh\necho main runs\n", 0o700)
    shop.text("script/python", '#!/usr/bin/env python3\nprint("main runs")\n', 0o755)
    shop.text("script/level1", f"#!{INSIDE}/static\n", 0o755)
    for level in range(2, 8):
        shop.text(f"script/level{level}", f"#!{INSIDE}/script/level{level - 1}\n", 0o755)
