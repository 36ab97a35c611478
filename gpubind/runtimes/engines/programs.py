"""The command lines of docker, nerdctl and podman, of Compose and of buildah.

Sources: `--help` of docker 26.1.5 and podman 5.4.2, and how each answers options that `--help` hides; the reference of
`docker run` for --use-api-socket. nerdctl 2.3.5 was not run: `cmd/nerdctl/main.go`, `container/container_run.go` and
`container_exec.go`.
"""

from __future__ import annotations

from gpubind.runtimes.cmdline.programs import ALL_ACTIONS, Family, RuntimeProgram, StartSubcommand
from gpubind.runtimes.cmdline.reader import PFLAG

_RUN = """
    add-host= annotation= attach/a= blkio-weight= blkio-weight-device= cap-add= cap-drop= cgroup-parent= cgroupns=
    cidfile= cpu-period= cpu-quota= cpu-rt-period= cpu-rt-runtime= cpus= cpuset-cpus= cpuset-mems= detach/d detach-keys=
    device= device-read-bps= device-read-iops= device-write-bps= device-write-iops= dns= dns-opt|dns-option= dns-search=
    entrypoint= env/e= env-file= expose= gpus= group-add= help hostname/h= init interactive/i ip= ip6= ipc= label/l=
    label-file= log-driver= log-opt= mac-address= memory/m= memory-reservation= memory-swap= memory-swappiness= mount=
    name= net|network= no-healthcheck oom-kill-disable oom-score-adj= pid= pids-limit= platform= privileged publish/p=
    publish-all/P pull= quiet/q read-only restart= rm security-opt= shm-size= sig-proxy stop-signal= stop-timeout=
    sysctl= tmpfs= tty/t ulimit= user/u= userns= uts= volume/v= volumes-from= workdir/w=
"""
"""The options of `run` that all three programs have."""
_EXEC = "detach/d env/e= env-file= help interactive/i privileged tty/t user/u= workdir/w="
"""The options of `exec` that all three programs have."""
_DOCKER = "config= context/c= debug/D help host/H= log-level/l= tls tlscacert= tlscert= tlskey= tlsverify version/v"
_DOCKER_RUN = """
    cpu-count= cpu-percent= cpu-shares/c= device-cgroup-rule= disable-content-trust domainname= health-cmd=
    health-interval= health-retries= health-start-interval= health-start-period= health-timeout= io-maxbandwidth=
    io-maxiops= isolation= kernel-memory= link= link-local-ip= net-alias|network-alias= runtime= storage-opt=
    use-api-socket volume-driver=
"""
DOCKER_PULL = "disable-content-trust platform= quiet/q"
"""The options of `run` that `pull` also has."""
_NERDCTL = "debug/d debug-full host|address/aH= namespace/n= snapshotter|storage-driver= help/h version/v"
_NERDCTL_ANYWHERE = """
    bridge-ip= cdi-spec-dirs= cgroup-manager= cni-netconfpath= cni-path= data-root= experimental global-dns=
    global-dns-opts= global-dns-search= host-gateway-ip= hosts-dir= insecure-registry kube-hide-dupe selinux-enabled
    userns-remap=
"""
_NERDCTL_LONG_ANYWHERE = "address|host= debug debug-full namespace= snapshotter|storage-driver="
_NERDCTL_RUN = """
    cgroup-conf= cosign-certificate-identity= cosign-certificate-identity-regexp= cosign-certificate-oidc-issuer=
    cosign-certificate-oidc-issuer-regexp= cosign-key= cpu-shares= domainname= health-cmd= health-interval=
    health-retries= health-start-period= health-timeout= init-binary= ipfs-address= isolation= kernel-memory= pidfile=
    rdt-class= rootfs runtime= systemd= umask= verify=
"""
_PODMAN = "config= connection/c= context= help host/H= module= noout remote/r url= version/v"
_PODMAN_ANYWHERE = """
    cdi-spec-dir= cgroup-manager= conmon= cpu-profile= db-backend= default-mounts-file= events-backend= hooks-dir=
    identity= imagestore= log-level= max-workers= memory-profile= namespace= network-backend= network-cmd-path=
    network-config-dir= out= pull-option= registries-conf= root= runroot= runtime= runtime-flag= ssh= storage-driver=
    storage-opt= syslog tls-ca= tls-cert= tls-key= tmpdir= trace transient-store volumepath=
"""
_PODMAN_RUN = """
    arch= authfile= cert-dir= cgroup-conf= cgroups= chrootdirs= conmon-pidfile= cpu-shares/c= creds= decryption-key=
    device-cgroup-rule= disable-content-trust env-host env-merge= gidmap= group-entry= health-cmd|healthcheck-command=
    health-interval|healthcheck-interval= health-log-destination= health-max-log-count= health-max-log-size=
    health-on-failure= health-retries|healthcheck-retries= health-start-period|healthcheck-start-period=
    health-startup-cmd= health-startup-interval= health-startup-retries= health-startup-success= health-startup-timeout=
    health-timeout|healthcheck-timeout= hosts-file= hostuser= http-proxy image-volume= init-ctr= init-path=
    network-alias= no-hostname no-hosts os= override-arch= override-os= override-variant= passwd passwd-entry=
    personality= pidfile= pod= pod-id-file= preserve-fd= preserve-fds= rdt-class= read-only-tmpfs replace requires=
    retry= retry-delay= rmi rootfs sdnotify= seccomp-policy= secret= shm-size-systemd= signature-policy= subgidname=
    subuidname= systemd= timeout= tls-verify tz= uidmap= umask= unsetenv= unsetenv-all variant=
"""
_PODMAN_EXEC = "cidfile= detach-keys= latest/l no-session preserve-fd= preserve-fds="
PODMAN_PULL = """
    arch= authfile= cert-dir= creds= decryption-key= disable-content-trust os= platform= quiet/q retry= retry-delay=
    signature-policy= tls-verify variant=
"""
_COMPOSE = """
    all-resources ansi= compatibility context/c= dry-run env-file= file/f= help/h host/H= in-pod= insecure-registry=
    ipfs-address= log-level= no-ansi no-cleanup no-normalize no-pod parallel= pod-args= podman-args= podman-build-args=
    podman-inspect-args= podman-kill-args= podman-logs-args= podman-path= podman-pull-args= podman-push-args=
    podman-rm-args= podman-run-args= podman-start-args= podman-stop-args= profile= progress= project-directory=
    project-name/p= skip-hostname-check tls tlscacert= tlscert= tlskey= tlsverify verbose version/v workdir=
"""
"""Options of `docker compose`, docker-compose 1.29, podman-compose 1.5 and `nerdctl compose` before the subcommand."""
_BUILDAH = """
    cgroup-manager= help/h log-level= registries-conf= registries-conf-dir= root= runroot= short-name-alias-conf=
    storage-driver= storage-opt= userns-gid-map= userns-uid-map= version/v
"""


