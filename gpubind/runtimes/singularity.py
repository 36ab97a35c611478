"""Apptainer and SingularityCE: their words are the same but for LD_LIBRARY_PATH and the names of variables.

Sources: Apptainer 1.4.5 `pkg/runtime/engine/apptainer/config/bind.go`, `mount.go`, `internal/pkg/runtime/launch/`;
SingularityCE 4.5 `pkg/util/bind/`; reference of `--env` in both user guides. 1.4.5 was run; Apptainer 1.5 and
SingularityCE follow from their sources.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from gpubind.errors import RuntimeLimitError
from gpubind.model import Decision, Finding, ImageFacts, Missing, Mount, Plan
from gpubind.planner.ordinals import ORDINALS, renumbered
from gpubind.planner.placement import SINGULARITY
from gpubind.runtimes.start import Action, Bind, Start, Words, left_out, no_mount_point
from gpubind.tree import Tree

LAYOUT = SINGULARITY
LIBDIR = SINGULARITY.libdir
LIBRARIES_PREFIX = "/.singularity.d/libs"

NO_GPU_FLAGS = ("--no-nv", "--nv=false", "--no-rocm", "--rocm=false")
"""Ours never meet the program's own binds: one of a pair cancels the variable, the other the site's directive."""

NO_PLACE = "the container has no such place, and with --writable, or without overlay and underlay, none can be made"
_CONTAIN = {"-c", "--contain", "-C", "--containall", "--compat"}
_NO_EVAL = {"--no-eval", "--compat"}
_WRITABLE = {"-w", "--writable"}
_NO_BIND_CHARS = re.compile(r"[,:^\\\"\s]")
_NOT_RAW = re.compile(r"[\s\"'\\*?\[\]]")


def words(plan: Plan, start: Start, image: Optional[Tree] = None) -> Words:
    """The options that bring *plan* into a container.

    Device binds only where /dev will be minimal: a node that is bound over the whole /dev cannot be opened (nodev).
    An optional file whose place the container does not have, where none can be made, is left out.
    """
    decisions: list[Decision] = []
    binds = []
    for mount in plan.mounts:
        source = mount.source or start.staged.get(mount.target)
        if source is None:
            continue
        if _impossible(mount, start, image):
            decisions.append(no_mount_point(mount, NO_PLACE))
        else:
            binds.append(_sayable(Bind(source, mount.target, "ro" in mount.options), start))
    minimal = minimal_dev(start)
    nodes = plan.devices if minimal else ()
    binds += [Bind(node.source, node.target, False) for node in nodes]
    findings = list(_device_findings(plan, minimal))
    env, env_findings = _environment(plan, start)
    unset = tuple(variable.name for variable in plan.env if variable.op == "unset")
    plain = [bind for bind in binds if not _needs_mount(bind)]
    options = list(NO_GPU_FLAGS)
    if plain:
        options += ["--bind", ",".join(map(bind_word, plain))]
    for bind in binds:
        if _needs_mount(bind):
            options += ["--mount", mount_word(bind)]
    for name, value in env:
        options += ["--env", f"{name}={value}"]
    return Words(
        tuple(options), tuple(binds), env, tuple(decisions), (*findings, *env_findings, *left_out(decisions)), unset
    )


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


def exports(made: Words, prefix: str) -> str:
    """Shell lines that say the same through variables; appends to what the user already has in `*_BIND`.

    *prefix* is APPTAINER or SINGULARITY.
    """
    lines = [f"unset {prefix}_NV {prefix}_NVCCLI {prefix}_ROCM"]
    lines += [f"export {prefix}_NO_NV=1 {prefix}_NO_ROCM=1"]
    plain = ",".join(bind_word(bind) for bind in made.binds if not _needs_mount(bind))
    if plain:
        lines.append(f'export {prefix}_BIND="${{{prefix}_BIND:+${prefix}_BIND,}}"{shlex.quote(plain)}')
    mounts = "\n".join(mount_word(bind) for bind in made.binds if _needs_mount(bind))
    if mounts:
        # One mount a line; the newline stands in the quotes.
        lines.append(f'export {prefix}_MOUNT="${{{prefix}_MOUNT:+${prefix}_MOUNT\n}}"{shlex.quote(mounts)}')
    if made.unset:
        lines.append("unset " + " ".join(f"{name} {prefix}ENV_{name}" for name in made.unset))
    for name, value in made.env:
        variable = f"{prefix}ENV_{name}"
        if name == "LD_LIBRARY_PATH":
            lines.append(f'if [ -n "${{{variable}-}}" ]; then export {variable}={LIBDIR}:"${variable}"')
            lines.append(f"else export {variable}={shlex.quote(value)}; fi")
        else:
            lines.append(f"export {variable}={shlex.quote(value)}")
    return "\n".join(lines) + "\n"


def bind_word(bind: Bind) -> str:
    """`source:target:ro`, in --bind's syntax; a device node of one name is given once."""
    if bind.source == bind.target and not bind.read_only:
        return bind.source
    return f"{bind.source}:{bind.target}" + (":ro" if bind.read_only else "")


