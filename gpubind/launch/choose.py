"""Read the words of a start, and choose its runtime: `read_start`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Optional

from gpubind.errors import HostReadError, RuntimeLimitError, UsageError
from gpubind.frozen import NamedTuple
from gpubind.image.reference import FILE_FORMS, ImageForm, ImageReference, parse_reference
from gpubind.launch.execute import find_program
from gpubind.machine.answers import lexists, why_absent
from gpubind.runtimes import RUNTIMES, get_runtime
from gpubind.runtimes.cmdline.programs import Action
from gpubind.runtimes.runtime import Runtime


class StartLine(NamedTuple):
    """The words of a start, as its runtime reads them."""

    runtime: Runtime
    options: tuple[str, ...]
    """The runtime's own, before IMAGE."""
    image: ImageReference
    argv: tuple[str, ...]
    """The command in the container, and its arguments."""
    why: str = ""
    """Why `--backend auto` chose the runtime."""


def read_start(
    action: Action, words: tuple[str, ...], backend: str, environ: Mapping[str, str], *, elsewhere: bool = False
) -> StartLine:
    """Return *words*, `[RUNTIME_OPTIONS...] IMAGE [--] [CMD...]`, as the runtime called *backend* reads them.

    `auto` is the first runtime that starts IMAGE. *elsewhere*: the start is planned for another machine.
    Errors: `UsageError`, `RuntimeLimitError` (code `no-runtime`), `HostReadError` (code `no-image`).
    """
    chosen = None
    if backend == "auto":
        chosen = _automatic(action, words, environ, elsewhere=elsewhere)
    runtime = chosen.runtime if chosen is not None else get_runtime(backend, "auto")
    options, rest = _own_options(runtime, action, words)
    argv = need_command(action, rest)
    image = chosen.image if chosen is not None and chosen.word == rest[0] else parse_reference(rest[0], runtime)
    if image.text.startswith("-"):  # the runtime would take it for an option
        image = parse_reference(f"./{image.text}", runtime)
    return StartLine(runtime, options, image, argv, chosen.why if chosen is not None else "")


