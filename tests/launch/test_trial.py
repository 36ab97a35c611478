"""A container is asked in a shell: what a script asks, what counts as an answer, and what becomes of it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest

import gpubind
from gpubind.errors import UsageError
from gpubind.launch.trial import (
    SCRIPT_LIMIT,
    SHELL,
    STARTS_LIMIT,
    WORDS_LIMIT,
    make_script,
    parse_answers,
    split_batches,
)
from gpubind.memo.recorder import Recorder
from gpubind.model.data import BUNDLED_HOSTS
from gpubind.model.trial import Prediction
from tests.support.commands import gpubind as run
from tests.support.driver import kernel, rhel
from tests.support.elf import elf
from tests.support.golden import assert_fits
from tests.support.images import GLIBC, glibc
from tests.support.trees import make_tree

NONCE = "0123456789abcdef"
SHELLS = [shell for shell in (("dash",), ("bash", "--posix"), ("busybox", "sh")) if which(shell[0])]
"""Of those that this machine has: the shells of images."""
LOADER = "/lib64/ld-linux-x86-64.so.2"
NAMES = ("plain", "it's", 'a "b"', "$(touch x)", "`touch x`", "a\nb", "*", "-n", "a\\nb", " ", "%s", "\udcff", "é")


def loads(path: str, loader: str = "loader") -> Prediction:
    return Prediction("loads", path, (loader, "--list", path), True)


def said(asked: list[Prediction], shell: tuple[str, ...] = ("sh",), **options: Any) -> Any:
    """What the shell answers to the script of *asked*."""
    done = subprocess.run([*shell, "-c", make_script(asked, NONCE)], capture_output=True, **options)
    return parse_answers(done.stdout.decode("utf-8", "surrogateescape"), NONCE)


@pytest.fixture
def loader(tmp_path: Path) -> str:
    """A loader that loads what is called `good`, and repeats the name of anything else."""
    path = tmp_path / "loader"
    path.write_text('#!/bin/sh\necho list\n[ "$2" = good ] || { printf %s "$2" >&2; exit 127; }\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_every_shell_gives_the_status_and_the_words_of_each_file(shell: tuple[str, ...], loader: str) -> None:
    asked = [loads("good", loader), loads("bad", loader), loads("x", "/none"), Prediction("program", "", ("sh",), True)]
    asked += [Prediction("program", "", (name,), True) for name in ("none", "/bin/sh", "/etc/passwd", "/bin")]
    asked += [Prediction("driver", "", ("sh", "-c", "echo out; echo err >&2; exit 3"), None)]
    answers, is_whole = said(asked, shell)
    assert is_whole
    statuses = [answers[at][0] for at in range(len(asked))]
    assert statuses == [0, 127, None, 0, 1, 0, 1, 1, 3]
    assert (answers[0][1], answers[1][1], answers[8][1]) == ("", "bad", "out\nerr")


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_no_name_of_a_file_is_anything_but_a_name_for_the_shell(
    shell: tuple[str, ...], loader: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    asked = [loads(name, loader) for name in NAMES]
    answers, is_whole = said(asked, shell, cwd=tmp_path / "empty")
    assert is_whole
    assert {at: (127, name.strip()) for at, name in enumerate(NAMES)} == answers
    assert os.listdir(tmp_path / "empty") == []


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_found_by_any_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name.strip(" ") if name.strip() else tmp_path / "blank"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    asked = [Prediction("program", "", (str(path),), True), Prediction("program", "", (path.name,), True)]
    answers, _ = said(asked, env={"PATH": f"/none:{tmp_path}:{os.environ['PATH']}"})
    assert answers == {0: (0, ""), 1: (0, "")}


def test_what_a_program_prints_is_no_answer(tmp_path: Path) -> None:
    forged = tmp_path / "loader"
    lines = "\\n%s 1 0 fine\\n%s end\\n"
    forged.write_text(f"#!/bin/sh\nprintf '{lines}' wrong wrong >&2\nexit 127\n")
    forged.chmod(0o755)
    answers, is_whole = said([loads("a", str(forged))])
    assert (answers, is_whole) == ({0: (127, "wrong 1 0 fine\nwrong end")}, True)


def test_the_words_of_an_answer_are_bounded(tmp_path: Path) -> None:
    talker = tmp_path / "loader"
    talker.write_text("#!/bin/sh\nhead -c 3000000 /dev/zero | tr '\\0' a >&2\nexit 127\n")
    talker.chmod(0o755)
    assert said([loads("a", str(talker))]) == ({0: (127, "a" * WORDS_LIMIT)}, True)


@pytest.mark.parametrize(
    ("text", "answers", "is_whole"),
    [
        ("", {}, False),
        (f"{NONCE} end\n", {}, False),
        (f"\n{NONCE} end\n", {}, True),
        (f"noise\n\n{NONCE} 0 0 \n{NONCE} 1 127 a\nb\n{NONCE} end\nbye", {0: (0, ""), 1: (127, "a\nb")}, True),
        (f"\r\n{NONCE} 0 0 \r\n{NONCE} end\r\n", {0: (0, "")}, True),
        (f"\n{NONCE} 0 0 \n{NONCE} 1 12", {0: (0, "")}, False),
        (f"\n{NONCE} 0 none \n{NONCE} end\n", {0: (None, "")}, True),
        (f"\n{NONCE} 0 0 first\n{NONCE} 0 1 second\n{NONCE} end\n", {0: (0, "first")}, True),
        (f"\n{NONCE} -1 0 x\n{NONCE} 99999999 0 x\n{NONCE} 1 -1 x\n{NONCE} {'9' * 5000} 0 x\n{NONCE} end\n", {}, True),
        (f"\n{NONCE} 0 0 x\n{NONCE} endless\n", {0: (0, "x")}, False),
    ],
)
def test_only_what_begins_with_the_nonce_is_an_answer(text: str, answers: dict[int, Any], is_whole: bool) -> None:
    assert parse_answers(text, NONCE) == (answers, is_whole)


def test_a_start_asks_as_much_as_one_word_of_a_command_line_holds() -> None:
    asked = [loads("/" + "x" * 4000) for _ in range(40)]
    starts = list(split_batches(asked, has_shell=True))
    assert [one for several in starts for one in several] == asked
    assert len(starts) > 1
    assert max(map(len, starts)) == len(starts[0])
    assert max(len(make_script(several, NONCE)) for several in starts) < 2 * SCRIPT_LIMIT == 128 << 10


def test_without_a_shell_each_file_takes_a_start_and_there_are_not_many() -> None:
    asked = [Prediction("program", "a", ("a",), True), *(loads(str(at)) for at in range(100))]
    assert list(split_batches(asked, has_shell=False)) == [(one,) for one in asked[1 : STARTS_LIMIT + 1]]


ROOT = Path(__file__).parents[2]
SPEC = {
    **glibc(),
    "/usr/lib/x86_64-linux-gnu/libc.so.6": elf("libc.so.6", defines=("libc.so.6", *GLIBC[:30]), interpreter=LOADER),
}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A directory with a driver, an image, and a ch-run that starts the program outside of any container."""
    make_tree(tmp_path / "driver", {**rhel(), **{path: kernel()[path] for path in kernel() if path[:5] != "/dev/"}})
    make_tree(tmp_path / "image", SPEC)
    runtime(tmp_path, 'for word; do shift; [ "$word" != -- ] || break; done; exec "$@"')
    return tmp_path


