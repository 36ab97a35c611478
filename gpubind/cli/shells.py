"""Completion for bash, zsh and fish: scripts made of the commands as they are, that ask nobody when somebody presses
tab.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Optional

from gpubind.data import HOSTS
from gpubind.documents import CHECK_FORMATS, FORMATS
from gpubind.errors import UsageError, one_of
from gpubind.explanation import codes
from gpubind.like import FLAVOURS
from gpubind.model import CAPABILITIES
from gpubind.request import SOURCES
from gpubind.rules import RULES
from gpubind.runtimes import PLAN_FORMATS, RUNTIMES

SHELLS = ("bash", "zsh", "fish")
SIDES = ("auto", "host", "image")
FINDINGS = tuple(sorted(rule.code for rule in RULES))
WORDS: dict[str, tuple[str, ...]] = {
    "--host": HOSTS,
    "--caps": (*CAPABILITIES, "all"),
    "--gpus": ("all", "none"),
    "--source": SOURCES,
    "--like": tuple(FLAVOURS),
    "--vendor-neutral": SIDES,
    "--userspace": SIDES,
    "--cuda-compat": SIDES,
    "--libc": SIDES,
    "--backend": (*RUNTIMES, "auto"),
    "--only": FINDINGS,
    "--ignore": FINDINGS,
}
"""The values of options, whatever the command."""
LISTS = ("--caps", "--only", "--ignore")
"""Options that take several of them, separated by commas."""
STARTING = ("exec", "run", "shell", "wrap")
"""Commands whose arguments are files and another program's command line."""


class Value(NamedTuple):
    """An option, or the arguments, of a command."""

    names: tuple[str, ...]
    """Of an option, the short one first."""
    about: str
    words: tuple[str, ...] = ()
    """What it may be."""
    files: Optional[Literal["files", "directories"]] = None
    """What else."""
    is_flag: bool = False
    is_repeatable: bool = False

    @property
    def is_list(self) -> bool:
        """Whether it takes several words, separated by commas."""
        return self.names[-1:] != () and self.names[-1] in LISTS


class Spec(NamedTuple):
    """A command."""

    name: str
    about: str
    options: tuple[Value, ...]
    arguments: Value


def script_of(shell: str, group: Any, context: Any) -> str:
    """The completion script for *shell* of the commands of *group*. Errors: `UsageError` (code `unknown-shell`)."""
    if shell not in SHELLS:
        raise UsageError("unknown-shell", f"unknown shell `{shell}`", hint=one_of(SHELLS, shell))
    specs = [_spec(group.get_command(context, name), context) for name in group.list_commands(context)]
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](specs)


def _spec(command: Any, context: Any) -> Spec:
    options = tuple(
        _value(command.name, param) for param in command.get_params(context) if param.param_type_name == "option"
    )
    words = {"explain": tuple(code for code, _ in codes()), "completion": SHELLS}.get(command.name, ())
    arguments = Value((), "", words, "files" if command.name in STARTING else None)
    return Spec(command.name, _first(command.help), options, arguments)


def _value(command: str, param: Any) -> Value:
    names = tuple(sorted((*param.opts, *param.secondary_opts), key=len))
    long = next(name for name in param.opts if name.startswith("--"))
    formats = {"plan": (*FORMATS, *PLAN_FORMATS, "sh"), "check": CHECK_FORMATS}
    words = formats.get(command, ()) if long == "--format" else WORDS.get(long, ())
    metavar = param.metavar or ""
    files: Optional[Literal["files", "directories"]] = None
    if metavar == "DIR":
        files = "directories"
    elif "FILE" in metavar or metavar in ("IMAGE", "PATH"):
        files = "files"
    return Value(names, _first(param.help or ""), words, files, param.is_flag, param.multiple)


def _first(text: str) -> str:
    """The first sentence of *text*, without what it lists."""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split()).partition(". ")[0].partition(": ")[0].rstrip(".")


def _bash(specs: list[Spec]) -> str:
    cases = []
    for spec in specs:
        for value in spec.options:
            if not value.is_flag:
                names = "|".join(f"{spec.name}:{name}" for name in value.names)
                cases.append(f"    {names}) {_bash_value(value)} ;;")
        flags = " ".join(name for value in spec.options for name in value.names)
        argument = _bash_value(spec.arguments)
        cases.append(f'    {spec.name}:*) if [[ $cur == -* ]]; then words="{flags}"; else {argument}; fi ;;')
    return _BASH.format(
        commands=" ".join(spec.name for spec in specs), cases="\n".join(cases), starting="|".join(STARTING)
    )