def need_command(action: Action, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command in *words*, which begin with IMAGE. Errors: `UsageError` if IMAGE or a command is missing."""
    if not words:
        raise UsageError(
            "no-command", "there is no IMAGE after the runtime's options", hint="gpubind exec -- OPTIONS IMAGE"
        )
    if not words[0]:
        raise UsageError("no-command", "IMAGE is empty", hint="a variable of the shell in its place may be unset")
    argv = words[2:] if words[1:2] == ("--",) else words[1:]
    if action == "exec" and not argv:
        raise UsageError("no-command", "exec wants a command", hint="gpubind exec IMAGE CMD..., or gpubind shell")
    return argv


class ChosenRuntime(NamedTuple):
    """The runtime that `--backend auto` chooses."""

    runtime: Runtime
    image: ImageReference
    """As the runtime reads it."""
    why: str
    word: str = ""
    """The image, as the user gives it."""


def choose_runtime(word: str, environ: Mapping[str, str], *, elsewhere: bool = False) -> ChosenRuntime:
    """Return the first runtime whose program is in PATH and that starts the image called *word*.

    *elsewhere*, on another machine, it is the first of the table where none is in PATH. `podman:NAME` and `docker:NAME`
    are in those programs' own stores. Any other name that is nothing here may be a mistake: if no program with a store
    is in PATH, another one reports it.
    Errors: `RuntimeLimitError` (code `no-runtime`), `HostReadError` (code `no-image`).
    """
    image = parse_reference(word)
    form = image.form
    if image.store is not None:
        found = RUNTIMES[image.store] if elsewhere else _first_of([image.store], image, environ)
        return ChosenRuntime(found, image, "whose store is named with the image", word)
    if form == "reference" and not any(find_program(other, environ) for other in _starting(form)):
        form = None
    try:
        found = _first_of(_starting(form), image, environ)
    except RuntimeLimitError:
        if not elsewhere:
            raise
        why = "the usual one for such an image: none is in PATH here"
        found = RUNTIMES[next(_starting(form))]
        return ChosenRuntime(found, parse_reference(word, found), why, word)
    if image.form is None and found.store is not None and not any(form in found.image_forms for form in FILE_FORMS):
        from gpubind.image.open import suggest_path

        # Its store would look for an image that is called so, and blame the network.
        why = f"{why_absent(word)}, and {found.name} starts no files"
        hint = suggest_path(word) or f"look at the path; an image of {found.name}'s store has a name without a path"
        raise HostReadError("no-image", "the image cannot be read", where=word, why=why, hint=hint)
    is_plain = form == "directory" and found.store is not None and not image.is_path
    image = parse_reference(f"./{word}" if is_plain else word, found)
    return ChosenRuntime(found, image, "the first in PATH that starts such an image", word)


def _automatic(
    action: Action, words: tuple[str, ...], environ: Mapping[str, str], *, elsewhere: bool = False
) -> ChosenRuntime:
    """Return the runtime for *words*.

    The runtime's options before IMAGE decide where IMAGE is, and IMAGE decides the runtime: the first one that reads
    these options, and is the one for the image after them.
    """
    if not words[0].startswith("-"):
        return choose_runtime(words[0], environ, elsewhere=elsewhere)
    from gpubind.launch.wrap.command import own_options  # slow to load, and rarely needed

    readings: dict[str, tuple[str, ...]] = {}
    for name in RUNTIMES:
        with suppress(UsageError, RuntimeLimitError):
            readings[name] = own_options(name, action, words)[1]
            chosen = choose_runtime(readings[name][0], environ) if any(readings[name][:1]) else None
            if chosen is not None and chosen.runtime.name == name:
                return chosen
    rest = words if not readings and lexists(words[0]) else next(filter(None, readings.values()), ())
    if not readings and not rest:
        what = f"no runtime has the options before IMAGE, from `{words[0]}` on"
        hint = "name the runtime whose options they are with --backend"
        raise UsageError("incomplete-argument", what, hint=hint)
    need_command(action, rest)
    chosen = choose_runtime(rest[0], environ, elsewhere=elsewhere)
    if readings and chosen.runtime.name not in readings:
        what = f"no runtime in PATH has the options before IMAGE, from `{words[0]}` on"
        why = f"they are options of {', '.join(readings)}, and `{rest[0]}` would be started by {chosen.runtime.name}"
        raise RuntimeLimitError("no-runtime", what, why=why, hint="install one of them, or name it with --backend")
    return chosen


def _own_options(runtime: Runtime, action: Action, words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the options of *runtime* before IMAGE in *words*, and IMAGE with what follows. Errors: `UsageError`.

    A word that begins with `-` is IMAGE only if it is an existing path, and not an option.
    """
    if not words[0].startswith("-"):
        return (), words
    from gpubind.launch.wrap.command import own_options

    try:
        return own_options(runtime.name, action, words)
    except UsageError:
        if lexists(words[0]):
            return (), words
        raise


def _starting(form: Optional[ImageForm]) -> Iterator[str]:
    """Yield the names of the runtimes that start images of *form*, in the table's order; None: any but a bundle."""
    for name in RUNTIMES:
        if ("bundle" not in RUNTIMES[name].image_forms) if form is None else form in RUNTIMES[name].image_forms:
            yield name


def _first_of(names: Iterable[str], image: ImageReference, environ: Mapping[str, str]) -> Runtime:
    """Return the first of *names* whose program is in PATH. Errors: `RuntimeLimitError` (code `no-runtime`)."""
    tried = []
    for name in names:
        tried.append(name)
        if find_program(name, environ):
            return RUNTIMES[name]
    why = "such an image is started by " + ", ".join(tried)
    hint = "install one of them, or name another with --backend"
    stores = [name for name in RUNTIMES if RUNTIMES[name].store is not None and find_program(name, environ)]
    if image.form == "registry" and stores:
        hint = f"{stores[0]} starts it by its name: `{image.name}`"
    raise RuntimeLimitError("no-runtime", "no runtime for this image is in PATH", where=image.text, why=why, hint=hint)
