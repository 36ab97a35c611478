"""The variables of a plan for Apptainer and SingularityCE: LD_LIBRARY_PATH above all.

Sources: Apptainer 1.4.5, 1.5.3 and 1.6 `internal/pkg/util/fs/files/action_script.sh`; reference of `--env` in both user
guides.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Literal, Optional

from gpubind.model import ContainerPath, EnvVar, Finding, ImageFacts, Missing, Plan, finding
from gpubind.planner.placement import SINGULARITY_LAYOUT as LAYOUT
from gpubind.runtimes.apptainer.options import (
    UserValue,
    has_fixed_mount_points,
    is_kept_out,
    is_literal,
    is_since,
    user_value,
)
from gpubind.runtimes.cmdline.values import format_map
from gpubind.runtimes.edits import is_utf8, unsupported_value
from gpubind.runtimes.runtime import Stage, Start

LIBDIR = LAYOUT.libdir
ENVIRONMENT_SCRIPT = ContainerPath("/.singularity.d/env/99-zz-gpubind.sh")
"""Read after all environment files of an image: its name sorts after 99-base.sh and 99-runtimevars.sh."""
BASE_SCRIPT = ContainerPath("/.singularity.d/env/99-base.sh")
"""The last of an image's environment files that is there to be covered."""

IMAGE_VALUE_APPENDED = "${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH//::/:}}"
"""The image's value after another, without empty elements: those mean the current directory. Apptainer's 99-base.sh
ends it with a directory, so none is left at its end."""
_REFERENCE = re.compile(r"(?<!\\)\$(?:LD_LIBRARY_PATH(?![A-Za-z0-9_])|\{LD_LIBRARY_PATH\})")
_ESCAPED = re.compile(r"[\\$`]")
_SPECIAL_IN_DEFAULT = re.compile(r"[\\$`\"'}]")


def generated(plan: Plan, start: Start) -> dict[ContainerPath, str]:
    """Return the files of the start in addition to those of *plan*: their text, by their place in the container.

    Where values are not evaluated, and only a shell can tell the image's LD_LIBRARY_PATH, a script among the image's
    environment files puts the driver's directory in front: those are shell, whatever happens to values. Where no place
    can be made for it, it follows the text of the image's last file, in the place of that. So it is in an instance:
    commands that enter it get no value of --env, and one of the caller's environment may refer to the image's.
    """
    ours = library_directories(plan)
    if start.tree is None or plan.image is None or not plan.image.singularity or _can_prepend(start) or not ours:
        return {}
    users_own = user_value(start, "LD_LIBRARY_PATH")
    is_callers = start.is_entered and "LD_LIBRARY_PATH" not in start.user.options.env
    if users_own is not None and not (is_callers and _REFERENCE.search(users_own.text or "")):
        return {}
    if _sets_none(plan.image) if start.is_entered else _keep_image_value(plan.image, start, ours) is not None:
        return {}
    value = f"{shlex.quote(ours)}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
    script = f"LD_LIBRARY_PATH={value}\nexport LD_LIBRARY_PATH\n"
    if not has_fixed_mount_points(start):
        return {ENVIRONMENT_SCRIPT: script}
    base = start.tree.read_text(BASE_SCRIPT)
    return {} if isinstance(base, Missing) else {BASE_SCRIPT: f"{base}\n{script}"}


def environment(plan: Plan, start: Start, stage: Stage) -> tuple[tuple[tuple[str, str], ...], list[Finding]]:
    """Return the variables for the options, as the program evaluates them. The user's own values stay."""
    env: list[tuple[str, str]] = []
    for variable in plan.env:
        if variable.name != "LD_LIBRARY_PATH":
            env += _variable(variable, start)
    ours = library_directories(plan)
    if not ours or any(script in stage.files for script in (ENVIRONMENT_SCRIPT, BASE_SCRIPT)):
        return tuple(env), []
    pair, findings = _library_path(plan.image, start, ours)
    return (*env, *([pair] if pair else [])), findings


