"""What a runtime is: one value, made by its module, with everything that the rest of gpubind asks of a runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Callable, Literal, NamedTuple, Optional, get_args

from gpubind.files import Tree
from gpubind.host import Host
from gpubind.model import ContainerPath, Plan, Vendor
from gpubind.planner.placement import GPUBIND, Layout
from gpubind.runtimes.cmdline.flags import Options
from gpubind.runtimes.edits import Words
from gpubind.runtimes.start import Action, Start

if TYPE_CHECKING:
    from gpubind.loader.brought import Brought

ImageForm = Literal["directory", "file", "bundle", "layout", "archive", "reference", "registry", "source"]
"""How an image is given to a runtime: a directory, a file that holds a file system (SIF, squashfs), an OCI bundle; an
OCI layout (`oci:DIR`), an archive (`oci-archive:FILE`, `docker-archive:FILE`); a name of a store's, a registry's
(`docker://`), another source's (`library://`, `oras://`, `instance://`)."""

Store = Literal["podman", "docker"]
STORES: tuple[Store, ...] = get_args(Store)


class UserNamespaces(NamedTuple):
    """A runtime that an ordinary user starts in a user namespace."""

    helpers: tuple[str, ...]
    """Its set-user-id programs: with one of them it needs no user namespace."""
    moves: bool
    """Whether the runtime is often in a module tree, with its set-user-id program elsewhere."""
    message: str
    """What it says where the kernel allows none."""


class Limits(NamedTuple):
    """What a runtime cannot do, and does otherwise than its caller may think."""

    user_namespaces: Optional[UserNamespaces] = None
    """None: it needs none."""
    drops_groups: bool = False
    """Whether a container gets other groups than its caller's."""
    keep_groups: Optional[str] = None
    """What its --group-add takes to keep them all; None: each must be given by number."""
    systemd_cgroups: bool = False
    """Whether systemd manages the device cgroups of its containers."""
    no_read_only_bind: bool = False
    """Whether whatever it binds is as writable as it is for its caller."""
    hides_missing_command: bool = False
    """Whether its exit code does not tell a command that is not there (127) or is no program (126)."""


class ProgramIdentity(NamedTuple):
    """What a program says of itself."""

    name: str
    """Which of the runtimes it is, whatever the program is called."""
    version: Optional[tuple[int, ...]]


RUNSCRIPT = "/.singularity.d/runscript"
"""What an image of Apptainer's or SingularityCE's runs by default."""


class Call(NamedTuple):
    """What is to be started."""

    program: str
    """The runtime's own: a path, or a name."""
    action: Action
    image: str
    """As the user gives it."""
    tree: Optional[Tree]
    """The files of the image, if they could be looked at."""
    argv: tuple[str, ...]
    """The command in the container, with its arguments."""
    token: str = "ID"
    """What no other start has in its name."""
    terminal: Optional[bool] = False
    """Whether standard input is one."""

    @property
    def shell(self) -> str:
        """The image's shell: bash, if it has that."""
        return "/bin/bash" if self.tree is not None and self.tree.has("/bin/bash") else "/bin/sh"

    @property
    def in_directory(self) -> tuple[str, ...]:
        """What runs in a container of a plain directory: for `run` its runscript, as Apptainer's images have one; for
        `shell`, or where nothing is named, its shell.
        """
        if self.action == "run" and self.tree is not None and self.tree.has(RUNSCRIPT):
            return (RUNSCRIPT, *self.argv)
        return (self.shell, *self.argv) if self.action == "shell" or not self.argv else self.argv


class Pull(NamedTuple):
    """How a runtime gets an image that it starts, by the user's own options."""

    when: Literal["missing", "always", "newer", "never"]
    """`always`, `newer`: before each start; `missing`: where its store does not have the image."""
    words: tuple[str, ...]
    """The command line, behind the program."""
    prints_name: bool
    """Whether it prints on standard output the image's ID or name alone, last, and its progress on standard error."""
    no_more: tuple[str, ...]
    """Options that keep a start behind it from pulling again."""


STAGED_DIRECTORY = "<generated>"
"""The word of a command that stands for the directory in which its file is."""


class StagedFile(NamedTuple):
    """A file that the runtime reads when it starts."""

    name: str
    content: str


class Command(NamedTuple):
    """What this process becomes."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    file: Optional[StagedFile] = None
    """What must be written first, to a directory of its own; that takes the place of the word `STAGED_DIRECTORY`."""


class Printed(NamedTuple):
    """What a form is made of."""

    words: Words
    start: Start
    host: Host
    plan: Plan


def _as_it_is(environ: Mapping[str, str]) -> Mapping[str, str]:
    return environ


class Form(NamedTuple):
    """A way to print a plan for a runtime: `plan --format NAME`."""

    render: Callable[[Printed], str]
    quoted: Optional[Callable[[Printed], str]] = None
    """The same for a shell's `eval`, with `--format sh` on top; None: it has no words to quote."""
    environ_of: Callable[[Mapping[str, str]], Mapping[str, str]] = _as_it_is
    """What of the caller's environment the plan is made with: a text may look at the rest when it is evaluated."""


def _no_options(program: str, arguments: Sequence[str], environ: Mapping[str, str]) -> Options:
    return Options()


