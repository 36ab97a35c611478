"""The environment of a container that bubblewrap starts: the one that Apptainer would give it.

The caller's variables pass, but for a few; the image's own win over them, then come the plan's, then the user's. An
image's environment scripts are shell, so a shell of the image reads them, without the caller's variables and in
Apptainer's order, sets what comes after them, and then becomes the command.

Source: Apptainer 1.4.5 `internal/pkg/util/env/clean.go`, `internal/pkg/util/fs/files/action_script.sh`. It was run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple, Optional

from gpubind.files import Tree
from gpubind.image.environment import DEFAULT_PATH, DOCKER_FILES, ENVIRONMENT, SEARCH_PATHS, read_environment
from gpubind.model import EnvVar, Missing
from gpubind.runtimes.bubblewrap.options import BubblewrapOptions

SHELLS = (("/bin/bash", "-p", "-c"), ("/bin/sh", "-c"))
"""bash first: Apptainer reads the scripts as bash would. With -p it reads no file of the caller's (BASH_ENV)."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PASSED = re.compile(r"(?!PATH$|LD_LIBRARY_PATH$|(?:APPTAINER|SINGULARITY)(?:ENV)?_)[A-Za-z_][A-Za-z0-9_]*")
"""Variables of the caller's that come into a container. Exported functions of bash do not."""
_LEFT_ALONE = re.compile(r"HOME|PWD|_|OPTIND|U?GID|E?UID|PPID|SHLVL|IFS|BASHOPTS|SHELLOPTS|BASH_VERSINFO|__gpubind.*")
"""Those that the scripts may see, and those that a shell does not let go."""

_HIDE = """for __gpubind in {names}
do
eval "test -z \\"\\${{$__gpubind+.}}\\" || __gpubind_$__gpubind=\\$$__gpubind"
unset "$__gpubind"
done
"""
_READ = """unset PATH LD_LIBRARY_PATH
for __gpubind in {directory}/*.sh
do
test -f "$__gpubind" || continue
case ${{__gpubind##*/}} in
99-base.sh|99-runtimevars.sh) continue;;
90-environment.sh) export PATH="${{PATH-{path}}}";;
esac
. "$__gpubind"
case ${{__gpubind##*/}} in
{docker}) for __gpubind in {directories}
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
_RESTORE = """for __gpubind in {names}
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
_BEHIND = {
    "append": 'export {name}="${{{name}:+${name}:}}"{value}\n',
    "default": 'test -n "${{{name}:-}}" || export {name}={value}\n',
}
_BECOME = """unset __gpubind
case $1 in
-*) exec -- "$@";;
esac
exec "$@\""""


class BubblewrapEnvironment(NamedTuple):
    """How a container gets its environment."""

    options: tuple[str, ...]
    """Words that come after the user's own."""
    prefix: tuple[str, ...]
    """What stands before the command: a shell with its script, or nothing."""
    env: tuple[tuple[str, str], ...]
    """What is set for certain, whatever the image's scripts say."""


def environment(
    plan_env: tuple[EnvVar, ...], environ: Mapping[str, str], given: BubblewrapOptions, image: Tree
) -> BubblewrapEnvironment:
    """The environment of a container of *image* that *environ* is around, with *plan_env* and the user's own words."""
    passed = () if given.cleared else tuple(name for name in sorted(environ) if _PASSED.fullmatch(name))
    dropped = ["LD_LIBRARY_PATH", *(name for name in sorted(environ) if not _PASSED.fullmatch(name))]
    users = dict(given.env)
    options = [word for name in dict.fromkeys(dropped) if name not in users for word in ("--unsetenv", name)]
    shell = _shell(image)
    if shell is None:
        base = _known(image)
        ends = _ends(plan_env, users, base.get("PATH", DEFAULT_PATH), base.get("LD_LIBRARY_PATH", ""))
        final = {**{name: value for name, value in base.items() if name not in users}, **ends}
        for variable in _lists(plan_env, users):
            there = base.get(variable.name) or (environ.get(variable.name) if variable.name in passed else None)
            added = [variable.value or ""] if variable.op == "append" or not there else []
            final[variable.name] = ":".join([*([there] if there else []), *added])
        for name, value in sorted(final.items()):
            options += ["--unsetenv", name] if value is None else ["--setenv", name, value]
        return BubblewrapEnvironment(tuple(options), (), _certain(final))
    if "LD_LIBRARY_PATH" in users:
        options += ["--unsetenv", "LD_LIBRARY_PATH"]  # the shell itself has no use for it
    names = [n for n in dict.fromkeys((*passed, *users)) if _NAME.fullmatch(n) and not _LEFT_ALONE.fullmatch(n)]
    hidden = [name for name in names if name not in SEARCH_PATHS]
    script = _script(plan_env, users, hidden)
    return BubblewrapEnvironment(
        tuple(options), (*shell, script, shell[0]), _certain(_ends(plan_env, users, None, None))
    )


