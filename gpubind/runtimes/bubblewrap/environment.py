"""The environment of a container that bubblewrap starts: the one that Apptainer would give it.

The caller's variables pass, except a few. The image's replace them, then the plan's, then the user's. A shell of the
image reads the image's environment scripts, without the caller's variables and in Apptainer's order. It then sets the
other variables, and becomes the command.

Source: Apptainer 1.4.5 `internal/pkg/util/env/clean.go`, `internal/pkg/util/fs/files/action_script.sh`. It was run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Optional

from gpubind.files import Tree
from gpubind.image.environment import (
    DEFAULT_PATH,
    DOCKER_ENVIRONMENT_SCRIPTS,
    ENVIRONMENT_DIRECTORY,
    SEARCH_PATHS,
    read_environment,
)
from gpubind.model import EnvVar, Missing
from gpubind.model.host import values_of
from gpubind.runtimes.bubblewrap.options import UserBwrapOptions
from gpubind.runtimes.environment import BaseEnvironment, compose, search_path, set_variables

SHELLS = (("/bin/bash", "-p", "-c"), ("/bin/sh", "-c"))
"""The shells that read the scripts, bash first, because Apptainer reads them as bash would. With -p, bash reads no
file that the caller names (BASH_ENV).
"""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PASSED_VARIABLE = re.compile(r"(?!PATH$|LD_LIBRARY_PATH$|(?:APPTAINER|SINGULARITY)(?:ENV)?_)[A-Za-z_][A-Za-z0-9_]*")
"""The caller's variables that a container gets. It does not get bash's exported functions."""
_READ_ONLY_VARIABLE = re.compile(
    r"HOME|PWD|_|OPTIND|U?GID|E?UID|PPID|SHLVL|IFS|BASHOPTS|SHELLOPTS|BASH_VERSINFO|__gpubind.*"
)
"""Variables that the scripts may see, and those that a shell cannot unset."""

_HIDE_SCRIPT = """for __gpubind in {names}
do
eval "test -z \\"\\${{$__gpubind+.}}\\" || __gpubind_$__gpubind=\\$$__gpubind"
unset "$__gpubind"
done
"""
_READ_SCRIPT = f"""unset PATH LD_LIBRARY_PATH
for __gpubind in {ENVIRONMENT_DIRECTORY}/*.sh
do
test -f "$__gpubind" || continue
case ${{__gpubind##*/}} in
99-base.sh|99-runtimevars.sh) continue;;
90-environment.sh) export PATH="${{PATH-{DEFAULT_PATH}}}";;
esac
. "$__gpubind"
case ${{__gpubind##*/}} in
{"|".join(DOCKER_ENVIRONMENT_SCRIPTS)}) for __gpubind in {DEFAULT_PATH.replace(":", " ")}
do
case :$PATH: in
*:$__gpubind:*) ;;
*) export PATH="${{PATH:+$PATH:}}$__gpubind";;
esac
done;;
esac
done
set +aefu
unset IFS
"""
_RESTORE_SCRIPT = """for __gpubind in {names}
do
if eval "test -z \\"\\${{__gpubind_$__gpubind+.}}\\""
then :
elif eval "test -z \\"\\${{$__gpubind+.}}\\""
then eval "export $__gpubind=\\"\\$__gpubind_$__gpubind\\""
elif eval "test -z \\"\\$$__gpubind\\""
then unset "$__gpubind"
fi
done
"""
_LIBRARY_PATH = """__gpubind=:{first}:${{LD_LIBRARY_PATH-}}:{last}:
while :
do
case $__gpubind in
*::*) __gpubind=${{__gpubind%%::*}}:${{__gpubind#*::}};;
*) break;;
esac
done
__gpubind=${{__gpubind#:}}
if test -n "${{__gpubind%:}}"
then export LD_LIBRARY_PATH="${{__gpubind%:}}"
else unset LD_LIBRARY_PATH
fi
"""
_AFTER_OTHERS = {
    "append": 'export {name}="${{{name}:+${name}:}}"{value}\n',
    "default": 'test -n "${{{name}:-}}" || export {name}={value}\n',
}
_EXEC_SCRIPT = """unset __gpubind
case $1 in
-*) exec -- "$@";;
esac
exec "$@\""""


def environment(
    operations: tuple[EnvVar, ...], environ: Mapping[str, str], user_options: UserBwrapOptions, image: Tree
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the environment of a container of *image*, from *environ*, *operations* and the user's options.

    It has three parts: options that follow the user's; arguments that precede the command (a shell with its script, or
    none); and the variables whose values do not depend on the image's scripts.
    """
    passed = {name: value for name, value in environ.items() if _PASSED_VARIABLE.fullmatch(name)}
    callers = {} if user_options.clears_env else passed
    dropped = ["LD_LIBRARY_PATH", *sorted(environ.keys() - passed.keys())]
    users = dict(user_options.env)
    options = [arg for name in dict.fromkeys(dropped) if name not in users for arg in ("--unsetenv", name)]
    shell = _shell(image)
    if shell is None:
        images = _image_variables(image)
        values = BaseEnvironment(users, images={**callers, **images})
        final: dict[str, Optional[str]] = {**images, **users, **compose(operations, values)}
        for name in SEARCH_PATHS:
            if users.get(name, "") is not None:
                final[name] = search_path(name, operations, values) or None
        for name, value in sorted(final.items()):
            options += ["--unsetenv", name] if value is None else ["--setenv", name, value]
        return tuple(options), (), tuple(sorted(set_variables(final)))
    if "LD_LIBRARY_PATH" in users:
        options += ["--unsetenv", "LD_LIBRARY_PATH"]  # the shell itself has no use for it
    names = (name for name in dict.fromkeys((*sorted(callers), *users)) if name not in SEARCH_PATHS)
    hidden = [name for name in names if _NAME.fullmatch(name) and not _READ_ONLY_VARIABLE.fullmatch(name)]
    fixed_values = _fixedvalues_of(operations, users)
    script = _script(operations, users, hidden, fixed_values)
    return tuple(options), (*shell, script, shell[0]), tuple(sorted(set_variables(fixed_values)))


def _script(
    operations: tuple[EnvVar, ...],
    users: Mapping[str, Optional[str]],
    names: list[str],
    fixed_values: Mapping[str, Optional[str]],
) -> str:
    """Return the script that reads the image's scripts without the caller's *names*, and then sets all variables."""
    joined_names = " ".join(names)
    parts = [_HIDE_SCRIPT.format(names=joined_names)] if names else []
    parts.append(_READ_SCRIPT)
    parts += [_RESTORE_SCRIPT.format(names=joined_names)] if names else []
    if "PATH" not in fixed_values:
        before = "".join(f"{part}:" for part in values_of(operations, "PATH", "prepend"))
        after = "".join(f":{part}" for part in values_of(operations, "PATH", "append"))
        parts.append(f'export PATH={shlex.quote(before)}"${{PATH-{DEFAULT_PATH}}}"{shlex.quote(after)}\n')
    if "LD_LIBRARY_PATH" not in fixed_values:
        ours = values_of(operations, "LD_LIBRARY_PATH", "prepend", "set")
        first = ":".join(filter(None, (users.get("LD_LIBRARY_PATH"), *ours)))
        last = ":".join(values_of(operations, "LD_LIBRARY_PATH", "append"))
        parts.append(_LIBRARY_PATH.format(first=shlex.quote(first), last=shlex.quote(last)))
    for name, op, value, *_ in operations:
        if op in _AFTER_OTHERS and name not in SEARCH_PATHS and name not in users:
            parts.append(_AFTER_OTHERS[op].format(name=name, value=shlex.quote(value or "")))
    for name, value in sorted(fixed_values.items()):
        if _NAME.fullmatch(name):
            parts.append(f"unset {name}\n" if value is None else f"export {name}={shlex.quote(value)}\n")
    return "".join((*parts, _EXEC_SCRIPT))


def _fixedvalues_of(operations: tuple[EnvVar, ...], users: Mapping[str, Optional[str]]) -> dict[str, Optional[str]]:
    """Return the variables whose values do not depend on the image's; None for one that is to be removed."""
    changes = {operation.name: operation.value for operation in operations if operation.op in ("set", "unset")}
    values: dict[str, Optional[str]] = {**changes, **users}
    for name in SEARCH_PATHS:
        values.pop(name, None)
        if users.get(name, "") is None:
            values[name] = None
    if users.get("PATH") is not None:
        values["PATH"] = search_path("PATH", operations, BaseEnvironment(users))
    return values


def _shell(image: Tree) -> Optional[tuple[str, ...]]:
    """Return a shell of *image*, with its options, that can read the image's environment files.

    None if the image has no such shell, or no such files.
    """
    if isinstance(image.list(ENVIRONMENT_DIRECTORY), Missing):
        return None
    for shell in SHELLS:
        stat = image.stat(shell[0])
        if not isinstance(stat, Missing) and stat.kind == "file" and stat.mode & 0o111:
            return shell
    return None


def _image_variables(image: Tree) -> dict[str, str]:
    """Return the image's variables whose values are known without a shell."""
    exports = read_environment(image)
    exported = {name for name in exports.env if name in exports.exported or name in SEARCH_PATHS}
    return {name: value for name, value in exports.env.items() if value is not None and name in exported}
