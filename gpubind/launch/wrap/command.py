"""A runtime's own command line: what it starts, which GPUs it asks for, and the same words with others in their place.

Three answers: `Wrapped` for a start that wants GPUs, `PassThrough` for a line that is none of gpubind's business, and
an error for a line that asks for GPUs and cannot be read. So `alias singularity='gpubind wrap -- singularity'` is safe:
what worked before works as before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from posixpath import basename
from typing import Literal, NamedTuple, Optional, Union

from gpubind.errors import UsageError
from gpubind.launch.wrap.gpus import (
    GpuRequest,
    charliecloud_request,
    docker_request,
    is_gpu_flag,
    looks_like_gpus,
    podman_request,
    singularity_request,
)
from gpubind.launch.wrap.prefix import HINT, Place, Prefix, read_prefix
from gpubind.runtimes.cmdline.flags import parse_bool
from gpubind.runtimes.cmdline.programs import OTHERS, PROGRAMS, Program, StartCommand
from gpubind.runtimes.cmdline.reader import GivenOption, Line, Trouble, TroubleKind, read_options
from gpubind.runtimes.runtime import an_option_a_line

Why = Literal["other-subcommand", "help", "no-gpu-flag", "running-container", "instance", "host-files", "not-read"]
"""Why a line is passed through: its subcommand starts no container, or none that the line describes; it asks for help;
it asks for no GPU; it enters a container, or an instance, that runs already, to which no GPU can be added; its root is
this machine's own; it cannot be read, but however it is read it asks for no GPU."""
_WITH_GPU_FLAGS = ("singularity", "docker", "podman")
_TROUBLES: dict[TroubleKind, str] = {
    "unknown": "it is not an option that gpubind knows, so whether the next word belongs to it cannot be told",
    "ambiguous": "it is the beginning of several options",
    "no-value": "it lacks its value",
    "needless-value": "it takes no value of that form",
    "bad-value": "it is neither true nor false",
}
_INSTANCE_ONLY = ("pid-file", "name")
_NO_START = ("about", "feature", "help", "usage", "version")
"""Options with which a program answers a question, and starts nothing."""


class PassThrough(NamedTuple):
    """A command line to be started as it is."""

    words: tuple[str, ...]
    why: Why
    detail: str = ""
    """The word that tells, if one does."""


class Wrapped(NamedTuple):
    """A command line that starts a container, which is to get a plan."""

    words: tuple[str, ...]
    """All of it, as it is."""
    prefix: tuple[Prefix, ...]
    """The programs before the runtime's."""
    program_at: int
    runtime: str
    """The name of the program. nvidia-docker is `docker`."""
    subcommand: tuple[str, ...]
    globals: tuple[GivenOption, ...]
    """The program's own options, before the subcommand."""
    options: tuple[GivenOption, ...]
    image: Optional[str]
    """An image, a rootfs directory or, of crun and runc, a bundle; None if no word names it."""
    image_at: Optional[int]
    """Its position, if it is a word of its own."""
    name: Optional[str]
    """Of an instance, or of a container of crun's or runc's."""
    command: tuple[str, ...]
    """What is started in it, as far as the line says."""
    place: int
    """Where other options go: behind the user's, so that those do not take them back."""
    gpus: GpuRequest

    def all(self, name: str) -> tuple[str, ...]:
        """Return the values of option *name*, in their order."""
        return tuple(option.value for option in self.options if option.name == name)

    @property
    def is_rootfs(self) -> bool:
        """Whether --rootfs of podman's says that the image is a directory."""
        return self.runtime == "podman" and any(map(parse_bool, self.all("rootfs")[-1:]))

    @property
    def image_place(self) -> Optional[str]:
        """The image, as a path where it is `DIR`, `DIR:O` or `DIR:idmap` of --rootfs."""
        if self.image is None or not self.is_rootfs:
            return self.image
        path = self.image.partition(":")[0]
        return path if path.startswith(("/", ".")) else f"./{path}"

    @property
    def own(self) -> dict[str, str]:
        """The options that the program takes before its subcommand, with the value that counts: podman takes some of
        them behind it, too.
        """
        known = PROGRAMS[self.runtime].known.names
        return {option.name: option.value for option in (*self.globals, *self.options) if option.name in known}

    @property
    def where(self) -> Place:
        """Where the runtime will start: for anything but `here`, a plan made here may be wrong. See `moved`."""
        places = [prefix.place for prefix in self.prefix]
        return "elsewhere" if "elsewhere" in places else "changed" if "changed" in places else "here"


