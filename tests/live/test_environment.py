"""Variables that a plan sets, of hostile values: a container gets the same bytes, or the name is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live.containers import CONTAINERS, image, readable
from tests.live.machine import PYTHON_ENV, Bind, Machine

pytestmark = pytest.mark.live

VALUES = {
    "PLAIN": "value",
    "EMPTY": "",
    "BLANK": " two  words ",
    "PAIR": "a=1",
    "PAIRS": "a=1,b=2",
    "COMMAS": "1,2,,3,",
    "QUOTED": '"q"',
    "QUOTE": 'a"b',
    "ONE_END": 'a"',
    "SINGLE": "it's 'so'",
    "JSON": '{"a":"b=c","d":["e"]}',
    "DOLLAR": "$HOME ${HOME} $$ $(id) $((1+1))",
    "BACKQUOTE": "`id`",
    "BACKSLASH": "a\\b\\\\c\\$d\\",
    "ESCAPED_QUOTE": '\\"',
    "LINES": "one\ntwo\n\nthree",
    "TAB": "a\tb",
    "RETURN": "a\rb",
    "GLOB": "*[?]~ #! &;|<>(){}",
    "UNICODE": "ünï ☃",
    "LIKE_AN_OPTION": "--nv",
}
SPEC = {
    "cdiVersion": "0.6.0",
    "kind": "vendor.com/dev",
    "devices": [{"name": "d", "containerEdits": {"env": [f"{name}={value}" for name, value in VALUES.items()]}}],
}
PROBE = f"import json, os; print(json.dumps({{name: os.environ.get(name) for name in {list(VALUES)}}}))"
GPUBIND = "python3 -m gpubind"
OPTIONS = "--cdi-device vendor.com/dev=d --cdi-dir /srv/cdi"
SANDBOX = image("bookworm-sb")
FORMS = {
    "apptainer": f'{GPUBIND} exec -q --backend apptainer {OPTIONS} {SANDBOX} python3 -c "$PROBE"',
    "no-eval": f'{GPUBIND} exec -q --backend apptainer --backend-arg=--no-eval {OPTIONS} {SANDBOX} python3 -c "$PROBE"',
    "bwrap": f'{GPUBIND} exec -q --backend bwrap {OPTIONS} {SANDBOX} python3 -c "$PROBE"',
    "quoted": f"words=$({GPUBIND} plan -q {OPTIONS} --format apptainer --format sh); "
    f'eval "apptainer exec $words {SANDBOX} python3 -c \\"\\$PROBE\\""',
    "variables": f'eval "$({GPUBIND} plan -q {OPTIONS} --format apptainer-env)"; '
    f'apptainer exec {SANDBOX} python3 -c "$PROBE"',
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
def test_every_value_arrives_to_the_letter(trixie: Machine, tmp_path: Path, form: str, user: bool) -> None:
    (tmp_path / "vendor.json").write_text(json.dumps(SPEC))
    binds = [*trixie.modules, CONTAINERS, Bind(readable(str(tmp_path)), "/srv/cdi")]
    env = {**PYTHON_ENV, "PROBE": PROBE, **({} if user else {"APPTAINER_NO_PRIVS": "1"})}
    done = trixie.run(["sh", "-ec", FORMS[form]], user=user, driver=True, binds=binds, env=env)
    arrived = json.loads(done.stdout)
    # Apptainer takes away what is empty.
    assert {name: arrived[name] or "" for name in VALUES} == VALUES


@pytest.mark.parametrize("value", ["a\r\nb=c", 'a\r\n"'])
def test_a_value_that_no_option_can_say_is_refused_by_name(trixie: Machine, tmp_path: Path, value: str) -> None:
    spec = {**SPEC, "devices": [{"name": "d", "containerEdits": {"env": [f"NAME={value}"]}}]}
    (tmp_path / "vendor.json").write_text(json.dumps(spec))
    words = ["exec", "--backend", "apptainer", *OPTIONS.split(), SANDBOX, "true"]
    done = trixie.tried(
        *words, user=True, driver=True, binds=[CONTAINERS, Bind(readable(str(tmp_path)), "/srv/cdi")], status=125
    )
    assert "error: unsupported-value: " in done.stderr
    assert "NAME" in done.stderr
