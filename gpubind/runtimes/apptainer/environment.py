"""The variables of a plan for Apptainer and SingularityCE: LD_LIBRARY_PATH above all.

Sources: Apptainer 1.4.5, 1.5.3 and 1.6 `internal/pkg/util/fs/files/action_script.sh`; reference of `--env` in both user
guides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, Optional

from gpubind.model import ContainerPath, EnvVar, Finding, ImageFacts, Missing, Plan, finding
from gpubind.planner.placement import SINGULARITY_LAYOUT
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

LIBDIR = SINGULARITY_LAYOUT.libdir
ENVIRONMENT_SCRIPT = ContainerPath("/.singularity.d/env/99-zz-gpubind.sh")
"""A script that is read after the environment files of images: it sorts after 99-base.sh and 99-runtimevars.sh."""
BASE_SCRIPT = ContainerPath("/.singularity.d/env/99-base.sh")
"""The last of the environment files that images have, and the one that can be replaced."""

IMAGE_VALUE_APPENDED = "${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH//::/:}}"
"""Shell text that appends the image's value to another value. It removes empty elements, which would mean the
current directory. Apptainer's 99-base.sh ends the image's value with a directory, so no empty element is at its
end.
"""
_REFERENCE = re.compile(r"(?<!\\)\$(?:LD_LIBRARY_PATH(?![A-Za-z0-9_])|\{LD_LIBRARY_PATH\})")
_ESCAPED = re.compile(r"[\\$`]")
_SPECIAL_IN_DEFAULT = re.compile(r"[\\$`\"'}]")


def generated_files(plan: Plan, start: Start) -> dict[ContainerPath, str]:
    """Return the texts of the files that the start adds to those of *plan*, by path in the container.

    Values may not be evaluated, while only a shell knows the image's LD_LIBRARY_PATH. A script among the image's
    environment files then prepends the driver's directory. If no mount point can be made for the script, a copy of the
    image's last file, with the script added to it, replaces that file. An instance also needs the script: commands that
    enter it get no value of --env, and the caller's value may refer to the image's.
    """
    libdirs = library_directories(plan)
    if start.tree is None or plan.image is None or not plan.image.singularity or _can_prepend(start) or not libdirs:
        return {}
    user_var = user_value(start, "LD_LIBRARY_PATH")
    is_callers = start.is_entered and "LD_LIBRARY_PATH" not in start.user.options.env
    if user_var is not None and not (is_callers and _REFERENCE.search(user_var.text or "")):
        return {}
    if _is_libpath_unset(plan.image) if start.is_entered else _keep_image_value(plan.image, start, libdirs) is not None:
        return {}
    from shlex import quote

    value = f"{quote(libdirs)}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
    script = f"LD_LIBRARY_PATH={value}\nexport LD_LIBRARY_PATH\n"
    if not has_fixed_mount_points(start):
        return {ENVIRONMENT_SCRIPT: script}
    base = start.tree.read_text(BASE_SCRIPT)
    return {} if isinstance(base, Missing) else {BASE_SCRIPT: f"{base}\n{script}"}


def environment(plan: Plan, start: Start, stage: Stage) -> tuple[tuple[tuple[str, str], ...], list[Finding]]:
    """Return the variables for the options, as text that the program evaluates. The user's own values are kept."""
    env: list[tuple[str, str]] = []
    for variable in plan.env:
        if variable.name != "LD_LIBRARY_PATH":
            env += _variable(variable, start)
    libdirs = library_directories(plan)
    if not libdirs or any(script in stage.files for script in (ENVIRONMENT_SCRIPT, BASE_SCRIPT)):
        return tuple(env), []
    pair, findings = _library_path(plan.image, start, libdirs)
    return (*env, *([pair] if pair else [])), findings


def library_directories(plan: Plan) -> str:
    """Return the directories that the plan prepends to LD_LIBRARY_PATH, joined by colons."""
    directories = (v.value for v in plan.env if v.name == "LD_LIBRARY_PATH" and v.op == "prepend" and v.value)
    return ":".join(dict.fromkeys(directories))


def _can_prepend(start: Start) -> bool:
    """Return whether the program reads PREPEND_LD_LIBRARY_PATH: Apptainer from 1.5 on."""
    return is_since(start, (1, 5))


def _variable(variable: EnvVar, start: Start) -> Iterator[tuple[str, str]]:
    value = variable.value or ""
    if not is_literal(start.user.options):  # the container's shell evaluates it in double quotes, though quotes stay
        value = _ESCAPED.sub(r"\\\g<0>", value)
    if variable.name == "PATH" and variable.op in ("prepend", "append") and value:
        name = f"{variable.op.upper()}_PATH"
        user_var = user_value(start, name)
        parts = [user_var.text, value] if user_var is not None and user_var.text else [value]
        if user_var is None or user_var.text is not None:
            yield name, ":".join(parts)
    elif user_value(start, variable.name) is not None:
        return
    elif variable.op == "set" and variable.value is not None:
        yield variable.name, value
    elif variable.op in ("append", "default") and not is_literal(start.user.options):
        yield from _added(variable, value, start)


