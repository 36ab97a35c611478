"""The table of rules. To add one: write a function, add its row, its section in docs/findings.md, and its two cases in
tests/rules: one where it is so, one where it is almost so.
"""

from __future__ import annotations

from gpubind.errors import NothingToBindError
from gpubind.model import Finding
from gpubind.planner import finding_order
from gpubind.rules import (
    amd,
    cdi,
    companions,
    cuda,
    driver,
    graphics,
    image,
    libraries,
    manifests,
    mig,
    nodes,
    platform,
    program,
    runtime,
    services,
)
from gpubind.rules.preflight import Preflight, Rule

FOUND_WHILE_PLANNING = (
    Rule("bad-filelist", ("warning",), "host"),
    Rule("bad-icd", ("warning",), "host"),
    Rule("bad-ldcache", ("warning",), "host"),
    Rule("bad-procfs", ("warning",), "host"),
    Rule("binds-forbidden", ("error",), "runtime"),
    Rule("cdi-edit", ("warning",), "host"),
    Rule("cdi-hook", ("warning",), "host"),
    Rule("device-number", ("error",), "host"),
    Rule("device-permission", ("error", "warning", "note"), "host"),
    Rule("devices-not-isolated", ("note",), "runtime"),
    Rule("driver-mismatch", ("error",), "host"),
    Rule("driver-not-loaded", ("error",), "host"),
    Rule("gpu-forbidden", ("error", "warning"), "host"),
    Rule("gpu-order-unknown", ("warning",), "host"),
    Rule("gpu-unreadable", ("warning",), "host"),
    Rule("gpu-uuid-unknown", ("note",), "host"),
    Rule("image-architecture", ("error", "warning", "note"), "image"),
    Rule("image-libc", ("error", "warning", "note"), "image"),
    Rule("image-unknown", ("note",), "runtime"),
    Rule("image-without-glibc", ("error", "warning", "note"), "image"),
    Rule("library-path-last", ("warning",), "runtime"),
    Rule("like-collision", ("error",), "host"),
    Rule("like-entry", ("error",), "host"),
    Rule("like-ldcache", ("error",), "host"),
    Rule("like-one-vendor", ("warning",), "host"),
    Rule("mig-unresolved", ("warning",), "host"),
    Rule("no-dev", ("error",), "runtime"),
    Rule("no-ldcache", ("note",), "host"),
    Rule("no-libcuda", ("error",), "host"),
    Rule("not-in-list", ("error", "warning"), "host"),
    Rule("nothing-to-bind", ("error",), "host"),
    Rule("other-driver-version", ("warning",), "host"),
    Rule("rocm-path", ("warning",), "host"),
    Rule("rocr-visible-cut", ("warning",), "host"),
    Rule("slurm-gpu-ambiguous", ("warning",), "host"),
    Rule("source-failed", ("warning",), "host"),
    Rule("userspace-conflict", ("warning",), "image"),
    Rule("userspace-left-out", ("error", "warning"), "image"),
    Rule("userspace-missing", ("warning",), "image"),
    Rule("userspace-unknown", ("warning",), "host"),
    Rule("vendor-neutral-left-out", ("note",), "host"),
    Rule("vendor-neutral-missing", ("error", "note"), "image"),
    Rule("visible-devices-none", ("warning",), "host"),
    Rule("visible-devices-unknown", ("error", "warning", "note"), "host"),
)

HOST_RULES = (
    Rule("amd-render-missing", ("error",), "host", amd.amd_render_missing),
    Rule("bad-cdi", ("warning",), "host", cdi.bad_cdi),
    Rule("cdi-conflict", ("error", "warning"), "host", cdi.cdi_conflict),
    Rule("control-node-missing", ("error",), "host", nodes.control_node_missing),
    Rule("device-file-mode", ("note",), "host", nodes.device_file_mode),
    Rule("drm-modeset-off", ("warning",), "host", graphics.drm_modeset_off),
    Rule("fabric-manager-missing", ("warning",), "host", services.fabric_manager_missing),
    Rule("foreign-interpreter", ("warning",), "host", platform.foreign_interpreter),
    Rule("gbm-backend-missing", ("warning", "note"), "host", graphics.gbm_backend_missing),
    Rule("gds-incomplete", ("note",), "host", platform.gds_incomplete),
    Rule("gpu-excluded", ("error", "note"), "host", driver.gpu_excluded),
    Rule("gpu-node-missing", ("error", "warning"), "host", nodes.gpu_node_missing),
    Rule("gpu-uninitialised", ("note",), "host", driver.gpu_uninitialised),
    Rule("gpu-without-driver", ("error",), "host", driver.gpu_without_driver),
    Rule("hip-visible-composed", ("warning", "note"), "host", amd.hip_visible_composed),
    Rule("imex-channel-missing", ("note",), "host", platform.imex_channel_missing),
    Rule("kfd-hidden", ("warning",), "host", amd.kfd_hidden),
    Rule("kfd-missing", ("error",), "host", amd.kfd_missing),
    Rule("mig-mode", ("error", "warning", "note"), "host", mig.mig_mode),
    Rule("mig-node-missing", ("error", "warning"), "host", mig.mig_node_missing),
    Rule("mps-active", ("note",), "host", services.mps_active),
    Rule("mps-other-user", ("warning",), "host", services.mps_other_user),
    Rule("name-collision", ("error", "warning"), "host", driver.name_collision),
    Rule("no-gpu", ("error",), "host", driver.no_gpu),
    Rule("no-nvml", ("error", "warning"), "host", driver.no_nvml),
    Rule("nouveau", ("error",), "host", driver.nouveau),
    Rule("persistence-missing", ("note",), "host", services.persistence_missing),
    Rule("render-node-missing", ("warning",), "host", graphics.render_node_missing),
    Rule("stale-cdi", ("error", "warning"), "host", cdi.stale_cdi),
    Rule("stale-ldcache", ("warning",), "host", driver.stale_ldcache),
    Rule("stub-libcuda", ("warning", "note"), "host", driver.stub_libcuda),
    Rule("tegra", ("note",), "host", platform.tegra),
    Rule("uvm-missing", ("error",), "host", nodes.uvm_missing),
    Rule("uvm-not-loaded", ("error",), "host", nodes.uvm_not_loaded),
    Rule("wsl", ("note",), "host", platform.wsl),
)

