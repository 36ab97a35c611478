"""What a request may ask for, and the whole error about anything else."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind.errors import UsageError
from gpubind.model import CAPABILITIES, VENDORS, ContainerPath, Request
from gpubind.planner.placement import SINGULARITY_LAYOUT, cdi_layout
from gpubind.planner.request import validate_request

KNOWN_SIDES = "known: auto, host, image"
ALL_CAPABILITIES = "known: compute, utility, video, graphics, display, ngx, compat32, all"
NO_PATH = "it may hold no `.`, `..`, colon or control character"
CDI = cdi_layout("x86_64")
DEVICE = ("nvidia.com/gpu=0",)
OF_PLAN = "it is about gpubind's own plan; Apptainer 1.4 itself has no such choice"


def named(field: str) -> str:
    return f"--{field}"


def refusal(fields: dict[str, Any], **more: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        validate_request(Request(**fields), option_name=named, **more)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "code", "what", "hint"),
    [
        (
            {"source": "x"},
            "unknown-source",
            "unknown source `x`",
            "known: auto, nvidia-container-cli, liblist, driver, cdi",
        ),
        *(
            ({field: "x"}, "unknown-side", f"--{field}: unknown side `x`", KNOWN_SIDES)
            for field in ("vendor_neutral", "userspace", "cuda_compat", "libc")
        ),
        ({"vendors": ("x",)}, "unknown-vendor", "unknown vendor `x`", "known: nvidia, amd, intel"),
        ({"caps": ("x",)}, "unknown-capability", "unknown capability `x`", ALL_CAPABILITIES),
        ({"caps": ()}, "unknown-capability", "--caps names no capability", ALL_CAPABILITIES),
        ({"vendors": "nvidia"}, "wrong-type", "vendors wants a tuple of strings, not 'nvidia'", ""),
        ({"vendors": ("amd", 1)}, "wrong-type", "vendors wants a tuple of strings, not ('amd', 1)", ""),
        ({"caps": "all"}, "wrong-type", "caps wants a tuple of strings, not 'all'", ""),
        ({"gpus": 1}, "wrong-type", "gpus wants a string, not 1", ""),
        ({"source": None}, "wrong-type", "source wants a string, not None", ""),
        ({"completion": 1}, "wrong-type", "completion wants True or False, not 1", ""),
        ({"libdir": ("x" * 99,)}, "wrong-type", f"libdir wants a string, not ('{'x' * 78}", ""),
        (
            {"cdi_devices": DEVICE, "source": "driver"},
            "cdi-with-source",
            "--cdi_devices cannot be used with --source driver",
            "",
        ),
        (
            {"cdi_devices": DEVICE, "gpus": "0"},
            "cdi-with-gpus",
            "--cdi_devices and --gpus both choose: give one of them",
            "",
        ),
        (
            {"cdi_devices": ("x",)},
            "bad-cdi-name",
            "`x` is not a qualified name of a CDI device",
            "a device's whole name is wanted: nvidia.com/gpu=0",
        ),
        ({"like": "apptainer", "gpus": "0"}, "like-with-option", "--gpus cannot be used with --like apptainer", None),
    ],
)
def test_what_cannot_be_asked_for_is_refused(fields: dict[str, Any], code: str, what: str, hint: Optional[str]) -> None:
    error = refusal(fields)
    assert (error.code, error.what, error.exit_code) == (code, what, 2)
    assert error.hint == ("leave one of them out" if hint is None else hint)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"source": "x"}, "source"),
        ({"libc": "x"}, "libc"),
        ({"caps": ()}, "caps"),
        ({"gpus": "x y"}, "gpus"),
        ({"libdir": "x"}, "libdir"),
        ({"library_path": ("x",)}, "library_path"),
        ({"cdi_directories": ("x",)}, "cdi_directories"),
        ({"like": "apptainer", "libc": "host"}, "libc"),
    ],
)
def test_an_error_names_the_field_that_it_is_about(fields: dict[str, Any], field: str) -> None:
    assert refusal(fields).field == field


@pytest.mark.parametrize("field", ["libdir", "library_path", "cdi_directories"])
@pytest.mark.parametrize("path", ["x", "", "/", "//", "/a/../b", "/a/./b", "/a:b", "/a\n"])
def test_a_directory_is_an_absolute_path_that_a_search_path_can_hold(field: str, path: str) -> None:
    error = refusal({field: path if field == "libdir" else (path,)})
    assert (error.code, error.what) == ("not-absolute", f"--{field} wants an absolute path below /, not `{path}`")
    assert error.why == NO_PATH


def test_the_error_about_a_flavour_says_what_its_program_can_choose() -> None:
    assert refusal({"like": "apptainer", "gpus": "0"}).why == OF_PLAN
    error = refusal({"like": "apptainer-1.6", "caps": ("video",)})
    assert error.why == "Apptainer 1.6 can add compat32, and takes no other choice of capabilities"
    assert refusal({"like": "apptainer"}, has_list=True).what == "--listfile cannot be used with --like apptainer"
    assert validate_request(Request(like="apptainer-1.6", caps=("compat32",))).caps == ("compat32",)
    assert validate_request(Request(like="apptainer-1.6", caps=CAPABILITIES)).caps == CAPABILITIES
    kept = validate_request(Request(like="apptainer", libc="host", gpus="0"), own_only=("libc", "gpus"))
    assert (kept.libc, kept.gpus, kept.like) == ("image", None, "apptainer")


def test_libraries_of_a_fixed_layout_cannot_be_moved() -> None:
    moved = {"libdir": "/x"}
    error = refusal(moved, layout=CDI)
    assert (error.code, error.what, error.why, error.hint) == (
        "fixed-libdir",
        "--libdir cannot move the libraries of this plan",
        "no loader searches another directory by itself, and this plan cannot add to the image's search path",
        "leave it out, or give --cdi-hook with --format cdi, where nvidia-cdi-hook is installed",
    )
    error = refusal(moved, layout=SINGULARITY_LAYOUT)
    assert (error.code, error.what, error.why) == (
        "fixed-libdir",
        "--libdir cannot move /.singularity.d/libs",
        "Apptainer and SingularityCE have one directory for libraries from outside",
    )
    assert validate_request(Request(libdir=ContainerPath("//x//y/")), layout=None).libdir == "/x/y"


def test_a_list_file_is_one_vendors() -> None:
    error = refusal({"source": "driver"}, has_list=True)
    assert (error.code, error.what) == ("list-with-source", "--listfile cannot be used with --source driver")
    error = refusal({"vendors": ("amd", "nvidia")}, has_list=True)
    assert (error.code, error.what, error.hint) == (
        "list-for-two",
        "--listfile is one vendor's list, and 2 vendors are asked for",
        "plan each vendor by itself, or put both lists where gpubind looks for them",
    )
    assert validate_request(Request(), has_list=True).vendors == ("nvidia",)
    assert validate_request(Request(vendors=("amd",)), has_list=True).vendors == ("amd",)
    assert validate_request(Request(source="liblist"), has_list=True).source == "liblist"


def test_values_are_put_into_one_form() -> None:
    request = Request(
        vendors=("amd", "nvidia", "amd"),
        caps=("video", "compute", "video"),
        library_path=("/a//b/",),  # type: ignore[arg-type]
        cdi_directories=("//c",),
        cdi_devices=DEVICE,
    )
    made = validate_request(request)
    assert (made.vendors, made.caps, made.source) == (("nvidia", "amd"), ("compute", "video"), "cdi")
    assert (made.library_path, made.cdi_directories) == (("/a/b",), ("/c",))
    assert validate_request(Request(caps=("all", "x"))).caps == CAPABILITIES  # type: ignore[arg-type]
    assert validate_request(Request(vendors=[*VENDORS])).vendors == VENDORS  # type: ignore[arg-type]
    assert validate_request(Request()) == Request()
