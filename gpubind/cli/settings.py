"""Defaults from configuration files: the user's, then the site's. Options and GPUBIND_* variables precede both."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Optional

from gpubind.cli.declarations import CONFIGURABLE, Option, Origin, Subcommand
from gpubind.errors import FormatError, in_file, suggest_known
from gpubind.machine import system

if TYPE_CHECKING:
    from gpubind.api.check import CheckRequest
    from gpubind.model import Severity
    from gpubind.model.requirements import Expectation
    from gpubind.rules.outcome import Severities

SIZE_LIMIT = 256 << 10
_WHAT = "malformed configuration file"

KEYS = {
    **{each.key: (list if each.is_repeatable else str) if each.metavar else bool for each in CONFIGURABLE},
    "format": str,
    **dict.fromkeys(("ignore", "require", "severity"), dict),
}
"""The keys of a configuration file, and the type of each."""

_TYPES: dict[type, str] = {bool: "true or false", list: "a list of texts in quotes", str: "a text in quotes"}
_TABLES = {
    "ignore": "a table of codes and reasons",
    "require": "a table of what a node is to have",
    "severity": "a table of codes and severities",
}


def read_settings() -> dict[str, Any]:
    """Return the settings in force, by option name.

    Errors: `FormatError` (code `bad-config`) with file and key, `HostReadError` for a file that cannot be read.
    """
    settings: dict[str, Any] = {}
    for path in _files():
        settings.update(_read(path))
    return settings


def defaults_for(command: Subcommand) -> dict[str, Any]:
    """Return the configured values of the options of *command*, by parameter. Errors: as `read_settings`."""
    settings = read_settings()
    set_here = [option for option in command.options if option.preset == "settings" and option.key in settings]
    defaults = {option.parameter: settings[option.key] for option in set_here}
    return {name: [value] if name == "format_" else value for name, value in defaults.items()}


def setting_location(option: Option, origin: Origin) -> str:
    """Return the variable or configuration file that sets *option*; empty for the command line."""
    if origin == "variable":
        return f"the variable {option.variable}"
    return f"`{option.key}` in {file_of(option.key)}" if origin == "settings" else ""


def file_of(key: str) -> str:
    """Return the configuration file that sets *key*."""
    return next((path for path in reversed(_files()) if key in _read(path)), "")


def _files() -> list[str]:
    """Return the configuration files of the site and of the user. The last takes precedence."""
    from gpubind.host.directories import SITE_DIRECTORY, xdg_directory

    directories = (SITE_DIRECTORY, xdg_directory(system.environ(), "XDG_CONFIG_HOME", ".config"))
    return [f"{directory}/config.toml" for directory in directories if directory]


def ignored_findings(values: Iterable[str]) -> dict[tuple[str, Optional[str]], str]:
    """Return the ignored findings by code and subject, each with the reason: the configured ones, then those of
    *values*.

    *values* are CODE[:SUBJECT][=REASON]. Without a subject (None in the result), every finding of that code is ignored.
    Commas may separate codes that have no subjects.
    """
    from gpubind.rules.table import code_and_subject

    configured: dict[str, str] = read_settings().get("ignore", {})
    path = file_of("ignore") if configured else ""
    ignored = {
        code_and_subject(selector, f"`ignore` in {path}"): reason or path for selector, reason in configured.items()
    }
    for text in values:
        for item in _split_items(text):
            device = re.match(_CDI_DEVICE, item)
            end = device.end() if device else len(item.partition("=")[0])
            ignored[code_and_subject(item[:end])] = item[end + 1 :] or "--ignore"
    return ignored


def configured_severities() -> Severities:
    """Return the configured severities of findings, each with its file.

    Errors: `UsageError` (code `unknown-code`), `FormatError` (code `bad-config`) for an unknown severity.
    """
    from gpubind.rules.table import code_and_subject

    configured: dict[str, Severity] = read_settings().get("severity", {})
    if not configured:
        return {}
    from gpubind.model.findings import SEVERITIES

    path = file_of("severity")
    for code, severity in configured.items():
        if severity not in SEVERITIES:
            raise _malformed(path, f"`severity.{code}` is `{severity}`", suggest_known(SEVERITIES, severity))
    return {code_and_subject(code, f"`severity` in {path}"): (level, path) for code, level in configured.items()}


def site_check() -> CheckRequest:
    """Return a check with the configured ignored findings and severities. Errors: as `configured_severities`."""
    from gpubind.api.check import CheckRequest

    return CheckRequest(reasons=ignored_findings(()), severities=configured_severities())


def configured_expectation() -> Optional[Expectation]:
    """Return the expectation of configuration files; None without `require`.

    Errors: `FormatError` (code `bad-expectation`) with file and key.
    """
    table = read_settings().get("require")
    if not table:
        return None
    from gpubind.formats.text.requirements import expectation_of_table

    path = file_of("require")
    with in_file(path):
        return expectation_of_table(table, "require.")._replace(source_file=path)


def _split_items(text: str) -> list[str]:
    """Split *text* at the commas between findings. A comma that no code follows belongs to a subject or a reason."""
    from gpubind.rules.table import CODES

    items: list[str] = []
    for part in text.split(","):
        if items and {*":="} & {*items[-1]} and re.split("[:=]", part)[0] not in CODES:
            items[-1] += f",{part}"
        else:
            items.append(part)
    return items


_CDI_DEVICE = r"[a-z0-9-]+:[\w.-]+\.[\w-]+/[\w.-]+=[^=]*"
"""A code whose subject is a CDI device, which has a `=` in its name: `cdi-conflict:nvidia.com/gpu=0`."""


def _read(path: str) -> dict[str, Any]:
    from gpubind.machine.answers import inspection_error
    from gpubind.machine.regular import read_if_there

    try:
        data = read_if_there(path, SIZE_LIMIT)
    except OSError as error:
        raise inspection_error(path, error, "a configuration file cannot be read") from error
    if data is None:
        return {}
    from gpubind.formats.text.toml import parse_toml

    with in_file(path):
        settings = parse_toml(data, "bad-config", _WHAT)
    for key, value in settings.items():
        kind = KEYS.get(key)
        if kind is None:
            raise _malformed(path, f"unknown key `{key}`", suggest_known(sorted(KEYS), key))
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        has_texts = key == "require" or all(isinstance(item, str) for item in items)  # `require` has its own parser
        if not isinstance(value, kind) or not has_texts:
            hint = "what a node is to have stands below `[require]`" if key == "gpus" else ""
            raise _malformed(path, f"`{key}` is not {_TABLES.get(key) or _TYPES[kind]}", hint)
    return settings


def _malformed(path: str, why: str, hint: str = "") -> FormatError:
    return FormatError("bad-config", _WHAT, where=path, why=why, hint=hint)
