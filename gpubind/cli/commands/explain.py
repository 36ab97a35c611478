"""explain: codes, messages, logs and names."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Optional

from gpubind.cli.declarations import EXIT_CODES, IMAGE, JSON, LIKE, VERBOSE, Argument, Option, PlanOptions, Subcommand
from gpubind.cli.options import open_host_of, open_image_of, query_of
from gpubind.errors import GpubindError, NothingToBindError, UsageError

if TYPE_CHECKING:
    from gpubind.explanation.answer import Answer
    from gpubind.explanation.decisions import Explanation
    from gpubind.explanation.messages import FoundMessage
    from gpubind.model import Plan


def explain(
    options: PlanOptions,
    *,
    asked: Optional[Sequence[str]],
    like: Optional[str],
    image: Optional[str],
    tree: bool,
    format_: Optional[str],
    json: bool,
    verbose: int,
) -> None:
    """Say what a code or message means, or why a file is in the plan."""
    from gpubind.cli.output import progress, table_width, width, write_document
    from gpubind.documents import explanation

    what = " ".join(asked or ())
    if format_ is not None and not tree:
        raise UsageError("unknown-format", f"--format {format_} is a form of --tree", hint="add --tree")
    if json and format_ not in (None, "json"):
        raise UsageError("two-formats", f"--format json and --format {format_} exclude each other")
    with progress(quiet=False):
        if tree:
            from gpubind.cli.linking import render_tree

            text = render_tree(options, what, like, image, "json" if json else format_ or "text")
        else:
            if what == "-" or (not asked and _has_log()):
                answer = _of_log("standard input", _standard_input())
            else:
                answer = _of(options, what, like, image)
            if answer.messages and (json or verbose or len(answer.messages) == 1):
                answer = answer._replace(explanation=_of_library(options, answer.messages[0], like, image))
            columns = width() if answer.explanation is None or answer.messages else table_width(None)
            text = (
                explanation.render_json(answer)
                if json
                else explanation.render_text(answer, columns, verbose=verbose > 0)
            )
    write_document(text, None)


def _of(options: PlanOptions, what: str, like: Optional[str], image: Optional[str]) -> Answer:
    """Return the answer to *what*: a code, a message, a part of one, or a name of a plan."""
    from gpubind.explanation.answer import Answer
    from gpubind.explanation.codes import codes, explain_code, mentioned
    from gpubind.explanation.messages import find_message

    if not what.strip():
        return Answer(None, codes=tuple(code for code, _ in codes()))
    if what.startswith(("./", "../")) and (_is_log_file(what) or _looks_like_a_log(what)):
        return _of_log_file(what)
    page = explain_code(what)
    if page is not None:
        return Answer(what, page=page)
    found = find_message(what)
    if found:
        return Answer(what, found)
    about = mentioned(what)
    if about:
        return Answer(what, codes=about)
    if _is_log_file(what):
        return _of_name_or_log(options, what, like, image)
    if _looks_like_a_log(what):
        return _of_log_file(what)
    if _NAME.fullmatch(what) is None:
        raise _unknown(f"`{_short(what)}` is neither a code nor a message that gpubind knows", [what])
    return _of_plan(options, what, like, image)


def _of_name_or_log(options: PlanOptions, path: str, like: Optional[str], image: Optional[str]) -> Answer:
    """Return the answer to *path*, a text file: what the plan decided about it; of any other file, its messages."""
    try:
        return _of_plan(options, path, like, image)
    except (NothingToBindError, UsageError):
        return _of_log_file(path)


def _of_log_file(path: str) -> Answer:
    """Return the answer to the log *path*. Errors: as `_of_log`, `HostReadError` (code `unreadable-file`)."""
    from gpubind.image.open import nearest
    from gpubind.machine.answers import could_not_look, lexists
    from gpubind.machine.regular import open_regular

    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return _of_log(path, _blocks(file, path))
    except OSError as error:
        unread = could_not_look(path, error, "a log cannot be read")
        unread.hint = unread.hint if lexists(path) else nearest(path)
        raise unread from error


def _is_log_file(path: str) -> bool:
    """Return whether *path* is a regular file and no program, or one that may not be read."""
    from gpubind.machine.answers import is_file
    from gpubind.machine.regular import open_regular

    if "\n" in path or not is_file(path):
        return False
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(len(_PROGRAM)) != _PROGRAM
    except OSError:
        return True  # reading all of it says why


def _looks_like_a_log(path: str) -> bool:
    """Return whether *path* is the name of a log, though there is no such file, or what is there is none."""
    return path.endswith(_LOGS) and _NAME.fullmatch(path) is not None


def _of_log(name: str, blocks: Iterator[bytes]) -> Answer:
    """Return the answer to the log *name*.

    Errors: `UsageError` (code `empty-log`) if there is nothing in it, (code `unknown-code`) if no line is a known
    message.
    """
    from gpubind.cli.output import complain
    from gpubind.explanation.answer import Answer
    from gpubind.explanation.messages import search

    log = search(blocks)
    if log.not_searched is not None:
        why = f"the lines before line {log.not_searched} cost too much: the rest of the log was not searched"
        complain(f"warning: not-looked-at: {name}: {why}\n")
    if not log.lines:
        hint = "give a log: `gpubind explain FILE` or `gpubind explain < FILE`; `gpubind explain ''` lists every code"
        raise UsageError("empty-log", f"{name} is empty: there is no log to explain", hint=hint)
    if not log.found:
        raise _unknown(f"no line of the {log.lines} of {name} is a message that gpubind knows", log.complaints)
    return Answer(None, log.found)


def _has_log() -> bool:
    """Return whether standard input was redirected: it is neither a terminal nor what a caller left open."""
    try:
        found = os.fstat(0)
    except OSError:
        return False
    is_null = stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL_DEVICE
    return is_null or stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)


def _standard_input() -> Iterator[bytes]:
    from gpubind.machine.answers import could_not_look

    try:
        yield from () if sys.stdin is None else _blocks(sys.stdin.buffer, "standard input")
    except OSError as error:
        raise could_not_look("standard input", error, "a log cannot be read") from error


def _blocks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the log *name* in blocks that end with a line, unless a line is longer than a block."""
    from gpubind.cli.output import complain

    rest = b""
    for _ in range(_LONGEST_LOG // _BLOCK):
        data = file.read(_BLOCK)
        if not data:
            break
        block, end, rest = (rest + data).rpartition(b"\n")
        yield block + end if end else rest
        rest = rest if end else b""
    else:
        complain(f"warning: not-looked-at: {name}: only its first {_LONGEST_LOG >> 20} MiB were read\n")
    if rest:
        yield rest


def _of_library(
    options: PlanOptions, found: FoundMessage, like: Optional[str], image: Optional[str]
) -> Optional[Explanation]:
    """Return what is so on this host of the library that *found* is about; None without one, or without a driver."""
    from gpubind.cli.output import warn
    from gpubind.explanation.decisions import explain as explain_name

    if found.library is None:
        return None
    try:
        return explain_name(_plan(options, like, image), found.library)
    except NothingToBindError:
        return None
    except GpubindError as error:
        warn(error)  # the message is known all the same
        return None


_ABOUT_THE_HOST = ("not-looked-at", "writable-by-others")
"""Findings about the files that the answer depends on."""
_LONGEST = 200
"""Characters of a name or message that an error repeats."""
_BLOCK = 1 << 20
_PROGRAM = b"\x7fELF"
"""The first bytes of a program or library: no log has them."""
_LOGS = (".log", ".out", ".err", ".txt")
"""How the names of logs end, as Slurm and people write them."""
_NULL_DEVICE = os.makedev(1, 3)
_LONGEST_LOG = 64 << 20
"""Bytes of a log that are read."""
_NAME = re.compile(r"[^\s`'\"<>|;:()]+")
"""What may be a name of a plan."""


def _plan(options: PlanOptions, like: Optional[str], image: Optional[str]) -> Plan:
    from gpubind.cli.output import report
    from gpubind.planner.planning import plan_host

    host = open_host_of(options)
    plan = plan_host(host, query_of(options, like), open_image_of(image, host))
    report((one for one in plan.findings if one.code in _ABOUT_THE_HOST), brief=True)
    return plan


def _missing(name: str) -> tuple[FoundMessage, ...]:
    """Return the message that a program prints where the driver's library, program or node *name* is missing."""
    from gpubind.explanation.messages import find_message
    from gpubind.formats.driver.names import driver_section

    last = name.rpartition("/")[2]
    forms = (f"{last}: cannot open shared object file", f"{last}: command not found", f"stat {name}: no such file")
    found = next((found for form in forms for found in find_message(form)), None)
    is_file = ".so" in last or name.startswith("/dev/") or driver_section(last) is not None
    is_any = found is None or found.message.libraries == ("*",)
    return () if not is_file or is_any or found is None else (found._replace(text=name),)


def _of_plan(options: PlanOptions, name: str, like: Optional[str], image: Optional[str]) -> Answer:
    """Return what the plan decided about *name*; on a host without a driver, what it means that *name* is missing.

    Errors: `UsageError` (code `unknown-code`) where nothing has that name; `NothingToBindError` for another file's
    name on a host without a driver.
    """
    from gpubind.cli.output import complain
    from gpubind.explanation.answer import Answer
    from gpubind.explanation.codes import near_names
    from gpubind.explanation.decisions import explain as explain_name
    from gpubind.formats.driver.names import driver_section

    try:
        plan = _plan(options, like, image)
    except NothingToBindError:
        about = _missing(name)
        if about:
            complain("note: this host has no driver and no GPU; this is what a program says without that file\n")
            return Answer(name, about)
        if "/" in name or ".so" in name or driver_section(name) is not None:
            raise  # a file's name: no plan, no answer
        plan = None
    explanation = None if plan is None else explain_name(plan, name)
    if explanation is not None and explanation.subjects:
        return Answer(name, explanation=explanation)
    near = near_names(name, () if plan is None else [decision.subject for decision in plan.decisions])
    files = "no file of the plan has this name" if plan is not None else "this host has no driver that could name it"
    raise _unknown(
        f"`{_short(name)}` is neither a code nor a message that gpubind knows, and {files}",
        [name],
        where="" if explanation is None else "looked in " + ", ".join(explanation.searched),
        near=near,
    )


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."


def _unknown(what: str, lines: Sequence[str], *, where: str = "", near: Sequence[str] = ()) -> UsageError:
    """Return the error that nothing is known about *lines*, with what is *near*, else with the nearest messages."""
    from gpubind.explanation.gpu_codes import near_codes
    from gpubind.explanation.messages import nearest_messages, vendor_of_lines, vendor_option

    near = near_codes(lines) or near
    if near:
        hint = "did you mean " + " or ".join(f"`{one}`" for one in near) + "?"
    else:
        nearest = nearest_messages(lines)
        known = f"did you mean {' or '.join(f'`{one}`' for one in nearest)}? " if nearest else ""
        vendor = vendor_of_lines(lines)
        option = f"{vendor_option(vendor)} " if vendor is not None else ""
        hint = f"{known}`gpubind check {option}--image IMAGE`, on the node of the job, looks for the cause"
    return UsageError("unknown-code", what, where=where, hint=hint)


def _every_code() -> Sequence[str]:
    from gpubind.explanation.codes import codes

    return [code for code, _ in codes()]


COMMANDS = {
    "explain": Subcommand(
        "explain",
        explain,
        explain.__doc__ or "",
        (
            LIKE,
            IMAGE,
            Option(
                "--tree",
                "Show what the program or library NAME is linked with: whose copy, which rule of the loader finds it, "
                "and what is missing; on the host, or in --image with the plan in place.",
                "Output",
            ),
            Option(
                "--format FORMAT",
                "Of --tree: text, json, or dot for Graphviz. [text]",
                "Output",
                choices=("text", "json", "dot"),
                unknown="unknown-format",
            ),
            VERBOSE._replace(help="Show every message of a log in full."),
            JSON._replace(help="Print gpubind.explain/1, with --tree gpubind.tree/1.", stands_for=""),
        ),
        (
            Argument(
                "asked",
                "[NAME|CODE|MESSAGE|FILE|-]",
                "A soname, file name, path, device node or pattern; a code; lines that a program printed, with quotes "
                "or without; the file of a log (./FILE if it is also called like a code or a file of the driver); or - "
                "for a log on standard input. [a log that is redirected to standard input; else every code]",
                many=True,
                required=False,
                choices=_every_code,
            ),
        ),
        common=("--nv", "--image", "--tree", "--host", "--json"),
        examples=(
            ("what a program is linked with", "gpubind explain /usr/bin/nvidia-smi --tree"),
            ("why a file is in the plan", "gpubind explain libcuda.so.1"),
            ("what a message means", 'gpubind explain "version GLIBC_2.34 not found"'),
            ("what a job died of", "gpubind explain job.log"),
        ),
        exit_codes=(("0", "done"), *EXIT_CODES[:3]),
    )
}
