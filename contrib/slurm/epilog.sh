#!/bin/sh
# epilog.sh   drain a node whose GPUs a container can no longer use, before the next job is sent there
#
# Install   beside healthcheck.sh, which has the settings; in slurm.conf
#             Epilog=/etc/slurm/gpubind/epilog.sh
#           With prolog.sh and a HealthCheckProgram it saves one start that would fail, at the price of one more check.
# Exit      0: Slurm drains a node for any other, with the reason `Epilog error`.
[ -z "$SLURM_JOB_GPUS" ] || "${0%/*}/healthcheck.sh" drain
exit 0
