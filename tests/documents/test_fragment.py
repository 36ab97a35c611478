"""What the documents of mounts share: YAML that every reader takes for the same."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpubind.documents.mounts.fragment import yaml_text

LEAVES = st.text(max_size=8) | st.booleans() | st.integers()
KEYS = st.text(max_size=4)
MAPPINGS = st.dictionaries(KEYS, LEAVES, min_size=1, max_size=3)
LISTS = st.lists(LEAVES | MAPPINGS, min_size=1, max_size=3)


@given(st.dictionaries(KEYS, LEAVES | MAPPINGS | LISTS, min_size=1, max_size=3))
def test_yaml_is_read_back_as_it_was(tree: dict[str, Any]) -> None:
    text = yaml_text(tree)
    assert text.isascii()
    assert yaml.safe_load(text) == tree


@pytest.mark.parametrize("word", ["yes", "No", "null", "on", "1", "a b", "<<", "~", "- a", "ä", "A\xb9", "\U0001f600"])
def test_a_key_is_a_string_whatever_it_looks_like(word: str) -> None:
    tree = {word: [{word: word, "a": {word: word}}]}
    assert yaml.safe_load(yaml_text(tree)) == tree