def _script(plan_env: tuple[EnvVar, ...], users: Mapping[str, Optional[str]], names: list[str]) -> str:
    words = " ".join(names)
    directories = DEFAULT_PATH.replace(":", " ")
    parts = [_HIDE.format(names=words)] if names else []
    parts.append(
        _READ.format(directory=ENVIRONMENT, path=DEFAULT_PATH, docker="|".join(DOCKER_FILES), directories=directories)
    )
    parts += [_RESTORE.format(names=words)] if names else []
    ends = _ends(plan_env, users, None, None)
    if "PATH" not in ends:
        front, back = planned(plan_env, "PATH")
        before, behind = "".join(f"{part}:" for part in front), "".join(f":{part}" for part in back)
        parts.append(f'export PATH={shlex.quote(before)}"${{PATH-{DEFAULT_PATH}}}"{shlex.quote(behind)}\n')
    if "LD_LIBRARY_PATH" not in ends:
        parts.append(
            _LIBRARY_PATH.format(first=shlex.quote(_first(plan_env, users)), last=shlex.quote(_last(plan_env)))
        )
    parts += [_BEHIND[v.op].format(name=v.name, value=shlex.quote(v.value or "")) for v in _lists(plan_env, users)]
    for name, value in sorted(ends.items()):
        if _NAME.fullmatch(name):
            parts.append(f"unset {name}\n" if value is None else f"export {name}={shlex.quote(value)}\n")
    return "".join((*parts, _BECOME))


def _ends(
    plan_env: tuple[EnvVar, ...], users: Mapping[str, Optional[str]], path: Optional[str], library_path: Optional[str]
) -> dict[str, Optional[str]]:
    """What is set or, with None, taken away once the image's own is in place; *path* and *library_path* are its own.

    Without them, what builds on them is left out.
    """
    ends: dict[str, Optional[str]] = {}
    for variable in plan_env:
        if variable.op in ("set", "unset") and variable.name not in SEARCH_PATHS:
            ends[variable.name] = variable.value
    ends.update(users)
    ends.pop("LD_LIBRARY_PATH", None)
    path = users.get("PATH", path)
    if path is not None:
        front, back = planned(plan_env, "PATH")
        ends["PATH"] = ":".join((*front, path, *back))
    if "LD_LIBRARY_PATH" in users and users["LD_LIBRARY_PATH"] is None:
        ends["LD_LIBRARY_PATH"] = None
    elif library_path is not None:
        elements = f"{_first(plan_env, users)}:{library_path}:{_last(plan_env)}".split(":")
        ends["LD_LIBRARY_PATH"] = ":".join(element for element in elements if element) or None
    return ends


def _lists(plan_env: tuple[EnvVar, ...], users: Mapping[str, Optional[str]]) -> list[EnvVar]:
    """Return what the plan puts behind the values of image and caller, search paths apart; the user's own word wins."""
    return [v for v in plan_env if v.op in _BEHIND and v.name not in SEARCH_PATHS and v.name not in users]


def _first(plan_env: tuple[EnvVar, ...], users: Mapping[str, Optional[str]]) -> str:
    """Return what comes before the image's own LD_LIBRARY_PATH: the user's, then the plan's."""
    ours, _ = planned(plan_env, "LD_LIBRARY_PATH")
    return ":".join(part for part in (users.get("LD_LIBRARY_PATH") or "", *ours) if part)


def _last(plan_env: tuple[EnvVar, ...]) -> str:
    return ":".join(planned(plan_env, "LD_LIBRARY_PATH")[1])


def planned(plan_env: tuple[EnvVar, ...], name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a plan puts in front of the search path *name*, and behind it."""
    found = [(variable.op, variable.value) for variable in plan_env if variable.name == name and variable.value]
    front = tuple(value for op, value in found if op != "append")
    return front, tuple(value for op, value in found if op == "append")


def _shell(image: Tree) -> Optional[tuple[str, ...]]:
    """A shell that can read the image's environment files, with its options; None if there is none, or no file."""
    if isinstance(image.list(ENVIRONMENT), Missing):
        return None
    for shell in SHELLS:
        found = image.stat(shell[0])
        if not isinstance(found, Missing) and found.kind == "file" and found.mode & 0o111:
            return shell
    return None


def _known(image: Tree) -> dict[str, str]:
    """Return what is known of the image's own variables without a shell."""
    exports = read_environment(image)
    exported = {name for name in exports.env if name in exports.exported or name in SEARCH_PATHS}
    return {name: value for name, value in exports.env.items() if value is not None and name in exported}


def _certain(ends: Mapping[str, Optional[str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in ends.items() if value is not None))
