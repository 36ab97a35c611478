"""What `--help` and the man page say: each command with its options in groups, examples, and exit codes.

The sentences about an option stand with the option; here stands what typer has no place for.
"""

from __future__ import annotations

import inspect
from textwrap import TextWrapper
from typing import Any, NamedTuple

from gpubind.cli.commands import command_of
from gpubind.model.data import HOSTS

Rows = tuple[tuple[str, str], ...]
LEFT = 26
"""Columns of the names beside their sentences."""
NARROW = 72
"""Below so many columns a sentence stands under its name,"""
SHORT = 12
"""unless all names are as short as this."""

COMMON = {
    "plan": ("--nv", "--caps", "--gpus", "--image", "--format"),
    "check": ("--nv", "--caps", "--gpus", "--image", "--program"),
    "gpus": ("--nv", "--rocm", "--gpus", "--host", "--json"),
    "explain": ("--nv", "--rocm", "--image", "--host", "--json"),
    "record": ("--output", "--description", "--root", "--dev-root", "--library-path"),
    "exec": ("--nv", "--gpus", "--backend", "--check", "--dry-run"),
    "run": ("--nv", "--gpus", "--backend", "--check", "--dry-run"),
    "shell": ("--nv", "--gpus", "--backend", "--check", "--dry-run"),
    "wrap": ("--nv", "--gpus", "--caps", "--check", "--dry-run"),
    "completion": (),
}
"""The five options of a command that most people want; completion has none."""
GROUPS = {
    "Which GPUs and files": (
        *("--nv", "--rocm", "--caps", "--gpus", "--cdi-device", "--cdi-dir", "--source", "--list", "--library-path"),
        *("--completion", "--like"),
    ),
    "Which host": ("--host", "--root", "--dev-root", "--description", "--hostname"),
    "The image": ("--image", "--program", "--vendor-neutral", "--userspace", "--cuda-compat", "--libc", "--libdir"),
    "Launch": (
        *("--as-user", "--backend", "--backend-arg", "--allow-writable", "--check", "--require-gpu", "--dry-run"),
        *("--cdi-hook", "--stage-dir"),
    ),
    "Filtering": ("--only", "--ignore", "--strict"),
    "Output": ("--format", "--json", "--output", "--quiet", "--verbose", "--version", "--help"),
}
"""The group of each option; in help, without those that are common."""
EXAMPLES = {
    "plan": (
        ("see what a job would get", "gpubind plan --nv --host debian13-nvidia550"),
        ("use it in your own command line", "apptainer exec $(gpubind plan --nv --format apptainer) IMAGE CMD"),
    ),
    "check": (
        ("ask whether an image will run here", "gpubind check --nv --image app.sif --program /opt/app/solve"),
        ("in one line, for a scheduler", "gpubind check -q --nv"),
    ),
    "gpus": (
        ("list them", "gpubind gpus"),
        ("see which GPUs a choice selects", "gpubind gpus --gpus 1 --host debian13-nvidia550"),
    ),
    "explain": (
        ("why a file is in the plan", "gpubind explain libcuda.so.1"),
        ("what a message means", 'gpubind explain "version GLIBC_2.34 not found"'),
    ),
    "record": (("record a GPU node, to plan for it elsewhere", "gpubind record -o node.json"),),
    "exec": (
        ("start a program", "gpubind exec --nv app.sif python train.py"),
        ("with options of the runtime", "gpubind exec --nv -- -B /scratch app.sif python train.py"),
    ),
    "run": (("start what the image starts by default", "gpubind run --nv app.sif --epochs 3"),),
    "shell": (("look around in an image", "gpubind shell --nv app.sif"),),
    "wrap": (
        ("start an existing command line", "gpubind wrap -- singularity exec --nv app.sif python train.py"),
        ("at every prompt", "alias singularity='gpubind wrap -- singularity'"),
    ),
    "completion": (("in ~/.bashrc", 'eval "$(gpubind completion bash)"'),),
}
_STARTS = (
    ("125", "gpubind could not start the container"),
    ("126, 127", "the command cannot be executed, or does not exist"),
    ("other", "the exit code of the container"),
)
_COMMON_CODES = (
    ("2", "usage error"),
    ("3", "nothing to bind: no driver and no GPU here"),
    ("4", "the host, the image or a file cannot be read"),
    ("5", "a file named by the user is malformed"),
    ("6", "the runtime is missing, or cannot express the plan"),
)
EXIT_CODES: dict[str, Rows] = {
    "plan": (("0", "done"), ("1", "an error finding, with --strict"), *_COMMON_CODES),
    "check": (("0", "ok"), ("1", "an error; with --strict also a warning"), *(_COMMON_CODES[i] for i in (0, 2, 3))),
    "gpus": (("0", "done"), *_COMMON_CODES[:3]),
    "explain": (("0", "done"), *_COMMON_CODES[:3]),
    "record": (("0", "done"), *(_COMMON_CODES[i] for i in (0, 2))),
    "exec": _STARTS,
    "run": _STARTS,
    "shell": _STARTS,
    "wrap": _STARTS,
    "completion": (("0", "done"), _COMMON_CODES[0]),
}
_DOCS = (
    "`gpubind explain CODE` prints the page of a finding or an error, `gpubind COMMAND --help` the options of a "
    "command; all pages are in docs/ of the sources."
)


