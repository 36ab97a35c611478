#!/bin/sh
# prolog.sh   start no job on a node whose GPUs a container could not use
#
# Install   beside healthcheck.sh, which has the settings; in slurm.conf
#             Prolog=/etc/slurm/gpubind/prolog.sh
#             PrologFlags=Alloc
#             SchedulerParameters=nohold_on_prolog_fail
# Checks    all GPUs of the node, not only the job's, before each job that has some. It reads files of the host, nothing
#           of the user or their image: what only they lack drains no node.
# Exit      0; 1 if the node is broken. Slurm then drains the node and requeues a batch job; without
#           nohold_on_prolog_fail the job is held. The reason would be `Prolog error`, so healthcheck.sh drains first.
#           SchedMD advises against Slurm's commands in a prolog: they run only on a node that is broken.
[ -n "$SLURM_JOB_GPUS" ] || exit 0 # for whole nodes without --gpus: remove this line
exec "${0%/*}/healthcheck.sh" drain
