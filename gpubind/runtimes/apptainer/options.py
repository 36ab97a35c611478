"""What the user asked of Apptainer or SingularityCE: by options, variables and the site's configuration.

Each is read once, by the program's own rules. A value on the command line wins over a variable. Of the variables those
with the prefix APPTAINER_ win over those with SINGULARITY_, which SingularityCE knows alone. Binds add up.

Sources: Apptainer 1.4.5 `cmd/internal/cli/action_flags.go`, `pkg/cmdline/flag.go`, `env.go`, `internal/pkg/util/env/`,
`pkg/util/apptainerconf/parser.go`, `internal/pkg/runtime/engine/apptainer/process_linux.go` (injectEnvHandler);
SingularityCE 4.5, the same files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Optional

from gpubind.formats.text.shell import Exports, parse_exports
from gpubind.runtimes.cmdline.apptainer import FLAGS
from gpubind.runtimes.cmdline.flags import Flag, Options, parse_command_line, parse_list, parse_map

PREFIXES = {"apptainer": ("APPTAINER", "SINGULARITY"), "singularity": ("SINGULARITY",)}
"""What the names of a program's variables begin with, in the order of their rank."""
_ADDED_UP = ("bind", "mount")
"""Options to whose values those of the variables are added."""


_KINDS = {flag.name: flag.kind for flag in FLAGS}


def is_contained(options: Options) -> bool:
    """Return whether the container gets a minimal /dev, and nothing of the host's but what is asked for."""
    return any(map(options.has, ("contain", "containall", "compat")))


def is_literal(options: Options) -> bool:
    """Return whether values of variables arrive as they are; else the container's shell evaluates them once."""
    return options.has("no-eval") or options.has("compat")


def is_clean(options: Options) -> bool:
    """Return whether the caller's variables stay outside."""
    return any(map(options.has, ("cleanenv", "containall", "compat")))


def read_options(program: str, arguments: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Return what *arguments* and *environ* ask of *program*, `apptainer` or `singularity`."""
    line = parse_command_line(arguments, FLAGS)
    values: dict[str, list[str]] = {}
    env: dict[str, str] = {}
    for name, value in line.given:
        if _KINDS[name] == "map":
            env.update(parse_map(value))
        else:
            values.setdefault(name, []).extend(parse_list(value) if _KINDS[name] == "list" else [value])
    seen: set[str] = set()
    for prefix in PREFIXES.get(program, ()):
        for flag in FLAGS:
            for variable in flag.variables:
                said = environ.get(f"{prefix}_{variable}", "")
                # What the first prefix says, the second does not say anew.
                if not said.strip() or variable in seen:
                    continue
                if flag.name in _ADDED_UP:
                    values.setdefault(flag.name, []).append(said)
                elif flag.name not in values:
                    values[flag.name] = _of_variable(flag, said.strip())
        seen |= {key for flag in FLAGS for key in flag.variables if f"{prefix}_{key}" in environ}
    frozen = {name: tuple(given) for name, given in values.items()}
    return Options(frozen, env, line.unknown, line.rest, line.incomplete)


def _of_variable(flag: Flag, value: str) -> list[str]:
    if flag.kind != "list":
        return [value]
    return list(parse_list(",".join(part.strip() for part in value.split(","))))


def read_env_file(text: str, environ: Mapping[str, str]) -> dict[str, Optional[str]]:
    """Return the variables that the text of an environment file sets; None for a value that only a shell can tell.

    The program's own shell evaluates the file, with the caller's variables at hand.
    """
    exports = parse_exports(text, Exports(dict(environ)))
    named = sorted(set(re.findall(r"(?:^|[\s;&|({])([A-Za-z_][A-Za-z0-9_]*)\+?=", text)))
    values = {name: exports.env.get(name) if exports.decided(name) else None for name in named}
    return {name: value for name, value in values.items() if value is not None or not exports.decided(name)}


def parse_site(text: str) -> dict[str, tuple[str, ...]]:
    """apptainer.conf, singularity.conf: `directive = value` lines. A directive may stand there more than once.

    A line without a value says nothing: the program's default counts.
    """
    site: dict[str, tuple[str, ...]] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and value.strip() and not line.lstrip().startswith("#"):
            site[name.strip()] = (*site.get(name.strip(), ()), value.strip())
    return site
