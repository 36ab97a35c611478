"""Good inputs of the small formats, and what each format is made of."""

from __future__ import annotations

JSON_WORDS = (
    b"null", b"[]", b"{}", b'""', b"-1", b"1e9", b'"\\ud800"', b'"\\u0000"', b"true", b"[[[[", b'{"a":' * 50,
)  # fmt: skip
YAML_WORDS = (
    b"&a ", b"*a", b"<<: *a", b"- ", b"? ", b"!!str ", b"|\n", b">\n", b"---\n", b"...\n", b"{", b"}", b"%YAML 1.1\n",
)  # fmt: skip
SHELL_WORDS = (
    b"export ", b"unset ", b"if true; then ", b"fi\n", b"for a in b; do ", b"done", b"case x in ", b"esac", b"$(",
    b")", b"`", b"${A:-", b"}", b"<<EOF\n", b"&&", b"||", b"LD_LIBRARY_PATH=", b"$LD_LIBRARY_PATH", b"PATH", b"\\\n",
    b";;", b"#",
)  # fmt: skip

_DESCRIPTOR = (
    b'{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:00", "size": 7, "annotations": '
    b'{"org.opencontainers.image.ref.name": "a"}, "platform": {"os": "linux", "architecture": "amd64"}}'
)
ICD = b'{"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0"}}'
CDI = (
    b'{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {"deviceNodes": '
    b'[{"path": "/dev/nvidia0", "permissions": "rw"}]}}], "containerEdits": {"env": ["A=b"], "mounts": [{"hostPath": '
    b'"/lib/a", "containerPath": "/lib/a", "options": ["ro"]}], "hooks": [{"hookName": "createContainer", "path": '
    b'"/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "update-ldcache", "--folder", "/lib"]}]}}'
)
_CDI_YAML = b"cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices: &d\n- name: '0'\n  containerEdits:\n    env: [A=b]\n"

SEEDS: dict[str, tuple[bytes, ...]] = {
    "shell": (
        b"export PATH=/a:$PATH\nunset B; A='x y'\nif [ -d /a ]; then B=1; fi\n",
        b'export A="${B:-$(c)}"\n',
    ),
    "icd": (ICD, b"liba.so\n"),
    "file-list": (b'[{"name": "libcuda.so.1", "type": "LIB", "category": ["cuda"], "is_32bit_compat": "true"}]',),
    "tegra-list": (
        b"# A board.\ndev, /dev/nvmap\nlib, /usr/lib/libx.so.1\nsym, /usr/lib/libx.so\ndir, /usr/share/x\n",
    ),
    "oci-config": (
        b'{"config": {"Env": ["PATH=/bin", "LD_LIBRARY_PATH=/usr/local/cuda/lib64"]}, "os": "linux", '
        b'"architecture": "amd64"}',
    ),
    "oci-index": (b'{"schemaVersion": 2, "manifests": [' + _DESCRIPTOR + b"]}",),
    "oci-manifest": (b'{"config": ' + _DESCRIPTOR + b', "layers": [' + _DESCRIPTOR + b"]}",),
    "docker-manifest": (b'[{"Config": "c.json", "RepoTags": ["a:b"], "Layers": ["l"]}]',),
    "inspected": (b'[{"Os": "linux", "Architecture": "amd64", "Config": {"Env": ["A=b"]}}]',),
    "bundle": (
        b'{"ociVersion": "1.0", "root": {"path": "rootfs"}, "process": {"env": ["A=b"], "args": ["a"], "cwd": "/"}, '
        b'"mounts": [{"destination": "/a", "source": "b", "options": ["bind"]}]}',
    ),
    "cdi": (CDI, _CDI_YAML),
    "yaml": (_CDI_YAML, b"a: &x [1, 2.5, yes]\nb: *x\nc: {<<: {d: 1}}\n"),
    "pax": (b"12 path=abc\n16 linkpath=abc\n",),
    "ld.so.conf": (b"include /etc/ld.so.conf.d/*.conf\n/lib\nhwcap 0 a\n",),
    "cuda-note": (
        b"\x13\0\0\0\x20\0\0\0\1\0\0\0NVIDIA Corporation\0\0" + b'{"CUDA version": "12.4", "driver": [550]}',
    ),
    "driver-version": (b"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22\n",),
    "module-version": (b"550.54.14\n",),
    "gpu-information": (
        b"Model: \t\t NVIDIA A100\nIRQ: 1\nGPU UUID: GPU-1\nDevice Minor: 0\nBus Location: 0000:01:00.0\n",
    ),
    "params": (b"ModifyDeviceFiles: 1\nDeviceFileUID: 0\n",),
    "devices": (b"Character devices:\n195 nvidia\n\nBlock devices:\n8 sd\n",),
    "groups": (b"root:x:0:\nvideo:x:44:a,b\n",),
    "mig-minors": (b"gpu0/gi1/access 3\ngpu0/gi1/ci0/access 4\nconfig 1\n",),
    "nvidia-cli": (
        b"/dev/nvidiactl\n/usr/lib/libcuda.so.550.54.14\n/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access\n",
    ),
    "nvidia-cli-failure": (b"nvidia-container-cli: ldcache error: open failed: /etc/ld.so.cache\n",),
    "require": (b"cuda>=12.4 brand=tesla,driver>=535,driver<536",),
    "gpu-ids": (b"0,1:2,GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,MIG-GPU-1/2/3", b"all"),
    "kfd": (b"cpu_cores_count 0\nsimd_count 1216\ngfx_target_version 90402\n",),
    "cpuinfo": (b"vendor_id : GenuineIntel\nflags : avx2 fma\n\n",),
    "printable": ("libcuda\u202e.so\x9b".encode(),),
}
