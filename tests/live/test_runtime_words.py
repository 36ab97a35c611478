"""The plan in Apptainer's words: through a shell, with a site's and a user's own settings, into the real program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.live.containers import CONTAINERS, Case, image, library_path, privileges, readable, start
from tests.live.machine import CHECKOUT, PYTHON_ENV, Bind, Machine
from tests.live.table import Shows

pytestmark = pytest.mark.live

LIBDIR = "/.singularity.d/libs"
CONF = "/etc/apptainer/apptainer.conf"
SHELL = 'gpubind() { python3 -m gpubind "$@"; }\nprobe() { "$@" python3 -c "$PROBE"; }\n'
PROBE = "import ctypes, os; print(os.environ['LD_LIBRARY_PATH'], ctypes.CDLL('libcuda.so.1').cuInit(0))"

SUBSTITUTION = "probe apptainer exec {own} $(gpubind plan --nv --format apptainer {image}) {path}"
EVAL = 'eval "probe apptainer exec {own} $(gpubind plan --format apptainer --format sh {image}) {path}"'
VARIABLES = 'eval "$(gpubind plan --format apptainer-env {image})"; probe apptainer exec {own} {path}'
FORMS = pytest.mark.parametrize("form", [SUBSTITUTION, EVAL, VARIABLES], ids=["substitution", "eval", "variables"])

WHO = pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
SWITCH = pytest.mark.parametrize("env", [{}, {"APPTAINER_NV": "1"}], ids=["no-variable", "APPTAINER_NV"])
SITE = pytest.mark.parametrize("always", ["no", "yes"], ids=["site-never", "site-always"])
IMAGES = ("bookworm", "bookworm-sb", "bookworm-path-sb", "bookworm.sif")
OWN = "/opt/own/lib"
"""What bookworm-path-sb has in its LD_LIBRARY_PATH."""


@WHO
@SWITCH
@SITE
def test_exec_starts_whatever_switches_the_programs_own_binds_on(
    trixie: Machine, tmp_path: Path, user: bool, env: Mapping[str, str], always: str
) -> None:
    case = Case("apptainer", "bookworm-sb", user)
    assert library_path(trixie, case, env=env, binds=[site(trixie, tmp_path, always)])[0] == LIBDIR


@FORMS
@SWITCH
@SITE
def test_words_start_whatever_switches_the_programs_own_binds_on(
    trixie: Machine, tmp_path: Path, form: str, env: Mapping[str, str], always: str
) -> None:
    assert started(trixie, form, "bookworm-sb", user=True, env=env, binds=[site(trixie, tmp_path, always)])[0] == LIBDIR


@FORMS
@WHO
def test_words_go_through_a_shell(trixie: Machine, form: str, user: bool) -> None:
    assert set(started(trixie, form, "bookworm-sb", user=user)) == {LIBDIR}


@FORMS
@pytest.mark.parametrize("known", [True, False], ids=["image-known", "image-unknown"])
def test_words_keep_the_values_of_the_user_and_of_the_image(trixie: Machine, form: str, known: bool) -> None:
    elements = started(trixie, form, "bookworm-path-sb", user=True, known=known)
    assert elements[:2] == [LIBDIR, OWN]
    env = {"APPTAINERENV_LD_LIBRARY_PATH": "/user/lib:/other"}
    elements = started(trixie, form, "bookworm-path-sb", user=True, known=known, env=env)
    assert elements[:4] == ["/user/lib", "/other", LIBDIR, OWN]


@pytest.mark.parametrize("variable", ["APPTAINER_BIND", "SINGULARITY_BIND", "APPTAINER_BINDPATH"])
def test_variables_add_to_the_binds_that_the_user_has(trixie: Machine, variable: str) -> None:
    form = VARIABLES + "; apptainer exec {own} {path} test -x /mnt/build"
    rig = Bind(f"{CHECKOUT}/tests/live/rig", "/srv/rig")
    env = {variable: f"{rig.target}:/mnt"}
    assert started(trixie, form, "bookworm-sb", user=True, env=env, binds=[rig])[0] == LIBDIR


@pytest.mark.parametrize(
    "form",
    [
        VARIABLES.replace("; probe", '; eval "$(gpubind plan --format apptainer-env {image})"; probe'),
        VARIABLES.replace("apptainer exec", "apptainer exec --nv"),
        VARIABLES.replace("apptainer exec", "apptainer exec --no-eval"),
        VARIABLES.replace("; probe", "; export APPTAINER_NO_EVAL=1; probe"),
        VARIABLES.replace("apptainer exec", "apptainer exec --nv --env A=1"),
    ],
    ids=["twice", "later-nv", "no-eval", "no-eval-variable", "later-nv-and-env"],
)
def test_variables_serve_every_later_start(trixie: Machine, form: str) -> None:
    assert started(trixie, form, "bookworm-sb", user=True)[0] == LIBDIR


ONCE = ("bookworm-sb", "bookworm.sif")
"""Images of Apptainer's that set no LD_LIBRARY_PATH: elsewhere Apptainer names its directory beside gpubind."""


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("user", [True], ids=["user"])
def test_the_drivers_directory_comes_first_and_nothing_is_empty(
    trixie: Machine, name: str, user: bool, shows: Shows
) -> None:
    elements = library_path(trixie, Case("apptainer", name, user))
    assert elements[0] == LIBDIR
    assert "" not in elements
    assert (OWN in elements) == (name == "bookworm-path-sb")
    assert elements.count(LIBDIR) == (1 if name in ONCE else 2)
    if OWN in elements:
        shows("apptainer", "the image's")


