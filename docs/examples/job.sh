#!/bin/bash
#SBATCH --gpus=1 --requeue
gpubind check --nv                                      # the node without the image
if [ $? -eq 1 ]; then                                   # its fault: another node may do
    [ "${SLURM_RESTART_COUNT:-0}" -ge 3 ] || scontrol requeue "$SLURM_JOB_ID"
    exit 1
fi
gpubind check --nv --image app.sif --program python     # the image on a node without fault
[ $? -ne 1 ] || exit 1                                  # its fault: no node like this one runs it
srun gpubind exec --nv app.sif python train.py
