"""The options of `docker run` and `podman run`, and what a user's own words among them say.

Sources: `docker run --help` of 26.1.5 and `podman run --help` of 5.4.2, and what both said to options that those hide;
docker/cli `opts/file.go` (files of variables), `opts/mount.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from posixpath import join, normpath
from typing import Optional

from gpubind.ldso.brought import UserBind
from gpubind.model import ContainerPath, HostPath
from gpubind.runtimes.flags import Flag, Options, assigned, by_name, parse_command_line, parse_list
from gpubind.runtimes.start import Start

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
PODMAN_ANYWHERE = """
    cgroup-manager= conmon= cpu-profile= db-backend= default-mounts-file= events-backend= hooks-dir= identity=
    imagestore= log-level= max-workers= memory-profile= namespace= network-backend= network-cmd-path=
    network-config-dir= out= pull-option= registries-conf= root= runroot= runtime= runtime-flag= ssh=
    storage-driver= storage-opt= syslog tls-ca= tls-cert= tls-key= tmpdir= trace transient-store volumepath=
"""
"""Options of podman itself that stand behind `run`, too."""


def _flags(*texts: str) -> tuple[Flag, ...]:
    """The options of a table: `name|other-name/letter=`, with `=` for one that takes a value."""
    made = []
    for word in " ".join(texts).split():
        names, _, letter = word.rstrip("=").partition("/")
        kind = "array" if word.endswith("=") else "bool"
        made += [Flag(name, kind, letter if place == 0 else "") for place, name in enumerate(names.split("|"))]  # type: ignore[arg-type]  # of two words
    return tuple(made)


FLAGS = {"docker": _flags(DOCKER_RUN), "podman": _flags(PODMAN_RUN, PODMAN_ANYWHERE)}


def read_options(program: str, arguments: Sequence[str], environ: Mapping[str, str]) -> Options:
    """What *arguments* ask of *program*, `docker` or `podman`. Variables say nothing of a container's options."""
    line = parse_command_line(arguments, FLAGS[program])
    values = by_name(line.given)
    env = {name: value for text in values.pop("env", ()) for name, value in _assigned(text, environ).items()}
    return Options(values, env, line.unknown, line.rest, line.incomplete)


def _assigned(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """As `assigned`; for podman `NAME*` means all of the caller's that begin so."""
    if "=" not in text and text.endswith("*"):
        return {key: value for key, value in environ.items() if key.startswith(text[:-1])}
    return assigned(text, environ)


def read_env_file(text: str, environ: Mapping[str, str]) -> dict[str, Optional[str]]:
    """The variables that the text of a file of --env-file sets: a line each, nothing is quoted."""
    values: dict[str, Optional[str]] = {}
    for line in text.removeprefix("\ufeff").split("\n"):
        line = line.rstrip("\r").lstrip()
        if line and not line.startswith("#"):
            values.update(_assigned(line, environ))
    return values


def said(start: Start, name: str) -> Optional[str]:
    """The user's own value for variable *name* of the container: --env wins over --env-file."""
    return start.options.env.get(name, start.env_files.get(name))


def users_binds(start: Start) -> Iterator[UserBind]:
    """What the user binds by --volume and --mount; volumes of the program's own have no path on this host."""
    for text in start.options.all("volume"):
        source, colon, behind = text.partition(":")
        target = behind.partition(":")[0]
        if colon and target.startswith("/") and source.startswith(("/", ".")):
            yield _bind(start, source, target)
    for text in start.options.all("mount"):
        fields = {key.lower(): value for key, _, value in (field.partition("=") for field in parse_list(text))}
        source = fields.get("source") or fields.get("src") or ""
        target = fields.get("destination") or fields.get("dst") or fields.get("target") or ""
        if fields.get("type") == "bind" and source and target.startswith("/"):
            yield _bind(start, source, target)


def _bind(start: Start, source: str, target: str) -> UserBind:
    return UserBind(HostPath(normpath(join(start.working_directory or "/", source))), ContainerPath(normpath(target)))


def users_places(start: Start) -> tuple[str, ...]:
    """The places in the container that the user mounts something on, whatever that is."""
    places: list[str] = []
    for text in start.options.all("volume"):
        first, colon, behind = text.partition(":")
        places.append(behind.partition(":")[0] if colon else first)
    for text in start.options.all("mount"):
        fields = {key.lower(): value for key, _, value in (field.partition("=") for field in parse_list(text))}
        places.append(fields.get("destination") or fields.get("dst") or fields.get("target") or "")
    places += [text.partition(":")[0] for text in start.options.all("tmpfs")]
    return tuple(dict.fromkeys(normpath(place) for place in places if place.startswith("/")))