def _no_override(start: Start, name: str) -> bool:
    return False


def _nothing_generated(plan: Plan, start: Start, image: Optional[Tree]) -> Mapping[ContainerPath, str]:
    return {}


def _no_skeleton(plan: Plan, start: Start, image: Optional[Tree]) -> tuple[ContainerPath, ...]:
    return ()


def _unknown(plan: Plan, start: Start, image: Optional[Tree]) -> Optional[Brought]:
    return None


def _own_layout(start: Start) -> Layout:
    return GPUBIND


def _no_tools(environ: Mapping[str, str]) -> tuple[str, ...]:
    return ()


def _no_remote(
    environ: Mapping[str, str], read: Callable[[str], Optional[str]], own: Mapping[str, str]
) -> Optional[str]:
    return None


def _no_site(text: str) -> Mapping[str, tuple[str, ...]]:
    return {}


def _no_values(text: str, environ: Mapping[str, str]) -> Mapping[str, Optional[str]]:
    return {}


class Runtime(NamedTuple):
    """A container runtime. All functions are pure: what they must know of this machine comes in `Start`."""

    name: str
    """What --backend calls it, and what its program is called."""
    title: str
    """What people call it."""
    images: tuple[ImageForm, ...]
    """What it starts: `--backend auto` goes by that."""
    words: Callable[[Plan, Start, Optional[Tree]], Optional[Words]]
    """The plan in its words; None where those cannot be told without an image. Errors: `RuntimeLimitError`."""
    command: Callable[[Call, Start, Words], Command]
    """The whole command line."""
    limits: Limits = Limits()
    image_hint: str = ""
    """What to do with an image that is none of `images`."""

    # Facts of this machine, for a Start.
    identify: Optional[Callable[[str], ProgramIdentity]] = None
    """Reads what `PROGRAM --version` printed; None: it makes no difference, and is not asked."""
    site: Optional[str] = None
    """Its configuration file."""
    parse_site: Callable[[str], Mapping[str, tuple[str, ...]]] = _no_site
    options_of: Callable[[str, Sequence[str], Mapping[str, str]], Options] = _no_options
    """What the user's own words and the caller's environment ask of the runtime of that name."""
    read_env_file: Callable[[str, Mapping[str, str]], Mapping[str, Optional[str]]] = _no_values
    """What the text of a file of its --env-file sets."""
    nodes: tuple[str, ...] = ()
    """Patterns of the nodes in /dev that it brings beside the plan's."""
    files: tuple[str, ...] = ()
    """Files of the host that it brings beside the plan's."""
    inits: tuple[str, ...] = ()
    """Programs that it can make the first of a container, by the place where packages have them."""
    tools: Callable[[Mapping[str, str]], tuple[str, ...]] = _no_tools
    """Files of which one must be there beside its program, by the caller's environment."""
    store: Optional[Store] = None
    """Whose images it starts by a name that has no `/` or `.` in front: those of that program's own store."""
    pull: Optional[Callable[[str, Options, Mapping[str, str], str], Pull]] = None
    """How the runtime of that name, with the user's options and those before its subcommand, gets an image into its
    store; None: it has no store."""
    remote_of: Callable[[Mapping[str, str], Callable[[str], Optional[str]], Mapping[str, str]], Optional[str]] = (
        _no_remote
    )
    """What of the caller's environment, of files of the caller's, or of the program's own options before its
    subcommand sends it to another machine."""
    other_stores: tuple[str, ...] = ()
    """Such options with which it may have other images than `store` tells."""

    # Of a Start.
    overrides: Callable[[Start, str], bool] = _no_override
    """Whether the caller's own value of that variable does not reach the container."""
    layout: Callable[[Start], Layout] = _own_layout
    """Where a plan lands, and whether the container's /dev will hold the planned nodes alone."""
    blind_layout: Optional[Callable[[str], Layout]] = None
    """Where a plan for a machine lands if the image is not known, by architecture; None: where `layout` has it."""
    generated: Callable[[Plan, Start, Optional[Tree]], Mapping[ContainerPath, str]] = _nothing_generated
    """The texts of files of its own, beside the plan's, by their place in the container."""
    skeleton: Callable[[Plan, Start, Optional[Tree]], tuple[ContainerPath, ...]] = _no_skeleton
    """Where it needs empty files, in a directory of their own, because it cannot make mount points for files."""
    in_line: Optional[Callable[[Plan, Start, Optional[Tree]], Words]] = None
    """The plan in words for a command line that makes its container itself, with the user's own options among them;
    None: `words` behind the user's options do it. Errors: `RuntimeLimitError`."""
    brought: Callable[[Plan, Start, Optional[Tree]], Optional[Brought]] = _unknown
    """What a start brings beside the plan; None where that is not known."""
    forms: Mapping[str, Form] = MappingProxyType({})
    """By the name of the format."""
    gpu_flags: Mapping[Vendor, str] = MappingProxyType({})
    """Its own flag for the GPUs of a vendor, with which it starts where the host cannot be looked at."""

    @property
    def fetches(self) -> bool:
        """Whether it finds images by itself: what is no file here need be no mistake."""
        return self.store is None and ("reference" in self.images or "registry" in self.images)
