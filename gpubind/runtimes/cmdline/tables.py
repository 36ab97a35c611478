"""The options of the runtimes, as `reader.table` reads them.

Sources: Apptainer 1.4.5 and SingularityCE 4.5, `cmd/internal/cli/action_flags.go`; `--help` of docker 26.1.5, podman
5.4.2, ch-run 0.38, crun 1.21, runc 1.1.15, bubblewrap 0.12, systemd-nspawn 257 and proot 5.1.0, and how each answers
options that `--help` hides; ch-run(1) 0.45 for --cdi; the reference of `docker run` for --use-api-socket; `cli.py` and
`umain.py` of udocker 1.3.17.
"""

from __future__ import annotations

APPTAINER_EXEC = """
    add-caps= allow-setuid app= apply-cgroups= arch= arch-variant= authfile= bind/B= blkio-weight=
    blkio-weight-device= boot cdi-dirs= cleanenv/e compat compat32 contain/c containall/C containlibs= cpu-shares=
    cpus= cpuset-cpus= cpuset-mems= cwd= data= device= disable-cache dmtcp-launch= dmtcp-restart= dns= docker-host=
    docker-login docker-password= docker-username= drop-caps= env= env-file= fakeroot/f fusemount= help/h home/H=
    hostname= ignore-fakeroot-command ignore-subuid ignore-userns intel-hpu ipc/i keep-layers keep-privs memory=
    memory-reservation= memory-swap= mount= net/n netns-path= network= network-args= no-compat no-eval no-home no-https
    no-init no-mount= no-nv no-oci no-pid no-privs no-rocm no-setgroups no-tmp-sandbox no-umask nohttps nv nvccli oci
    oom-kill-disable overlay/o= passphrase pem-path= pids-limit= platform= pwd= rocm runscript-timeout= scratch/S=
    security= sharens sif-fuse syos tmp-sandbox tmpdir= underlay unsquash userns/u uts vm vm-cpu= vm-err vm-ip= vm-ram=
    workdir/W= writable-tmpfs writable/w
"""
"""The options of all actions of Apptainer and SingularityCE."""
APPTAINER_SHELL = "shell/s="
APPTAINER_PID = "pid/p"
"""Not an option of `instance`."""
APPTAINER_INSTANCE = "pid-file= name="
APPTAINER = "build-config config/c= debug/d help/h nocolor quiet/q silent/s verbose/v version"
"""Its own options before the action, where -s and -c have other meanings than after it."""
DOCKER_RUN = """
    add-host= annotation= attach/a= blkio-weight= blkio-weight-device= cap-add= cap-drop= cgroup-parent=
    cgroupns= cidfile= cpu-count= cpu-percent= cpu-period= cpu-quota= cpu-rt-period= cpu-rt-runtime=
    cpu-shares/c= cpus= cpuset-cpus= cpuset-mems= detach/d detach-keys= device= device-cgroup-rule=
    device-read-bps= device-read-iops= device-write-bps= device-write-iops= disable-content-trust dns=
    dns-opt|dns-option= dns-search= domainname= entrypoint= env/e= env-file= expose= gpus= group-add=
    health-cmd= health-interval= health-retries= health-start-interval= health-start-period= health-timeout=
    help hostname/h= init interactive/i io-maxbandwidth= io-maxiops= ip= ip6= ipc= isolation= kernel-memory=
    label/l= label-file= link= link-local-ip= log-driver= log-opt= mac-address= memory/m= memory-reservation=
    memory-swap= memory-swappiness= mount= name= net|network= net-alias|network-alias= no-healthcheck
    oom-kill-disable oom-score-adj= pid= pids-limit= platform= privileged publish/p= publish-all/P pull= quiet/q
    read-only restart= rm runtime= security-opt= shm-size= sig-proxy stop-signal= stop-timeout= storage-opt=
    sysctl= tmpfs= tty/t ulimit= use-api-socket user/u= userns= uts= volume/v= volume-driver= volumes-from=
    workdir/w=
"""
DOCKER_EXEC = """
    detach/d detach-keys= env/e= env-file= help interactive/i privileged tty/t user/u= workdir/w=
"""
DOCKER = """
    config= context/c= debug/D help host/H= log-level/l= tls tlscacert= tlscert= tlskey= tlsverify version/v
"""
PODMAN_RUN = """
    add-host= annotation= arch= attach/a= authfile= blkio-weight= blkio-weight-device= cap-add= cap-drop=
    cert-dir= cgroup-conf= cgroup-parent= cgroupns= cgroups= chrootdirs= cidfile= conmon-pidfile= cpu-period=
    cpu-quota= cpu-rt-period= cpu-rt-runtime= cpu-shares/c= cpus= cpuset-cpus= cpuset-mems= creds=
    decryption-key= detach/d detach-keys= device= device-cgroup-rule= device-read-bps= device-read-iops=
    device-write-bps= device-write-iops= disable-content-trust dns= dns-opt|dns-option= dns-search= entrypoint=
    env/e= env-file= env-host env-merge= expose= gidmap= gpus= group-add= group-entry=
    health-cmd|healthcheck-command= health-interval|healthcheck-interval= health-log-destination=
    health-max-log-count= health-max-log-size= health-on-failure= health-retries|healthcheck-retries=
    health-start-period|healthcheck-start-period= health-startup-cmd= health-startup-interval=
    health-startup-retries= health-startup-success= health-startup-timeout= health-timeout|healthcheck-timeout=
    help hostname/h= hosts-file= hostuser= http-proxy image-volume= init init-ctr= init-path= interactive/i ip=
    ip6= ipc= label/l= label-file= log-driver= log-opt= mac-address= memory/m= memory-reservation= memory-swap=
    memory-swappiness= mount= name= net|network= network-alias= no-healthcheck no-hostname no-hosts
    oom-kill-disable oom-score-adj= os= override-arch= override-os= override-variant= passwd passwd-entry=
    personality= pid= pidfile= pids-limit= platform= pod= pod-id-file= preserve-fd= preserve-fds= privileged
    publish/p= publish-all/P pull= quiet/q rdt-class= read-only read-only-tmpfs replace requires= restart=
    retry= retry-delay= rm rmi rootfs sdnotify= seccomp-policy= secret= security-opt= shm-size=
    shm-size-systemd= sig-proxy signature-policy= stop-signal= stop-timeout= subgidname= subuidname= sysctl=
    systemd= timeout= tls-verify tmpfs= tty/t tz= uidmap= ulimit= umask= unsetenv= unsetenv-all user/u= userns=
    uts= variant= volume/v= volumes-from= workdir/w=
"""
PODMAN_EXEC = """
    cidfile= detach/d detach-keys= env/e= env-file= help interactive/i latest/l no-session preserve-fd= preserve-fds=
    privileged tty/t user/u= workdir/w=
"""
PODMAN = "config= connection/c= context= help host/H= module= noout remote/r url= version/v"
PODMAN_ANYWHERE = """
    cgroup-manager= conmon= cpu-profile= db-backend= default-mounts-file= events-backend= hooks-dir= identity=
    imagestore= log-level= max-workers= memory-profile= namespace= network-backend= network-cmd-path=
    network-config-dir= out= pull-option= registries-conf= root= runroot= runtime= runtime-flag= ssh=
    storage-driver= storage-opt= syslog tls-ca= tls-cert= tls-key= tmpdir= trace transient-store volumepath=
"""
"""Options of podman itself that may also follow `run`."""
ARGP = "help/? usage"
CRUN_CREATE = """
    bundle/b= config/f= console-socket= no-new-keyring no-pivot no-subreaper pid-file= preserve-fds=
"""
CRUN_RUN = "detach/d keep"
"""The options of `run` that `create` does not have."""
CRUN_EXEC = """
    apparmor= cap/c= cgroup= console-socket= cwd= detach/d env/e= no-new-privs pid-file= preserve-fds= process/p=
    process-label= tty/t? user/u=
"""
CRUN = "cgroup-manager= debug log= log-format= log-level= root= rootless= systemd-cgroup version/vV"
RUNC_CREATE = "bundle/b= console-socket= help/h no-new-keyring no-pivot pid-file= preserve-fds="
RUNC_RUN = "detach/d keep no-subreaper"
RUNC_EXEC = """
    additional-gids/g= apparmor= cap/c= cgroup= console-socket= cwd= detach/d env/e= help/h ignore-paused no-new-privs
    pid-file= preserve-fds= process/p= process-label= tty/t user/u=
"""
RUNC = "criu= debug help/h log= log-format= root= rootless= systemd-cgroup version/v"
CH_RUN = """
    bind/b= cd/c= cdi/d? cdi-dirs= ch-ssh env-no-expand feature= gid/g= home join/j join-ct= join-pid= join-tag=
    mount/m= no-home no-passwd private-tmp/t quiet/q seccomp set-env? set-env0? storage/s= test= uid/u= unsafe
    unset-env= verbose/v version/V warnings= write/w write-fake/W?
"""
"""The options that `ch-run --help` lists, in several releases."""
BWRAP = """
    add-seccomp-fd= args= argv0= as-pid-1 assert-userns-disabled bind-data=2 bind-fd=2 bind-try=2 bind=2
    block-fd= cap-add= cap-drop= chdir= chmod=2 clearenv dev-bind-try=2 dev-bind=2 dev= die-with-parent
    dir= disable-userns exec-label= file-label= file=2 gid= help hostname= info-fd= json-status-fd=
    level-prefix lock-file= mqueue= new-session not-a-security-boundary overlay-src= overlay=3 perms=
    pidns= proc= remount-ro= ro-bind-data=2 ro-bind-fd=2 ro-bind-try=2 ro-bind=2 ro-overlay= seccomp=
    setenv=2 share-net size= symlink=2 sync-fd= tmp-overlay= tmpfs= uid= unsetenv= unshare-all
    unshare-cgroup unshare-cgroup-try unshare-ipc unshare-net unshare-pid unshare-user unshare-user-try
    unshare-uts userns-block-fd= userns2= userns= version
"""
"""The options that `bwrap --help` lists, with the number of words that each takes."""
BWRAP_BINDS = ("bind", "bind-try", "dev-bind", "dev-bind-try", "ro-bind", "ro-bind-try")
"""Those that bind a path of the host."""
SYSTEMD_NSPAWN = """
    ambient-capability= as-pid2/a background= bind= bind-ro= bind-user= bind-user-shell= boot/b
    capability= chdir= console= cpu-affinity= directory/D= drop-capability= ephemeral/x help/h hostname=
    image-policy= image/i= inaccessible= keep-unit kill-signal= link-journal= load-credential= machine/M=
    network-bridge= network-interface= network-ipvlan= network-macvlan= network-namespace-path=
    network-veth-extra= network-veth/n network-zone= no-new-privileges= no-pager notify-ready= oci-bundle=
    oom-score-adjust= overlay-ro= overlay= personality= pipe/P pivot-root= port/p= private-network
    private-users-chown private-users-ownership= private-users? property= quiet/q read-only register=
    resolv-conf= rlimit= root-hash-sig= root-hash=
    selinux-apifs-context/L= selinux-context/Z= set-credential= setenv/E= settings= share-system slice/S=
    suppress-sync= system-call-filter= template= timezone= tmpfs= user/u= uuid= verity-data= version
    volatile? /U /j
"""
"""The options that `systemd-nspawn --help` lists, and hidden ones."""
PROOT = """
    about|version/V bind|mount/bm= change-id/i= help|usage/h kernel-release/k= qemu/q= cwd|pwd/w= root-id/0 rootfs/r=
    verbose/v= /R= /S=
"""
"""The options that `proot --help` lists."""
UDOCKER = "allow-root config= debug/D help/h insecure quiet/q repo= version/V"
UDOCKER_RUN = """
    bindhome containerauth cpuset-cpus= device= dns= dns-search= dri entrypoint= env/e= env-file= help hostauth
    hostenv httpproxy= index= kernel= location= name= netcoop nobanner nometa nosysdirs novol= platform=
    publish-all/P publish/p= pull= registry= rm user/u= volume/v= volumes-from= workdir/w= /i /t /a
"""
