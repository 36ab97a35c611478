"""The options of Apptainer and SingularityCE, with the variables that set them.

Source: Apptainer 1.4.5 and SingularityCE 4.5, `cmd/internal/cli/action_flags.go`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.runtimes.cmdline.flags import Flag, FlagKind


def _flags(kind: FlagKind, table: str) -> Iterator[Flag]:
    """Yield the options of one *kind* in *table*: a line each, name[/letter] and the variables."""
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