def parse_command(
    argv: Sequence[str], environ: Optional[Mapping[str, str]] = None, site: Collection[str] = ()
) -> Union[Wrapped, PassThrough]:
    """What *argv* starts. *environ* is the caller's environment; *site* has the GPU flags that the configuration of
    Apptainer or SingularityCE always adds.

    Errors: `UsageError`, each with the word: no runtime in it (`wrap-no-runtime`, `wrap-prefix`, `wrap-shell`,
    `wrap-program`); and, only where GPUs are asked for: an option that cannot be read (`wrap-option`), a request that
    cannot be understood (`wrap-gpus`), a container that runs already (`wrap-running`), no image or command
    (`wrap-no-image`), several commands in one line (`wrap-several`), options in a file (`wrap-unseen`).
    """
    words = tuple(argv)
    prefix, at = _prefixes(words)
    environ = _changed(environ or {}, prefix)
    name = basename(words[at])
    program = PROGRAMS[name]
    head = read_options(program.reader._replace(permutes=False), program.known, words, at + 1)
    if head.trouble is not None and () not in program.subcommands:
        return _not_read(words, at, head.trouble, _may_ask_behind(program, words, head.trouble.at))
    if any(option.name in _NO_START for option in head.options):
        return PassThrough(words, "help")
    found = _subcommand(program, words, head) if () not in program.subcommands else ((), at + 1)
    if found is None:
        return PassThrough(words, "other-subcommand", words[head.others[0]] if head.others else "")
    subcommand, first = found
    start = program.subcommands[subcommand]
    line = read_options(program.reader, start.known, words, first)
    if "POSIXLY_CORRECT" in environ and program.family == "ch-run":
        line = read_options(program.reader._replace(permutes=False), start.known, words, first)
    if any(option.name in _NO_START for option in line.options):
        return PassThrough(words, "help")
    if line.trouble is not None:
        return _not_read(words, at, line.trouble, _may_ask(program, start, words, line), start)
    if start.shape == "joined":
        return PassThrough(words, "running-container", words[line.others[0]] if line.others else "")
    made = _started(words, prefix, at, subcommand, head, line, start)
    return _with_gpus(made, program, start, environ, site)


def arguments_of(wrapped: Wrapped) -> tuple[str, ...]:
    """The user's options for the runtime as they stand, without the GPU flags and without what names an instance."""
    gone = {option.at for option in wrapped.gpus.flags}
    own = [option for option in wrapped.options if option.at not in gone and option.name not in _INSTANCE_ONLY]
    return tuple(word for words in {option.at: option.words for option in own}.values() for word in words)


