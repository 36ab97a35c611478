"""An image is compared with what every host has: each key alone, and what nobody can know is never decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import pytest

from gpubind.formats.text.requirements import parse_policy
from gpubind.image.needs import read_needs
from gpubind.image.open import open_image
from gpubind.model import CudaNote
from gpubind.rules.policy import check_policy
from tests.image.cuda_trees import SITE, torch
from tests.rules.situations import in_full
from tests.support.commands import gpubind
from tests.support.elf import elf
from tests.support.golden import GOLDEN, assert_golden
from tests.support.gpucode import library
from tests.support.images import glibc, sandbox
from tests.support.layers import LAYER, OCI, TAG, Blobs, tar, write
from tests.support.trees import File, Spec, make_tree

LIB = "/usr/lib/x86_64-linux-gnu"
CUDA: Spec = torch(SITE, "2.6.0", "12.4")
CODE: Spec = {**CUDA, f"{SITE}/torch/lib/libtorch_cuda.so": library("sm_80", "sm_90")}
PTX: Spec = {**CUDA, f"{SITE}/torch/lib/libtorch_cuda.so": library("compute_80@8.4")}
NEW_PTX: Spec = {**CUDA, f"{SITE}/torch/lib/libtorch_cuda.so": library("sm_80", "compute_80@8.8")}
ADDITION: Spec = {f"{SITE}/xformers/_C.so": library("sm_90")}
PART: Spec = {**CUDA, f"{SITE}/cupy_backends/x": "", f"{SITE}/cupy/cuda/cub.x.so": library("sm_80")}
ROCM: Spec = {"/opt/rocm/.info/version": "6.3.1\n"}
COMPAT: Spec = {"/usr/local/cuda/compat/libcuda.so.1": elf("libcuda.so.1", cuda_note=CudaNote("12.4", (470, 535)))}
VIDEO: Spec = {f"{LIB}/libavcodec.so.59": elf(more={".rodata": b"\0libnvcuvid.so.1\0"})}
LINKED: Spec = {f"{LIB}/libavcodec.so.59": elf(needed=("libnvcuvid.so.1",))}
OWN_DRIVER: Spec = {
    f"{LIB}/libcuda.so.1": elf("libcuda.so.1", more={".data": bytes(2 << 20)}),
}
MUSL: Spec = {"/lib/ld-musl-x86_64.so.1": elf("libc.musl-x86_64.so.1")}
NEWER: Spec = {f"{LIB}/libavcodec.so.59": elf(needs={"libc.so.6": ("GLIBC_2.38",)})}
TESLA = "cuda>=12.4 brand=tesla,driver>=470,driver<471"


def env(**variables: str) -> Spec:
    return sandbox("\n".join(f"export {name}='{value}'" for name, value in variables.items()))


YES, NO, UNKNOWN = None, "policy-violated", "policy-undecided"
CASES = [
    pytest.param('driver = "525"', CODE, YES, id="minor-version-compatibility-with-a-branch"),
    pytest.param('driver = "525.60.13"', CODE, YES, id="the-least-release"),
    pytest.param('driver = "525.60"', CODE, NO, id="a-release-before-it"),
    pytest.param('driver = "520"', CODE, NO, id="an-older-branch"),
    pytest.param('driver = "525"', PTX, NO, id="ptx-on-an-older-driver"),
    pytest.param('driver = "550"', PTX, YES, id="ptx-on-its-own-driver"),
    pytest.param('driver = "470"', {**CODE, **COMPAT}, UNKNOWN, id="the-images-own-libcuda"),
    pytest.param('driver = "450"', {**CODE, **COMPAT}, NO, id="a-driver-that-its-libcuda-does-not-know"),
    pytest.param('driver = "470"', {}, YES, id="no-cuda"),
    pytest.param('driver = "470"', ADDITION, UNKNOWN, id="code-of-an-unknown-cuda"),
    pytest.param('driver = "999"', torch(SITE, "9.0", "99.9"), UNKNOWN, id="a-cuda-that-is-not-in-the-table"),
    pytest.param('cuda = "12"', CODE, YES, id="cuda-of-the-same-major-version"),
    pytest.param('cuda = "12"', PTX, NO, id="ptx-of-a-newer-cuda"),
    pytest.param('cuda = "12.4"', PTX, YES, id="ptx-of-the-same-cuda"),
    pytest.param('cuda = "11"', CODE, NO, id="cuda-of-a-newer-major-version"),
    pytest.param('cuda = "13.0"', CODE, YES, id="cuda-of-an-older-major-version"),
    pytest.param('cuda = "99"', CODE, UNKNOWN, id="an-unknown-cuda-of-the-hosts"),
    pytest.param('driver = "550"', env(NVIDIA_REQUIRE_CUDA="cuda>=12.4"), YES, id="a-requirement-that-holds"),
    pytest.param('driver = "545"', env(NVIDIA_REQUIRE_CUDA="cuda>=12.4"), NO, id="a-requirement-that-does-not"),
    pytest.param('driver = "470"', env(NVIDIA_REQUIRE_CUDA="driver<535"), NO, id="a-newer-driver-does-not-meet-it"),
    pytest.param('driver = "470"', env(NVIDIA_REQUIRE_CUDA=TESLA), NO, id="a-later-driver-of-no-brand-meets-it"),
    pytest.param('driver = "550"', env(NVIDIA_REQUIRE_CUDA="brand=tesla"), UNKNOWN, id="a-requirement-of-a-brand"),
    pytest.param('driver = "550"', env(NVIDIA_REQUIRE_CUDA="cuda"), UNKNOWN, id="a-malformed-requirement"),
    pytest.param('cuda = "12.3"', env(NVIDIA_REQUIRE_CUDA="cuda>=12.4"), NO, id="a-requirement-and-cuda"),
    pytest.param('driver = "550"', sandbox("export NVIDIA_REQUIRE_CUDA=$(date)"), UNKNOWN, id="a-shell-would-know"),
    pytest.param('driver = "550"', sandbox("export CUDA_VERSION=$(date)"), UNKNOWN, id="cuda-by-a-shell"),
    pytest.param('rocm = "6.3"', ROCM, YES, id="rocm-of-the-hosts"),
    pytest.param('rocm = "6.2"', ROCM, UNKNOWN, id="a-newer-rocm"),
    pytest.param('rocm = "5"', ROCM, NO, id="a-newer-major-rocm"),
    pytest.param('rocm = "6"', ROCM, YES, id="rocm-of-the-same-major-version"),
    pytest.param('glibc = "2.28"', NEWER, NO, id="an-image-older-than-its-programs"),
    pytest.param('glibc = "2.28"', CODE, YES, id="its-own-glibc"),
    pytest.param('gpus = ["sm_80", "sm_86", "sm_90"]', CODE, YES, id="gpus-with-code"),
    pytest.param('gpus = ["sm_80+"]', CODE, NO, id="gpus-without-code"),
    pytest.param('gpus = ["sm_80+"]', PTX, YES, id="gpus-with-ptx"),
    pytest.param('gpus = ["sm_90"]\ndriver = "550"', NEW_PTX, NO, id="gpus-with-ptx-that-their-driver-refuses"),
    pytest.param('gpus = ["sm_80"]\ndriver = "550"', NEW_PTX, YES, id="gpus-with-code-beside-such-ptx"),
    pytest.param('gpus = ["sm_90", "gfx90a"]', CODE, YES, id="gpus-of-another-vendor-too"),
    pytest.param('gpus = ["gfx90a"]', CODE, NO, id="gpus-of-another-vendor-alone"),
    pytest.param('gpus = ["sm_80"]', {**CODE, **ADDITION}, UNKNOWN, id="code-that-an-addition-lacks"),
    pytest.param('gpus = ["sm_90"]', PART, UNKNOWN, id="code-that-only-a-part-lacks"),
    pytest.param('gpus = ["sm_80"]', PART, YES, id="code-that-only-a-part-has"),
    pytest.param('gpus = ["sm_80"]', CUDA, UNKNOWN, id="no-code-was-found"),
    pytest.param('gpus = ["sm_80"]', {}, YES, id="no-gpu-is-used"),
    pytest.param('arch = ["x86_64"]', {}, YES, id="its-architecture"),
    pytest.param('arch = ["x86_64", "aarch64"]', {}, NO, id="one-of-two-architectures"),
    pytest.param('capabilities = ["compute", "video"]', {**CODE, **VIDEO}, YES, id="given-capabilities"),
    pytest.param('capabilities = ["compute"]', {**CODE, **VIDEO}, UNKNOWN, id="opened-by-name"),
    pytest.param('capabilities = ["compute"]', {**CODE, **LINKED}, NO, id="linked"),
    pytest.param('capabilities = ["video"]', CODE, NO, id="cuda-without-compute"),
    pytest.param('capabilities = ["compute"]', env(NVIDIA_DRIVER_CAPABILITIES="video"), NO, id="by-its-variable"),
    pytest.param("brings-driver = true", OWN_DRIVER, YES, id="a-driver-that-may-be-there"),
    pytest.param("brings-driver = false", OWN_DRIVER, NO, id="a-driver-that-may-not"),
]


def findings(tmp_path: Path, policy: str, tree: Spec, program: Optional[str] = None) -> list[Any]:
    make_tree(tmp_path / "image", tree).close()
    with open_image(str(tmp_path / "image")) as image:
        return list(check_policy(read_needs(image, program), parse_policy(policy.encode())))


@pytest.mark.parametrize(("policy", "tree", "code"), CASES)
def test_each_key_is_compared_alone(
    tmp_path: Path, policy: str, tree: Spec, code: Optional[str], request: pytest.FixtureRequest
) -> None:
    found = findings(tmp_path, policy, {**glibc(), **tree})
    assert {one.code for one in found} == ({code} if code else set())
    assert all(one.subject and one.subject in policy for one in found if one.code == NO)
    if found:
        assert_golden(GOLDEN / "policy.md", in_full(found), part=request.node.callspec.id)


def test_drivers_need_glibc(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, 'glibc = "2.28"', {**MUSL, **CODE})
    assert (found.code, found.subject) == (NO, "glibc")


def test_programs_without_a_c_library_use_the_hosts(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, 'glibc = "2.28"', {**NEWER, "/etc/ld.so.conf": f"{LIB}\n"})
    assert (found.code, found.subject) == (NO, "glibc")


def test_what_was_not_read_is_not_decided(tmp_path: Path) -> None:
    whole = library("sm_80")
    damaged: Spec = {**glibc(), **CUDA, f"{SITE}/torch/lib/libtorch_cuda.so": whole[:70]}
    found = findings(tmp_path, 'gpus = ["sm_80"]', damaged)
    assert {one.code for one in found} == {UNKNOWN}
    assert f"{SITE}/torch/lib/libtorch_cuda.so" in [one.subject for one in found]


@pytest.fixture
def app(tmp_path: Path) -> str:
    make_tree(tmp_path / "app", {**glibc(), **CODE, "/opt/solve": File(elf(kind=2), 0o755)}).close()
    (tmp_path / "policy.toml").write_text('driver = "470"\ngpus = ["sm_90"]\n')
    return str(tmp_path / "app")


def test_no_host_is_opened_and_the_exit_code_is_checks(app: str, tmp_path: Path) -> None:
    done = gpubind("check", "--image", app, "--require", str(tmp_path / "policy.toml"), "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["checked"]["policy"] == str(tmp_path / "policy.toml")
    assert (document["checked"]["host"], document["plan"], document["image"]["cuda"]) == (None, None, "12.4")
    assert [one["code"] for one in document["findings"]] == ["policy-violated"]
    words = ("--require", str(tmp_path / "policy.toml"), "--ignore", "policy-violated")
    assert gpubind("check", "--image", app, *words).returncode == 0


@pytest.mark.parametrize("form", ["text", "tsv", "junit", "github", "sarif", "markdown", "slurm", "prometheus", "html"])
def test_every_form_of_check_names_the_key(app: str, tmp_path: Path, form: str) -> None:
    done = gpubind("check", "--image", app, "--require", str(tmp_path / "policy.toml"), "--format", form)
    assert done.returncode == 1, done.stderr
    assert "policy-violated" in done.stdout
    assert "not checked" not in done.stdout


def test_several_images_are_each_compared(app: str, tmp_path: Path) -> None:
    make_tree(tmp_path / "other", glibc()).close()
    words = ("check", "--image", app, "--image", str(tmp_path / "other"), "--require", str(tmp_path / "policy.toml"))
    done = gpubind(*words, "-q")
    assert done.stdout.splitlines() == [
        f"{app} on {tmp_path}/policy.toml: error policy-violated",
        f"{tmp_path}/other on {tmp_path}/policy.toml: ok",
    ]
    assert gpubind(*words).returncode == 1


def test_of_an_image_for_several_architectures_each_that_the_policy_names_is_compared(tmp_path: Path) -> None:
    blobs = Blobs()
    trees = {"amd64": glibc(), "arm64": {**glibc(machine=183), **torch(SITE, "2.6.0", "12.4")}}
    images = [blobs.image([tar(dict(tree))], arch=arch, layer_type=LAYER) for arch, tree in trees.items()]
    index = blobs.add({"manifests": images}, f"{OCI}.index.v1+json", annotations={TAG: "x"})
    path, policy = write(tmp_path / "layout", blobs.layout(index)), tmp_path / "policy.toml"

    def told(*archs: str) -> str:
        policy.write_text(f'driver = "470"\narch = {json.dumps(archs)}\n')
        return gpubind("check", "--image", path, "--require", str(policy), "--format", "slurm").stdout.strip()

    assert told("x86_64") == "gpubind: ok"
    assert told("x86_64", "aarch64") == "gpubind: policy-violated(driver)"
    assert told("x86_64", "ppc64le") == "gpubind: policy-violated(arch)"


@pytest.mark.parametrize(
    "option",
    ["--nv", "--gpus=0", "--host=debian13-nvidia550", "--backend=apptainer", "--expect=x", "--root=/", "--as-user=x"],
)
def test_an_option_about_a_host_is_wrong_use(app: str, tmp_path: Path, option: str) -> None:
    done = gpubind("check", "--image", app, "--require", str(tmp_path / "policy.toml"), option)
    assert done.returncode == 2
    assert done.stderr.startswith("error: require-with-host: ")


def test_a_site_that_chooses_gpus_does_not_keep_images_from_being_compared(app: str, tmp_path: Path) -> None:
    words = ("check", "--image", app, "--require", str(tmp_path / "policy.toml"))
    assert gpubind(*words, env={"GPUBIND_GPUS": "0"}).returncode == 1


def test_wrong_use_and_wrong_files_are_told(app: str, tmp_path: Path) -> None:
    policy = str(tmp_path / "policy.toml")
    assert "require-without-image: --require needs --image: " in gpubind("check", "--require", policy).stderr
    missing = gpubind("check", "--image", app, "--require", policy, "--program", "none")
    assert (missing.returncode, missing.stderr.partition(":")[0]) == (4, "error")
    Path(policy).write_text("gpus = 8\n")
    done = gpubind("check", "--image", app, "--require", policy)
    assert done.returncode == 5
    assert f"where: {policy}" in done.stderr