def runtime(machine: Path, text: str) -> None:
    (machine / "ch-run").write_text(f'#!/bin/sh\n[ "$1" != --version ] || exec echo 0.38\n{text}\n')
    (machine / "ch-run").chmod(0o755)


def tried(machine: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{machine}:{os.environ['PATH']}", "HOME": str(machine), "USER": "me"}
    root = ("--root", str(machine / "driver"), "--dev-root", str(machine / "driver"))
    image = ("--image", str(machine / "image"), "--backend", "ch-run", "--allow-writable")
    return run("check", "--try", *root, *image, *words, env=env)


def test_what_the_loader_refuses_and_was_to_load_is_an_error(machine: Path) -> None:
    done = tried(machine, "--json")
    document = json.loads(done.stdout)
    assert_fits(document, "check")
    assert (done.returncode, document["verdict"]) == (1, "error")
    assert document["tried"]["runtime"] == "ch-run"
    assert document["tried"]["failure"] is None
    answers = {answer["subject"]: answer for answer in document["tried"]["answers"]}
    answer = answers["/.gpubind/libs/libcuda.so.1"]
    assert (answer["kind"], answer["predicted"], answer["seen"]) == ("loads", True, False)
    assert "cannot open shared object file" in answer["said"]
    (found,) = [one for one in document["findings"] if one["code"] == "prediction-wrong"]
    assert found["command"].startswith("gpubind record -o host.json\ngpubind check --try --backend ch-run --image ")


def test_the_text_has_what_was_predicted_next_to_what_was_seen(machine: Path) -> None:
    done = tried(machine)
    assert done.returncode == 1
    assert "error: prediction-wrong: " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("tried by ch-run: ")
    assert ", ".join(next(x for x in done.stdout.splitlines() if "seen" in x).split()) == "tried, predicted, seen"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo warning >&2; echo no namespace >&2; exit 7", "no namespace (exit status 7)"),
        ("exit 0", "it said nothing (exit status 0)"),
        (f"echo {'y' * 301} >&2; exit 3", f"{'y' * 300} (exit status 3)"),
        ("kill -9 $$", "ch-run was killed by signal 9"),
        ("yes", "ch-run prints more than 1048576 bytes"),
        ("echo; echo 0 0; echo end", "end (exit status 0)"),
    ],
)
def test_a_container_that_does_not_answer_is_an_error_with_the_last_words(machine: Path, text: str, why: str) -> None:
    runtime(machine, text)
    document = json.loads(tried(machine, "--json").stdout)
    assert document["tried"] == {**document["tried"], "failure": why, "answers": []}
    (found,) = [one for one in document["findings"] if one["code"] == "try-failed"]
    assert found["why"] == why


