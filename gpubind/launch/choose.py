"""Parse the arguments of a start, and choose its runtime: `parse_start`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Optional

from gpubind.errors import HostReadError, RuntimeLimitError, UsageError
from gpubind.frozen import NamedTuple
from gpubind.image.reference import FILE_FORMS, ImageForm, ImageReference, parse_reference
from gpubind.launch.execute import find_program
from gpubind.machine.answers import lexists, why_no_facts
from gpubind.runtimes import RUNTIMES, get_runtime
from gpubind.runtimes.cmdline.programs import Action
from gpubind.runtimes.runtime import Runtime


class StartArguments(NamedTuple):
    """The arguments of a start, as its runtime parses them."""

    runtime: Runtime
    options: tuple[str, ...]
    """The runtime's options, before IMAGE."""
    image: ImageReference
    argv: tuple[str, ...]
    """The command in the container, and its arguments."""
    why: str
    """Why `--backend auto` chose the runtime."""


def parse_start(
    action: Action, args: tuple[str, ...], backend: str, environ: Mapping[str, str], *, elsewhere: bool = False
) -> StartArguments:
    """Return *args*, `[RUNTIME_OPTIONS...] IMAGE [--] [CMD...]`, parsed by the rules of the runtime *backend*.

    `auto` selects the first runtime that starts IMAGE. *elsewhere*: the start is planned for another machine. Errors:
    `UsageError`, `RuntimeLimitError` (code `no-runtime`), `HostReadError` (code `no-image`).
    """
    chosen = None
    if backend == "auto":
        chosen = _choose_from_args(action, args, environ, elsewhere=elsewhere)
    runtime = chosen.runtime if chosen is not None else get_runtime(backend, "auto")
    options, operands = _split_options(runtime, action, args)
    argv = need_command(action, operands)
    image = chosen.image if chosen and chosen.image_arg == operands[0] else parse_reference(operands[0], runtime)
    if image.text.startswith("-"):  # the runtime would take it for an option
        image = parse_reference(f"./{image.text}", runtime)
    return StartArguments(runtime, options, image, argv, chosen.why if chosen is not None else "")