def own_options(runtime: str, action: str, words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return *words* of `gpubind exec -- OPTIONS IMAGE CMD...` as the options of *runtime*, and what follows them.

    Errors: `UsageError` (code `incomplete-argument`) for an option that *runtime* does not have for that action.
    """
    program = PROGRAMS[runtime]
    several = (program.subcommands.get(one) for one in ((action,), ("run",), ()))
    start = next(one for one in several if one is not None and one.shape != "joined")  # `docker exec` starts none
    line = read_options(program.reader._replace(permutes=False), start.known, words, 0)
    if line.trouble is not None:
        word = words[line.trouble.at]
        why = _TROUBLES[line.trouble.kind]
        raise UsageError(
            "incomplete-argument", f"`{word}` before IMAGE is not an option of {runtime} as it stands", why=why
        )
    at = line.others[0] if line.others else len(words)
    ended = words[at - 1 : at] == ("--",) or list(words[at - 1 : at]) == ["--"]
    return tuple(words[: at - int(ended)]), tuple(words[at:])


def printed(wrapped: Wrapped, words: Sequence[str]) -> str:
    """*words*, which `rewritten` made of *wrapped*, for a reader and a shell: each option with its value on a line."""
    before = len(wrapped.words[: wrapped.program_at + 1]) + len(wrapped.subcommand)
    behind = len(words) - len(wrapped.words[wrapped.place :])
    return an_option_a_line(words, before, behind)


def rewritten(wrapped: Wrapped, put_in: Sequence[str] = (), *, without: Collection[str] = ()) -> tuple[str, ...]:
    """The words of *wrapped* with its GPU flags taken out, and *put_in* behind its options; all others as they are.

    *without* names more options to take out: runc refuses a second --bundle. Errors: `UsageError` (`wrap-option`) for
    one that shares its word with others.
    """
    gone: set[int] = set()
    for option in (*wrapped.gpus.flags, *(option for option in wrapped.options if option.name in without)):
        shared = {other.name for other in wrapped.options if other.at == option.at}
        if len(shared) > 1:
            what = f"`{option.words[0]}` holds several options, of which --{option.name} has to go"
            raise UsageError("wrap-option", what, where=f"argument {option.at + 1}", hint="write them apart")
        gone |= set(range(option.at, option.at + len(option.words)))
    words = list(wrapped.words)
    if basename(words[wrapped.program_at]) == "nvidia-docker":
        words[wrapped.program_at] = "docker"  # the other one would add --runtime=nvidia again
    kept = [[word] if at not in gone else [] for at, word in enumerate(words)]
    before = [word for one in kept[: wrapped.place] for word in one]
    return (*before, *put_in, *(word for one in kept[wrapped.place :] for word in one))


def moved(wrapped: Wrapped, gpubind: Sequence[str]) -> tuple[str, ...]:
    """Return the same command line with *gpubind* behind the prefix: `srun gpubind wrap -- singularity ...`.

    What `srun` or `env A=b` starts has other GPUs, and another environment, than this process: there the plan is right.
    """
    return (*wrapped.words[: wrapped.program_at], *gpubind, *wrapped.words[wrapped.program_at :])


def _is_runtime(word: str) -> bool:
    return basename(word) in PROGRAMS


def _prefixes(words: tuple[str, ...]) -> tuple[tuple[Prefix, ...], int]:
    """Return what stands before the runtime's program, and its position. Errors: as `parse_command`."""
    prefix: list[Prefix] = []
    at = 0
    while at < len(words) and not _is_runtime(words[at]):
        other = OTHERS.get(basename(words[at]))
        if other is not None:
            what = f"gpubind does not read the command lines of `{words[at]}`"
            raise UsageError("wrap-program", what, where=f"argument {at + 1}", hint=other)
        prefix.append(read_prefix(words, at, _is_runtime))
        at += len(prefix[-1].words)
    if at == len(words):
        raise UsageError("wrap-no-runtime", "there is no runtime to start", hint=f"known: {', '.join(PROGRAMS)}")
    return tuple(prefix), at


def _changed(environ: Mapping[str, str], prefix: Sequence[Prefix]) -> Mapping[str, str]:
    """Return *environ* as the prefix leaves it to the runtime."""
    for one in prefix:
        changed: dict[str, str] = {} if one.clears else dict(environ)
        for name, value in one.sets:
            if value is None:
                changed.pop(name, None)
            else:
                changed[name] = value
        environ = changed
    return environ


def _subcommand(program: Program, words: tuple[str, ...], head: Line) -> Optional[tuple[tuple[str, ...], int]]:
    """Return the subcommand that starts a container, and where its options begin; None for any other."""
    if not head.others:
        return None
    at = head.others[0]
    for length in (1, 2):
        subcommand = words[at : at + length]
        if len(subcommand) == length and subcommand in program.subcommands:
            return subcommand, at + length
    return None


def _may_ask(program: Program, start: StartCommand, words: tuple[str, ...], line: Line) -> bool:
    """Return whether a line that cannot be read may ask for GPUs: in one of its readings, with a value or without.

    A runtime without words for GPUs is asked for them by starting it.
    """
    if program.family not in _WITH_GPU_FLAGS:
        return start.shape != "joined"
    seen: set[int] = set()
    # docker exec has no --gpus: what those mean who write it is clear.
    known = start.known if start.shape != "joined" else start.known.also(program.subcommands[("run",)].known)
    lines = [line, read_options(program.reader, known, words, line.trouble.at)] if line.trouble else [line]
    while lines:
        line = lines.pop()
        if any(is_gpu_flag(program.family, option) for option in line.options):
            return True
        if line.trouble is not None:
            after = {line.trouble.at + 1, line.trouble.at + 2} - seen
            seen |= after
            options = [at for at in sorted(after) if words[at : at + 1] and words[at].startswith("-")]
            lines += [read_options(program.reader, known, words, at) for at in options]
    return False


def _may_ask_behind(program: Program, words: tuple[str, ...], at: int) -> bool:
    """Return the same for a line where the word at *at*, before the subcommand, cannot be read."""
    if looks_like_gpus(words[at]):
        return True
    seen: set[int] = set()
    starts = [at + 1, at + 2]
    while starts:
        at = starts.pop()
        if at in seen:
            continue
        seen.add(at)
        head = read_options(program.reader._replace(permutes=False), program.known, words, at)
        if head.trouble is not None:
            starts += [head.trouble.at + 1, head.trouble.at + 2]
            continue
        found = _subcommand(program, words, head)
        if found is not None:
            start = program.subcommands[found[0]]
            if _may_ask(program, start, words, read_options(program.reader, start.known, words, found[1])):
                return True
    return False


def _not_read(
    words: tuple[str, ...], at: int, trouble: Trouble, may_ask: bool, start: Optional[StartCommand] = None
) -> PassThrough:
    """The answer to a line that cannot be read. Errors: `UsageError`, if it may ask for GPUs.

    If not, the program itself says best what is wrong with the line, or it knows more options than gpubind does.
    """
    word = words[trouble.at]
    if not may_ask:
        return PassThrough(words, "not-read", word)
    where = f"argument {trouble.at + 1}"
    if start is not None and start.shape == "joined":
        raise UsageError(
            "wrap-running",
            f"`{word}`: the container runs already, and no GPU can be added to it",
            where=where,
            hint="start it with its GPUs: `gpubind wrap -- docker run --gpus ...`, or `podman run`",
        )
    why = _TROUBLES[trouble.kind]
    raise UsageError(
        "wrap-option",
        f"`{word}` of {words[at]} cannot be read",
        where=where,
        why=why,
        hint="take the GPU flag out, and put in what `gpubind plan --format` prints",
    )


def _started(
    words: tuple[str, ...],
    prefix: tuple[Prefix, ...],
    at: int,
    subcommand: tuple[str, ...],
    head: Line,
    line: Line,
    start: StartCommand,
) -> Wrapped:
    """Return what a line starts, without its GPUs."""
    others = list(line.others)
    image, image_at, name = None, None, None
    if start.shape in ("image", "instance") and others:
        image_at = others.pop(0)
        image = words[image_at]
    elif start.shape == "bundle":
        image = line.last("bundle") or "."
    elif start.shape == "rootfs":
        image = _rootfs(line)
    if start.shape in ("instance", "bundle") and others:
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
        line.end,
        GpuRequest(),
    )


