"""A runtime's own command line: the container that it starts, the GPUs that it asks for, and its new form with a plan.

`parse_command` returns a start that asks for GPUs, or None for a line to be started unchanged. It raises an error for a
line that asks for GPUs and cannot be read; one of a runtime without GPU flags is then started unchanged. So `alias
singularity='gpubind wrap -- singularity'` is safe: every line that worked before works as before.
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
from gpubind.runtimes.cmdline.programs import (
    BWRAP_BINDS,
    PROGRAMS,
    UNSUPPORTED_PROGRAMS,
    RuntimeProgram,
    StartSubcommand,
    options_of,
)
from gpubind.runtimes.cmdline.reader import (
    GETOPT,
    GETOPT_PERMUTING,
    ParsedCommandLine,
    ParsedOption,
    ParseFailure,
    TroubleKind,
    argument_location,
    parse_options,
)
from gpubind.runtimes.cmdline.values import parse_bool
from gpubind.runtimes.runtime import format_multiline

_TROUBLES: dict[TroubleKind, str] = {
    "unknown": "it is not an option that gpubind knows, so the next word may or may not belong to it",
    "ambiguous": "it abbreviates several options",
    "no-value": "its value is missing",
    "needless-value": "it takes no value of that form",
    "bad-value": "it is neither true nor false",
}
_NO_START = ("about", "feature", "help", "usage", "version")
"""Options with which a program answers a question, and starts nothing."""

_LOOKS_LIKE_GPUS = re.compile(
    r"--(nv|rocm|nvccli|gpus)(=.*)?|--runtime=(nvidia|amd).*|--device=[a-z.]*(nvidia|amd)\.com/gpu=.*", re.DOTALL
)


class Wrapped(NamedTuple):
    """A command line that starts a container, which is to get a plan."""

    words: tuple[str, ...]
    """The whole line, as given."""
    prefix: tuple[Prefix, ...]
    """The programs before the runtime's."""
    program_at: int
    runtime: str
    """The name of the program; `docker` for nvidia-docker."""
    subcommand: tuple[str, ...]
    globals: tuple[ParsedOption, ...]
    """The program's own options, before the subcommand."""
    options: tuple[ParsedOption, ...]
    image: Optional[str]
    """An image, a rootfs directory or, of crun and runc, a bundle; None if no word names it."""
    image_at: Optional[int]
    """Its position, if it is a word by itself."""
    name: Optional[str]
    """The name of an instance, or of a container of crun or runc."""
    command: tuple[str, ...]
    """The command in the container, as far as the line names one."""
    place: int
    """Where other options go: after the user's, so that those do not undo them."""
    gpus: gpus.GpuRequest

    @property
    def is_rootfs(self) -> bool:
        """Whether --rootfs of podman or nerdctl makes the image a directory."""
        switches = [option.value for option in self.options if option.name == "rootfs"]
        return self.image_at is not None and any(map(parse_bool, switches[-1:]))

    @property
    def image_place(self) -> Optional[str]:
        """The image, as a path where it is `DIR`, `DIR:O` or `DIR:idmap` of --rootfs."""
        if self.image is None or not self.is_rootfs:
            return self.image
        path = self.image.partition(":")[0]
        return path if path.startswith(("/", ".")) else f"./{path}"

    @property
    def is_entered(self) -> bool:
        """Whether it starts an instance, which later commands enter."""
        return PROGRAMS[self.runtime].subcommands[self.subcommand].operands == "instance"

    @property
    def own(self) -> dict[str, str]:
        """The last value of each option that the program takes before its subcommand; podman takes some after it."""
        known = PROGRAMS[self.runtime].option_table.names
        return {option.name: option.value for option in (*self.globals, *self.options) if option.name in known}

    @property
    def is_here(self) -> bool:
        """Whether the runtime starts in this environment; else a plan made here may be wrong: see `moved`."""
        return not any(prefix.moves for prefix in self.prefix)


