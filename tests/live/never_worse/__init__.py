"""Never worse than `--nv`: each start is made by the real program and by gpubind, and what both gave is compared.

`tables` says what may vary, `sample` deals starts from the tables, `build` makes what they need, `run` makes the starts
on the rig, `ways` knows the commands, `probe` looks around inside, `compare` judges, `report` prints. `created.sh` and
`toolkit` are for containers of docker and podman.
"""
