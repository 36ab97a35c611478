"""Apptainer and SingularityCE: their words are the same but for LD_LIBRARY_PATH and the names of variables.

Sources: Apptainer 1.4.5 `pkg/runtime/engine/apptainer/config/bind.go`, `mount.go`, `internal/pkg/runtime/launch/`;
SingularityCE 4.5 `pkg/util/bind/`; reference of `--env` in both user guides. 1.4.5 was run; Apptainer 1.5 and
SingularityCE follow from their sources.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Optional

from gpubind.errors import RuntimeLimitError
from gpubind.model import ContainerPath, Decision, EnvVar, Finding, ImageFacts, Missing, Mount, Plan
from gpubind.planner.placement import SINGULARITY, Layout
from gpubind.runtimes.flags import map_word
from gpubind.runtimes.singularity_brought import BindSpec, named_binds
from gpubind.runtimes.start import Action, Bind, Start, Words, is_utf8, left_out, no_mount_point
from gpubind.tree import Tree

LAYOUT = SINGULARITY
LIBDIR = SINGULARITY.libdir
ENVIRONMENT_SCRIPT = ContainerPath("/.singularity.d/env/99-zz-gpubind.sh")
"""Read after all environment files of an image: its name sorts behind 99-base.sh and 99-runtimevars.sh."""
BASE_SCRIPT = ContainerPath("/.singularity.d/env/99-base.sh")
"""The last of an image's environment files that is there to be covered."""

NO_GPU_FLAGS = ("--no-nv", "--nv=false", "--no-rocm", "--rocm=false")
"""Ours never meet the program's own binds: one of a pair cancels the variable, the other the site's directive."""

GPU_SWITCHES = ("NV", "NVCCLI", "ROCM")
"""The variables that say the same as its GPU flags, without their prefix."""

NO_PLACE = "the container has no such place, and with --writable, or without overlay and underlay, none can be made"
_REFERENCE = re.compile(r"(?<!\\)\$(?:LD_LIBRARY_PATH(?![A-Za-z0-9_])|\{LD_LIBRARY_PATH\})")
_ESCAPED = re.compile(r"[\\$`]")
_SPECIAL_IN_DEFAULT = re.compile(r"[\\$`\"'}]")
_NO_BIND_CHARS = re.compile(r"[,:^\\\"\s]")
_NOT_RAW = re.compile(r"[\s\"'\\*?\[\]]")


def layout_of(start: Start) -> Layout:
    """Where a plan for *start* lands, and whether the container's /dev will hold the planned nodes alone."""
    return LAYOUT._replace(isolated=dev_of(start) == "minimal")


def generated(plan: Plan, start: Start, image: Optional[Tree]) -> dict[ContainerPath, str]:
    """Files of the start itself, beside those of *plan*: their text, by their place in the container.

    Where values are not evaluated, and only a shell can tell the image's LD_LIBRARY_PATH, a script among the image's
    environment files puts the driver's directory in front: those are shell, whatever happens to values. Where no place
    can be made for it, it follows the text of the image's last file, in the place of that.
    """
    ours = _ours(plan)
    if image is None or plan.image is None or not plan.image.singularity or _is_newer(start) or not ours:
        return {}
    if start.said("LD_LIBRARY_PATH") is not None or _kept(plan.image, start, ours) is not None:
        return {}
    value = f"{shlex.quote(ours)}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
    script = f"LD_LIBRARY_PATH={value}\nexport LD_LIBRARY_PATH\n"
    if not _is_fixed(start):
        return {ENVIRONMENT_SCRIPT: script}
    base = image.read_text(BASE_SCRIPT)
    return {} if isinstance(base, Missing) else {BASE_SCRIPT: f"{base}\n{script}"}


