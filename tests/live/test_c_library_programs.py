"""Programs that were made in an image say the same on the host's C library as on the image's own."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping

import pytest

from tests.live.c_library import HOSTS
from tests.live.c_library_programs import INSIDE, PLACE, SUITES, made_images
from tests.live.engine_starts import Engine
from tests.live.machine import Bind, Machine

pytestmark = pytest.mark.live

SUITE = pytest.mark.parametrize("suite", SUITES)
GDB = " -ex ".join(("gdb -q -nx -batch", "'break work'", "run", "'bt 1'", "c", "'print own'", "kill"))
SCRIPTS = {
    "C": f"{INSIDE}/program",
    "C++": f"{INSIDE}/program-cxx",
    "static": f"{INSIDE}/static",
    "with a sanitizer": f"export ASAN_OPTIONS=detect_leaks=0; {INSIDE}/sanitized && {INSIDE}/sanitized converter",
    "set-user-id": f"{INSIDE}/set-user-id",
    "traced": f"strace -f -o /dev/null {INSIDE}/program; strace -c -o /dev/null ls /usr",
    "with an older converter": f"cp -r /usr/lib/x86_64-linux-gnu/gconv /tmp/own; GCONV_PATH=/tmp/own {INSIDE}/program",
    "Python's own tests": "LC_ALL=C.UTF-8 python3 -m test test_locale test__locale test_math test_pwd test_grp"
    " test_codecs test_time test_mmap test_ctypes -i 'test_find*' > /tmp/log 2>&1"
    "; grep -e OK -e result: -e failed /tmp/log | sort -u",
}
TOOLS = {
    "compiled": "cd /tmp; echo 'int main(void) { return 7; }' > x.c; gcc x.c -o x && ./x; echo $?",
    # Which thread stops first is the kernel's choice.
    "debugged": f"{GDB} {INSIDE}/program 2>&1 | grep -v -e LWP -e process -e 'controlling terminal'"
    " | sed -E 's/(Thread |number=0x)[0-9]+/\\1N/g'",
}
SIDES = ("image", "host")
RUN = """
import json, subprocess, sys
pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
done = {name: subprocess.run(["bash", "-c", s], **pipes) for name, s in json.loads(sys.argv[1]).items()}
print(json.dumps({name: [one.returncode, one.stdout.decode("utf-8", "replace")] for name, one in done.items()}))
"""
Said = dict[str, list[object]]


@pytest.fixture(scope="module")
def images() -> Iterator[Bind]:
    with made_images() as bind:
        yield bind


def say(machine: Machine, images: Bind, suite: str, scripts: Mapping[str, str], *options: str) -> Said:
    """What *scripts* say in a container of an ordinary user's."""
    words = ["exec", "--backend", "bwrap", "--nv", *options, f"{PLACE}/{suite}", "python3", "-c", RUN]
    done = machine.tried(*words, json.dumps(scripts), user=True, driver=True, binds=[images])
    said: Said = json.loads(done.stdout)
    return said


@functools.cache
def own(machine: Machine, images: Bind, suite: str) -> Said:
    """What all say on the image's own C library."""
    return say(machine, images, suite, {**SCRIPTS, **TOOLS})


def differing(machine: Machine, images: Bind, suite: str, scripts: Mapping[str, str]) -> dict[str, object]:
    """What is said otherwise on the host's: both answers."""
    before, after = own(machine, images, suite), say(machine, images, suite, scripts, *HOSTS)
    return {name: (before[name], said) for name, said in after.items() if said != before[name]}


@SUITE
def test_programs_say_the_same(trixie: Machine, images: Bind, suite: str) -> None:
    said = own(trixie, images, suite)
    assert {name: answer for name, answer in said.items() if answer[0] != 0} == {}
    assert "names: root root of-the-module" in str(said["C"])
    assert "threads: 28 8 unnamed" in str(said["C++"])
    assert differing(trixie, images, suite, SCRIPTS) == {}


def test_programs_say_the_same_on_an_older_host(bookworm: Machine, images: Bind) -> None:
    assert differing(bookworm, images, "bullseye", SCRIPTS) == {}


def test_the_cache_tells_the_hosts_loader_where_the_images_libraries_are(trixie: Machine, images: Bind) -> None:
    script = "python3 -c 'import ctypes, lzma, ssl; print(ctypes.CDLL(\"libcuda.so.1\").cuInit(0))'"
    said = say(trixie, images, "flat", {"flat": f"getconf GNU_LIBC_VERSION; {script}"}, *HOSTS)
    assert said == {"flat": [0, "glibc 2.41\n100\n"]}


