"""The words before a runtime's program: `srun -n 4`, `time`, `env A=b`. Each is read by its own program's rules.

`read_prefix` returns one of these programs with its words.

Sources: `--help` of GNU coreutils 9.7, util-linux 2.41, GNU time 1.9, strace 6.1 and systemd-run 257; srun(1) of Slurm
22.05; mpirun(1) of Open MPI 4.1; sudo(8) 1.9; numactl(8) 2.0.16; xvfb-run(1). The options of MPICH's mpiexec, bsub,
jsrun, aprun, ibrun, nsys, ncu and doas are from their documentation; these programs were not run. Launchers have more
options than any table: those of plugins, of other makes, of later versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import basename
from typing import Optional

from gpubind.errors import UsageError
from gpubind.frozen import NamedTuple
from gpubind.model.arch import ARCHITECTURES
from gpubind.runtimes.cmdline.programs import PROGRAMS
from gpubind.runtimes.cmdline.reader import (
    GETOPT,
    NICE,
    SINGLE_DASH,
    Line,
    Reader,
    Trouble,
    read_options,
    table,
)

HINT = "write `gpubind wrap --` right before the runtime's own name: `... gpubind wrap -- singularity exec ...`"
_INTO_TEXT = "put `gpubind wrap --` into that text, right before the runtime's name"


class Prefix(NamedTuple):
    """A program that starts another one."""

    words: tuple[str, ...]
    """All of its words, its name first."""
    moves: bool = False
    """Whether the command gets another environment: other variables, user or cgroup, another machine, or a later time.
    A plan made here may be wrong there."""
    sets: tuple[tuple[str, Optional[str]], ...] = ()
    """The variables that it sets or, with None, unsets, in their order."""
    clears: bool = False
    """Whether it unsets all other variables."""
    several: bool = False
    """Whether a lone `:` after it begins another command."""


class _Rule(NamedTuple):
    """How a program finds the command that it starts."""

    options: str = "help version"
    reader: Reader = GETOPT
    moves: bool = False
    first: tuple[str, ...] = ()
    """Words of which one may precede the options: `nsys profile`, `setarch x86_64`."""
    skips: int = 0
    """How many words precede the command: timeout's duration, taskset's mask."""
    ends: bool = False
    """Whether a `--` may follow those."""
    assigns: bool = False
    """Whether `NAME=VALUE` words may precede the command."""
    unsets: str = ""
    """The option that unsets a variable."""
    clears: tuple[str, ...] = ()
    """Words and options that unset all variables."""
    keeps: Optional[tuple[str, ...]] = None
    """Options without which it unsets all variables; None: it keeps them."""
    guesses: bool = False
    """Whether it has more options than the table: those of plugins, of other makes, of later versions."""
    shell: tuple[str, ...] = ()
    """Options after which the command is one string, for a shell."""
    several: bool = False


_SRUN = """
    accel-bind= account/A= acctg-freq= batch bb= bbf= bcast? bcast-exclude= begin/b= chdir/D= cluster-constraint=
    clusters|cluster/M= comment= compress? constraint/C= container= container-id= contiguous core-spec/S=
    cores-per-socket= cpu-bind= cpu-freq= cpus-per-gpu= cpus-per-task/c= deadline= debugger-test delay-boot=
    dependency/d= disable-status/X distribution/m= epilog= error/e= exact exclude/x= exclusive? export=
    external-launcher extra= extra-node-info/B= get-user-env? gid= gpu-bind= gpu-freq= gpus/G= gpus-per-node=
    gpus-per-socket= gpus-per-task= gres= gres-flags= help/h het-group|pack-group= hint= hold/H immediate/I?
    input/i= interactive job-name/J= jobid= kill-command kill-on-bad-exit/K? label/l launch-cmd launcher-opts=
    licenses/L= mail-type= mail-user= mcs-label= mem= mem-bind= mem-per-cpu= mem-per-gpu= mincpus= mpi= msg-timeout=
    multi-prog network= nice? no-allocate/Z no-bell no-kill/k? no-rotate/R no-shell nodefile/F= nodelist/w= nodes/N=
    ntasks/n= ntasks-per-core= ntasks-per-gpu= ntasks-per-node|tasks-per-node= ntasks-per-socket= ntasks-per-tres=
    oom-kill-step? open-mode= output/o= overcommit/O overlap oversubscribe|share/s partition/p= power= prefer=
    preserve-env/E priority= profile= prolog= propagate? pty? qos/q= quiet/Q quit-on-interrupt reboot relative/r=
    reservation= resv-ports? segment= send-libs? signal= slurmd-debug= sockets-per-node= spread-job stepmgr
    switches= task-epilog= task-prolog= test-only thread-spec= threads/T= threads-per-core= time/t= time-min= tmp=
    treewidth= tres-bind= tres-per-task= uid= unbuffered/u usage use-min-nodes verbose/v version/V wait/W=
    wait-all-nodes= wckey= whole wrap= x11?