def library_directories(plan: Plan) -> str:
    """Return the directories that the plan puts in front in LD_LIBRARY_PATH; empty if there are none."""
    found = (v.value for v in plan.env if v.name == "LD_LIBRARY_PATH" and v.op == "prepend" and v.value)
    return ":".join(dict.fromkeys(found))


def _can_prepend(start: Start) -> bool:
    """Return whether the program has an option for what to put in front: Apptainer from 1.5 on."""
    return is_since(start, (1, 5))


def _variable(variable: EnvVar, start: Start) -> Iterator[tuple[str, str]]:
    value = variable.value or ""
    if not is_literal(start.user.options):  # the container's shell evaluates it in double quotes, though quotes stay
        value = _ESCAPED.sub(r"\\\g<0>", value)
    if variable.name == "PATH" and variable.op in ("prepend", "append") and value:
        name = f"{variable.op.upper()}_PATH"
        users_own = user_value(start, name)
        parts = [users_own.text, value] if users_own is not None and users_own.text else [value]
        if users_own is None or users_own.text is not None:
            yield name, ":".join(parts)
    elif user_value(start, variable.name) is None and variable.op == "set" and variable.value is not None:
        yield variable.name, value
    elif (
        user_value(start, variable.name) is None
        and variable.op in ("append", "default")
        and not is_literal(start.user.options)
    ):
        yield from _added(variable, value, start)


def _added(variable: EnvVar, value: str, start: Start) -> Iterator[tuple[str, str]]:
    """Yield *value* after the value of image or caller in that variable, or only where they have none.

    The container's shell knows the image's value, which takes precedence over the caller's. Without evaluation neither
    can be kept, so nothing is set, as with --nv. In a default of the shell no backslash protects a special character.
    """
    name = variable.name
    callers = "" if is_kept_out(start.user.options, name) else start.caller.environ.get(name, "")
    if variable.op == "default":
        if not callers and not _SPECIAL_IN_DEFAULT.search(variable.value or ""):
            yield name, f"${{{name}:-{value}}}"
    elif callers:
        if not _SPECIAL_IN_DEFAULT.search(callers):
            yield name, f"${{{name}:-{callers}}}:{value}"
    else:
        yield name, f"${{{name}:+${name}:}}{value}"


def _library_path(
    image: Optional[ImageFacts], start: Start, ours: str
) -> tuple[Optional[tuple[str, str]], list[Finding]]:
    """Return the option for LD_LIBRARY_PATH: the user's value, *ours*, then the image's; None where none is needed.

    The program itself appends its directory of libraries to whatever is there in the end.
    """
    name = "LD_LIBRARY_PATH"
    users_own = user_value(start, name)
    # Without an environment file of the image LD_LIBRARY_PATH stays unset, and then nothing is put in front of it.
    if _can_prepend(start) and users_own is None and (image is None or image.singularity):
        name = "PREPEND_LD_LIBRARY_PATH"
        users_own = user_value(start, name)
        if users_own is None or users_own.text is not None:
            return (name, f"{users_own.text}:{ours}" if users_own is not None and users_own.text else ours), []
    if start.facts.version is not None and image is not None and image.singularity and _sets_none(image):
        front = _without_programs_own(users_own, ours)
        if front is not None:
            return ((name, front), []) if front else (None, [])
    if users_own is None:
        after = _keep_image_value(image, start, ours)
        return ((name, ours + after), []) if after is not None else (None, [_library_path_last("image", name, ours)])
    if users_own.text is None:
        # Only the program's shell knows the user's value. The program appends its own directory.
        return None, [] if ours == LIBDIR else [_library_path_last("env-file", name, ours)]
    if f":{ours}:" in f":{users_own.text}:" or f"{ours}${{LD_LIBRARY_PATH" in users_own.text:
        return None, []  # a plan in the caller's environment has said it already
    is_last = start.is_entered and name in start.user.options.env and image is not None and not _sets_none(image)
    last = [_library_path_last("entered", name, ours)] if is_last else []
    return (name, _after_users(users_own.text, image, start, ours)), last


