"""Apptainer and SingularityCE: two runtimes of one kind, whose words are the same but for LD_LIBRARY_PATH and the names
of variables.

A program called singularity may be Apptainer: what it says of itself counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Optional

from gpubind.loader.namespace import Brought
from gpubind.model import ContainerPath, Plan
from gpubind.model.layouts import STARTER_PREFIXES
from gpubind.planner.placement import Layout
from gpubind.runtimes.apptainer.brought import brought
from gpubind.runtimes.apptainer.environment import generated
from gpubind.runtimes.apptainer.exports import render_exports, without_gpu_switches, without_variables
from gpubind.runtimes.apptainer.options import options_of, parse_site, read_env_file
from gpubind.runtimes.apptainer.values import overrides
from gpubind.runtimes.apptainer.words import layout_of, words
from gpubind.runtimes.cmdline.programs import PROGRAMS
from gpubind.runtimes.cmdline.reader import Line, Options
from gpubind.runtimes.cmdline.tables import APPTAINER_INSTANCE
from gpubind.runtimes.edits import Words
from gpubind.runtimes.runtime import Call, Command, Limits, Printed, ProgramVersion, Runtime, Start, UserNamespaces


class Apptainer(Runtime):
    name = "apptainer"
    title = "Apptainer"
    images = ("directory", "file", "layout", "archive", "registry", "source")
    asks_version = True
    gpu_flags = MappingProxyType({"nvidia": "--nv", "amd": "--rocm"})

    def __init__(self) -> None:
        helpers = tuple(f"{prefix}/{self.name}/bin/starter-suid" for prefix in STARTER_PREFIXES)
        message = "it will say `Failed to create user namespace`"
        self.limits = Limits(user_namespaces=UserNamespaces(helpers, moves=True, message=message))
        self.site = f"/etc/{self.name}/{self.name}.conf"

    def identify(self, text: str) -> ProgramVersion:
        """`apptainer version 1.4.5` -> `APPTAINER`, (1, 4, 5); `singularity-ce version 4.1.0` -> `SINGULARITY`."""
        match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
        version = tuple(int(part) for part in match.groups(default="0")) if match else None
        return ProgramVersion(APPTAINER if "apptainer" in text else SINGULARITY, version)

    def parse_site(self, text: str) -> Mapping[str, tuple[str, ...]]:
        return parse_site(text)

    def options_of(self, arguments: Sequence[str], environ: Mapping[str, str]) -> Options:
        return options_of(self.name, self.line_of(arguments), environ)

    def line_of(self, arguments: Sequence[str]) -> Line:
        return PROGRAMS[self.name].read(arguments, APPTAINER_INSTANCE)

    def read_env_file(self, text: str, environ: Mapping[str, str]) -> Mapping[str, Optional[str]]:
        return read_env_file(text, environ)

    def overrides(self, start: Start, name: str) -> bool:
        return overrides(start, name)

    def layout(self, start: Start, *, is_blind: bool = False) -> Layout:
        return layout_of(start)

    def generated(self, plan: Plan, start: Start) -> Mapping[ContainerPath, str]:
        return generated(plan, start)

    def words(self, plan: Plan, start: Start) -> Words:
        return words(plan, start)

    def command(self, call: Call, start: Start, words: Words) -> Command:
        """Return the whole command line: the user's own options first, so that ours are not taken back by accident."""
        argv = (call.program, call.action, *start.user.arguments, *words.options, call.image, *call.argv)
        return Command(argv, without_variables(without_gpu_switches(start.caller.environ), words.unset))

    def brought(self, plan: Plan, start: Start) -> Brought:
        return brought(start)

    def environ_of(self, form: str, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return *environ* without the values that the lines for a shell read themselves, when they are evaluated."""
        if form == self.name:
            return environ
        return without_variables(environ, ("LD_LIBRARY_PATH", "PREPEND_LD_LIBRARY_PATH"))

    def render(self, form: str, printed: Printed, *, quoted: bool = False) -> str:
        return super().render(form, printed, quoted=quoted) if form == self.name else render_exports(printed)


class Singularity(Apptainer):
    name = "singularity"
    title = "SingularityCE"


APPTAINER = Apptainer()
SINGULARITY = Singularity()