def words(plan: Plan, start: Start, image: Optional[Tree] = None) -> Words:
    """The options that bring *plan* into a container.

    Device binds only where /dev will be minimal: a node that is bound over the whole /dev cannot be opened (nodev).
    An optional file is left out if its place is not there and cannot be made, or lies in what the user or the site
    binds. Errors: `RuntimeLimitError` for a path or a value that no option can say.
    """
    decisions: list[Decision] = []
    binds = []
    covers = _covers(start, image)
    for mount in plan.mounts:
        source = mount.source or start.staged.get(mount.target)
        if source is None:
            continue
        cover = _cover(mount, covers)
        if cover is not None and source == cover.source + mount.target[len(cover.target) :]:
            continue  # that bind brings the very file
        if cover is not None:
            decisions.append(no_mount_point(mount, f"{cover.target} is bound by you or the site, and that counts"))
        elif _impossible(mount, start, image):
            decisions.append(no_mount_point(mount, NO_PLACE))
        else:
            binds.append(_sayable(Bind(source, mount.target, "ro" in mount.options), start))
    scripts = [script for script in (ENVIRONMENT_SCRIPT, BASE_SCRIPT) if script in start.staged]
    binds += [_sayable(Bind(start.staged[script], script, True), start) for script in scripts]
    nodes = plan.devices if dev_of(start) == "minimal" else ()
    binds += [Bind(node.source, node.target, False) for node in nodes]
    findings = list(_start_findings(plan, start))
    env, env_findings = _environment(plan, start)
    unset = tuple(v.name for v in plan.env if v.op == "unset" and start.said(v.name) is None)
    plain = [bind for bind in binds if not _needs_mount(bind)]
    options = list(NO_GPU_FLAGS)
    if plain:
        options += ["--bind", ",".join(map(bind_word, plain))]
    for bind in binds:
        if _needs_mount(bind):
            options += ["--mount", mount_word(bind)]
    for name, value in env:
        options += ["--env", _env_word(name, value)]
    findings += [*env_findings, *left_out(decisions, plan)]
    return Words(tuple(options), tuple(binds), env, tuple(decisions), tuple(findings), unset)


def command(
    program: str, action: Action, start: Start, made: Words, image: str, argv: tuple[str, ...]
) -> tuple[str, ...]:
    """The whole command line: the user's own options first, so that ours are not taken back by accident."""
    return (program, action, *start.arguments, *made.options, image, *argv)


def raw(made: Words, program: str) -> str:
    """The options on one line, to be split by a shell: `singularity exec $(gpubind plan ...) image cmd`.

    Errors: `RuntimeLimitError` (code `not-raw`) for a word that a shell would not leave whole: quotes cannot protect
    it there, for what a substitution gives is split but not unquoted.
    """
    _need_no_unset(made, program)
    for word in made.options:
        if _NOT_RAW.search(word):
            raise RuntimeLimitError(
                "not-raw",
                "a word of this plan does not survive an unquoted substitution",
                where=word,
                why="it holds white space, a quote, a backslash or a wildcard",
                hint=f"use `gpubind exec`, `eval` with `--format {program} --format sh`, or `--format {program}-env`",
            )
    return " ".join(made.options) + "\n"


def quoted(made: Words, program: str = "apptainer") -> str:
    """The options on one line, quoted for `eval`. Errors: as `raw`, for what no option says."""
    _need_no_unset(made, program)
    return " ".join(shlex.quote(word) for word in made.options) + "\n"


def _need_no_unset(made: Words, program: str) -> None:
    """Errors: `RuntimeLimitError` (`unsayable-unset`) where the caller's variable has to go: --env can only set."""
    if made.unset:
        raise RuntimeLimitError(
            "unsayable-unset",
            f"no option of {program} keeps {made.unset[0]} out of the container",
            why="the plan takes it away, and set to nothing it would hide every GPU",
            hint=f"unset it yourself, or use `gpubind exec` or `--format {program}-env`",
        )


