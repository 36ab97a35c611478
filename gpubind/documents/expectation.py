"""An expectation as `gpubind record --expect` writes it: a few lines of TOML, without names of machines.

No line begins a table, so that all can be copied below `[require]` in a configuration file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from gpubind.documents.text import printable
from gpubind.model.requirements import Expectation


def render_expectation(expectation: Expectation, comment: str = "") -> str:
    """Return *expectation* below *comment*. Its libraries are left out, because only records are compared by them."""
    drivers = expectation.drivers
    lines = [f"# {printable(comment)}"] if comment else []
    lines.append("# gpubind check --expect FILE: what such a node is to have")
    if drivers:
        lines.append(f"driver = {_one_or_list(drivers)}")
    lines.append(f"capabilities = {_list(expectation.capabilities)}")
    if expectation.partitions:
        lines.append(f"partition = {_one_or_list(expectation.partitions)}")
    unnamed = sum(number for model, number in expectation.gpus if not model)
    if unnamed:  # the driver does not report a model, so only the number of all is certain
        lines.append(f"gpus = {sum(number for _, number in expectation.gpus)}")
    else:
        models = ", ".join(f"{_text(model)} = {number}" for model, number in expectation.gpus)
        lines.append(f"gpus = {{ {models} }}")
    return "".join(f"{line}\n" for line in lines)


def _one_or_list(texts: Sequence[str]) -> str:
    return _text(texts[0]) if len(texts) == 1 else _list(texts)


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _text(text: str) -> str:
    """Return *text* as a basic string of TOML. A printable one has the syntax of JSON."""
    return json.dumps(printable(text), ensure_ascii=False)
