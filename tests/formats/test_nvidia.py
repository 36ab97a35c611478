"""Answers and failures of `nvidia-container-cli list`.

tests/data/nvidia-container-cli: what version 1.12.1 printed with driver 550.163.01 on Debian 13. A stand-in for NVML
played the two GPUs and their MIG devices. `fail*` is the standard error when NVML answered that number.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.driver.nvidia import NvidiaCliList, list_argv, parse_failure, parse_list
from tests.support import answers, damaged
from tests.support.measure import is_less_work

DATA = Path(__file__).parent.parent / "data" / "nvidia-container-cli"
MIG = (DATA / "list.mig1.txt").read_text()


def test_each_path_of_a_real_answer_is_told_by_what_it_is() -> None:
    listed = parse_list(MIG)
    nodes = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia0", "nvidia1")
    assert listed.devices == tuple(f"/dev/{node}" for node in nodes)
    assert [path.rpartition("/mig/")[2] for path in listed.procs] == [
        "gi1/access",
        "gi1/ci0/access",
        "gi2/access",
        "gi2/ci0/access",
    ]
    assert listed.others == (
        "/usr/lib/nvidia/current/nvidia-smi",
        "/usr/lib/nvidia/current/nvidia-debugdump",
        "/usr/bin/nvidia-persistenced",
        "/usr/bin/nvidia-cuda-mps-control",
        "/usr/sbin/nvidia-cuda-mps-server",
    )
    assert len(listed.libraries) == 24
    assert all(path.endswith(".so.550.163.01") for path in listed.libraries)
    assert listed.firmware == ()


@pytest.mark.parametrize("name", ["list.mig0.txt", "list.mig1.txt"])
def test_no_path_of_a_real_answer_is_lost(name: str) -> None:
    text = (DATA / name).read_text()
    assert sorted(path for field in parse_list(text) for path in field) == sorted(text.split())


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/dev/dxg", "devices"),
        ("/dev/nvidia-caps/nvidia-cap1", "devices"),
        ("/proc/driver/nvidia/capabilities/mig/config", "procs"),
        ("/lib/firmware/nvidia/550.54.14/gsp_ga10x.bin", "firmware"),
        ("/usr/lib/wsl/lib/libcuda.so.1.1", "libraries"),
        ("/usr/lib64/libcuda.so", "libraries"),
        ("/run/nvidia-persistenced/socket", "others"),
        ("/run/nvidia/control.sock", "others"),
        ("/tmp/nvidia-mps", "others"),
        ("/usr/lib64.so/nvidia-smi", "others"),
    ],
)
def test_content_tells_what_a_path_is(path: str, field: str) -> None:
    assert parse_list(f"{path}\n")._asdict() == {
        name: (path,) if name == field else () for name in NvidiaCliList._fields
    }


def test_a_path_that_is_printed_twice_counts_once() -> None:
    assert parse_list("/usr/lib/libnvidia-gpucomp.so.1\n" * 2).libraries == ("/usr/lib/libnvidia-gpucomp.so.1",)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "line 1"),
        ("\n", "line 1"),
        ("(null)\n", "line 1"),
        ("/dev/nvidiactl\n\n/dev/nvidia0\n", "line 2"),
        ("/dev/nvidiactl\nNVRM version:   550.54.14\n", "line 2"),
        ("/dev/nvidiactl\n/dev/nvidia\x000\n", "line 2"),
        ("/dev/nvidiactl\n/" + "a" * 4096 + "\n", "line 2"),
        ("/dev/null\n" * 10_001, "line 10001"),
        ("usr/lib/libcuda.so.1\n", "line 1"),
    ],
    ids=["empty", "blank", "null", "gap", "heading", "nul", "long", "many", "relative"],
)
def test_an_answer_that_is_no_list_of_paths_is_refused_with_its_line(text: str, place: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_list(text)
    assert (caught.value.code, caught.value.place) == ("bad-nvidia-cli", place)


def test_a_long_answer_takes_no_time() -> None:
    text = "".join(f"/usr/lib64/{number:04000d}.so\n" for number in range(2500))
    assert len(parse_list(text).libraries) == 2500
    assert is_less_work(lambda: parse_list(text), 100)


@settings(max_examples=100, deadline=None)
@given(damaged(MIG.encode()))
def test_a_damaged_answer_is_a_list_or_a_format_error(data: bytes) -> None:
    answers(lambda text: parse_list(text.decode("utf-8", "surrogateescape")), data)


@pytest.mark.parametrize(
    ("stderr", "failure"),
    [
        ((DATA / "fail9.txt").read_text(), ("initialization-error", "nvml error: driver not loaded")),
        ((DATA / "fail18.txt").read_text(), ("initialization-error", "nvml error: driver/library version mismatch")),
        (
            "nvidia-container-cli: mig-config error: cannot enable mig-config with specific MIG devices selected\n",
            ("mig-config-error", "cannot enable mig-config with specific MIG devices selected"),
        ),
        (
            "nvidia-container-cli.real: ldcache error: open failed: /etc/ld.so.cache: no such file or directory\n",
            ("ldcache-error", "open failed: /etc/ld.so.cache: no such file or directory"),
        ),
        (
            "warning: old\nnvidia-container-cli: device error: 7: unknown device\n",
            ("device-error", "7: unknown device"),
        ),
        ("nvidia-container-cli: error parsing IMEX info: bad\n", ("failed", "error parsing IMEX info: bad")),
        ("nvidia-container-cli: unrecognized option '--x'\nTry `--help'\n", ("failed", "unrecognized option '--x'")),
        ("nvidia-container-cli: My Own error: x\n", ("failed", "My Own error: x")),
        ("Segmentation fault\n", ("failed", "Segmentation fault")),
        ("", ("failed", "no message")),
    ],
)
def test_a_failure_has_the_programs_own_class_and_words(stderr: str, failure: tuple[str, str]) -> None:
    assert parse_failure(stderr) == failure


@given(st.text())
def test_any_standard_error_gives_a_short_message(stderr: str) -> None:
    _, message = parse_failure(f"nvidia-container-cli: {stderr}")
    assert len(message) <= 300


def test_another_driver_root_is_an_option_before_the_command() -> None:
    assert list_argv("/") == ("nvidia-container-cli", "list")
    assert list_argv("/run/nvidia/driver") == ("nvidia-container-cli", "--root=/run/nvidia/driver", "list")


@pytest.mark.parametrize("before", ["nvidia-container-cli: device error: ", "nvidia-container-cli: ", ""])
def test_of_a_long_message_the_first_300_characters_are_told(before: str) -> None:
    assert parse_failure(f"{before}{'x' * 301}\n")[1] == "x" * 300
