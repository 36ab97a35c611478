"""setup: register gpubind as an OCI runtime of an engine."""

from __future__ import annotations

from typing import Optional

from gpubind.cli.declarations import DRY_RUN, Argument, Option, Subcommand
from gpubind.cli.output import write_document, write_stderr
from gpubind.cli.registering import COPY, FileChange, Setup, apply, changes_to_register, changes_to_remove
from gpubind.errors import UsageError
from gpubind.formats.driver.registration import ENGINES, NAME
from gpubind.machine import system


def setup(
    *, engine: str, name: str, default: bool, runtime: Optional[str], root: Optional[str], dry_run: bool, undo: bool
) -> None:
    """Register gpubind as an OCI runtime of an engine.

    The difference is printed first. A copy of a configuration is kept next to it. --undo removes what this command
    wrote, and other changes stay. A malformed file is an error, and stays as it is. Root
    registers for all users; an ordinary user for their own podman, or a rootless docker.
    """
    from gpubind.launch.execute import this_program

    if not NAME.fullmatch(name):
        raise UsageError("wrong-use", f"--name: `{name}` is not a name: letters, digits, `-` and `_`")
    if default and not ENGINES[engine].has_default:
        hint = "name the runtime in a RuntimeClass of Kubernetes, or set default_runtime_name yourself"
        raise UsageError("wrong-use", "--default is for docker and podman", hint=hint)
    if runtime is not None and (not runtime or (not runtime.startswith("/") and "/" in runtime)):
        raise UsageError("wrong-use", f"--runtime: `{runtime}` is neither a name nor an absolute path")
    is_users = system.effective_user() != 0 and root is None
    if is_users and not ENGINES[engine].has_users:
        raise UsageError("wrong-use", f"only root registers a runtime of {engine}", hint="sudo gpubind setup ...")
    request = Setup(engine, name, default, runtime, (root or "").rstrip("/"), this_program())
    if is_users:
        request = request._replace(
            data_home=_home("XDG_DATA_HOME", ".local/share"), config_home=_home("XDG_CONFIG_HOME", ".config")
        )
    changes = changes_to_remove(request) if undo else changes_to_register(request)
    text = "".join(map(_difference, changes))
    write_document(text, None)
    if not text:
        write_stderr("nothing to change\n")
    elif not dry_run:
        apply(request, changes)
        _report_next_steps(request, changes)


def _report_next_steps(setup: Setup, changes: tuple[FileChange, ...]) -> None:
    configuration = next(change for change in changes if change.path == setup.configuration)
    copies = [change for change in changes if change.path == setup.configuration + COPY and change.after is not None]
    after = setup.engine_spec.after
    if configuration.has_effect and not setup.root:
        write_stderr(f"{after if setup.data_home is None else after.replace('systemctl', 'systemctl --user')}\n")
    if copies:
        write_stderr(f"the earlier file: {copies[0].path}\n")


def _home(variable: str, below: str) -> str:
    """Errors: `UsageError` unless *variable* or HOME is an absolute path."""
    value = system.environ().get(variable, "")
    home = system.environ().get("HOME", "")
    if not value.startswith("/") and not home.startswith("/"):
        raise UsageError("wrong-use", "HOME is not set", hint="set it, or run this as root")
    return value if value.startswith("/") else f"{home.rstrip('/')}/{below}"


def _difference(change: FileChange) -> str:
    """Return *change* as `diff -u` prints it; empty for a new copy."""
    import difflib

    if not change.has_effect or (change.is_copy and change.before is None):
        return ""
    before, after = (
        (data or b"").decode("utf-8", "replace").splitlines(keepends=True) for data in (change.before, change.after)
    )
    old = change.path if change.before is not None else "/dev/null"
    new = change.path if change.after is not None else "/dev/null"
    lines = difflib.unified_diff(before, after, old, new)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


SETUP = Subcommand(
    setup,
    (
        Option("--name NAME", "The runtime's name for the engine. [gpubind]", "Launch", default="gpubind"),
        Option("--default", "Make it the engine's default runtime, for every container.", "Launch"),
        Option(
            "--runtime PROGRAM",
            "The runtime that takes over. [runc; crun for podman]",
            "Launch",
            choices=tuple(dict.fromkeys(name for one in ENGINES.values() for name in one.runtimes)),
        ),
        Option("--root DIR", "Read and write below this directory: the image of a node. [/]", "Which host"),
        DRY_RUN._replace(help="Print the difference, and write nothing."),
        Option("--undo", "Remove it again.", "Launch"),
    ),
    (Argument("engine", "|".join(ENGINES), "The engine.", choices=tuple(ENGINES), unknown="wrong-use"),),
    common=("--name", "--default", "--runtime", "--dry-run", "--undo"),
    examples=(
        ("what would change", "gpubind setup docker --dry-run"),
        ("also for clients that look for NVIDIA's runtime", "gpubind setup docker --name nvidia"),
        ("as it was", "gpubind setup docker --undo"),
    ),
    exit_codes=(
        ("0", "done, or nothing to change"),
        ("2", "usage error, or the place is taken"),
        ("4", "a file cannot be read or written"),
        ("5", "the configuration of the engine is malformed"),
        ("6", "there is no runtime that takes over"),
    ),
    shared=(),
)
