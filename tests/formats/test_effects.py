"""What each row of a format's tables, and each form of a name, gives. `tests/golden/effects/` has the values."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest

from gpubind.errors import GpubindError
from gpubind.formats.archive import magic, oci, sif, squashfs, tar
from gpubind.formats.driver import (
    cdi,
    cuda_packages,
    engines,
    filelist,
    gpu_names,
    icd,
    kernel,
    mknod,
    neo,
    nvidia,
    vaapi,
)
from gpubind.formats.driver import names as names_module
from gpubind.formats.driver.kernel import amdgpu_name, parse_acl
from gpubind.formats.driver.liblist import entry_kind, library_stem
from gpubind.formats.driver.names import driver_section, driver_version_of, name_facts, rocm_section
from gpubind.formats.driver.nvidia import list_argv, parse_failure, parse_list
from gpubind.formats.driver.registration import ENGINES, Registration, is_ours, members
from gpubind.formats.elf.elf import is_glibc_file, is_loader, split_library_path
from gpubind.formats.gpucode import hip
from gpubind.formats.text.json import parse_json, written_like
from gpubind.formats.text.requirements import parse_policy
from gpubind.formats.text.shell import Exports, parse_exports
from gpubind.formats.text.yaml import parse_yaml
from gpubind.loader.execve import started_by_env
from gpubind.loader.hwcaps import hwcaps_subdirectories, platforms
from gpubind.loader.musl import is_provided_by_musl
from gpubind.loader.python import PYTHON
from gpubind.loader.search import LoadFailure, newest_version, version_prefix
from gpubind.loader.verdict import Conflict, Unfit
from gpubind.model.vendors import CDI_KINDS
from tests.formats.test_damage import FORMAT
from tests.formats.test_sycl import archive, code
from tests.formats.test_tar import info
from tests.support.golden import GOLDEN, assert_golden
from tests.support.squashfs import SifObject
from tests.support.squashfs import sif as built_sif

Rows = Iterable[tuple[object, object]]


def each(function: Callable[[Any], object], values: Iterable[Any]) -> Rows:
    """Each value, and what *function* gives for it."""
    return [(value, effect(function, value)) for value in values]


def effect(function: Callable[[Any], object], value: object) -> object:
    try:
        return function(value)
    except GpubindError as error:
        return f"{error}: {error.why}"


def archives() -> Rows:
    heads = [
        b"\xfd7zXZ\0",
        b"BZh9",
        b"\x7fELF",
        b"PK\3\4",
        b"QFI\xfb",
        b"<html>",
        b'{"a"',
        bytes(1080) + b"\x53\xef",
        bytes(31) + b"hsqs",
        b"#!/bin/sh",
        b"a text of any kind",
        b"\0\1\2\3\4\5\6\7\x08",
        b"",
        b"tab\t",
        b"\xff",
    ]
    types = [
        f"application/vnd.{name}{end}"
        for name in (
            "oci.image.layer.v1.tar",
            "oci.image.layer.nondistributable.v1.tar",
            "docker.image.rootfs.diff.tar",
            "docker.image.rootfs.foreign.diff.tar",
            "oci.image.layer.v2.tar",
        )
        for end in ("", "+gzip", "+zstd", ".gzip", ".zstd", "+xz", "x")
    ]
    flags = [bytes([flag]) for flag in b"\x0001234567SxXLKgV"]
    image = {"GraphDriver": {"Name": "x", "Data": {"UpperDir": "/u", "LowerDir": "/l::/m"}}}
    descriptor = {
        "digest": "sha256+b64:ab=c",
        "size": 1,
        "annotations": {
            "org.opencontainers.image.ref.name": "a",
            "io.containerd.image.name": "b",
            "x": "c",
        },
    }
    bare = {"digest": "sha256:ab", "size": 1, "mediaType": "m", "platform": {"os": "o", "architecture": "a"}}
    index = oci.parse_oci_index(json.dumps({"manifests": [descriptor, bare]}).encode())

    def layers(driver: str) -> object:
        image["GraphDriver"]["Name"] = driver
        return oci.parse_inspected(json.dumps([image]).encode()).layers

    def header(flag: bytes) -> object:
        made = info("a/", flag, size=7, linkname="target", devmajor=195, devminor=2, mode=0o7777)
        return tar.parse_tar_header(made.tobuf())

    def with_pax(flag: bytes, attributes: dict[str, str]) -> object:
        parsed = tar.parse_tar_header(info("a/", flag, size=7, uid=1, gid=2).tobuf())
        return None if parsed is None else tar.apply_pax(parsed, attributes)

    pax = [
        {},
        {"path": "p", "linkpath": "l", "uid": "8", "gid": "9", "size": "10", "mtime": "1"},
        {"GNU.sparse.name": "n", "path": "p", "GNU.sparse.size": "11", "size": "5"},
        {"GNU.sparse.realsize": "12", "GNU.sparse.size": "11", "GNU.sparse.map": "0,1", "path": ""},
        {"path": "p/"},
    ]

    def file_system(number: int) -> object:
        data = built_sif(SifObject(b"x", file_system=number))
        return sif.parse_sif_descriptors(data[4096:][: 4 * 585], 4096, 4 * 585, len(data))

    return [
        *each(magic.describe_header, heads),
        *each(magic.is_sif, [bytes(32) + b"SIF_MAGIC\0", b"SIF_MAGIC\0"]),
        *each(magic.is_squashfs, [b"hsqs", b"sqsh"]),
        *each(oci.is_layer_type, types),
        *each(oci.parse_inspected, [b"[{}]"]),
        *each(
            lambda data: oci.parse_inspected(data).layers,
            [
                b'[{"GraphDriver": {"Name": "overlay", "Data": {"UpperDir": "/u"}}}]',
                b'[{"GraphDriver": {"Name": "overlay"}}]',
            ],
        ),
        *each(layers, ["overlay", "overlay2", "fuse-overlayfs", "vfs", ""]),
        *each(lambda one: (one, one.names, one.path), index),
        *each(file_system, range(8)),
        *each(header, flags),
        *each(
            tar.parse_pax,
            [b"23 GNU.sparse.offset=1\n25 GNU.sparse.numbytes=2\n", b"7 a=bc\n", b"7 a=bc\n\0007 d=ef\n"],
        ),
        *each(tar.parse_sparse_text, [b"2\n1\n2\n3\n4\nrest", b"0\nrest", b"000000001\n1\n9\n"]),
        *(
            (flag, attributes, with_pax(flag, attributes))[1:]
            for flag in (b"0", b"5", b"S", b"\0")
            for attributes in pax
        ),
        *each(tar.parse_sparse_map, ["1,2,3"]),
        *each(tar.parse_sparse_block, [b"00000000001 00000000002 ".ljust(48, b"\0"), bytes(24)]),
        *each(oci.parse_env_lines, [("A=1", "B", "A=2=3", "")]),
        *each(squashfs._COMPRESSIONS.get, range(8)),
    ]


def drivers() -> Rows:
    ids = [
        "0",
        "007",
        "1000000000",
        "GPU-0",
        "gpu-AB-1",
        "GPU-",
        "GPU-x",
        "minor:3",
        "renderD128",
        "/dev/dri/renderD0129",
        "renderD1",
        "1:2/3",
        "MIG-GPU-ab/1/2",
        "mig-gpu-ab/1/2",
        "MIG-ab",
        "1:2",
        "01:00.0",
        "0000:01:00.0",
        "00000000:A1:00.7",
        "01:00.8",
        "",
        " ",
        "all",
        "MIG-1:2",
        "vendor.com/gpu=0",
        "\u0661",
    ]
    visible = [
        "0,1",
        " 0 , 1 ,",
        "",
        ",",
        "all",
        "none",
        "void",
        "0,void",
        "none,all",
        "all,none",
        "0,none",
        "0,,1",
        "0-3",
        "3-0",
        "0-1024",
        "0-1025",
        "0x1F",
        "1234567890",
        "12345678",
        "007",
        "All",
        "NONE",
        "xyz",
        "0x" + "1" * 17,
    ]
    wheels = [
        "nvidia_cuda_runtime_cu12-12.4.127.dist-info",
        "nvidia_cuda_runtime-13.0.48.dist-info",
        "cupy_cuda12x-13.0.dist-info",
        "jax_cuda12_plugin-0.5.dist-info",
        "jax_cuda12_pjrt-0.5.dist-info",
        "tensorrt_cu12_libs-10.dist-info",
        "tensorrt_cu12_bindings-10.dist-info",
        "torch-2.4.1+cu124.dist-info",
        "flash_attn-2.7+cu12torch2.6.dist-info",
        "x-1+cuda118.dist-info",
        "x-1+cu92.dist-info",
        "x-1+cpu.dist-info",
        "NVIDIA_CUDA_RUNTIME_CU11-11.8.89.dist-info",
    ]
    packages = [
        ("conda", "cuda-cudart-12.4.127-0.json"),
        ("conda", "cuda-runtime-12.4.0-0.json"),
        ("conda", "cuda-version-12.4-3.json"),
        ("conda", "cudatoolkit-11.8.0-h.json"),
        ("conda", "pytorch-cuda-12.1-h.json"),
        ("conda", "python-3.11-h.json"),
        ("spack", "cuda-12.4.1-l7hh5stwqzmqkwfn"),
        ("spack", "cuda-12.4-abc"),
        ("easybuild", "12.4.0"),
        ("easybuild", "12"),
    ]
    nodes = [
        "/dev/nvidia0",
        "/dev/nvidiactl",
        "/dev/nvidia-modeset",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-nvswitch0",
        "/dev/nvidia-caps-imex-channels/channel3",
        "/dev/nvidia-nvswitchctl",
        "/dev/nvidia-nvlink",
        "/dev/nvidia-fs",
        "/dev/nvidia-fs3",
        "/dev/kfd",
        "/dev/dri/card0",
        "/dev/dri/renderD128",
        "/dev/infiniband/uverbs0",
        "/dev/infiniband/rdma_cm",
        "/dev/x y",
        "/dev/nvidia-caps/nvidia-cap1",
        "/dev/nvidia-caps/nvidia-cap13",
        "/dev/nvidia-caps/nvidia-cap99",
    ]
    minors = {"config": 1, "gpu0/gi1/ci0/access": 13}
    names = [
        "libcuda.so.550.163.01",
        "libcuda.so.1",
        "libnvidia-ml.so.1",
        "nvidia-smi",
        "libEGL.so.1",
        "libGLX_nvidia.so.0",
        "libz.so.1",
        "libnvidia-egl-gbm.so.1.1.2",
        "libamdhip64.so.6",
        "libdrm.so.2",
        "librocblas.so.4",
        "nvidia-bug-report.sh",
        "libcuda-550.163.01-rc",
    ]
    smi = "1, GPU-b, 00000000:02:00.0, B\n0, GPU-a, 00000000:01:00.0, A, x\n1000, GPU-c, x, C\n2, x, y, D\n3, GPU-d\n"
    answers = [
        "nvidia-container-cli: initialization error: nvml error: driver not loaded\n",
        "nvidia-container-cli: x\n",
        "a\nb\n\n",
        "",
        "nvidia-container-cli.real: detection-x error: y",
        "other: mount error: z",
        "nvidia-container-cli: Mount error: z",
        "nvidia-container-cli: " + "x" * 400,
        "x" * 400,
        "nvidia-container-cli: a error: " + "x" * 400,
    ]
    listed = (
        "/dev/nvidia0\n/proc/driver/nvidia/x\n/lib/firmware/x.bin\n/usr/lib/libx.so.1\n/usr/lib/libx.so\n/usr/bin/x\n"
    )
    properties = [
        {},
        {"location_id": 0xC100, "domain": 0},
        {"domain": 1},
        {"location_id": 0x3C1FF, "domain": 0x10000},
        {"location_id": 7},
    ]
    chips = [{}, {"gfx_target_version": 90402}, {"gfx_target_version": 90010}, {"gfx_target_version": 110001}]
    uuids = [{}, {"unique_id": 0}, {"unique_id": 1}, {"unique_id": (1 << 64) - 1}, {"unique_id": 1 << 64}]
    configuration = (
        b'[nvidia-container-cli]\nno-cgroups = true\n[nvidia-container-runtime.modes.csv]\nmount-spec-path = "/x"\n'
    )
    policies = [
        b"",
        b'swarm-resource = "A, B,,"',
        b'supported-driver-capabilities = "compute,utility"',
        b"disable-require = true",
        b'supported-driver-capabilities = "all,x"',
        b'nvidia-container-runtime.mode = "legacy"',
        b'nvidia-container-runtime.mode = "cdi"',
        b"accept-nvidia-visible-devices-envvar-when-unprivileged = false",
        b"accept-nvidia-visible-devices-as-volume-mounts = true",
    ]
    daemons = [
        b"[]",
        b"{}",
        b'{"runtimes": {"a": {"path": "/a"}, "b": {}, "c": 1, "d": {"path": "\\u0000"}}}',
        b'{"runtimes": 1}',
        b'{"default-runtime": "nvidia",\n"features": {"cdi": true},\n"cdi-spec-dirs": ["/x", "y", 1, "/\\u0000"],\n'
        b'"selinux-enabled": true, "z": 1}',
        b'{"features": 1, "cdi-spec-dirs": 1, "selinux-enabled": 1, "default-runtime": null}',
    ]
    lines = [
        ("x: 1\nkey: 2", "key"),
        ("# key: 1\nkey=2", "key"),
        ("{'a', 'key' : 1}", "key"),
        ("other-key: 1", "key"),
        ("", "key"),
    ]
    acl = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, bits, 7) for tag, bits in zip((1, 2, 4, 8, 16, 32), (7, 4, 2, 1, 6, 0))
    )
    text = "# amdgpu.ids\n74A1,\t00,\tAMD Instinct MI300X\n074a1, 01, B \n74A2,\t0, \n"
    constants = b"\0tgllp\0bmg-g21\0dg2\0xxmtl\0adls\0" + b"\x0026.27.039122\0IoctlHelper\0"
    ihd = b"Intel iHD driver for Intel(R) Gen Graphics - 25.2.3 ()"

    def rules(variable: str) -> object:
        rule = gpu_names.LIST_RULES[variable]
        return rule, [str(gpu_names.parse_list_item(name, rule) or "")[:5] for name in ids]

    return [
        *each(gpu_names.parse_gpu_id, ids),
        *each(gpu_names.split_visible, visible),
        *each(gpu_names.split_nvidia_visible, visible),
        *each(lambda text: str(gpu_names.split_amd_visible(text))[:60], visible),
        *each(rules, gpu_names.LIST_RULES),
        *each(lambda name: gpu_names.hides_all((name,)), ["", "-1", "NoDevFiles", "0"]),
        *each(gpu_names.is_index, ids),
        *each(gpu_names.is_uuid, ids),
        *(
            (name, getattr(gpu_names, name))
            for name in (
                "SLURM_GPUS",
                "LIBRARY_VARIABLES",
                "TOOLKIT_VARIABLES",
                "ZE_VARIABLES",
                "INTEL_VARIABLES",
                "GPU_VARIABLES",
            )
        ),
        *each(cuda_packages.cuda_of_wheel, wheels),
        *each(
            cuda_packages.cuda_of_library,
            ["libcudart.so.10.2", "libcudart.so.11.0", "libcublas.so.11", "libcublasLt.so.9.0", "libx.so.1"],
        ),
        *each(lambda row: cuda_packages.cuda_of_package(row[1], row[0]), packages),
        *each(lambda path: mknod.node_command(path, minors), nodes),
        *each(mknod.load_command, [0, 1, 2]),
        *each(mknod.capability_file, ["config", "monitor", "gpu0/gi1/access", "gpu0/gi1/ci0/access"]),
        *each(name_facts, names),
        *each(driver_section, names),
        *each(rocm_section, names),
        *each(driver_version_of, names),
        *each(entry_kind, ["libx.so", "/usr/libx.so.1", "/usr/x", "x"]),
        *each(library_stem, ["libcuda.so.1", "libcuda"]),
        *each(nvidia.parse_gpu_rows, [smi]),
        ("257 lines", len(nvidia.parse_gpu_rows("".join(f"{number}, GPU-a, , x\n" for number in range(257))))),
        (
            "257 answers",
            len(
                nvidia.parse_capabilities(
                    "".join(f"0:{n // 256:02x}:{n % 256:02x}.0, 8\n".replace("0:", "0000:", 1) for n in range(257))
                )
            ),
        ),
        ("companions", [str(companion) for companion in names_module.COMPANIONS]),
        *each(nvidia.parse_capabilities, ["00000000:01:00.0, 8.6\nx, 1\n"]),
        *each(parse_failure, answers),
        *each(parse_list, [listed]),
        *each(list_argv, ["/", "/run/nvidia"]),
        *((name, getattr(nvidia, name)) for name in ("COMPUTE_CAPABILITY_QUERY", "GPU_QUERY")),
        *each(kernel.pci_of, properties),
        *each(kernel.gfx_of, chips),
        *each(kernel.uuid_of, uuids),
        *each(kernel.parse_number, ["0", "999999999", "1000000000", "-1", "", "\u0661", "x"]),
        *each(kernel.normalize_pci, ["00000000:A1:0b.7", "0000:01:00.8", "000:01:00.0", "000000000:01:00.0"]),
        *each(
            kernel.parse_modules,
            [
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module",
                "x",
            ],
        ),
        *each(
            kernel.parse_groups,
            ["root:x:0:\nvideo:x:44:a\nother:x:44:\nx:y\nbad:x:\u0661:\nlong:x:99999999999:\nlast:x:9999999999:"],
        ),
        *each(kernel.parse_mig_minors, ["config 1\nx\ngpu0/gi1/access 13\n"]),
        *each(
            kernel.parse_gpu_information,
            [
                "Model: A\nGPU UUID: GPU-1\nBus Location: 0000:0A:00.0\nDevice Minor: 3\nGPU Excluded: Yes\n",
                "Model: A\nModel: B\n",
                "GPU UUID: GPU-????\nBus Location: ????\nDevice Minor: x\nGPU Excluded: No\n",
                "",
            ],
        ),
        *each(kernel.parse_fields, ["a: b: c\n a : d\nx\n"]),
        *each(
            engines.find_no_cgroups_line,
            [configuration, b"", b"nvidia-container-cli = 1", b"[nvidia-container-cli]\nno-cgroups = 1"],
        ),
        *each(
            engines.parse_mount_spec_path,
            [configuration, b"", b'nvidia-container-runtime.modes.csv.mount-spec-path = "x"'],
        ),
        *each(engines.parse_request_policy, policies),
        *each(engines.parse_daemon, daemons),
        *each(
            engines.redact_daemon_config,
            [*daemons, b'{"secret": "x",\n\n"features": {"a": 1},\n"runtimes": {"r": {"path": "/r"}}}'],
        ),
        *each(engines.version_command, ["docker", "podman"]),
        *each(lambda name: [engines.releases(name)[0], engines.releases(name)[-1]], ["docker", "podman"]),
        *each(lambda version: engines.release_of("docker", version), [None, (1,), (28, 2), (999,)]),
        *each(lambda row: engines.line_of(*row), lines),
        *((engine, [field for field in row if not callable(field)]) for engine, row in ENGINES.items()),
        *each(members, [b'{"runtimes": {}, "a": {}}', b'{"runtimes": {"x": {}}}', b""]),
        *each(parse_acl, [acl, acl[:-1], b"", b"\1\0\0\0" + acl[4:]]),
        *each(lambda row: amdgpu_name(text, *row), [(0x74A1, 0), (0x74A1, 1), (0x74A2, 0), (1, 1)]),
        *each(filelist.parse_filelist, [b'[{"name": "x"}, {"name": "y", "type": "LIB", "is_32bit_compat": "True"}]']),
        *each(
            lambda row: row.is_library, [filelist.ListedFile("x", kind) for kind in ("LIB", "SYMLINK", "BINARY", "")]
        ),
        *each(
            lambda data: neo.parse_runtime(data, ("tgllp", "bmg", "dg2", "mtl", "adls", "lnl")),
            [
                constants,
                constants.replace(b"adls", b"xxxx"),
                constants.replace(b"dg2", b"xxx").replace(b"adls", b"xxxx"),
                constants + b"IoctlHelperXe",
            ],
        ),
        *each(
            neo.build_of, ["libze_intel_gpu.so.1.3.24595", "libze_intel_gpu.so.1.14.37020.3", "libze_intel_gpu.so.1"]
        ),
        *each(vaapi.parse_release, [ihd, b""]),
        *each(vaapi.lacks_xe, [b"INTEL_XE_BUFMGR_DEBUG", b""]),
        *each(vaapi.maps_xe, [b"xe\0", b"xe"]),
    ]


def specs() -> Rows:
    """CDI specs with every field, and ICD manifests."""
    node = {"path": "/dev/x", "hostPath": "/h", "type": "c", "major": 1, "minor": 2, "fileMode": 3, "permissions": "r"}
    rdt = {"closID": "c", "l3CacheSchema": "l", "memBwSchema": "m", "schemata": ["s"], "enableMonitoring": True}
    hook = {"hookName": "prestart", "path": "/p", "args": ["a"], "env": ["A=b"], "timeout": 4}
    whole = {
        "env": ["A=b"],
        "deviceNodes": [{**node, "uid": 4, "gid": 5}, {"path": "/dev/y"}],
        "netDevices": [{"hostInterfaceName": "h", "name": "n"}],
        "hooks": [hook, {"hookName": "poststop", "path": "/q"}],
        "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro"], "type": "bind"}],
        "intelRdt": rdt,
        "additionalGids": [6],
    }
    head = {"cdiVersion": "v1.1.0", "kind": "a.b/c", "annotations": {"k": "v"}, "containerEdits": whole}
    device = {"name": "d", "annotations": {"x": "y"}, "containerEdits": {"env": ["A=b"]}}
    text = json.dumps({**head, "devices": [device]}).encode()
    yield from cdi.parse_cdi(text)._asdict().items()
    for name in cdi._HOOK_NAMES:
        yield name, cdi.parse_cdi(text.replace(b"prestart", name.encode())).edits.hooks[0].hook_name
    for letter in ("b", "c", "u", "p"):
        yield letter, cdi.parse_cdi(text.replace(b'"type": "c"', f'"type": "{letter}"'.encode())).edits.nodes[0]
    yield "sources", [one.source for one in cdi.parse_cdi(text).edits.nodes]
    yield from each(cdi.is_device_name, ["0", "a:b", "-", "a-"])
    yield "kinds", CDI_KINDS
    manifests = [
        b'{"file_format_version": "1.0.0", "ICD": {"library_path": "a.so", "api_version": "1"}}',
        b'{"layer": {"library_path": "b.so"}, "layers": [{"library_path": "c.so"}, {"library_path": 1}, 2], "ICD": 3}',
        b" a.so \n\n",
    ]
    for data in manifests:
        manifest = icd.parse_icd(data)
        yield data, manifest
        yield "with other paths", icd.with_library_paths(manifest, {"a.so": "/x", "c.so": "/y"})


def gpu_code() -> Rows:
    versions = [f"{major}.{minor}" for major, minor in product((8, 9, 11, 12, 20, 30, 35), range(80))]
    found = ((version, code(archive(f"64.{version}.0", size=0)).code) for version in versions)
    names = ["x_gfx900.hsaco", "x_gfx90a-xnack-.co", "x_gfx9-4-generic.x", "gfx11-generic", "gfx12", "x_gfx1201.dat"]
    archived = [["a_gfx1151.kpack", "b_gfx1150.kpack", "x"], ["a_gfx11X-all.kpack"], ["a_gfx90a-xnack+.kpack"], []]
    gpus = ["sm_80+", "sm_87", "sm_90", "gfx90a:xnack+", "gfx906:sramecc-:xnack+", "pvc"]
    return [
        *((version, archs) for version, archs in found if archs),
        *each(hip.arch_in_name, names),
        *each(hip.parse_archives, archived),
        *each(lambda gpu: parse_policy(f"gpus = ['{gpu}']".encode()).gpus, gpus),
    ]


def texts() -> Rows:
    words = [
        "",
        "~",
        *(
            form
            for word in ("null", "y", "yes", "on", "true", "n", "no", "off", "false", "yES")
            for form in (word, word.title(), word.upper())
        ),
    ]
    numbers = [
        "07",
        "-07",
        "+0o7",
        "0O7",
        "0xF",
        "0XF",
        "0b1",
        "0B1",
        "0",
        "00",
        "9",
        "+9",
        "1_0",
        "1.",
        ".5",
        "+.5e3",
        "1e3",
        "1E-3",
        "1e",
        "0x",
        "9223372036854775807",
        "-9223372036854775808",
        "-9223372036854775809",
        "08.5",
        "1.5.",
        "- 1",
        "1e309",
    ]
    scripts = [
        "A=1",
        "export A=1",
        "export A",
        "unset A; B=2",
        "A=1 B=2",
        'A="x$B"',
        "A='$B'",
        "A=${B:-c}",
        "A=${B-c}",
        "A=${B:+c}",
        "A=${B+c}",
        "A=$(x)",
        "A=`x`",
        "A=$1",
        "A=${#B}",
        "A=${B%x}",
        "A=~/x",
        "A={a,b}",
        'A="\\$"',
        'A="\\x"',
        "A=\\x",
        "A=a\\\nb",
        "A='",
        'A="',
        "if x; then",
        ". x",
        "_=1",
        "export A=1 B=$A",
        "export A=1\nB=$A",
        "export",
        "A=$",
        'A="$"',
        "A=$'x'",
        'A=$"x"',
        "A=1;B=2 # c\n# d\n",
        "A=$RANDOM",
        "A=$HOME",
        "A=1\r",
        "A=\0",
        'B=;A="${B:-"x"}"',
        "B=x;A=${B:-${C:-d}}",
        "A=${B:-" * 9 + "}" * 9,
        "A=${B:-" * 8 + "}" * 8,
        "unset A=1",
        "unset",
        "A=a|b",
        "A=a&",
        "A=(a)",
        "A=$_x",
        "A=$B\\",
        "A=x$",
        "UID=1",
        "SINGULARITY_NAME=x",
        "A+=x",
        "A=$(case x)",
        "A=}",
        'A="${B:-\\}}"',
        "A=${B:-'x'}",
        "A=\"${B:-'x'}\"",
        "A=${B?x}",
        "A=$[1]",
        'A="${B:-x y}"',
        "A=x y",
        "A=${B:-x y}",
        "A=x\ny",
        "if=1",
        "A=#x",
        "A=x#y #z",
        "  A=1  ",
        "export  A  B=2;unset A",
        "unset A D",
        "export A=1; unset A",
        "A=$(echo 'x' \"y\")",
        "A=$A",
        "A=$E",
        "A=${E-x}",
        "A=${E:+x}",
        "A=$F",
        "A=${F:-x}",
        "A=${D:+x}",
        "A=${D+x}",
        "A=${HOME:-x}",
    ]
    before = Exports({"D": "d", "E": None}, frozenset(("D",)), frozenset(("F",)))
    known = [
        "A",
        "D",
        "E",
        "F",
        "HOME",
        "PATH",
        "UID",
        "PS1",
        "LINENO",
        "APPTAINER_X",
        "BASH_X",
        "COMP_X",
        "TERM",
        "HISTSIZE",
        "EPOCHTIME",
    ]
    merged = [
        "<<: {a: 1}\nb: 2",
        "<<: [{a: 1}, {b: 2}]",
        "'<<': x",
        "!!str <<: x",
        "1.5: x",
        "{yes: x}",
        "a: &x 1\nb: *x",
        "- a\n- ! 1",
        "--- x",
        "{b: [a,]}",
    ]

    def exports(text: str) -> object:
        made = parse_exports(text, before)
        return dict(made.env), sorted(made.exported), sorted(made.unknown), made.is_unknown

    surrogates = [
        b'"\\ud800"',
        b'{"\\udcff": ["\\ud83d\\ude00"]}',
        b'"x"',
        b"123456789012345678901",
        b"12345678901234567890",
    ]
    likes = ['{"a": 1}', '{"a":1}\n', '{\n  "a": 1\n}\n', '{\r\n\t"a": 1}', "{}"]
    return [
        *each(lambda data: parse_json(data, 99, FORMAT), surrogates),
        *each(lambda data: parse_json(data, 99, FORMAT, allow_surrogates=True), surrogates),
        *each(parse_yaml, surrogates[1:3]),
        *each(lambda like: written_like({"a": ["\u00e9"], "b": {}}, like), likes),
        *each(lambda text: parse_yaml(text.encode()), [*words, *numbers, *merged]),
        *each(exports, scripts),
        *each(before.is_known, known),
        *each(lambda name: before.with_value(name, "v").env, ["D", "F"]),
        *each(
            lambda text: sorted(before.with_all_unknown(text).unknown),
            ["A=1\nunset B; read C\nexport G\nH+=1\nI:=2", ""],
        ),
    ]


def loaders() -> Rows:
    files = [
        "ld-linux-x86-64.so.2",
        "ld64.so.1",
        "ld.so.1",
        "ld-musl-x86_64.so.1",
        "libc.so.6",
        "libc.so.7",
        "libnsl.so.1",
        "libm.so.6",
        "libmvec.so.1",
        "libdl.so.2",
        "libpthread.so.0",
        "librt.so.1",
        "libutil.so.1",
        "libresolv.so.2",
        "libanl.so.1",
        "libthread_db.so.1",
        "libBrokenLocale.so.1",
        "libc_malloc_debug.so.0",
        "libnss_files.so.2",
        "libnss_nis.so.2",
        "libmemusage.so",
        "libpcprofile.so",
        "libSegFault.so",
        "libxnet.so",
        "libz.so.1",
    ]
    machines = ["x86_64", "i386", "aarch64", "arm", "ppc64le", "riscv64"]
    failures = [
        LoadFailure("missing", "libx.so", None, "/p"),
        LoadFailure("missing", "libx.so", None, "/p", "forbidden"),
        LoadFailure("missing", "libx.so", None, "/p", "odd"),
        LoadFailure("missing", "libx.so", None, "/p", "no-elf", "/lib/libx.so"),
        LoadFailure("missing", "libx.so", None, "/p", "too-short", "/lib/libx.so"),
        LoadFailure("version", "X_1", "/lib/libx.so", "/p"),
        LoadFailure("stack", "libx.so", None, "/p"),
        LoadFailure("unreadable", "/p", None, "/p", "odd"),
        LoadFailure("unreadable", "/p", None, "/p", "no-elf"),
        LoadFailure("unreadable", "/p", None, "/p", "too-short"),
    ]
    unfit = [
        Unfit("architecture", needed="x86_64", image_has="aarch64"),
        Unfit("no-loader", needed="/lib/ld.so"),
        Unfit("no-libc", needed="i386"),
        Unfit("no-libc"),
        Unfit("no-libc", library="why", image_has="damaged"),
        Unfit("no-libc", image_has="none"),
        Unfit("no-libc", image_has="no-root"),
        Unfit("no-libc", image_has="musl"),
        Unfit("libc", "libc.so.6", "GLIBC_2.38", "GLIBC_2.36"),
        Unfit("libc", "libc.so.6", "X"),
        Unfit("dependency", "libx.so"),
        Unfit("dependency", "libx.so", is_left_out=True),
    ]
    return [
        *each(is_glibc_file, files),
        *each(is_loader, files),
        *each(is_provided_by_musl, files),
        *(
            (row, hwcaps_subdirectories(*row, None))
            for row in product(machines, (None, "2.32", "2.33", "2.36", "2.36.1", "2.37"))
        ),
        *each(lambda machine: platforms(machine, None), machines),
        *each(lambda failure: failure.message, failures),
        *each(lambda one: (one.message, one.is_total), unfit),
        *each(lambda one: one.message, [Conflict("libx.so", "X_2", "liby.so", "X_0")]),
        *each(
            lambda name: bool(PYTHON.fullmatch(name)),
            ["python", "python3", "python3.11", "python3.13t", "pypy3", "python4", "pythonw", "python3.1111"],
        ),
        *each(
            started_by_env,
            ["python", "-S python -u", "-S python", "-i python", "A=1", "", "-S A=1 x", "-Spython x", "-S 'x'"],
        ),
        *each(version_prefix, ["GLIBC_2.36", "GLIBC_PRIVATE", "X", "glibc_2", "X_1."]),
        *each(lambda prefix: newest_version(("A_1.9", "A_1.10", "B_3", "A_PRIVATE"), prefix), ["A", "B", "C"]),
        *each(split_library_path, ["/a:/b;/c", "", ":"]),
    ]


def registrations() -> Rows:
    plain, default = Registration("gpubind", "/usr/bin/g"), Registration("nvidia", "/usr/bin/g", is_default=True)
    other = (
        b'{"runtimes": {"x": {"path": "/x"}, "old": {"path": "/usr/bin/g"}},\n "default-runtime": "old", "debug": true}'
    )
    containerd = [
        None,
        b" ",
        b"version = 3",
        b"version = 2\n# \xc3\xa9\n",
        b'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.x]\n',
        b"version = 2\n[debug]\n[plugins]\n",
    ]
    podman = ENGINES["podman"].register(None, default)
    changed = [podman, b"\n" + podman, b"\n\n" + podman, podman + b"x"]
    added = {"docker": [None, b"", b"{}", other], "podman": [None, *changed], "containerd": containerd}
    earlier = [None, b"", b'{"default-runtime": "x"}', b'{"default-runtime": "gone", "runtimes": {"gone": {}}}']
    rows: list[tuple[object, object]] = []
    for name, engine in ENGINES.items():
        for entry, data in product((plain, default), added[name]):
            rows += each(lambda row, engine=engine: engine.register(*row), [(data, entry)])  # type: ignore[misc]
        there = [data for data in (*added[name], engine.register(None, default)) if data and name != "containerd"]
        there = there or [engine.register(data, plain) for data in (None, b"version = 2\nx = 1")] + [b"version = 2\n"]
        for data, before in product(there, earlier):
            row = (data, before, "/usr/bin/g")
            rows += each(lambda row, engine=engine: engine.remove(*row), [row])  # type: ignore[misc]
        rows += each(engine.meaning, [b' {"runtimes": {}} '])
    return [*rows, *each(lambda data: is_ours(data, "podman"), changed)]


TABLES = {
    "archives": archives,
    "drivers": drivers,
    "gpu_code": gpu_code,
    "texts": texts,
    "loaders": loaders,
    "registrations": registrations,
    "specs": specs,
}


@pytest.mark.parametrize("name", TABLES)
def test_each_row_has_its_effect(name: str) -> None:
    text = io.StringIO()
    for value, effect in TABLES[name]():
        text.write(f"{value!a:.300} -> {effect!a:.900}\n")
    assert_golden(GOLDEN / "effects" / f"{name}.txt", text.getvalue())
