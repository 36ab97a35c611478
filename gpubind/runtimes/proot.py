"""PRoot: no privilege and no namespace; it rewrites the paths of a program's system calls.

`-R` brings the host's /dev, /proc, /sys, /tmp, home and user database. It has no read-only bind, none for a single node
next to a whole /dev, and no option for variables: they stand in its own environment, which the program inherits.

Source: `proot --help` of 5.1.0, which was run; `src/path/binding.c` (a colon always ends the source).
"""

from __future__ import annotations

from posixpath import normpath
from typing import Optional

from gpubind.loader.namespace import OwnMounts
from gpubind.model import HostPath, Mount, Plan
from gpubind.model.environ import changed
from gpubind.runtimes.edits import (
    HOST_DIRECTORIES,
    RuntimeArguments,
    edits_of,
    in_host_directory,
    own_binds,
    own_mounts_of,
    same_place,
    shared_dev,
    source_and_target,
)
from gpubind.runtimes.environment import Values, compose, known, library_path
from gpubind.runtimes.runtime import NO_STAGE, Call, Command, Limits, Prepared, Runtime, Stage, Start, one_line

FROM_HOST = ("/etc/hosts", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/localtime")


class Proot(Runtime):
    name = "proot"
    title = "PRoot"
    images = ("directory",)
    image_hint = "unpack it: `apptainer build --sandbox DIR IMAGE`, or use --backend apptainer"
    limits = Limits(no_read_only_bind=True, hides_missing_command=True)
    isolates_dev = False

    def words(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> RuntimeArguments:
        edits = edits_of(plan, stage.files, own_binds(start.user.options.all("bind")), _obstacle)
        why = "PRoot ends a path at a colon, and takes a `!` at its end for an option of the bind"
        options = [word for bind in edits.binds for word in ("-b", source_and_target(bind, why, ("!",)))]
        env = compose(plan.env, Values(callers=start.caller.environ, images=library_path(plan)))
        findings = (*edits.findings, *shared_dev(plan, "always"), *self.write_access(edits, plan, start, stage))
        unset = tuple(name for name, value in env.items() if value is None and name in start.caller.environ)
        return RuntimeArguments(tuple(options), edits.binds, known(env), edits.decisions, findings, unset)

    def command(self, call: Call, start: Start, words: RuntimeArguments) -> Command:
        """Return the whole command line; `run` starts the image's runscript, `shell` its shell."""
        place = () if start.user.options.last("cwd") is not None else ("-w", _directory(start))
        options = (*place, *start.user.arguments, *words.options)
        argv = (call.program, "-R", call.image, *options, *start.in_directory(call))
        return Command(argv, changed(start.caller.environ, unset=words.unset, values=dict(words.env)))

    def own_mounts(self, plan: Plan, start: Start) -> OwnMounts:
        home = start.caller.environ.get("HOME", "")
        paths = (*HOST_DIRECTORIES, *FROM_HOST, *([home] if home in start.caller.directories else ()))
        binds = (*same_place(paths), *own_binds(start.user.options.all("bind")))
        return own_mounts_of(binds, start.caller.environ, start.user.options.last("cwd") or _directory(start))

    def render(self, form: str, prepared: Prepared, *, quoted: bool = False) -> str:
        """Return the words that take the place of `proot`: a command line has no other way to set a variable."""
        words = prepared.words
        variables = (*(f"--unset={name}" for name in words.unset), *(f"{name}={value}" for name, value in words.env))
        options = ("env", *variables, self.name, *words.options)
        return one_line(words._replace(options=options, unset=()), self.name, quoted=quoted)


def _obstacle(mount: Mount, source: HostPath) -> Optional[str]:
    """Return an empty reason for a file that a directory of the host provides at its place: it needs no bind."""
    return "" if in_host_directory(mount) and str(source) == mount.target else None


def _directory(start: Start) -> str:
    """Return where the program starts: the caller's directory, if the container has it."""
    working, home = start.caller.working_directory or "/", start.caller.environ.get("HOME", "")
    inside = any(f"{working}/".startswith(f"{path}/") for path in (*HOST_DIRECTORIES, home) if path)
    return normpath(working) if inside or (start.tree is not None and start.tree.has(working)) else "/"


PROOT = Proot()
