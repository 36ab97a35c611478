"""systemd-nspawn: only for root, with read-only binds, chosen device nodes and a separate environment.

`--volatile=overlay` keeps the image unchanged: it holds what a container writes, and the mount points that nspawn
makes. With `--read-only`, several containers can use one image at once. `--register=no --keep-unit` lets nspawn start
where no systemd runs, in the caller's own cgroup. With `--as-pid2`, signals reach a program that does not expect to be
init.

Source: systemd-nspawn(1) of 257, which was run; `src/nspawn/nspawn-mount.c` (bind_mount_parse).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from gpubind.errors import RuntimeLimitError
from gpubind.image.environment import DEFAULT_PATH
from gpubind.loader.namespace import UserBind, UserMounts
from gpubind.model import Plan
from gpubind.runtimes.cmdline import reader
from gpubind.runtimes.cmdline.programs import ALL_ACTIONS, RuntimeProgram, StartSubcommand
from gpubind.runtimes.edits import RuntimeArguments, make_base_mounts, make_edits, parse_user_binds, unsupported_value
from gpubind.runtimes.environment import BaseEnvironment, compose, library_path, set_variables
from gpubind.runtimes.runtime import NO_STAGE, Command, Runtime, RuntimeLimits, Stage, Start, StartCall

_AUTOPIPE_VERSION = (256,)
"""The first version that tells a terminal from a pipe without losing data of the pipe."""
_REFUSED_VALUE = re.compile(r"[\ud800-\udfff\x00-\x08\x0b-\x1f\x7f]")
"""The characters that nspawn refuses in a variable: control characters, and bytes that are not UTF-8."""

_OPTIONS = """
    ambient-capability= as-pid2/a background= bind= bind-ro= bind-user= bind-user-shell= boot/b capability= chdir=
    console= cpu-affinity= directory/D= drop-capability= ephemeral/x help/h hostname= image-policy= image/i=
    inaccessible= keep-unit kill-signal= link-journal= load-credential= machine/M= network-bridge= network-interface=
    network-ipvlan= network-macvlan= network-namespace-path= network-veth-extra= network-veth/n network-zone=
    no-new-privileges= no-pager notify-ready= oci-bundle= oom-score-adjust= overlay-ro= overlay= personality= pipe/P
    pivot-root= port/p= private-network private-users-chown private-users-ownership= private-users? property= quiet/q
    read-only register= resolv-conf= rlimit= root-hash-sig= root-hash= selinux-apifs-context/L= selinux-context/Z=
    set-credential= setenv/E= settings= share-system slice/S= suppress-sync= system-call-filter= template= timezone=
    tmpfs= user/u= uuid= verity-data= version volatile? /U /j
"""


class Nspawn(Runtime):
    name = "systemd-nspawn"
    title = "systemd-nspawn"
    program = RuntimeProgram(
        reader.GETOPT,
        {(): StartSubcommand(_OPTIONS, "rootfs", actions=ALL_ACTIONS)},
        root_of=lambda line: line.last("directory", "image", "oci-bundle"),
    )
    image_forms = ("directory",)
    image_hint = "unpack it, or use --backend apptainer"
    limits = RuntimeLimits(hides_missing_command=True)
    needs_version = True
    env_option = "setenv"
    passes_only_named_variables = True

    def identify(self, text: str) -> tuple[Runtime, Optional[tuple[int, ...]]]:
        """`systemd 257 (257.13-1)` -> (257,)."""
        match = re.search(r"systemd (\d+)", text)
        return self, (int(match[1]),) if match else None

    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> RuntimeArguments:
        """Return the options for *plan*.

        Errors: `RuntimeLimitError` for values that no option can express, and for callers other than root (code
        `not-root`).
        """
        if start.caller.uid:
            raise RuntimeLimitError(
                "not-root",
                "systemd-nspawn starts containers only for root",
                why="it says `Need to be root.`, or that unprivileged operation is not supported",
                hint="use --backend bwrap, or start it as root",
            )
        edits = make_edits(plan, stage.files, _user_binds(start))
        options = [*_container_options(start)]
        for bind in edits.binds:
            options.append(f"--bind{'-ro' if bind.read_only else ''}={escaped(bind.source)}:{escaped(bind.target)}")
        for node in edits.devices:
            options.append(f"--bind={escaped(node.source)}:{escaped(node.target)}")
        env = compose(plan.env, BaseEnvironment(start.user.options.env, images=library_path(plan)))
        for name, value in set_variables(env):
            if _REFUSED_VALUE.search(value):
                raise unsupported_value(name, "systemd-nspawn refuses control characters, and what is not UTF-8")
            options.append(f"--setenv={name}={value}")
        return RuntimeArguments(tuple(options), edits.binds, set_variables(env), edits.decisions, edits.findings)

    def start_command(self, call: StartCall, start: Start, arguments: RuntimeArguments) -> Command:
        # The default name is the image's, and two containers cannot have one name.
        name = () if start.user.options.all("machine") else (f"--machine=gpubind-{call.unique_name}",)
        options = ("-q", *name, *start.user.arguments, *arguments.options, f"--directory={call.image}")
        return Command((call.program, *options, "--", *start.in_directory(call)), start.caller.environ)

    def base_mounts(self, plan: Plan, start: Start) -> UserMounts:
        options = start.user.options
        users = {name: value for name, value in options.env.items() if name != "LD_PRELOAD"}
        names = ("overlay", "overlay-ro", "tmpfs")
        unseen = tuple(f"--{name}={value}" for name in names for value in options.all(name))
        directory = options.last("chdir") or "/"
        return make_base_mounts(_user_binds(start), {"PATH": DEFAULT_PATH, **users}, directory, unseen)


def _user_binds(start: Start) -> tuple[UserBind, ...]:
    return parse_user_binds((*start.user.options.all("bind"), *start.user.options.all("bind-ro")))


def _container_options(start: Start) -> Iterator[str]:
    """Yield the default options, without those that the user's options replace."""
    user_options = start.user.options.values
    yield from ("--register=no", "--keep-unit")
    if not {"volatile", "ephemeral"} & user_options.keys():
        yield "--volatile=overlay"
        if "read-only" not in user_options:
            yield "--read-only"
    if not {"boot", "as-pid2"} & user_options.keys():
        yield "--as-pid2"
    if not {"console", "pipe", "boot"} & user_options.keys():
        is_older = start.facts.version is not None and start.facts.version < _AUTOPIPE_VERSION
        yield "--pipe" if is_older else "--console=autopipe"


def escaped(path: str) -> str:
    """Return *path* with its colons escaped for --bind, in which a colon ends a path."""
    return path.replace("\\", "\\\\").replace(":", "\\:")


SYSTEMD_NSPAWN = Nspawn()
