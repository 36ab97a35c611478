"""Query many nodes at once, over Slurm or ClusterShell: `ask.query_nodes`. A node answers with one line of JSON."""