def mount_word(bind: Bind) -> str:
    """One --mount value: a record of comma-separated fields, where quoting can say any path."""
    fields = ["type=bind", f"source={bind.source}", f"destination={bind.target}", *(["ro"] if bind.read_only else [])]
    return ",".join('"' + f.replace('"', '""') + '"' if re.search(r'[,"\n\r]', f) else f for f in fields)


def minimal_dev(start: Start) -> bool:
    """Whether the container's /dev will hold only what is put there."""
    return start.site.get("mount dev") == "minimal" or any(word in _CONTAIN for word in start.arguments)


def parse_site(text: str) -> dict[str, str]:
    """apptainer.conf, singularity.conf: `directive = value` lines."""
    site: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith("#"):
            site[name.strip()] = value.strip()
    return site


def parse_version(text: str) -> tuple[str, Optional[tuple[int, ...]]]:
    """`apptainer version 1.4.5` -> ("apptainer", (1, 4, 5)); `singularity-ce version 4.1.0` -> ("singularity", ...)."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    version = tuple(int(part) for part in match.groups(default="0")) if match else None
    return ("apptainer" if "apptainer" in text else "singularity"), version


def _sayable(bind: Bind, start: Start) -> Bind:
    """*bind*, unless no word of the program's can say it. Errors: `RuntimeLimitError` (code `unsayable-path`)."""
    why = None
    if any("\ud800" <= character <= "\udfff" for character in bind.source + bind.target):
        why = "it is not UTF-8, and this program hands paths on as JSON"
    elif start.program == "apptainer" and ":" in bind.source and bind.target.startswith(LIBRARIES_PREFIX):
        why = "Apptainer splits the source of a library at a colon, even one that --mount protects"
    if why is not None:
        hint = "use --backend bwrap, or give the driver root a plainer path"
        raise RuntimeLimitError(
            "unsayable-path", "a path cannot be said to this program", where=bind.source, why=why, hint=hint
        )
    return bind


def env_file_options(arguments: Sequence[str]) -> list[str]:
    """The files that --env-file options name, in order; a later one wins."""
    files: list[str] = []
    for number, word in enumerate(arguments):
        if word == "--env-file" and number + 1 < len(arguments):
            files += arguments[number + 1].split(",")
        elif word.startswith("--env-file="):
            files += word[len("--env-file=") :].split(",")
    return files


def parse_env_file(text: str) -> dict[str, str]:
    """The plain assignments of an environment file. What a shell would have to evaluate is left out."""
    values: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.strip().partition("=")
        name = name[len("export ") :].strip() if name.startswith("export ") else name
        if equals and name.isidentifier():
            value = value.strip()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            if not set(value) & set("$`\\\"'"):
                values[name] = value
    return values


def _needs_mount(bind: Bind) -> bool:
    """Whether --bind cannot say this path in either program."""
    return bool(_NO_BIND_CHARS.search(bind.source) or _NO_BIND_CHARS.search(bind.target))


def _impossible(mount: Mount, start: Start, image: Optional[Tree]) -> bool:
    """Whether an optional bind would be fatal: its place is not there and cannot be made."""
    if mount.required or mount.target.startswith(LIBRARIES_PREFIX + "/"):
        return False
    layers = (start.site.get("enable overlay", "yes"), start.site.get("enable underlay", "yes"))
    fixed = any(word in _WRITABLE for word in start.arguments) or layers == ("no", "no")
    if not fixed:
        return False
    return image is None or isinstance(image.stat(mount.target), Missing)


def _device_findings(plan: Plan, minimal: bool) -> Iterator[Finding]:
    if (plan.devices or plan.gpus) and not minimal:
        yield Finding(
            "devices-not-isolated",
            "note",
            "nvidia",
            "/dev",
            "the container will have the host's whole /dev",
            None,
            "that is this program's default; a node that is bound over it could not be opened",
            "with --contain only the planned nodes are there",
        )


