"""What the user asked of Apptainer or SingularityCE: by options, variables and the site's configuration.

Each is read once, by the program's own rules. A value on the command line wins over a variable. Of the variables those
with the prefix APPTAINER_ win over those with SINGULARITY_, which SingularityCE knows alone. Binds add up.

Sources: Apptainer 1.4.5 `cmd/internal/cli/action_flags.go`, `pkg/cmdline/flag.go`, `env.go`, `internal/pkg/util/env/`,
`pkg/util/apptainerconf/parser.go`, `internal/pkg/runtime/engine/apptainer/process_linux.go` (injectEnvHandler);
SingularityCE 4.5, the same files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from gpubind.formats.shell import Exports, parse_exports
from gpubind.runtimes.flags import Flag, FlagKind, Options, parse_command_line, parse_list, parse_map

PREFIXES = {"apptainer": ("APPTAINER", "SINGULARITY"), "singularity": ("SINGULARITY",)}
"""What the names of a program's variables begin with, in the order of their rank."""
_ADDED_UP = ("bind", "mount")
"""Options to whose values those of the variables are added."""


def _flags(kind: FlagKind, table: str) -> Iterator[Flag]:
    """Options of one kind: a line each, name[/letter] and the variables."""
    for line in table.strip().splitlines():
        name, *variables = line.split()
        name, _, short = name.partition("/")
        yield Flag(name, kind, short, tuple(variables))


FLAGS: tuple[Flag, ...] = (
    *_flags(
        "bool",
        """
        allow-setuid ALLOW_SETUID
        boot BOOT
        cleanenv/e CLEANENV
        compat COMPAT
        compat32 COMPAT32
        contain/c CONTAIN
        containall/C CONTAINALL
        disable-cache DISABLE_CACHE
        docker-login DOCKER_LOGIN
        fakeroot/f FAKEROOT
        help/h
        ignore-fakeroot-command IGNORE_FAKEROOT_COMMAND
        ignore-subuid IGNORE_SUBUID
        ignore-userns IGNORE_USERNS
        intel-hpu INTEL_HPU
        ipc/i IPC UNSHARE_IPC
        keep-layers KEEP_LAYERS
        keep-privs KEEP_PRIVS
        net/n NET UNSHARE_NET
        no-compat NO_COMPAT
        no-eval NO_EVAL
        no-home NO_HOME
        no-https NO_HTTPS NOHTTPS
        nohttps NO_HTTPS NOHTTPS
        no-init NOSHIMINIT
        no-nv NV_OFF NO_NV
        no-oci NO_OCI
        no-pid NO_PID
        no-privs NO_PRIVS
        no-rocm ROCM_OFF NO_ROCM
        no-setgroups NO_SETGROUPS
        no-tmp-sandbox NO_TMP_SANDBOX
        no-umask NO_UMASK
        nv NV
        nvccli NVCCLI
        oci OCI
        oom-kill-disable OOM_KILL_DISABLE
        passphrase
        pid/p PID UNSHARE_PID
        rocm ROCM
        sharens SHARENS
        sif-fuse SIF_FUSE
        syos SYOS
        tmp-sandbox TMP_SANDBOX
        underlay UNDERLAY
        unsquash UNSQUASH
        userns/u USERNS UNSHARE_USERNS
        uts UTS UNSHARE_UTS
        vm VM
        vm-err VMERROR
        writable/w WRITABLE
        writable-tmpfs WRITABLE_TMPFS
        """,
    ),
    *_flags(
        "string",
        """
        add-caps ADD_CAPS
        app APP APPNAME
        apply-cgroups APPLY_CGROUPS
        arch ARCH
        arch-variant ARCH_VARIANT
        authfile AUTHFILE
        blkio-weight BLKIO_WEIGHT
        cpu-shares CPU_SHARES
        cpus CPU_SHARES
        cpuset-cpus CPUSET_CPUS
        cpuset-mems CPUSET_MEMS
        cwd CWD TARGET_CWD
        dmtcp-launch DMTCP_LAUNCH
        dmtcp-restart DMTCP_RESTART
        dns DNS
        docker-host
        docker-password DOCKER_PASSWORD
        docker-username DOCKER_USERNAME
        drop-caps DROP_CAPS
        home/H HOME
        hostname HOSTNAME
        memory MEMORY
        memory-reservation MEMORY_RESERVATION
        memory-swap MEMORY_SWAP
        netns-path NETNS_PATH
        network NETWORK
        pem-path ENCRYPTION_PEM_PATH
        pids-limit PIDS_LIMIT
        platform PLATFORM
        pwd PWD TARGET_PWD
        runscript-timeout RUNSCRIPT_TIMEOUT
        shell/s SHELL
        tmpdir TMPDIR
        vm-cpu VM_CPU
        vm-ip VM_IP
        vm-ram VM_RAM
        workdir/W WORKDIR
        """,
    ),
    *_flags(
        "list",
        """
        blkio-weight-device BLKIO_WEIGHT_DEVICE
        cdi-dirs CDI_DIRS
        containlibs CONTAINLIBS
        data DATA
        device DEVICE
        env-file ENV_FILE
        fusemount FUSESPEC
        network-args NETWORK_ARGS
        no-mount NO_MOUNT
        overlay/o OVERLAY OVERLAYIMAGE
        scratch/S SCRATCH SCRATCHDIR
        security SECURITY
        """,
    ),
    *_flags("array", "bind/B BIND BINDPATH\nmount MOUNT"),
    *_flags("map", "env"),
)
_KINDS = {flag.name: flag.kind for flag in FLAGS}


