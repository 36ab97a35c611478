#!/bin/sh
# healthcheck.sh [drain]   drain this Slurm node while a container could not use its GPUs, and resume it afterwards
#
# Install   with prolog.sh and epilog.sh in one directory, mode 755, owned by root; in slurm.conf
#             HealthCheckProgram=/etc/slurm/gpubind/healthcheck.sh
#             HealthCheckInterval=300
# Settings  the lines below; what a node must have, and which findings drain it: /etc/gpubind/config.toml
# Reasons   `gpubind: uvm-missing(/dev/nvidia-uvm)`. Only a reason that begins with `gpubind:` is changed or resumed:
#           a node that an administrator has drained, or has given another reason, stays as it is.
#           Slurm keeps the first reason of a drained node. If a job ends there and an epilog fails, only slurmctld's log
#           has `epilog error`. So a node with a job gets ` - resume by hand` after the reason, and stays drained.
# Exit      0; 1 if the node is broken. If it could not be checked, syslog has the reason, and the node stays as it is.
#           With `drain` it resumes nothing, and calls the controller only about a broken node.
gpubind=/usr/local/bin/gpubind
scontrol=/usr/bin/scontrol
vendor=--nv
nodes='*'                   # the names of the nodes with GPUs, as a pattern
limit=20                    # seconds after which gpubind, or a call of the controller, is ended
by_hand=' - resume by hand' # empty: these nodes are resumed, and a reason of Slurm's own is lost

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
limited() { timeout -k 2 "$limit" "$@"; }
update() { limited "$scontrol" update nodename="$name" state="$1" reason="$2"; }
look() {
    node=$(limited "$scontrol" show node "$name") || exit $status
    state=${node#*[[:space:]]State=} state=${state%%[[:space:]]*}
    reason=${node#*[[:space:]]Reason=} reason=${reason%%[[:cntrl:]]*} reason=${reason% \[*}
    case $state in *DRAIN*) ;; *) reason= ;; esac # what Slurm keeps of an earlier one
    mark=$by_hand
    case $state in
        *COMPLETING* | *DOWN* | *FAIL* | *INVAL* | *REBOOT*) ;;
        IDLE*) case $reason in *"$by_hand") ;; *) mark= ;; esac ;;
    esac
}

name=${SLURMD_NODENAME:-$(uname -n)}
# shellcheck disable=SC2254
case $name in $nodes) ;; *) exit 0 ;; esac
# With an environment of its own: no variable of a job counts.
said=$(limited env -i PATH="$PATH" "$gpubind" check "$vendor" --gpus all --format slurm 2>&1)
status=$?
why=$(printf '%s\n' "$said" | sed -n '/^gpubind: /{p;q;}')
case $status:$why in
    0:*) [ "$1" != drain ] || exit 0 ;;
    1:gpubind:*) printf '%s\n' "$why" ;; # slurmd logs it; a Python that is broken ends with 1, too
    *)
        [ $status != 124 ] || said="no answer in $limit s"
        said=$(printf %s "${said:-no answer}" | tr -s '[:space:]' ' ' | tr -c ' -~' '?' | tail -c 800)
        limited logger -t gpubind "not checked: exit code $status: $said"
        exit 0
        ;;
esac

look
case $reason in
    gpubind:*) ;;
    *) case $state in *DRAIN* | *DOWN* | *FAIL*) exit $status ;; esac ;;
esac
if [ $status = 0 ]; then
    [ -z "$reason" ] || [ -n "$mark" ] || update undrain none # Slurm would keep the old reason
elif [ "$reason" != "$why$mark" ]; then
    update drain "$why$mark"
    # A job may have started meanwhile.
    [ -n "$mark" ] || { look; [ -z "$mark" ] || update drain "$why$mark"; }
fi
exit $status