def _environment(plan: Plan, start: Start) -> tuple[tuple[tuple[str, str], ...], list[Finding]]:
    env: list[tuple[str, str]] = []
    findings: list[Finding] = []
    for variable in plan.env:
        if variable.name == "LD_LIBRARY_PATH":
            continue
        if variable.name == "PATH" and variable.op in ("prepend", "append") and variable.value:
            env.append((f"{variable.op.upper()}_PATH", variable.value))
        elif variable.op == "set" and variable.value is not None:
            # The plan counts GPUs as on the host, for this program's /dev is the host's; but a minimal one is not.
            anew = variable.rule == ORDINALS and minimal_dev(start)
            env.append((variable.name, renumbered(variable.value, plan.gpus) if anew else variable.value))
    prepended = [v.value for v in plan.env if v.name == "LD_LIBRARY_PATH" and v.op == "prepend" and v.value]
    ours = ":".join(dict.fromkeys(value for value in prepended if value != SINGULARITY.libdir32))
    if ours:
        pair, finding = _library_path(plan.image, start, ours)
        env += [pair] if pair else []
        findings += [finding] if finding else []
    if any(variable.value == SINGULARITY.libdir32 for variable in plan.env):
        env = [(n, f"{v}:{SINGULARITY.libdir32}" if n.endswith("LD_LIBRARY_PATH") else v) for n, v in env]
        if not any(name.endswith("LD_LIBRARY_PATH") for name, _ in env):
            env.append(("LD_LIBRARY_PATH", f"{LIBDIR}:{SINGULARITY.libdir32}"))
    return tuple(env), findings


def _library_path(
    image: Optional[ImageFacts], start: Start, ours: str
) -> tuple[Optional[tuple[str, str]], Optional[Finding]]:
    """How LD_LIBRARY_PATH gets *ours* in front, with everybody's own value kept."""
    if start.program == "apptainer" and start.version is not None and start.version >= (1, 5):
        return ("PREPEND_LD_LIBRARY_PATH", ours), None
    user = user_value("LD_LIBRARY_PATH", start)
    if user:
        return ("LD_LIBRARY_PATH", f"{ours}:{user}"), None
    if image is None or "LD_LIBRARY_PATH" in image.undecided:
        if any(word in _NO_EVAL for word in start.arguments):
            what = "LD_LIBRARY_PATH is set to the driver's directory alone"
            why = "with --no-eval the image's own value cannot be kept, and no image is known to read it from"
            finding = Finding(
                "library-path-lost", "warning", "nvidia", "LD_LIBRARY_PATH", what, None, why, "give --image"
            )
            return ("LD_LIBRARY_PATH", ours), finding
        return ("LD_LIBRARY_PATH", f"{ours}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"), None
    own = image.env.get("LD_LIBRARY_PATH")
    if own:
        return ("LD_LIBRARY_PATH", f"{ours}:{own}"), None
    # The image's base script sets it; a plain directory has none.
    return (None if image.singularity and ours == LIBDIR else ("LD_LIBRARY_PATH", ours)), None


def user_value(name: str, start: Start) -> Optional[str]:
    """The user's own value for *name* in the container: --env, else --env-file, else the prefixed variables."""
    value: Optional[str] = None
    for number, word in enumerate(start.arguments):
        following = start.arguments[number + 1] if number + 1 < len(start.arguments) else ""
        pairs = following if word == "--env" else word[len("--env=") :] if word.startswith("--env=") else ""
        # With one `=` the argument is taken whole, commas and all.
        for pair in pairs.split(",") if pairs.count("=") > 1 else [pairs]:
            key, equals, given = pair.partition("=")
            value = given if equals and key == name else value
    prefixes = ("APPTAINERENV_", "SINGULARITYENV_") if start.program == "apptainer" else ("SINGULARITYENV_",)
    value = value or start.env_files.get(name)
    return value or next(
        (start.environ[prefix + name] for prefix in prefixes if start.environ.get(prefix + name)), None
    )


def without_gpu_switches(environ: Mapping[str, str]) -> dict[str, str]:
    """*environ* without the program's own GPU switches: an older one reads them whatever its options say."""
    gone = {f"{prefix}_{name}" for prefix in ("APPTAINER", "SINGULARITY") for name in ("NV", "NVCCLI", "ROCM")}
    return {name: value for name, value in environ.items() if name not in gone}


def without_variables(environ: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """*environ* without *names*, by which the caller's own values would come into the container."""
    gone = {f"{prefix}{name}" for prefix in ("", "APPTAINERENV_", "SINGULARITYENV_") for name in names}
    return {name: value for name, value in environ.items() if name not in gone}