class Page(NamedTuple):
    """The help of one command, or of gpubind."""

    usage: str
    text: tuple[str, ...]
    """Paragraphs; the first is one sentence."""
    sections: tuple[tuple[str, Rows], ...]
    """Each a heading, and names with what is said of them."""
    examples: Rows
    """What somebody wants, and the command line."""
    exit_codes: Rows
    end: str = _DOCS


def page_of(command: Any, context: Any) -> Page:
    """Return the help of *command*."""
    params = [param for param in command.get_params(context) if not getattr(param, "hidden", False)]
    options = {name: _option(param) for param in params if (name := _long(param)) is not None}
    # As declared: click from 8.5 on takes away what typer before 0.26 says of an argument.
    told = {parameter.name: parameter.says.help or "" for parameter in command_of(command.name).parameters}
    arguments = tuple((param.metavar, told[param.name]) for param in params if _long(param) is None)
    common = [name for name in COMMON[command.name] if name in options]
    grouped = {title: [name for name in names if name not in common] for title, names in GROUPS.items()}
    sections = [("Arguments", arguments), ("Common options", tuple(options[name] for name in common))]
    for title, names in grouped.items():
        sections.append((title, tuple(options[name] for name in names if name in options)))
    return Page(
        usage=" ".join([context.command_path, "[OPTIONS]", *(metavar for metavar, _ in arguments)]),
        text=_paragraphs(command.help),
        sections=tuple(section for section in sections if section[1]),
        examples=EXAMPLES[command.name],
        exit_codes=EXIT_CODES[command.name],
    )


def overview_of(group: Any, context: Any) -> Page:
    """Return the help of gpubind itself."""
    commands = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    rows = tuple((name, _paragraphs(command.help)[0]) for name, command in commands)
    options = tuple(_option(param) for param in group.get_params(context))
    return Page(
        usage=f"{context.command_path} [OPTIONS] COMMAND [ARGS]...",
        text=_paragraphs(group.help),
        sections=(("Commands", rows), ("Options", options), ("Bundled hosts, for --host", _hosts())),
        examples=(
            ("see a plan, on any machine", f"gpubind plan --nv --host {HOSTS[0]}"),
            ("ask whether an image will run here", "gpubind check --nv --image app.sif"),
            ("start a program", "gpubind exec --nv app.sif python train.py"),
            ("what a message means", "gpubind explain CUDA_ERROR_NO_DEVICE"),
        ),
        exit_codes=(("0", "done"), ("1", "an error finding, of check and --strict"), *_COMMON_CODES, *_STARTS[:2]),
    )


def render_page(page: Page, width: int) -> str:
    """Return *page* in lines of *width* columns."""
    lines = _wrapped(f"Usage: {page.usage}", "", "  ", width)
    for paragraph in page.text:
        lines += ["", *_wrapped(paragraph, "", "", width)]
    for title, rows in page.sections:
        lines += ["", f"{title}:", *_rows(rows, width)]
    lines += ["", "Examples:"]
    for what, command in page.examples:
        lines += [f"  # {what}", f"  {command}"]
    lines += ["", "Exit codes:"]
    for code, what in page.exit_codes:
        lines += _wrapped(what, f"  {code:<10}", " " * 12, width)
    return "\n".join([*lines, "", *_wrapped(page.end, "", "", width)]) + "\n"


def _hosts() -> Rows:
    about = ("NVIDIA 550.163.01, two GPUs", "eight AMD MI300X, ROCm 6.2; synthetic")
    return tuple(zip(HOSTS, about))


def _paragraphs(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def _long(param: Any) -> Any:
    """Return the long name of an option; None for an argument."""
    return next((name for name in param.opts if name.startswith("--")), None)


def _option(param: Any) -> tuple[str, str]:
    """Return an option: its names, and what is said of it, with the variable that stands for it."""
    names = ", ".join(sorted(param.opts, key=len)) + "".join(f", {name}" for name in param.secondary_opts)
    value = f" {param.metavar}" if param.metavar else ""
    said = param.help or "Show this help and exit."
    default = f" [{param.default}]" if isinstance(param.default, str) and param.default and "[" not in said else ""
    variable = f" ({param.envvar})" if getattr(param, "envvar", None) else ""
    return names + value, said + default + variable


def _rows(rows: Rows, width: int) -> list[str]:
    longest = max(len(name) for name, _ in rows) + 2
    left = min(LEFT, longest) if width >= NARROW or longest <= SHORT else 0
    lines = []
    for name, text in rows:
        if left and len(name) + 2 <= left:
            lines += _wrapped(text, f"  {name:<{left}}", " " * (left + 2), width)
        else:
            indent = " " * (left + 2 if left else 6)
            lines += [f"  {name}", *_wrapped(text, indent, indent, width)]
    return lines


def _wrapped(text: str, first: str, others: str, width: int) -> list[str]:
    wrapper = TextWrapper(width, initial_indent=first, subsequent_indent=others)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    return wrapper.wrap(text)
