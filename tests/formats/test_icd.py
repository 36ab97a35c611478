"""ICD manifests: JSON of EGL and Vulkan, one line for OpenCL."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.driver.icd import SIZE_LIMIT, Icd, parse_icd, with_library_paths
from tests.support import answers, damaged

VULKAN = {
    "file_format_version": "1.0.1",
    "ICD": {"library_path": "libGLX_nvidia.so.0", "api_version": "1.3.277"},
}
LAYERS = {
    "file_format_version": "1.1.2",
    "layers": [
        {"name": "VK_LAYER_NV_optimus", "library_path": "libGLX_nvidia.so.0"},
        {"name": "VK_LAYER_meta", "component_layers": ["a"]},
        {"name": "VK_LAYER_NV_present", "library_path": "/usr/lib64/libnvidia-present.so.1"},
    ],
}
LAYER = {"file_format_version": "1.0.0", "layer": {"name": "L", "library_path": "./liblayer.so"}}


def encoded(document: Any) -> bytes:
    return json.dumps(document, indent=4).encode()


def refusal(data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        parse_icd(data)
    assert caught.value.code == "bad-icd"
    return caught.value


@pytest.mark.parametrize(
    ("document", "libraries"),
    [
        pytest.param(VULKAN, ("libGLX_nvidia.so.0",), id="icd"),
        pytest.param(LAYER, ("./liblayer.so",), id="layer"),
        pytest.param(LAYERS, ("libGLX_nvidia.so.0", "/usr/lib64/libnvidia-present.so.1"), id="layers"),
    ],
)
def test_every_library_path_is_listed_in_file_order(document: Any, libraries: tuple[str, ...]) -> None:
    icd = parse_icd(encoded(document))
    assert icd.libraries == libraries
    assert icd.document == document


@pytest.mark.parametrize(
    "text",
    [
        "libnvidia-opencl.so.1\n",
        "libnvidia-opencl.so.1",
        "\n  libnvidia-opencl.so.1\r\n\n",
        pytest.param("libnvidia-opencl.so.1".ljust(SIZE_LIMIT), id="as-large-as-can-be"),
    ],
)
def test_an_opencl_icd_is_one_line(text: str) -> None:
    assert parse_icd(text.encode()) == Icd(("libnvidia-opencl.so.1",), ["libnvidia-opencl.so.1"])


def test_a_replaced_library_path_changes_nothing_else() -> None:
    icd = parse_icd(encoded(LAYERS))
    wanted = json.loads(json.dumps(LAYERS).replace("/usr/lib64/", "/.gpubind/libs/"))
    moved = {"/usr/lib64/libnvidia-present.so.1": "/.gpubind/libs/libnvidia-present.so.1"}
    assert json.loads(with_library_paths(icd, moved)) == wanted
    assert icd.document == LAYERS


def test_an_opencl_icd_is_rewritten_as_one_line() -> None:
    icd = parse_icd(b"libnvidia-opencl.so.1")
    assert with_library_paths(icd, {"libnvidia-opencl.so.1": "/x.so"}) == "/x.so\n"
    assert with_library_paths(icd, {}) == "libnvidia-opencl.so.1\n"


@pytest.mark.parametrize(
    ("data", "place"),
    [
        pytest.param(b"", "line 1", id="empty"),
        pytest.param(b"liba.so\nlibb.so\n", "line 1", id="two-lines"),
        pytest.param(b"lib\0a.so", "line 1", id="nul"),
        pytest.param(b"lib\xff.so", "byte 3", id="not-utf8"),
        pytest.param(b'{"ICD": ', "byte 8", id="cut"),
        pytest.param(b"{}", "key library_path", id="empty-object"),
        pytest.param(b"[]", "key library_path", id="array"),
        pytest.param(encoded({"ICD": {"library_path": 1}}), "key library_path", id="number"),
        pytest.param(encoded({"ICD": [], "layers": {}, "layer": None}), "key library_path", id="other-types"),
        pytest.param(encoded({"layers": [{}, 1, None]}), "key library_path", id="no-path-in-layers"),
        pytest.param(b"[" * 100_000, "the whole document", id="nested"),
        pytest.param(b'{"ICD": {"library_path": "a"}, "n": 1x}', "byte 37", id="syntax"),
        pytest.param(b" " * (SIZE_LIMIT + 1), "the whole document", id="too-large"),
    ],
)
def test_a_malformed_manifest_is_refused_with_its_place(data: bytes, place: str) -> None:
    assert refusal(data).place == place


def test_what_is_nested_deeply_can_be_rewritten_if_it_can_be_parsed() -> None:
    for depth in (500, *range(900, 1000, 7)):
        data = b'{"ICD": {"library_path": "a.so"}, "x": ' + b"[" * depth + b"]" * depth + b"}"
        assert answers(lambda text: with_library_paths(parse_icd(text), {"a.so": "b.so"}), data) or depth > 500


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_PATHS = st.text(min_size=1, max_size=10)


@given(st.dictionaries(st.sampled_from(["a", "file_format_version"]), _JSON), _PATHS, st.lists(_PATHS, max_size=3))
@settings(max_examples=50, deadline=None)
def test_what_is_written_is_parsed_back(more: dict[str, Any], path: str, layers: list[str]) -> None:
    document = {**more, "ICD": {"library_path": path}, "layers": [{"library_path": layer} for layer in layers]}
    icd = parse_icd(encoded(document))
    assert icd == Icd((path, *layers), document)
    assert parse_icd(with_library_paths(icd, {}).encode()) == icd


@given(st.one_of(damaged(encoded(LAYERS)), damaged(b"libnvidia-opencl.so.1\n"), _JSON.map(encoded)))
@settings(max_examples=100, deadline=None)
def test_damage_gives_a_value_or_a_place(data: bytes) -> None:
    answers(lambda text: with_library_paths(parse_icd(text), {"a": "b"}), data)


def test_json_behind_other_blanks_is_no_name_of_a_library() -> None:
    assert refusal('\u2003{"ICD": {"library_path": "libx.so.1"}}'.encode()).code == "bad-icd"