def is_contained(options: Options) -> bool:
    """Whether the container gets a minimal /dev, and nothing of the host's but what is asked for."""
    return any(map(options.has, ("contain", "containall", "compat")))


def is_literal(options: Options) -> bool:
    """Whether values of variables arrive as they are; else the container's shell evaluates them once."""
    return options.has("no-eval") or options.has("compat")


def is_clean(options: Options) -> bool:
    """Whether the caller's variables stay outside."""
    return any(map(options.has, ("cleanenv", "containall", "compat")))


def read_options(program: str, arguments: Sequence[str], environ: Mapping[str, str]) -> Options:
    """What *arguments* and *environ* ask of *program*, `apptainer` or `singularity`."""
    line = parse_command_line(arguments, FLAGS)
    values: dict[str, list[str]] = {}
    env: dict[str, str] = {}
    for name, value in line.given:
        if _KINDS[name] == "map":
            env.update(parse_map(value))
        else:
            values.setdefault(name, []).extend(parse_list(value) if _KINDS[name] == "list" else [value])
    seen: set[str] = set()
    for prefix in PREFIXES.get(program, ()):
        for flag in FLAGS:
            for variable in flag.variables:
                said = environ.get(f"{prefix}_{variable}", "")
                # What the first prefix says, the second does not say anew.
                if not said.strip() or variable in seen:
                    continue
                if flag.name in _ADDED_UP:
                    values.setdefault(flag.name, []).append(said)
                elif flag.name not in values:
                    values[flag.name] = _of_variable(flag, said.strip())
        seen |= {key for flag in FLAGS for key in flag.variables if f"{prefix}_{key}" in environ}
    frozen = {name: tuple(given) for name, given in values.items()}
    return Options(frozen, env, line.unknown, line.rest, line.incomplete)


def _of_variable(flag: Flag, value: str) -> list[str]:
    if flag.kind != "list":
        return [value]
    return list(parse_list(",".join(part.strip() for part in value.split(","))))


def read_env_file(text: str, environ: Mapping[str, str]) -> dict[str, Optional[str]]:
    """The variables that the text of an environment file sets; None for a value that only a shell can tell.

    The program's own shell evaluates the file, with the caller's variables at hand.
    """
    exports = parse_exports(text, Exports(dict(environ)))
    named = sorted(set(re.findall(r"(?:^|[\s;&|({])([A-Za-z_][A-Za-z0-9_]*)\+?=", text)))
    values = {name: exports.env.get(name) if exports.decided(name) else None for name in named}
    return {name: value for name, value in values.items() if value is not None or not exports.decided(name)}


def parse_site(text: str) -> dict[str, tuple[str, ...]]:
    """apptainer.conf, singularity.conf: `directive = value` lines. A directive may stand there more than once.

    A line without a value says nothing: the program's default counts.
    """
    site: dict[str, tuple[str, ...]] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and value.strip() and not line.lstrip().startswith("#"):
            site[name.strip()] = (*site.get(name.strip(), ()), value.strip())
    return site