def _engine(family: Family, own: str, run: str, join: str, anywhere: str = "", later: str = "") -> RuntimeProgram:
    """Return the command line of an engine. The options in *anywhere* may precede or follow the subcommand."""
    started = StartSubcommand(f"{_RUN} {run} {anywhere} {later}", actions=ALL_ACTIONS)
    joined = StartSubcommand(f"{_EXEC} {join} {anywhere} {later}", "joined")
    starts = {(*group, verb): started for group in ((), ("container",)) for verb in ("run", "create")}
    joins = {("exec",): joined, ("container", "exec"): joined}
    return RuntimeProgram(PFLAG, {**starts, **joins}, f"{own} {anywhere}", family)


DOCKER = NVIDIA_DOCKER = _engine("docker", _DOCKER, _DOCKER_RUN, "detach-keys=")
NERDCTL = _engine("nerdctl", _NERDCTL, _NERDCTL_RUN, "", _NERDCTL_ANYWHERE, _NERDCTL_LONG_ANYWHERE)
PODMAN = _engine("podman", _PODMAN, _PODMAN_RUN, _PODMAN_EXEC, _PODMAN_ANYWHERE)
DOCKER_COMPOSE = PODMAN_COMPOSE = RuntimeProgram(PFLAG, {}, _COMPOSE, "docker")
"""Compose: files define the containers that it starts."""
BUILDAH = RuntimeProgram(PFLAG, {}, _BUILDAH, "podman")
"""buildah: its containers are those of builds."""
