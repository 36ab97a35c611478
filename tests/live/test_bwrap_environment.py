"""What a container of bubblewrap's has of its image's environment and of the host; Apptainer itself is the oracle."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.live.containers import CONTAINERS, exec_words, image, privileges
from tests.live.machine import PYTHON_ENV, RIG, Bind, Machine
from tests.live.signals import NUMBERS, SIGNALLED
from tests.support.scripts import DECIDED

pytestmark = pytest.mark.live

WHO = pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
MADE = "/srv/made"
"""Where the machines see the images that are made here."""

FILES = {
    "10-docker2singularity.sh": 'export PATH="/opt/own/bin:/usr/bin:/bin" FOO="${FOO:-"image"}"\n',
    "90-environment.sh": "export PYTHONPATH=/image/py\nexport OMP_NUM_THREADS=4 EMPTIED=\nPLAIN=image\n",
    "91-environment.sh": """
export SEEN="[$HOSTS$PYTHONPATH]"
if [ -d /etc ]; then export LD_LIBRARY_PATH=/own/lib:$LD_LIBRARY_PATH; else export WRONG=1; fi
for part in a b; do LIST=$LIST:$part; done; export LIST
. /etc/env-of-the-image
[ -n "$LIST" ] && export JOINED="$LIST
second line"
case $LIST in *a*) export CASE=yes;; esac
activate() { export FUNCTION=called; }
activate
unset OMP_NUM_THREADS
export OMP_NUM_THREADS=8
read_nothing=$(cat /nonexistent 2> /dev/null || echo nothing); export read_nothing
""",
    "B.sh": "export ORDER=$ORDER:B\n",
    "9-later.sh": "export ORDER=$ORDER:9\n",
    "notes.txt": "export WRONG=1\n",
}
HOST = {
    "FOO": "host", "PYTHONPATH": "/host/py", "HOSTS": "two\nlines 'and' $quotes ", "EMPTIED": "host", "PLAIN": "host",
    "LD_LIBRARY_PATH": "/host/lib", "NOTHING": "", "SLURM_PROCID": "3", "BASH_ENV": "/nonexistent", "APPTAINER_X": "1",
    "SINGULARITY_Y": "1", "OMP_NUM_THREADS": "1", "TMPDIR": "/tmp/x",
}  # fmt: skip
OWN = ("APPTAINER_", "SINGULARITY_", "PS1", "PROMPT_COMMAND", "USER_PATH", "_", "SHLVL", "PATH", "LD_LIBRARY_PATH")
OURS = ("GBM_BACKENDS_PATH", "VDPAU_DRIVER_PATH", "LC_CTYPE", "PYTHONDONTWRITEBYTECODE")


@pytest.fixture(scope="module")
def made() -> Iterator[str]:
    """A directory for images, on the rig's file system: a copy costs links alone."""
    directory = tempfile.mkdtemp(prefix="made-", dir=RIG)
    os.chmod(directory, 0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def scripted(made: str) -> str:
    """An image with all kinds of environment files, as the machines see it."""
    return with_files(made, "scripted", FILES)


def with_files(made: str, name: str, files: Mapping[str, str]) -> str:
    """A copy of bookworm-sb with these environment files more."""
    subprocess.run(["cp", "-al", f"{RIG}/ct/bookworm-sb", f"{made}/{name}"], check=True)
    for file, text in files.items():
        replace(f"{made}/{name}/.singularity.d/env/{file}", text)
    replace(f"{made}/{name}/etc/env-of-the-image", "export SOURCED=yes\n")
    return f"{MADE}/{name}"


def replace(path: str, text: str) -> None:
    if os.path.exists(path):
        os.unlink(path)  # it is a link to the rig's own
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


def run(machine: Machine, made: str, *words: str, user: bool, env: Mapping[str, str] = {}, status: int = 0) -> str:
    binds = [*machine.modules, CONTAINERS, Bind(made, MADE)]
    modules = f"{PYTHON_ENV['PYTHONPATH']}:{env.get('PYTHONPATH', '')}".rstrip(":")
    around = {**PYTHON_ENV, **env, "PYTHONPATH": modules}
    return machine.run(list(words), user=user, driver=True, binds=binds, env=around, status=status).stdout


def gpubind(path: str, *words: str, arguments: Sequence[str] = ()) -> list[str]:
    options = [f"--backend-arg={word}" for word in arguments]
    return ["python3", "-m", "gpubind", *exec_words("bwrap", user=True), "-q", *options, path, *words]


def environment(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split("\0")[:-1])


def of_interest(env: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in env.items() if not name.startswith(OWN) and name not in OURS}
    return {name: value.replace("/srv/gpubind:/srv/python:", "") for name, value in found.items()}


@WHO
@pytest.mark.parametrize("name", ["scripted", "bookworm", "bookworm-sb"])
def test_the_environment_is_the_one_that_apptainer_gives(
    trixie: Machine, made: str, scripted: str, user: bool, name: str
) -> None:
    path = scripted if name == "scripted" else image(name)
    words = ["apptainer", "exec", "--nv", *privileges("apptainer", user=user), path, "env", "-0"]
    real = environment(run(trixie, made, *words, user=user, env=HOST))
    ours = environment(run(trixie, made, *gpubind(path, "env", "-0"), user=user, env=HOST))
    assert of_interest(ours) == of_interest(real)
    assert ours["PATH"] == real["PATH"] + ":/.gpubind/bin"
    own = [part for part in real.get("LD_LIBRARY_PATH", "").split(":") if part not in ("", "/.singularity.d/libs")]
    assert ours["LD_LIBRARY_PATH"].split(":") == ["/.gpubind/libs", *own]
    if name == "scripted":
        assert own == ["/own/lib"]
        expected = {
            "FOO": "image",
            "PYTHONPATH": "/image/py",
            "OMP_NUM_THREADS": "8",
            "ORDER": ":9:B",
            "SOURCED": "yes",
        }
        assert {key: ours[key] for key in expected} == expected


@pytest.mark.parametrize("script", DECIDED, ids=lambda text: str(text)[:30])
def test_what_is_believed_of_a_script_is_what_apptainer_makes_of_it(trixie: Machine, made: str, script: str) -> None:
    before = "export A=1 EMPTY= V=before L=/l WORDS='a  b *' PATH=/bin\n"
    path = with_files(made, "script", {"91-environment.sh": f"{before}{script}\nexport V\n"})
    try:
        found = environment(run(trixie, made, "apptainer", "exec", path, "/usr/bin/env", "-0", user=True))
    finally:
        shutil.rmtree(f"{made}/script")
    assert found.get("V") == DECIDED[script]


@WHO
def test_words_of_the_users_win(trixie: Machine, made: str, scripted: str, user: bool) -> None:
    arguments = [
        *("--setenv", "FOO", "it's", "--unsetenv", "HOSTS", "--setenv", "LD_LIBRARY_PATH", "/user/lib"),
        *("--setenv", "GBM_BACKENDS_PATH", "/user/gbm", "--setenv", "PATH", "/usr/bin"),
    ]
    found = environment(run(trixie, made, *gpubind(scripted, "env", "-0", arguments=arguments), user=user, env=HOST))
    assert (found["FOO"], found["GBM_BACKENDS_PATH"], found["PATH"]) == ("it's", "/user/gbm", "/usr/bin:/.gpubind/bin")
    assert "HOSTS" not in found
    assert found["LD_LIBRARY_PATH"] == "/user/lib:/.gpubind/libs:/own/lib"
    cleared = run(trixie, made, *gpubind(scripted, "env", "-0", arguments=["--clearenv"]), user=user, env=HOST)
    assert "HOSTS" not in environment(cleared)
    assert environment(cleared)["LD_LIBRARY_PATH"] == "/.gpubind/libs:/own/lib"


@WHO
def test_a_bind_of_the_users_may_be_where_the_image_has_no_place(trixie: Machine, made: str, user: bool) -> None:
    words = gpubind(image("bookworm"), "ls", "/data/etc/hostname", arguments=["--ro-bind", "/", "/data"])
    assert run(trixie, made, *words, user=user) == "/data/etc/hostname\n"


@pytest.mark.parametrize("status", [0, 1, 42])
def test_the_exit_code_is_the_childs(trixie: Machine, made: str, scripted: str, status: int) -> None:
    run(trixie, made, *gpubind(scripted, "sh", "-c", f"exit {status}"), user=True, status=status)


@pytest.mark.parametrize(("command", "status"), [("/etc/passwd", 126), ("nothere", 127), ("/nothere", 127)])
@pytest.mark.parametrize("name", ["scripted", "bookworm-sb"])
def test_a_child_that_cannot_start_is_told_as_by_a_shell(
    trixie: Machine, made: str, scripted: str, name: str, command: str, status: int
) -> None:
    path = scripted if name == "scripted" else image(name)
    run(trixie, made, *gpubind(path, command), user=True, status=status)


def test_arguments_and_standard_input_arrive_to_the_byte(trixie: Machine, made: str, scripted: str) -> None:
    arguments = ["", " a  b ", "$HOME `id` $(id)", 'it\'s "quoted"', "two\nlines", "*", "-n", "--", "\\n\\", "é", "=x"]
    script = "import sys; print(ascii(sys.argv[1:])); print(ascii(sys.stdin.read()))"
    words = gpubind(scripted, "python3", "-c", script, *arguments)
    said = run(trixie, made, "sh", "-c", 'printf "in\\nput" | "$@"', "sh", *words, user=True)
    assert said.splitlines() == [ascii(arguments), ascii("in\nput")]


@WHO
@pytest.mark.parametrize("signal", ["TERM", "HUP"])
def test_a_signal_ends_the_child_behind_the_shell(
    trixie: Machine, made: str, scripted: str, user: bool, signal: str
) -> None:
    script = SIGNALLED.format(start=" ".join(gpubind(scripted)), signal=signal)
    assert run(trixie, made, "sh", "-ec", script, user=user).splitlines()[-1] == f"ended {128 + NUMBERS[signal]}"


def test_no_shell_is_left_beside_the_command(trixie: Machine, made: str, scripted: str) -> None:
    words = gpubind(scripted, "sh", "-c", "cat /proc/$PPID/comm /proc/$$/comm")
    assert run(trixie, made, *words, user=True) == "bwrap\nsh\n"


@WHO
def test_two_containers_share_memory(trixie: Machine, made: str, user: bool) -> None:
    start = " ".join(gpubind(image("bookworm-sb")))
    script = f"{start} sh -c 'echo shared > /dev/shm/of-two'; {start} cat /dev/shm/of-two; cat /dev/shm/of-two"
    assert run(trixie, made, "sh", "-ec", script, user=user) == "shared\nshared\n"


@WHO
def test_what_apptainer_binds_of_the_host_is_there(trixie: Machine, made: str, user: bool) -> None:
    script = "stat -c '%n %d:%i' /var/tmp /tmp $HOME /dev/shm; pwd"
    words = gpubind(image("bookworm-sb"), "sh", "-c", script)
    for directory in ("/tmp", "/usr/share", "/usr"):
        inside = run(trixie, made, "sh", "-c", 'cd "$1"; shift; "$@"', "sh", directory, *words, user=user).splitlines()
        assert [line.split()[0] for line in inside[:-1]] == ["/var/tmp", "/tmp", inside[2].split()[0], "/dev/shm"]
        assert inside[-1] == directory
    script = "cat /etc/passwd /etc/resolv.conf | cksum; echo > /var/tmp/x && rm /var/tmp/x; ls -A /var/tmp $HOME"
    words = gpubind(image("bookworm-sb"), "sh", "-c", script)
    assert run(trixie, made, *words, user=user) == run(trixie, made, "sh", "-c", script, user=user)


ETC = {
    "as-it-is": "true",
    "without": "rm -f hosts resolv.conf localtime",
    "links": "ln -sf /nowhere hosts; ln -sf ../run/systemd/resolve/stub-resolv.conf resolv.conf",
    "large": "rm -f hosts resolv.conf; for n in $(seq 200); do : > $n; done",
}
"""What is done in the /etc of bookworm, which Debian makes without a file `hosts`."""
CONNECT = """
import os, socket
server = socket.create_server(("localhost", 0))
if os.fork() == 0:
    client = socket.create_connection(("localhost", server.getsockname()[1]), timeout=10)
    client.sendall(b"rank 1")
    os._exit(0)
server.settimeout(10)
print(server.accept()[0].recv(9).decode())
"""


@WHO
@pytest.mark.parametrize("name", ETC)
def test_a_name_has_the_address_that_it_has_with_apptainer(trixie: Machine, made: str, user: bool, name: str) -> None:
    directory = f"{made}/etc-{name}"
    subprocess.run(["cp", "-al", f"{RIG}/ct/bookworm", directory], check=True)
    try:
        subprocess.run(["sh", "-ec", ETC[name]], cwd=f"{directory}/etc", check=True)
        path = f"{MADE}/etc-{name}"
        files = "/etc/hosts /etc/resolv.conf" + (" /etc/localtime" if name != "large" else "")
        words = ["sh", "-c", f"getent hosts localhost; cat {files}"]
        apptainer = ["apptainer", "exec", *privileges("apptainer", user=user), path, *words]
        assert run(trixie, made, *gpubind(path, *words), user=user) == run(trixie, made, *apptainer, user=user)
        assert run(trixie, made, *gpubind(path, "python3", "-c", CONNECT), user=user) == "rank 1\n"
    finally:
        shutil.rmtree(directory)


def test_interconnects_of_the_host_are_there(trixie: Machine, made: str) -> None:
    nodes = "mkdir -p /tmp/ib; touch /tmp/ib/uverbs0"
    words = " ".join(gpubind(image("bookworm-sb"), "ls", "/dev/infiniband"))
    script = f"{nodes}; mkdir -p /dev/infiniband; mount --bind /tmp/ib /dev/infiniband; {words}; umount /dev/infiniband"
    try:
        assert run(trixie, made, "sh", "-ec", script, user=False) == "uverbs0\n"
    finally:
        os.rmdir(f"{trixie.root}/dev/infiniband")