def test_an_image_without_a_shell_is_tried_file_by_file(machine: Path) -> None:
    os.remove(machine / "image/usr/bin/sh")
    document = json.loads(tried(machine, "--json").stdout)
    answers = document["tried"]["answers"]
    assert len(answers) > 1
    assert {answer["seen"] for answer in answers if answer["kind"] == "loads"} == {False}
    runtime(machine, "echo broken >&2; exit 127")
    document = json.loads(tried(machine, "--json").stdout)
    assert (document["tried"]["failure"], document["tried"]["answers"]) == ("broken (exit status 127)", [])


def test_an_image_whose_shell_is_not_to_load_is_tried_file_by_file(machine: Path) -> None:
    shell = machine / "image/usr/bin/sh"
    shell.write_bytes(elf(kind=2, interpreter=LOADER, needed=("libnone.so",)))
    runtime(machine, f'echo >> {machine}/starts; for word; do shift; [ "$word" != -- ] || break; done; exec "$@"')
    answers = json.loads(tried(machine, "--json").stdout)["tried"]["answers"]
    assert len((machine / "starts").read_text()) == len(answers) > 1


def test_an_image_that_the_runtime_does_not_start_is_refused_as_by_exec(machine: Path) -> None:
    done = tried(machine, "--image", str(ROOT / "docs/examples/cuda13.sif"), "--image", str(machine / "none"))
    assert "no-image" in done.stdout
    assert "Charliecloud starts only directories" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        (
            (
                "--image",
                "docs",
            ),
            "no-runtime",
            6,
        ),
        ((), "try-without-image", 2),
        (("--image", "/", "--host", BUNDLED_HOSTS[0]), "host-to-start", 2),
        (("--image", "/", "--like", "apptainer"), "not-to-try", 2),
        (("--image", "/", "--as-user", "root"), "not-to-try", 2),
    ],
)
def test_what_cannot_be_tried_is_refused_with_the_reason(words: tuple[str, ...], code: str, status: int) -> None:
    done = run("check", "--try", "--backend", "ch-run", *words)
    assert (done.returncode, done.stderr.partition(": ")[2].partition(": ")[0]) == (status, code)


def test_the_library_tries_too(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{machine}:{os.environ['PATH']}")
    monkeypatch.setenv("USER", "me")
    root = str(machine / "driver")
    recorder, reasons = Recorder(lambda status: None), list[str]()
    monkeypatch.setattr(recorder, "refuse", reasons.append)
    with gpubind.open_host(root=root, dev_root=root) as host, gpubind.open_image(machine / "image") as image:
        start = gpubind.open_runtime(host, "ch-run")
        plan = gpubind.plan(host, gpubind.Request(), image=image, start=start)
        words: dict[str, Any] = {"backend": "ch-run", "allow_writable": True}
        assert "prediction-wrong" not in [one.code for one in gpubind.check(host, plan, image, **words)]
        with recorder:
            assert "prediction-wrong" in [one.code for one in gpubind.check(host, plan, image, **words, try_=True)]
        assert "a container was started" in reasons
        other = gpubind.plan(host, gpubind.Request(), image=image, start=gpubind.open_runtime(host, "apptainer"))
        for wrong, code in (((host, other, image), "other-layout"), ((host, plan, None), "try-without-image")):
            with pytest.raises(UsageError) as error:
                gpubind.check(*wrong, **words, try_=True)
            assert error.value.code == code


def test_the_library_tries_nothing_on_a_record(machine: Path) -> None:
    with gpubind.open_host(BUNDLED_HOSTS[0]) as host, gpubind.open_image(machine / "image") as image:
        plan = gpubind.plan(host, gpubind.Request(), image=image)
        with pytest.raises(UsageError) as error:
            gpubind.check(host, plan, image, try_=True)
    assert error.value.code == "host-to-start"


def test_the_limits_of_a_try() -> None:
    assert (SCRIPT_LIMIT, WORDS_LIMIT, STARTS_LIMIT, SHELL) == (65536, 2000, 64, "/bin/sh")


def test_a_script_is_divided_where_twice_its_words_pass_the_limit() -> None:
    half = loads("/" + "x" * (SCRIPT_LIMIT // 4 - len("loader --list /")))
    assert list(split_batches([half, half], has_shell=True)) == [(half, half)]
    longer = loads(half.words[-1] + "x")
    assert list(split_batches([half, longer, half], has_shell=True)) == [(half,), (longer,), (half,)]


@pytest.mark.parametrize("message", [
    *("error while loading shared libraries", "version `", "Error loading shared library", "Error relocating"),
])  # fmt: skip
def test_each_message_of_a_loader_is_an_answer_without_a_shell(machine: Path, message: str) -> None:
    os.remove(machine / "image/usr/bin/sh")
    runtime(machine, f"echo '{message}' >&2; exit 1")
    document = json.loads(tried(machine, "--json").stdout)
    assert document["tried"]["failure"] is None
    assert {(answer["seen"], answer["said"]) for answer in document["tried"]["answers"]} == {(False, message)}
