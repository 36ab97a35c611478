"""Container runtimes: one module each, with its words, its command, its limits and how its version is read."""

RUNTIMES = ("apptainer", "singularity", "bwrap")
"""In the order in which `--backend auto` looks for them."""
PLAN_FORMATS = ("apptainer", "singularity", "apptainer-env", "singularity-env")
"""What `plan --format` offers of them."""