def test_the_tools_of_binutils_work_where_they_know_the_hosts_relocations(trixie: Machine, images: Bind) -> None:
    assert own(trixie, images, "bookworm")["compiled"] == [0, "7\n"]
    assert "$1 = 5" in str(own(trixie, images, "bookworm")["debugged"])
    assert differing(trixie, images, "bookworm", TOOLS) == {}


def test_check_names_a_linker_that_does_not(trixie: Machine, images: Bind) -> None:
    assert own(trixie, images, "bullseye")["compiled"] == [0, "7\n"]
    _, said = say(trixie, images, "bullseye", TOOLS, *HOSTS)["compiled"]
    assert "unknown type [0x13] section `.relr.dyn'" in str(said)
    for suite, found in (("bullseye", True), ("bookworm", False)):
        words = ["check", "--nv", *HOSTS, "--image", f"{PLACE}/{suite}"]
        assert ("libc-linker" in trixie.gpubind(*words, driver=True, binds=[images])) == found


def test_what_is_linked_there_may_want_the_newer_glibc(trixie: Machine, images: Bind) -> None:
    script = "cd /tmp; printf '#include <math.h>\\nint main(int c, char **v) { return fmod(c * 5.0, 3.0); }' > x.c"
    script += "; gcc -fno-builtin x.c -o x -lm; ./x; echo $?; grep -aom1 GLIBC_2.38 x"
    assert say(trixie, images, "bookworm", {"linked": script}, *HOSTS) == {"linked": [0, "2\nGLIBC_2.38\n"]}


def test_a_static_program_that_loads_parts_of_glibc_finds_those_of_another_release(
    trixie: Machine, images: Bind
) -> None:
    scripts = {"names": f"{INSIDE}/static names; echo $?"}
    assert say(trixie, images, "bullseye", scripts)["names"][1] == "static: 2 1 0.909297\nnames: root\n0\n"
    assert "names: root" not in str(say(trixie, images, "bullseye", scripts, *HOSTS))


@SUITE
def test_set_user_id_programs_work_where_the_runtime_lets_them(trixie: Machine, images: Bind, suite: str) -> None:
    """podman does; bubblewrap sets no_new_privs, and then they run as their caller."""
    engine = Engine("podman", f"{PLACE}/{suite}")
    words = ["exec", "--backend", "podman", *engine.arguments, "--backend-arg=--user=1000", "--nv"]
    command = [f"{PLACE}/{suite}", "env", f"LD_PRELOAD={INSIDE}/library.so", f"{INSIDE}/set-user-id"]
    said = {side: trixie.gpubind(*words, "--libc", side, *command, driver=True, binds=[images]) for side in SIDES}
    # The first line is of env, which the library is loaded into.
    assert said["image"] == said["host"]
    assert "uid 1000, as 0 (root), secure 1, LD_PRELOAD dropped, EUC-JP 1" in said["host"]
    assert "uid 1000, as 1000 (user), secure 0" in str(own(trixie, images, suite)["set-user-id"])


@pytest.mark.parametrize(("user", "backend"), [(True, "bwrap"), (False, "bwrap"), (False, "podman")])
def test_32_bit_programs_run_on_the_hosts_32_bit_glibc(
    bookworm: Machine, images: Bind, user: bool, backend: str
) -> None:
    engine = Engine(backend, f"{PLACE}/bullseye")
    words = ["exec", "--backend", backend, *engine.arguments, "--nv", "--caps", "compute,utility,compat32"]
    command = [f"{PLACE}/bullseye", f"{INSIDE}/small"]
    said = {
        side: bookworm.gpubind(*words, "--libc", side, *command, user=user, driver=True, binds=[images]).splitlines()
        for side in SIDES
    }
    both = ["32 bits, thread 2", "libcuda.so.1: loads", "cuInit 100", "libnvidia-ml.so.1: loads", "root 1"]
    assert said == {"image": [*both, "glibc 2.31"], "host": [*both, "glibc 2.36"]}


def test_without_compat32_32_bit_programs_keep_theirs(bookworm: Machine, images: Bind) -> None:
    said = say(bookworm, images, "bullseye", {"small": f"{INSIDE}/small; getconf GNU_LIBC_VERSION"}, *HOSTS)["small"]
    assert str(said[1]).splitlines()[-2:] == ["glibc 2.31", "glibc 2.36"]