def _without_programs_own(users_own: Optional[UserValue], ours: str) -> Optional[str]:
    """Return what goes before the program's own directory, which is the last of *ours*, where the image has nothing.

    The program adds that directory by itself, so it is named once; an empty value: nothing is to be said. None where
    that is not enough: another directory is the last, or the user's value is empty or refers to the image's.
    """
    users = "" if users_own is None else users_own.text
    if ours.rpartition(":")[2] != LIBDIR or users is None or (users_own is not None and not users):
        return None
    front = ours.rpartition(":")[0]
    if _REFERENCE.search(users):
        return None
    return f"{users}:{front}".strip(":") if front else ""


def _after_users(text: str, image: Optional[ImageFacts], start: Start, ours: str) -> str:
    """Return the user's value, *ours*, then the image's without empty elements.

    Where the user's value itself refers to the image's, *ours* goes before that.
    """
    if not text:
        return ours
    if is_literal(start.user.options):
        return f"{text}:{ours}{_keep_image_value(image, start, ours) or ''}"
    theirs = f"{ours}:${{LD_LIBRARY_PATH:-{ours.rpartition(':')[2]}}}"
    referring, count = _REFERENCE.subn(lambda _: theirs, text)
    return referring if count else f"{text}:{ours}{IMAGE_VALUE_APPENDED}"


def _keep_image_value(image: Optional[ImageFacts], start: Start, ours: str) -> Optional[str]:
    """Return what keeps the image's own value after ours; None if nothing can.

    The container's shell knows that value best: an image's environment files are shell, and no parser knows what they
    will say. In it, the program's own directory is the last, and the program adds it once more. The default makes no
    empty element where nothing is set, and the whole still begins with our directories where a --no-eval that gpubind
    does not know takes it literally.
    """
    if image is not None and _sets_none(image):
        return ""
    if not is_literal(start.user.options):
        if image is not None and image.singularity:
            return f":${{LD_LIBRARY_PATH%:{LIBDIR}}}"
        return f":${{LD_LIBRARY_PATH:-{ours.rpartition(':')[2]}}}"
    if image is None or "LD_LIBRARY_PATH" in image.undecided:
        return None
    own = image.env.get("LD_LIBRARY_PATH", "")
    return None if "$" in own else "".join(f":{element}" for element in own.split(":") if element)


def _sets_none(image: ImageFacts) -> bool:
    return "LD_LIBRARY_PATH" not in image.undecided and not image.env.get("LD_LIBRARY_PATH")


def user_override_findings(plan: Plan, start: Start) -> Iterator[Finding]:
    """Yield that a value of the user's on the command line, which refers to the image's, replaces a variable's."""
    users, ours = user_value(start, "LD_LIBRARY_PATH"), library_directories(plan)
    text = (users.text or "") if users is not None and not users.is_literal else ""
    may_be_set = plan.image is None or not _sets_none(plan.image)
    if ours and may_be_set and "LD_LIBRARY_PATH" in text and f":{ours}:" not in f":{text}:":
        yield _library_path_last("command-line", "LD_LIBRARY_PATH", ours)


def _library_path_last(whose: Literal["image", "env-file", "command-line", "entered"], name: str, ours: str) -> Finding:
    return finding("library-path-last", subject="LD_LIBRARY_PATH", case=whose, where=ours, name=name)


def env_value(name: str, value: str) -> str:
    """Return the value of an --env option. Errors: `RuntimeLimitError` (code `unsayable-value`)."""
    word = format_map(name, value)
    why = "it has a carriage return before a newline, which --env changes" if word is None else ""
    if not is_utf8(value):
        why = "it is not UTF-8, and this program hands values on as JSON"
    if word is None or why:
        raise unsupported_value(name, why, "leave out the CDI device that sets it")
    return word
