"""Which GPUs a container of an engine requests: NVIDIA's toolkit is the oracle."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest

from gpubind.errors import UsageError
from gpubind.formats.archive.bundle import Bundle, parse_bundle
from gpubind.formats.driver.engines import REQUEST_MOUNTS, RequestPolicy, parse_request_policy
from gpubind.launch.oci.gpus import requested_gpus, variables_of
from gpubind.launch.wrap.gpus import GpuRequest
from gpubind.model import CAPABILITIES
from tests.launch.oci.bundles import config

PRIVILEGED = {"capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_ADMIN"]}}


def bundle(*env: str, **more: Any) -> Bundle:
    return parse_bundle(json.dumps(config(*env, **more)).encode(), is_engines=True)


def privileged(*env: str) -> Bundle:
    document = config(*env)
    document["process"].update(PRIVILEGED)
    return parse_bundle(json.dumps(document).encode(), is_engines=True)


def asked(own: Bundle, **policy: Any) -> Optional[GpuRequest]:
    return requested_gpus(own, lambda: RequestPolicy(**policy))


def gpus(own: Bundle, **policy: Any) -> Optional[str]:
    found = asked(own, **policy)
    return None if found is None else found.gpus


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("all", "all"),
        ("0", "0"),
        ("0,1", "0,1"),
        (" 0 , 1 ,", "0,1"),
        ("0,,1", "0,1"),
        ("GPU-00000000-1111", "GPU-00000000-1111"),
        ("MIG-00000000-1111-2222-3333-444444444444", "MIG-00000000-1111-2222-3333-444444444444"),
        ("0:1", "0:1"),
        ("0,all", "all"),
        ("none", "none"),
        ("0,none", "none"),
        ("none,all", "none"),
        ("", None),
        (" ", None),
        (",", None),
        ("void", None),
        ("0,void", None),
        ("all,void", None),
        ("nvidia.com/gpu=1", "1"),
        ("runtime.nvidia.com/gpu=all", "all"),
    ],
)
def test_a_value_of_nvidias_variable(value: str, wanted: Optional[str]) -> None:
    assert gpus(bundle(f"NVIDIA_VISIBLE_DEVICES={value}")) == wanted


def test_without_a_request_nothing_of_the_site_is_read() -> None:
    def unread() -> RequestPolicy:
        raise AssertionError

    assert requested_gpus(bundle("A=b"), unread) is None
    assert requested_gpus(bundle("AMD_VISIBLE_DEVICES=all"), unread) is not None


def test_the_last_value_of_a_variable_counts_as_docker_appends_that_of_its_option() -> None:
    assert gpus(bundle("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=0")) == "0"


def test_a_name_that_is_none_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"wrap-gpus.*NVIDIA_VISIBLE_DEVICES=gpu0"):
        gpus(bundle("NVIDIA_VISIBLE_DEVICES=gpu0"))


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        (["CUDA_VERSION=8.0"], "all"),
        (["CUDA_VERSION=8.0", "NVIDIA_VISIBLE_DEVICES=1"], "1"),
        (["CUDA_VERSION=8.0", "NVIDIA_VISIBLE_DEVICES="], None),
        (["CUDA_VERSION=12.4", "NVIDIA_REQUIRE_CUDA=cuda>=12.4"], None),
        (["CUDA_VERSION="], None),
    ],
)
def test_the_first_images_for_cuda_request_all_without_a_word(env: list[str], wanted: Optional[str]) -> None:
    assert gpus(bundle(*env)) == wanted


def test_capabilities() -> None:
    found = asked(bundle("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility,compute"))
    assert found is not None
    assert found.caps == ("compute", "utility")
    assert asked(bundle("NVIDIA_VISIBLE_DEVICES=all"))._replace(flags=()).caps is None  # type: ignore[union-attr]
    legacy = asked(bundle("CUDA_VERSION=8.0"))
    assert legacy is not None
    assert legacy.caps == CAPABILITIES
    with pytest.raises(UsageError, match="NVIDIA_DRIVER_CAPABILITIES=flying"):
        asked(bundle("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=flying"))


def test_a_site_may_grant_some_capabilities() -> None:
    few = ("compute", "utility")
    found = asked(bundle("NVIDIA_VISIBLE_DEVICES=all"), capabilities=few)
    assert found is not None
    assert found.caps == few
    everything = asked(bundle("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all"), capabilities=few)
    assert everything is not None
    assert everything.caps == few
    with pytest.raises(UsageError, match="is not granted"):
        asked(bundle("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,video"), capabilities=few)


def test_a_site_may_grant_variables_to_privileged_containers_alone() -> None:
    assert gpus(bundle("NVIDIA_VISIBLE_DEVICES=all"), by_variable=False) is None
    assert gpus(privileged("NVIDIA_VISIBLE_DEVICES=all"), by_variable=False) == "all"
    assert gpus(bundle("CUDA_VERSION=8.0"), by_variable=False) is None


def mounted(*names: str, source: str = "/dev/null") -> dict[str, Any]:
    return {"mounts": [{"destination": f"{REQUEST_MOUNTS}/{name}", "source": source} for name in names]}


def test_mounts_request_where_the_site_says_so_and_precede_variables() -> None:
    own = bundle("NVIDIA_VISIBLE_DEVICES=all", **mounted("0", "1", "imex/0"))
    assert gpus(own) == "all"
    assert gpus(own, by_mounts=True) == "0,1"
    assert gpus(own, by_mounts=True, by_variable=False) == "0,1"
    assert gpus(bundle(**mounted("0", source="/dev/zero")), by_mounts=True) is None
    assert gpus(bundle(**mounted("cdi/nvidia.com/gpu/1", "cdi/nvidia.com/gpu=0")), by_mounts=True) == "1,0"


def test_variables_of_swarm_precede_nvidias() -> None:
    own = bundle("DOCKER_RESOURCE_GPU=1", "NVIDIA_VISIBLE_DEVICES=0")
    assert gpus(own) == "0"
    assert gpus(own, variables=("DOCKER_RESOURCE_GPU",)) == "1"
    assert gpus(bundle("NVIDIA_VISIBLE_DEVICES=0"), variables=("DOCKER_RESOURCE_GPU",)) == "0"


def annotated(*env: str, **annotations: str) -> Bundle:
    return bundle(*env, annotations={f"cdi.k8s.io/{name}": value for name, value in annotations.items()})


def test_annotations_precede_variables_if_all_are_devices_of_cdi() -> None:
    env = "NVIDIA_VISIBLE_DEVICES=0"
    assert gpus(annotated(env, b="nvidia.com/gpu=0", a="nvidia.com/gpu=1")) == "1,0"
    assert gpus(annotated(env, a="nvidia.com/gpu=1,all")) == "0"
    assert gpus(annotated(a="vendor.example/nic=0")) is None  # the engine's affair
    assert gpus(bundle(env, annotations={"other/a": "nvidia.com/gpu=1"})) == "0"
    named = asked(annotated(a="nvidia.com/gpu=left"))
    assert named is not None
    assert (named.gpus, named.cdi) == (None, ("nvidia.com/gpu=left",))


def test_amds_variable() -> None:
    found = asked(bundle("AMD_VISIBLE_DEVICES=0-1"))
    assert found is not None
    assert (found.vendors, found.gpus) == (("amd",), "0,1")
    assert asked(bundle("AMD_VISIBLE_DEVICES=void")) is None


def test_both_vendors() -> None:
    both = asked(bundle("NVIDIA_VISIBLE_DEVICES=all", "AMD_VISIBLE_DEVICES=all"))
    assert both is not None
    assert (both.vendors, both.gpus) == (("nvidia", "amd"), "all")
    assert gpus(bundle("NVIDIA_VISIBLE_DEVICES=none", "AMD_VISIBLE_DEVICES=1")) == "1"
    with pytest.raises(UsageError, match="two vendors"):
        asked(bundle("NVIDIA_VISIBLE_DEVICES=0", "AMD_VISIBLE_DEVICES=1"))


def test_rights_over_mig_as_a_whole_are_for_privileged_containers() -> None:
    env = ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_MIG_CONFIG_DEVICES=all")
    with pytest.raises(UsageError, match="NVIDIA_MIG_CONFIG_DEVICES=all"):
        asked(bundle(*env))
    assert gpus(privileged(*env)) == "all"
    assert variables_of(privileged(*env, "CUDA_VISIBLE_DEVICES=0")) == {"NVIDIA_MIG_CONFIG_DEVICES": "all"}


def test_the_policy_of_a_site() -> None:
    assert parse_request_policy(b"") == RequestPolicy()
    usual = b'supported-driver-capabilities = "%s"\n'
    assert parse_request_policy(usual % b"all") == RequestPolicy()
    assert parse_request_policy(usual % b"compute,utility").capabilities == ("compute", "utility")
    text = (
        b"accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
        b"accept-nvidia-visible-devices-as-volume-mounts = true\n"
        b'swarm-resource = "DOCKER_RESOURCE_GPU, DOCKER_RESOURCE_B"\n'
    )
    assert parse_request_policy(text) == RequestPolicy(False, True, ("DOCKER_RESOURCE_GPU", "DOCKER_RESOURCE_B"))


@pytest.mark.parametrize(
    "text",
    [
        *(b"swarm-resource = 1", b"swarm-resource", b'accept-nvidia-visible-devices-as-volume-mounts = "no"'),
        *(b"disable-require = 1", b"nvidia-container-runtime = 1"),
    ],
)
def test_a_policy_that_cannot_be_read_grants_nothing(text: bytes) -> None:
    with pytest.raises(Exception, match="bad-config"):
        parse_request_policy(text)