"""
_MPIRUN = """
    allow-run-as-root am= app= bind-to= bind-to-core bind-to-none bind-to-socket bycore bynode byslot byslot cf=
    cpu-list= cpu-set= cpus-per-proc= cpus-per-rank= debug-daemons default-hostfile= disable-recovery display=
    display-allocation display-map display-topo do-not-launch do-not-resolve dvm= enable-recovery get-stack-traces
    gmca=2 help/h hnp= host|H= hostfile|machinefile= launch-agent= leave-session-attached map-by= mca=2
    max-restarts= merge-stderr-to-stdout n|np|c= N= nolocal nooversubscribe noprefix novm npernode= npersocket=
    ompi-server= omca=2 output= output-filename= oversubscribe path= pernode personality= pmca=2 pmixmca=2 ppr=
    prefix= preload-binary preload-files= prtemca=2 q|quiet rank-by= rankfile|rf= report-bindings report-events=
    report-pid= report-uri= runtime-options= set-cwd-to-session-dir show-progress stdin= stream-buffering=
    tag-output timeout= timestamp-output tune= tv use-hwthread-cpus use-regexp v|verbose V|version wd|wdir= with-ft=
    x= xml xml-file= xterm= bootstrap= cpu-bind= depth= env=2 envall envlist= envnone f= genv=2 genvall genvlist=
    genvnone hosts= hosts-group= iface= launcher= launcher-exec= perhost= ppn= prepend-rank print-all-exitcodes rmk=
    rr
"""
_BSUB = """
    a= app= ar b= B C= c= clusters= cn_cu= core_isolation= cwd= D= data= datagrp= E= Ep= e= eo= env= eptl= ext= F=
    f= freq= G= g= gpu= H h hostfile= hl I IS ISp ISs Ip Is IX i= is= J= Jd= jobaff= jsdl= K k= L= Lp= lsf_keep M=
    m= mig= N n= Ne network= notify= o= oo= outdir= P= p= pack= ptl= Q= q= R= r rn rcacct= rnc= S= s= sla= smt= sp=
    stage= step_cgroup= T= t= Ti= tty U= u= ul UF= V v= W= We= w= wa= wt= x XF XFssh Zs
"""
_JSRUN = """
    nrs/n= rs_per_host/r= tasks_per_rs/a= cpu_per_rs/c= gpu_per_rs/g= memory_per_rs/m= latency_priority/l=
    launch_distribution/d= bind/b= np/p= env/E= env_no_propagate/F= smpiargs/M= stdio_input= stdio_mode/o=
    stdio_stderr/k= stdio_stdout= chdir/h= immediate/i exit_on_error/X= progress/Y= appfile/f= rs_on_hosts/K=
    use_resources/J= use_reservation= allocate_only/A erf_input/U= erf_output/u= help version/V
"""
_APRUN = """
    a= b B C cc= cp= d= D= e= F= L= m= n= N= p= q r= R= S= sn= sl= ss T t= z
"""
_SUDO = """
    askpass/A auth-type/a= background/b bell/B chdir/D= chroot/R= close-from/C= command-timeout/T= edit/e group/g=
    help host/h= list/l login-class/c= login/i no-update/N non-interactive/n other-user/U= /E preserve-env?
    preserve-groups/P prompt/p= remove-timestamp/K reset-timestamp/k role/r= set-home/H shell/s stdin/S type/t=
    user/u= validate/v version/V
"""
_STRACE = """
    abbrev= argv0= attach/p= columns/a= const-print-style/X= daemonize? decode-fds? decode-pids= detach-on/b= env/E=
    fault= failed-only/Z follow-forks/f help/h inject= instruction-pointer/i interruptible/I= kvm= kill-on-exit
    no-abbrev /v output/o= output-append-mode/A output-separately quiet/q raw= read= relative-timestamps?
    seccomp-bpf signal= stack-traces/k status= string-limit/s= strings-in-hex? successful-only/z summary-columns/U=
    summary-only/c summary/C summary-sort-by/S= summary-syscall-overhead/O= summary-wall-clock/w syscall-limit=
    syscall-number/n syscall-times/T? trace= trace-path/P= user/u= verbose= version/V write= /d /D /F /e= /r /t /x
    /y
"""
_SETARCH = """
    32bit/B 3gb/3 4gb addr-compat-layout/L addr-no-randomize/R fdpic-funcptrs/F help/h mmap-page-zero/Z
    read-implies-exec/X short-inode/I sticky-timeouts/T uname-2.6 verbose/v version/V whole-seconds/S