def exports(made: Words, prefix: str, own: Optional[Mapping[str, str]]) -> str:
    """Shell lines that say the same through variables; what the user already has in those stays, and comes first.

    Evaluated twice, the lines change nothing more. *prefix* is APPTAINER or SINGULARITY. *own* has, by their place in
    the container, the libraries that Apptainer's own flag would bind, as Apptainer writes their paths: a later `--nv`
    is fatal where two libraries of one name come in by different paths, but not where the paths are the same. With None
    libraries are bound: an option --containlibs would make the program forget the variable.
    """
    read = dict.fromkeys((prefix, "SINGULARITY"))  # Apptainer knows the older names, too
    lines = ["unset " + " ".join(f"{known}_{switch}" for known in read for switch in GPU_SWITCHES)]
    lines += [f"export {prefix}_NO_NV=1 {prefix}_NO_ROCM=1"]
    libraries = _contained(made.binds, own) if prefix == "APPTAINER" and own is not None else {}
    if libraries:
        lines += _appended(prefix, "CONTAINLIBS", ",".join(libraries.values()), ",")
    binds = [bind for bind in made.binds if bind.target not in libraries]
    plain = ",".join(bind_word(bind) for bind in binds if not _needs_mount(bind))
    if plain:
        lines += _appended(prefix, "BIND", plain, ",")
    mounts = "\n".join(mount_word(bind) for bind in binds if _needs_mount(bind))
    if mounts:
        lines += _appended(prefix, "MOUNT", mounts, "\n")
    if made.unset:
        lines.append("unset " + " ".join(f"{name} {prefix}ENV_{name}" for name in made.unset))
    for name, value in made.env:
        if name.endswith("LD_LIBRARY_PATH"):
            lines += _appended(f"{prefix}ENV", name, value, ":", ("$LD_LIBRARY_PATH", "${LD_LIBRARY_PATH}"))
        else:
            lines.append(f"export {prefix}ENV_{name}={shlex.quote(value)}")
    return "\n".join(lines) + "\n"


def _contained(binds: Iterable[Bind], own: Mapping[str, str]) -> dict[str, str]:
    """The libraries of *binds* in the words of CONTAINLIBS, `path` or `path:name`, by their place in the container."""
    words: dict[str, str] = {}
    for bind in binds:
        path = own.get(bind.target, bind.source)
        if bind.target.startswith(f"{LIBDIR}/") and not _NO_BIND_CHARS.search(path + bind.target):
            name = bind.target.rpartition("/")[2]
            words[bind.target] = path if path.endswith(f"/{name}") else f"{path}:{bind.target}"
    return words


def _appended(prefix: str, variable: str, value: str, separator: str, references: Sequence[str] = ()) -> list[str]:
    """Lines that add *value* to a variable whose values add up, unless it is there already.

    Apptainer reads a variable's older name, SINGULARITY_..., only where the new one is not set. What that name says
    must not be lost, so it becomes the beginning. Where the user's value has one of *references*, *value* takes the
    place of the first: it refers to the same, behind ours.
    """
    name = f"{prefix}_{variable}"
    older = f"${{{name.replace('APPTAINER', 'SINGULARITY', 1)}-}}" if prefix.startswith("APPTAINER") else ""
    first = f"${{{name}-{older}}}"
    quoted = shlex.quote(value)
    replaced = [
        f"*{word}*) {name}={first}; {name}=${{{name}%%{word}*}}{quoted}${{{name}#*{word}}}; export {name} ;;"
        for word in map(shlex.quote, references)
    ]
    return [
        f'case "{first}" in *{quoted}*) ;;',
        f'"") export {name}={quoted} ;;',
        *replaced,
        f'*) export {name}="{first}{separator}"{quoted} ;; esac',
    ]


def bind_word(bind: Bind) -> str:
    """`source:target:ro`, in --bind's syntax; a device node of one name is given once."""
    if bind.source == bind.target and not bind.read_only:
        return bind.source
    return f"{bind.source}:{bind.target}" + (":ro" if bind.read_only else "")


def mount_word(bind: Bind) -> str:
    """One --mount value: a record of comma-separated fields, where quoting can say any path."""
    fields = ["type=bind", f"source={bind.source}", f"destination={bind.target}", *(["ro"] if bind.read_only else [])]
    return ",".join('"' + f.replace('"', '""') + '"' if re.search(r'[,"\n\r]', f) else f for f in fields)


def dev_of(start: Start) -> Literal["whole", "minimal", "none"]:
    """What the container's /dev will be: the host's, one that holds only what is put there, or none from outside."""
    if "dev" in start.options.all("no-mount"):
        return "none"
    if start.options.contain or start.directive("mount dev") == "minimal":
        return "minimal"
    return "none" if start.directive("mount dev") == "no" else "whole"


