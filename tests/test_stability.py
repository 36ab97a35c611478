"""What docs/stability.md promises is still there: the interface is compared with `tests/golden/interface.txt`.

A line of that file is one fact that scripts and programs may rely on. Texts for people are not in it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any, get_args

import gpubind
from gpubind import errors
from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import HELP, VERSION, Option, Subcommand, choices_of
from gpubind.model.data import table
from tests.support.golden import GOLDEN, ROOT, assert_golden, assert_none

FILE = GOLDEN / "interface.txt"
KEEP = (
    "{}: was removed or renamed. Keep it until the next major version: add a new name beside the old one "
    "(docs/stability.md). Before 1.0, or for a major version, delete its line from tests/golden/interface.txt by hand, "
    "and write it into CHANGELOG.md, Removed"
)


def test_nothing_that_others_rely_on_is_removed_or_renamed() -> None:
    """`--update-golden` adds what is new, and never removes a line."""
    made = list(interface())
    assert_none(removed(FILE.read_text().splitlines() if FILE.exists() else [], made), KEEP)
    assert_golden(FILE, "".join(f"{line}\n" for line in made))


def test_a_renamed_option_and_a_member_of_another_type_are_removed_lines() -> None:
    before = ["command plan: --nv", "json gpubind.plan/1 .digest: always, string"]
    now = ["command plan: --nvidia", "json gpubind.plan/1 .digest: always, null or string", "command plan: --nv"]
    assert removed(before, now) == before[1:]
    assert removed(before, now[:2]) == before


def test_a_member_that_a_document_no_longer_always_has_is_a_removed_line() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"$ref": "#/$defs/text"}, "b": {"type": "array", "items": {"enum": ["x", 1]}}},
        "$defs": {"text": {"type": ["string", "null"]}},
    }
    whole = ["j: object", "j.a: always, null or string", "j.b: array", "j.b[]: value", 'j.b[]: "x"', "j.b[]: 1"]
    assert list(lines_of_schema(schema, schema, "j")) == whole
    assert removed(whole, list(lines_of_schema(schema, {**schema, "required": []}, "j"))) == whole[1:2]


def test_the_page_describes_each_kind_of_line() -> None:
    table_of_page = (ROOT / "docs/stability.md").read_text().partition("## What may")[0]
    kinds = dict.fromkeys(line.partition(" ")[0] for line in FILE.read_text().splitlines())
    assert_none(
        (kind for kind in kinds if f"`{kind}`" not in table_of_page), "docs/stability.md: add `{}` to the table"
    )


def removed(there: list[str], made: list[str]) -> list[str]:
    return [line for line in there if line not in {*made}]


def interface() -> Iterator[str]:
    """Yield the interface, a fact a line."""
    for option in (HELP, VERSION):
        yield from lines_of_option("command gpubind:", option)
    lines = [line for name in MODULES for line in lines_of_command(command_of(name))]
    yield from dict.fromkeys(lines)  # shared options have the same variables and values
    yield from (f"exit {value} {name}" for name, value in vars(errors).items() if name.startswith("EXIT_"))
    yield from (f"error {code} exit {row['exit']}" for code, row in table("errors").items())
    yield from (f"finding {code}" for code in table("findings"))
    for path in sorted((ROOT / "gpubind/model/data").glob("*.schema.json")):
        schema = json.loads(path.read_text())
        yield from dict.fromkeys(lines_of_schema(schema, schema, f"json {schema.get('$id', path.name)} "))
    for name in gpubind.__all__:
        yield from lines_of_python(name, getattr(gpubind, name))


def lines_of_command(command: Subcommand) -> Iterator[str]:
    yield f"command {command.name}"
    for place, argument in enumerate(command.arguments, 1):
        how = f"{'required' if argument.required else 'optional'}{', several' if argument.takes_rest else ''}"
        yield f"command {command.name}: argument {place}, {how}"
    for option in command.options:
        yield from lines_of_option(f"command {command.name}:", option)
    yield from (f"command {command.name}: exit {status}" for status, _ in command.exit_codes)


def lines_of_option(whose: str, option: Option) -> Iterator[str]:
    times = ", repeatable" if option.is_repeatable else ""
    yield from (f"{whose} {name}{' VALUE' if option.metavar else ''}{times}" for name in option.spellings)
    if option.variable:
        yield f"variable {option.variable}"
    if option.preset == "settings":
        yield f"key {option.key}"
    choices = [*choices_of(option)]
    if not {*choices} <= {*table("findings")}:
        where = f"{whose} {option.name}" if option.name == "--format" else f"value of {option.name}:"
        yield from (f"{where} {choice}" for choice in choices)


def lines_of_schema(root: dict[str, Any], schema: dict[str, Any], path: str, when: str = "") -> Iterator[str]:
    """Yield the members of documents, each with its types and values. What a reference names has no name here."""
    forms = list(forms_of(root, schema))
    kinds = {form.get("type", "value") for form in forms}
    yield f"{path}: {when}{' or '.join(sorted(kinds)) or 'any'}"
    for form in forms:
        values = [form["const"]] if "const" in form else form.get("enum", ())
        yield from (f"{path}: {json.dumps(value)}" for value in values)
        for name, member in form.get("properties", {}).items():
            always = "always, " if name in form.get("required", ()) else ""
            yield from lines_of_schema(root, member, f"{path}.{name}", always)
        for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
            if isinstance(form.get(key), dict):
                yield from lines_of_schema(root, form[key], f"{path}{mark}")


def forms_of(root: dict[str, Any], schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas of which a value may fit one: each has one type, or values."""
    reference = schema.get("$ref", "")
    if reference:
        inside = reference.rpartition("#/$defs/")[2]
        yield from forms_of(root, root["$defs"][inside]) if "#" in reference else [{"type": reference}]
    if isinstance(schema.get("type"), list):
        yield from ({**schema, "type": kind} for kind in schema["type"])
    elif {"type", "enum", "const"} & {*schema}:
        yield schema
    for each in (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
        yield from forms_of(root, each)


def lines_of_python(name: str, value: Any) -> Iterator[str]:
    yield f"python {name}"
    yield from (f"python {name} = {choice!r}" for choice in get_args(value) if isinstance(choice, str))
    if inspect.isfunction(value) and not hasattr(value, "__supertype__"):  # a NewType of Python 3.9 is a function
        yield from lines_of_signature(name, value)
    if inspect.isclass(value) and issubclass(value, errors.GpubindError):
        yield f"python {name}.exit_code"
        yield from (f"python {name} is {kind.__name__}" for kind in value.__mro__[1:] if kind.__name__ in dir(gpubind))
    for member in sorted({*own_members(value)}):
        yield f"python {name}.{member}"
        if inspect.isfunction(method := inspect.getattr_static(value, member, None)):
            yield from lines_of_signature(f"{name}.{member}", method)


def own_members(value: Any) -> Iterator[str]:
    """Yield the public members of a value that is made of fields. Hosts, images and starts are only passed on."""
    has_members = hasattr(value, "_fields") and value not in (gpubind.Image, gpubind.Start)
    for kind in value.__mro__ if has_members else ():
        if kind.__module__.startswith("gpubind."):
            yield from (name for name in {*vars(kind), *getattr(kind, "_fields", ())} if name[0] != "_")


def lines_of_signature(name: str, function: Any) -> Iterator[str]:
    for place, each in enumerate(inspect.signature(function).parameters.values(), 1):
        if each.name == "self":
            continue
        where = "by name" if each.kind is each.KEYWORD_ONLY else f"number {place}"
        how = "required" if each.default is each.empty else "optional"
        yield f"python {name} takes {each.name}, {where}, {how}"
