"""The requirements of a site, in TOML.

For a node: a file of a few lines, or the table `[require]` of a configuration file.

    driver = "550.163.01"
    capabilities = ["compute", "utility"]

    [gpus]
    "NVIDIA A100-SXM4-80GB" = 8

`driver` may be a list, for a node with several drivers; `550` means every version of that branch. `gpus = 8` means GPUs
of any model. `partition = "CPX/NPS4"` is the partition mode of AMD's GPUs; it may be a list, or one part of a mode.

For the hosts on which an image will run: the file of `check --require`.

    driver = "525"
    gpus = ["sm_80+", "gfx90a"]
    arch = ['x86_64']
    brings-driver = false

`sm_80+` means every known architecture from sm_80 up, except those of Jetson and DRIVE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from gpubind.errors import Format, suggest_known
from gpubind.formats.text.toml import parse_toml
from gpubind.model import CAPABILITIES
from gpubind.model.capability import nvidia_architectures
from gpubind.model.gpucode import INTEL, arch_sort_key, is_tegra_arch
from gpubind.model.plain import Decoder
from gpubind.model.requirements import Expectation, Policy

SIZE_LIMIT = 256 << 10
_ITEMS_LIMIT = 256
_GPUS_LIMIT = 4096
"""GPUs of a node, and their models."""
_EXPECTATION = Format("bad-expectation", "malformed expectation of a node")
POLICY = Format("bad-policy", "malformed policy")
KEYS = tuple(name.replace("_", "-") for name in Policy._fields[1:])
"""The keys of a policy."""
_COUNT = Annotated[int, range(_GPUS_LIMIT + 1)]
_AMD = re.compile(r"gfx[1-9][0-9]{0,2}[0-9a-f]{2}(:(sramecc|xnack)[+-]){0,2}")


def parse_expectation(data: bytes) -> Expectation:
    """Return the expectation in *data*. Errors: `FormatError` (code `bad-expectation`)."""
    return expectation_of_table(_table(data, _EXPECTATION))


def expectation_of_table(table: dict[str, Any], prefix: str = "") -> Expectation:
    """Return the expectation in *table* of a TOML file. Errors: as above; they name keys with *prefix* before them."""
    keys = {"source_file": "", "drivers": "driver", "libraries": "", "partitions": "partition"}
    counts = Decoder(_EXPECTATION, prefix=prefix)

    def models(value: Any, place: str) -> tuple[tuple[str, int], ...]:
        if not isinstance(value, dict):
            return (("", counts.decode(_COUNT, value, place)),)
        if len(value) > _GPUS_LIMIT:
            raise _EXPECTATION.damaged(f"{len(value)} models; {_GPUS_LIMIT} at most", place)
        return tuple(counts.decode(dict[str, _COUNT], value, place).items())

    readers = {tuple[tuple[str, int], ...]: models}
    decoder = Decoder(_EXPECTATION, prefix=prefix, keys=keys, is_toml=True, readers=readers)
    expectation = decoder.decode(Expectation, table)
    return expectation._replace(capabilities=tuple(dict.fromkeys(expectation.capabilities)))


def parse_policy(data: bytes) -> Policy:
    """Return the policy in *data*. Errors: `FormatError` (code `bad-policy`)."""
    table = _table(data, POLICY)
    if not table:
        raise POLICY.damaged("it requires nothing", hint=f"known: {', '.join(KEYS)}")
    policy = _POLICY.decode(Policy, table)
    names = policy.capabilities
    return policy._replace(
        arch=tuple(dict.fromkeys(policy.arch)),
        capabilities=None if names is None else tuple(name for name in CAPABILITIES if name in names),
    )


def _table(data: bytes, kind: Format) -> dict[str, Any]:
    if len(data) > SIZE_LIMIT:
        raise kind.damaged(f"{len(data)} bytes; {SIZE_LIMIT} at most")
    return parse_toml(data, kind.code, kind.what)


def _gpus(value: Any, place: str) -> tuple[str, ...]:
    texts = _TEXTS.decode(tuple[str, ...], value, place)
    gpus = dict.fromkeys(gpu for text in texts for gpu in _stands_for(text, place))
    return tuple(sorted(gpus, key=lambda gpu: (not gpu.startswith("sm_"), arch_sort_key(gpu))))


def _stands_for(text: str, place: str) -> Iterator[str]:
    name, known_archs = text.removesuffix("+"), nvidia_architectures()
    if _AMD.fullmatch(text) or text in INTEL:
        yield text
    elif name in known_archs:
        above = known_archs[known_archs.index(name) :] if name != text else (name,)
        yield from (gpu for gpu in above if gpu == name or not is_tegra_arch(gpu))
    else:
        is_others = name != text and (_AMD.fullmatch(name) or name in INTEL)
        hint = suggest_known((*known_archs, "gfx90a", *INTEL), text)
        if is_others:
            hint = "AMD's and Intel's architectures have no order: name each"
        raise POLICY.damaged(f"`{text[:100]}` is not a GPU's architecture", place, hint)


_TEXTS = Decoder(POLICY, members_limit=_ITEMS_LIMIT, is_toml=True)
_POLICY = Decoder(
    POLICY,
    keys={"source_file": "", "brings_driver": "brings-driver"},
    members_limit=_ITEMS_LIMIT,
    is_toml=True,
    readers={tuple[str, ...]: _gpus},
)
