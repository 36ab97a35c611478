"""Documents that set variables: environment modules, Slurm's TaskProlog."""