"""
_PRLIMIT = """
    as/v? core/c? cpu/t? data/d? fsize/f? help/h locks/x? memlock/l? msgqueue/q? nice/e? nofile/n? noheadings
    nproc/u? output/o= pid/p= raw rss/m? rtprio/r? rttime/y? sigpending/i? stack/s? verbose version/V
"""
_SYSTEMD_RUN = """
    collect/G description= expand-environment= gid= help/h host/H= ignore-failure json= machine/M= nice=
    no-ask-password no-block on-active= on-boot= on-calendar= path-property= pipe/P property/p= pty-late/T pty/t
    quiet/q remain-after-exit/r same-dir/d scope background= on-startup= on-unit-active= on-unit-inactive=
    on-timezone-change on-clock-change send-sighup service-type= setenv/E= shell/S slice-inherit slice=
    socket-property= system timer-property= uid= unit/u= user verbose/v version wait working-directory=
"""
_CHRT = """
    all-tasks/a batch/b deadline/d fifo/f help/h idle/i max/m other/o pid/p reset-on-fork/R rr/r sched-deadline/D=
    sched-period/P= sched-runtime/T= verbose/v version/V
"""
_ENV = """
    argv0/a= block-signal? chdir/C= debug/v default-signal? help ignore-environment/i ignore-signal?
    list-signal-handling null/0 split-string/S= unset/u= version
"""
_FLOCK = """
    close/o command/c= conflict-exit-code/E= exclusive/x /e fcntl help/h no-fork/F nonblock|nb/n shared/s
    timeout|wait/w= unlock/u verbose version/V
"""
_NUMACTL = """
    all/a balancing/b cpubind/c= cpunodebind/N= hardware/H interleave/i= localalloc/l membind/m= physcpubind/C=
    preferred-many/P= preferred/p= show/s weighted-interleave/w=
"""
_XVFB_RUN = """
    auth-file/f= auto-display/d auto-servernum/a error-file/e= help/h listen-tcp/l server-args/s= server-num/n=
    wait/w= xauth-protocol/p=
"""
_NSYS = """
    backtrace/b= capture-range/c= cuda-memory-usage= delay/y= duration/d= env-var/e= export= force-overwrite/f=
    gpu-metrics-devices|gpu-metrics-device= kill= output/o= python-sampling= run-as= sample/s= session-new=
    show-output/w= stats= stop-on-exit/x= trace/t= trace-fork-before-exec= wait=