def parse_command(
    argv: Sequence[str], environ: Optional[Mapping[str, str]] = None, site: Collection[str] = ()
) -> Optional[Wrapped]:
    """Return the start in *argv*; None if gpubind has nothing to add to it.

    That is: its subcommand starts no container; it asks for help; it asks for no GPU; it enters a running container;
    its root is this machine's own; or it cannot be read, but in every reading it asks for no GPU. *environ* is the
    caller's environment; *site* has the GPU flags that the configuration of Apptainer or SingularityCE always adds.

    Errors: `UsageError`, each with the word: no runtime in it (`wrap-no-runtime`, `wrap-prefix`, `wrap-shell`,
    `wrap-program`); and, only where GPUs are asked for: an option that cannot be read (`wrap-option`), a request that
    cannot be understood (`wrap-gpus`), a running container (`wrap-running`), no image or command (`wrap-no-image`),
    several commands in one line (`wrap-several`), options in a file (`wrap-unseen`).
    """
    words = tuple(argv)
    prefix, at = read_prefixes(words)
    environ = _changed(environ or {}, prefix)
    program = PROGRAMS[basename(words[at])]
    head = _read_on(program, None, words, at + 1)
    if head.error is not None and () not in program.subcommands:
        if _may_ask(program, None, head):
            raise _unreadable(words, at, head.error)
        return None
    found = _subcommand(program, head) if () not in program.subcommands else ((), at + 1)
    if found is None or _asks_for_help(head):
        return None
    subcommand, first = found
    start = program.subcommands[subcommand]
    is_posix = program.reader is GETOPT_PERMUTING and "POSIXLY_CORRECT" in environ  # getopt_long(3)
    line = parse_options(GETOPT if is_posix else program.reader, start.known, words, first)
    if _asks_for_help(line):
        return None
    if line.error is not None:
        if _may_ask(program, start, line):
            raise _unreadable(words, at, line.error, start)
        return None
    if start.operands == "joined":
        return None
    wrapped = _started(prefix, at, subcommand, head, line, start)
    request = _request(wrapped, program, line, environ, site)
    is_host = start.operands == "rootfs" and (program.default_root if wrapped.image is None else wrapped.image) == "/"
    if request is None or is_host or (wrapped.image or "").startswith("instance://"):
        return None
    try:
        _need_all(wrapped, program, start)
    except UsageError:
        if request.brings_nodes:
            return None
        raise
    return wrapped._replace(gpus=request)


def asks_by_flag(argv: Sequence[str]) -> bool:
    """Return whether the runtime in *argv* gives GPUs only by a flag: a line without one needs no plan."""
    words = tuple(argv)
    return PROGRAMS[basename(words[read_prefixes(words)[1]])].requests_gpus_by_flag


def arguments_of(wrapped: Wrapped) -> tuple[str, ...]:
    """Return the user's options for the runtime, without the GPU flags."""
    gone = {option.position for option in wrapped.gpus.flags}
    own = {option.position: option.args for option in wrapped.options if option.position not in gone}
    return tuple(word for words in own.values() for word in words)


