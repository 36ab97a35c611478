"""Compare the requirements of an image with a policy: `check_policy`. No host is read.

A policy states the minimum that every host has: what runs on that minimum runs on all hosts. A branch (`525`) stands
for its newest release.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from gpubind.errors import FormatError
from gpubind.formats.driver.gpu_names import CAPS_VARIABLE
from gpubind.formats.driver.require import breakpoint_drivers, driver_properties, evaluate
from gpubind.image.needs import ImageNeeds
from gpubind.model import Finding, architecture, finding
from gpubind.model.cuda import branch_of, cuda_max, first_native_driver, is_extension, version_key
from gpubind.model.gpucode import best_share, main_files_by_owner, merge_gpu_code, vendor_of
from gpubind.model.requirements import Policy

_NEWEST = ".999999"
"""The suffix that turns a branch into its newest release."""

_ONLY_A_SHELL = "the image sets {} to a value that only a shell can evaluate"


def check_policy(needs: ImageNeeds, policy: Policy) -> Iterator[Finding]:
    """Yield `policy-violated` for each key of *policy* that the image exceeds; `policy-undecided` for unknown facts."""
    yield from _arch(needs, policy)
    if policy.driver or policy.cuda:
        key, first = "driver" if policy.driver else "cuda", _least_of(policy)
        yield from _driver(needs, policy, key, first)
        if first is not None:
            yield from _requirements(needs, policy, key, first)
    yield from _rocm(needs, policy)
    yield from _glibc(needs, policy)
    yield from _gpus(needs, policy)
    yield from _capabilities(needs, policy)
    if not policy.brings_driver and needs.facts.driver:
        paths = ", ".join(library.path for library in needs.facts.driver)
        brings = f"the image has libraries of a driver, {paths}"
        yield _violated(policy, "brings-driver", brings, "it may have none", case="brings-driver")
    if needs.missing:
        yield _undecided(policy, "program", f"the image lacks {', '.join(needs.missing)}, which the program needs")
    if policy.driver or policy.cuda or policy.gpus or policy.capabilities is not None:
        for path, why in needs.unread:
            yield _undecided(policy, path, why)


def _violated(policy: Policy, key: str, needs: str, has: str, case: Optional[str] = None) -> Finding:
    return finding("policy-violated", subject=key, where=policy.source_file, case=case, needs=needs, has=has)


def _undecided(policy: Policy, subject: str, needs: str) -> Finding:
    return finding("policy-undecided", subject=subject, where=policy.source_file, needs=needs)


def _arch(needs: ImageNeeds, policy: Policy) -> Iterator[Finding]:
    has = needs.facts.arch
    if policy.arch and has is None:
        yield _undecided(policy, "arch", "the architecture of the image's programs is not known")
    for arch in policy.arch:
        if has is not None and has not in (arch, architecture(arch).compat32):
            yield _violated(policy, "arch", f"the image is for {has}", f"hosts are {arch}")


def _driver(needs: ImageNeeds, policy: Policy, key: str, driver: Optional[str]) -> Iterator[Finding]:
    cuda, least = needs.cuda[0].version if needs.cuda else None, needs.driver
    if cuda is None:
        if any("nvidia" in file.gpu_code.vendors for file in needs.gpu_code):
            yield _undecided(policy, key, "the image has code for NVIDIA's GPUs, and its CUDA version is not known")
        return
    if least is None or driver is None:
        yield _undecided(policy, key, f"gpubind knows no driver for CUDA {policy.cuda if least else cuda}")
    elif version_key(driver) < version_key(least):
        asks = f"CUDA {cuda} needs driver {least}{needs.because_of_ptx}"
        asks += ", which the driver compiles" if needs.only_ptx else ""
        if any(library.note is None or branch_of(driver) in library.note.drivers for library in needs.facts.compat):
            yield _undecided(policy, key, f"{asks}; the image's own libcuda may serve it, on data-center GPUs")
        else:
            yield _violated(policy, key, asks, f"hosts may have {policy.driver or f'CUDA {policy.cuda}'}")


def _least_of(policy: Policy) -> Optional[str]:
    """Return the oldest driver that the policy allows; None if it is not known."""
    if policy.driver is not None:
        return policy.driver if "." in policy.driver else policy.driver + _NEWEST
    cuda = policy.cuda or ""
    return first_native_driver(cuda if "." in cuda else f"{cuda}.0")


def _requirements(needs: ImageNeeds, policy: Policy, key: str, first: str) -> Iterator[Finding]:
    for name in needs.facts.undecided:
        if name.startswith("NVIDIA_REQUIRE_") or name == "CUDA_VERSION":
            yield _undecided(policy, key, _ONLY_A_SHELL.format(name))
    for requirement in needs.requires:
        if requirement.fault is not None:
            yield _undecided(policy, key, f"{requirement.name} of the image is malformed: {requirement.fault}")
            continue
        later = (driver for driver in breakpoint_drivers(requirement.text) if version_key(driver) > version_key(first))
        answers = {driver: _answer(requirement.text, driver) for driver in (first, *later)}
        failing = next((driver for driver, answer in answers.items() if answer is False), None)
        if failing is not None:
            failed = failing.removesuffix(_NEWEST)
            needed = f"driver {requirement.driver}" if requirement.driver else "another driver"
            wants = f"{requirement.name} of the image needs {needed}"
            yield _violated(policy, key, wants, f"hosts may have {failed}")
        elif None in answers.values():
            depends = f"{requirement.name} of the image depends on the GPU: {requirement.text[:200]}"
            yield _undecided(policy, key, depends)


def _answer(text: str, driver: str) -> Optional[bool]:
    try:
        return evaluate(text, driver_properties(driver))
    except FormatError:
        return None


def _rocm(needs: ImageNeeds, policy: Policy) -> Iterator[Finding]:
    """Yield what violates the policy's ROCm. Source: ROCm documentation, "User and kernel-space support matrix"."""
    if policy.rocm is None:
        return
    rocm = needs.facts.rocm
    if rocm is None:
        if any("amd" in file.gpu_code.vendors for file in needs.gpu_code):
            yield _undecided(policy, "rocm", "the image has code for AMD's GPUs, and its ROCm version is not known")
        return
    places = len(policy.rocm.split("."))
    has, wants = version_key(policy.rocm), version_key(".".join(rocm.split(".")[:places]))
    if wants[:1] > has[:1]:
        yield _violated(policy, "rocm", f"the image has ROCm {rocm}", f"hosts have {policy.rocm}")
    elif wants > has:
        yield _undecided(policy, "rocm", f"the image has ROCm {rocm}, newer than that of the hosts, {policy.rocm}")


