#!/bin/sh
# taskprolog.sh   give each task the plan: the user's own `apptainer exec IMAGE` then needs no --nv
#
# Install   mode 755, owned by root; in slurm.conf
#             TaskProlog=/etc/slurm/gpubind/taskprolog.sh
# Runs      as the user, with the job's GPUs. Slurm reads the lines `export NAME=VALUE` and `print TEXT` of its output:
#           an error, also one of this user's permissions, is a line in the task's own output.
# Exit      0: a task starts in any case.
/usr/local/bin/gpubind plan -q --nv --format taskprolog
exit 0
