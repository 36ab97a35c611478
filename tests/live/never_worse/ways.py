"""The ways to start a container: by the real program, and each by which gpubind can do it."""

from __future__ import annotations

import shlex
from typing import Callable, NamedTuple

from tests.live.engine_starts import LIMITS
from tests.live.machine import INSIDE_CHECKOUT

HERE = f"{INSIDE_CHECKOUT}/tests/live/never_worse"
"""This directory, as the machine sees it."""
DOCKERS = "made:bookworm"
"""The one image of docker's store."""


class Command(NamedTuple):
    """What is to be started."""

    image: str
    options: tuple[str, ...]
    """The user's own."""
    program: tuple[str, ...]
    site: str = ""
    """For a container that is created: one of `CREATED_SITES`."""


Way = Callable[[Command], tuple[str, ...]]


def real(command: Command) -> tuple[str, ...]:
    """As users do without gpubind."""
    return ("apptainer", "exec", "--nv", *command.options, command.image, *command.program)


def by_exec(command: Command) -> tuple[str, ...]:
    gpubind = ("gpubind", "exec", "--nv", "--backend", "apptainer", *_own(command))
    return (*gpubind, command.image, *command.program)


def by_wrap(command: Command) -> tuple[str, ...]:
    """The very line of `real`."""
    return ("gpubind", "wrap", "--", *real(command))


def real_instance(command: Command) -> tuple[str, ...]:
    """An instance, and a command that enters it, as users do without gpubind."""
    return _instance("apptainer", command)


def by_instance(command: Command) -> tuple[str, ...]:
    """The very lines of `real_instance`."""
    return _instance("gpubind wrap -- apptainer", command)


def real_created(command: Command) -> tuple[str, ...]:
    """A container that is created, and then started or entered, as users do without gpubind."""
    return _created("", command)


def by_created(command: Command) -> tuple[str, ...]:
    """The very lines of `real_created`."""
    return _created("gpubind wrap -- ", command)


def by_bubblewrap(command: Command) -> tuple[str, ...]:
    """Without the options, which are Apptainer's."""
    return ("gpubind", "exec", "--nv", "--backend", "bwrap", command.image, *command.program)


def by_words(command: Command) -> tuple[str, ...]:
    return _script(_WORDS, command, "--format", "apptainer", "--image", command.image)


def by_words_without_image(command: Command) -> tuple[str, ...]:
    return _script(_WORDS, command, "--format", "apptainer")


def by_quoted_words(command: Command) -> tuple[str, ...]:
    return _script(_QUOTED, command, "--format", "apptainer", "--format", "sh", "--image", command.image)


def by_variables(command: Command) -> tuple[str, ...]:
    return _script(_VARIABLES, command, "--format", "apptainer-env", "--image", command.image)


def by_variables_without_image(command: Command) -> tuple[str, ...]:
    return _script(_VARIABLES, command, "--format", "apptainer-env")


_WORDS = "words=$({plan}) && apptainer exec {options} $words {rest}"
_QUOTED = 'words=$({plan}) && eval "set -- $words" && apptainer exec {options} "$@" {rest}'
_VARIABLES = 'lines=$({plan}) && eval "$lines" && apptainer exec {options} {rest}'
"""What a user's own script says."""
_ENTERED = """
{program} instance start --nv {options} {image} made$$ > /dev/null &&
    {program} exec --nv {own} instance://made$$ {command}
status=$?
apptainer instance stop made$$ > /dev/null 2>&1
exit $status
"""


def checked(command: Command) -> tuple[str, ...]:
    """The preflight of the same image: it may tell what the start itself does not."""
    of = ("podman",) if command.site else ("apptainer", *_own(command))
    check = ("gpubind", "check", "--nv", "--backend", *of, "--format", "tsv")
    return (*check, "--image", command.image)


INSTANCE, CREATED = "instance", "created"
WAYS: dict[str, Way] = {
    "exec": by_exec,
    "words": by_words,
    "words, image unknown": by_words_without_image,
    "quoted words": by_quoted_words,
    "variables": by_variables,
    "variables, image unknown": by_variables_without_image,
    "wrap": by_wrap,
    "bubblewrap": by_bubblewrap,
    INSTANCE: by_instance,
    CREATED: by_created,
}
"""Name -> way. Each starts what its `real_of` starts."""


def real_of(name: str) -> Way:
    """What the way called *name* is compared with."""
    return {INSTANCE: real_instance, CREATED: real_created}.get(name, real)


def _own(command: Command) -> tuple[str, ...]:
    """The user's options, for gpubind to know."""
    return tuple(f"--backend-arg={word}" for word in command.options)


def _instance(program: str, command: Command) -> tuple[str, ...]:
    own = tuple(word for word in command.options if word == "--no-privs")  # root of the rig needs it each time
    words = {"options": command.options, "image": (command.image,), "own": own, "command": command.program}
    return ("sh", "-c", _ENTERED.format(program=program, **{name: shlex.join(words[name]) for name in words}))


def _created(program: str, command: Command) -> tuple[str, ...]:
    engine, how = command.site.split(",")[0].split()
    image = ("--rootfs", f"{command.image}:O") if engine == "podman" else (DOCKERS,)
    options = ("--network=none", "--hostname=made", *(f"--ulimit={word}" for word in LIMITS), *command.options)
    rest, entered = shlex.join((*options, *image)), shlex.join(command.program)
    create, start = f"create --name $name {rest} {entered}", "start -a $name"
    if how == "run":
        create, start = f"run -d --name $name {rest} sleep 1000", f"exec $name {entered}"
    return (f"{HERE}/created.sh", command.site, f"{program}{engine} {create}", f"{engine} {start}")


def _script(text: str, command: Command, *form: str) -> tuple[str, ...]:
    plan = shlex.join(("gpubind", "plan", "--nv", "-v", *_own(command), *form))
    rest = shlex.join((command.image, *command.program))
    return ("sh", "-c", text.format(plan=plan, options=shlex.join(command.options), rest=rest))
