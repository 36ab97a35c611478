"""What the rules about AMD make of more than their two cases."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind.host.record import dump_record, parse_record
from gpubind.host.recorded import RecordedHost
from tests.rules.cases_amd import CASES, MI355X, NO_GPU, NODES, amd, cxx
from tests.rules.situations import Situation, found, without
from tests.support.amd import RENDER, VIDEO, drm_device, kernel, kfd_node, merged, of_pci, opt, rocm, unserved
from tests.support.driver import host, rhel
from tests.support.driver import kernel as nvidias_kernel
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.starts import start_by
from tests.support.surveys import survey
from tests.support.trees import Dir, File, Hidden, Link, Node, Spec


def told_of(*parts: Spec, vendors: tuple[str, ...] = ("amd",)) -> list[tuple[str, str, str]]:
    """What is said of GPUs that nothing serves: severity, sentence, command."""
    situation = Situation(parts, request={"vendors": vendors}, facts={"groups": (VIDEO, RENDER)})
    about = [one for one in found(situation) if one.code == "gpu-unserved"]
    return [(one.severity, one.what, one.command or "") for one in about]


def test_a_gpu_that_amdgpu_does_not_take_is_an_error_where_it_is_the_only_one_and_a_warning_beside_others() -> None:
    what = "no kernel driver is bound to the AMD Instinct MI355X at 0000:05:00.0"
    assert told_of(*NO_GPU, MI355X) == [("error", what, "dmesg | grep 0000:05:00.0")]
    assert told_of(opt(), kernel(), unserved("0000:06:00.0", "0x75a3"))[0][0] == "warning"
    # NVIDIA's jobs run all the same; who asks for AMD's gets none.
    both = (*NO_GPU, MI355X, rhel(), nvidias_kernel())
    assert [severity for severity, *_ in told_of(*both, vendors=())] == ["warning"]
    assert [severity for severity, *_ in told_of(*both)] == ["error"]


def test_a_gpu_that_another_driver_has_is_a_note_and_the_driver_is_named() -> None:
    given = unserved("0000:06:00.0", "0x74a1", "vfio-pci")
    what = "the kernel driver vfio-pci is bound to the AMD Instinct MI300X at 0000:06:00.0"
    assert [(severity, said) for severity, said, _ in told_of(opt(), kernel(), given)] == [("note", what)]
    assert [severity for severity, *_ in told_of(*NO_GPU, given)] == ["error"]


def test_a_gpu_that_kfd_does_not_list_works_for_graphics_only() -> None:
    drawn = merged(drm_device("0000:07:00.0", 20, 200), of_pci("0000:07:00.0", device="0x67df", revision="0xc7"))
    what = "KFD does not list the AMD Radeon RX 480 Graphics at 0000:07:00.0, to which amdgpu is bound"
    assert [(severity, said) for severity, said, _ in told_of(opt(), kernel(), drawn)] == [("note", what)]
    assert [severity for severity, *_ in told_of(*NO_GPU, drawn)] == ["warning"]
    # What KFD hides from this process, it does list.
    hidden: Spec = {f"{NODES}/2/properties": Hidden()}
    assert told_of(opt(), kernel(), hidden) == []


def test_a_gpu_for_computing_that_kfd_lost_is_a_warning_beside_others() -> None:
    lost = merged(drm_device("0000:07:00.0", 20, 200), of_pci("0000:07:00.0", device="0x740f", revision="0x02"))
    assert [severity for severity, *_ in told_of(opt(), kernel(), lost)] == ["warning"]
    # Any card is for computing where KFD lists another one of its model.
    (one, other) = (kfd_node(2, 128, bus=3, gfx=110000, device=0x744C), drm_device("0000:03:00.0", 0, 128))
    cards = [of_pci(f"0000:{bus}:00.0", device="0x744c", revision="0xc8") for bus in ("03", "07")]
    listed = (opt(), kernel(gpus=0, bmc=False), one, other, *cards, drm_device("0000:07:00.0", 20, 200))
    assert [severity for severity, *_ in told_of(*listed)] == ["warning"]


NO_KFD = (opt(), {path: item for path, item in kernel().items() if "kfd" not in path})


@pytest.mark.parametrize(
    ("parts", "asks", "severity"),
    [
        (NO_KFD, {"vendors": ("amd",)}, "error"),
        (NO_KFD, {}, "error"),
        (NO_KFD, {"caps": ("graphics",)}, "warning"),
        ((*NO_KFD, rhel(), nvidias_kernel()), {}, "warning"),
        ((*NO_KFD, rhel(), nvidias_kernel()), {"vendors": ("amd",)}, "error"),
    ],
)
def test_a_kernel_without_kfd_serves_graphics_only(
    parts: tuple[Spec, ...], asks: dict[str, Any], severity: str
) -> None:
    situation = Situation(parts, request=asks, facts={"groups": (VIDEO, RENDER)})
    (one,) = [one for one in found(situation) if one.code == "kfd-missing"]
    assert (one.severity, one.command) == (severity, "grep HSA_AMD /boot/config-$(uname -r)")
    assert one.what == "the kernel has no KFD, which ROCm needs, although amdgpu is bound to 8 GPUs"


def test_a_gpu_of_the_driver_radeon_has_no_kfd_in_any_kernel() -> None:
    radeon = {path: Link("../radeon") for path in NO_KFD[1] if path.endswith("/driver")}
    situation = Situation((*NO_KFD, radeon), request={"vendors": ("amd",)}, facts={"groups": (VIDEO, RENDER)})
    assert "kfd-missing" not in [one.code for one in found(situation)]


OPENVINO: Spec = {"/usr/lib/python3/dist-packages/openvino/libs/libopenvino_intel_gpu_plugin.so": elf("plugin.so")}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (OPENVINO, ["the image is for Intel's GPUs, but the container gets only amd ROCm 6.2.4"]),
        ({**OPENVINO, **rocm("/opt/rocm-6.1.2", "6.1.2")}, []),
        ({"/usr/lib/x86_64-linux-gnu/libvpl.so.2": elf("libvpl.so.2")}, []),
    ],
)
def test_an_image_that_uses_intels_gpus_alone_is_reported_where_the_container_gets_none(
    more: Spec, expected: list[str]
) -> None:
    reported = [one for one in found(amd(image=cxx(more=more))) if one.code == "image-of-other-vendor"]
    assert [one.what for one in reported] == expected
    assert all("only Intel's GPUs" in (one.why or "") and one.severity == "warning" for one in reported)
    assert all((one.hint or "").endswith("or a host with Intel's GPUs") for one in reported)


def test_amdgpu_without_any_gpu_is_an_error_unless_another_vendors_is_there() -> None:
    def about(*parts: Spec, vendors: tuple[str, ...] = ("amd",)) -> list[str]:
        situation = Situation(
            parts, request={"vendors": vendors, "userspace": "host"}, facts={"groups": (VIDEO, RENDER)}
        )
        return [one.what for one in found(situation) if one.code == "no-gpu"]

    assert about(*NO_GPU) == ["amdgpu is loaded, but it has no GPU"]
    assert about(*NO_GPU, MI355X) == about(opt(), kernel()) == []
    assert about(*NO_GPU, rhel(), nvidias_kernel(), vendors=()) == []
    hidden: Spec = {f"{NODES}/2/gpu_id": "7\n", f"{NODES}/2/properties": Hidden()}
    assert about(*NO_GPU, hidden) == []


def test_what_a_host_makes_for_its_guests_is_not_reported() -> None:
    physical: Spec = {"/sys/devices/pci0000:00/0000:06:02.0/physfn": Link("../0000:05:00.0")}
    assert told_of(opt(), kernel(), unserved("0000:06:02.0", "0x74b5"), physical) == []


def test_without_any_driver_the_gpus_on_the_bus_are_named() -> None:
    (one,) = [one for one in found(Situation((MI355X,), request={"vendors": ("amd",)})) if one.severity == "error"]
    why = "no file matches, and amdgpu is not loaded; on the PCI bus: 0000:05:00.0 (no driver)"
    assert (one.code, one.why) == ("nothing-to-bind", why)
    (one,) = [
        one for one in found(Situation((opt(), MI355X), request={"vendors": ("amd",)})) if one.severity == "error"
    ]
    assert one.code == "driver-not-loaded"
    places = ("/sys/module/amdgpu", "/sys/class/kfd/kfd/topology/nodes", "/sys/bus/pci/devices/0000:05:00.0")
    assert one.where == ", ".join(places)


@pytest.mark.parametrize(
    ("rocr", "hip", "told"),
    [
        ("2,3", "1", "HIP's 0 is GPU 3 "),
        ("3,2", "0,1", "HIP's 0 is GPU 3 (GPU-7e5f0a1b2c3d4e33), HIP's 1 is GPU 2 "),
        ("2,3", "2", "HIP sees no GPU"),
        ("2,3", "1,1", "HIP's 0 is GPU 3 "),
        ("2,3", "GPU-7e5f0a1b2c3d4e33", "HIP's 0 is GPU 3 "),
    ],
)
@pytest.mark.parametrize("variable", ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_hips_list_counts_in_what_rocr_leaves(variable: str, rocr: str, hip: str, told: str) -> None:
    findings = found(amd(environ={"ROCR_VISIBLE_DEVICES": rocr, variable: hip}))
    what = next(finding.what for finding in findings if finding.code == "hip-visible-composed")
    assert told in what


@pytest.mark.parametrize(
    ("environ", "what", "known"),
    [
        (
            {"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "2"},
            "names `2`, which is not one of the 2 GPUs that ROCr shows: HIP will see no GPU",
            "0 (GPU-7e5f0a1b2c3d4e22), 1 (GPU-7e5f0a1b2c3d4e33)",
        ),
        (
            {"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1,2"},
            "names `2`, which is not one of the 2 GPUs that ROCr shows: HIP will see only 1 device",
            "0 (GPU-7e5f0a1b2c3d4e22), 1 (GPU-7e5f0a1b2c3d4e33)",
        ),
        (
            {"HIP_VISIBLE_DEVICES": "9"},
            "names `9`, which is not one of the 8 GPUs that ROCr shows: HIP will see no GPU",
            "0 (GPU-7e5f0a1b2c3d4e00), ",
        ),
    ],
)
def test_a_name_that_hip_does_not_know_is_counted_in_what_rocr_shows(
    environ: dict[str, str], what: str, known: str
) -> None:
    (one,) = [one for one in found(amd(environ=environ)) if one.code == "visible-devices-unknown"]
    assert one.what == f"HIP_VISIBLE_DEVICES {what}"
    assert (one.hint or "").startswith(f"name one of these: {known}")


def test_a_gpu_of_which_kfd_names_no_render_node_is_reported_in_one_sentence() -> None:
    (one,) = [one for one in found(amd({f"{NODES}/2/properties": ""})) if one.code == "amd-render-missing"]
    assert one.what == "GPU 0 has no render node: ROCm ignores it, and the indexes after it move up"


def test_properties_that_no_cgroup_hides_are_reported_with_their_own_reason() -> None:
    parts: Spec = {
        f"{NODES}/2/properties": Hidden(),
        f"{NODES}/3/properties": "simd_count 5\ndrm_render_minor -5\n",
        f"{NODES}/4/properties": Dir(),
    }
    hidden, damaged = [one for one in found(amd(parts)) if one.code == "kfd-hidden"]
    assert hidden.what == "1 node of the KFD topology cannot be read, so their GPUs are not in the plan"
    assert (hidden.where, hidden.command) == (f"{NODES}/2: forbidden: permission denied", "cat /proc/self/cgroup")
    assert damaged.what == "2 nodes of the KFD topology cannot be read, so their GPUs are not in the plan"
    assert damaged.command == "dmesg | grep kfd"
    assert "cgroup" not in f"{damaged.why} {damaged.hint}"
    assert f"{NODES}/3/properties: line 2: not a name and a number: 'drm_render_minor -5'; {NODES}/4: " in (
        damaged.where or ""
    )


def test_gpus_that_are_asked_for_by_name_do_not_count_in_the_callers_list() -> None:
    situation = amd(environ={"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "2"})
    asked = situation._replace(request={**situation.request, "gpus": "1"})
    assert "hip-visible-composed" not in [finding.code for finding in found(asked)]


@pytest.mark.parametrize("value", ["0,8", "8", "", "-1", "0,0", "all"])
def test_a_list_of_rocrs_that_ends_early_is_told_once(value: str) -> None:
    findings = [finding for finding in found(amd(environ={"ROCR_VISIBLE_DEVICES": value})) if finding.vendor == "amd"]
    assert [finding.subject for finding in findings].count("ROCR_VISIBLE_DEVICES") == 1


def test_a_healthy_host_has_nothing_to_say_but_that_no_image_is_known() -> None:
    assert [finding.code for finding in found(amd())] == ["userspace-unknown"]


@pytest.mark.parametrize(
    ("environ", "hint"),
    [
        ({}, "plan with ROCM_PATH=/opt/rocm-5.7.1: the host has the library there, but uses another ROCm"),
        ({"ROCM_PATH": "/opt/rocm-5.7.1"}, None),
    ],
)
def test_a_library_of_another_release_than_the_one_that_serves_is_named_with_its_release(
    environ: dict[str, str], hint: Optional[str]
) -> None:
    program: Spec = {"/usr/bin/solve": File(elf(needed=("libamdhip64.so.5",), kind=2), 0o755)}
    releases = rocm("/opt/rocm-5.7.1", "5.7.1", "libamdhip64.so.5")
    situation = amd(releases, environ=environ, image=cxx(more=program))._replace(program="solve")
    hints = [one.hint for one in found(situation) if one.code == "program-library-missing"]
    assert hints == ([hint] if hint else [])


def test_nodes_that_everybody_may_use_need_no_group() -> None:
    spec = {path: item._replace(mode=0o666) if isinstance(item, Node) else item for path, item in kernel().items()}
    situation = Situation((opt(), spec), request={"vendors": ("amd",)}, backend="podman")
    assert "amd-groups" not in [finding.code for finding in found(situation)]


def test_a_start_that_keeps_the_callers_groups_needs_none_by_number() -> None:
    situation = amd(backend="podman", image=image(glibc()))
    assert "amd-groups" in [finding.code for finding in found(situation._replace(start=start_by("podman", uid=0)))]
    assert "amd-groups" not in [
        finding.code for finding in found(situation._replace(start=start_by("podman", uid=1000)))
    ]


def test_rules_about_amds_gpus_are_silent_where_there_is_none() -> None:
    situation = Situation((without(opt()), kernel(gpus=0)), request={"vendors": ("amd",), "userspace": "host"})
    facts = {"groups": (VIDEO, RENDER)}
    assert [finding.code for finding in found(situation._replace(facts=facts))] == ["no-gpu"]


@pytest.mark.parametrize("code", sorted(CASES))
@pytest.mark.parametrize("which", ["fires", "almost"])
def test_a_record_of_a_host_gives_the_findings_of_the_host(
    code: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    situation: Situation = getattr(CASES[code], which)
    before = found(situation)
    machine = host(*situation.parts, **situation.facts)
    again = RecordedHost(parse_record(dump_record(survey(machine), "1").encode()), "test")
    monkeypatch.setattr("tests.rules.situations.host", lambda *parts, **facts: again)
    assert found(situation) == before


@pytest.mark.parametrize(("machine", "expected"), [(183, ["error"]), (243, ["error"]), (62, [])])
def test_an_image_of_another_machine_is_told_where_the_host_gives_nodes_alone(
    machine: int, expected: list[str]
) -> None:
    situation = Situation((opt(), kernel()), image(glibc(machine=machine)), {"vendors": ("amd",), "userspace": "image"})
    assert [one.severity for one in found(situation) if one.code == "image-architecture"] == expected
