"""A plan as an environment module: what it changes when it is loaded, and that nothing stays when it is unloaded.

Lua's and Tcl's own programs read the modules where they are installed; a small reader of ours does so everywhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Callable, NamedTuple

import pytest

from gpubind import plan
from gpubind.documents.modules import render_lmod, render_tcl
from gpubind.errors import RuntimeLimitError
from gpubind.model import ContainerPath, EnvVar, HostPath, Request
from gpubind.planner.placement import SINGULARITY_LAYOUT
from gpubind.runtimes.runtime import PreparedStart
from tests.documents.printed import PLAN, after_exports, printed
from tests.support.driver import host, kernel, rhel
from tests.support.hostile_names import HOSTILE, IN_A_LIST, UNSAYABLE


class Call(NamedTuple):
    """One line of a module."""

    function: str
    words: tuple[str, ...]


def calls_of_lua(text: str) -> list[Call]:
    """A reader of the Lua that is written: calls whose arguments are strings."""
    calls = []
    for line in text.split("\n")[:-1]:
        if line.startswith("--"):
            continue
        function, arguments = re.fullmatch(r'(\w+)\(((?:"(?:[^"\\]|\\.)*"(?:, )?)*)\)', line).groups()  # type: ignore[union-attr]
        calls.append(Call(function, tuple(_unescaped(word) for word in re.findall(r'"((?:[^"\\]|\\.)*)"', arguments))))
    return calls


def calls_of_tcl(text: str) -> list[Call]:
    """The same of Tcl: what would be a variable, a command or a brace there has a backslash before it."""
    calls = []
    for line in text.split("\n")[:-1]:
        if line.startswith("#"):
            continue
        assert not re.search(r"(?<!\\)(?:\\\\)*[$\[\]{}]", line)
        found = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line)
        function, *words = [_unescaped(quoted) if quoted else plain for quoted, plain in found]
        if words[0] == "-d":
            words = [*words[2:], words[1]]
        names = {"append-path": "append_path", "module-whatis": "whatis"}
        calls.append(Call(names.get(function, function), tuple(words)))
    return calls


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def loaded(calls: list[Call], environ: Mapping[str, str]) -> dict[str, str]:
    """*environ* once the module is loaded."""
    made = dict(environ)
    for function, said in calls:
        if function == "setenv":
            made[said[0]] = said[1]
        elif function == "append_path":
            name, value, separator = said
            made[name] = f"{made[name]}{separator}{value}" if made.get(name) else value
    return made


READERS: list[tuple[Callable[[PreparedStart, Mapping[str, str]], str], Callable[[str], list[Call]]]] = [
    (render_lmod, calls_of_lua),
    (render_tcl, calls_of_tcl),
]


@pytest.mark.parametrize(("render", "read"), READERS, ids=["lmod", "tcl"])
@pytest.mark.parametrize("program", ["apptainer", "singularity"])
@pytest.mark.parametrize("own", [False, True], ids=["nothing", "users-own"])
def test_a_module_says_what_the_lines_for_a_shell_say(
    render: Callable[[PreparedStart, Mapping[str, str]], str],
    read: Callable[[str], list[Call]],
    program: str,
    own: bool,
) -> None:
    prefix = program.upper()
    environ = {f"{prefix}_BIND": "/mine:/there", f"{prefix}ENV_LD_LIBRARY_PATH": "/my/lib"} if own else {}
    item = printed(program=program)
    told = after_exports(environ, item)
    if own:  # append_path has one value, which may also stand alone: so the image's empty elements stay
        told[f"{prefix}ENV_LD_LIBRARY_PATH"] = f"/my/lib:{after_exports({}, item)[f'{prefix}ENV_LD_LIBRARY_PATH']}"
    assert loaded(read(render(item, {})), environ) == told


@pytest.mark.parametrize(("render", "read"), READERS, ids=["lmod", "tcl"])
def test_a_module_is_for_every_caller_and_unsets_nothing(
    render: Callable[[PreparedStart, Mapping[str, str]], str], read: Callable[[str], list[Call]]
) -> None:
    item = printed()
    text = render(item, {"APPTAINER_BIND": "/x", "APPTAINER_NV": "1"})
    assert text == render(item, {})
    assert {call.function for call in read(text)} == {"whatis", "setenv", "append_path"}


@pytest.mark.parametrize(("render", "read"), READERS, ids=["lmod", "tcl"])
@pytest.mark.parametrize("name", IN_A_LIST)
def test_a_hostile_name_arrives(
    render: Callable[[PreparedStart, Mapping[str, str]], str], read: Callable[[str], list[Call]], name: str
) -> None:
    mounts = tuple(m._replace(source=HostPath(f"/{name}/{n}"), content=None) for n, m in enumerate(PLAN.mounts))
    item = printed(PLAN._replace(mounts=mounts))
    assert loaded(read(render(item, {})), {}) == after_exports({}, item)


@pytest.mark.parametrize("render", [render_lmod, render_tcl])
@pytest.mark.parametrize("name", [*UNSAYABLE, "a^b", *(name for name in HOSTILE if name not in IN_A_LIST)])
def test_a_name_that_cannot_be_said_is_refused_by_name(
    render: Callable[[PreparedStart, Mapping[str, str]], str], name: str
) -> None:
    mounts = (PLAN.mounts[0]._replace(source=HostPath(f"/{name}"), target=PLAN.mounts[0].target, content=None),)
    with pytest.raises(RuntimeLimitError) as caught:
        render(printed(PLAN._replace(mounts=mounts)), {})
    assert (caught.value.code, caught.value.where) == ("unsupported-path", f"/{name}")


@pytest.mark.parametrize("render", [render_lmod, render_tcl])
def test_a_value_of_several_lines_is_refused_by_name(render: Callable[[PreparedStart, Mapping[str, str]], str]) -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        render(printed(PLAN._replace(env=(EnvVar("A", "set", "a\nb", None, "cdi"),))), {})
    assert (caught.value.code, caught.value.where) == ("unsupported-value", "APPTAINERENV_A")


LUA = """
local function element(name, value, separator, back)
  local new = os_environ[name] or ""
  if back then
    new = new:sub(1, #new - #value)
    if new:sub(-1) == separator then new = new:sub(1, -2) end
  else new = (new == "" and value) or new .. separator .. value end
  os_environ[name] = new ~= "" and new or nil
end
os_environ = {APPTAINER_BIND = "/mine:/there"}
function whatis(text) end
function setenv(name, value) os_environ[name] = not back and value or nil end
function append_path(name, value, separator) element(name, value, separator, back) end
for _, way in ipairs({false, true}) do
  back = way
  dofile(arg[1])
  for name, value in pairs(os_environ) do io.write(name, "=", value, "\\0") end
  io.write("\\0")
end
"""
TCL = """
array set environ {APPTAINER_BIND /mine:/there}
proc module-whatis {text} {}
proc setenv {name value} { global environ back; if {$back} { unset environ($name) } else { set environ($name) $value } }
proc append-path {option separator name value} {
  global environ back
  set old [expr {[info exists environ($name)] ? $environ($name) : ""}]
  if {!$back} { set new [expr {$old eq "" ? $value : "$old$separator$value"}]
  } else { set new [string trimright [string range $old 0 end-[string length $value]] $separator] }
  if {$new eq ""} { unset environ($name) } else { set environ($name) $new }
}
fconfigure stdout -translation binary -encoding utf-8
foreach back {0 1} {
  source -encoding utf-8 [lindex $argv 0]
  foreach name [array names environ] { puts -nonewline "$name=$environ($name)\\0" }
  puts -nonewline "\\0"
}
"""
PROGRAMS = [
    pytest.param(program, source, render, read, id=program)
    for program, source, (render, read) in (
        *((name, LUA, READERS[0]) for name in ("lua5.1", "lua5.3", "lua5.4", "lua")),
        *((name, TCL, READERS[1]) for name in ("tclsh", "tclsh8.6", "tclsh9.0")),
    )
    if shutil.which(program)
]


@pytest.mark.parametrize(("program", "source", "render", "read"), PROGRAMS)
def test_the_languages_own_program_loads_and_unloads_it(
    tmp_path: Path,
    program: str,
    source: str,
    render: Callable[[PreparedStart, Mapping[str, str]], str],
    read: Callable[[str], list[Call]],
) -> None:
    """With every name that can be said in a path, and every one in a variable: each arrives as its bytes."""
    kept = next(mount for mount in PLAN.mounts if mount.kind == "binary")
    mounts = tuple(
        kept._replace(source=HostPath(f"/{name}/x"), target=ContainerPath(f"/opt/{n}"), content=None)
        for n, name in enumerate(IN_A_LIST)
    )
    env = tuple(EnvVar(f"V{n}", "set", value, None, "cdi") for n, value in enumerate(HOSTILE))
    item = printed(PLAN._replace(mounts=mounts, env=env))
    text = render(item, {})
    (tmp_path / "module").write_text(text)
    (tmp_path / "program").write_text(source)
    done = subprocess.run(
        [program, str(tmp_path / "program"), str(tmp_path / "module")], capture_output=True, check=True
    )
    first, second, _ = done.stdout.decode().split("\0\0")
    before = {"APPTAINER_BIND": "/mine:/there"}
    after = dict(line.split("=", 1) for line in first.split("\0"))
    assert after == loaded(read(text), before) == after_exports(before, item)
    assert all(f"/{name}/x:/opt/{n}:ro" in after["APPTAINER_BIND"].split(",") for n, name in enumerate(IN_A_LIST))
    assert dict(line.split("=", 1) for line in second.split("\0")) == before


def test_libraries_that_nvs_own_flag_would_bind_are_said_as_it_says_them() -> None:
    """Else `--nv` beside the module would be fatal."""
    calls = calls_of_lua(render_lmod(printed(), {}))
    (contained,) = [call for call in calls if "CONTAINLIBS" in call.words[0]]
    assert "libcuda.so.1" in contained.words[1]
    assert not [
        call for call in calls_of_lua(render_lmod(printed(program="singularity"), {})) if "CONTAINLIBS" in call.words[0]
    ]


def test_another_host_has_a_module_too() -> None:
    on = host(rhel(), kernel())
    made = plan(on, Request(), layout=SINGULARITY_LAYOUT._replace(isolated=False))
    assert "/staged/usr/share/vulkan" in render_lmod(printed(made, on=on), {})
