"""A runtime's own command line: its container, the requested GPUs, and its new form with a plan.

`parse_command` returns the start in a line that requests GPUs, and None for a line that is to start unchanged. It
raises an error for a line that requests GPUs and cannot be parsed; if the runtime of such a line has no GPU flags, the
line starts unchanged all the same. So `alias singularity='gpubind wrap -- singularity'` is safe: every line that worked
before still works.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from posixpath import basename
from typing import Optional

from gpubind.errors import UsageError
from gpubind.frozen import NamedTuple
from gpubind.launch.wrap import gpus
from gpubind.launch.wrap.prefix import HINT, Prefix, read_prefix
from gpubind.runtimes import PROGRAMS
from gpubind.runtimes.cmdline.programs import UNSUPPORTED_PROGRAMS, RuntimeProgram, StartSubcommand
from gpubind.runtimes.cmdline.reader import (
    GETOPT,
    GETOPT_PERMUTING,
    FailureKind,
    ParsedCommandLine,
    ParsedOption,
    ParseFailure,
    argument_location,
    parse_option_table,
    parse_options,
)
from gpubind.runtimes.cmdline.values import parse_bool
from gpubind.runtimes.runtime import format_multiline

_TROUBLES: dict[FailureKind, str] = {
    "unknown": "it is not an option that gpubind knows, so the next word may or may not belong to it",
    "ambiguous": "it abbreviates several options",
    "no-value": "its value is missing",
    "needless-value": "it takes no value of that form",
    "bad-value": "it is neither true nor false",
}
_NO_START = ("about", "feature", "help", "usage", "version")
"""Options that make a program print information and start nothing."""

_LOOKS_LIKE_GPUS = re.compile(
    r"--(nv|rocm|nvccli|gpus)(=.*)?|--runtime=(nvidia|amd).*|--device=[a-z.]*(nvidia|amd)\.com/gpu=.*", re.DOTALL
)


class WrappedCommand(NamedTuple):
    """A command line that starts a container and needs a plan."""

    argv: tuple[str, ...]
    """The whole line, as given."""
    prefixes: tuple[Prefix, ...]
    """The programs before that of the runtime."""
    program_at: int
    runtime: str
    """The name of the program; `docker` for nvidia-docker."""
    subcommand: tuple[str, ...]
    globals: tuple[ParsedOption, ...]
    """The options before the subcommand."""
    options: tuple[ParsedOption, ...]
    image: Optional[str]
    """An image, a root directory or, for crun and runc, a bundle; None if no argument names it."""
    image_at: Optional[int]
    """The position of the image, if the image is an operand."""
    name: Optional[str]
    """The name of an instance, or of a container of crun or runc."""
    command: tuple[str, ...]
    """The command in the container; empty if the line names none."""
    insert_index: int
    """Where further options are inserted: after the user's options, so that these do not override them."""
    gpus: gpus.GpuRequest

    @property
    def is_rootfs(self) -> bool:
        """Whether the image is a directory, because podman or nerdctl has the option --rootfs."""
        switches = [option.value for option in self.options if option.name == "rootfs"]
        return self.image_at is not None and any(map(parse_bool, switches[-1:]))

    @property
    def image_place(self) -> Optional[str]:
        """The image as it is given. For --rootfs with `DIR`, `DIR:O` or `DIR:idmap`, it is the directory."""
        if self.image is None or not self.is_rootfs:
            return self.image
        path = self.image.partition(":")[0]
        return path if path.startswith(("/", ".")) else f"./{path}"

    @property
    def is_entered(self) -> bool:
        """Whether the line starts an instance, which later commands enter."""
        return PROGRAMS[self.runtime].subcommands[self.subcommand].operands == "instance"

    @property
    def global_options(self) -> dict[str, str]:
        """The options of the program itself, with their last values. podman accepts some after its subcommand."""
        global_names = PROGRAMS[self.runtime].option_table.names
        return {option.name: option.value for option in (*self.globals, *self.options) if option.name in global_names}

    @property
    def user_options(self) -> tuple[str, ...]:
        """The user's options for the runtime, without the GPU flags."""
        flags = {option.position for option in self.gpus.flags}
        args_by_position = {option.position: option.args for option in self.options if option.position not in flags}
        return tuple(arg for args in args_by_position.values() for arg in args)

    @property
    def starts_here(self) -> bool:
        """Whether the runtime starts in the environment of this process.

        If a prefix changes it, a plan that is made here may be wrong (see `insert_gpubind`).
        """
        return not any(prefix.moves for prefix in self.prefixes)


