"""Text that no terminal, no encoding or no format can say: it is replaced, escaped or refused, and never a bug."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpubind import open_host, plan
from gpubind.documents.mounts.cdi import render_cdi
from gpubind.documents.text import printable
from gpubind.errors import EXIT_FORMAT, FormatError, RuntimeLimitError
from gpubind.formats.archive.oci import parse_oci_config
from gpubind.formats.driver.filelist import parse_filelist
from gpubind.formats.driver.icd import parse_icd
from gpubind.host.record import parse_record
from gpubind.model import HostPath, Request
from gpubind.model.data import read_data
from tests.support.commands import gpubind
from tests.support.images import glibc
from tests.support.layers import Blobs, packed, tar, write
from tests.support.trees import make_tree

HOST = "debian13-nvidia550"
HALF = "\\ud800"


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environ}
    return subprocess.run([sys.executable, "-m", "gpubind", *words], capture_output=True, env=env)


def test_half_characters_are_replaced_as_go_does() -> None:
    config = parse_oci_config(b'{"config": {"Env": ["LD_LIBRARY_PATH=/%s"]}}' % HALF.encode())
    assert config["LD_LIBRARY_PATH"] == "/\ufffd"
    assert parse_icd(b'{"ICD": {"library_path": "%s.so"}}' % HALF.encode()).libraries == ("\ufffd.so",)
    assert parse_filelist(b'[{"name": "%s.so"}]' % HALF.encode())[0].name == "\ufffd.so"
    assert parse_icd(rb'{"ICD": {"library_path": "\ud83d\ude00.so"}}').libraries == ("\U0001f600.so",)


def test_a_record_with_half_a_character_is_refused_and_bytes_that_are_not_utf_8_are_kept() -> None:
    text = read_data(f"model/data/hosts/{HOST}.json").decode()
    assert (
        parse_record(text.replace('"description": "', '"description": "\\udcff', 1).encode()).description[0] == "\udcff"
    )
    with pytest.raises(FormatError) as caught:
        parse_record(text.replace("libcuda.so.1", f"libcuda.so.1{HALF}").encode())
    assert caught.value.code == "bad-record"


@pytest.mark.parametrize("form", ["text", "tsv", "github", "json", "junit"])
def test_half_a_character_in_an_image_is_no_bug_in_any_document(tmp_path: Path, form: str) -> None:
    blobs = Blobs()
    config = blobs.image([packed(tar(dict(glibc("2.36"))))], ["LD_LIBRARY_PATH=/a\ud800", "PATH=\udcff"])
    image = write(tmp_path / "image", blobs.layout(config))
    done = run("check", "--nv", "--host", HOST, "--image", image, "--format", form)
    assert done.returncode in (0, 1), done.stderr
    assert b"Traceback" not in done.stderr


def test_half_a_character_in_a_record_is_an_error_with_a_place(tmp_path: Path) -> None:
    text = read_data(f"model/data/hosts/{HOST}.json").decode()
    (tmp_path / "record.json").write_text(text.replace("libcuda.so.1", f"libcuda.so.1{HALF}"))
    done = run("plan", "--nv", "--host", str(tmp_path / "record.json"))
    assert done.returncode == EXIT_FORMAT
    assert b"bad-record" in done.stderr


@pytest.mark.parametrize("value", ["9" * 100_000, "0", "-1", "٣", "", "99999"])
def test_no_size_of_a_terminal_is_a_bug(value: str) -> None:
    for words in (("--help",), ("plan", "--nv", "--host", HOST, "--format", "table")):
        done = run(*words, COLUMNS=value, LINES=value, TERMINAL_WIDTH=value)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


def test_a_nul_in_an_environment_file_leaves_the_variables_undecided(tmp_path: Path) -> None:
    make_tree(tmp_path / "image", {
        **glibc("2.36"), "/.singularity.d/env/10-a.sh": "export LD_LIBRARY_PATH=/a\0b\n"
    })  # fmt: skip
    done = run("check", "--nv", "--host", HOST, "--image", str(tmp_path / "image"), "--json")
    assert done.returncode in (0, 1), done.stderr
    image = json.loads(done.stdout)["image"]
    assert "LD_LIBRARY_PATH" not in image["env"]


# What a terminal gets.

STEERING = [*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]


@pytest.mark.parametrize("code", STEERING)
def test_no_character_that_steers_a_terminal_is_printed(code: int) -> None:
    assert printable(f"a{chr(code)}b") == f"a\\x{code:02x}b"


@pytest.mark.parametrize("byte", range(0x80, 0xA0))
def test_no_byte_that_an_eight_bit_terminal_takes_for_a_control_character_is_printed(byte: int) -> None:
    name = bytes((0x61, byte, 0x62)).decode("utf-8", "surrogateescape")
    assert printable(name) == f"a\\x{byte:02x}b"


def test_what_is_printed_can_always_be_encoded() -> None:
    every = "".join(map(chr, range(0x110000)))
    printable(every).encode("utf-8", "surrogateescape")


def test_a_message_shows_the_bytes_of_a_name_that_is_not_utf_8() -> None:
    done = gpubind("check", "--image", "/gone/caf\udce9", "--host", HOST)
    assert done.stderr.splitlines()[1] == "  where: /gone/caf\\xe9"


def test_a_path_that_is_not_utf_8_is_refused_by_a_cdi_spec() -> None:
    made = plan(open_host(HOST), Request(vendors=("nvidia",)))
    mounts = (made.mounts[0]._replace(source=HostPath("/lib/\udcff.so")), *made.mounts[1:])
    with pytest.raises(RuntimeLimitError) as caught:
        render_cdi(made._replace(mounts=mounts), {})
    assert caught.value.code == "unsupported-path"
