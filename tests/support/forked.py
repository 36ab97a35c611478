"""A command in a process of its own, without a new interpreter for it: a server that has loaded gpubind forks.

As a program: the server. What only a new interpreter shows (what is imported when, the locale, early interrupts) has
tests that start one: test_startup.py, test_docs.py, test_interrupt.py.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn, Optional


def run_forked(
    words: Sequence[str],
    environ: Mapping[str, str],
    cwd: Optional[Path] = None,
    module: str = "gpubind.__main__",
    before: str = "",
    stdin: Optional[bytes] = None,
) -> subprocess.CompletedProcess[str]:
    """Run the `main` of *module* with *words* in a process of its own: as `subprocess.run`, with its output as text.

    *before* is code that this process runs first.
    """
    requests, answers, place = _server()
    request = [module, list(words), dict(environ), str(cwd or os.getcwd()), place, before, stdin is not None]
    Path(place, "in").write_bytes(stdin or b"")
    requests.write(json.dumps(request) + "\n")
    requests.flush()
    status = int(answers.readline())
    said = [Path(place, name).read_bytes().decode("utf-8", "surrogateescape") for name in ("out", "err")]
    return subprocess.CompletedProcess(["gpubind", *words], status, *said)


def trusted_programs(directory: str) -> str:
    """Return code for *before*: programs of *directory* are found and run, whoever may change them."""
    return f"""
from gpubind.host import programs
programs.PROGRAM_DIRECTORIES = ({directory!r}, "/usr/bin", "/bin")
programs.writable_by_others = lambda program: None
"""


@lru_cache(maxsize=1)
def _server() -> tuple[IO[str], IO[str], str]:
    """Start the server of this process; return where it is asked, where it answers, and where output lies."""
    place = tempfile.TemporaryDirectory(prefix="forked")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "GPUBIND_MEMO": "off"}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def end() -> None:
        server.communicate()
        place.cleanup()

    atexit.register(end)
    return server.stdin, server.stdout, place.name


def _serve() -> tuple[str, list[str], str]:
    """Answer requests until there are no more; return in each child, with the module, words and code of its request."""
    import gpubind

    for info in pkgutil.walk_packages(gpubind.__path__, "gpubind."):
        import_module(info.name)
    _read_tables()
    gc.collect()
    gc.freeze()  # no child copies it only to look for cycles
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for line in requests:
        module, words, environ, cwd, place, before, has_input = json.loads(line)
        import_module(module)
        child = os.fork()
        if not child:
            requests.close()
            answers.close()
            os.dup2(os.open(f"{place}/in" if has_input else os.devnull, os.O_RDONLY), 0)
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(f"{place}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
            os.environ.clear()
            os.environ.update(environ)
            os.chdir(cwd)
            return module, words, before
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        answers.flush()
    os._exit(0)


def _read_tables() -> None:
    """Run a few commands, so that no child reads again what the package keeps of its own data."""
    from gpubind.__main__ import main

    host = "--host=debian13-nvidia550"
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        for words in (["plan", host], ["check", "--format=json", host], ["explain", "no-such-message"], ["gpus", host]):
            main(words)


def _main() -> NoReturn:
    module, words, before = _serve()
    sys.argv = ["gpubind", *words]
    exec(before, {})
    status = import_module(module).main(words)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # taking apart what the server has loaded would be half of the work


if __name__ == "__main__":
    _main()