def parse_version(text: str) -> tuple[str, Optional[tuple[int, ...]]]:
    """`apptainer version 1.4.5` -> ("apptainer", (1, 4, 5)); `singularity-ce version 4.1.0` -> ("singularity", ...)."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    version = tuple(int(part) for part in match.groups(default="0")) if match else None
    return ("apptainer" if "apptainer" in text else "singularity"), version


def _sayable(bind: Bind, start: Start) -> Bind:
    """*bind*, unless no word of the program's can say it. Errors: `RuntimeLimitError` (code `unsayable-path`)."""
    why = None
    if not is_utf8(bind.source + bind.target):
        why = "it is not UTF-8, and this program hands paths on as JSON"
    elif start.program == "apptainer" and ":" in bind.source and bind.target.startswith(f"{LIBDIR}/"):
        why = "Apptainer splits the source of a library at a colon, even one that --mount protects"
    if why is not None:
        hint = "use --backend bwrap, or give the driver root a plainer path"
        raise RuntimeLimitError(
            "unsayable-path", "a path cannot be said to this program", where=bind.source, why=why, hint=hint
        )
    return bind


def _needs_mount(bind: Bind) -> bool:
    """Whether --bind cannot say this path in either program."""
    return bool(_NO_BIND_CHARS.search(bind.source) or _NO_BIND_CHARS.search(bind.target))


def _covers(start: Start, image: Optional[Tree]) -> tuple[BindSpec, ...]:
    """The binds of the user and the site, where they lie once the image's links are followed."""
    specs = named_binds(start)
    real = () if image is None else ((spec, image.resolve(spec.target)) for spec in specs)
    return (*specs, *(spec._replace(target=path) for spec, path in real if not isinstance(path, Missing)))


def _cover(mount: Mount, covers: Iterable[BindSpec]) -> Optional[BindSpec]:
    """The bind of the user's or the site's that *mount* is left to, if there is one: what they bind counts.

    The program would make a missing place inside what they bind: root would write to this host, and for others that is
    fatal. Libraries have a directory of the program's own.
    """
    if mount.target.startswith(f"{LIBDIR}/"):
        return None
    return next((spec for spec in covers if f"{mount.target}/".startswith(f"{spec.target.rstrip('/')}/")), None)


def _impossible(mount: Mount, start: Start, image: Optional[Tree]) -> bool:
    """Whether an optional bind would be fatal: its place is not there and cannot be made."""
    if not _is_fixed(start):
        return False
    if mount.target.startswith(f"{LIBDIR}/"):
        # The program brings a directory of its own, and wants a place for that.
        return image is not None and isinstance(image.stat(LIBDIR), Missing)
    return not mount.required and (image is None or isinstance(image.stat(mount.target), Missing))


def _is_fixed(start: Start) -> bool:
    """Whether the program can make no places in the container that the image lacks."""
    layers = (start.directive("enable overlay", "yes"), start.directive("enable underlay", "yes"))
    return start.options.has("writable") or layers == ("no", "no")


def _start_findings(plan: Plan, start: Start) -> Iterator[Finding]:
    """What the site or the user's options mean for the plan's nodes and binds."""
    dev = dev_of(start)
    if (plan.devices or plan.gpus) and dev == "whole":
        yield Finding(
            "devices-not-isolated",
            "note",
            "nvidia",
            "/dev",
            "the container will have the host's whole /dev",
            None,
            "that is this program's default; a node that is bound over it could not be opened",
            "with --contain the container has the planned nodes only; `gpubind plan` must be told, by "
            "--backend-arg=--contain",
        )
    if plan.devices and dev == "none":
        yield Finding(
            "no-dev",
            "error",
            "nvidia",
            "/dev",
            "the container will have no /dev of the host's: no GPU can be opened in it",
            None,
            "the option --no-mount dev, or `mount dev = no` in the program's configuration; --nv would not help either",
            "leave out --no-mount dev, use --contain, or ask the administrator for `mount dev = yes` or `minimal`",
        )
    if plan.mounts and plan.image is None:
        yield Finding(
            "image-unknown",
            "note",
            None,
            "image",
            "no image is known, so what an image brings itself is not looked at",
            None,
            "the host's libcuda comes before one of CUDA's forward compatibility package, and the vendor-neutral "
            "libraries are left to the image",
            "give --image, or an image that is on this machine",
        )
    if plan.mounts and start.directive("user bind control", "yes") == "no":
        yield Finding(
            "binds-forbidden",
            "error",
            "nvidia",
            "user bind control",
            "this program brings in no file that a user asks for: the container will have no driver",
            None,
            "`user bind control = no` in its configuration; its own --nv brings nothing either",
            "ask the administrator for `user bind control = yes`, or use another runtime",
        )