def _added(variable: EnvVar, value: str, start: Start) -> Iterator[tuple[str, str]]:
    """Yield *variable* with *value* as an addition to the image's or the caller's value, or as a default.

    The container's shell knows the image's value, which takes precedence over the caller's. If values are not
    evaluated, neither can be kept; then nothing is set, as with --nv. Nothing is set either for a value with special
    characters, which no backslash protects in a default of the shell.
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
    image: Optional[ImageFacts], start: Start, libdirs: str
) -> tuple[Optional[tuple[str, str]], list[Finding]]:
    """Return the variable for LD_LIBRARY_PATH; None if none is needed.

    Its value has the user's directories, then *libdirs*, then the image's. The program appends its own library
    directory.
    """
    name = "LD_LIBRARY_PATH"
    user_var = user_value(start, name)
    # Without environment files in the image LD_LIBRARY_PATH stays unset, and the program prepends nothing.
    if _can_prepend(start) and user_var is None and (image is None or image.singularity):
        name = "PREPEND_LD_LIBRARY_PATH"
        user_var = user_value(start, name)
        if user_var is None or user_var.text is not None:
            return (name, f"{user_var.text}:{libdirs}" if user_var is not None and user_var.text else libdirs), []
    if start.facts.version is not None and image is not None and image.singularity and _is_libpath_unset(image):
        front = _value_before_libdir(user_var, libdirs)
        if front is not None:
            return ((name, front), []) if front else (None, [])
    if user_var is None:
        after = _keep_image_value(image, start, libdirs)
        if after is None:
            return None, [_library_path_last("image", name, libdirs)]
        return (name, libdirs + after), []
    if user_var.text is None:
        # Only the program's shell knows the user's value. The program appends its own directory.
        return None, [] if libdirs == LIBDIR else [_library_path_last("env-file", name, libdirs)]
    if f":{libdirs}:" in f":{user_var.text}:" or f"{libdirs}${{LD_LIBRARY_PATH" in user_var.text:
        return None, []  # a plan in the caller's environment already has it
    is_last = start.is_entered and name in start.user.options.env and image is not None and not _is_libpath_unset(image)
    last = [_library_path_last("entered", name, libdirs)] if is_last else []
    return (name, _value_after_user(user_var.text, image, start, libdirs)), last


def _value_before_libdir(user_var: Optional[UserValue], libdirs: str) -> Optional[str]:
    """Return the value for an image without LD_LIBRARY_PATH: *libdirs* without the last one, which the program appends.

    Empty if nothing needs to be set. None if the last of *libdirs* is not the program's own directory, or if the user's
    value is empty or refers to the image's.
    """
    user_text = "" if user_var is None else user_var.text
    if libdirs.rpartition(":")[2] != LIBDIR or user_text is None or (user_var is not None and not user_text):
        return None
    front = libdirs.rpartition(":")[0]
    if _REFERENCE.search(user_text):
        return None
    return f"{user_text}:{front}".strip(":") if front else ""


def _value_after_user(text: str, image: Optional[ImageFacts], start: Start, libdirs: str) -> str:
    """Return the user's directories, then *libdirs*, then the image's without empty elements.

    If the user's value itself refers to the image's value, *libdirs* precede that reference.
    """
    if not text:
        return libdirs
    if is_literal(start.user.options):
        return f"{text}:{libdirs}{_keep_image_value(image, start, libdirs) or ''}"
    replacement = f"{libdirs}:${{LD_LIBRARY_PATH:-{libdirs.rpartition(':')[2]}}}"
    referring, count = _REFERENCE.subn(lambda _: replacement, text)
    return referring if count else f"{text}:{libdirs}{IMAGE_VALUE_APPENDED}"


def _keep_image_value(image: Optional[ImageFacts], start: Start, libdirs: str) -> Optional[str]:
    """Return the text that appends the image's value to the plan's; None if no text can do that.

    The text refers to the value: only a shell can evaluate the image's environment files reliably. That value ends with
    the program's own directory, which the program appends again. A default in the text prevents an empty element. If
    the text stays literal because of a --no-eval that gpubind does not know, the plan's directories still come first.
    """
    if image is not None and _is_libpath_unset(image):
        return ""
    if not is_literal(start.user.options):
        if image is not None and image.singularity:
            return f":${{LD_LIBRARY_PATH%:{LIBDIR}}}"
        return f":${{LD_LIBRARY_PATH:-{libdirs.rpartition(':')[2]}}}"
    if image is None or "LD_LIBRARY_PATH" in image.undecided:
        return None
    image_value = image.env.get("LD_LIBRARY_PATH", "")
    return None if "$" in image_value else "".join(f":{element}" for element in image_value.split(":") if element)


def _is_libpath_unset(image: ImageFacts) -> bool:
    return "LD_LIBRARY_PATH" not in image.undecided and not image.env.get("LD_LIBRARY_PATH")


def user_override_findings(plan: Plan, start: Start) -> Iterator[Finding]:
    """Yield the finding that the user's --env value, which refers to the image's, replaces that of a variable."""
    user_var, libdirs = user_value(start, "LD_LIBRARY_PATH"), library_directories(plan)
    text = (user_var.text or "") if user_var is not None and not user_var.is_literal else ""
    may_be_set = plan.image is None or not _is_libpath_unset(plan.image)
    if libdirs and may_be_set and "LD_LIBRARY_PATH" in text and f":{libdirs}:" not in f":{text}:":
        yield _library_path_last("command-line", "LD_LIBRARY_PATH", libdirs)


def _library_path_last(
    whose: Literal["image", "env-file", "command-line", "entered"], name: str, libdirs: str
) -> Finding:
    return finding("library-path-last", subject="LD_LIBRARY_PATH", case=whose, where=libdirs, name=name)


def env_value(name: str, value: str) -> str:
    """Return the value of an --env option. Errors: `RuntimeLimitError` (code `unsupported-value`)."""
    option_value = format_map(name, value)
    why = "it has a carriage return before a newline, which --env changes" if option_value is None else ""
    if not is_utf8(value):
        why = "it is not UTF-8, and this program hands values on as JSON"
    if option_value is None or why:
        raise unsupported_value(name, why, "leave out the CDI device that sets it")
    return option_value