"""
_PERSONALITIES = (
    *("linux32", "linux64", "uname26"),
    *(name for known in ARCHITECTURES for name in (known.name, *known.aliases)),
)
"""The names of an architecture for setarch; it also has these names itself."""
_SETARCH_RULE = _Rule(_SETARCH, first=_PERSONALITIES)
_MPI = _Rule(_MPIRUN, SINGLE_DASH, moves=True, guesses=True, several=True)
_SLURM = _Rule(_SRUN, moves=True, guesses=True, several=True)
_RULES: dict[str, _Rule] = {
    "aprun": _Rule(_APRUN, SINGLE_DASH, moves=True, guesses=True, several=True),
    "bsub": _Rule(_BSUB, SINGLE_DASH, moves=True, guesses=True),
    "catchsegv": _Rule(),
    "choom": _Rule("adjust/n= help/h pid/p= version/V"),
    "chrt": _Rule(_CHRT, skips=1, ends=True),
    "dbus-run-session": _Rule("config-file= dbus-daemon= help version"),
    "doas": _Rule("/C= /L /a= /n /s /u=", moves=True, keeps=()),
    "env": _Rule(
        _ENV,
        moves=True,
        assigns=True,
        unsets="unset",
        clears=("-", "ignore-environment"),
        shell=("split-string",),
    ),
    "flock": _Rule(_FLOCK, skips=1, shell=("command",)),
    "ibrun": _Rule("/n= /o=", moves=True, guesses=True),
    "ionice": _Rule("class/c= classdata/n= help/h ignore/t pgid/P= pid/p= uid/u= version/V"),
    "jsrun": _Rule(_JSRUN, moves=True, guesses=True, several=True),
    "ncu": _Rule("export/o= force-overwrite/f metrics= section= set= target-processes= kernel-name/k=", guesses=True),
    "nice": _Rule("adjustment/n= help version", NICE),
    "nohup": _Rule(),
    "nsys": _Rule(_NSYS, first=("profile", "launch"), guesses=True),
    "numactl": _Rule(_NUMACTL),
    "prlimit": _Rule(_PRLIMIT),
    "salloc": _SLURM,
    "setarch": _SETARCH_RULE,
    "setsid": _Rule("ctty/c fork/f help/h version/V wait/w"),
    "srun": _SLURM,
    "stdbuf": _Rule("error/e= help input/i= output/o= version"),
    "strace": _Rule(_STRACE),
    "sudo": _Rule(_SUDO, moves=True, assigns=True, keeps=("E", "preserve-env")),
    "systemd-run": _Rule(_SYSTEMD_RUN, moves=True),
    "taskset": _Rule("all-tasks/a cpu-list/c help/h pid/p version/V", skips=1),
    "time": _Rule("append/a format/f= help/h output/o= portability/p quiet/q verbose/v version/V"),
    "timeout": _Rule("foreground/f help kill-after/k= preserve-status/p signal/s= verbose/v version", skips=1),
    "unbuffer": _Rule("/p"),
    "xvfb-run": _Rule(_XVFB_RUN),
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich"), _MPI),
    **dict.fromkeys(("mpiexec.mpich", "orterun", "prterun", "prun"), _MPI),
    **dict.fromkeys(_PERSONALITIES, _SETARCH_RULE._replace(first=())),
}
_SHELLS = (
    *("ash", "bash", "csh", "dash", "eval", "fish", "ksh", "mksh", "runuser", "script", "sh", "ssh", "su", "tcsh"),
    "zsh",
)
"""Programs whose command is text or a script, which a shell splits into words."""


def is_prefix(word: str) -> bool:
    """Return whether *word* names a program that starts what follows it, and whose rules are known."""
    return basename(word) in _RULES


def read_prefix(argv: Sequence[str], at: int) -> Prefix:
    """Return the prefix that begins at position *at*.

    Errors: `UsageError` for an unknown program (code `wrap-prefix`), for a command that a shell reads (`wrap-shell`),
    for an option that cannot be read (`wrap-option`), and for words that start nothing (`wrap-no-runtime`).
    """
    word = argv[at]
    program = basename(word)
    rule = _RULES.get(program)
    if program in _SHELLS:
        what = f"`{word}` is given its command as text or as a script, which only a shell can split into arguments"
        raise UsageError("wrap-shell", what, where=f"argument {at + 1}", hint=_INTO_TEXT)
    if rule is None:
        what = f"`{word}` is not a runtime, and gpubind does not know it as a program that starts one"
        raise UsageError("wrap-prefix", what, where=f"argument {at + 1}", hint=HINT)
    line = _read(rule, argv, at + 1 + ("".join(argv[at + 1 : at + 2]) in rule.first))
    for option in line.options:
        if option.name in rule.shell:
            what = f"`{' '.join(option.words)}` is a command as text, which {program} splits into arguments"
            raise UsageError("wrap-shell", what, where=f"argument {option.at + 1}", hint=_INTO_TEXT)
    others = list(line.others)
    given = {option.name for option in line.options}
    if others and argv[others[0]] in rule.clears:
        given.add(argv[others.pop(0)])
    del others[: rule.skips]
    if rule.ends and others and argv[others[0]] == "--":
        others.pop(0)
    sets: list[tuple[str, Optional[str]]] = [
        (option.value, None) for option in line.options if option.name == rule.unsets
    ]
    while rule.assigns and others and "=" in argv[others[0]]:
        name, _, value = argv[others.pop(0)].partition("=")
        sets.append((name, value))
    if not others:
        raise UsageError("wrap-no-runtime", f"`{word}` starts no runtime here", where=f"argument {at + 1}", hint=HINT)
    if rule.shell and argv[others[0]] in ("-c", "--command"):
        what = f"`{argv[others[0]]}` of {program} is a command as text"
        raise UsageError("wrap-shell", what, where=f"argument {others[0] + 1}", hint=_INTO_TEXT)
    clears = not given.isdisjoint(rule.clears) or (rule.keeps is not None and given.isdisjoint(rule.keeps))
    return Prefix(tuple(argv[at : others[0]]), rule.moves, tuple(sets), clears, rule.several)


def _read(rule: _Rule, argv: Sequence[str], at: int) -> Line:
    """Return the options of a prefix. After one that is not in the table, the next words show if it takes a value."""

    def guessed(trouble: Trouble) -> Optional[int]:
        is_guessed = rule.guesses and trouble.kind == "unknown"
        return _guessed(argv, trouble.at) if is_guessed else None

    line = read_options(rule.reader, table(rule.options), argv, at, guessed)
    if line.trouble is not None:
        what = f"`{argv[line.trouble.at]}` cannot be read, so the beginning of the command is not known"
        raise UsageError("wrap-option", what, where=f"argument {line.trouble.at + 1}", hint=HINT)
    return line


def _guessed(argv: Sequence[str], at: int) -> Optional[int]:
    """Return where to go on after an unknown option, if that is sure: a known program, or another option, is there."""
    if "=" in argv[at]:
        return at + 1
    for after in (at + 1, at + 2):
        word = argv[after] if after < len(argv) else ""
        if word.startswith("-") or basename(word) in PROGRAMS or is_prefix(word):
            return after
    return None