PLATFORM_RULES = (
    Rule("amd-groups", ("note",), "runtime", amd.amd_groups),
    Rule("dev-char-links-missing", ("note",), "runtime", platform.dev_char_links_missing),
    Rule("user-namespaces-off", ("error", "warning"), "runtime", platform.user_namespaces_off),
)

PLAN_RULES = (
    Rule("companion-missing", ("error", "warning"), "host", companions.companion_missing),
    Rule("manifest-missing", ("error", "note"), "host", manifests.manifest_missing),
)

IMAGE_RULES = (
    Rule("bad-require", ("warning",), "image", cuda.bad_require),
    Rule("compat-harmful", ("error",), "image", cuda.compat_harmful),
    Rule("compat-ignored", ("warning",), "image", cuda.compat_ignored),
    Rule("compat-used", ("note",), "image", cuda.compat_used),
    Rule("cuda-minor-version", ("note",), "image", cuda.cuda_minor_version),
    Rule("cuda-too-new", ("error",), "image", cuda.cuda_too_new),
    Rule("driver-in-image", ("error", "warning"), "image", image.driver_in_image),
    Rule("executable-stack", ("error", "warning", "note"), "image", libraries.executable_stack),
    Rule("image-env-undecided", ("warning",), "image", image.image_env_undecided),
    Rule("library-missing", ("error", "warning", "note"), "image", libraries.library_missing),
    Rule("library-path-order", ("warning", "note"), "image", image.library_path_order),
    Rule("library-unreadable", ("error",), "image", libraries.library_unreadable),
    Rule("library-version", ("error", "warning", "note"), "image", libraries.library_version),
    Rule("manifest-dangling", ("warning", "note"), "image", manifests.manifest_dangling),
    Rule("require-undecided", ("note",), "image", cuda.require_undecided),
    Rule("require-unsatisfied", ("error",), "image", cuda.require_unsatisfied),
    Rule("stub-in-image", ("error", "warning", "note"), "image", image.stub_in_image),
)

PROGRAM_RULES = (
    Rule("program-driver", ("error", "warning"), "program", program.program_driver),
    Rule("program-interpreter", ("error", "warning"), "program", program.program_interpreter),
    Rule("program-library-missing", ("error", "warning"), "program", program.program_library_missing),
    Rule("program-library-version", ("error", "warning"), "program", program.program_library_version),
    Rule("program-missing", ("error", "warning"), "program", program.program_missing),
    Rule("program-not-executable", ("error", "warning"), "program", program.program_not_executable),
    Rule("program-on-host", ("note",), "program", program.program_on_host),
    Rule("program-unreadable", ("warning", "note"), "program", program.program_unreadable),
)

RUNTIME_RULES = (
    Rule("no-mount-point", ("error", "warning", "note"), "runtime"),
    Rule("runtime-limit", ("error",), "runtime", runtime.runtime_limit),
)

RULES = (*FOUND_WHILE_PLANNING, *HOST_RULES, *PLATFORM_RULES, *PLAN_RULES, *IMAGE_RULES, *PROGRAM_RULES, *RUNTIME_RULES)


def asked(preflight: Preflight) -> tuple[Rule, ...]:
    """The rules that what is known of a start lets be asked."""
    known = {
        "host": True,
        "image": preflight.image is not None,
        "runtime": preflight.backend is not None,
        "program": preflight.program is not None and preflight.image is not None,
    }
    return tuple(rule for rule in RULES if known[rule.needs])


def check(preflight: Preflight) -> tuple[Finding, ...]:
    """Everything to be said about a start: what planning found, then what the rules find; errors first, by code."""
    findings = [*preflight.plan.findings, *(preflight.words.findings if preflight.words else ())]
    for rule in asked(preflight):
        if rule.find is not None:
            findings += rule.find(preflight)
    return tuple(sorted(findings, key=finding_order))


def nothing_to_bind(error: NothingToBindError) -> Finding:
    """The finding about a host that has no driver and no device."""
    return Finding(error.code, "error", None, "host", error.what, error.where, error.why, error.hint)