def _environment(plan: Plan, start: Start) -> tuple[tuple[tuple[str, str], ...], list[Finding]]:
    """The variables that options set, as the program will evaluate them. What the user says for the container stays."""
    env: list[tuple[str, str]] = []
    for variable in plan.env:
        if variable.name != "LD_LIBRARY_PATH":
            env += _variable(variable, start)
    ours = _ours(plan)
    if not ours or any(script in start.staged for script in (ENVIRONMENT_SCRIPT, BASE_SCRIPT)):
        return tuple(env), []
    pair, findings = _library_path(plan.image, start, ours)
    return (*env, *([pair] if pair else [])), findings


def _ours(plan: Plan) -> str:
    """The directories that the plan puts in front in LD_LIBRARY_PATH; empty if there are none."""
    found = (v.value for v in plan.env if v.name == "LD_LIBRARY_PATH" and v.op == "prepend" and v.value)
    return ":".join(dict.fromkeys(found))


def _is_newer(start: Start) -> bool:
    """Whether the program can be told what to put in front: Apptainer from 1.5 on."""
    return start.program == "apptainer" and start.version is not None and start.version >= (1, 5)


def _variable(variable: EnvVar, start: Start) -> Iterator[tuple[str, str]]:
    value = _to_the_letter(variable.value or "", start)
    if variable.name == "PATH" and variable.op in ("prepend", "append") and value:
        name = f"{variable.op.upper()}_PATH"
        said = start.said(name)
        parts = [said.text, value] if said is not None and said.text else [value]
        if said is None or said.text is not None:
            yield name, ":".join(parts)
    elif start.said(variable.name) is None and variable.op == "set" and variable.value is not None:
        yield variable.name, value
    elif start.said(variable.name) is None and variable.op in ("append", "default") and not start.options.no_eval:
        yield from _behind(variable, value, start)


def _behind(variable: EnvVar, value: str, start: Start) -> Iterator[tuple[str, str]]:
    """*value* behind what image or caller have in that variable, or only where they have nothing.

    The container's shell knows the image's value, and that one wins over the caller's. Without evaluation neither can
    be kept, so nothing is said, as with --nv.
    """
    name = variable.name
    callers = "" if start.options.clean_environment else start.environ.get(name, "")
    if variable.op == "default":
        if not callers:
            yield name, f"${{{name}:-{value}}}"
    elif callers:
        # The caller's value stands in the default: there, no backslash protects what is special.
        if not _SPECIAL_IN_DEFAULT.search(callers):
            yield name, f"${{{name}:-{callers}}}:{value}"
    else:
        yield name, f"${{{name}:+${name}:}}{value}"


def _library_path(
    image: Optional[ImageFacts], start: Start, ours: str
) -> tuple[Optional[tuple[str, str]], list[Finding]]:
    """How LD_LIBRARY_PATH gets the user's value first, then *ours*, then the image's; None where nothing is to be said.

    The program itself puts its directory of libraries behind whatever is there in the end.
    """
    name = "LD_LIBRARY_PATH"
    said = start.said(name)
    if _is_newer(start) and said is None:
        name = "PREPEND_LD_LIBRARY_PATH"
        said = start.said(name)
        if said is None or said.text is not None:
            return (name, f"{said.text}:{ours}" if said is not None and said.text else ours), []
    if said is None:
        kept = _kept(image, start, ours)
        return ((name, ours + kept), []) if kept is not None else (None, [_left_last("the image's value", ours)])
    if said.text is None:
        # Only the program's shell knows the user's value. The program puts its own directory behind it.
        return None, [] if ours == LIBDIR else [_left_last(f"{name} of --env-file", ours)]
    if f"{ours}:${{LD_LIBRARY_PATH" in said.text or f"{ours}${{LD_LIBRARY_PATH" in said.text:
        return None, []  # a plan in the caller's environment has said it already
    return (name, _behind_users(said.text, image, start, ours)), []


