"""c_library.py   What a container says of its C library, its libraries from the host and its own programs, as JSON.

It runs on every python3 from 3.9 on.
"""

import ctypes
import glob
import json
import os
import subprocess
import sys

ENCODINGS = (
    "ASCII BIG5 CP1252 CP932 EUC-CN EUC-JP EUC-KR EUC-TW GB18030 GBK IBM850 ISO-2022-JP ISO-2022-KR ISO-8859-15 "
    "JOHAB KOI8-R MACINTOSH SHIFT_JIS TIS-620 UTF-16 UTF-32 UTF-7 WINDOWS-1251"
)
CONVERT = (
    f"for e in {ENCODINGS}; do "
    r"printf '%s:' $e; printf 'abc\320\226\346\227\245' | iconv -c -f UTF-8 -t $e | iconv -f $e -t UTF-8; echo; done"
)
PYTHON = """
import concurrent.futures, ctypes, hashlib, locale, lzma, multiprocessing, socket, ssl, subprocess, time
print(locale.setlocale(locale.LC_ALL, ""), sorted("bAc", key=locale.strxfrm), time.strftime("%A", (0,) * 9))
left, right = socket.socketpair()
left.sendall(b"through a socket")
print(right.recv(99), sorted({row[4][0] for row in socket.getaddrinfo("127.0.0.1", 80)}))
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(lambda n: n * n, range(100))))
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(abs, [-1, -2]))
print(subprocess.run(["sh", "-c", "echo child; exit 3"], stdout=subprocess.PIPE))
libc = ctypes.CDLL(None)
libc.strtod.restype = ctypes.c_double
print(libc.strtod(b"2.5", None), hashlib.sha256(b"x").hexdigest()[:8])
print(lzma.decompress(lzma.compress(b"x")), ssl.create_default_context().verify_mode)
"""
PERL = "print floor(2.5), inet_ntoa(INADDR_LOOPBACK), lc 'ABC', fork ? wait > 0 : exit"
PROGRAMS = {
    "dash": "dash -c 'echo $((6 * 7)); echo a b | while read x y; do echo $y; done; ls -d /usr /etc'",
    "bash": r"a=(1 2 3); echo ${#a[@]} ${a[@]:1}; diff <(echo a) <(echo b); printf '%q\n' 'a b'",
    "coreutils": "seq 9 | shuf --random-source=/bin/sh | md5sum; date -ud @0; df / > /dev/null",
    "others": "echo abc | sed s/b/x/ | grep x | awk '{print length($0)}'; find /etc/passwd -printf %m; tar --version",
    "perl": f'perl -MPOSIX -MSocket -e "{PERL}"',
    "python3": f"LC_ALL=C.UTF-8 python3 -c '{PYTHON}'",
    "with an empty environment": "env -i /usr/bin/perl -e 'print sort keys %ENV; print `/bin/ls -d /`'",
    "characters": r"LC_ALL=C.UTF-8 bash -c $'x=\u00e9; echo ${#x}; locale charmap; [[ $x =~ [[:alpha:]] ]]; echo $?'",
    "locales": "locale -a; LC_ALL=C.UTF-8 locale -k LC_TIME | head -3",
    "encodings": CONVERT,
    "names": "getent passwd root; getent group adm; getent netgroup none; id -u root",
    "packages": "dpkg -l | tail -n +6 | wc -l; apt-get --version | head -1",
    "set-user-id": "su --version; mount --version",
    "static": "/sbin/ldconfig -p | grep -c .",
    "loader": "ldd /bin/bash | grep -c '=>'; LD_DEBUG=versions /bin/true 2>&1 | grep -c error",
}


def ran(script: str) -> "list[object]":
    """The exit status of *script* and what it printed."""
    done = subprocess.run(
        ["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return [done.returncode, done.stdout.decode("utf-8", "replace")]


def refused(path: str) -> str:
    """What the loader has against the library at *path*, in a process of its own; empty if it loads."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ctypes.CDLL(path)
        except OSError as error:
            os.write(there, str(error).encode())
        os._exit(0)
    os.close(there)
    with open(here) as stream:
        said = stream.read()
    return said or ("" if os.waitpid(child, 0)[1] == 0 else "crashed")


def main() -> None:
    paths = [*glob.glob("/.gpubind/libs/*.so*"), *glob.glob("/.singularity.d/libs/*.so*")]
    once = {(facts.st_dev, facts.st_ino): path for path in sorted(paths) for facts in [os.stat(path)]}
    answers = {os.path.basename(path): refused(path) for path in sorted(once.values())}
    report = {
        "glibc": os.confstr("CS_GNU_LIBC_VERSION"),
        "loaded": sorted(name for name, why in answers.items() if not why),
        "refused": {name: why for name, why in answers.items() if why},
        "programs": {name: ran(script) for name, script in PROGRAMS.items()},
    }
    sys.stdout.write(json.dumps(report) + "\n")


main()
