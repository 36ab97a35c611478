"""Files, variables and words that want to cost minutes or gigabytes, and are no image: each is a function that says
which command takes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.support.driver import V, kernel, libraries
from tests.support.greedy import BASE, of_directory
from tests.support.trees import Spec, make_tree

HOST = "debian13-nvidia550"


class Words(NamedTuple):
    """What gpubind is called with."""

    arguments: tuple[str, ...]
    environ: Mapping[str, str] = MappingProxyType({})


GREEDY_WORDS: dict[str, Callable[[Path], Words]] = {}


def greedy(make: Callable[[Path], Words]) -> Callable[[Path], Words]:
    GREEDY_WORDS[make.__name__] = make
    return make


def _file(path: Path, name: str, text: str) -> str:
    path.mkdir(exist_ok=True)
    (path / name).write_text(text)
    return str(path / name)


# Records.


@greedy
def a_record_of_16_mb_of_lists_in_lists(path: Path) -> Words:
    return Words(("plan", "--nv", "--host", _file(path, "host.json", "[" * (16 << 20))))


@greedy
def a_record_of_16_mb_of_objects(path: Path) -> Words:
    return Words(("plan", "--nv", "--host", _file(path, "host.json", '{"\U0001f600": [' + "{}," * 5_000_000 + "0]}")))


@greedy
def a_record_of_a_million_numbers(path: Path) -> Words:
    text = '{"schema": "gpubind.record/1", "x": [' + "1.5," * 999_000 + "0]}"
    return Words(("plan", "--nv", "--host", _file(path, "host.json", text)))


# What a user or a site configures.


@greedy
def a_list_of_9_000_patterns(path: Path) -> Words:
    text = "".join(f"lib*{number}*.so*\n" for number in range(9000))
    return Words(("plan", "--nv", "--host", HOST, "--list", _file(path, "nv.conf", text)))


@greedy
def a_list_of_patterns_of_stars(path: Path) -> Words:
    text = ("lib" + "*a" * 2000 + ".so\n") * 200
    return Words(("plan", "--nv", "--host", HOST, "--list", _file(path, "nv.conf", text)))


def _configured(path: Path, text: str) -> Words:
    _file(path / "gpubind", "config.toml", text)
    return Words(("plan", "--nv", "--host", HOST), {"XDG_CONFIG_HOME": str(path)})


@greedy
def a_configuration_nested_deeply(path: Path) -> Words:
    return _configured(path, "a = " + "[" * 250_000)


@greedy
def a_configuration_of_one_key_of_100_000_parts(path: Path) -> Words:
    return _configured(path, ".".join("a" * 100_000) + " = 1\n")


@greedy
def a_configuration_of_250_keys_of_500_parts(path: Path) -> Words:
    return _configured(path, "".join(".".join("a" * 500) + f".b{number} = 1\n" for number in range(250)))


@greedy
def a_configuration_of_15_000_codes_to_be_ignored(path: Path) -> Words:
    return _configured(path, "ignore = {" + ", ".join(f"a{number} = 'x'" for number in range(15_000)) + "}\n")


# CDI specs.


def _of_cdi(path: Path, *texts: str, suffix: str = "json") -> Words:
    specs: Spec = {f"/etc/cdi/{number}.{suffix}": text for number, text in enumerate(texts)}
    spec: Spec = {**libraries("/usr/lib64"), **kernel(V, 2), **specs}
    make_tree(path / "root", {name: item for name, item in spec.items() if not name.startswith("/dev/")})
    return Words(("check", "--nv", "--source", "cdi", "--root", f"{path}/root", "--dev-root", f"{path}/root"))


@greedy
def a_cdi_spec_of_500_000_numbers_in_yaml(path: Path) -> Words:
    return _of_cdi(path, "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\nx: [" + "1," * 500_000 + "1]\n", suffix="yaml")


@greedy
def a_cdi_spec_of_aliases_of_aliases(path: Path) -> Words:
    lines = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    return _of_cdi(path, "a0: &a0 [1, 1, 1]\n" + "".join(lines), suffix="yaml")


@greedy
def a_cdi_spec_of_15_000_mounts(path: Path) -> Words:
    mounts = [{"hostPath": f"/usr/lib64/{n}", "containerPath": f"/x/{n}"} for n in range(15_000)]
    devices = [{"name": "all", "containerEdits": {"mounts": mounts}}]
    return _of_cdi(path, json.dumps({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices}))


@greedy
def cdi_specs_of_16_mb(path: Path) -> Words:
    devices = [{"name": f"d{n}", "containerEdits": {"env": ["A=b"]}} for n in range(14_000)]
    return _of_cdi(path, *[json.dumps({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices})] * 16)


@greedy
def cdi_specs_of_16_mb_in_yaml(path: Path) -> Words:
    return _of_cdi(path, *(f"x{n}: [" + "1," * 500_000 + "1]\n" for n in range(16)), suffix="yaml")


@greedy
def cdi_specs_in_great_number(path: Path) -> Words:
    devices = [{"name": "all", "containerEdits": {"env": ["A=b"]}}]
    return _of_cdi(path, *[json.dumps({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices})] * 3000)


# What a runtime's command line names.


def _apptainer(path: Path, text: str) -> Words:
    options = ("--nv", "--env-file", _file(path, "env", text), of_directory(path, {}), "true")
    return Words(("wrap", "--dry-run", "--host", HOST, "--", "apptainer", "exec", *options))


@greedy
def an_environment_file_of_apptainer_with_80_000_lines(path: Path) -> Words:
    return _apptainer(path, "".join(f"A{number}={number}\n" for number in range(80_000)))


@greedy
def an_environment_file_of_apptainer_that_is_never_closed(path: Path) -> Words:
    return _apptainer(path, "A=$(\n" * 200_000)


@greedy
def a_bundle_of_16_000_mounts(path: Path) -> Words:
    mounts = [{"destination": f"/a{n}", "source": "/b", "options": ["bind"]} for n in range(16_000)]
    process = {"env": [f"A{n}=b" for n in range(16_000)], "args": ["a"], "cwd": "/"}
    make_tree(path / "bundle" / "rootfs", BASE)
    config = {"ociVersion": "1.0", "root": {"path": "rootfs"}, "process": process, "mounts": mounts}
    _file(path / "bundle", "config.json", json.dumps(config))
    return Words(("check", "--nv", "--host", HOST, "--image", f"{path}/bundle"))


# What a command line and an environment can hold.


@greedy
def variables_of_100_kb_each(path: Path) -> Words:
    environ = {"NVIDIA_VISIBLE_DEVICES": "0," * 50_000, "CUDA_VISIBLE_DEVICES": "0," * 50_000}
    environ.update({"LD_LIBRARY_PATH": "/a:" * 33_000, "ROCR_VISIBLE_DEVICES": "GPU-a," * 16_000})
    return Words(("check", "--nv", "--host", HOST), environ)


@greedy
def a_message_of_100_000_letters(path: Path) -> Words:
    return Words(("explain", "a" * 100_000))


@greedy
def a_message_of_100_000_slashes(path: Path) -> Words:
    return Words(("explain", " /" * 50_000 + ": cannot open shared object file"))