def parse_command(
    argv: Sequence[str], environ: Optional[Mapping[str, str]] = None, site: Collection[str] = ()
) -> Optional[WrappedCommand]:
    """Return the start in *argv*; None if gpubind has nothing to add to it.

    None means that the subcommand starts no container, prints help, requests no GPU, enters a running container or uses
    this machine's own root; or that the line cannot be parsed, but requests no GPU however it is read. *environ* is the
    caller's environment; *site* has the GPU flags that the configuration of Apptainer or SingularityCE always adds.

    Errors: `UsageError`, with the argument, for a line without a runtime (`wrap-no-runtime`, `wrap-prefix`,
    `wrap-shell`, `wrap-program`). If the line requests GPUs, also for an option that cannot be parsed (`wrap-option`),
    a bad request (`wrap-gpus`), a running container (`wrap-running`), no image or command (`wrap-no-image`), several
    commands in one line (`wrap-several`), and options in a file (`wrap-unseen`).
    """
    args = tuple(argv)
    prefixes, at = read_prefixes(args)
    environ = _changed(environ or {}, prefixes)
    program = PROGRAMS[basename(args[at])]
    head = _read_on(program, None, args, at + 1)
    if head.error is not None and () not in program.subcommands:
        if _may_ask(program, None, head):
            raise _unreadable(args, at, head.error)
        return None
    parsed_subcommand = _subcommand(program, head) if () not in program.subcommands else ((), at + 1)
    if parsed_subcommand is None or _asks_for_help(head):
        return None
    subcommand, first = parsed_subcommand
    start = program.subcommands[subcommand]
    is_posix = program.reader is GETOPT_PERMUTING and "POSIXLY_CORRECT" in environ  # getopt_long(3)
    line = parse_options(GETOPT if is_posix else program.reader, start.option_table, args, first)
    if _asks_for_help(line):
        return None
    if line.error is not None:
        if _may_ask(program, start, line):
            raise _unreadable(args, at, line.error, start)
        return None
    if start.operands == "joined":
        return None
    wrapped = _started(prefixes, at, subcommand, head, line, program)
    request = _request(wrapped, program, line, environ, site)
    is_host = start.operands == "rootfs" and wrapped.image == "/"
    if request is None or is_host or str(wrapped.image).startswith("instance://"):
        return None
    try:
        _need_all(wrapped, program, start)
    except UsageError:
        if request.brings_nodes:
            return None
        raise
    return wrapped._replace(gpus=request)


def asks_by_flag(argv: Sequence[str]) -> bool:
    """Return whether the runtime in *argv* gives GPUs only by a flag. A line without the flag then needs no plan."""
    args = tuple(argv)
    return PROGRAMS[basename(args[read_prefixes(args)[1]])].requests_gpus_by_flag