def need_command(action: Action, args: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command in *args*, which begin with IMAGE. Errors: `UsageError` if IMAGE or a command is missing."""
    if not args:
        problem = "there is no IMAGE after the runtime's options"
        raise UsageError("no-command", problem, hint="gpubind exec -- OPTIONS IMAGE")
    if not args[0]:
        raise UsageError("no-command", "IMAGE is empty", hint="a variable of the shell in its place may be unset")
    argv = args[2:] if args[1:2] == ("--",) else args[1:]
    if action == "exec" and not argv:
        raise UsageError("no-command", "exec wants a command", hint="gpubind exec IMAGE CMD..., or gpubind shell")
    return argv


class ChosenRuntime(NamedTuple):
    """The runtime that `--backend auto` chooses."""

    runtime: Runtime
    image: ImageReference
    """The image, as the runtime parses its name."""
    why: str
    image_arg: str = ""
    """The image, as the user named it."""


def choose_runtime(image_arg: str, environ: Mapping[str, str], *, elsewhere: bool = False) -> ChosenRuntime:
    """Return the first runtime in PATH that starts the image *image_arg*.

    *elsewhere*: the start is for another machine; if PATH has no such runtime, the first one of the table is returned.
    `podman:NAME` and `docker:NAME` name images in the stores of those programs. Any other name that is not a file may
    be an image in a store, or a mistake. If no program with a store is in PATH, a runtime without a store is returned,
    which reports the mistake. Errors: `RuntimeLimitError` (code `no-runtime`), `HostReadError` (code `no-image`).
    """
    image = parse_reference(image_arg)
    form = image.form
    if image.store is not None:
        runtime = RUNTIMES[image.store] if elsewhere else _first_installed([image.store], image, environ)
        return ChosenRuntime(runtime, image, "whose store is named with the image", image_arg)
    if form == "reference" and not any(find_program(name, environ) for name in _runtimes_for(form)):
        form = None
    try:
        runtime = _first_installed(_runtimes_for(form), image, environ)
    except RuntimeLimitError:
        if not elsewhere:
            raise
        why = "the usual one for such an image: none is in PATH here"
        runtime = RUNTIMES[next(_runtimes_for(form))]
        return ChosenRuntime(runtime, parse_reference(image_arg, runtime), why, image_arg)
    if image.form is None and runtime.store is not None and not any(form in runtime.image_forms for form in FILE_FORMS):
        from gpubind.image.open import suggest_path

        # Its store would look for an image of this name, and report a network error.
        why = f"{why_no_facts(image_arg)}, and {runtime.name} starts no files"
        hint = f"look at the path; an image of {runtime.name}'s store has a name without a path"
        hint = suggest_path(image_arg) or hint
        raise HostReadError("no-image", "the image cannot be read", where=image_arg, why=why, hint=hint)
    is_plain = form == "directory" and runtime.store is not None and not image.is_path
    image = parse_reference(f"./{image_arg}" if is_plain else image_arg, runtime)
    return ChosenRuntime(runtime, image, "the first in PATH that starts such an image", image_arg)


def _choose_from_args(
    action: Action, args: tuple[str, ...], environ: Mapping[str, str], *, elsewhere: bool = False
) -> ChosenRuntime:
    """Return the first runtime that has all options before IMAGE and that starts IMAGE.

    Which argument is IMAGE depends on the options of a runtime. So each runtime is tried with its own options.
    """
    if not args[0].startswith("-"):
        return choose_runtime(args[0], environ, elsewhere=elsewhere)
    from gpubind.launch.wrap.command import split_options  # slow to load, and rarely needed

    readings: dict[str, tuple[str, ...]] = {}
    for name in RUNTIMES:
        with suppress(UsageError, RuntimeLimitError):
            readings[name] = split_options(name, action, args)[1]
            chosen = choose_runtime(readings[name][0], environ) if any(readings[name][:1]) else None
            if chosen is not None and chosen.runtime.name == name:
                return chosen
    operands = args if not readings and lexists(args[0]) else next(filter(None, readings.values()), ())
    if not readings and not operands:
        problem = f"no runtime has the options before IMAGE, from `{args[0]}` on"
        hint = "name the runtime whose options they are with --backend"
        raise UsageError("incomplete-argument", problem, hint=hint)
    need_command(action, operands)
    chosen = choose_runtime(operands[0], environ, elsewhere=elsewhere)
    if readings and chosen.runtime.name not in readings:
        problem = f"no runtime in PATH has the options before IMAGE, from `{args[0]}` on"
        name = chosen.runtime.name
        why = f"they are options of {', '.join(readings)}, and `{operands[0]}` would be started by {name}"
        raise RuntimeLimitError("no-runtime", problem, why=why, hint="install one of them, or name it with --backend")
    return chosen


def _split_options(runtime: Runtime, action: Action, args: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the options of *runtime* in *args*, and the arguments from IMAGE on. Errors: `UsageError`.

    An argument that begins with `-` is IMAGE only if its path exists and it is not an option.
    """
    if not args[0].startswith("-"):
        return (), args
    from gpubind.launch.wrap.command import split_options

    try:
        return split_options(runtime.name, action, args)
    except UsageError:
        if lexists(args[0]):
            return (), args
        raise


def _runtimes_for(form: Optional[ImageForm]) -> Iterator[str]:
    """Yield the runtimes that start images of *form*, in the order of the table; for None, all but those of bundles."""
    for name in RUNTIMES:
        if ("bundle" not in RUNTIMES[name].image_forms) if form is None else form in RUNTIMES[name].image_forms:
            yield name


def _first_installed(names: Iterable[str], image: ImageReference, environ: Mapping[str, str]) -> Runtime:
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