def _rootfs(line: Line) -> Optional[str]:
    """The root of a container of bwrap's, systemd-nspawn's or proot's, as far as one directory or image is it."""
    root: Optional[str] = None
    layers: list[str] = []
    for option in line.options:
        if option.name == "overlay-src":
            layers.append(option.value)
        elif layers and option.name in ("overlay", "tmp-overlay", "ro-overlay"):
            if option.words[-1] == "/":
                root = layers[0] if len(layers) == 1 else None
            layers = []
        elif option.name in ("bind", "ro-bind", "dev-bind", "bind-try", "ro-bind-try", "dev-bind-try"):
            if option.words[2:3] == ("/",):
                root = option.words[1]
        elif option.name in ("directory", "image", "oci-bundle", "rootfs", "R", "S"):
            root = option.value
    return root


def _with_gpus(
    made: Wrapped, program: Program, start: StartCommand, environ: Mapping[str, str], site: Collection[str]
) -> Union[Wrapped, PassThrough]:
    """Return *made* with what it asks for; or to be passed through, if that is nothing."""
    request: Optional[GpuRequest]
    if program.family == "singularity":
        request = singularity_request(made.runtime, made.options, environ, site)
    elif program.family == "docker":
        nvidia = basename(made.words[made.program_at]) == "nvidia-docker"
        request = docker_request(made.options, environ, nvidia=nvidia)
    elif program.family == "podman":
        request = podman_request((*made.globals, *made.options), environ)
    elif program.family == "ch-run":
        request = charliecloud_request(made.options)
    else:
        request = GpuRequest()
    if request is None:
        return PassThrough(made.words, "no-gpu-flag")
    if made.image is not None and made.image.startswith("instance://"):
        return PassThrough(made.words, "instance", made.image)
    if start.shape == "rootfs" and (made.image == "/" or (made.runtime == "proot" and made.image is None)):
        return PassThrough(made.words, "host-files", made.image or "")
    try:
        _need_all(made, start)
    except UsageError:
        if request.brings_nodes:
            return PassThrough(made.words, "not-read")
        raise
    return made._replace(gpus=request)


def _need_all(made: Wrapped, start: StartCommand) -> None:
    """Errors: `UsageError`, if a line that is to get a plan lacks something, or holds something that is not seen."""
    what = f"`{made.words[made.program_at]} {' '.join(made.subcommand)}`".replace(" `", "`")
    if start.shape in ("image", "instance") and made.image is None:
        raise UsageError(
            "wrap-no-image", f"{what} names no image", hint="the image is the first argument after the options"
        )
    if start.shape in ("instance", "bundle") and made.name is None:
        raise UsageError(
            "wrap-no-image", f"{what} names no instance or container", hint="its name is missing at the end"
        )
    if start.needs_command and not made.command:
        raise UsageError("wrap-no-image", f"{what} has no command after the image", where=made.image or "")
    unseen = [option for option in made.options if option.name == "args" and made.runtime == "bwrap"]
    if unseen:
        what = f"`{' '.join(unseen[0].words)}`: those options are in a file, and gpubind does not see them"
        raise UsageError("wrap-unseen", what, where=f"argument {unseen[0].at + 1}", hint="write them out")
    if any(prefix.several for prefix in made.prefix) and ":" in made.words[made.program_at :]:
        at = made.words.index(":", made.program_at)
        raise UsageError(
            "wrap-several",
            "a `:` begins another command, and a plan is for one",
            where=f"argument {at + 1}",
            hint=HINT,
        )