def split_options(runtime: str, action: str, args: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the options of *runtime* in *args* of `gpubind exec -- OPTIONS IMAGE CMD...`, and the arguments after
    them.

    Errors: `UsageError` (code `incomplete-argument`) for an option that *runtime* does not have for that action.
    """
    program = PROGRAMS[runtime]
    line = parse_options(program.reader._replace(permutes=False), program.start(action).option_table, args)
    if line.error is not None:
        problem = f"`{args[line.error.position]}` before IMAGE is not an option of {runtime}"
        raise UsageError("incomplete-argument", problem, why=_TROUBLES[line.error.kind])
    return line.argv[: line.insert_index], tuple(line.argv[at] for at in line.operand_indexes)


def format_command(wrapped: WrappedCommand, argv: Sequence[str]) -> str:
    """Return *argv*, the result of `rewrite` for *wrapped*, as shell text with one option a line."""
    before = len(wrapped.argv[: wrapped.program_at + 1]) + len(wrapped.subcommand)
    after = len(argv) - len(wrapped.argv[wrapped.insert_index :])
    return format_multiline(argv, before, after)


def rewrite(wrapped: WrappedCommand, insert: Sequence[str] = (), *, remove: Collection[str] = ()) -> tuple[str, ...]:
    """Return the arguments of *wrapped* without its GPU flags, and with *insert* after its options.

    *remove* names more options to remove: runc refuses a second --bundle. Errors: `UsageError` (`wrap-option`) for a
    short option that shares its argument with others.
    """
    removed: set[int] = set()
    for option in (*wrapped.gpus.flags, *(option for option in wrapped.options if option.name in remove)):
        shared = {neighbor.name for neighbor in wrapped.options if neighbor.position == option.position}
        if len(shared) > 1:
            problem = f"`{option.args[0]}` holds several options, of which --{option.name} has to go"
            raise UsageError("wrap-option", problem, where=argument_location(option.position), hint="write them apart")
        removed |= set(range(option.position, option.position + len(option.args)))
    args = list(wrapped.argv)
    if basename(args[wrapped.program_at]) == "nvidia-docker":
        args[wrapped.program_at] = "docker"  # nvidia-docker would add --runtime=nvidia again
    before = [arg for at, arg in enumerate(args[: wrapped.insert_index]) if at not in removed]
    after = [arg for at, arg in enumerate(args) if at >= wrapped.insert_index and at not in removed]
    return (*before, *insert, *after)


def insert_gpubind(wrapped: WrappedCommand, gpubind: Sequence[str]) -> tuple[str, ...]:
    """Return the line of *wrapped* with *gpubind* after the prefixes: `srun gpubind wrap -- singularity ...`.

    Programs such as `srun` and `env A=b` start the runtime with other GPUs or variables than this process has. So the
    plan must be made there.
    """
    return (*wrapped.argv[: wrapped.program_at], *gpubind, *wrapped.argv[wrapped.program_at :])


def _asks_for_help(line: ParsedCommandLine) -> bool:
    return any(option.name in _NO_START for option in line.options)


def read_prefixes(argv: tuple[str, ...]) -> tuple[tuple[Prefix, ...], int]:
    """Return the programs before the runtime, and the position of the runtime. Errors: as `parse_command`."""
    prefixes: list[Prefix] = []
    at = 0
    while at < len(argv) and basename(argv[at]) not in PROGRAMS:
        hint = UNSUPPORTED_PROGRAMS.get(basename(argv[at]))
        if hint is not None:
            problem = f"gpubind does not read the command lines of `{argv[at]}`"
            raise UsageError("wrap-program", problem, where=argument_location(at), hint=hint)
        prefixes.append(read_prefix(argv, at))
        at += len(prefixes[-1].words)
    if at == len(argv):
        raise UsageError("wrap-no-runtime", "there is no runtime to start", hint=f"known: {', '.join(PROGRAMS)}")
    return tuple(prefixes), at


def _changed(environ: Mapping[str, str], prefixes: Sequence[Prefix]) -> Mapping[str, str]:
    for prefix_program in prefixes:
        changed: dict[str, str] = {} if prefix_program.clears else dict(environ)
        for name, value in prefix_program.sets:
            if value is None:
                changed.pop(name, None)
            else:
                changed[name] = value
        environ = changed
    return environ


def _subcommand(program: RuntimeProgram, head: ParsedCommandLine) -> Optional[tuple[tuple[str, ...], int]]:
    """Return the subcommand, if it starts a container, and the position after it; None for any other subcommand."""
    for at in head.operand_indexes[:1]:
        for end in (at + 1, at + 2):
            if head.argv[at:end] in program.subcommands:
                return head.argv[at:end], end
    return None


def _may_ask(program: RuntimeProgram, start: Optional[StartSubcommand], line: ParsedCommandLine) -> bool:
    """Return whether a line that cannot be parsed may request GPUs. Each unknown option may have a value or none.

    *start*: the subcommand to which the options belong; None for the options before the subcommand.
    """
    if start is not None and not program.requests_gpus_by_flag:
        return start.operands != "joined"
    if start is None and line.error is not None and _LOOKS_LIKE_GPUS.fullmatch(line.argv[line.error.position]):
        return True
    seen: set[tuple[bool, int]] = set()
    readings = [(start, line)]
    if start is not None and line.error is not None:
        readings.append((start, _read_on(program, start, line.argv, line.error.position)))
    while readings:
        start, line = readings.pop()
        if start is not None and any(gpus.is_gpu_flag(program.family, option) for option in line.options):
            return True
        if line.error is not None:
            for at in (line.error.position + 1, line.error.position + 2):
                is_option = "".join(line.argv[at : at + 1]).startswith("-")
                if (start is None, at) not in seen and (start is None or is_option):
                    readings.append((start, _read_on(program, start, line.argv, at)))
                seen.add((start is None, at))
        elif start is None:
            parsed_subcommand = _subcommand(program, line)
            if parsed_subcommand is not None:
                start = program.subcommands[parsed_subcommand[0]]
                if not program.requests_gpus_by_flag and start.operands != "joined":
                    return True
                readings.append((start, _read_on(program, start, line.argv, parsed_subcommand[1])))
    return False


def _read_on(
    program: RuntimeProgram, start: Optional[StartSubcommand], argv: Sequence[str], at: int
) -> ParsedCommandLine:
    """Parse the options of *start*, or of the program itself, from position *at* on."""
    if start is None:
        return parse_options(program.reader._replace(permutes=False), program.option_table, argv, at)
    # docker exec has no --gpus; the user's intention is clear.
    is_joined = start.operands == "joined"
    option_table = parse_option_table(start.options, program.start("run").options) if is_joined else start.option_table
    return parse_options(program.reader, option_table, argv, at)


def _unreadable(
    argv: tuple[str, ...], at: int, trouble: ParseFailure, start: Optional[StartSubcommand] = None
) -> UsageError:
    """Return the error about an option of the program at *at*, in a line that may request GPUs.

    A line without GPUs is passed through instead: the program itself reports an error best, or has options that gpubind
    does not know.
    """
    arg, where = argv[trouble.position], argument_location(trouble.position)
    if start is not None and start.operands == "joined":
        return UsageError(
            "wrap-running",
            f"`{arg}`: the container runs already, and no GPU can be added to it",
            where=where,
            hint="start it with its GPUs: `gpubind wrap -- docker run --gpus ...`, or `podman run`",
        )
    hint = "remove the GPU flag, and insert the output of `gpubind plan --format`"
    if trouble.kind == "no-value":
        hint = "give it its value"
    return UsageError(
        "wrap-option",
        f"`{arg}` of {argv[at]} cannot be read",
        where=where,
        why=_TROUBLES[trouble.kind],
        hint=hint,
    )


def _started(
    prefixes: tuple[Prefix, ...],
    at: int,
    subcommand: tuple[str, ...],
    head: ParsedCommandLine,
    line: ParsedCommandLine,
    program: RuntimeProgram,
) -> WrappedCommand:
    start = program.subcommands[subcommand]
    argv, others = line.argv, list(line.operand_indexes)
    image, image_at, name = None, None, None
    if start.operands in ("image", "instance") and others:
        image_at = others.pop(0)
        image = argv[image_at]
    elif start.operands == "bundle":
        image = line.last("bundle") or "."
    elif start.operands == "rootfs":
        image = program.root_of(line)
    if start.operands in ("instance", "bundle") and others:
        name = argv[others.pop(0)]
    runtime = basename(argv[at])
    return WrappedCommand(
        argv,
        prefixes,
        at,
        "docker" if runtime == "nvidia-docker" else runtime,
        subcommand,
        head.options if subcommand else (),
        line.options,
        image,
        image_at,
        name,
        tuple(argv[position] for position in others),
        line.insert_index,
        gpus.GpuRequest(),
    )


def _request(
    wrapped: WrappedCommand,
    program: RuntimeProgram,
    line: ParsedCommandLine,
    environ: Mapping[str, str],
    site: Collection[str],
) -> Optional[gpus.GpuRequest]:
    if program.family == "singularity":
        return gpus.singularity_request(wrapped.runtime, line, environ, site)
    if program.family == "docker":
        nvidia = basename(wrapped.argv[wrapped.program_at]) == "nvidia-docker"
        return gpus.docker_request(wrapped.options, environ, nvidia=nvidia)
    if program.family == "nerdctl":
        return gpus.nerdctl_request(wrapped.options, environ)
    if program.family == "podman":
        return gpus.podman_request((*wrapped.globals, *wrapped.options), environ)
    if program.family == "ch-run":
        return gpus.charliecloud_request(wrapped.options)
    return gpus.GpuRequest(is_requested=False)


def _need_all(wrapped: WrappedCommand, program: RuntimeProgram, start: StartSubcommand) -> None:
    """Errors: `UsageError` if *wrapped* is incomplete, has several commands or reads options from a file."""
    command_name = f"`{' '.join((wrapped.argv[wrapped.program_at], *wrapped.subcommand))}`"
    if start.operands in ("image", "instance") and wrapped.image is None:
        hint = "the image is the first argument after the options"
        raise UsageError("wrap-no-image", f"{command_name} names no image", hint=hint)
    if start.operands in ("instance", "bundle") and wrapped.name is None:
        problem = f"{command_name} names no instance or container"
        raise UsageError("wrap-no-image", problem, hint="its name is missing at the end")
    if start.needs_command and not wrapped.command:
        raise UsageError("wrap-no-image", f"{command_name} has no command after the image", where=wrapped.image or "")
    for option in wrapped.options:
        if option.name in program.option_files:
            problem = f"`{' '.join(option.args)}`: those options are in a file, and gpubind does not see them"
            raise UsageError("wrap-unseen", problem, where=argument_location(option.position), hint="write them out")
    if any(prefix.several for prefix in wrapped.prefixes) and ":" in wrapped.argv[wrapped.program_at :]:
        at = wrapped.argv.index(":", wrapped.program_at)
        raise UsageError(
            "wrap-several",
            "`:` begins another command, and gpubind can plan for only one",
            where=argument_location(at),
            hint=HINT,
        )
