"""Where each rule about hosts fires, and where it is almost so."""

from __future__ import annotations

from build.driver import kernel, rhel
from rules.situations import Case, Situation, without

CASES: dict[str, Case] = {
    "uvm-missing": Case(
        Situation((rhel(), without(kernel(), "/dev/nvidia-uvm"))),
        Situation((rhel(), without(kernel(), "/dev/nvidia-uvm")), request={"caps": ("utility",)}),
    ),
    "control-node-missing": Case(
        Situation((rhel(), without(kernel(), "/dev/nvidiactl"))),
        Situation((rhel(), without(kernel(None), "/dev/nvidiactl"))),
    ),
}
