"""`gpubind oci-runtime`: gpubind in the place of runc or crun, as engines call them.

`passing.hand_over` passes a call through; `edit.edit_bundle` puts the plan into the config.json of a container that
requests GPUs. Then this process becomes runc or crun, with the same arguments.
"""