def _behind_users(text: str, image: Optional[ImageFacts], start: Start, ours: str) -> str:
    """The user's value, then *ours*, then the image's without its empty elements: those mean the current directory.

    Where the user's value itself refers to the image's, *ours* goes before that.
    """
    if not text or _is_newer(start):
        return f"{text}:{ours}".lstrip(":")
    if start.options.no_eval:
        return f"{text}:{ours}{_kept(image, start, ours) or ''}"
    theirs = f"{ours}:${{LD_LIBRARY_PATH:-{ours.rpartition(':')[2]}}}"
    referring, count = _REFERENCE.subn(lambda _: theirs, text)
    return referring if count else f"{text}:{ours}${{LD_LIBRARY_PATH:+:${{LD_LIBRARY_PATH//::/:}}}}"


def _kept(image: Optional[ImageFacts], start: Start, ours: str) -> Optional[str]:
    """What keeps the image's own value behind ours; None if nothing can.

    The container's shell knows that value best: an image's environment files are shell, and no parser knows what they
    will say. The default in it makes no empty element where nothing is set, and the whole still begins with our
    directories where a --no-eval that gpubind was not told of takes it literally.
    """
    if not start.options.no_eval:
        return f":${{LD_LIBRARY_PATH:-{ours.rpartition(':')[2]}}}"
    if image is None or "LD_LIBRARY_PATH" in image.undecided:
        return None
    own = image.env.get("LD_LIBRARY_PATH", "")
    return None if "$" in own else f":{own}" if own else ""


def _left_last(what: str, ours: str) -> Finding:
    return Finding(
        "library-path-last",
        "warning",
        "nvidia",
        "LD_LIBRARY_PATH",
        f"{what} comes before the driver's directory",
        ours,
        "only a shell can tell that value, and with --no-eval, or from a file, it cannot be put behind ours; another "
        "libcuda in one of its directories wins",
        "leave out --no-eval, or set APPTAINERENV_LD_LIBRARY_PATH to what the program needs",
    )


def _to_the_letter(value: str, start: Start) -> str:
    """*value* as it must be written to arrive: the container's shell evaluates it in double quotes, but quotes stay."""
    return value if start.options.no_eval else _ESCAPED.sub(r"\\\g<0>", value)


def _env_word(name: str, value: str) -> str:
    """The value of an --env option. Errors: `RuntimeLimitError` (code `unsayable-value`)."""
    word = map_word(name, value)
    why = "it has a carriage return before a newline, which --env changes" if word is None else ""
    if not is_utf8(value):
        why = "it is not UTF-8, and this program hands values on as JSON"
    if word is None or why:
        hint = "use --backend bwrap, or leave out the CDI device that sets it"
        raise RuntimeLimitError(
            "unsayable-value", "a variable cannot be said to this program", where=name, why=why, hint=hint
        )
    return word


def without_gpu_switches(environ: Mapping[str, str]) -> dict[str, str]:
    """*environ* without the program's own GPU switches: an older one reads them whatever its options say."""
    gone = {f"{prefix}_{name}" for prefix in ("APPTAINER", "SINGULARITY") for name in GPU_SWITCHES}
    return {name: value for name, value in environ.items() if name not in gone}


def without_variables(environ: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """*environ* without *names*, by which the caller's own values would come into the container."""
    gone = {f"{prefix}{name}" for prefix in ("", "APPTAINERENV_", "SINGULARITYENV_") for name in names}
    return {name: value for name, value in environ.items() if name not in gone}
