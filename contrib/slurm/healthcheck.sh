#!/bin/sh
# healthcheck.sh [drain]   drain this Slurm node while a container could not use its GPUs, and resume it afterwards
#
# Install   with prolog.sh and epilog.sh in one directory, mode 755, owned by root; in slurm.conf
#             HealthCheckProgram=/etc/slurm/gpubind/healthcheck.sh
#             HealthCheckInterval=300
# Settings  the lines below; what a node must have, and which findings drain it: /etc/gpubind/config.toml
# Reasons   `gpubind: uvm-missing(/dev/nvidia-uvm)`. Only a reason that begins with `gpubind:` is changed or resumed:
#           a node that an administrator has drained, or has given another reason, stays as it is.
# Exit      0; 1 if the node is broken. If it could not be checked, syslog has the reason, and the node stays as it is.
#           With `drain` it resumes nothing, and calls the controller only about a broken node.
gpubind=/usr/local/bin/gpubind
scontrol=/usr/bin/scontrol
vendor=--nv
nodes='*' # the names of the nodes with GPUs, as a pattern

name=${SLURMD_NODENAME:-$(/usr/bin/uname -n)}
# shellcheck disable=SC2254
case $name in $nodes) ;; *) exit 0 ;; esac
# With an environment of its own: no variable of a job counts.
why=$(/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$gpubind" check "$vendor" --gpus all --format slurm)
status=$?
case $status:$why in
    0:*) [ "$1" != drain ] || exit 0 ;;
    1:gpubind:*) echo "$why" ;; # slurmd logs it; a Python that is broken ends with 1, too
    *) /usr/bin/logger -t gpubind "exit code $status: ${why:-no answer}"; exit 0 ;;
esac

node=$("$scontrol" show node "$name") || exit $status
state=${node#*[[:space:]]State=} state=${state%%[[:space:]]*}
reason=${node#*[[:space:]]Reason=} reason=${reason%%[[:cntrl:]]*} reason=${reason% \[*}
case $state:$reason in
    *DRAIN*:gpubind:*) [ $status = 1 ] || exec "$scontrol" update nodename="$name" state=undrain ;;
    *DRAIN* | *DOWN* | *FAIL*) exit $status ;;
    *) reason= ;;
esac
[ $status = 0 ] || [ "$reason" = "$why" ] || "$scontrol" update nodename="$name" state=drain reason="$why"
exit $status
