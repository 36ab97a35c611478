"""`gpubind needs`: what an image needs of a host, for people, for a README, and as `gpubind.needs/1`.

Its schema is data/needs.schema.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from posixpath import basename, dirname

from gpubind.documents.check.markdown import as_code, as_text
from gpubind.documents.tables import Row, Table, always_shown, make_table
from gpubind.documents.text import printable, render_document
from gpubind.image.needs import SYNAPSE, ImageNeeds, IntelRuntime
from gpubind.model import with_count
from gpubind.model.cuda import version_key
from gpubind.model.gpucode import CodeFile, Share, best_share, main_files_by_owner, merge_gpu_code

_NOTHING = "no file that was looked at uses one"
_SHOWN = 120
"""Maximum characters of a shown requirement."""


def render_needs_json(needs: ImageNeeds, reference: str) -> str:
    """Return the document; *reference* is the image as the user named it."""
    return render_document("gpubind.needs/1", {"reference": reference, **needs.to_dict()})


def render_needs_tsv(needs: ImageNeeds, reference: str) -> str:
    """Return a line for each need, its columns separated by tabs."""
    return "".join("\t".join(map(printable, row)) + "\n" for row in _rows(needs))


def render_needs_markdown(needs: ImageNeeds, reference: str) -> str:
    """Return a table for a README or a model card."""
    lines = ["| need | what | from |", "| --- | --- | --- |"]
    for need, value, of in _rows(needs):
        lines.append(f"| {as_text(need)} | {as_text(value)} | {as_code(of, in_table=True) if of else ''} |")
    return "\n".join(lines) + "\n"


def needs_table(needs: ImageNeeds) -> Table:
    """Return the needs as a table for people."""
    return make_table(always_shown("need", "what", "from"), tuple(_rows(needs)))


def _rows(needs: ImageNeeds) -> Iterator[Row]:
    """Yield each need: its name, its value, and the file or variable that it comes from."""
    facts = needs.facts
    place = "environment" if facts.kind == "host" else "image"
    if facts.kind == "host":
        yield "environment", "of Python, on this machine: not an image", facts.label
    yield "architecture", facts.arch or "not known", ""
    yield "C library", _libc(needs), ""
    if not needs.is_for_gpus:
        yield "GPU", _NOTHING, ""
    yield from _driver(needs)
    if facts.rocm or facts.rocm_runtime:
        yield "ROCm", facts.rocm or "not known", dirname(facts.rocm_runtime or "")
    if needs.rocm is not None:
        release, soname, by = needs.rocm
        yield "linked with ROCm", f"{release}: {soname}", by
    for runtime in needs.intel:
        yield runtime.name, _intel(runtime, place), runtime.by
    for name, mains in main_files_by_owner(needs.gpu_code, "the program").items():
        for files in _by_vendor(mains):
            yield f"GPU code: {name}", _code(files), _paths([file.path for file in files])
        yield from _of_parts(needs, name, mains)
    if needs.capabilities:
        capabilities = (name if is_sure else f"{name} if it is opened" for name, is_sure, _ in needs.capabilities)
        yield "capabilities", ", ".join(capabilities), ", ".join(dict.fromkeys(by for _, _, by in needs.capabilities))
    for library in needs.libraries:
        use = "linked with it" if library.use == "linked" else "opened by name"
        versions = f", {' '.join(library.versions)}" if library.versions else ""
        yield library.name, f"{library.capability}: {use}{versions}", _paths(library.by)
    for driver in facts.driver:
        yield "brings a driver", f"{driver.soname}: it fits one version of the kernel module only", driver.path
    for name in needs.missing:
        yield "missing", name, needs.program or ""
    lacking: dict[str, list[str]] = {}
    for name, by in needs.lacking:
        lacking.setdefault(by, []).append(name)
    yield from (("missing", ", ".join(names), by) for by, names in lacking.items())
    for fabric in needs.fabric:
        lacks = "" if fabric.is_there else f"opened by name, and not in the {place}; "
        yield f"{fabric.name} {fabric.version or ''}".rstrip(), f"{lacks}{fabric.host}", fabric.path
    for path, why in needs.unread:
        yield "not looked at", why, path


def _intel(runtime: IntelRuntime, place: str) -> str:
    if runtime.name == SYNAPSE:
        lacks = "" if runtime.driver else f"; the {place} has no libSynapse.so"
        if runtime.release is None:
            return f"Gaudi accelerators with habanalabs of its release, which is not known{lacks}"
        return f"{runtime.release}: Gaudi accelerators with habanalabs {runtime.release}{lacks}"
    return f"its own driver: {runtime.driver}" if runtime.driver else f"the {place} has no driver for Intel's GPUs"


def _libc(needs: ImageNeeds) -> str:
    facts = needs.facts
    wants = f"programs need GLIBC_{needs.glibc}" if needs.glibc else ""
    if facts.libc_fault:
        return facts.libc_fault
    if facts.libc_family == "musl":
        return "musl: a driver's libraries need glibc"
    if facts.libc_family == "none":
        return f"the host's: {wants}" if wants else "none"
    return "; ".join(filter(None, (f"glibc {facts.libc_version} of its own", wants)))


def _driver(needs: ImageNeeds) -> Iterator[Row]:
    facts = needs.facts
    for cuda in needs.cuda:
        yield "CUDA", cuda.version, cuda.where
    of = f"CUDA {needs.cuda[0].version}" if needs.cuda else ""
    if needs.cuda and needs.native is None:
        yield "NVIDIA's driver", f"not known for {of}", of
    elif needs.driver is not None:
        yield "NVIDIA's driver", f"{needs.driver} or later{needs.because_of_ptx}", of
    if needs.ptx is not None and version_key(needs.ptx) > version_key(needs.driver or "0"):
        isas = (isa for file in needs.gpu_code for isa in file.gpu_code.isas)
        yield "... for PTX", f"{needs.ptx} or later", f"PTX {max(isas, key=version_key)}"
    for requirement in needs.requires:
        text = requirement.text[:_SHOWN]
        if requirement.fault is not None:
            yield requirement.name, f"malformed: {requirement.fault}", text
        else:
            driver = f"driver {requirement.driver} or later" if requirement.driver else "depends on the GPU"
            yield requirement.name, driver, text
    for compat in facts.compat:
        serves = f"CUDA {compat.note.cuda}" if compat.note else "its CUDA"
        branches = f" with drivers {', '.join(map(str, compat.note.drivers))}" if compat.note else ""
        yield "its own libcuda", f"{serves}{branches}, on data-center GPUs", compat.path


def _code(files: Sequence[CodeFile]) -> str:
    """Return the architectures of *files*. Architectures that only a few modules have are listed separately, with
    their number.
    """
    merged = merge_gpu_code(files)
    shares = {arch: best_share(files, arch) for arch in merged.code}
    enough = [arch for arch, share in shares.items() if share.is_enough or arch[-1] in "af"]
    few: dict[Share, list[str]] = {}
    for arch, share in shares.items():
        if arch not in enough:
            few.setdefault(share, []).append(arch)
    parts = [f"only {share.runs} of {share.modules} modules: {' '.join(archs)}" for share, archs in few.items()]
    ptx = f"PTX {' '.join(merged.ptx)}" if merged.ptx else ""
    return "; ".join(filter(None, (" ".join(enough), ptx, *parts))) or "not known"


def _by_vendor(files: Iterable[CodeFile]) -> Iterator[list[CodeFile]]:
    """Yield groups of *files*, each with code for GPUs of the same vendors; the group of AMD is last."""
    groups: dict[tuple[str, ...], list[CodeFile]] = {}
    for file in files:
        groups.setdefault(tuple(sorted(file.gpu_code.vendors)), []).append(file)
    yield from (files for _, files in sorted(groups.items(), reverse=True))


def _of_parts(needs: ImageNeeds, name: str, mains: Sequence[CodeFile]) -> Iterator[Row]:
    """Yield AMD's architectures for each file of the framework *name* whose architectures differ from those of all
    *mains*.
    """
    of_amd = [file for file in needs.gpu_code if "amd" in file.gpu_code.vendors]
    main_archs = {code for file in of_amd if file in mains for code in file.gpu_code.code}
    for file in of_amd:
        if file.framework == name and {*file.gpu_code.code} != main_archs:
            yield f"... in {basename(file.path)}", _code([file]), file.path


def _paths(paths: Sequence[str]) -> str:
    more = len(paths) - 1
    return f"{paths[0]} and {with_count(more, 'other file')}" if more else paths[0]