def _bash_value(value: Value) -> str:
    parts = [f'words="{" ".join(value.words)}"'] if value.words else []
    parts += ["list=1"] if value.is_list else []
    parts += [f"files={value.files}"] if value.files else []
    return " ".join(parts) or ":"


_BASH = """\
# Completion of gpubind for bash: eval "$(gpubind completion bash)", or a file of bash-completion's directory.
_gpubind() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} words= list= files= head= word at
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W "{commands} --version --help" -- "$cur"))
    return
  fi
  case ${{COMP_WORDS[1]}} in {starting})
    for (( at = 2; at < COMP_CWORD; at++ )); do
      if [[ ${{COMP_WORDS[at]}} == -- ]]; then
        compopt -o default
        return
      fi
    done ;;
  esac
  case ${{COMP_WORDS[1]}}:$prev in
{cases}
  esac
  if [[ $list && $cur == *,* ]]; then
    head=${{cur%,*}},
  fi
  COMPREPLY=($(compgen -P "$head" -W "$words" -- "${{cur##*,}}"))
  if [[ $files ]]; then
    compopt -o filenames
    while IFS= read -r word; do COMPREPLY+=("$word"); done < <(
      if [[ $files == directories ]]; then compgen -d -- "$cur"; else compgen -f -- "$cur"; fi
    )
  fi
}}
complete -F _gpubind gpubind
"""


def _zsh(specs: list[Spec]) -> str:
    commands = " ".join(_quoted(f"{spec.name}:{spec.about}") for spec in specs)
    cases = []
    for spec in specs:
        words = [word for value in spec.options for word in _zsh_option(value)]
        words.append(_quoted("*:argument:" + (_zsh_action(spec.arguments) or "_default")))
        cases.append(f"    {spec.name})\n      _arguments -S {' '.join(words)} ;;")
    return _ZSH.format(commands=commands, cases="\n".join(cases))


def _zsh_option(value: Value) -> Iterable[str]:
    about = value.about.replace("[", "\\[").replace("]", "\\]")
    others = "*" if value.is_repeatable else f"({' '.join(value.names)})"
    for name in value.names:
        if value.is_flag:
            yield _quoted(f"{others}{name}[{about}]")
        else:
            equals = "=" if name.startswith("--") else ""
            yield _quoted(f"{others}{name}{equals}[{about}]:value:{_zsh_action(value)}")


def _zsh_action(value: Value) -> str:
    words = " ".join(value.words)
    if value.is_list:
        return f"_values -s , value {words}"
    files = {"files": "_files", "directories": "_files -/", None: ""}[value.files]
    if words and files:
        return f" _gpubind_or_files {words}"
    return f"({words})" if words else files


_ZSH = """\
#compdef gpubind
# Completion of gpubind for zsh: a file _gpubind in a directory of fpath, or: source <(gpubind completion zsh)
_gpubind_or_files() {{
  _alternative "words:value:($*)" "files:file:_files"
}}
_gpubind() {{
  local -a commands=({commands})
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{cases}
  esac
}}
if [[ $funcstack[1] == _gpubind ]]; then
  _gpubind "$@"
else
  compdef _gpubind gpubind
fi
"""


def _fish(specs: list[Spec]) -> str:
    lines = ["# Completion of gpubind for fish: gpubind completion fish | source", "complete -c gpubind -f"]
    for spec in specs:
        about = f"-a {spec.name} -d {_quoted(spec.about)}"
        lines.append(f"complete -c gpubind -n __fish_use_subcommand {about}")
        here = f"complete -c gpubind -n '__fish_seen_subcommand_from {spec.name}'"
        for value in spec.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in value.names)
            lines.append(f"{here} {names}{_fish_value(value)} -d {_quoted(value.about)}")
        if spec.arguments.words or spec.arguments.files:
            lines.append(here + _fish_value(spec.arguments))
    return "\n".join(lines) + "\n"


def _fish_value(value: Value) -> str:
    if value.is_flag:
        return ""
    words = " ".join(value.words)
    if value.is_list:
        words = f"(__fish_append , {words})"
    if value.files == "directories":
        words = f"{words} (__fish_complete_directories)".strip()
    kind = " -F" if value.files == "files" else ""
    needs = " -r" if value.names else ""
    return f"{needs}{kind}" + (f" -a {_quoted(words)}" if words else "")


def _quoted(text: str) -> str:
    return shlex.quote(text)