def own_options(runtime: str, action: str, words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return *words* of `gpubind exec -- OPTIONS IMAGE CMD...` as the options of *runtime*, and those after them.

    Errors: `UsageError` (code `incomplete-argument`) for an option that *runtime* does not have for that action.
    """
    program = PROGRAMS[runtime]
    line = parse_options(program.reader._replace(permutes=False), program.start(action).known, words)
    if line.error is not None:
        what = f"`{words[line.error.position]}` before IMAGE is not an option of {runtime}"
        raise UsageError("incomplete-argument", what, why=_TROUBLES[line.error.kind])
    return line.argv[: line.insert_index], tuple(line.argv[at] for at in line.operand_indexes)


def printed(wrapped: Wrapped, words: Sequence[str]) -> str:
    """Return *words*, which `rewritten` made of *wrapped*, for a reader and a shell: each option on a line."""
    before = len(wrapped.words[: wrapped.program_at + 1]) + len(wrapped.subcommand)
    after = len(words) - len(wrapped.words[wrapped.place :])
    return format_multiline(words, before, after)


def rewritten(wrapped: Wrapped, put_in: Sequence[str] = (), *, without: Collection[str] = ()) -> tuple[str, ...]:
    """Return the words of *wrapped* without its GPU flags, and with *put_in* after its options.

    *without* names more options to take out: runc refuses a second --bundle. Errors: `UsageError` (`wrap-option`) for
    one that shares its word with others.
    """
    gone: set[int] = set()
    for option in (*wrapped.gpus.flags, *(option for option in wrapped.options if option.name in without)):
        shared = {other.name for other in wrapped.options if other.position == option.position}
        if len(shared) > 1:
            what = f"`{option.args[0]}` holds several options, of which --{option.name} has to go"
            raise UsageError("wrap-option", what, where=argument_location(option.position), hint="write them apart")
        gone |= set(range(option.position, option.position + len(option.args)))
    words = list(wrapped.words)
    if basename(words[wrapped.program_at]) == "nvidia-docker":
        words[wrapped.program_at] = "docker"  # the other one would add --runtime=nvidia again
    before = [word for at, word in enumerate(words[: wrapped.place]) if at not in gone]
    after = [word for at, word in enumerate(words) if at >= wrapped.place and at not in gone]
    return (*before, *put_in, *after)


def moved(wrapped: Wrapped, gpubind: Sequence[str]) -> tuple[str, ...]:
    """Return the same command line with *gpubind* after the prefix: `srun gpubind wrap -- singularity ...`.

    `srun` or `env A=b` start it with other GPUs, or another environment, than this process: there the plan is right.
    """
    return (*wrapped.words[: wrapped.program_at], *gpubind, *wrapped.words[wrapped.program_at :])


def _asks_for_help(line: ParsedCommandLine) -> bool:
    return any(option.name in _NO_START for option in line.options)


def read_prefixes(words: tuple[str, ...]) -> tuple[tuple[Prefix, ...], int]:
    """Return the programs before the runtime's, and the position of that. Errors: as `parse_command`."""
    prefix: list[Prefix] = []
    at = 0
    while at < len(words) and basename(words[at]) not in PROGRAMS:
        other = UNSUPPORTED_PROGRAMS.get(basename(words[at]))
        if other is not None:
            what = f"gpubind does not read the command lines of `{words[at]}`"
            raise UsageError("wrap-program", what, where=argument_location(at), hint=other)
        prefix.append(read_prefix(words, at))
        at += len(prefix[-1].words)
    if at == len(words):
        raise UsageError("wrap-no-runtime", "there is no runtime to start", hint=f"known: {', '.join(PROGRAMS)}")
    return tuple(prefix), at


def _changed(environ: Mapping[str, str], prefix: Sequence[Prefix]) -> Mapping[str, str]:
    for one in prefix:
        changed: dict[str, str] = {} if one.clears else dict(environ)
        for name, value in one.sets:
            if value is None:
                changed.pop(name, None)
            else:
                changed[name] = value
        environ = changed
    return environ


def _subcommand(program: RuntimeProgram, head: ParsedCommandLine) -> Optional[tuple[tuple[str, ...], int]]:
    """Return the subcommand that starts a container, and where its options begin; None for any other."""
    for at in head.operand_indexes[:1]:
        for end in (at + 1, at + 2):
            if head.argv[at:end] in program.subcommands:
                return head.argv[at:end], end
    return None


def _may_ask(program: RuntimeProgram, start: Optional[StartSubcommand], line: ParsedCommandLine) -> bool:
    """Return whether a line that cannot be read may ask for GPUs: in one of its readings, with a value or without.

    *start*: the subcommand whose options they are; None before it.
    """
    if start is not None and not program.requests_gpus_by_flag:
        return start.operands != "joined"
    if start is None and line.error is not None and _LOOKS_LIKE_GPUS.fullmatch(line.argv[line.error.position]):
        return True
    seen: set[tuple[bool, int]] = set()
    rest = [(start, line)]
    if start is not None and line.error is not None:
        rest.append((start, _read_on(program, start, line.argv, line.error.position)))
    while rest:
        start, line = rest.pop()
        if start is not None and any(gpus.is_gpu_flag(program.family, option) for option in line.options):
            return True
        if line.error is not None:
            for at in (line.error.position + 1, line.error.position + 2):
                is_option = "".join(line.argv[at : at + 1]).startswith("-")
                if (start is None, at) not in seen and (start is None or is_option):
                    rest.append((start, _read_on(program, start, line.argv, at)))
                seen.add((start is None, at))
        elif start is None:
            found = _subcommand(program, line)
            if found is not None:
                start = program.subcommands[found[0]]
                if not program.requests_gpus_by_flag and start.operands != "joined":
                    return True
                rest.append((start, _read_on(program, start, line.argv, found[1])))
    return False


def _read_on(
    program: RuntimeProgram, start: Optional[StartSubcommand], words: Sequence[str], at: int
) -> ParsedCommandLine:
    """Return the options of *start*, or of the program itself, from position *at* on."""
    if start is None:
        return parse_options(program.reader._replace(permutes=False), program.option_table, words, at)
    # docker exec has no --gpus; the user's intention is clear.
    known = start.known if start.operands != "joined" else options_of(start.options, program.start("run").options)
    return parse_options(program.reader, known, words, at)


def _unreadable(
    words: tuple[str, ...], at: int, trouble: ParseFailure, start: Optional[StartSubcommand] = None
) -> UsageError:
    """Return the error about the options of the program at *at*, which may ask for GPUs.

    Of a line that asks for none, the program itself best reports the fault, or it has more options than gpubind knows.
    """
    word, where = words[trouble.position], argument_location(trouble.position)
    if start is not None and start.operands == "joined":
        return UsageError(
            "wrap-running",
            f"`{word}`: the container runs already, and no GPU can be added to it",
            where=where,
            hint="start it with its GPUs: `gpubind wrap -- docker run --gpus ...`, or `podman run`",
        )
    return UsageError(
        "wrap-option",
        f"`{word}` of {words[at]} cannot be read",
        where=where,
        why=_TROUBLES[trouble.kind],
        hint="give it its value"
        if trouble.kind == "no-value"
        else "remove the GPU flag, and insert the output of `gpubind plan --format`",
    )


def _started(
    prefix: tuple[Prefix, ...],
    at: int,
    subcommand: tuple[str, ...],
    head: ParsedCommandLine,
    line: ParsedCommandLine,
    start: StartSubcommand,
) -> Wrapped:
    words, others = line.argv, list(line.operand_indexes)
    image, image_at, name = None, None, None
    if start.operands in ("image", "instance") and others:
        image_at = others.pop(0)
        image = words[image_at]
    elif start.operands == "bundle":
        image = line.last("bundle") or "."
    elif start.operands == "rootfs":
        image = _rootfs(line)
    if start.operands in ("instance", "bundle") and others:
        name = words[others.pop(0)]
    runtime = basename(words[at])
    return Wrapped(
        words,
        prefix,
        at,
        "docker" if runtime == "nvidia-docker" else runtime,
        subcommand,
        head.options if subcommand else (),
        line.options,
        image,
        image_at,
        name,
        tuple(words[position] for position in others),
        line.insert_index,
        gpus.GpuRequest(),
    )


def _rootfs(line: ParsedCommandLine) -> Optional[str]:
    """Return the root of a container of bwrap, systemd-nspawn or proot, if it is one directory or image."""
    root: Optional[str] = None
    layers: list[str] = []
    for option in line.options:
        if option.name == "overlay-src":
            layers.append(option.value)
        elif layers and option.name in ("overlay", "tmp-overlay", "ro-overlay"):
            if option.args[-1] == "/":
                root = layers[0] if len(layers) == 1 else None
            layers = []
        elif option.name in BWRAP_BINDS:
            if option.args[2:3] == ("/",):
                root = option.args[1]
        elif option.name in ("directory", "image", "oci-bundle", "rootfs", "R", "S"):
            root = option.value
    return root


def _request(
    wrapped: Wrapped,
    program: RuntimeProgram,
    line: ParsedCommandLine,
    environ: Mapping[str, str],
    site: Collection[str],
) -> Optional[gpus.GpuRequest]:
    """Return the GPUs that *wrapped* asks for; None if it asks for none."""
    if program.family == "singularity":
        return gpus.singularity_request(wrapped.runtime, line, environ, site)
    if program.family == "docker":
        nvidia = basename(wrapped.words[wrapped.program_at]) == "nvidia-docker"
        return gpus.docker_request(wrapped.options, environ, nvidia=nvidia)
    if program.family == "nerdctl":
        return gpus.nerdctl_request(wrapped.options, environ)
    if program.family == "podman":
        return gpus.podman_request((*wrapped.globals, *wrapped.options), environ)
    return gpus.charliecloud_request(wrapped.options) if program.family == "ch-run" else gpus.GpuRequest(asked=False)


def _need_all(wrapped: Wrapped, program: RuntimeProgram, start: StartSubcommand) -> None:
    """Errors: `UsageError`, if a line that is to get a plan lacks something, or reads options from a file."""
    what = f"`{' '.join((wrapped.words[wrapped.program_at], *wrapped.subcommand))}`"
    if start.operands in ("image", "instance") and wrapped.image is None:
        raise UsageError(
            "wrap-no-image", f"{what} names no image", hint="the image is the first argument after the options"
        )
    if start.operands in ("instance", "bundle") and wrapped.name is None:
        raise UsageError(
            "wrap-no-image", f"{what} names no instance or container", hint="its name is missing at the end"
        )
    if start.needs_command and not wrapped.command:
        raise UsageError("wrap-no-image", f"{what} has no command after the image", where=wrapped.image or "")
    for option in wrapped.options:
        if option.name in program.option_files:
            what = f"`{' '.join(option.args)}`: those options are in a file, and gpubind does not see them"
            raise UsageError("wrap-unseen", what, where=argument_location(option.position), hint="write them out")
    if any(prefix.several for prefix in wrapped.prefix) and ":" in wrapped.words[wrapped.program_at :]:
        at = wrapped.words.index(":", wrapped.program_at)
        raise UsageError(
            "wrap-several",
            "`:` begins another command, and gpubind can plan for only one",
            where=argument_location(at),
            hint=HINT,
        )
