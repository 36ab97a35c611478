"""Ask many nodes at once, over Slurm or ClusterShell: `ask.ask`. A node answers with one line of JSON."""
