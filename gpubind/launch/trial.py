"""Test the predictions of a check: `try_start` starts the container, and runs the loader and the driver in it.

The plan and the runtime's arguments are those of a normal start. In place of the user's program, the image's own shell
runs a script with all queries. If the image has no shell, each file needs a separate start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from shlex import join
from typing import Optional

from gpubind.errors import UsageError
from gpubind.image.reference import STDIN, ImageReference
from gpubind.launch.choose import StartArguments, parse_start
from gpubind.launch.execute import need_program
from gpubind.launch.prepare import FilePolicy, prepare_with_plan
from gpubind.launch.start import write_command_file
from gpubind.launch.target import need_form, need_kind
from gpubind.machine import system
from gpubind.machine.answers import reason
from gpubind.machine.listener import mark_uncacheable
from gpubind.machine.programs import run_captured
from gpubind.model.trial import Prediction, Trial, TrialOutcome
from gpubind.rules.preflight import Preflight
from gpubind.rules.table import check
from gpubind.rules.trial import compare_answer, predictions
from gpubind.runtimes.runtime import PreparedStart, StartCall

SHELL = "/bin/sh"
_TIME_S = 120.0
"""The most seconds of one start."""
_DRIVER_S = 20
"""The most seconds of one driver query, if the image has `timeout`."""
STARTS_LIMIT = 64
"""The most starts of an image without a shell."""
SCRIPT_LIMIT = 64 << 10
"""The most bytes of a script: the kernel limits one argument to 128 KiB."""
WORDS_LIMIT = 2000
"""The most bytes of each answer."""
_REASON_LIMIT = 300
_REFUSALS = ("error while loading shared libraries", "version `", "Error loading shared library", "Error relocating")
"""Parts of the errors of the loaders of glibc and musl."""
_ANSWER = re.compile(r"([0-9]{1,6}) ([0-9]{1,3}|none) ")

_FUNCTIONS = f"""set -f
say() {{ printf '\\n%s %s %s %.{WORDS_LIMIT}s' "$n" "$1" "$2" "$3"; }}
loads() {{
  i=$1; shift
  [ -x "$1" ] || {{ say "$i" none ''; return; }}
  t=$("$@" 2>&1 > /dev/null < /dev/null); say "$i" $? "$t"
}}
program() {{
  s=1
  case $2 in
    */*) [ -f "$2" ] && [ -x "$2" ] && s=0;;
    *) IFS=:; for d in $PATH; do [ -f "${{d:-.}}/$2" ] && [ -x "${{d:-.}}/$2" ] && s=0; done; unset IFS;;
  esac
  say "$1" $s ''
}}
w=; timeout -s 9 5 true 2> /dev/null && w='timeout -s 9 {_DRIVER_S}'
driver() {{ i=$1; shift; t=$($w "$@" 2>&1 < /dev/null); say "$i" $? "$t"; }}
"""


def need_to_try(image: Optional[str], *, is_recorded: bool, is_like: bool = False, user: Optional[str] = None) -> str:
    """Return the *image* to try.

    Errors: `UsageError` without an image (`try-without-image`), for a record (`host-to-start`), and for another program
    or user (`not-to-try`).
    """
    if image is None:
        raise UsageError("try-without-image", "--try needs --image: it starts a container")
    if image == STDIN:
        problem = "--try starts a container, and no runtime starts an archive on standard input"
        raise UsageError("not-to-try", problem, hint="save the image in a file, and name that")
    if is_recorded:
        problem, why = "a recorded host cannot be tried", "nothing can be started on it"
        raise UsageError("host-to-start", problem, why=why, hint="leave --try out, or check on the host itself")
    if is_like or user is not None:
        problem = "--try starts a container as `gpubind exec` would: with gpubind's own plan, and as you"
        hint = f"leave out {'--like' if is_like else '--as-user, and try as that user'}"
        raise UsageError("not-to-try", problem, hint=hint)
    return image


def read_trial(image: str, backend: Optional[str], environ: Mapping[str, str]) -> StartArguments:
    """Return the runtime that starts *image*, by default as `exec` does, and its name there. Errors: `parse_start`."""
    return parse_start("exec", (image, SHELL), backend or "auto", environ)


def try_start(preflight: Preflight, image: ImageReference) -> Trial:
    """Start a container of *preflight*, and return its answers. *image* is the image's name for the runtime.

    Errors: `RuntimeLimitError` if the runtime is missing or does not support the plan; `HostReadError` for a form of
    image that it does not start; `OutputError`.
    """
    start = preflight.start
    assert preflight.has_image
    assert start is not None
    need_form(image, start.runtime)
    if image.is_local_file:
        need_kind(preflight.image, image, start.runtime)
    if preflight.limit is not None:
        raise preflight.limit
    mark_uncacheable("a container was started")
    runtime = start.runtime
    program = need_program(runtime.name, start.caller.environ)
    predicted = predictions(preflight, check(preflight))
    if not predicted:
        return Trial(runtime.name)
    start = start._replace(caller=start.caller._replace(has_terminal=False))
    prepared = prepare_with_plan(preflight.host, preflight.plan, start, preflight.image, FilePolicy())
    has_shell = not preflight.container.failures(SHELL)
    tried: list[TrialOutcome] = []
    remaining, failure = len(predicted), None
    for batch in split_batches(predicted, has_shell=has_shell):
        answers, failure = _answers(prepared, program, image.word, batch, has_shell=has_shell)
        tried += answers
        remaining -= len(batch)
        if failure is not None:
            break
    return Trial(runtime.name, tuple(tried), remaining, failure)


def split_batches(predicted: Sequence[Prediction], *, has_shell: bool) -> Iterator[tuple[Prediction, ...]]:
    """Yield the predictions of each start: as many as a script holds, or one each without a shell."""
    if not has_shell:
        yield from [(prediction,) for prediction in predicted if prediction.kind != "program"][:STARTS_LIMIT]
        return
    batch: list[Prediction] = []
    size = 0
    for prediction in predicted:
        more = len(join(prediction.words)) * 2
        if batch and size + more > SCRIPT_LIMIT:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(prediction)
        size += more
    yield tuple(batch)


def _answers(
    prepared: PreparedStart, program: str, image: str, batch: tuple[Prediction, ...], *, has_shell: bool
) -> tuple[list[TrialOutcome], Optional[str]]:
    """Return the answers of one container to *batch*, and why answers are missing, if some are."""
    nonce = system.random_name()
    args = (SHELL, "-c", make_script(batch, nonce)) if has_shell else batch[0].words
    token = system.token()
    runtime = prepared.start.runtime
    command = runtime.start_command(StartCall(program, "exec", image, args, token), prepared.start, prepared.arguments)
    try:
        argv = write_command_file(command)
        status, *printed = run_captured(argv[0], argv, runtime.name, _TIME_S, command.environ)
    except OSError as error:
        return [], reason(error)
    out, err = (text.decode("utf-8", "surrogateescape") for text in printed)
    if has_shell:
        answers, is_whole = parse_answers(out, nonce)
        tried = [compare_answer(prediction, *answers[at]) for at, prediction in enumerate(batch) if at in answers]
        return tried, None if is_whole else _failure_excerpt(err or out, status)
    is_answer = status == 0 or any(message in err for message in _REFUSALS) or batch[0].kind == "driver"
    if not is_answer:
        return [], _failure_excerpt(err or out, status)
    answer = out.strip() or err if batch[0].kind == "driver" else err
    return [compare_answer(batch[0], status, answer.strip()[:WORDS_LIMIT])], None


def _failure_excerpt(text: str, status: int) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[-1][:_REASON_LIMIT] if lines else "it said nothing") + f" (exit status {status})"


def make_script(batch: Sequence[Prediction], nonce: str) -> str:
    """Return the POSIX shell script that tests all predictions of *batch*. Each answer begins with *nonce*."""
    lines = [f"{prediction.kind} {at} {join(prediction.words)}\n" for at, prediction in enumerate(batch)]
    return f"n={nonce}\n{_FUNCTIONS}{''.join(lines)}printf '\\n%s end\\n' \"$n\"\n"


def parse_answers(text: str, nonce: str) -> tuple[dict[int, tuple[Optional[int], str]], bool]:
    """Return the exit status and the output of each answer in *text*, and whether the end marker is there.

    The status is None if there is no loader. Only lines that begin with *nonce* are answers, so a program's output
    cannot be mistaken for one. But the shell has the nonce in its script, and /proc shows it to the programs that it
    starts: a hostile image can forge every answer.
    """
    answers: dict[int, tuple[Optional[int], str]] = {}
    parts = text.replace("\r\n", "\n").split(f"\n{nonce} ")
    is_whole = parts[-1].startswith("end\n") and len(parts) > 1
    for part in parts[1:]:
        match = _ANSWER.match(part)
        if match is not None:
            status = None if match[2] == "none" else int(match[2])
            answers.setdefault(int(match[1]), (status, part[match.end() :].strip()[:WORDS_LIMIT]))
    return answers, is_whole