def _glibc(needs: ImageNeeds, policy: Policy) -> Iterator[Finding]:
    """Yield what violates the policy's glibc. Programs use the image's C library, or the host's if the image has
    none.
    """
    if policy.glibc is None:
        return
    facts, wants = needs.facts, needs.glibc
    if facts.libc_family == "musl" and needs.is_for_gpus:
        yield _violated(policy, "glibc", "the image's C library is musl", "hosts have drivers, which need glibc")
    elif facts.libc_fault is not None:
        yield _undecided(policy, "glibc", f"the image's C library is damaged: {facts.libc_fault}")
    elif wants is not None and facts.libc_family != "musl":
        image_glibc = facts.libc_version
        if version_key(wants) > version_key(image_glibc or policy.glibc):
            has = f"it has glibc {image_glibc} itself" if image_glibc else f"hosts have {policy.glibc}"
            yield _violated(policy, "glibc", f"the image's programs need GLIBC_{wants}", has)


def _gpus(needs: ImageNeeds, policy: Policy) -> Iterator[Finding]:
    if policy.gpus and not needs.gpu_code and (needs.facts.cuda or needs.facts.rocm):
        where = "the program and its libraries" if needs.program else "the frameworks that gpubind knows"
        yield _undecided(policy, "gpus", f"no GPU code is in {where}")
    cuda = policy.cuda or cuda_max(_least_of(policy))
    for name, files in main_files_by_owner(needs.gpu_code).items():
        code = merge_gpu_code(files)
        vendor_gpus = [gpu for gpu in policy.gpus if vendor_of(gpu) in code.vendors]
        shares = {gpu: best_share(files, gpu, cuda) for gpu in vendor_gpus or policy.gpus}
        lacking = [gpu for gpu, share in shares.items() if not share.is_enough]
        if not lacking or code.unread:
            continue  # each unread file has its own finding
        is_refused = all(best_share(files, gpu).is_enough for gpu in lacking)
        refused = f" but PTX {code.isas[-1]}, which a driver for CUDA {cuda} refuses" if is_refused else ""
        lacks = f"{name} has no code for {', '.join(lacking)}{refused}"
        if not files[0].is_main or is_extension(files[0].framework):
            yield _undecided(policy, "gpus", f"{lacks}; programs may do without it")
        else:
            yield _violated(policy, "gpus", lacks, "hosts have such GPUs")


def _capabilities(needs: ImageNeeds, policy: Policy) -> Iterator[Finding]:
    if policy.capabilities is None:
        return
    if CAPS_VARIABLE in needs.facts.undecided:
        yield _undecided(policy, "capabilities", _ONLY_A_SHELL.format(CAPS_VARIABLE))
    granted = ", ".join(policy.capabilities) or "none"
    for name, is_sure, by in needs.capabilities:
        if name in policy.capabilities:
            continue
        if is_sure:
            yield _violated(policy, "capabilities", f"{by} needs {name}", f"containers get {granted}")
        else:
            lacks = f"containers get {granted}, and {by} is of {name}; what opens it by name may do without"
            yield _undecided(policy, name, lacks)
