#!/bin/sh
# taskprolog.sh   give each task the plan: the user's own `apptainer exec IMAGE` then needs no --nv
#
# Install   mode 755, owned by root; in slurm.conf
#             TaskProlog=/etc/slurm/gpubind/taskprolog.sh
# Settings  the lines below
# Runs      as the user, with the job's GPUs. Slurm reads the lines `export NAME=VALUE` and `print TEXT` of its output:
#           an error, also one of this user's permissions, is a line in the task's own output. If there is no plan, the
#           task's output and syslog say why; on a node without GPUs, only for a task that has some.
# Reads     the job's variables, GPUBIND_* and the user's configuration. But the machine's Python runs gpubind: the
#           machine's programs come first in PATH, and PYTHON* and LD_PRELOAD do not count.
# Exit      0: a task starts in any case.
gpubind=/usr/local/bin/gpubind
limit=20 # seconds after which gpubind is ended

PATH=/usr/sbin:/usr/bin:/sbin:/bin${PATH:+:$PATH}
# shellcheck disable=SC2046
unset LD_PRELOAD $(env | sed -n 's/^\(PYTHON[A-Z0-9_]*\)=.*/\1/p')
export PATH PYTHONNOUSERSITE=1
exec 3>&1
said=$(timeout -k 2 "$limit" "$gpubind" plan -q --nv --format taskprolog 2>&1 >&3 3>&-)
status=$?
case $status:$SLURM_JOB_GPUS$SLURM_STEP_GPUS in
    0:* | 3:) exit 0 ;;
    124:*) said="no answer in $limit s" ;;
esac
said=$(printf %s "${said:-no answer}" | tr -s '[:space:]' ' ' | tr -c ' -~' '?' | tail -c 800)
said="no GPU plan, so a container needs --nv: exit code $status: $said"
printf 'print gpubind: %s\n' "$said"
timeout -k 2 "$limit" logger -t gpubind "job $SLURM_JOB_ID: $said"
exit 0