@pytest.mark.parametrize("name", IMAGES)
def test_a_variable_of_the_users_stays_in_front(trixie: Machine, name: str) -> None:
    env = {"APPTAINERENV_LD_LIBRARY_PATH": "/user/lib"}
    elements = library_path(trixie, Case("apptainer", name, True), env=env)
    assert elements[:2] == ["/user/lib", LIBDIR]
    assert "" not in elements


@pytest.mark.parametrize("name", IMAGES)
def test_an_option_of_the_users_stays_in_front(trixie: Machine, name: str, shows: Shows) -> None:
    option = ("--backend-arg=--env", "--backend-arg=LD_LIBRARY_PATH=/x")
    elements = library_path(trixie, Case("apptainer", name, True, option))
    assert elements[:2] == ["/x", LIBDIR]
    assert elements.count(LIBDIR) == 1 or name not in ONCE
    assert "" not in elements
    shows("apptainer", "the user's")


@pytest.mark.parametrize("name", IMAGES)
def test_a_file_of_the_users_stays_in_front(trixie: Machine, tmp_path: Path, name: str) -> None:
    (tmp_path / "env").write_text("LD_LIBRARY_PATH=/from/file\n")
    option = ("--backend-arg=--env-file", "--backend-arg=/srv/given/env")
    given = Bind(readable(str(tmp_path)), "/srv/given")
    elements = library_path(trixie, Case("apptainer", name, True, option), binds=[given])
    assert elements[:2] == ["/from/file", LIBDIR]
    assert "" not in elements


def test_without_evaluation_a_sif_is_known_and_nothing_is_lost(trixie: Machine) -> None:
    case = Case("apptainer", "bookworm.sif", True, ("--backend-arg=--no-eval",))
    assert library_path(trixie, case)[0] == LIBDIR
    assert "library-path-last" not in start(trixie, case, "true").stderr


def test_without_evaluation_a_known_image_keeps_its_own_value(trixie: Machine) -> None:
    case = Case("apptainer", "bookworm-path-sb", True, ("--backend-arg=--no-eval",))
    assert library_path(trixie, case)[:2] == [LIBDIR, OWN]


@pytest.mark.parametrize("flag", ["", "--nv "], ids=["plain", "nv"])
def test_a_library_path_on_a_later_command_line_comes_first_and_the_driver_is_found(trixie: Machine, flag: str) -> None:
    form = VARIABLES.replace("apptainer exec", f"apptainer exec {flag}--env LD_LIBRARY_PATH=/later")
    assert started(trixie, form, "bookworm-sb", user=True) == ["/later", LIBDIR]


@WHO
@pytest.mark.parametrize("place", ["/usr/share", "/usr/share/vulkan", "/usr/local/bin"])
def test_nothing_is_made_inside_what_the_user_binds(trixie: Machine, tmp_path: Path, place: str, user: bool) -> None:
    case = Case("apptainer", "bookworm-sb", user, (f"--backend-arg=--bind=/srv/mine:{place}",))
    assert library_path(trixie, case, binds=[Bind(readable(str(tmp_path)), "/srv/mine", readonly=False)])[0] == LIBDIR
    assert list(tmp_path.iterdir()) == []


def test_bubblewrap_keeps_the_images_own_value_and_not_the_hosts(trixie: Machine, shows: Shows) -> None:
    case = Case("bwrap", "bookworm-path-sb", True)
    assert library_path(trixie, case, env={"LD_LIBRARY_PATH": "/host/lib"}) == ["/.gpubind/libs", OWN]
    shows("bwrap", "the image's")


def site(machine: Machine, directory: Path, always: str) -> Bind:
    """Apptainer's configuration with `always use nv` set, over the one of the machine."""
    text = Path(machine.root + CONF).read_text()
    assert "\nalways use nv = no\n" in text
    path = directory / "apptainer.conf"
    path.write_text(text.replace("\nalways use nv = no\n", f"\nalways use nv = {always}\n"))
    path.chmod(0o644)
    return Bind(str(path), CONF)


def started(
    machine: Machine,
    form: str,
    name: str,
    *,
    user: bool,
    known: bool = False,
    env: Mapping[str, str] = {},
    binds: Iterable[Bind] = (),
) -> list[str]:
    """The elements of LD_LIBRARY_PATH in a container that a shell started; cuInit has to work in it."""
    fill = {
        "own": " ".join(privileges("apptainer", user=user)),
        "image": f"--image {image(name)}" if known else "",
        "path": image(name),
    }
    done = machine.run(
        ["sh", "-ec", SHELL + form.format(**fill)],
        user=user,
        driver=True,
        binds=[*machine.modules, CONTAINERS, *binds],
        env={**PYTHON_ENV, "PROBE": PROBE, **env},
    )
    value, status = done.stdout.split()
    assert status == "100"
    assert "" not in value.split(":")
    return value.split(":")
