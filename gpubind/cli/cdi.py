"""`plan --format cdi`. No `from __future__ import annotations`: see options.py."""

import os
from typing import TYPE_CHECKING, Optional

from gpubind.cli.options import PlanOptions, make_plan, open_host_of, open_image_of
from gpubind.errors import HostReadError, UsageError
from gpubind.model import ContainerPath, HostPath

if TYPE_CHECKING:
    from gpubind.model import Plan


def plan_as_cdi(options: PlanOptions, image: Optional[str], hook: Optional[str]) -> tuple["Plan", str]:
    """The plan, and the CDI spec that says it; *hook* is where nvidia-cdi-hook is, if it is to be used."""
    from gpubind.documents.cdi import render_cdi
    from gpubind.planner.placement import cdi_layout
    from gpubind.stage import stage

    if options.libdir is not None and hook is None:
        why = "a spec cannot add to a search path, and no loader looks there by itself"
        hint = "give --cdi-hook, too, where nvidia-cdi-hook is installed"
        raise UsageError("fixed-libdir", "--libdir alone cannot move the libraries of a CDI spec", why=why, hint=hint)
    if hook is not None and not (os.path.isabs(hook) and os.access(hook, os.X_OK)):
        hint = "leave --cdi-hook out: libraries then lie where every loader looks"
        raise HostReadError("no-cdi-hook", "there is no such program", where=hook, hint=hint)
    if options.gpus is None and not options.cdi_device:
        options = options._replace(gpus="all")  # a spec is for every job: what chooses in this one's does not count
    host = open_host_of(options)
    opened = open_image_of(image, host)
    layout = cdi_layout(host.uname.machine, opened.facts.loader_directories if opened else None)
    if hook is not None:
        where = ContainerPath("/.gpubind/libs")
        layout = layout._replace(libdir=where, more_libdirs=(), searched=False)
    made = make_plan(options, host=host, image=opened, layout=layout)
    return made, render_cdi(made, stage(made.generated, os.environ), HostPath(hook) if hook else None)
