#!/bin/bash
# created.sh SITE CREATE START   a container that the line CREATE creates, and the line START starts or enters
# created.sh daemon              become a dockerd at $DOCKER_HOST, whose directory is there
#
# SITE is one of tables.CREATED. Both lines are text for a shell, in which $name is the container's. Each container of
# podman has a mount namespace of its own; docker's are in that of the daemon, one after the other.
set -u
here=/srv/gpubind/tests/live/never_worse
. /srv/gpubind/tests/live/rig/update
directory=${DOCKER_HOST-}; directory=${directory#unix://}; directory=${directory%/*}

if [[ $1 == daemon ]]; then
    mount -t tmpfs tmpfs /etc/cdi
    echo $$ > "$directory/namespace"
    echo '{"features": {"cdi": true}}' > "$directory/daemon.json"
    exec dockerd --config-file "$directory/daemon.json" --iptables=false --bridge=none --data-root="$directory/data" \
        --exec-root="$directory/exec" --pidfile="$directory/pid" -H "$DOCKER_HOST" > "$directory/log" 2>&1
fi

if [[ ! ${in_namespace-} ]]; then
    case $1 in
        podman*) export in_namespace=1; exec unshare --mount -- "$0" "$@" ;;
    esac
    until docker version > /dev/null 2>&1; do sleep 0.1; done
    export in_namespace=1
    exec flock "$directory/lock" nsenter --mount --target "$(cat "$directory/namespace")" --wd="$PWD" -- "$0" "$@"
fi

spec() {
    case $site in
        *toolkit*) python3 $here/toolkit.py /etc/cdi/nvidia.json ;;
        *) gpubind plan -q --nv --gpus all --strict --format cdi -o /etc/cdi/nvidia.json ;;
    esac
}

site=$1 engine=${1%% *} name=made-$$
export PODMAN_IGNORE_CGROUPSV1_WARNING=1
if [[ $engine == podman ]]; then
    mount -t tmpfs tmpfs /etc/cdi
else
    docker image inspect made:bookworm > /dev/null 2>&1 ||
        tar -C /srv/ct/bookworm --exclude=./{dev,tmp,var,root}/* --exclude=./usr/share/{doc,locale,man}/* -c . |
        docker import - made:bookworm > /dev/null
fi
spec
eval "$2" > /dev/null
status=$?
if [[ $status == 0 && $site == *update* ]]; then
    [[ $site == *create* ]] || $engine stop --time 0 "$name" > /dev/null
    update 550.163.01 560.35.03
    spec
    [[ $site == *create* ]] || $engine start "$name" > /dev/null
fi
if [[ $status == 0 ]]; then
    eval "$3"
    status=$?
fi
$engine rm --force "$name" > /dev/null 2>&1
[[ $site != *update* ]] || undo 2> /dev/null
exit $status
